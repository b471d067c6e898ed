/* SPDX-License-Identifier: Apache-2.0 */
/* What optimizers and their hyperparameters are called, default to and may be. */
#include "step/hyperparameters.h"

#include <float.h>
#include <math.h>

#include "base/fail.h"
#include "text/bytes.h"

#define BIT(name) (1u << TSR_HYPER_##name)

#define SGD_USES \
	(BIT(LR) | BIT(WEIGHT_DECAY) | BIT(MOMENTUM) | BIT(DAMPENING) | BIT(NESTEROV) | \
	 BIT(MAXIMIZE))
/* Not set is off. */
#define SWITCHES (BIT(MAXIMIZE) | BIT(AMSGRAD) | BIT(TENSOR_LR))
#define GEFEN_USES (BIT(LR) | BIT(BETA1) | BIT(BETA2) | BIT(EPS) | BIT(WEIGHT_DECAY))
#define ADAM_USES (GEFEN_USES | SWITCHES)
#define LION_USES (BIT(LR) | BIT(BETA1) | BIT(BETA2) | BIT(WEIGHT_DECAY))
#define MUON_USES \
	(BIT(LR) | BIT(WEIGHT_DECAY) | BIT(MOMENTUM) | BIT(NESTEROV) | BIT(EPS) | BIT(MATCH_RMS))
#define SOAP_USES \
	(GEFEN_USES | BIT(SHAMPOO_BETA) | BIT(PRECONDITION_FREQUENCY) | BIT(MAX_PRECOND_DIM) | \
	 BIT(NORMALIZE_GRADS) | BIT(CORRECT_BIAS))
#define DECOUPLED_USES (BIT(INITIAL_LR) | BIT(DECOUPLE_LR))

/* Defaults are PyTorch's; Lion's those of its paper, Gefen's and SOAP's of their programs; SGDW's SGD's. */
static const struct {
	const char *name;
	unsigned uses; /* mask of hyperparameters */
	double beta2, weight_decay;
	double momentum, nesterov;
	double eps; /* 0: 1e-8 */
	double beta1; /* 0: 0.9 */
} optimizers[TSR_OPTIMIZER_COUNT] = {
	[TSR_OPTIMIZER_SGD] = { "sgd", SGD_USES, 0, 0, 0, 0, 0, 0 },
	[TSR_OPTIMIZER_SGDW] = { "sgdw", SGD_USES | DECOUPLED_USES, 0, 0, 0, 0, 0, 0 },
	[TSR_OPTIMIZER_ADAM] = { "adam", ADAM_USES, 0.999, 0, 0, 0, 0, 0 },
	[TSR_OPTIMIZER_ADAMW] = { "adamw", ADAM_USES | DECOUPLED_USES, 0.999, 0.01, 0, 0, 0, 0 },
	[TSR_OPTIMIZER_LION] = { "lion", LION_USES | DECOUPLED_USES, 0.99, 0, 0, 0, 0, 0 },
	[TSR_OPTIMIZER_GEFEN] = { "gefen", GEFEN_USES | DECOUPLED_USES, 0.999, 0, 0, 0, 0, 0 },
	[TSR_OPTIMIZER_MUON] = { "muon", MUON_USES, 0, 0.1, 0.95, 1, 1e-7, 0 },
	[TSR_OPTIMIZER_GEFEN_MUON] = { "gefen-muon", MUON_USES, 0, 0.1, 0.95, 1, 1e-7, 0 },
	[TSR_OPTIMIZER_SOAP] = { "soap", SOAP_USES, 0.95, 0.01, 0, 0, 0, 0.95 },
};

const char *tsr_optimizer_name(enum tsr_optimizer optimizer)
{
	return optimizers[optimizer].name;
}

bool tsr_optimizer_find(const char *name, enum tsr_optimizer *optimizer_ret)
{
	return TSR_FIND_NAME(name, optimizers, optimizer_ret);
}

/* --- Orders of operations -------------------------------------------------------------------- */

#define TORCH_CPU ((1u << TSR_OPTIMIZER_COUNT) - 1)
#define TORCH (1u << TSR_OPTIMIZER_SGD | ADAMS)
#define FLASHOPTIM \
	(1u << TSR_OPTIMIZER_SGD | 1u << TSR_OPTIMIZER_SGDW | ADAMS | 1u << TSR_OPTIMIZER_LION)
#define ADAMS (1u << TSR_OPTIMIZER_ADAM | 1u << TSR_OPTIMIZER_ADAMW)

