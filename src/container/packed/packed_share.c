/* SPDX-License-Identifier: Apache-2.0 */
/* What tensors of a packed checkpoint have of others: first planes, and what they are relative to. */
#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/read.h"
#include "container/packed/packed_read.h"

/* A variance that elements are relative to; what they are then needs no other tensor. */
static enum tsr_status check_beside(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				    struct tsr_err *err)
{
	const struct tsr_tensor *beside = tsr_tensor_beside(c, t);

	if (!t->coding.codec || !t->coding.codec->relative)
		return TSR_OK;
	if (beside && tsr_tensor_has_f32(beside) && tsr_tensor_same_shape(beside, t) &&
	    !(beside->coding.codec && beside->coding.codec->relative))
		return TSR_OK;
	return tsr_fail(
		err, TSR_E_FORMAT,
		"%s: tensor %.200s: packed metadata: found beside %.200s, expected a tensor "
		"of F32, BF16 or F16 with its shape and a codec that is not relative",
		c->path, t->name, t->beside);
}

enum tsr_status tsr_packed_share(struct tsr_checkpoint *c, struct tsr_err *err)
{
	for (size_t i = 0; i < c->ntensors; i++)
		TSR_TRY(check_beside(c, &c->tensors[i], err));
	for (size_t i = 0; i < c->ntensors; i++) {
		struct tsr_tensor *t = &c->tensors[i];
		const struct tsr_tensor *from = t->narrow ? tsr_checkpoint_find(c, t->narrow)
							  : NULL;
		struct tsr_array a;

		if (!t->narrow)
			continue;
		if (!from || from->coding.codec || from->dtype != tsr_plane_dtype(&t->coding, 0) ||
		    !tsr_tensor_same_shape(from, t) || from->hash[0] != t->hash[0])
			return tsr_fail(
				err, TSR_E_FORMAT,
				"%s: tensor %.200s: packed metadata: found narrow %.200s, expected "
				"a raw tensor with the dtype, shape and hash of the first plane",
				c->path, t->name, t->narrow);
		/* An array of its own: what is stored tells tensors by their first array. */
		a = c->arrays[from->plane[0]];
		TSR_TRY(tsr_build_array(c, &a, &t->plane[0], err));
	}
	return TSR_OK;
}
