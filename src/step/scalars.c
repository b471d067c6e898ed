/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a step that all elements share, and where tiles may begin. */
#include <math.h>

#include "base/multiple.h"
#include "step/cuda_power.h"
#include "step/step.h"

/* An unevaluated sum, about 106 bits. */
struct twice {
	double high, low;
};

static struct twice times(struct twice a, struct twice b)
{
	const double high = a.high * b.high;
	const double low = fma(a.high, b.high, -high) + (a.high * b.low + a.low * b.high);
	const double sum = high + low;

	return (struct twice){ sum, low - (sum - high) };
}

/*
 * x^n for x from 0 to 1, by squaring: pow() differs between C libraries.  With twice the digits the
 * result is the nearest binary64 number but for some n in 2^40, which is what pow() aims for.
 */
static double power(double x, uint64_t n)
{
	struct twice result = { 1, 0 }, square = { x, 0 };

	for (; n; n >>= 1) {
		if (n & 1)
			result = times(result, square);
		square = times(square, square);
	}
	return result.high;
}

/* The share of a weight that decoupled weight decay takes. */
static double decay(const struct tsr_hyper *h)
{
	const double *v = h->value;
	const double rate = v[TSR_HYPER_LR];

	if (v[TSR_HYPER_DECOUPLE_LR] != 0)
		return v[TSR_HYPER_WEIGHT_DECAY] * (rate / v[TSR_HYPER_INITIAL_LR]);
	return rate * v[TSR_HYPER_WEIGHT_DECAY];
}

/*
 * A fresh momentum becomes the gradient itself: -0 * 0 + g is g, also where that is -0.
 */
static void put_sgd(struct tsr_step_scalars *s, const struct tsr_hyper *h, bool fresh)
{
	const double momentum = h->value[TSR_HYPER_MOMENTUM];

	s->beta1 = fresh ? -0.0f : (float)momentum;
	s->rest1 = fresh ? 1.0f : (float)(1 - h->value[TSR_HYPER_DAMPENING]);
	s->nesterov = h->value[TSR_HYPER_NESTEROV] != 0 ? (float)momentum : 0;
	s->rate = (float)-h->value[TSR_HYPER_LR];
}

/*
 * PyTorch's lerp() starts from whichever end is nearer, so that beta1 = 0 makes the momentum the
 * gradient itself.  It computes the weight of the far end in FP32.
 */
static void put_adam(struct tsr_step_scalars *s, const struct tsr_hyper *h, uint64_t t)
{
	const double beta1 = h->value[TSR_HYPER_BETA1], beta2 = h->value[TSR_HYPER_BETA2];
	const float weight = (float)(1 - beta1);

	s->from_grad = weight < 0.5f ? 0.0f : 1.0f;
	s->blend1 = weight < 0.5f ? weight : weight - 1.0f;
	s->beta2 = (float)beta2;
	s->rest2 = (float)(1 - beta2);
	s->root_correction2 = (float)sqrt(1 - power(beta2, t));
	s->eps = (float)h->value[TSR_HYPER_EPS];
	s->rate = (float)-(h->value[TSR_HYPER_LR] / (1 - power(beta1, t)));
	s->unbias1 = (float)(1 / (1 - power(beta1, t)));
	s->minus_lr = (float)-h->value[TSR_HYPER_LR];
}

static void put_lion(struct tsr_step_scalars *s, const struct tsr_hyper *h)
{
	const double beta1 = h->value[TSR_HYPER_BETA1], beta2 = h->value[TSR_HYPER_BETA2];

	s->beta1 = (float)beta1;
	s->rest1 = (float)(1 - beta1);
	s->beta2 = (float)beta2;
	s->rest2 = (float)(1 - beta2);
	s->rate = (float)-h->value[TSR_HYPER_LR];
}

