/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step is decoding, the rule in FP32 and encoding, whatever the SIMD level and the pieces.  The
 * rules are written out here once more, with fmaf(); tests/unit/test_step_parity.c has PyTorch's
 * results.
 */
#include <math.h>

#include "base/isa.h"
#include "coded.h"
#include "step/hyperparameters.h"
#include "step/step.h"

/* --- The fused operation --------------------------------------------------------------------- */

static void expect_fma(float a, float b, float c)
{
	const uint32_t got = bits_of(tsr_fma_any(a, b, c)), expected = bits_of(fmaf(a, b, c));

	if (got != expected && !(is_nan_bits(got) && is_nan_bits(expected)))
		fail_msg("fma of %08x, %08x, %08x is %08x, expected %08x", bits_of(a), bits_of(b),
			 bits_of(c), got, expected);
}

static void test_fma_of_special_values(void **state)
{
	(void)state;
	for (size_t i = 0; i < 8 * COUNT_OF(specials) * COUNT_OF(specials) * COUNT_OF(specials);
	     i++) {
		const size_t n = COUNT_OF(specials);
		const float a = float_of(specials[i / 8 % n] | (uint32_t)(i & 1) << 31);
		const float b = float_of(specials[i / 8 / n % n] | (uint32_t)(i & 2) << 30);
		const float c = float_of(specials[i / 8 / n / n] | (uint32_t)(i & 4) << 29);

		expect_fma(a, b, c);
	}
}

/* Random operands; then such that the product nearly cancels, or ties, or is subnormal. */
static void test_fma_of_random_values(void **state)
{
	const size_t n = is_long_run() ? 200000000 : 3000000;
	uint64_t seed = 1;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		const uint32_t r = random_u32(&seed);
		const float a = float_of(random_u32(&seed)), b = float_of(random_u32(&seed));
		const float near = -(float)((double)a * (double)b);
		/* Significands of few bits, and exponents that add up to near the last place. */
		const float x = float_of((random_u32(&seed) & 0xc07ff000u) + 0x20000000u);
		const float y = float_of((random_u32(&seed) & 0xc0fff000u) + 0x1f000000u);
		const float tiny = float_of((random_u32(&seed) & 0x817fffffu));

		expect_fma(a, b, float_of(random_u32(&seed)));
		expect_fma(a, b, float_of(bits_of(near) + r % 5 - 2));
		expect_fma(a, b, float_of(bits_of(near) - ((r % 64) << 23)));
		expect_fma(x, y, tiny);
		expect_fma(x, y, float_of((bits_of(x * y) + (r % 3) - 1) ^ 0x80000000u));
		expect_fma(x, 1.0f, float_of((r & 0x80ffffffu) + ((r >> 8 & 63) << 23)));
	}
}

/* --- The rules, once more ---------------------------------------------------------------------- */

static float one_nan(float x)
{
	return x != x ? float_of(0x7fc00000u) : x;
}

/* By FlashOptim's kernels. */
static void flash_element(enum tsr_optimizer o, const struct tsr_step_scalars *s, float g, float *w,
			  float *m, float *v)
{
	float u;

	if (s->l2 != 0)
		g = fmaf(s->l2, *w, g);
	u = fmaf(s->rest1, g, s->beta1 * *m);
	if (o == TSR_OPTIMIZER_LION) {
		u = u != u ? NAN : s->rate * (float)((u > 0) - (u < 0));
		*m = one_nan(fmaf(s->rest2, g, s->beta2 * *m));
	} else {
		*m = one_nan(u);
		*v = one_nan(fmaf(s->rest2 * g, g, s->beta2 * *v));
		u = s->rate * *m / (sqrtf(*v) / s->root_correction2 + s->eps);
	}
	*w = one_nan(fmaf(*w, s->keep, u));
}

/* By the kernels of COAT and bitsandbytes. */
static void eight_bit_element(enum tsr_order order, const struct tsr_step_scalars *s, float g,
			      float *w, float *m, float *v)
{
	*m = one_nan(fmaf(s->rest1, g, s->beta1 * *m));
	*v = one_nan(fmaf(s->rest2 * g, g, s->beta2 * *v));
	if (order == TSR_ORDER_COAT) {
		const float d = (sqrtf(*v) / s->root_correction2 + s->eps) * s->correction1;

		*w = fmaf(s->rate, fmaf(s->l2, *w, *m / d), *w);
	} else {
		*w = fmaf(s->rate, *m / (sqrtf(*v) + s->eps), *w) * s->keep;
	}
	*w = one_nan(*w);
}

