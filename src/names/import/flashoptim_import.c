/* SPDX-License-Identifier: Apache-2.0 */
/* Import of FlashOptim's compressed states: the types of corrections, codes and scales of states. */
#include "names/import/import_parts.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"

#define QUANTIZED "::quantized"
#define SCALES "::scales"

/*
 * Whether these are codes and their scales.  Later versions call the scales of BF16 weights BF16, so that
 * torch does not round them.
 */
static bool are_codes(enum tsr_dtype codes, uint64_t numel, enum tsr_dtype scales, uint64_t nscales)
{
	return (codes == TSR_I8 || codes == TSR_U8) && (scales == TSR_F16 || scales == TSR_BF16) &&
	       nscales == numel / TSR_GROUP_DEFAULT + (numel % TSR_GROUP_DEFAULT != 0);
}

enum tsr_status tsr_import_flashoptim_state(struct tsr_importing *m, size_t i)
{
	struct tsr_array *a = &m->c->arrays[i], *s;
	const size_t len = tsr_import_stem(a->name, QUANTIZED);
	struct tsr_coding coding = { .scale = TSR_SCALE_F16, .group = TSR_GROUP_DEFAULT };
	size_t scales;

	if (!len)
		return TSR_OK;
	scales = tsr_import_find(m, a->name, len, SCALES);
	if (scales == SIZE_MAX)
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found codes without their ::scales", m->c->path,
				a->name);
	s = &m->c->arrays[scales];
	if (!are_codes(a->dtype, a->numel, s->dtype, s->numel))
		return tsr_import_bad_scales(m, a, s);
	s->dtype = TSR_F16;
	coding.codec = tsr_codec_find(a->dtype == TSR_I8 ? "softsign8" : "sqrt8");
	tsr_import_join(m, i, scales, coding);
	a->name = tsr_arena_copy(m->c->arena, a->name, len);
	return a->name ? TSR_OK : tsr_build_nomem(m->c, m->err);
}

static enum tsr_status check_name(const struct tsr_checkpoint *c, const struct tsr_named *by_name,
				  const struct tsr_tensor *t, const char *container,
				  struct tsr_err *err)
{
	const size_t len = tsr_import_stem(t->name, QUANTIZED);
	const struct tsr_named *found = len ? tsr_named_find_joined(by_name, c->ntensors, t->name,
								    len, SCALES)
					    : NULL;
	const struct tsr_tensor *s = found ? &c->tensors[found->index] : NULL;

	if (!len || (s && are_codes(t->dtype, t->numel, s->dtype, s->numel)))
		return TSR_OK;
	return tsr_fail(err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: the name is that of codes of FlashOptim in a %s, found "
			"none with their scales",
			c->path, t->name, container);
}

enum tsr_status tsr_flashoptim_check_names(const struct tsr_checkpoint *c, const char *container,
					   struct tsr_err *err)
{
	TSR_OWNED(free) struct tsr_named *by_name = NULL;

	TSR_TRY(TSR_NEW(&by_name, c->ntensors + 1, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++)
		by_name[i] = (struct tsr_named){ c->tensors[i].name, i };
	tsr_named_sort(by_name, c->ntensors);
	for (size_t i = 0; i < c->ntensors; i++)
		TSR_TRY(check_name(c, by_name, &c->tensors[i], container, err));
	return TSR_OK;
}

enum tsr_status tsr_import_flashoptim_key(struct tsr_importing *m, struct tsr_value **key)
{
	const bool text = (*key)->type == TSR_VALUE_STRING;
	const size_t len = text ? tsr_import_stem((*key)->text.bytes, QUANTIZED) : 0;

	if (!len)
		return TSR_OK;
	*key = tsr_value_text(m->c->arena, TSR_VALUE_STRING, (*key)->text.bytes, len);
	return *key ? TSR_OK : tsr_build_nomem(m->c, m->err);
}

/* Read an array of BF16 that hold whole numbers as one of 8-bit integers. */
static enum tsr_status read_as_integers(struct tsr_checkpoint *c, struct tsr_array *a,
					struct tsr_err *err)
{
	struct tsr_layout *layout = tsr_layout_whole(c->arena, a, false);

	if (!layout)
		return tsr_build_nomem(c, err);
	layout->bf16_integers = true;
	a->layout = layout;
	a->has_crc = false;
	a->dtype = TSR_I8;
	a->nbytes = a->numel;
	return TSR_OK;
}

enum tsr_status tsr_import_flashoptim_type(struct tsr_checkpoint *c, const struct tsr_optim *o,
					   const struct tsr_optim_id *id, struct tsr_err *err)
{
	const struct tsr_value *v = tsr_value_at(id->state, "error_bits");
	const uint64_t bytewidth = tsr_optim_bytewidth(o, id->group);
	struct tsr_array *a;

	if (!v || v->type != TSR_VALUE_TENSOR)
		return TSR_OK;
	a = &c->arrays[v->tensor.array];
	if (a->dtype == TSR_I8 || a->dtype == TSR_I16)
		return TSR_OK;
	if (bytewidth == 4 && (a->dtype == TSR_BF16 || a->dtype == TSR_F16)) {
		a->dtype = TSR_I16;
		return TSR_OK;
	}
	if (bytewidth == 3 && a->dtype == TSR_BF16 && !a->layout)
		return read_as_integers(c, a, err);
	return tsr_fail(
		err, TSR_E_UNSUPPORTED,
		"%s: %.200s: error_bits of %.200s: found dtype %s with master_bytewidth %" PRIu64
		", expected BF16 with 3, or 16 bits with 4",
		c->path, o->path, id->name ? id->name : "a parameter", tsr_dtype_name(a->dtype),
		bytewidth);
}