#define GEFEN \
	(1u << TSR_OPTIMIZER_ADAMW | 1u << TSR_OPTIMIZER_GEFEN | 1u << TSR_OPTIMIZER_GEFEN_MUON)

static const struct {
	const char *name;
	unsigned optimizers; /* mask */
	bool torch; /* PyTorch's own, which has AMSGrad */
} orders[TSR_ORDER_COUNT] = {
	[TSR_ORDER_TORCH_CPU] = { "torch-cpu", TORCH_CPU, true },
	[TSR_ORDER_FLASHOPTIM] = { "flashoptim", FLASHOPTIM, false },
	[TSR_ORDER_COAT] = { "coat", 1u << TSR_OPTIMIZER_ADAMW, false },
	[TSR_ORDER_BITSANDBYTES] = { "bitsandbytes", ADAMS, false },
	[TSR_ORDER_GEFEN] = { "gefen", GEFEN, false },
	[TSR_ORDER_TORCH_CPU_FUSED] = { "torch-cpu-fused", TORCH, true },
	[TSR_ORDER_TORCH_CUDA_FOREACH] = { "torch-cuda-foreach", TORCH, true },
	[TSR_ORDER_TORCH_CUDA_FORLOOP] = { "torch-cuda-forloop", TORCH, true },
	[TSR_ORDER_TORCH_CUDA_CAPTURABLE] = { "torch-cuda-capturable", ADAMS, true },
	[TSR_ORDER_TORCH_CUDA_CAPTURABLE_FORLOOP] = { "torch-cuda-capturable-forloop", ADAMS,
						      true },
	[TSR_ORDER_TORCH_CUDA_FUSED] = { "torch-cuda-fused", TORCH, true },
	[TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE] = { "torch-cuda-fused-double", TORCH, true },
	[TSR_ORDER_PYTORCH_OPTIMIZER] = { "pytorch-optimizer", 1u << TSR_OPTIMIZER_SOAP, false },
};

const char *tsr_order_name(enum tsr_order order)
{
	return orders[order].name;
}

bool tsr_order_find(const char *name, enum tsr_order *order_ret)
{
	if (strcmp(name, "pytorch") == 0)
		name = orders[TSR_ORDER_TORCH_CPU].name;
	return TSR_FIND_NAME(name, orders, order_ret);
}

bool tsr_order_is_torch(enum tsr_order order)
{
	return orders[order].torch;
}

bool tsr_order_has(enum tsr_order order, enum tsr_optimizer optimizer)
{
	return optimizer < TSR_OPTIMIZER_COUNT && orders[order].optimizers >> optimizer & 1;
}

/* --- Hyperparameters ------------------------------------------------------------------------- */

enum range { NOT_NEGATIVE, POSITIVE, BELOW_ONE, ANY, YES_OR_NO, COUNT };

static const char *const range_text[] = {
	[NOT_NEGATIVE] = "a number from 0 on",
	[POSITIVE] = "a number above 0",
	[BELOW_ONE] = "a number from 0 to below 1",
	[ANY] = "a number",
	[YES_OR_NO] = "0 or 1",
	[COUNT] = "a whole number from 1 to 2^31",
};

static const struct {
	const char *name;
	enum range range;
} hypers[TSR_HYPER_COUNT] = {
	[TSR_HYPER_LR] = { "lr", NOT_NEGATIVE },
	[TSR_HYPER_INITIAL_LR] = { "initial_lr", NOT_NEGATIVE },
	[TSR_HYPER_BETA1] = { "beta1", BELOW_ONE },
	[TSR_HYPER_BETA2] = { "beta2", BELOW_ONE },
	[TSR_HYPER_EPS] = { "eps", NOT_NEGATIVE },
	[TSR_HYPER_WEIGHT_DECAY] = { "weight_decay", NOT_NEGATIVE },
	[TSR_HYPER_MOMENTUM] = { "momentum", NOT_NEGATIVE },
	[TSR_HYPER_DAMPENING] = { "dampening", ANY },
	[TSR_HYPER_NESTEROV] = { "nesterov", YES_OR_NO },
	[TSR_HYPER_DECOUPLE_LR] = { "decouple_lr", YES_OR_NO },
	[TSR_HYPER_MATCH_RMS] = { "match_rms", YES_OR_NO },
	[TSR_HYPER_MAXIMIZE] = { "maximize", YES_OR_NO },
	[TSR_HYPER_AMSGRAD] = { "amsgrad", YES_OR_NO },
	[TSR_HYPER_TENSOR_LR] = { "tensor_lr", YES_OR_NO },
	[TSR_HYPER_SHAMPOO_BETA] = { "shampoo_beta", BELOW_ONE },
	[TSR_HYPER_PRECONDITION_FREQUENCY] = { "precondition_frequency", COUNT },
	[TSR_HYPER_MAX_PRECOND_DIM] = { "max_precond_dim", COUNT },
	[TSR_HYPER_NORMALIZE_GRADS] = { "normalize_grads", YES_OR_NO },
	[TSR_HYPER_CORRECT_BIAS] = { "correct_bias", YES_OR_NO },
};