/* What an update is divided by the root of: @v, or with AMSGrad the largest so far. */
static float divisor(const struct tsr_step_scalars *s, float v, float *max)
{
	if (!s->amsgrad)
		return v;
	*max = one_nan(isnan(v) || v > *max ? v : *max);
	return *max;
}

/*
 * By PyTorch's fused kernel; the first element of four is not contracted, with `maximize` none is, and with
 * AMSGrad all are.
 */
static void cuda_element(const struct tsr_step_scalars *s, uint64_t i, float g, float *w, float *m,
			 float *v, float *max)
{
	const bool first = s->elements % 4 ? (i & 2047) < 512 : !(i & 3);
	const bool apart = !s->amsgrad && (s->maximize || first);
	float q;

	if (s->l2 != 0)
		g = apart ? g + *w * s->l2 : fmaf(*w, s->l2, g);
	q = g * g;
	*m = one_nan(fmaf(*m, s->beta1, fmaf(-g, s->beta1, g)));
	*v = one_nan(fmaf(*v, s->beta2, fmaf(-q, s->beta2, q)));
	*w = s->decay != 0 ? fmaf(s->decay, *w, *w) : *w;
	*w += s->rate * *m / (sqrtf(divisor(s, *v, max)) / s->root_correction2 + s->eps);
	*w = one_nan(*w);
}

/* By that before PyTorch 2.11. */
static void double_element(const struct tsr_step_scalars *s, bool adam, float g, float *w, float *m,
			   float *v, float *max)
{
	const struct tsr_step_wide *d = &s->wide;

	if (d->l2 != 0)
		g = (float)(g + d->l2 * *w);
	if (d->decay != 0)
		*w = (float)(*w - d->decay * *w);
	*m = one_nan((float)(d->beta1 * *m + d->rest1 * g));
	if (adam) {
		*v = one_nan((float)(d->beta2 * *v + d->rest2 * g * g));
		*w += s->rate * *m /
		      (float)(sqrtf(divisor(s, *v, max)) / s->root_correction2 + d->eps);
	} else {
		g = d->nesterov != 0 ? (float)(g + d->nesterov * *m) : *m;
		*w = (float)(*w - d->lr * g);
	}
	*w = one_nan(*w);
}

/* By one kernel of a GPU after the other. */
static void kernels_element(const struct tsr_step_scalars *s, float g, float *w, float *m, float *v,
			    float *max)
{
	float d;

	if (s->l2 != 0)
		g = fmaf(s->l2, *w, g);
	*m = one_nan(fmaf(s->blend1, g - *m, *m));
	*v = one_nan(fmaf(s->rest2, g * g, *v * s->beta2));
	d = sqrtf(divisor(s, *v, max));
	d = (d / s->root_correction2 * s->unroot + s->eps) / s->correction1;
	*w = one_nan(fmaf(s->rate, *m / d, *w * s->keep));
}

/* Of the last elements of a tensor, up to 7, in a fused kernel of a CPU, whose sums are the other way. */
static bool is_left(const struct tsr_step *step, uint64_t i)
{
	return step->order == TSR_ORDER_TORCH_CPU_FUSED && i >= step->scalars.elements / 8 * 8;
}

static void left_element(const struct tsr_step *step, float g, float w, float *m, float *v)
{
	const struct tsr_step_scalars *s = &step->scalars;

	g = s->l2 != 0 ? fmaf(s->l2, w, g) : g;
	if (step->optimizer == TSR_OPTIMIZER_SGD)
		*m = one_nan(fmaf(*m, s->beta1, s->rest1 * g));
	else
		*v = one_nan(fmaf(*v, s->beta2, s->rest2 * g * g));
}

