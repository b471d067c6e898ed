/* SPDX-License-Identifier: Apache-2.0 */
/* What lies beside coded codes: their scales, and of momenta the variances (format.md, 4.8). */
#include <stdlib.h>
#include <string.h>

#include "ckpt/build.h"
#include "ckpt/coded.h"
#include "ckpt/tensor_tiles.h"

static bool is_in(const struct tsr_tensor *t, const char *codec)
{
	const struct tsr_coding *coding = &t->coding;

	return coding->codec && strcmp(coding->codec->name, codec) == 0 &&
	       coding->scale == TSR_SCALE_E8M8;
}

static bool is_logarithmic(const struct tsr_coding *coding)
{
	return coding->codec && strcmp(coding->codec->name, "log8") == 0;
}

bool tsr_coded_has_contexts(const struct tsr_tensor *t, unsigned plane)
{
	const struct tsr_coding *coding = &t->coding;

	return plane == 0 &&
	       (is_in(t, "sqrt8") || (is_logarithmic(coding) && tsr_coding_group(coding) > 1));
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

struct tsr_entropy_beside tsr_coded_beside(const struct tsr_coding *coding, uint64_t columns,
					   uint64_t first, const uint16_t *scales)
{
	return (struct tsr_entropy_beside){
		.first = first,
		.columns = columns,
		.logarithmic = is_logarithmic(coding),
		.scales = { scales, coding->row, tsr_coding_group(coding) },
	};
}

void tsr_coded_beside_variances(struct tsr_entropy_beside *b, const struct tsr_coding *coding,
				const uint8_t *codes, const uint16_t *scales)
{
	b->variances = codes;
	b->variance_scales = (struct tsr_entropy_scales){ scales, coding->row,
							  tsr_coding_group(coding) };
}

void tsr_coded_put_scales(const struct tsr_coding *coding, uint64_t first, const void *old_scales,
			  const void *scales, struct tsr_entropy_old *ret)
{
	ret->first = first;
	ret->old_scales = (struct tsr_entropy_scales){ old_scales, coding->row,
						       tsr_coding_group(coding) };
	ret->scales = (struct tsr_entropy_scales){ scales, coding->row, tsr_coding_group(coding) };
}

uint64_t tsr_coded_scale_columns(const struct tsr_tensor *t, unsigned plane)
{
	const struct tsr_coding *coding = &t->coding;
	const uint64_t columns = tsr_coded_columns(t);
	uint32_t group;

	if (!coding->codec || coding->codec->planes[plane].unit != TSR_PER_GROUP ||
	    (coding->scale != TSR_SCALE_E8M8 && coding->scale != TSR_SCALE_F28))
		return 0;
	group = tsr_coding_group(coding);
	if (coding->row)
		return columns / group + (columns % group != 0);
	return columns % group ? 0 : columns / group;
}

/* --- Momenta and variances ---------------------------------------------------------------------- */

/* By their shapes; those of one shape in their order. */
static int by_shape(const void *va, const void *vb, void *tensors)
{
	const size_t a = *(const size_t *)va, b = *(const size_t *)vb;
	const struct tsr_tensor *x = (const struct tsr_tensor *)tensors + a;
	const struct tsr_tensor *y = (const struct tsr_tensor *)tensors + b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	for (unsigned i = 0; i < x->rank; i++)
		if (x->shape[i] != y->shape[i])
			return x->shape[i] < y->shape[i] ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* Whether a variance tells what to expect of a momentum: their pieces are of the same elements. */
static bool tells(const struct tsr_tensor *m, const struct tsr_tensor *v)
{
	return (is_in(m, "softsign8") || is_in(m, "linear8")) && is_in(v, "sqrt8") &&
	       tsr_tensor_piece(m) == tsr_tensor_piece(v);
}

/* Of momenta and variances of one shape: each variance goes with the first momentum that waits for one. */
static void pair_in_order(const struct tsr_tensor *tensors, const size_t *order, size_t n,
			  size_t *variance)
{
	size_t waiting = 0;

	for (size_t i = 0; i < n; i++) {
		if (tensors[order[i]].kind != TSR_KIND_VARIANCE)
			continue;
		while (waiting < i && tensors[order[waiting]].kind != TSR_KIND_MOMENTUM)
			waiting++;
		if (waiting == i)
			continue;
		if (tells(&tensors[order[waiting]], &tensors[order[i]]))
			variance[order[waiting]] = order[i] + 1;
		waiting++;
	}
}

size_t *tsr_coded_pair(const struct tsr_tensor *tensors, size_t n)
{
	size_t *variance = calloc(n + 1, sizeof(*variance));
	size_t *order = calloc(n + 1, sizeof(*order)), count = 0;

	for (size_t i = 0; i < n && variance && order; i++)
		if (tensors[i].kind == TSR_KIND_MOMENTUM || tensors[i].kind == TSR_KIND_VARIANCE)
			order[count++] = i;
	if (!variance || !order) {
		free(variance);
		variance = NULL;
	}
	if (count)
		qsort_r(order, count, sizeof(*order), by_shape, (void *)(uintptr_t)tensors);
	for (size_t i = 0, end; i < count; i = end) {
		const struct tsr_tensor *first = &tensors[order[i]];

		for (end = i + 1;
		     end < count && tsr_tensor_same_shape(first, &tensors[order[end]]);)
			end++;
		pair_in_order(tensors, order + i, end - i, variance);
	}
	free(order);
	return variance;
}

/* --- Linking ------------------------------------------------------------------------------------ */

static struct tsr_coded_codes codes_of(const struct tsr_tensor *t)
{
	return (struct tsr_coded_codes){ t->coding, t->plane[0], t->plane[1] };
}

/* A copy of its own, since the list of tensors goes. */
static enum tsr_status link_codes(struct tsr_checkpoint *c, const struct tsr_tensor *t,
				  const struct tsr_tensor *variance, struct tsr_err *err)
{
	struct tsr_array *a = &c->arrays[t->plane[0]];
	struct tsr_coded *coded = tsr_arena_alloc(c->arena, sizeof(*coded));

	if (!coded)
		return tsr_build_nomem(c, err);
	*coded = *a->coded;
	coded->contexts = variance ? TSR_CODED_BY_VARIANCES : TSR_CODED_BY_LINES;
	coded->own = codes_of(t);
	coded->columns = tsr_coded_columns(t);
	if (variance)
		coded->variance = codes_of(variance);
	a->coded = coded;
	return TSR_OK;
}

enum tsr_status tsr_coded_link(struct tsr_checkpoint *c, const struct tsr_tensor *tensors, size_t n,
			       struct tsr_err *err)
{
	size_t *variance = tsr_coded_pair(tensors, n);
	enum tsr_status status = variance ? TSR_OK : tsr_build_nomem(c, err);

	for (size_t i = 0; i < n && status == TSR_OK; i++) {
		const struct tsr_tensor *t = &tensors[i];
		const size_t v = variance[i];

		if (t->nplanes < 2 || !c->arrays[t->plane[0]].coded)
			continue;
		if (v || tsr_coded_has_contexts(t, 0))
			status = link_codes(c, t, v ? &tensors[v - 1] : NULL, err);
	}
	free(variance);
	return status;
}
