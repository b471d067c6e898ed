/* SPDX-License-Identifier: Apache-2.0 */
/* The options of pack that choose codecs by their errors. */
#ifndef TSR_CLI_CHOOSING_H
#define TSR_CLI_CHOOSING_H

#include "cli/cli.h"
#include "tersor/pack.h"

struct cli_choosing {
	const char *bound; /* --auto; NULL: not given */
	uint64_t max_bytes; /* --max-bytes; 0: not given */
	const char *codecs; /* --auto-codecs; NULL: the usual ones */
};

/* Whether codecs are chosen. */
bool cli_chooses(const struct cli_choosing *choosing);

/*
 * The options for the library, with scales and groups as given (tsr_coding_with()).  CLI_OK, or CLI_USAGE
 * after a message.
 */
int cli_parse_choosing(const struct cli_cmd *cmd, const struct cli_choosing *choosing,
		       enum tsr_scale scale, uint32_t group, struct tsr_choice_options *ret);

/* Whether a candidate has a codec for weights. */
bool cli_chooses_weights(const struct tsr_choice_options *o);

#endif