/* Both interpolations of Muon; GefenMuon's second is a sum.  The rate depends on the matrix. */
static void put_muon(struct tsr_step_scalars *s, enum tsr_optimizer optimizer,
		     const struct tsr_hyper *h)
{
	const double momentum = h->value[TSR_HYPER_MOMENTUM];
	const float weight = (float)(1 - momentum);

	s->from_grad = weight < 0.5f ? 0.0f : 1.0f;
	s->blend1 = weight < 0.5f ? weight : weight - 1.0f;
	s->eps = (float)h->value[TSR_HYPER_EPS];
	if (h->value[TSR_HYPER_NESTEROV] == 0)
		return;
	s->nesterov = (float)momentum;
	s->rest1 = optimizer == TSR_OPTIMIZER_GEFEN_MUON ? weight : 0;
}

/*
 * The first step only makes factors and bases.  pytorch_optimizer counts it, and keeps the momentum as it is;
 * the authors' program does not, and keeps it in the bases.
 */
static struct tsr_step_scalars soap_scalars(enum tsr_order order, const struct tsr_hyper *h,
					    uint64_t t)
{
	const bool other = order == TSR_ORDER_PYTORCH_OPTIMIZER;
	const uint64_t count = other ? t - 1 : t;
	const double *x = h->value, beta = x[TSR_HYPER_SHAMPOO_BETA];
	struct tsr_step_scalars s = {
		.keep = (float)(1 - decay(h)),
		.eps = (float)x[TSR_HYPER_EPS],
		.soap = { .beta = (float)beta,
			  .rest = (float)(1 - beta),
			  .least = other ? (float)x[TSR_HYPER_EPS] : 1e-30f,
			  .normalizes = x[TSR_HYPER_NORMALIZE_GRADS] != 0,
			  .turns = !other,
			  .refreshes = count % (uint64_t)x[TSR_HYPER_PRECONDITION_FREQUENCY] == 0 },
	};

	put_lion(&s, h);
	if (x[TSR_HYPER_CORRECT_BIAS] != 0)
		s.rate = (float)-(x[TSR_HYPER_LR] * (sqrt(1 - power(x[TSR_HYPER_BETA2], count)) /
						     (1 - power(x[TSR_HYPER_BETA1], count))));
	return s;
}

float tsr_step_matrix_rate(const struct tsr_hyper *h, uint64_t rows, uint64_t columns)
{
	const double lr = h->value[TSR_HYPER_LR];
	const double longer = rows > columns ? (double)rows : (double)columns;
	const double shape = rows > columns ? (double)rows / (double)columns : 1;

	if (h->value[TSR_HYPER_MATCH_RMS] != 0)
		return (float)-(lr * (0.2 * sqrt(longer)));
	return (float)-(lr * sqrt(shape));
}

static struct tsr_step_scalars pytorch_scalars(enum tsr_optimizer optimizer,
					       const struct tsr_hyper *h, uint64_t t, bool fresh)
{
	struct tsr_step_scalars s = {
		.keep = 1,
		.maximize = tsr_hyper_is_on(h, TSR_HYPER_MAXIMIZE),
		.amsgrad = tsr_hyper_is_on(h, TSR_HYPER_AMSGRAD),
	};

	if (optimizer == TSR_OPTIMIZER_SGD || optimizer == TSR_OPTIMIZER_ADAM)
		s.l2 = (float)h->value[TSR_HYPER_WEIGHT_DECAY];
	else
		s.keep = (float)(1 - decay(h));
	switch (optimizer) {
	case TSR_OPTIMIZER_SGD:
	case TSR_OPTIMIZER_SGDW:
		put_sgd(&s, h, fresh);
		break;
	case TSR_OPTIMIZER_LION:
		put_lion(&s, h);
		break;
	case TSR_OPTIMIZER_MUON:
	case TSR_OPTIMIZER_GEFEN_MUON:
		put_muon(&s, optimizer, h);
		break;
	default:
		put_adam(&s, h, t);
	}
	return s;
}

/* What FlashOptim's kernels make of a number near 1: they get @x in FP32. */
static float flash_rest(double x)
{
	return 1.0f - (float)x;
}

static void put_flash_adam(struct tsr_step_scalars *s, const struct tsr_hyper *h, uint64_t t)
{
	const float beta1 = (float)h->value[TSR_HYPER_BETA1];
	const float beta2 = (float)h->value[TSR_HYPER_BETA2];

	s->beta1 = beta1;
	s->rest1 = 1.0f - beta1;
	s->rest2 = 1.0f - beta2;
	s->root_correction2 = (float)sqrt(flash_rest(power(beta2, t)));
	s->rate = (float)-(h->value[TSR_HYPER_LR] / flash_rest(power(beta1, t)));
}