static void step_element(const struct tsr_step *step, uint64_t i, float g, float *w, float *m,
			 float *v, float *max)
{
	const struct tsr_step_scalars *s = &step->scalars;
	const bool has_momentum = step->coding[TSR_SLOT_MOMENTUM].codec != NULL;
	const enum tsr_optimizer o = step->optimizer;
	float d, u, left_m = *m, left_v = *v;

	g = u = s->maximize ? -g : g;
	left_element(step, g, *w, &left_m, &left_v);
	if (step->order == TSR_ORDER_TORCH_CUDA_FUSED && o != TSR_OPTIMIZER_SGD) {
		cuda_element(s, i, g, w, m, v, max);
		return;
	}
	if (step->order == TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE) {
		double_element(s, o != TSR_OPTIMIZER_SGD, g, w, m, v, max);
		return;
	}
	if ((step->order == TSR_ORDER_TORCH_CUDA_FORLOOP ||
	     step->order == TSR_ORDER_TORCH_CUDA_CAPTURABLE ||
	     step->order == TSR_ORDER_TORCH_CUDA_CAPTURABLE_FORLOOP) &&
	    o != TSR_OPTIMIZER_SGD) {
		kernels_element(s, g, w, m, v, max);
		return;
	}
	if (step->order == TSR_ORDER_COAT || step->order == TSR_ORDER_BITSANDBYTES) {
		eight_bit_element(step->order, s, g, w, m, v);
		return;
	}
	if (step->order == TSR_ORDER_FLASHOPTIM && o != TSR_OPTIMIZER_SGD &&
	    o != TSR_OPTIMIZER_SGDW) {
		flash_element(o, s, g, w, m, v);
		return;
	}
	if (s->l2 != 0)
		u = g = fmaf(s->l2, *w, g);
	*w *= s->keep;
	switch (o) {
	case TSR_OPTIMIZER_SGD:
	case TSR_OPTIMIZER_SGDW:
		if (has_momentum) {
			*m = is_left(step, i) ? left_m : one_nan(fmaf(s->rest1, g, s->beta1 * *m));
			u = s->nesterov != 0 ? fmaf(s->nesterov, *m, g) : *m;
		}
		*w = fmaf(s->rate, u, *w);
		break;
	case TSR_OPTIMIZER_LION:
		u = fmaf(s->rest1, g, s->beta1 * *m);
		if (u > 0)
			*w += s->rate;
		else if (u < 0)
			*w -= s->rate;
		else if (u != 0)
			*w = NAN;
		*m = one_nan(fmaf(s->rest2, g, s->beta2 * *m));
		break;
	default:
		*m = one_nan(fmaf(s->blend1, g - *m, s->from_grad != 0 ? g : *m));
		*v = is_left(step, i) ? left_v : one_nan(fmaf(s->rest2 * g, g, s->beta2 * *v));
		d = sqrtf(divisor(s, *v, max)) / s->root_correction2 + s->eps;
		u = s->rate * *m / d;
		*w += u;
	}
	*w = one_nan(*w);
}

/* --- States ------------------------------------------------------------------------------------ */

struct state {
	struct tsr_step step;
	struct guarded plane[TSR_SLOTS][TSR_PLANES_MAX];
	struct guarded grad;
	struct tsr_step_report report;
	size_t n;
};

static size_t nplanes_of(const struct tsr_step *step, unsigned slot)
{
	return step->coding[slot].codec ? step->coding[slot].codec->nplanes : 0;
}

