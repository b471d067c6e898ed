/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step on a tile: batches that stay in the L1 cache are decoded, stepped and encoded.
 *
 * Each slot has a buffer of its own for whole groups, since groups of the slots need not have the
 * same size; the rule runs on the elements that all buffers hold.  The buffer of an FP32 slot is its
 * plane itself.
 */
#include "tersor/codec.h"
#include "codec/loops.h"
#include "codec/simd/lanes.h"
#include "step/rules.h"
#include "step/simd.h"
#include "step/torch_math.h"

/* Elements that are decoded at a time where groups are not larger; a multiple of the usual ones. */
#define BATCH 2048u

/* Arrays that are a multiple of 4 KiB apart evict each other. */
#define APART 48u

#if defined(__clang__)
#define UNROLL
#define UNROLL_2
#else
#define UNROLL _Pragma("GCC unroll 4")
#define UNROLL_2 _Pragma("GCC unroll 2")
#endif

/* --- Rules ----------------------------------------------------------------------------------- */

/* @first: which element of its tensor the first one is. */
typedef void rule_fn(const struct tsr_step_scalars *scalars, uint64_t first,
		     const float *restrict g, size_t n, float *restrict w, float *restrict m,
		     float *restrict v, float *restrict max);

/* NaN are rare: they are made the one NaN afterwards. */
static __attribute__((noinline)) void make_one_nan(size_t n, float *x)
{
	for (size_t i = 0; i < n; i++)
		x[i] = tsr_one_nan(x[i]);
}

/*
 * `nstates`: 1 with a momentum, 2 with a variance, too, 3 with AMSGrad; `state2` of y is what becomes of the
 * variance.
 */
#define DEFINE_RULE_AS(name, id, nstates, state2) \
	static void run_##name(const struct tsr_step_scalars *scalars, uint64_t first, \
			       const float *restrict g, size_t n, float *restrict w, \
			       float *restrict m, float *restrict v, float *restrict max) \
	{ \
		struct tsr_step_scalars s = *scalars; \
		int32_t has_nan = 0; \
\
		s.amsgrad = nstates > 2; \
		UNROLL_2 \
		for (size_t i = 0; i < n; i++) { \
			const struct tsr_step_values x = { w[i], nstates > 0 ? m[i] : 0.0f, \
							   nstates > 1 ? v[i] : 0.0f, \
							   nstates > 2 ? max[i] : 0.0f, \
							   first + i }; \
			const struct tsr_step_values y = tsr_step_##id##_raw(&s, g[i], x); \
\
			w[i] = y.weight; \
			if (nstates > 0) \
				m[i] = y.momentum; \
			if (nstates > 1) \
				v[i] = state2(y.variance); \
			if (nstates > 2) \
				max[i] = y.max_variance; \
			has_nan |= -tsr_step_has_nan(y); \
		} \
		if (!has_nan) \
			return; \
		make_one_nan(n, w); \
		if (nstates > 0) \
			make_one_nan(n, m); \
		if (nstates > 1) \
			make_one_nan(n, v); \
		if (nstates > 2) \
			make_one_nan(n, max); \
	}