const char *tsr_hyper_name(enum tsr_hyper_name name)
{
	return hypers[name].name;
}

bool tsr_hyper_find(const char *name, enum tsr_hyper_name *ret)
{
	return TSR_FIND_NAME(name, hypers, ret);
}

bool tsr_hyper_is_flag(enum tsr_hyper_name name)
{
	return hypers[name].range == YES_OR_NO;
}

bool tsr_hyper_is_set(const struct tsr_hyper *h, enum tsr_hyper_name name)
{
	return h->set >> name & 1;
}

bool tsr_hyper_is_switch(enum tsr_hyper_name name)
{
	return SWITCHES >> name & 1;
}

bool tsr_hyper_is_on(const struct tsr_hyper *h, enum tsr_hyper_name name)
{
	return tsr_hyper_is_set(h, name) && h->value[name] != 0;
}

void tsr_hyper_put(struct tsr_hyper *h, enum tsr_hyper_name name, double value)
{
	h->value[name] = value;
	h->set |= 1u << name;
}

void tsr_hyper_override(struct tsr_hyper *h, const struct tsr_hyper *from)
{
	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
		if (tsr_hyper_is_set(from, (enum tsr_hyper_name)i))
			tsr_hyper_put(h, (enum tsr_hyper_name)i, from->value[i]);
	}
}

static void put_default(struct tsr_hyper *h, enum tsr_hyper_name name, double value)
{
	if (!tsr_hyper_is_set(h, name))
		tsr_hyper_put(h, name, value);
}

void tsr_hyper_defaults(struct tsr_hyper *h, enum tsr_optimizer optimizer)
{
	if (tsr_hyper_is_set(h, TSR_HYPER_LR))
		put_default(h, TSR_HYPER_INITIAL_LR, h->value[TSR_HYPER_LR]);
	put_default(h, TSR_HYPER_BETA1,
		    optimizers[optimizer].beta1 != 0 ? optimizers[optimizer].beta1 : 0.9);
	put_default(h, TSR_HYPER_BETA2, optimizers[optimizer].beta2);
	put_default(h, TSR_HYPER_EPS,
		    optimizers[optimizer].eps != 0 ? optimizers[optimizer].eps : 1e-8);
	put_default(h, TSR_HYPER_WEIGHT_DECAY, optimizers[optimizer].weight_decay);
	put_default(h, TSR_HYPER_MOMENTUM, optimizers[optimizer].momentum);
	put_default(h, TSR_HYPER_DAMPENING, 0);
	put_default(h, TSR_HYPER_NESTEROV, optimizers[optimizer].nesterov);
	put_default(h, TSR_HYPER_DECOUPLE_LR, 0);
	put_default(h, TSR_HYPER_MATCH_RMS, 0);
	if (optimizer != TSR_OPTIMIZER_SOAP)
		return;
	put_default(h, TSR_HYPER_SHAMPOO_BETA, h->value[TSR_HYPER_BETA2]);
	put_default(h, TSR_HYPER_PRECONDITION_FREQUENCY, 10);
	put_default(h, TSR_HYPER_MAX_PRECOND_DIM, 10000);
	put_default(h, TSR_HYPER_NORMALIZE_GRADS, 0);
	put_default(h, TSR_HYPER_CORRECT_BIAS, 1);
}

/* Outside every range: NaN, and what becomes infinite as a float. */
static bool in_range(enum range range, double x)
{
	if (!(fabs(x) <= FLT_MAX))
		return false;
	switch (range) {
	case NOT_NEGATIVE:
		return x >= 0;
	case POSITIVE:
		return x > 0;
	case BELOW_ONE:
		return x >= 0 && x < 1;
	case ANY:
		return true;
	case YES_OR_NO:
		return x == 0 || x == 1;
	case COUNT:
		return x >= 1 && x <= 0x1p31 && x == floor(x);
	}
	return false;
}

