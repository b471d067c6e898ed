/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/read.h"

#include <string.h>

#include "base/fail.h"
#include "tersor/math.h"

bool tsr_tensor_has_f32(const struct tsr_tensor *t)
{
	return t->coding.codec || t->dtype == TSR_F32 || t->dtype == TSR_F16 ||
	       t->dtype == TSR_BF16;
}

static enum tsr_status read_plain(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				  uint64_t first, size_t n, void *narrow, float *x,
				  struct tsr_err *err)
{
	const struct tsr_array *a = &c->arrays[t->plane[0]];
	const uint16_t *from = narrow;

	if (t->dtype == TSR_F32)
		return tsr_array_read(c, a, first * sizeof(*x), n * sizeof(*x), x, err);
	TSR_TRY(tsr_array_read(c, a, first * sizeof(*from), n * sizeof(*from), narrow, err));
	for (size_t i = 0; i < n; i++)
		x[i] = t->dtype == TSR_F16 ? tsr_f32_from_f16(from[i]) : tsr_f32_from_bf16(from[i]);
	return TSR_OK;
}

enum tsr_status tsr_tensor_read_f32(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				    uint64_t first, size_t n, struct tsr_read_scratch *scratch,
				    float *x, struct tsr_err *err)
{
	const void *planes[TSR_PLANES_MAX];
	uint64_t run, start;
	size_t count;

	if (!t->coding.codec)
		return read_plain(c, t, first, n, scratch->plane[0], x, err);
	/* Decoding starts at a run, which is at most TSR_READ_MAX long, so the scratch is enough. */
	run = tsr_coding_run(&t->coding);
	start = first / run * run;
	count = n + (size_t)(first - start);
	for (unsigned i = 0; i < t->nplanes; i++) {
		planes[i] = scratch->plane[i];
		TSR_TRY(tsr_array_read(
			c, &c->arrays[t->plane[i]], tsr_plane_nbytes(&t->coding, i, start),
			(size_t)tsr_plane_nbytes(&t->coding, i, count), scratch->plane[i], err));
	}
	t->coding.codec->decode(&t->coding, planes, count, scratch->decoded);
	memcpy(x, scratch->decoded + (first - start), n * sizeof(*x));
	return TSR_OK;
}
