/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of stored tensors as FP32 values: decoded, widened or as they are. */
#include "ckpt/read.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "codec/narrow.h"

bool tsr_tensor_has_f32(const struct tsr_tensor *t)
{
	return t->coding.codec || t->dtype == TSR_F32 || t->dtype == TSR_F16 ||
	       t->dtype == TSR_BF16;
}

enum tsr_status tsr_tensor_read_plain(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				      uint64_t first, size_t n, void *narrow, float *x,
				      struct tsr_err *err)
{
	const struct tsr_array *a = &c->arrays[t->plane[0]];

	if (t->dtype == TSR_F32)
		return tsr_array_read(c, a, first * sizeof(*x), n * sizeof(*x), x, err);
	TSR_TRY(tsr_array_read(c, a, first * sizeof(uint16_t), n * sizeof(uint16_t), narrow, err));
	tsr_widen(t->dtype, narrow, n, x);
	return TSR_OK;
}

enum tsr_status tsr_tensor_read_planes(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				       uint64_t first, size_t n, void *const plane[],
				       size_t *before_ret, struct tsr_err *err)
{
	/* Decoding starts at a group, which is at most TSR_READ_MAX long, so the memory suffices. */
	const size_t before = (size_t)(first % tsr_coding_align(&t->coding));

	for (unsigned i = 0; i < t->nplanes; i++)
		TSR_TRY(tsr_array_read(
			c, &c->arrays[t->plane[i]], tsr_plane_nbytes(&t->coding, i, first - before),
			(size_t)tsr_plane_nbytes(&t->coding, i, before + n), plane[i], err));
	*before_ret = before;
	return TSR_OK;
}

const struct tsr_tensor *tsr_tensor_beside(const struct tsr_checkpoint *c,
					   const struct tsr_tensor *t)
{
	if (t->coding.codec && t->coding.codec->rank)
		return t;
	return t->coding.codec && t->coding.codec->relative ? tsr_checkpoint_find(c, t->beside)
							    : NULL;
}

static enum tsr_status read_some(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				 uint64_t first, size_t n, struct tsr_read_scratch *scratch,
				 float *x, struct tsr_err *err)
{
	const struct tsr_tensor *beside = tsr_tensor_beside(c, t);
	const void *in[TSR_PLANES_MAX];
	void *plane[TSR_PLANES_MAX];
	size_t before;

	if (!t->coding.codec)
		return tsr_tensor_read_plain(c, t, first, n, scratch->plane[0], x, err);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		in[i] = plane[i] = scratch->plane[i];
	TSR_TRY(tsr_tensor_read_planes(c, t, first, n, plane, &before, err));
	t->coding.codec->decode(&t->coding, in, before + n, scratch->decoded);
	memcpy(x, scratch->decoded + before, n * sizeof(*x));
	if (beside) {
		TSR_TRY(beside == t
				? tsr_tensor_products(c, t, &t->coding, first, n, scratch->beside,
						      err)
				: read_some(c, beside, first, n, scratch, scratch->beside, err));
		tsr_ratios_undo(&t->coding, x, scratch->beside, n);
	}
	tsr_round_to(t->dtype, x, n);
	return TSR_OK;
}

enum tsr_status tsr_tensor_read_f32(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				    uint64_t first, size_t n, struct tsr_read_scratch *scratch,
				    float *x, struct tsr_err *err)
{
	for (size_t at = 0; at < n; at += TSR_READ_MAX) {
		const size_t left = n - at;

		TSR_TRY(read_some(c, t, first + at, left < TSR_READ_MAX ? left : TSR_READ_MAX,
				  scratch, x + at, err));
	}
	return TSR_OK;
}