static struct tsr_step_scalars flash_scalars(enum tsr_optimizer optimizer,
					     const struct tsr_hyper *h, uint64_t t)
{
	struct tsr_step_scalars s = pytorch_scalars(optimizer, h, t, false);

	if (optimizer != TSR_OPTIMIZER_SGD && optimizer != TSR_OPTIMIZER_ADAM)
		s.keep = flash_rest(decay(h));
	if (optimizer == TSR_OPTIMIZER_ADAM || optimizer == TSR_OPTIMIZER_ADAMW)
		put_flash_adam(&s, h, t);
	if (optimizer == TSR_OPTIMIZER_LION) {
		s.rest1 = flash_rest(h->value[TSR_HYPER_BETA1]);
		s.rest2 = flash_rest(h->value[TSR_HYPER_BETA2]);
	}
	return s;
}

/* COAT's kernel decays weights by an update of its own, which lr multiplies as well. */
static struct tsr_step_scalars coat_scalars(const struct tsr_hyper *h, uint64_t t)
{
	struct tsr_step_scalars s = { .keep = 1, .eps = (float)h->value[TSR_HYPER_EPS] };
	const double *v = h->value;
	const double slot = v[TSR_HYPER_DECOUPLE_LR] != 0 ? v[TSR_HYPER_INITIAL_LR] : 1;

	put_flash_adam(&s, h, t);
	s.beta2 = (float)v[TSR_HYPER_BETA2];
	s.correction1 = flash_rest(power(v[TSR_HYPER_BETA1], t));
	s.l2 = (float)(v[TSR_HYPER_WEIGHT_DECAY] / slot);
	s.rate = (float)-v[TSR_HYPER_LR];
	return s;
}

/* The kernel of bitsandbytes corrects eps and the rate instead of the moments. */
static struct tsr_step_scalars bitsandbytes_scalars(const struct tsr_hyper *h, uint64_t t)
{
	struct tsr_step_scalars s = { .beta2 = (float)h->value[TSR_HYPER_BETA2] };

	put_flash_adam(&s, h, t);
	s.keep = flash_rest(decay(h));
	s.eps = s.root_correction2 * (float)h->value[TSR_HYPER_EPS];
	s.rate = s.rate * s.root_correction2;
	return s;
}

/*
 * The fused kernel gets hyperparameters in FP32, and computes powers and corrections in that.  SGD's is as on
 * a CPU.
 */
static void put_cuda_fused(struct tsr_step_scalars *s, enum tsr_optimizer optimizer,
			   const struct tsr_hyper *h, uint64_t t)
{
	const double *v = h->value;
	const float lr = (float)v[TSR_HYPER_LR], weight_decay = (float)v[TSR_HYPER_WEIGHT_DECAY];
	const float beta1 = (float)v[TSR_HYPER_BETA1], beta2 = (float)v[TSR_HYPER_BETA2];

	if (optimizer == TSR_OPTIMIZER_ADAMW)
		s->decay = v[TSR_HYPER_DECOUPLE_LR] != 0 ? -(float)decay(h) : -(lr * weight_decay);
	s->beta1 = beta1;
	s->beta2 = beta2;
	s->root_correction2 = sqrtf(1.0f - tsr_cuda_power(beta2, t));
	s->rate = -(lr / (1.0f - tsr_cuda_power(beta1, t)));
}

