/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step on a run of elements: pieces that stay in the L1 cache are decoded, stepped and encoded.
 *
 * Each part goes by windows of its own, of whole groups, since groups of the parts need not have
 * the same size; the rule runs on what the current windows have in common.  FP32 parts have one
 * window, their plane itself.
 */
#include "tersor/codec.h"
#include "codec/simd/lanes.h"
#include "step/simd.h"

/* Elements that are decoded at a time where groups are not larger; a multiple of the usual ones. */
#define PIECE 2048u

/* Arrays a multiple of 4 KiB apart get into each other's way. */
#define APART 48u

#if defined(__clang__)
#define UNROLL
#define UNROLL_2
#else
#define UNROLL _Pragma("GCC unroll 4")
#define UNROLL_2 _Pragma("GCC unroll 2")
#endif

/* --- Rules ----------------------------------------------------------------------------------- */

typedef void rule_fn(const struct tsr_step_scalars *scalars, const float *restrict g, size_t n,
		     float *restrict w, float *restrict m, float *restrict v);

/* NaN are rare: they are made the one NaN afterwards. */
static __attribute__((noinline)) void make_one_nan(size_t n, float *x)
{
	for (size_t i = 0; i < n; i++)
		x[i] = tsr_one_nan(x[i]);
}

/*
 * `nstates`: 1 with a momentum, 2 with a variance, too; `state2` of y is what becomes of the latter.
 */
#define DEFINE_RULE_AS(name, id, nstates, state2) \
	static void run_##name(const struct tsr_step_scalars *scalars, const float *restrict g, \
			       size_t n, float *restrict w, float *restrict m, float *restrict v) \
	{ \
		const struct tsr_step_scalars s = *scalars; \
		int32_t has_nan = 0; \
\
		UNROLL_2 \
		for (size_t i = 0; i < n; i++) { \
			const struct tsr_step_values x = { w[i], nstates > 0 ? m[i] : 0.0f, \
							   nstates > 1 ? v[i] : 0.0f }; \
			const struct tsr_step_values y = tsr_step_##id##_raw(&s, g[i], x); \
\
			w[i] = y.weight; \
			if (nstates > 0) \
				m[i] = y.momentum; \
			if (nstates > 1) \
				v[i] = state2(y.variance); \
			has_nan |= -tsr_step_has_nan(y); \
		} \
		if (!has_nan) \
			return; \
		make_one_nan(n, w); \
		if (nstates > 0) \
			make_one_nan(n, m); \
		if (nstates > 1) \
			make_one_nan(n, v); \
	}

#define AS_IT_IS(variance) (variance)

#define DEFINE_RULE(id, nstates) DEFINE_RULE_AS(id, id, nstates, AS_IT_IS)