#define AS_IT_IS(variance) (variance)
#define DEFINE_0(id) DEFINE_RULE_AS(id, id, 0, AS_IT_IS)
#define DEFINE_1(id) DEFINE_RULE_AS(id, id, 1, AS_IT_IS)
/* Adam's: one also leaves the root of the variance, for codecs that store it, as roots take long; AMSGrad. */
#define DEFINE_2(id) \
	DEFINE_RULE_AS(id, id, 2, AS_IT_IS) \
	DEFINE_RULE_AS(id##_root, id, 2, tsr_sqrt) \
	DEFINE_RULE_AS(id##_amsgrad, id, 3, AS_IT_IS)
#define X(id, formula, nstates, fused) DEFINE_##nstates(formula)

TSR_STEP_RULES(X)
#undef X

/*
 * Whether the rule leaves roots.  What a codec of roots decodes is not negative, and no rule makes it
 * so: the codec, which measures a group by its magnitudes, gives the same codes.
 */
static bool leaves_roots(const struct tsr_step *step)
{
	const struct tsr_codec *c = step->coding[TSR_SLOT_VARIANCE].codec;

	return c && c->encode_roots && !tsr_step_stores_first(step) &&
	       !step->coding[TSR_SLOT_MAX_VARIANCE].codec;
}

#define FUNCTIONS_0(id) run_##id
#define FUNCTIONS_1(id) run_##id
#define FUNCTIONS_2(id) run_##id, run_##id##_root, run_##id##_amsgrad

static rule_fn *rule_of(const struct tsr_step *step)
{
	/* As it is, with roots, with AMSGrad. */
	static rule_fn *const rules[][3] = {
#define X(id, formula, nstates, fused) [TSR_RULE_##id] = { FUNCTIONS_##nstates(formula) },
		TSR_STEP_RULES(X)
#undef X
	};
	const bool amsgrad = step->coding[TSR_SLOT_MAX_VARIANCE].codec;

	return rules[tsr_step_rule(step)][amsgrad ? 2 : leaves_roots(step)];
}

/* --- Gradients ------------------------------------------------------------------------------- */

/*
 * Elements whose exponent field, the bits of @mask, is full: at most 2^16 - 1 of them, so that the
 * counters are as narrow as the elements.
 */
static unsigned count_nonfinite_u16(const uint16_t *bits, size_t n, uint16_t mask)
{
	uint16_t count = 0;

	UNROLL
	for (size_t i = 0; i < n; i++)
		count = (uint16_t)(count + ((bits[i] & mask) == mask));
	return count;
}

static unsigned count_nonfinite_f32(const float *x, size_t n)
{
	uint32_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += (tsr_bits_from_f32(x[i]) & TSR_F32_INF) == TSR_F32_INF;
	return count;
}

static void widen_bf16(const uint16_t *restrict narrow, size_t n, float *restrict g)
{
	size_t i = 0;

#if TSR_HAS_WIDEST_LANES
	for (; i + LANES_BATCH <= n; i += LANES_BATCH)
		lanes_widen_bf16(narrow + i, g + i);
#endif
	for (; i < n; i++)
		g[i] = tsr_f32_from_bf16(narrow[i]);
}

static void widen_f16(const uint16_t *restrict narrow, size_t n, float *restrict g)
{
	for (size_t i = 0; i < n; i++)
		g[i] = tsr_f32_from_f16(narrow[i]);
}

static const float *widen_gradient(const struct tsr_step *step, const void *grad, uint64_t first,
				   size_t n, float *scratch, struct tsr_step_report *report)
{
	const uint16_t *narrow = (const uint16_t *)grad + first;
	const float *wide = (const float *)grad + first;

	switch (step->grad_dtype) {
	case TSR_BF16:
		report->nonfinite_grad += count_nonfinite_u16(narrow, n, 0x7f80);
		widen_bf16(narrow, n, scratch);
		return scratch;
	case TSR_F16:
		report->nonfinite_grad += count_nonfinite_u16(narrow, n, 0x7c00);
		widen_f16(narrow, n, scratch);
		return scratch;
	default:
		report->nonfinite_grad += count_nonfinite_f32(wide, n);
		return wide;
	}
}

/* At most BATCH elements of the gradient in FP32, in @scratch or where they are. */
static const float *gradient(const struct tsr_step *step, const void *grad, uint64_t first,
			     size_t n, float *scratch, struct tsr_step_report *report)
{
	const float *g = widen_gradient(step, grad, first, n, scratch, report);

	if (!step->scalars.maximize)
		return g;
	for (size_t i = 0; i < n; i++)
		scratch[i] = -g[i];
	return scratch;
}

/* --- Buffers --------------------------------------------------------------------------------- */

/* Elements @first to @end - 1 of a slot, in FP32 at @x. */
struct buffer {
	struct tsr_coding coding;
	void *const *plane;
	float *scratch, *x;
	size_t capacity;
	uint64_t first, end;
	tsr_encode_fn *encode;
	bool in_place;
};

static void buffer_planes(const struct buffer *b, void *plane[])
{
	for (unsigned i = 0; i < b->coding.codec->nplanes; i++)
		plane[i] = (unsigned char *)b->plane[i] + tsr_plane_nbytes(&b->coding, i, b->first);
}

/* Fill the buffer from @first on; @end is that of the tile. */
static void buffer_load(struct buffer *b, uint64_t first, uint64_t end)
{
	void *plane[TSR_PLANES_MAX];

	b->first = first;
	b->end = end;
	if (b->in_place) {
		b->x = (float *)b->plane[0] + first;
		return;
	}
	if (end - first > b->capacity)
		b->end = first + b->capacity;
	buffer_planes(b, plane);
	b->coding.codec->decode(&b->coding, (const void *const *)plane, (size_t)(b->end - first),
				b->scratch);
	b->x = b->scratch;
}

static void buffer_store(const struct buffer *b, struct tsr_encode_report *report)
{
	struct tsr_coding coding = b->coding;
	void *plane[TSR_PLANES_MAX];

	if (b->in_place)
		return;
	coding.first += b->first;
	buffer_planes(b, plane);
	b->encode(&coding, b->x, (size_t)(b->end - b->first), plane, report);
}

/* Make ratios that were decoded momenta, by variances that the rule has not reached. */
static void undo_ratios(const struct buffer *m, const struct buffer *v)
{
	const float *beside = v->x + (m->first - v->first);

	TSR_FOR_ISA(ratio_undo)
	(m->x, beside, TSR_RATIO_VARIANCES, m->coding.eps, (size_t)(m->end - m->first));
}

/* The reverse, once the rule has left new variances or their roots. */
static void make_ratios(const struct buffer *m, const struct buffer *v, bool roots)
{
	const float *beside = v->x + (m->first - v->first);

	TSR_FOR_ISA(ratio_make)
	(m->x, beside, roots ? TSR_RATIO_ROOTS : TSR_RATIO_VARIANCES, m->coding.eps,
	 (size_t)(m->end - m->first));
}

/* --- Tiles ----------------------------------------------------------------------------------- */

struct tile {
	const struct tsr_step *step;
	const void *grad;
	uint64_t first, end;
	struct tsr_step_report *report;
};

/* Whether momenta are ratios. */
static bool has_ratios(const struct tsr_step *step)
{
	const struct tsr_codec *c = step->coding[TSR_SLOT_MOMENTUM].codec;

	return c && c->relative;
}

/* Whether the buffer of the momentum begins and ends where that of the variance does. */
static bool joins_moments(const struct tsr_step *step)
{
	return has_ratios(step) || tsr_step_stores_first(step);
}

static size_t buffer_align(const struct tsr_step *step, unsigned slot)
{
	return joins_moments(step) && slot != TSR_SLOT_WEIGHT
		       ? (size_t)tsr_step_moments_align(step)
		       : tsr_coding_align(&step->coding[slot]);
}

/* Buffers that end where the tile begins.  @scratch: of each slot, room for @capacity elements. */
static void buffers_open(const struct tile *t, float *const scratch[], size_t capacity,
			 struct buffer buffer[])
{
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_coding *coding = &t->step->coding[p];

		if (!coding->codec)
			continue;
		buffer[p] = (struct buffer){
			.coding = *coding,
			.plane = t->step->plane[p],
			.scratch = scratch[p],
			.capacity = capacity - capacity % buffer_align(t->step, p),
			.end = t->first,
			.encode = p == TSR_SLOT_VARIANCE && leaves_roots(t->step)
					  ? coding->codec->encode_roots
					  : coding->codec->encode,
			.in_place = !coding->codec->grouped &&
				    coding->codec->planes[0].dtype == TSR_F32,
		};
	}
}

/* Pointers to the elements from @at on in FP32; returns where the shortest buffer ends, at most @end. */
static uint64_t buffers_at(const struct tile *t, struct buffer buffer[], uint64_t at, uint64_t end,
			   float *x[])
{
	bool loads[TSR_SLOTS] = { false };

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		struct buffer *b = &buffer[p];

		if (!b->coding.codec)
			continue;
		loads[p] = b->end == at;
		if (loads[p])
			buffer_load(b, at, t->end);
		x[p] = b->x + (at - b->first);
		end = end < b->end ? end : b->end;
	}
	if (has_ratios(t->step) && loads[TSR_SLOT_MOMENTUM])
		undo_ratios(&buffer[TSR_SLOT_MOMENTUM], &buffer[TSR_SLOT_VARIANCE]);
	return end;
}