/* Planes of any bytes, or those of @data; the gradient has special values in the first case. */
static void state_new(struct state *s, const struct tsr_step *step, size_t n, enum data data)
{
	uint64_t seed = n + data;
	float *x = malloc((n + 1) * sizeof(*x));

	assert_non_null(x);
	*s = (struct state){ .step = *step, .n = n };
	s->step.scalars.elements = n;
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		fill(x, n, data, n + p);
		if (tsr_slot_kind((enum tsr_slot)p) == TSR_KIND_VARIANCE)
			drop_signs(x, n);
		for (unsigned i = 0; i < nplanes_of(step, p); i++) {
			guarded_new(&s->plane[p][i],
				    (size_t)tsr_plane_nbytes(&step->coding[p], i, n));
			s->step.plane[p][i] = s->plane[p][i].bytes;
			for (size_t k = 0; data == DATA_SPECIAL && k < s->plane[p][i].nbytes; k++)
				s->plane[p][i].bytes[k] = (unsigned char)random_u32(&seed);
		}
		if (step->coding[p].codec && data != DATA_SPECIAL)
			step->coding[p].codec->encode(&step->coding[p], x, n, s->step.plane[p],
						      &s->report.encode[p]);
	}
	guarded_new(&s->grad, n * tsr_dtype_bits(step->grad_dtype) / 8);
	fill(x, n, data == DATA_SPECIAL ? DATA_SPECIAL : DATA_WEIGHTS, n + 3);
	for (size_t i = 0; i < n; i++) {
		if (step->grad_dtype == TSR_F32)
			((float *)(void *)s->grad.bytes)[i] = x[i];
		else
			((uint16_t *)(void *)s->grad.bytes)[i] =
				(uint16_t)(step->grad_dtype == TSR_BF16 ? tsr_bf16_from_f32(x[i])
									: tsr_f16_from_f32(x[i]));
	}
	memset(&s->report, 0, sizeof(s->report));
	free(x);
}

static void copy_of(struct guarded *ret, const struct guarded *g)
{
	guarded_new(ret, g->nbytes);
	memcpy(ret->bytes, g->bytes, g->nbytes);
}

/* A state as @from was made. */
static void state_copy(struct state *s, const struct state *from)
{
	*s = *from;
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		for (unsigned i = 0; i < nplanes_of(&s->step, p); i++) {
			copy_of(&s->plane[p][i], &from->plane[p][i]);
			s->step.plane[p][i] = s->plane[p][i].bytes;
		}
	}
	copy_of(&s->grad, &from->grad);
}

static void state_free(struct state *s)
{
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		for (unsigned i = 0; i < nplanes_of(&s->step, p); i++) {
			guarded_check(&s->plane[p][i]);
			guarded_free(&s->plane[p][i]);
		}
	}
	guarded_check(&s->grad);
	guarded_free(&s->grad);
}

static float gradient_at(const struct state *s, size_t i)
{
	const void *g = s->grad.bytes;

	if (s->step.grad_dtype == TSR_F32)
		return ((const float *)g)[i];
	if (s->step.grad_dtype == TSR_BF16)
		return float_of((uint32_t)((const uint16_t *)g)[i] << 16);
	return tsr_f32_from_f16(((const uint16_t *)g)[i]);
}

/* Decode everything, step it, encode everything. */
static void state_step_plainly(struct state *s)
{
	const struct tsr_step *step = &s->step;
	float *x[TSR_SLOTS];

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		x[p] = calloc(s->n + 1, sizeof(float));
		assert_non_null(x[p]);
		if (step->coding[p].codec)
			step->coding[p].codec->decode(
				&step->coding[p], (const void *const *)step->plane[p], s->n, x[p]);
	}
	if (step->coding[TSR_SLOT_MOMENTUM].codec)
		tsr_ratios_undo(&step->coding[TSR_SLOT_MOMENTUM], x[TSR_SLOT_MOMENTUM],
				x[TSR_SLOT_VARIANCE], s->n);
	for (size_t i = 0; i < s->n; i++) {
		const float g = gradient_at(s, i);

		s->report.nonfinite_grad += !is_finite_bits(bits_of(g));
		step_element(step, step->coding[TSR_SLOT_WEIGHT].first + i, g,
			     &x[TSR_SLOT_WEIGHT][i], &x[TSR_SLOT_MOMENTUM][i],
			     &x[TSR_SLOT_VARIANCE][i], &x[TSR_SLOT_MAX_VARIANCE][i]);
	}
	if (step->coding[TSR_SLOT_MOMENTUM].codec)
		tsr_ratios_make(&step->coding[TSR_SLOT_MOMENTUM], x[TSR_SLOT_MOMENTUM],
				x[TSR_SLOT_VARIANCE], s->n);
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		if (step->coding[p].codec)
			step->coding[p].codec->encode(&step->coding[p], x[p], s->n, step->plane[p],
						      &s->report.encode[p]);
		free(x[p]);
	}
}

