/* SPDX-License-Identifier: Apache-2.0 */
/* A step on a state and the same step in FP32: what is summed of how far the two are apart. */
#include "step/step_compare.h"

#include <string.h>

#include "codec/measuring.h"
#include "codec/narrow.h"
#include "codec/nonfinite.h"

/* Elements whose differences are computed at a time: they stay in the L1 cache. */
#define STRIP 1024
_Static_assert(STRIP % TSR_MEASURE_LANES == 0, "an element's lane is that of its index in the run");

/* What the step adds to the weights. */
struct updates {
	float fp32[STRIP]; /* in the FP32 replay */
	float stepped[STRIP], stored[STRIP]; /* in the other, before and after they are stored */
};

/* --- Loops ------------------------------------------------------------------------------------ */

typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef float f32x2 __attribute__((vector_size(8)));
typedef double f64x2 __attribute__((vector_size(16)));

/* to[i] = after[i] - before[i] */
static void subtract(float *restrict to, const float *restrict after, const float *restrict before,
		     size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = after[i] - before[i];
}

/* norm[i mod lanes] += x[i]^2; the squares are exact in binary64. */
static void add_squares(double norm[TSR_MEASURE_LANES], const float *x, size_t n)
{
	const size_t whole = n - n % TSR_MEASURE_LANES;
	f64x2 sum[TSR_MEASURE_LANES / 2];

	memcpy(sum, norm, sizeof(sum));
	for (size_t i = 0; i < whole; i += TSR_MEASURE_LANES) {
		for (size_t j = 0; j < TSR_MEASURE_LANES / 2; j++) {
			f32x2 pair;
			f64x2 wide;

			memcpy(&pair, x + i + 2 * j, sizeof(pair));
			wide = __builtin_convertvector(pair, f64x2);
			sum[j] += wide * wide;
		}
	}
	memcpy(norm, sum, sizeof(sum));
	for (size_t i = whole; i < n; i++)
		norm[i - whole] += (double)x[i] * (double)x[i];
}

/* Weights that the update moves in FP32 and that are stored as what they were. */
static uint64_t count_stalled(const float *before, const float *stepped, const float *after,
			      size_t n)
{
	const size_t whole = n - n % 4;
	i32x4 lanes = { 0 };
	uint64_t count = 0;

	for (size_t i = 0; i < whole; i += 4) {
		f32x4 b, s, a;

		memcpy(&b, before + i, sizeof(b));
		memcpy(&s, stepped + i, sizeof(s));
		memcpy(&a, after + i, sizeof(a));
		lanes -= (s != b) & (a == b);
	}
	for (int i = 0; i < 4; i++)
		count += (uint64_t)lanes[i];
	for (size_t i = whole; i < n; i++)
		count += stepped[i] != before[i] && after[i] == before[i];
	return count;
}

/* --- Adding and merging ----------------------------------------------------------------------- */

static void add_updates(struct tsr_compare *c, const struct tsr_compare_run *run)
{
	const float *before = run->before[TSR_SLOT_WEIGHT], *after = run->after[TSR_SLOT_WEIGHT];
	const float *stepped = run->stepped[TSR_SLOT_WEIGHT];
	struct updates u;

	for (size_t i = 0; i < run->n; i += STRIP) {
		const size_t n = run->n - i < STRIP ? run->n - i : STRIP;

		subtract(u.fp32, run->fp32_after[TSR_SLOT_WEIGHT] + i, run->fp32_before + i, n);
		subtract(u.stepped, stepped + i, before + i, n);
		subtract(u.stored, after + i, before + i, n);
		tsr_measure_add(&c->update, u.fp32, u.stepped, n);
		tsr_measure_add(&c->update_quant, u.stepped, u.stored, n);
		add_squares(c->norm, u.stored, n);
		c->stalled += count_stalled(before + i, stepped + i, after + i, n);
	}
}

void tsr_compare_add(struct tsr_compare *c, const struct tsr_compare_run *run)
{
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		if (run->after[p] && run->fp32_after[p])
			tsr_measure_add(&c->state[p], run->fp32_after[p], run->after[p], run->n);
		if (run->after[p] && run->stepped[p])
			tsr_measure_add(&c->quant[p], run->stepped[p], run->after[p], run->n);
	}
	add_updates(c, run);
}

void tsr_compare_merge(struct tsr_compare *into, const struct tsr_compare *from)
{
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		tsr_measure_merge(&into->state[p], &from->state[p]);
		tsr_measure_merge(&into->quant[p], &from->quant[p]);
	}
	tsr_measure_merge(&into->update, &from->update);
	tsr_measure_merge(&into->update_quant, &from->update_quant);
	for (unsigned i = 0; i < TSR_MEASURE_LANES; i++)
		into->norm[i] += from->norm[i];
	into->stalled += from->stalled;
	into->underflow += from->underflow;
}

/* --- Steps ------------------------------------------------------------------------------------ */

struct tsr_step tsr_compare_step(const struct tsr_step *like,
				 const struct tsr_step_scalars *scalars, float *const x[])
{
	struct tsr_step step = *like;

	step.scalars = *scalars;
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		if (!like->coding[slot].codec)
			continue;
		step.coding[slot] = tsr_coding_default(tsr_codec_find("f32"));
		step.coding[slot].first = like->coding[slot].first;
		step.plane[slot][0] = x[slot];
	}
	return step;
}