/* Encode what is complete. */
static void buffers_done(const struct tile *t, const struct buffer buffer[], uint64_t end)
{
	if (has_ratios(t->step) && buffer[TSR_SLOT_MOMENTUM].end == end)
		make_ratios(&buffer[TSR_SLOT_MOMENTUM], &buffer[TSR_SLOT_VARIANCE],
			    leaves_roots(t->step));
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		if (buffer[p].coding.codec && buffer[p].end == end)
			buffer_store(&buffer[p], &t->report->encode[p]);
	}
}

/* Gradients go behind the slots. */
#define SCRATCH_GRAD TSR_SLOTS
#define SCRATCHES (TSR_SLOTS + 1)

static void step_in_one(const struct tile *t, float *const scratch[], size_t capacity)
{
	rule_fn *const rule = rule_of(t->step);
	struct buffer buffer[TSR_SLOTS] = { 0 };

	buffers_open(t, scratch, capacity, buffer);
	for (uint64_t at = t->first, end; at < t->end; at = end) {
		float *x[TSR_SLOTS] = { NULL };
		const float *g;

		end = buffers_at(t, buffer, at, t->end - at < BATCH ? t->end : at + BATCH, x);
		g = gradient(t->step, t->grad, at, (size_t)(end - at), scratch[SCRATCH_GRAD],
			     t->report);
		rule(&t->step->scalars, buffer[TSR_SLOT_WEIGHT].coding.first + at, g,
		     (size_t)(end - at), x[TSR_SLOT_WEIGHT], x[TSR_SLOT_MOMENTUM],
		     x[TSR_SLOT_VARIANCE], x[TSR_SLOT_MAX_VARIANCE]);
		buffers_done(t, buffer, end);
	}
}

