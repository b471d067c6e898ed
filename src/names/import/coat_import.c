/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the FP8 states of COAT: codes, a scale per group, and with range expansion two values more. */
#include "names/import/import_parts.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "codec/coat_state.h"

/* What the arrays of a moment are called behind the parameter's name. */
static const struct {
	const char *codes, *scale, *expand, *centre;
} states[] = {
	{ ".exp_avg", ".scale_exp_avg", ".expand_exp_avg", ".sqrt_minmax_exp_avg" },
	{ ".exp_avg_sq", ".scale_exp_avg_sq", ".expand_exp_avg_sq", ".sqrt_minmax_exp_avg_sq" },
};

/* The group of @n elements in @ngroups groups: the usual one, or the least power of two; or 0. */
static uint32_t group_of(uint64_t n, uint64_t ngroups)
{
	if (n / TSR_COAT_GROUP + (n % TSR_COAT_GROUP != 0) == ngroups)
		return TSR_COAT_GROUP;
	return tsr_import_group(n, ngroups);
}

/* Add an array that has a value for each group. */
static enum tsr_status add_values(struct tsr_importing *m, size_t first, unsigned plane,
				  size_t values, uint64_t ngroups)
{
	const struct tsr_array *a = &m->c->arrays[values];

	if (a->dtype != TSR_F32 || a->numel != ngroups)
		return tsr_import_bad_scales(m, &m->c->arrays[first], a);
	tsr_import_add(m, first, plane, values);
	return TSR_OK;
}

static enum tsr_status try_state(struct tsr_importing *m, size_t i, size_t which)
{
	const struct tsr_array *a = &m->c->arrays[i];
	const size_t len = tsr_import_stem(a->name, states[which].codes);
	const bool fp8 = a->dtype == TSR_F8_E4M3 || a->dtype == TSR_F8_E5M2;
	struct tsr_coding coding = { .scale = TSR_SCALE_F32 };
	size_t scale, expand, centre;
	uint64_t ngroups;

	scale = len && fp8 ? tsr_import_find(m, a->name, len, states[which].scale) : SIZE_MAX;
	if (scale == SIZE_MAX)
		return TSR_OK;
	expand = tsr_import_find(m, a->name, len, states[which].expand);
	centre = tsr_import_find(m, a->name, len, states[which].centre);
	if ((expand == SIZE_MAX) != (centre == SIZE_MAX))
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found one of %s and %s, expected both or none",
				m->c->path, a->name, states[which].expand, states[which].centre);
	ngroups = m->c->arrays[scale].numel;
	coding.group = group_of(a->numel, ngroups);
	if (!coding.group)
		return tsr_import_bad_scales(m, a, &m->c->arrays[scale]);
	if (expand == SIZE_MAX)
		coding.codec = tsr_codec_find(a->dtype == TSR_F8_E4M3 ? "e4m3" : "e5m2");
	else
		coding.codec = tsr_coat_codec(a->dtype);
	coding.kind = which ? TSR_KIND_VARIANCE : TSR_KIND_MOMENTUM;
	m->coding[i] = coding;
	TSR_TRY(add_values(m, i, 1, scale, ngroups));
	if (expand == SIZE_MAX)
		return TSR_OK;
	TSR_TRY(add_values(m, i, 2, expand, ngroups));
	return add_values(m, i, 3, centre, ngroups);
}

enum tsr_status tsr_import_coat(struct tsr_importing *m, size_t i)
{
	TSR_TRY(try_state(m, i, 0));
	return try_state(m, i, 1);
}