static void describe_step(char text[300], const struct state *s)
{
	const struct tsr_step *step = &s->step;
	int at = snprintf(text, 300, "%s, %zu elements, gradient %s",
			  tsr_optimizer_name(step->optimizer), s->n,
			  tsr_dtype_name(step->grad_dtype));

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_coding *c = &step->coding[p];

		if (c->codec)
			at += snprintf(text + at, 300 - (size_t)at, ", %s/%s/%u", c->codec->name,
				       tsr_scale_name(c->scale), c->group);
	}
}

static void expect_same_state(const struct state *a, const struct state *b, const char *what)
{
	char which[300];

	describe_step(which, a);
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_encode_report *ea = &a->report.encode[p],
					       *eb = &b->report.encode[p];

		for (unsigned i = 0; i < nplanes_of(&a->step, p); i++) {
			for (size_t k = 0; k < a->plane[p][i].nbytes; k++) {
				if (a->plane[p][i].bytes[k] != b->plane[p][i].bytes[k])
					fail_msg("%s: %s: slot %u, plane %u: byte %zu differs",
						 what, which, p, i, k);
			}
		}
		if (ea->scale_underflow != eb->scale_underflow ||
		    ea->scale_overflow != eb->scale_overflow ||
		    ea->narrow_overflow != eb->narrow_overflow)
			fail_msg("%s: %s: slot %u: reports differ", what, which, p);
	}
	if (a->report.nonfinite_grad != b->report.nonfinite_grad)
		fail_msg("%s: %s: %llu and %llu nonfinite gradients", what, which,
			 (unsigned long long)a->report.nonfinite_grad,
			 (unsigned long long)b->report.nonfinite_grad);
}

/* At random multiples of what runs must start at, from the end on: order does not matter. */
static void state_step_in_runs(struct state *s)
{
	const uint64_t align = tsr_step_align(&s->step);
	uint64_t seed = s->n, end = s->n;

	while (end) {
		const uint64_t first = random_u64(&seed) % ((end - 1) / align + 1) * align;

		tsr_step_apply(&s->step, s->grad.bytes, first, (size_t)(end - first), &s->report);
		end = first;
	}
}

/* Those of the level that was selected. */
static void find_codecs(struct tsr_step *step)
{
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		if (step->coding[p].codec)
			step->coding[p].codec = tsr_codec_find(step->coding[p].codec->name);
	}
}

static void check_step(const struct tsr_step *step, size_t n, enum data data)
{
	struct state before, expected, got;

	state_new(&before, step, n, data);
	state_copy(&expected, &before);
	state_step_plainly(&expected);
	for (const char *const *level = tsr_isa_names(); *level; level++) {
		if (!tsr_isa_select(*level))
			continue;
		for (int split = 0; split < 2; split++) {
			state_copy(&got, &before);
			find_codecs(&got.step);
			if (split)
				state_step_in_runs(&got);
			else
				tsr_step_apply(&got.step, got.grad.bytes, 0, n, &got.report);
			expect_same_state(&expected, &got, *level);
			state_free(&got);
		}
	}
	state_free(&expected);
	state_free(&before);
}

/* --- Every optimizer, every codec ------------------------------------------------------------- */

struct variant {
	enum tsr_optimizer optimizer;
	double lr, beta1, decay, momentum, dampening, nesterov;
	uint64_t t;
	bool fresh, maximize, amsgrad;
	enum tsr_order order;
};

