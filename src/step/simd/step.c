/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step on a run of elements: pieces that stay in the L1 cache are decoded, stepped and encoded.
 *
 * Each part goes by windows of its own, of whole groups, since groups of the parts need not have
 * the same size; the rule runs on what the current windows have in common.  FP32 parts have one
 * window, their plane itself.
 */
#include "step/simd.h"

#define INLINE static inline __attribute__((always_inline))

/* Elements that are decoded at a time where groups are not larger; a multiple of the usual ones. */
#define PIECE 1024u

/* Arrays a multiple of 4 KiB apart get into each other's way. */
#define APART 48u

/* --- Rules ----------------------------------------------------------------------------------- */

typedef void rule_fn(const struct tsr_step_scalars *scalars, const float *restrict g, size_t n,
		     float *restrict w, float *restrict m, float *restrict v);

/* `nstates`: 1 with a momentum, 2 with a variance, too. */
#define DEFINE_RULE(id, nstates) \
	static void run_##id(const struct tsr_step_scalars *scalars, const float *restrict g, \
			     size_t n, float *restrict w, float *restrict m, float *restrict v) \
	{ \
		const struct tsr_step_scalars s = *scalars; \
\
		(void)m; \
		(void)v; \
		for (size_t i = 0; i < n; i++) { \
			const struct tsr_step_values x = { w[i], nstates > 0 ? m[i] : 0.0f, \
							   nstates > 1 ? v[i] : 0.0f }; \
			const struct tsr_step_values y = tsr_step_##id(&s, g[i], x); \
\
			w[i] = y.weight; \
			if (nstates > 0) \
				m[i] = y.momentum; \
			if (nstates > 1) \
				v[i] = y.variance; \
		} \
	}

DEFINE_RULE(plain_sgd, 0)
DEFINE_RULE(sgd, 1)
DEFINE_RULE(adam, 2)
DEFINE_RULE(adamw, 2)
DEFINE_RULE(lion, 1)
DEFINE_RULE(flash_adam, 2)
DEFINE_RULE(flash_lion, 1)

static rule_fn *rule_of(const struct tsr_step *step)
{
	switch (step->optimizer) {
	case TSR_OPTIMIZER_ADAM:
		return step->flashoptim ? run_flash_adam : run_adam;
	case TSR_OPTIMIZER_ADAMW:
		return step->flashoptim ? run_flash_adam : run_adamw;
	case TSR_OPTIMIZER_LION:
		return step->flashoptim ? run_flash_lion : run_lion;
	default:
		return step->coding[TSR_PART_MOMENTUM].codec ? run_sgd : run_plain_sgd;
	}
}

/* --- Gradients ------------------------------------------------------------------------------- */

INLINE uint32_t is_nonfinite(float x)
{
	return (tsr_bits_from_f32(x) & TSR_F32_INF) == TSR_F32_INF;
}

/* Into @g; how many are not finite. */
#define DEFINE_WIDEN(id, type, widen) \
	static uint32_t widen_##id(const type *restrict narrow, size_t n, float *restrict g) \
	{ \
		uint32_t nonfinite = 0; \
\
		for (size_t i = 0; i < n; i++) { \
			g[i] = widen(narrow[i]); \
			nonfinite += is_nonfinite(g[i]); \
		} \
		return nonfinite; \
	}

DEFINE_WIDEN(bf16, uint16_t, tsr_f32_from_bf16)
DEFINE_WIDEN(f16, uint16_t, tsr_f32_from_f16)

static uint32_t count_nonfinite(const float *g, size_t n)
{
	uint32_t nonfinite = 0;

	for (size_t i = 0; i < n; i++)
		nonfinite += is_nonfinite(g[i]);
	return nonfinite;
}

/* At most PIECE elements of the gradient in FP32, in @scratch or where they are. */
static const float *gradient(const struct tsr_step *step, const void *grad, uint64_t first,
			     size_t n, float *scratch, struct tsr_step_report *report)
{
	const float *g = scratch;

	switch (step->grad_dtype) {
	case TSR_BF16:
		report->nonfinite_grad += widen_bf16((const uint16_t *)grad + first, n, scratch);
		break;
	case TSR_F16:
		report->nonfinite_grad += widen_f16((const uint16_t *)grad + first, n, scratch);
		break;
	default:
		g = (const float *)grad + first;
		report->nonfinite_grad += count_nonfinite(g, n);
	}
	return g;
}

/* --- Windows --------------------------------------------------------------------------------- */

/* Elements @first to @end - 1 of a part, in FP32 at @x. */
struct window {
	struct tsr_coding coding;
	void *const *plane;
	float *scratch, *x;
	size_t capacity;
	uint64_t first, end;
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
	coding.codec->encode(&coding, w->x, (size_t)(w->end - w->first), plane, report);
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
			.capacity = capacity - capacity % tsr_coding_run(coding),
			.end = r->first,
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

/* 512 KiB on the stack; weights have no groups. */
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
		large |= step->coding[p].codec && tsr_coding_run(&step->coding[p]) > PIECE;
	if (large)
		step_large_groups(&r);
	else
		step_small_groups(&r);
}
