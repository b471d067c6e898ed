/* SPDX-License-Identifier: Apache-2.0 */
/* What a user of the library sees of a checkpoint. */
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"

const char *tsr_checkpoint_path(const struct tsr_checkpoint *c)
{
	return c->path;
}

enum tsr_container tsr_checkpoint_container(const struct tsr_checkpoint *c)
{
	return c->container;
}

bool tsr_checkpoint_is_packed(const struct tsr_checkpoint *c)
{
	return c->packed;
}

unsigned tsr_checkpoint_generation(const struct tsr_checkpoint *c)
{
	return c->generation;
}

size_t tsr_checkpoint_ntensors(const struct tsr_checkpoint *c)
{
	return c->ntensors;
}

const struct tsr_tensor *tsr_checkpoint_tensor(const struct tsr_checkpoint *c, size_t index)
{
	return index < c->ntensors ? &c->tensors[index] : NULL;
}

size_t tsr_checkpoint_nmeta(const struct tsr_checkpoint *c)
{
	return c->nmeta;
}

const struct tsr_meta *tsr_checkpoint_meta(const struct tsr_checkpoint *c, size_t index)
{
	return index < c->nmeta ? &c->meta[index] : NULL;
}

size_t tsr_checkpoint_nnotes(const struct tsr_checkpoint *c)
{
	return c->nnotes;
}

const char *tsr_checkpoint_note(const struct tsr_checkpoint *c, size_t index)
{
	return index < c->nnotes ? c->notes[index] : NULL;
}

enum tsr_status tsr_checkpoint_read_f32(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
					uint64_t first, size_t n, float *x, struct tsr_err *err)
{
	TSR_OWNED(free) struct tsr_read_scratch *scratch = NULL;

	if (!tsr_tensor_has_f32(t))
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found %s, expected FP32 values", c->path,
				t->name, tsr_dtype_name(t->dtype));
	if (first > t->numel || n > t->numel - first)
		return tsr_fail(err, TSR_E_USAGE, "%s: tensor %.200s: elements past its end",
				c->path, t->name);
	scratch = malloc(sizeof(*scratch));
	if (!scratch)
		return tsr_fail_nomem(err, c->path);
	return tsr_tensor_read_f32(c, t, first, n, scratch, x, err);
}

enum tsr_status tsr_checkpoint_read_stored(const struct tsr_checkpoint *c,
					   const struct tsr_tensor *t, unsigned plane,
					   uint64_t offset, size_t nbytes, void *buf,
					   struct tsr_err *err)
{
	const struct tsr_array *a = plane < t->nplanes ? &c->arrays[t->plane[plane]] : NULL;

	if (!a || offset > a->nbytes || nbytes > a->nbytes - offset)
		return tsr_fail(err, TSR_E_USAGE, "%s: tensor %.200s: bytes past its end", c->path,
				t->name);
	return tsr_array_read(c, a, offset, nbytes, buf, err);
}