static const struct variant variants[] = {
	{ TSR_OPTIMIZER_SGD, .lr = 0.1, .decay = 1e-4 },
	{ TSR_OPTIMIZER_SGD, .lr = 0.1, .decay = 1e-4, .momentum = 0.9, .dampening = 0.1 },
	{ TSR_OPTIMIZER_SGD, .lr = 0.1, .momentum = 0.9, .nesterov = 1 },
	{ TSR_OPTIMIZER_SGDW, .lr = 0.1, .decay = 0.1, .momentum = 0.8, .nesterov = 1 },
	{ TSR_OPTIMIZER_SGDW, .lr = 0.1, .decay = 0.1 },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .decay = 0.01, .t = 3 },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .t = 1000000 },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 1 },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.25, .decay = 0.1, .t = 10 },
	{ TSR_OPTIMIZER_LION, .lr = 1e-4, .beta1 = 0.9, .decay = 0.1 },
	{ TSR_OPTIMIZER_SGD, .lr = 0.1, .decay = 1e-4, .momentum = 0.9,
	  .order = TSR_ORDER_FLASHOPTIM },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .decay = 0.01, .t = 3,
	  .order = TSR_ORDER_FLASHOPTIM },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3,
	  .order = TSR_ORDER_FLASHOPTIM },
	{ TSR_OPTIMIZER_LION, .lr = 1e-4, .beta1 = 0.9, .decay = 0.1,
	  .order = TSR_ORDER_FLASHOPTIM },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3,
	  .order = TSR_ORDER_COAT },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .t = 7, .order = TSR_ORDER_BITSANDBYTES },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3,
	  .order = TSR_ORDER_BITSANDBYTES },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3,
	  .order = TSR_ORDER_TORCH_CUDA_FUSED },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3, .maximize = true,
	  .order = TSR_ORDER_TORCH_CUDA_FUSED },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3,
	  .order = TSR_ORDER_TORCH_CUDA_FORLOOP },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3,
	  .order = TSR_ORDER_TORCH_CUDA_CAPTURABLE },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3,
	  .order = TSR_ORDER_TORCH_CPU_FUSED },
	{ TSR_OPTIMIZER_SGD, .lr = 0.1, .decay = 1e-4, .momentum = 0.9, .dampening = 0.1,
	  .order = TSR_ORDER_TORCH_CPU_FUSED },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3,
	  .order = TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3,
	  .order = TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE },
	{ TSR_OPTIMIZER_SGD, .lr = 0.1, .decay = 1e-4, .momentum = 0.9, .nesterov = 1,
	  .order = TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3, .amsgrad = true },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3, .amsgrad = true,
	  .order = TSR_ORDER_TORCH_CPU_FUSED },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3, .amsgrad = true,
	  .order = TSR_ORDER_TORCH_CUDA_FUSED },
	{ TSR_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3, .amsgrad = true,
	  .order = TSR_ORDER_TORCH_CUDA_CAPTURABLE_FORLOOP },
	{ TSR_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .decay = 0.1, .t = 3, .amsgrad = true,
	  .order = TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE },
};

static struct tsr_step step_of(const struct variant *v, const struct tsr_coding coding[TSR_SLOTS])
{
	struct tsr_step step = { .optimizer = v->optimizer,
				 .order = v->order,
				 .grad_dtype = TSR_BF16 };
	struct tsr_hyper h = { 0 };
	unsigned slots;

	tsr_hyper_put(&h, TSR_HYPER_LR, v->lr);
	tsr_hyper_put(&h, TSR_HYPER_WEIGHT_DECAY, v->decay);
	tsr_hyper_put(&h, TSR_HYPER_MOMENTUM, v->momentum);
	tsr_hyper_put(&h, TSR_HYPER_DAMPENING, v->dampening);
	tsr_hyper_put(&h, TSR_HYPER_NESTEROV, v->nesterov);
	tsr_hyper_put(&h, TSR_HYPER_MAXIMIZE, v->maximize);
	tsr_hyper_put(&h, TSR_HYPER_AMSGRAD, v->amsgrad);
	if (v->beta1 != 0)
		tsr_hyper_put(&h, TSR_HYPER_BETA1, v->beta1);
	tsr_hyper_defaults(&h, v->optimizer);
	assert_int_equal(tsr_hyper_check(&h, v->optimizer, "test", NULL), TSR_OK);
	step.scalars = tsr_step_scalars(v->order, v->optimizer, &h, v->t, v->fresh);
	slots = 1u << TSR_SLOT_WEIGHT | tsr_optimizer_slots(v->optimizer, &h);
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		if (slots >> p & 1)
			step.coding[p] = coding[p];
	}
	return step;
}

static void default_codings(struct tsr_coding coding[TSR_SLOTS])
{
	coding[TSR_SLOT_WEIGHT] = coding_of("bf16+ulp8", TSR_SCALE_E8M8, 1);
	coding[TSR_SLOT_MOMENTUM] = coding_of("softsign8", TSR_SCALE_E8M8, 32);
	coding[TSR_SLOT_VARIANCE] = coding_of("sqrt8", TSR_SCALE_E8M8, 32);
	coding[TSR_SLOT_MAX_VARIANCE] = coding[TSR_SLOT_VARIANCE];
}