/* With corrections on the GPU, where a division by a number is a product with its reciprocal. */
static void put_capturable(struct tsr_step_scalars *s, enum tsr_order order,
			   const struct tsr_hyper *h, uint64_t t)
{
	const float less1 = tsr_cuda_power((float)h->value[TSR_HYPER_BETA1], t) - 1.0f;
	const float root2 = sqrtf(-(tsr_cuda_power((float)h->value[TSR_HYPER_BETA2], t) - 1.0f));
	const float lr = (float)h->value[TSR_HYPER_LR];
	const bool tensor = tsr_hyper_is_on(h, TSR_HYPER_TENSOR_LR);

	s->rate = 1;
	if (order == TSR_ORDER_TORCH_CUDA_CAPTURABLE) {
		s->correction1 = 1.0f / (tensor ? less1 / lr
						: less1 * (float)(1 / h->value[TSR_HYPER_LR]));
		s->root_correction2 = root2;
		return;
	}
	{
		const float step_size = tensor ? lr / less1 : 1.0f / less1 * lr;

		s->root_correction2 = root2 * step_size;
		s->eps = 1.0f / step_size * s->eps;
	}
}

/* Kernels that take one operation each; corrections are numbers, or for capturable tensors on the GPU. */
static void put_cuda_adam(struct tsr_step_scalars *s, enum tsr_order order,
			  const struct tsr_hyper *h, uint64_t t)
{
	const double *v = h->value;

	s->unroot = 1;
	s->correction1 = 1;
	if (order == TSR_ORDER_TORCH_CUDA_FORLOOP) {
		s->unroot = (float)(1 / sqrt(1 - power(v[TSR_HYPER_BETA2], t)));
		s->root_correction2 = 1;
	}
	if (order == TSR_ORDER_TORCH_CUDA_CAPTURABLE ||
	    order == TSR_ORDER_TORCH_CUDA_CAPTURABLE_FORLOOP)
		put_capturable(s, order, h, t);
}

/* Before PyTorch 2.11: binary64 where a hyperparameter is in it, but for results, which are rounded. */
static void put_cuda_double(struct tsr_step_scalars *s, enum tsr_optimizer optimizer,
			    const struct tsr_hyper *h, uint64_t t, bool fresh)
{
	const double *v = h->value;
	const bool sgd = optimizer == TSR_OPTIMIZER_SGD;
	const bool decoupled = optimizer == TSR_OPTIMIZER_ADAMW;
	const float correction1 = (float)(1 - power(v[TSR_HYPER_BETA1], t));

	s->wide = (struct tsr_step_wide){
		.lr = v[TSR_HYPER_LR],
		.l2 = decoupled ? 0 : v[TSR_HYPER_WEIGHT_DECAY],
		.decay = decoupled ? decay(h) : 0,
		.eps = v[TSR_HYPER_EPS],
		.beta1 = sgd ? v[TSR_HYPER_MOMENTUM] : v[TSR_HYPER_BETA1],
		.rest1 = 1 - v[sgd ? TSR_HYPER_DAMPENING : TSR_HYPER_BETA1],
		.beta2 = v[TSR_HYPER_BETA2],
		.rest2 = 1 - v[TSR_HYPER_BETA2],
		.nesterov = v[TSR_HYPER_NESTEROV] != 0 ? v[TSR_HYPER_MOMENTUM] : 0,
	};
	if (fresh) {
		s->wide.beta1 = -0.0;
		s->wide.rest1 = 1;
	}
	s->root_correction2 = (float)sqrt(1 - power(v[TSR_HYPER_BETA2], t));
	s->rate = -(float)(v[TSR_HYPER_LR] / (double)correction1);
}

/* An lr that is a tensor divides and multiplies in FP32, but in the fused kernels, which take its number. */
static void put_tensor_lr(struct tsr_step_scalars *s, enum tsr_optimizer optimizer,
			  const struct tsr_hyper *h, uint64_t t)
{
	const double *v = h->value;
	const float lr = (float)v[TSR_HYPER_LR];

	s->rate = -(lr / (float)(1 - power(v[TSR_HYPER_BETA1], t)));
	if (optimizer == TSR_OPTIMIZER_ADAMW && v[TSR_HYPER_DECOUPLE_LR] == 0)
		s->keep = 1.0f - lr * (float)v[TSR_HYPER_WEIGHT_DECAY];
}

static bool is_fused(enum tsr_order order)
{
	return order == TSR_ORDER_TORCH_CPU_FUSED || order == TSR_ORDER_TORCH_CUDA_FUSED ||
	       order == TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE;
}

