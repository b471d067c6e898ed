/* SPDX-License-Identifier: Apache-2.0 */
/* Learning blocks and a codebook, as codebook and pack do. */
#include "cli/learning.h"

#include <string.h>

#include "tersor/names.h"
#include "tersor/recording.h"

struct tsr_learn_options cli_learn_options(const struct cli_learning *learning)
{
	struct tsr_learn_options o = tsr_learn_defaults();

	if (learning->partition && strcmp(learning->partition, "variance") == 0)
		o.partition = TSR_PARTITION_VARIANCE;
	o.peer = learning->compat && strcmp(learning->compat, "gefen") == 0;
	o.few = learning->few;
	return o;
}

/* Whether the input is a recording, of which the first step is opened. */
static enum tsr_status open_input(const struct cli_list *in, bool recorded,
				  const struct tsr_open_options *open, struct tsr_checkpoint **ret,
				  struct tsr_err *err)
{
	struct tsr_recording *r = NULL;
	enum tsr_status status;

	if (!recorded)
		return tsr_checkpoint_open(in->items, in->n, open, ret, err);
	status = tsr_recording_open(in->items[0], open, &r, err);
	if (status == TSR_OK)
		status = tsr_recording_open_step(r, 0, ret, err);
	tsr_recording_close(r);
	return status;
}

int cli_learn(const struct cli_learning *learning, const struct cli_list *in, bool gradients,
	      const struct tsr_open_options *open, const struct tsr_run *run,
	      struct tsr_learned **ret)
{
	const bool recorded = in->n == 1 && tsr_recording_probe(in->items[0]);
	struct tsr_learn_options o = cli_learn_options(learning);
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status status;

	o.gradients = gradients || recorded;
	status = open_input(in, recorded, open, &c, &err);
	if (status == TSR_OK && !o.gradients)
		status = tsr_names_assign(c, NULL, 0, &err);
	if (status == TSR_OK)
		status = tsr_learn(c, &o, run, ret, &err);
	tsr_checkpoint_close(c);
	return status == TSR_OK ? CLI_OK : cli_error(&err);
}