/* A momentum in ratios needs a variance. */
static bool lacks_variance(const struct tsr_step *step)
{
	const struct tsr_codec *momentum = step->coding[TSR_SLOT_MOMENTUM].codec;

	return momentum && momentum->relative && !step->coding[TSR_SLOT_VARIANCE].codec;
}

/* @slot in this coding, the others in the default ones; a quarter of the variants in turn, if not all. */
static void check_coding(const struct tsr_coding *one, enum tsr_slot slot)
{
	struct tsr_coding coding[TSR_SLOTS];
	static unsigned counter, turn;

	turn++;
	default_codings(coding);
	coding[slot] = *one;
	coding[slot].seed = 5;
	if (one->codec->relative)
		coding[TSR_SLOT_VARIANCE].group = one->group;
	coding[TSR_SLOT_MAX_VARIANCE] = coding[TSR_SLOT_VARIANCE];
	for (size_t i = 0; i < COUNT_OF(variants); i++) {
		struct tsr_step step = step_of(&variants[i], coding);
		const size_t long_n = one->group > 5000 ? 70001 : 2500 + counter % 99;

		if (!step.coding[slot].codec || lacks_variance(&step) ||
		    (!is_long_run() && (i + turn) % 4))
			continue;
		check_step(&step, counter % 101, (enum data)(counter % DATA_COUNT));
		check_step(&step, long_n, counter % 2 ? DATA_WEIGHTS : DATA_SPECIAL);
		counter++;
	}
}

static void check_weight(const struct tsr_coding *c)
{
	if (c->codec->kinds & TSR_KIND_WEIGHT)
		check_coding(c, TSR_SLOT_WEIGHT);
}

static void check_momentum(const struct tsr_coding *c)
{
	if (c->codec->kinds & TSR_KIND_MOMENTUM)
		check_coding(c, TSR_SLOT_MOMENTUM);
}

static void check_variance(const struct tsr_coding *c)
{
	if (c->codec->kinds & TSR_KIND_VARIANCE)
		check_coding(c, TSR_SLOT_VARIANCE);
}

static void test_every_weight_codec(void **state)
{
	(void)state;
	for_each_codec(check_weight);
}

static void test_every_state_codec(void **state)
{
	(void)state;
	for_each_codec(check_momentum);
	for_each_codec(check_variance);
}