static void step_f32(const struct tsr_step *like, const struct tsr_step_scalars *scalars,
		     float *const x[], const void *grad, size_t n, struct tsr_step_report *report)
{
	const struct tsr_step step = tsr_compare_step(like, scalars, x);

	tsr_step_apply(&step, grad, 0, n, report);
}

struct tsr_compare_run tsr_compare_place(const struct tsr_step *at, float *const fp32[], size_t n,
					 float *x, size_t room)
{
	struct tsr_compare_run a = { .n = n, .fp32_before = x };

	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		if (!at->coding[slot].codec)
			continue;
		a.before[slot] = x + (3 * slot + 1) * room;
		a.stepped[slot] = x + (3 * slot + 2) * room;
		a.after[slot] = x + (3 * slot + 3) * room;
		a.fp32_after[slot] = fp32[slot];
	}
	return a;
}

/* Decode a slot into its array; of a momentum in ratios the variance is there already. */
static void decode_slot(const struct tsr_step *at, size_t n, float *const x[], unsigned slot)
{
	const struct tsr_coding *coding = &at->coding[slot];

	coding->codec->decode(coding, (const void *const *)at->plane[slot], n, x[slot]);
	tsr_ratios_undo(coding, x[slot], x[TSR_SLOT_VARIANCE], n);
}

/* Without a gradient: nothing moves. */
static void stand(const struct tsr_step *at, struct tsr_compare_run *a)
{
	for (unsigned slot = TSR_SLOTS; slot--;) {
		if (!a->before[slot])
			continue;
		decode_slot(at, a->n, a->before, slot);
		a->stepped[slot] = a->after[slot] = a->before[slot];
	}
	a->fp32_before = a->fp32_after[TSR_SLOT_WEIGHT];
}

/* Encode what a slot has become, and decode it again. */
static void store_slot(const struct tsr_step *at, const struct tsr_compare_run *a, unsigned slot,
		       struct tsr_step_report *report)
{
	const struct tsr_coding *coding = &at->coding[slot];

	if (!a->before[slot])
		return;
	memcpy(a->after[slot], a->stepped[slot], a->n * sizeof(float));
	tsr_ratios_make(coding, a->after[slot], a->stepped[TSR_SLOT_VARIANCE], a->n);
	coding->codec->encode(coding, a->after[slot], a->n, (void *const *)at->plane[slot],
			      &report->encode[slot]);
	decode_slot(at, a->n, a->after, slot);
}

static void step_in_one(const struct tsr_step *at, const struct tsr_compare_run *a,
			const void *grad, struct tsr_step_report *report)
{
	step_f32(at, &at->scalars, a->stepped, grad, a->n, report);
	for (unsigned slot = TSR_SLOTS; slot--;)
		store_slot(at, a, slot, report);
}

/* Weights move by the momentum that has been stored; until then their array has the gradient. */
static void step_in_two(const struct tsr_step *at, const struct tsr_compare_run *a,
			const void *grad, struct tsr_step_report *report)
{
	float *g = a->after[TSR_SLOT_WEIGHT], *v = a->stepped[TSR_SLOT_VARIANCE];

	report->nonfinite_grad += tsr_count_nonfinite(at->grad_dtype, grad,
						      a->n * tsr_dtype_bits(at->grad_dtype) / 8);
	tsr_widen(at->grad_dtype, grad, a->n, g);
	tsr_step_block_moments(at, g, a->n, a->stepped[TSR_SLOT_MOMENTUM], v);
	store_slot(at, a, TSR_SLOT_VARIANCE, report);
	store_slot(at, a, TSR_SLOT_MOMENTUM, report);
	if (at->rows)
		tsr_step_matrix(at, g, a->after[TSR_SLOT_MOMENTUM], a->stepped[TSR_SLOT_WEIGHT]);
	else
		tsr_step_weights(at, a->after[TSR_SLOT_MOMENTUM], v, a->n,
				 a->stepped[TSR_SLOT_WEIGHT]);
	store_slot(at, a, TSR_SLOT_WEIGHT, report);
}

void tsr_step_compare(const struct tsr_step *at, float *const fp32[TSR_SLOTS], const void *grad,
		      size_t n, float *x, size_t room, struct tsr_compare *c,
		      struct tsr_step_report *report)
{
	struct tsr_compare_run a = tsr_compare_place(at, fp32, n, x, room);
	struct tsr_step_report fp32_report = { 0 };

	if (!grad) {
		stand(at, &a);
		tsr_compare_add(c, &a);
		return;
	}
	for (unsigned slot = TSR_SLOTS; slot--;) {
		if (!a.before[slot])
			continue;
		decode_slot(at, n, a.before, slot);
		memcpy(a.stepped[slot], a.before[slot], n * sizeof(float));
	}
	if (tsr_step_stores_first(at))
		step_in_two(at, &a, grad, report);
	else
		step_in_one(at, &a, grad, report);
	memcpy(a.fp32_before, a.fp32_after[TSR_SLOT_WEIGHT], n * sizeof(float));
	step_f32(at, &at->fp32, a.fp32_after, grad, n, &fp32_report);
	tsr_compare_add(c, &a);
	c->underflow += tsr_step_underflow(report);
}
