/* SPDX-License-Identifier: Apache-2.0 */
/* Pack a checkpoint and say how small it became and how far the worst element is off. */
#include <stdio.h>

#include "tersor.h"

static int fail(const char *what, const struct tsr_err *err)
{
	fprintf(stderr, "%s: %s", what, err->msg);
	if (err->hint != TSR_HINT_NONE)
		fprintf(stderr, " (%s)", tsr_hint_text(err->hint));
	fputc('\n', stderr);
	return 1;
}

int main(int argc, char **argv)
{
	const struct tsr_pack_options options = tsr_pack_defaults();
	const struct tsr_run run = { 0, NULL, NULL, NULL, 0, NULL }; /* all processors, no progress */
	const char *const in = argv[1];
	struct tsr_checkpoint *checkpoint;
	const struct tsr_packed_tensor *tensor;
	struct tsr_packing *packing;
	struct tsr_err err;
	double worst = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: pack CHECKPOINT OUTPUT (tersor %s)\n", tsr_version());
		return 2;
	}

	/* What is in the file?  Nothing but headers is read here. */
	if (tsr_checkpoint_open(&in, 1, NULL, &checkpoint, &err) != TSR_OK)
		return fail("cannot open", &err);
	printf("%zu tensors\n", tsr_checkpoint_ntensors(checkpoint));
	tsr_checkpoint_close(checkpoint);

	/* Pack it with the default codecs. */
	if (tsr_pack(&in, 1, argv[2], &options, &run, &packing, &err) != TSR_OK)
		return fail("cannot pack", &err);
	for (size_t i = 0; (tensor = tsr_packing_tensor(packing, i)) != NULL; i++) {
		const double error = tsr_measured_value(&tensor->measure, TSR_METRIC_MAX_ABS);

		worst = error > worst ? error : worst;
	}
	printf("%llu bytes, worst error %g\n", (unsigned long long)tsr_packing_nbytes(packing),
	       worst);
	tsr_packing_free(packing);
	return 0;
}