/* What the encoder left of a momentum. */
static void decode_again(const struct buffer *b)
{
	void *plane[TSR_PLANES_MAX];

	buffer_planes(b, plane);
	b->coding.codec->decode(&b->coding, (const void *const *)plane, (size_t)(b->end - b->first),
				b->x);
}

/* All elements of the gradient from @at to @end - 1 in FP32, in @scratch or where they are. */
static const float *whole_gradient(const struct tile *t, uint64_t at, uint64_t end, float *scratch)
{
	const float *g = NULL;

	for (uint64_t i = at; i < end; i += BATCH) {
		const size_t n = end - i < BATCH ? (size_t)(end - i) : BATCH;
		const float *slot = gradient(t->step, t->grad, i, n, scratch + (i - at), t->report);

		g = g ? g : slot;
	}
	return g;
}

/* Move the moments of these elements, which both buffers have, and encode them. */
static void step_moments_of(const struct tile *t, struct buffer buffer[], uint64_t at, uint64_t end,
			    const float *g)
{
	struct buffer *m = &buffer[TSR_SLOT_MOMENTUM], *v = &buffer[TSR_SLOT_VARIANCE];

	TSR_FOR_ISA(step_block_moments)
	(t->step, g, (size_t)(end - at), m->x + (at - m->first),
	 v->coding.codec ? v->x + (at - v->first) : NULL);
	if (!m->in_place) {
		buffer_store(m, &t->report->encode[TSR_SLOT_MOMENTUM]);
		decode_again(m);
	}
	if (v->coding.codec)
		buffer_store(v, &t->report->encode[TSR_SLOT_VARIANCE]);
}

/* The same from @at on, at most @room elements.  Returns where they end. */
static uint64_t step_both_moments(const struct tile *t, struct buffer buffer[], uint64_t at,
				  float *grad, size_t room)
{
	const struct buffer *m = &buffer[TSR_SLOT_MOMENTUM], *v = &buffer[TSR_SLOT_VARIANCE];
	const uint64_t both = v->coding.codec && v->end < m->end ? v->end : m->end;
	const uint64_t end = both - at < room ? both : at + room;

	step_moments_of(t, buffer, at, end, whole_gradient(t, at, end, grad));
	return end;
}