/* Also one that leaves the root of the variance, for codecs that store it: roots take long. */
#define DEFINE_ADAM(id) \
	DEFINE_RULE(id, 2) \
	DEFINE_RULE_AS(id##_root, id, 2, tsr_sqrt)

DEFINE_RULE(plain_sgd, 0)
DEFINE_RULE(sgd, 1)
DEFINE_ADAM(adam)
DEFINE_ADAM(adamw)
DEFINE_RULE(lion, 1)
DEFINE_ADAM(flash_adam)
DEFINE_RULE(flash_lion, 1)

/*
 * Whether the rule leaves roots.  What a codec of roots decodes is not negative, and no rule makes it
 * so: the codec, which measures a group by its magnitudes, gives the same codes.
 */
static bool leaves_roots(const struct tsr_step *step)
{
	const struct tsr_codec *c = step->coding[TSR_PART_VARIANCE].codec;

	return c && c->encode_roots;
}

static rule_fn *adam_rule_of(const struct tsr_step *step)
{
	static rule_fn *const rules[][2] = {
		{ run_adam, run_adam_root },
		{ run_adamw, run_adamw_root },
		{ run_flash_adam, run_flash_adam_root },
	};
	const unsigned which = step->flashoptim ? 2 : step->optimizer == TSR_OPTIMIZER_ADAMW;

	return rules[which][leaves_roots(step)];
}

static rule_fn *rule_of(const struct tsr_step *step)
{
	switch (step->optimizer) {
	case TSR_OPTIMIZER_ADAM:
	case TSR_OPTIMIZER_ADAMW:
		return adam_rule_of(step);
	case TSR_OPTIMIZER_LION:
		return step->flashoptim ? run_flash_lion : run_lion;
	default:
		return step->coding[TSR_PART_MOMENTUM].codec ? run_sgd : run_plain_sgd;
	}
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
	for (; i + LANES_RUN <= n; i += LANES_RUN)
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

/* At most PIECE elements of the gradient in FP32, in @scratch or where they are. */
static const float *gradient(const struct tsr_step *step, const void *grad, uint64_t first,
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

/* --- Windows --------------------------------------------------------------------------------- */

/* Elements @first to @end - 1 of a part, in FP32 at @x. */
struct window {
	struct tsr_coding coding;
	void *const *plane;
	float *scratch, *x;
	size_t capacity;
	uint64_t first, end;
	tsr_encode_fn *encode;
	bool in_place;
};

static void window_planes(const struct window *w, void *plane[])
{
	for (unsigned i = 0; i < w->coding.codec->nplanes; i++)
		plane[i] = (unsigned char *)w->plane[i] + tsr_plane_nbytes(&w->coding, i, w->first);
}

/* Fill the window from @first on; @end is that of the run. */
static void window_load(struct window *w, uint64_t first, uint64_t end)
{
	void *plane[TSR_PLANES_MAX];

	w->first = first;
	w->end = end;
	if (w->in_place) {
		w->x = (float *)w->plane[0] + first;
		return;
	}
	if (end - first > w->capacity)
		w->end = first + w->capacity;
	window_planes(w, plane);
	w->coding.codec->decode(&w->coding, (const void *const *)plane, (size_t)(w->end - first),
				w->scratch);
	w->x = w->scratch;
}

static void window_store(const struct window *w, struct tsr_encode_report *report)
{
	struct tsr_coding coding = w->coding;
	void *plane[TSR_PLANES_MAX];

	if (w->in_place)
		return;
	coding.first += w->first;
	window_planes(w, plane);
	w->encode(&coding, w->x, (size_t)(w->end - w->first), plane, report);
}

/* --- Runs ------------------------------------------------------------------------------------ */

struct run {
	const struct tsr_step *step;
	const void *grad;
	uint64_t first, end;
	struct tsr_step_report *report;
};

/* Windows that end where the run begins.  @scratch: of each part, room for @capacity elements. */
static void windows_open(const struct run *r, float *const scratch[], size_t capacity,
			 struct window window[])
{
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_coding *coding = &r->step->coding[p];

		if (!coding->codec)
			continue;
		window[p] = (struct window){
			.coding = *coding,
			.plane = r->step->plane[p],
			.scratch = scratch[p],
			.capacity = capacity - capacity % tsr_coding_align(coding),
			.end = r->first,
			.encode = p == TSR_PART_VARIANCE && leaves_roots(r->step)
					  ? coding->codec->encode_roots
					  : coding->codec->encode,
			.in_place = coding->codec->planes[0].dtype == TSR_F32,
		};
	}
}

/* Where the elements from @at on are in FP32, and where what is there ends: at most @end. */
static uint64_t windows_at(const struct run *r, struct window window[], uint64_t at, uint64_t end,
			   float *x[])
{
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		struct window *w = &window[p];

		if (!w->coding.codec)
			continue;
		if (w->end == at)
			window_load(w, at, r->end);
		x[p] = w->x + (at - w->first);
		end = end < w->end ? end : w->end;
	}
	return end;
}

/* Encode what is complete. */
static void windows_done(const struct run *r, const struct window window[], uint64_t end)
{
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		if (window[p].coding.codec && window[p].end == end)
			window_store(&window[p], &r->report->encode[p]);
	}
}

static void step_run(const struct run *r, float *const scratch[], size_t capacity)
{
	rule_fn *const rule = rule_of(r->step);
	struct window window[TSR_PARTS] = { 0 };
	float grad[PIECE];

	windows_open(r, scratch, capacity, window);
	for (uint64_t at = r->first, end; at < r->end; at = end) {
		float *x[TSR_PARTS] = { NULL };
		const float *g;

		end = windows_at(r, window, at, r->end - at < PIECE ? r->end : at + PIECE, x);
		g = gradient(r->step, r->grad, at, (size_t)(end - at), grad, r->report);
		rule(&r->step->scalars, g, (size_t)(end - at), x[TSR_PART_WEIGHT],
		     x[TSR_PART_MOMENTUM], x[TSR_PART_VARIANCE]);
		windows_done(r, window, end);
	}
}

static void step_small_groups(const struct run *r)
{
	float x[TSR_PARTS][PIECE + APART];
	float *const scratch[TSR_PARTS] = { x[0], x[1], x[2] };

	step_run(r, scratch, PIECE);
}

/* The values of a whole group must be there before its scale is known. */
static __attribute__((noinline)) void step_large_groups(const struct run *r)
{
	float x[TSR_PARTS][TSR_GROUP_MAX + APART];
	float *const scratch[TSR_PARTS] = { x[0], x[1], x[2] };

	step_run(r, scratch, TSR_GROUP_MAX);
}

void TSR_FOR_ISA(step_apply)(const struct tsr_step *step, const void *grad, uint64_t first,
			     size_t n, struct tsr_step_report *report)
{
	const struct run r = { step, grad, first, first + n, report };
	bool large = false;

	for (unsigned p = 0; p < TSR_PARTS; p++)
		large |= step->coding[p].codec && tsr_coding_align(&step->coding[p]) > PIECE;
	if (large)
		step_large_groups(&r);
	else
		step_small_groups(&r);
}
