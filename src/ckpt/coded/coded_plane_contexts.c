/* SPDX-License-Identifier: Apache-2.0 */
/* Which codes are coded with contexts, and by which scales (docs/internals/format.md, 4.8). */
#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/coded/coded_plane.h"
#include "entropy/contexts_math.h"

static bool is_logarithmic(const struct tsr_coding *coding)
{
	return coding->codec && coding->codec->contexts == TSR_CONTEXTS_LOGS;
}

bool tsr_coded_is_root(const struct tsr_coding *coding)
{
	return coding->codec && coding->codec->contexts == TSR_CONTEXTS_ROOTS &&
	       coding->scale == TSR_SCALE_E8M8;
}

bool tsr_coded_has_contexts(const struct tsr_tensor *t, unsigned plane)
{
	const struct tsr_coding *coding = &t->coding;

	return plane == 0 && (tsr_coded_is_root(coding) ||
			      (is_logarithmic(coding) && tsr_coding_group(coding) > 1));
}

void tsr_coded_shorten_scales(const struct tsr_coding *coding, size_t nbytes, uint16_t *scales)
{
	if (!is_logarithmic(coding))
		return;
	for (size_t i = 0; i < nbytes / 4; i++) {
		uint32_t f28;

		memcpy(&f28, scales + 2 * i, 4);
		scales[i] = tsr_entropy_log_scale(f28);
	}
}

uint64_t tsr_coded_columns(const struct tsr_tensor *t)
{
	return t->rank ? t->shape[t->rank - 1] : 1;
}

struct tsr_entropy_variance tsr_coded_variance(const struct tsr_coding *coding, uint64_t columns,
					       uint64_t first, const uint16_t *scales)
{
	return (struct tsr_entropy_variance){
		.first = first,
		.columns = columns,
		.logarithmic = is_logarithmic(coding),
		.scales = { scales, coding->row, tsr_coding_group(coding) },
	};
}

void tsr_coded_put_scales(const struct tsr_coding *coding, uint64_t first, const void *old_scales,
			  const void *scales, struct tsr_entropy_old *ret)
{
	ret->first = first;
	ret->old_scales = (struct tsr_entropy_scales){ old_scales, coding->row,
						       tsr_coding_group(coding) };
	ret->scales = (struct tsr_entropy_scales){ scales, coding->row, tsr_coding_group(coding) };
}

/* --- Linking ------------------------------------------------------------------------------------ */

/* A copy of the coding, since the list of tensors is freed. */
static enum tsr_status link_codes(struct tsr_checkpoint *c, const struct tsr_tensor *t,
				  struct tsr_err *err)
{
	struct tsr_array *a = &c->arrays[t->plane[0]];
	struct tsr_coded *coded;

	TSR_TRY(TSR_ARENA_NEW(&coded, 1, c->arena, tsr_build_nomem(c, err)));
	*coded = *a->coded;
	coded->has_contexts = true;
	coded->coding = t->coding;
	coded->scales = t->plane[1];
	coded->columns = tsr_coded_columns(t);
	a->coded = coded;
	return TSR_OK;
}

enum tsr_status tsr_coded_link(struct tsr_checkpoint *c, const struct tsr_tensor *tensors, size_t n,
			       struct tsr_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct tsr_tensor *t = &tensors[i];

		if (tsr_coded_has_contexts(t, 0) && c->arrays[t->plane[0]].coded)
			TSR_TRY(link_codes(c, t, err));
	}
	return TSR_OK;
}
