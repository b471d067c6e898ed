/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the components of names by which states and buffers are known. */
#include "names/aliases.h"

#include <string.h>

#include "text/bytes.h"

/* tersor-pack(1), KINDS BY NAME, has the same table, with the frameworks. */
static const struct tsr_alias aliases[] = {
	{ "exp_avg", TSR_ROLE_MOMENTUM, false, false }, /* torch.optim */
	{ "exp_avg_sq", TSR_ROLE_VARIANCE, false, false },
	{ "max_exp_avg_sq", TSR_ROLE_MAX_VARIANCE, false, false },
	{ "momentum_buffer", TSR_ROLE_MOMENTUM, false, false },
	{ "exp_avg_var", TSR_ROLE_VARIANCE, false, false }, /* AdaBelief */
	{ "max_exp_avg_var", TSR_ROLE_MAX_VARIANCE, false, false },
	{ "exp_avg_fast", TSR_ROLE_MOMENTUM, false, false }, /* AdEMAMix */
	{ "exp_avg_slow", TSR_ROLE_SLOW_MOMENTUM, false, false },
	{ "moment1_0", TSR_ROLE_MOMENTUM, false, false }, /* Paddle */
	{ "moment2_0", TSR_ROLE_VARIANCE, false, false },
	{ "beta1_pow_acc_0", TSR_ROLE_SCALAR, false, false },
	{ "beta2_pow_acc_0", TSR_ROLE_SCALAR, false, false },
	{ "fp32_param", TSR_ROLE_MASTER, false, false }, /* Megatron */
	{ "fp32_from_fp16_params", TSR_ROLE_MASTER, false, false },
	{ "master_param", TSR_ROLE_MASTER, false, false }, /* TransformerEngine */
	{ "fp32", TSR_ROLE_MASTER, true, false }, /* DeepSpeed universal */
	{ "m", TSR_ROLE_MOMENTUM, true, false }, /* MLX */
	{ "v", TSR_ROLE_VARIANCE, true, false },
	{ "mu", TSR_ROLE_MOMENTUM, true, false }, /* Optax */
	{ "nu", TSR_ROLE_VARIANCE, true, false },
	{ "state1", TSR_ROLE_MOMENTUM, true, false }, /* bitsandbytes */
	{ "state2", TSR_ROLE_VARIANCE, true, false },
	{ "m_codebook", TSR_ROLE_MOMENTUM, false, false }, /* Gefen */
	{ "vmean", TSR_ROLE_VARIANCE, false, true }, /* and Adam-mini, a mean per head or row */
	{ "step", TSR_ROLE_STEP, true, false },
	{ "sum", TSR_ROLE_STATE, true, false }, /* Adagrad */
	{ "square_avg", TSR_ROLE_STATE, true, false }, /* RMSprop, Adadelta */
	{ "grad_avg", TSR_ROLE_STATE, true, false },
	{ "acc_delta", TSR_ROLE_STATE, true, false },
	{ "exp_inf", TSR_ROLE_STATE, true, false }, /* Adamax */
	{ "prev", TSR_ROLE_STATE, true, false }, /* Rprop */
	{ "step_size", TSR_ROLE_STATE, true, false },
	{ "ax", TSR_ROLE_STATE, true, false }, /* ASGD */
	{ "z", TSR_ROLE_STATE, true, false }, /* schedule-free */
	{ "p0", TSR_ROLE_STATE, true, true }, /* Prodigy: the first weights, flat */
	{ "variance", TSR_ROLE_STATE, true, false }, /* Adafactor */
	{ "row_var", TSR_ROLE_STATE, true, true },
	{ "col_var", TSR_ROLE_STATE, true, true },
	{ "exp_avg_sq_row", TSR_ROLE_STATE, true, true },
	{ "exp_avg_sq_col", TSR_ROLE_STATE, true, true },
};

/* What HeavyBall calls them behind the name of a step, as in "update_by_adam_exp_avg_0". */
static const struct tsr_alias stepped[] = {
	{ .component = "exp_avg", .role = TSR_ROLE_MOMENTUM, .weak = true },
	{ .component = "momentum", .role = TSR_ROLE_MOMENTUM, .weak = true },
	{ .component = "exp_avg_fast", .role = TSR_ROLE_MOMENTUM, .weak = true },
	{ .component = "exp_avg_slow", .role = TSR_ROLE_SLOW_MOMENTUM, .weak = true },
	{ .component = "exp_avg_sq", .role = TSR_ROLE_VARIANCE, .weak = true },
};

/* Batch normalization, rotary embeddings, the mask of GPT-2, scales of quantized weights. */
static const char buffers[] =
	"running_mean running_var num_batches_tracked inv_freq original_inv_freq cos_cached "
	"sin_cached masked_bias weight_scale weight_scale_inv input_scale k_scale v_scale";

const char *tsr_names_last(const char *name)
{
	const char *last = name + strlen(name);

	while (last > name && last[-1] != '.' && last[-1] != '/')
		last--;
	return last;
}

const struct tsr_alias *tsr_alias_find(const char *component, size_t len)
{
	for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++) {
		if (strlen(aliases[i].component) == len &&
		    memcmp(aliases[i].component, component, len) == 0)
			return &aliases[i];
	}
	return NULL;
}

const struct tsr_alias *tsr_alias_find_stepped(const char *name, const char *last, size_t *step_ret)
{
	size_t len = strlen(last);

	while (len && last[len - 1] >= '0' && last[len - 1] <= '9')
		len--;
	if (last < name + 4 || memcmp(last - 3, ".0.", 3) != 0 || !last[len] || len < 2 ||
	    last[--len] != '_')
		return NULL;
	for (size_t i = 0; i < sizeof(stepped) / sizeof(*stepped); i++) {
		const size_t n = strlen(stepped[i].component);

		if (len > n && last[len - n - 1] == '_' &&
		    memcmp(last + len - n, stepped[i].component, n) == 0) {
			*step_ret = len - n;
			return &stepped[i];
		}
	}
	return NULL;
}

bool tsr_alias_is_buffer(const char *name)
{
	const char *dot = strrchr(name, '.');

	return tsr_is_word(buffers, dot ? dot + 1 : name);
}

bool tsr_alias_is_around_mean(const char *name)
{
	const char *last = tsr_names_last(name);

	/* Of a whole name if the state comes before the weight in it. */
	return strstr(tsr_alias_find(last, strlen(last)) ? last : name, "exp_avg_var") != NULL;
}

bool tsr_alias_is_factor(const struct tsr_tensor *t)
{
	/* SOAP; pytorch_optimizer's Shampoo; the papers' code; torch's distributed Shampoo; NeMo's. */
	static const char *const names[] = { "GG", "pre_cond", "precond", "factor_matri",
					     "kronecker_factor" };
	const unsigned d = t->rank;

	if (!t->field || d < 2 || t->shape[d - 1] != t->shape[d - 2])
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strstr(t->field, names[i]))
			return true;
	}
	return false;
}