/* Moments first, as many as fit; then their weights. */
static void step_in_two(const struct tile *t, float *const scratch[], size_t capacity)
{
	struct buffer buffer[TSR_SLOTS] = { 0 };
	struct buffer *w = &buffer[TSR_SLOT_WEIGHT];
	uint64_t stored = t->first;

	buffers_open(t, scratch, capacity, buffer);
	for (uint64_t at = t->first, end; at < t->end; at = end) {
		float *x[TSR_SLOTS] = { NULL };

		end = buffers_at(t, buffer, at, t->end, x);
		if (at == stored)
			stored = step_both_moments(t, buffer, at, scratch[SCRATCH_GRAD], capacity);
		end = stored < end ? stored : end;
		TSR_FOR_ISA(step_weights)
		(t->step, x[TSR_SLOT_MOMENTUM], x[TSR_SLOT_VARIANCE], (size_t)(end - at),
		 x[TSR_SLOT_WEIGHT]);
		if (w->end == end)
			buffer_store(w, &t->report->encode[TSR_SLOT_WEIGHT]);
	}
}

static void step_tile(const struct tile *t, float *const scratch[], size_t capacity)
{
	if (tsr_step_stores_first(t->step))
		step_in_two(t, scratch, capacity);
	else
		step_in_one(t, scratch, capacity);
}

/* All of a matrix.  Its arrays in FP32 are behind what else tsr_step_work() has. */
static void step_whole(const struct tile *t)
{
	const struct tsr_step *step = t->step;
	const size_t n = (size_t)(t->end - t->first);
	float *grad = step->work + tsr_step_work(step) - n;
	float *const scratch[TSR_SLOTS] = { grad - 2 * n, grad - n, grad - 3 * n };
	struct buffer buffer[TSR_SLOTS] = { 0 };
	float *x[TSR_SLOTS] = { NULL };
	const float *g;

	buffers_open(t, scratch, n, buffer);
	for (unsigned p = 0; p < TSR_SLOTS; p++)
		buffer[p].capacity = n;
	buffers_at(t, buffer, t->first, t->end, x);
	g = whole_gradient(t, t->first, t->end, grad);
	if (step->optimizer == TSR_OPTIMIZER_SOAP) {
		TSR_FOR_ISA(step_soap)(step, g, x);
		buffers_done(t, buffer, t->end);
		return;
	}
	step_moments_of(t, buffer, t->first, t->end, g);
	TSR_FOR_ISA(step_matrix)(step, g, x[TSR_SLOT_MOMENTUM], x[TSR_SLOT_WEIGHT]);
	buffer_store(&buffer[TSR_SLOT_WEIGHT], &t->report->encode[TSR_SLOT_WEIGHT]);
}

static void step_small_groups(const struct tile *t)
{
	float x[SCRATCHES][BATCH + APART];
	float *const scratch[SCRATCHES] = { x[0], x[1], x[2], x[3], x[4] };

	step_tile(t, scratch, BATCH);
}

/* The values of a whole group must be there before its scale is known. */
static __attribute__((noinline)) void step_large_groups(const struct tile *t)
{
	float x[SCRATCHES][TSR_GROUP_MAX + APART];
	float *const scratch[SCRATCHES] = { x[0], x[1], x[2], x[3], x[4] };

	step_tile(t, scratch, TSR_GROUP_MAX);
}

void TSR_FOR_ISA(step_apply)(const struct tsr_step *step, const void *grad, uint64_t first,
			     size_t n, struct tsr_step_report *report)
{
	const struct tile t = { step, grad, first, first + n, report };
	bool large = false;

	if (step->rows) {
		step_whole(&t);
		return;
	}
	for (unsigned p = 0; p < TSR_SLOTS; p++)
		large |= step->coding[p].codec && tsr_coding_align(&step->coding[p]) > BATCH;
	large |= joins_moments(step) && tsr_step_moments_align(step) > BATCH;
	if (large)
		step_large_groups(&t);
	else
		step_small_groups(&t);
}