static enum tsr_status check_one(const struct tsr_hyper *h, enum tsr_hyper_name name,
				 enum range range, const char *where, struct tsr_err *err)
{
	if (!tsr_hyper_is_set(h, name))
		return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: %s: found none, expected %s", where,
				hypers[name].name, range_text[range]);
	if (!in_range(range, h->value[name]))
		return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: %s: found %g, expected %s", where,
				hypers[name].name, h->value[name], range_text[range]);
	return TSR_OK;
}

/* PyTorch refuses it, too: the two disagree on what comes first. */
static enum tsr_status check_nesterov(const struct tsr_hyper *h, const char *where,
				      struct tsr_err *err)
{
	const double momentum = h->value[TSR_HYPER_MOMENTUM];
	const double dampening = h->value[TSR_HYPER_DAMPENING];

	if (h->value[TSR_HYPER_NESTEROV] != 0 && (momentum == 0 || dampening != 0))
		return tsr_fail(
			err, TSR_E_UNSUPPORTED,
			"%s: nesterov: found momentum %g and dampening %g, expected momentum "
			"and no dampening",
			where, momentum, dampening);
	return TSR_OK;
}

/* The lr is divided by the first one, which then must not be 0, nor so small that decay has no bound. */
static enum tsr_status check_decouple_lr(const struct tsr_hyper *h, const char *where,
					 struct tsr_err *err)
{
	double ratio;

	if (h->value[TSR_HYPER_DECOUPLE_LR] == 0)
		return TSR_OK;
	TSR_TRY(check_one(h, TSR_HYPER_INITIAL_LR, POSITIVE, where, err));
	ratio = h->value[TSR_HYPER_LR] / h->value[TSR_HYPER_INITIAL_LR];
	if (!in_range(NOT_NEGATIVE, h->value[TSR_HYPER_WEIGHT_DECAY] * ratio))
		return tsr_fail(
			err, TSR_E_UNSUPPORTED,
			"%s: initial_lr: found %g, of which the lr %g is too large a multiple",
			where, h->value[TSR_HYPER_INITIAL_LR], h->value[TSR_HYPER_LR]);
	return TSR_OK;
}

enum tsr_status tsr_hyper_check(const struct tsr_hyper *h, enum tsr_optimizer optimizer,
				const char *where, struct tsr_err *err)
{
	const unsigned uses = optimizers[optimizer].uses;

	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
		const bool optional = SWITCHES >> i & 1 &&
				      !tsr_hyper_is_set(h, (enum tsr_hyper_name)i);

		if (uses >> i & 1 && i != TSR_HYPER_INITIAL_LR && !optional)
			TSR_TRY(check_one(h, (enum tsr_hyper_name)i, hypers[i].range, where, err));
	}
	if (uses & BIT(DAMPENING))
		TSR_TRY(check_nesterov(h, where, err));
	return uses & BIT(DECOUPLE_LR) ? check_decouple_lr(h, where, err) : TSR_OK;
}

bool tsr_optimizer_is_muon(enum tsr_optimizer optimizer)
{
	return optimizer == TSR_OPTIMIZER_MUON || optimizer == TSR_OPTIMIZER_GEFEN_MUON;
}

bool tsr_optimizer_takes_matrices(enum tsr_optimizer optimizer)
{
	return tsr_optimizer_is_muon(optimizer) || optimizer == TSR_OPTIMIZER_SOAP;
}

bool tsr_optimizer_uses(enum tsr_optimizer optimizer, enum tsr_hyper_name name)
{
	return optimizers[optimizer].uses >> name & 1;
}

unsigned tsr_optimizer_slots(enum tsr_optimizer optimizer, const struct tsr_hyper *h)
{
	const unsigned momentum = 1u << TSR_SLOT_MOMENTUM, variance = 1u << TSR_SLOT_VARIANCE;

	switch (optimizer) {
	case TSR_OPTIMIZER_SGD:
	case TSR_OPTIMIZER_SGDW:
		return h->value[TSR_HYPER_MOMENTUM] != 0 ? momentum : 0;
	case TSR_OPTIMIZER_LION:
	case TSR_OPTIMIZER_MUON:
	case TSR_OPTIMIZER_GEFEN_MUON:
		return momentum;
	case TSR_OPTIMIZER_ADAM:
	case TSR_OPTIMIZER_ADAMW:
		if (tsr_hyper_is_on(h, TSR_HYPER_AMSGRAD))
			return momentum | variance | 1u << TSR_SLOT_MAX_VARIANCE;
		return momentum | variance;
	default:
		return momentum | variance;
	}
}
