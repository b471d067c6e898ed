/* SPDX-License-Identifier: Apache-2.0 */
/* Learning blocks and a codebook, as codebook and pack do. */
#ifndef TSR_CLI_LEARNING_H
#define TSR_CLI_LEARNING_H

#include "cli/cli.h"
#include "tersor/learn.h"

#define CLI_PARTITION_RULES "adjacent variance"
#define CLI_PARTITION_HELP \
	"how blocks are chosen: adjacent, by what differs between neighbours (default), or " \
	"variance, by the deviation within blocks"
#define CLI_FEW_HELP "accept values in fewer than 256 bins of the histogram"

/* What the options say. */
struct cli_learning {
	const char *partition, *compat;
	bool few;
};

/* The same for the library. */
struct tsr_learn_options cli_learn_options(const struct cli_learning *learning);

/*
 * Learn from one recording, of which the first step counts, or from files opened as one checkpoint;
 * @gradients: these hold gradients.  CLI_OK, or the exit status after a message.
 */
int cli_learn(const struct cli_learning *learning, const struct cli_list *in, bool gradients,
	      const struct tsr_open_options *open, const struct tsr_run *run,
	      struct tsr_learned **ret);

#endif