/* PyTorch's order on a CPU, and where others differ from it. */
static struct tsr_step_scalars torch_scalars(enum tsr_order order, enum tsr_optimizer optimizer,
					     const struct tsr_hyper *h, uint64_t t, bool fresh)
{
	struct tsr_step_scalars s = pytorch_scalars(optimizer, h, t, fresh);
	const bool sgd = optimizer == TSR_OPTIMIZER_SGD;

	if (!is_fused(order) && tsr_hyper_is_on(h, TSR_HYPER_TENSOR_LR) &&
	    tsr_optimizer_uses(optimizer, TSR_HYPER_TENSOR_LR))
		put_tensor_lr(&s, optimizer, h, t);
	if (order == TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE)
		put_cuda_double(&s, optimizer, h, t, sgd && fresh);
	else if (order == TSR_ORDER_TORCH_CUDA_FUSED && !sgd)
		put_cuda_fused(&s, optimizer, h, t);
	else if (order != TSR_ORDER_TORCH_CPU && order != TSR_ORDER_TORCH_CPU_FUSED && !sgd)
		put_cuda_adam(&s, order, h, t);
	return s;
}

struct tsr_step_scalars tsr_step_scalars(enum tsr_order order, enum tsr_optimizer optimizer,
					 const struct tsr_hyper *h, uint64_t t, bool fresh)
{
	if (optimizer == TSR_OPTIMIZER_SOAP)
		return soap_scalars(order, h, t);
	switch (order) {
	case TSR_ORDER_FLASHOPTIM:
		return flash_scalars(optimizer, h, t);
	case TSR_ORDER_COAT:
		return coat_scalars(h, t);
	case TSR_ORDER_BITSANDBYTES:
		return bitsandbytes_scalars(h, t);
	case TSR_ORDER_GEFEN:
		return pytorch_scalars(optimizer, h, t, fresh);
	default:
		return torch_scalars(order, optimizer, h, t, fresh);
	}
}

static bool is_means(const struct tsr_codec *codec)
{
	return codec && codec->learned && codec->kinds == TSR_KIND_VARIANCE;
}

bool tsr_step_stores_first(const struct tsr_step *step)
{
	return step->optimizer == TSR_OPTIMIZER_GEFEN || tsr_optimizer_is_muon(step->optimizer) ||
	       step->order == TSR_ORDER_GEFEN || is_means(step->coding[TSR_SLOT_VARIANCE].codec);
}

uint32_t tsr_step_block(const struct tsr_step *step)
{
	const struct tsr_coding *variance = &step->coding[TSR_SLOT_VARIANCE];

	return is_means(variance->codec) ? variance->group : 1;
}

uint64_t tsr_step_moments_align(const struct tsr_step *step)
{
	uint64_t align = 1;

	for (unsigned p = TSR_SLOT_MOMENTUM; p < TSR_SLOTS; p++) {
		if (step->coding[p].codec)
			align = tsr_common_multiple(align, tsr_coding_align(&step->coding[p]));
	}
	return align;
}

/*
 * SOAP: factors and bases; one more square, 4 and a strip of at most 32 numbers per row of it; two matrices,
 * slots and gradient.
 */
size_t tsr_step_work(const struct tsr_step *step)
{
	const uint64_t *side = step->side, most = side[0] > side[1] ? side[0] : side[1];
	const uint64_t least = step->rows < step->columns ? step->rows : step->columns;
	const uint64_t bases = 2 * (side[0] * side[0] + side[1] * side[1]) + most * most +
			       36 * most;
	const bool soap = step->optimizer == TSR_OPTIMIZER_SOAP;
	const uint64_t arrays = (soap ? 6 : 5) * step->rows * step->columns +
				(soap ? bases : 2 * least * least);

	return arrays ? (size_t)arrays + TSR_MUON_PANEL : 0;
}

/* At most 2^37: two groups of 2^16 and the 32 elements of a bit-packed plane. */
uint64_t tsr_step_align(const struct tsr_step *step)
{
	uint64_t align = 1;

	if (step->rows)
		return step->rows * step->columns;
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		if (step->coding[p].codec)
			align = tsr_common_multiple(align, tsr_coding_align(&step->coding[p]));
	}
	return align;
}