/* Of groups that have little in common, and of parts that are FP32. */
static void test_mixed_states(void **state)
{
	static const struct {
		const char *name[TSR_SLOT_MAX_VARIANCE];
		uint32_t group[TSR_SLOT_MAX_VARIANCE];
		enum tsr_scale scale;
	} mixes[] = {
		{ { "f32", "f32", "f32" }, { 1, 1, 1 }, TSR_SCALE_E8M8 },
		{ { "bf16", "bf16", "bf16" }, { 1, 1, 1 }, TSR_SCALE_E8M8 },
		{ { "bf16+ulp16", "linear8", "ulinear8" }, { 1, 32, 32 }, TSR_SCALE_F16 },
		{ { "bf16+ulp8", "softsign8", "f32" }, { 1, 32, 1 }, TSR_SCALE_E8M8 },
		{ { "f32", "softsign8", "sqrt8" }, { 1, 32, 32 }, TSR_SCALE_E8M8 },
		{ { "bf16+ulp8", "softsign8", "sqrt8" }, { 1, 32, 32 }, TSR_SCALE_F16 },
		{ { "bf16+ulp8", "linear8", "ulinear8" }, { 1, 32, 32 }, TSR_SCALE_E8M8 },
		{ { "bf16+ulp8", "softsign8", "sqrt8" }, { 1, 32, 32 }, TSR_SCALE_F32 },
		{ { "bf16+ulp8", "softsign8", "sqrt8" }, { 1, 33, 64 }, TSR_SCALE_E8M8 },
		{ { "bf16+sr8", "softsign8", "sqrt8" }, { 1, 1000, 7 }, TSR_SCALE_F32 },
		{ { "bf16+trunc3", "softsign8", "sqrt8" }, { 1, 1025, 20011 }, TSR_SCALE_E8M8 },
		{ { "fp16+ulp8", "softsign8", "sqrt8" }, { 1, 65521, 65536 }, TSR_SCALE_E8M8 },
		{ { "bf16+ulp8", "ratio8", "sqrt8" }, { 1, 64, 32 }, TSR_SCALE_E8M8 },
		{ { "f32", "ratio8", "f32" }, { 1, 48, 1 }, TSR_SCALE_F32 },
		{ { "bf16+ulp8", "ratio8", "log8" }, { 1, 64, 64 }, TSR_SCALE_E8M8 },
		{ { "f32", "softsign8", "log8" }, { 1, 32, 100 }, TSR_SCALE_E8M8 },
		{ { "bf16+trunc3", "ratio8", "ulinear8" }, { 1, 1000, 7 }, TSR_SCALE_E8M8 },
	};

	(void)state;
	for (size_t m = 0; m < COUNT_OF(mixes); m++) {
		struct tsr_coding coding[TSR_SLOTS];

		for (unsigned p = 0; p < TSR_SLOT_MAX_VARIANCE; p++)
			coding[p] = coding_of(mixes[m].name[p], mixes[m].scale, mixes[m].group[p]);
		coding[TSR_SLOT_MAX_VARIANCE] = coding[TSR_SLOT_VARIANCE];
		for (size_t i = 0; i < COUNT_OF(variants); i++) {
			struct tsr_step step = step_of(&variants[i], coding);

			if (lacks_variance(&step))
				continue;
			for (unsigned n = 0; n < 70; n += 23)
				check_step(&step, n, DATA_WEIGHTS);
			step.grad_dtype = i % 2 ? TSR_F32 : TSR_F16;
			check_step(&step, 4999, DATA_SPECIAL);
			check_step(&step, m % 2 ? 140001 : 5123, DATA_WEIGHTS);
		}
	}
}

/* Every length around the sizes of groups and pieces, of every other variant, if not of all. */
static void test_every_length(void **state)
{
	static const size_t last[] = { 160, 1100, 2080 };
	struct tsr_coding coding[TSR_SLOTS];

	(void)state;
	default_codings(coding);
	for (size_t i = 0; i < COUNT_OF(variants); i++) {
		const struct tsr_step step = step_of(&variants[i], coding);

		for (size_t k = 0; k < COUNT_OF(last); k++) {
			for (size_t n = k ? last[k] - 90 : 0; n <= last[k]; n++) {
				if (is_long_run() || (n + i) % 2)
					check_step(&step, n, (enum data)(n % DATA_COUNT));
			}
		}
	}
}

/* --- What the first step of a momentum makes ---------------------------------------------------- */

static void test_fresh_momentum_is_the_gradient(void **state)
{
	static const struct variant v = { TSR_OPTIMIZER_SGD, .lr = 0.5, .momentum = 0.9,
					  .dampening = 0.5, .fresh = true };
	float w[4] = { 1, 1, 1, 1 }, m[4] = { 0 };
	const float g[4] = { 2, -0.0f, 0, -3 };
	struct tsr_coding coding[TSR_SLOTS];
	struct tsr_step_report report = { 0 };
	struct tsr_step step;

	(void)state;
	for (unsigned p = 0; p < TSR_SLOTS; p++)
		coding[p] = coding_of("f32", TSR_SCALE_E8M8, 1);
	step = step_of(&v, coding);
	step.grad_dtype = TSR_F32;
	step.plane[TSR_SLOT_WEIGHT][0] = w;
	step.plane[TSR_SLOT_MOMENTUM][0] = m;
	tsr_step_apply(&step, g, 0, 4, &report);
	for (int i = 0; i < 4; i++)
		assert_int_equal(bits_of(m[i]), bits_of(g[i]));
	assert_true(w[0] == 0 && w[1] == 1 && w[2] == 1 && w[3] == 2.5f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fma_of_special_values),
		cmocka_unit_test(test_fma_of_random_values),
		cmocka_unit_test(test_every_length),
		cmocka_unit_test(test_every_weight_codec),
		cmocka_unit_test(test_every_state_codec),
		cmocka_unit_test(test_mixed_states),
		cmocka_unit_test(test_fresh_momentum_is_the_gradient),
	};

	return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
