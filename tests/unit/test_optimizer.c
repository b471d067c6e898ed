/* SPDX-License-Identifier: Apache-2.0 */
/* Names, defaults and checks of hyperparameters, and the scalars that steps are made of. */
#include <math.h>

#include "step/combinations.h"
#include "step/cuda_power.h"
#include "step/hyperparameters.h"
#include "step/step.h"
#include "unit.h"

static void test_names(void **state)
{
	static const char *const names[] = { "sgd",   "sgdw", "adam",	    "adamw", "lion",
					     "gefen", "muon", "gefen-muon", "soap" };
	enum tsr_optimizer found = TSR_OPTIMIZER_COUNT;

	(void)state;
	assert_int_equal(COUNT_OF(names), TSR_OPTIMIZER_COUNT);
	for (unsigned i = 0; i < TSR_OPTIMIZER_COUNT; i++) {
		assert_string_equal(tsr_optimizer_name((enum tsr_optimizer)i), names[i]);
		assert_true(tsr_optimizer_find(names[i], &found));
		assert_int_equal(found, i);
	}
	assert_false(tsr_optimizer_find("adagrad", &found));
	assert_false(tsr_optimizer_find("", &found));
	assert_string_equal(tsr_hyper_name(TSR_HYPER_LR), "lr");
	assert_string_equal(tsr_hyper_name(TSR_HYPER_DECOUPLE_LR), "decouple_lr");
}

static struct tsr_hyper hyper(enum tsr_optimizer optimizer, double lr)
{
	struct tsr_hyper h = { 0 };

	tsr_hyper_put(&h, TSR_HYPER_LR, lr);
	tsr_hyper_defaults(&h, optimizer);
	return h;
}

static void test_defaults(void **state)
{
	struct tsr_hyper h = hyper(TSR_OPTIMIZER_ADAMW, 1e-3), given = { 0 };

	(void)state;
	assert_true(h.value[TSR_HYPER_BETA1] == 0.9 && h.value[TSR_HYPER_BETA2] == 0.999);
	assert_true(h.value[TSR_HYPER_EPS] == 1e-8 && h.value[TSR_HYPER_WEIGHT_DECAY] == 0.01);
	assert_true(h.value[TSR_HYPER_INITIAL_LR] == 1e-3);
	assert_true(hyper(TSR_OPTIMIZER_ADAM, 1).value[TSR_HYPER_WEIGHT_DECAY] == 0);
	assert_true(hyper(TSR_OPTIMIZER_LION, 1).value[TSR_HYPER_BETA2] == 0.99);
	assert_true(hyper(TSR_OPTIMIZER_SGD, 1).value[TSR_HYPER_MOMENTUM] == 0);
	tsr_hyper_put(&given, TSR_HYPER_BETA2, 0.95);
	tsr_hyper_override(&h, &given);
	assert_true(h.value[TSR_HYPER_BETA2] == 0.95 && h.value[TSR_HYPER_BETA1] == 0.9);
	tsr_hyper_defaults(&given, TSR_OPTIMIZER_ADAMW);
	assert_true(given.value[TSR_HYPER_BETA2] == 0.95);
	assert_false(tsr_hyper_is_set(&given, TSR_HYPER_LR));
	assert_false(tsr_hyper_is_set(&given, TSR_HYPER_INITIAL_LR));
}

static void test_kinds(void **state)
{
	struct tsr_hyper h = hyper(TSR_OPTIMIZER_SGD, 1);

	(void)state;
	assert_int_equal(tsr_optimizer_slots(TSR_OPTIMIZER_SGD, &h), 0);
	assert_int_equal(tsr_optimizer_slots(TSR_OPTIMIZER_LION, &h), 1u << TSR_SLOT_MOMENTUM);
	assert_int_equal(tsr_optimizer_slots(TSR_OPTIMIZER_ADAM, &h),
			 1u << TSR_SLOT_MOMENTUM | 1u << TSR_SLOT_VARIANCE);
	tsr_hyper_put(&h, TSR_HYPER_MOMENTUM, 0.5);
	assert_int_equal(tsr_optimizer_slots(TSR_OPTIMIZER_SGD, &h), 1u << TSR_SLOT_MOMENTUM);
	assert_int_equal(tsr_optimizer_slots(TSR_OPTIMIZER_SGDW, &h), 1u << TSR_SLOT_MOMENTUM);
}

static void test_checks(void **state)
{
	static const struct {
		enum tsr_optimizer optimizer;
		enum tsr_hyper_name name;
		double value;
		const char *message; /* NULL: accepted */
	} cases[] = {
		{ TSR_OPTIMIZER_SGD, TSR_HYPER_LR, 0, NULL },
		{ TSR_OPTIMIZER_SGD, TSR_HYPER_LR, -1,
		  "HERE: lr: found -1, expected a number from 0 on" },
		{ TSR_OPTIMIZER_SGD, TSR_HYPER_LR, INFINITY,
		  "HERE: lr: found inf, expected a number from 0 on" },
		{ TSR_OPTIMIZER_LION, TSR_HYPER_LR, 1e39,
		  "HERE: lr: found 1e+39, expected a number from 0 on" },
		{ TSR_OPTIMIZER_ADAM, TSR_HYPER_BETA1, 0, NULL },
		{ TSR_OPTIMIZER_ADAM, TSR_HYPER_BETA1, 1,
		  "HERE: beta1: found 1, expected a number from 0 to below 1" },
		{ TSR_OPTIMIZER_LION, TSR_HYPER_BETA2, -0.1,
		  "HERE: beta2: found -0.1, expected a number from 0 to below 1" },
		{ TSR_OPTIMIZER_SGD, TSR_HYPER_BETA2, 7, NULL }, /* not used */
		{ TSR_OPTIMIZER_ADAMW, TSR_HYPER_EPS, -1e-8,
		  "HERE: eps: found -1e-08, expected a number from 0 on" },
		{ TSR_OPTIMIZER_ADAMW, TSR_HYPER_WEIGHT_DECAY, -1,
		  "HERE: weight_decay: found -1, expected a number from 0 on" },
		{ TSR_OPTIMIZER_SGD, TSR_HYPER_MOMENTUM, -0.5,
		  "HERE: momentum: found -0.5, expected a number from 0 on" },
		{ TSR_OPTIMIZER_SGD, TSR_HYPER_DAMPENING, -0.5, NULL },
		{ TSR_OPTIMIZER_SGD, TSR_HYPER_DAMPENING, (double)NAN,
		  "HERE: dampening: found nan, expected a number" },
		{ TSR_OPTIMIZER_SGD, TSR_HYPER_NESTEROV, 0.5,
		  "HERE: nesterov: found 0.5, expected 0 or 1" },
		{ TSR_OPTIMIZER_SGDW, TSR_HYPER_NESTEROV, 1,
		  "HERE: nesterov: found momentum 0 and dampening 0, expected momentum and no "
		  "dampening" },
		{ TSR_OPTIMIZER_LION, TSR_HYPER_DECOUPLE_LR, 1, NULL },
		{ TSR_OPTIMIZER_LION, TSR_HYPER_DECOUPLE_LR, 2,
		  "HERE: decouple_lr: found 2, expected 0 or 1" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct tsr_hyper h = hyper(cases[i].optimizer, 1e-3);
		struct tsr_err err = { 0 };
		enum tsr_status status;

		tsr_hyper_put(&h, cases[i].name, cases[i].value);
		status = tsr_hyper_check(&h, cases[i].optimizer, "HERE", &err);
		assert_int_equal(status, cases[i].message ? TSR_E_UNSUPPORTED : TSR_OK);
		if (cases[i].message)
			assert_string_equal(err.msg, cases[i].message);
	}
}

static void test_missing_lr(void **state)
{
	struct tsr_hyper h = { 0 };
	struct tsr_err err = { 0 };

	(void)state;
	tsr_hyper_defaults(&h, TSR_OPTIMIZER_ADAMW);
	assert_int_equal(tsr_hyper_check(&h, TSR_OPTIMIZER_ADAMW, "step 3", &err),
			 TSR_E_UNSUPPORTED);
	assert_string_equal(err.msg, "step 3: lr: found none, expected a number from 0 on");
}

static void test_decouple_lr(void **state)
{
	struct tsr_hyper h = hyper(TSR_OPTIMIZER_ADAMW, 1e-3);
	struct tsr_err err = { 0 };

	(void)state;
	tsr_hyper_put(&h, TSR_HYPER_WEIGHT_DECAY, 1e-5);
	assert_true(tsr_step_scalars(TSR_ORDER_TORCH_CPU, TSR_OPTIMIZER_ADAMW, &h, 1, false).keep ==
		    (float)(1 - 1e-3 * 1e-5));
	tsr_hyper_put(&h, TSR_HYPER_DECOUPLE_LR, 1);
	assert_true(tsr_step_scalars(TSR_ORDER_TORCH_CPU, TSR_OPTIMIZER_ADAMW, &h, 1, false).keep ==
		    (float)(1 - 1e-5));
	tsr_hyper_put(&h, TSR_HYPER_LR, 2.5e-4);
	assert_true(tsr_step_scalars(TSR_ORDER_TORCH_CPU, TSR_OPTIMIZER_LION, &h, 1, false).keep ==
		    (float)(1 - 0.25e-5));
	tsr_hyper_put(&h, TSR_HYPER_INITIAL_LR, 0);
	assert_int_equal(tsr_hyper_check(&h, TSR_OPTIMIZER_ADAMW, "HERE", &err), TSR_E_UNSUPPORTED);
	assert_string_equal(err.msg, "HERE: initial_lr: found 0, expected a number above 0");
	tsr_hyper_put(&h, TSR_HYPER_INITIAL_LR, 1e-300);
	assert_int_equal(tsr_hyper_check(&h, TSR_OPTIMIZER_ADAMW, "HERE", &err), TSR_E_UNSUPPORTED);
	assert_string_equal(err.msg, "HERE: initial_lr: found 1e-300, of which the lr 0.00025 is "
				     "too large a multiple");
}

/* --- Scalars ----------------------------------------------------------------------------------- */

/*
 * Bias corrections as Python computes them: 1 - beta**t in binary64, then rounded.  Here the power
 * has 64 bits; what it rounds to in binary64 can differ from pow() by one place, which is seldom
 * seen in FP32.
 */
static void test_bias_corrections(void **state)
{
	static const double betas[] = {
		0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 0.999999, 0.5, 0.1, 0
	};
	const double lr = 3e-4;

	(void)state;
	for (size_t b = 0; b < COUNT_OF(betas); b++) {
		struct tsr_hyper h = hyper(TSR_OPTIMIZER_ADAM, lr);

		tsr_hyper_put(&h, TSR_HYPER_BETA1, betas[b]);
		tsr_hyper_put(&h, TSR_HYPER_BETA2, betas[b]);
		for (uint64_t t = 1; t < 3000000; t += t < 20000 ? 1 : t / 997) {
			const double correction = 1 - (double)powl((long double)betas[b],
								   (long double)t);
			const struct tsr_step_scalars s = tsr_step_scalars(
				TSR_ORDER_TORCH_CPU, TSR_OPTIMIZER_ADAM, &h, t, false);

			if (bits_of(s.rate) != bits_of((float)-(lr / correction)) ||
			    bits_of(s.root_correction2) != bits_of((float)sqrt(correction)))
				fail_msg("beta %g, step %llu", betas[b], (unsigned long long)t);
		}
	}
}

/* How many of the first 20,000 corrections CUDA's powers change: counted on an H200. */
static void test_cuda_powers(void **state)
{
	static const struct {
		float beta;
		unsigned n;
	} cases[] = { { 0.9f, 0 }, { 0.95f, 1 }, { 0.98f, 4 }, { 0.99f, 4 }, { 0.999f, 76 } };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		unsigned n = 0;

		for (unsigned t = 1; t <= 20000; t++) {
			const float nearest = (float)powl((long double)cases[i].beta, t);
			const float power = tsr_cuda_power(cases[i].beta, t);

			assert_true(fabsf(power - nearest) <= 2 * 0x1p-23f * nearest + 0x1p-126f);
			n += 1 - power != 1 - nearest;
		}
		assert_int_equal(n, cases[i].n);
	}
	assert_int_equal(bits_of(tsr_cuda_power(0.95f, 6)),
			 bits_of((float)powl((long double)0.95f, 6)) - 1);
	assert_true(tsr_cuda_power(0, 1) == 0 && tsr_cuda_power(0x1p-130f, 1) == 0);
	assert_true(tsr_cuda_power(0.5f, 126) == 0x1p-126f && tsr_cuda_power(0.5f, 127) == 0);
}

/* The powers themselves, by Python's decimal arithmetic with 60 digits. */
static void test_powers(void **state)
{
	static const struct {
		double beta;
		uint64_t t;
		double power;
	} cases[] = {
		{ 0.9, 1, 0x1.ccccccccccccdp-1 },
		{ 0.9, 2, 0x1.9eb851eb851ecp-1 },
		{ 0.9, 3, 0x1.753f7ced91688p-1 },
		{ 0.9, 10, 0x1.650bf60432fd9p-2 },
		{ 0.9, 401, 0x1.086ee6691ef39p-61 },
		{ 0.9, 1000, 0x1.fee7413dac341p-153 },
		{ 0.9, 65537, 0x0.0p+0 },
		{ 0.9, 1000000, 0x0.0p+0 },
		{ 0.95, 1, 0x1.e666666666666p-1 },
		{ 0.95, 2, 0x1.ce147ae147ae1p-1 },
		{ 0.95, 3, 0x1.b6f9db22d0e55p-1 },
		{ 0.95, 10, 0x1.328da5e9df383p-1 },
		{ 0.95, 401, 0x1.40da43a97a7edp-30 },
		{ 0.95, 1000, 0x1.ffcb2f699313dp-75 },
		{ 0.95, 65537, 0x0.0p+0 },
		{ 0.95, 1000000, 0x0.0p+0 },
		{ 0.999, 1, 0x1.ff7ced916872bp-1 },
		{ 0.999, 2, 0x1.fef9fcb0c026dp-1 },
		{ 0.999, 3, 0x1.fe772d5570166p-1 },
		{ 0.999, 10, 0x1.fae7299c256e3p-1 },
		{ 0.999, 401, 0x1.56cac3b3fb280p-1 },
		{ 0.999, 1000, 0x1.788526411ed72p-2 },
		{ 0.999, 65537, 0x1.527294ef159c3p-95 },
		{ 0.999, 1000000, 0x0.0p+0 },
		{ 0.9999, 1, 0x1.fff2e48e8a71ep-1 },
		{ 0.9999, 2, 0x1.ffe5c972fb1f5p-1 },
		{ 0.9999, 3, 0x1.ffd8aead4fd54p-1 },
		{ 0.9999, 10, 0x1.ff7cfca9d913ap-1 },
		{ 0.9999, 401, 0x1.ebdfbf8d7d236p-1 },
		{ 0.9999, 1000, 0x1.cf4641cc5bac3p-1 },
		{ 0.9999, 65537, 0x1.7563a8628ec17p-10 },
		{ 0.9999, 1000000, 0x1.a6a392e3503ecp-145 },
		{ 0.999999, 1, 0x1.ffffde7210be9p-1 },
		{ 0.999999, 2, 0x1.ffffbce423b01p-1 },
		{ 0.999999, 3, 0x1.ffff9b5638d49p-1 },
		{ 0.999999, 10, 0x1.fffeb0750a665p-1 },
		{ 0.999999, 401, 0x1.ffcb735d0cb5bp-1 },
		{ 0.999999, 1000, 0x1.ff7cfe52a72fep-1 },
		{ 0.999999, 65537, 0x1.df855d37745cdp-1 },
		{ 0.999999, 1000000, 0x1.78b5570a90a47p-2 },
		{ 0.25, 1, 0x1.0000000000000p-2 },
		{ 0.25, 2, 0x1.0000000000000p-4 },
		{ 0.25, 3, 0x1.0000000000000p-6 },
		{ 0.25, 10, 0x1.0000000000000p-20 },
		{ 0.25, 401, 0x1.0000000000000p-802 },
		{ 0.25, 1000, 0x0.0p+0 },
		{ 0.25, 65537, 0x0.0p+0 },
		{ 0.25, 1000000, 0x0.0p+0 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct tsr_hyper h = hyper(TSR_OPTIMIZER_ADAM, 1);

		tsr_hyper_put(&h, TSR_HYPER_BETA1, cases[i].beta);
		tsr_hyper_put(&h, TSR_HYPER_BETA2, cases[i].beta);
		assert_true(tsr_step_scalars(TSR_ORDER_TORCH_CPU, TSR_OPTIMIZER_ADAM, &h,
					     cases[i].t, false)
				    .rate == (float)-(1 / (1 - cases[i].power)));
	}
}

static void test_lerp_starts_from_the_nearer_end(void **state)
{
	struct tsr_hyper h = hyper(TSR_OPTIMIZER_ADAMW, 1e-3);
	struct tsr_step_scalars s = tsr_step_scalars(TSR_ORDER_TORCH_CPU, TSR_OPTIMIZER_ADAMW, &h,
						     5, false);

	(void)state;
	assert_true(s.from_grad == 0 && s.blend1 == (float)(1 - 0.9));
	tsr_hyper_put(&h, TSR_HYPER_BETA1, 0.3);
	s = tsr_step_scalars(TSR_ORDER_TORCH_CPU, TSR_OPTIMIZER_ADAMW, &h, 5, false);
	assert_true(s.from_grad != 0 && s.blend1 == (float)(1 - 0.3) - 1.0f);
	tsr_hyper_put(&h, TSR_HYPER_BETA1, 0);
	s = tsr_step_scalars(TSR_ORDER_TORCH_CPU, TSR_OPTIMIZER_ADAMW, &h, 5, false);
	assert_true(s.from_grad != 0 && s.blend1 == 0);
}

static void test_align(void **state)
{
	struct tsr_step step = { 0 };

	(void)state;
	assert_int_equal(tsr_step_align(&step), 1);
	step.coding[TSR_SLOT_WEIGHT] = tsr_coding_default(tsr_codec_find("bf16+trunc8"));
	assert_int_equal(tsr_step_align(&step), 32);
	step.coding[TSR_SLOT_MOMENTUM] = tsr_coding_default(tsr_codec_find("softsign8"));
	step.coding[TSR_SLOT_MOMENTUM].group = 48;
	assert_int_equal(tsr_step_align(&step), 96);
	step.coding[TSR_SLOT_VARIANCE] = tsr_coding_default(tsr_codec_find("sqrt8"));
	step.coding[TSR_SLOT_VARIANCE].group = 65521;
	assert_int_equal(tsr_step_align(&step), 96 * 65521);
}

/* --- Which codecs go together ------------------------------------------------------------------ */

/* What the documents say, in other words than the table. */
static bool goes(enum tsr_optimizer o, enum tsr_order order, const char *momentum,
		 const char *variance)
{
	const bool ratios = strncmp(momentum, "ratio", 5) == 0;

	if (ratios && (o == TSR_OPTIMIZER_GEFEN || order == TSR_ORDER_GEFEN))
		return false;
	if (o == TSR_OPTIMIZER_SOAP)
		return !ratios && strcmp(variance, "blockmean") != 0;
	if (strcmp(variance, "blockmean") != 0)
		return true;
	return !ratios && o != TSR_OPTIMIZER_ADAM &&
	       (order == TSR_ORDER_TORCH_CPU || order == TSR_ORDER_GEFEN);
}

static void check_pair(const struct tsr_codec *momentum, const struct tsr_codec *variance)
{
	for (unsigned o = TSR_OPTIMIZER_SGD; o < TSR_OPTIMIZER_COUNT; o++) {
		for (unsigned order = 0; order < TSR_ORDER_COUNT; order++) {
			const char *why = tsr_step_refusal(
				(enum tsr_optimizer)o, (enum tsr_order)order, momentum, variance);

			assert_int_equal(!why, goes((enum tsr_optimizer)o, (enum tsr_order)order,
						    momentum->name, variance->name));
		}
	}
}

static void test_pairs(void **state)
{
	const struct tsr_codec *codecs[200];
	unsigned n = 0, npairs = 0;

	(void)state;
	codecs[n++] = tsr_codec_find("gefen8");
	codecs[n++] = tsr_codec_find("blockmean");
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++)
		codecs[n++] = *c;
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < n; k++) {
			if (!(codecs[i]->kinds & TSR_KIND_MOMENTUM) ||
			    !(codecs[k]->kinds & TSR_KIND_VARIANCE))
				continue;
			check_pair(codecs[i], codecs[k]);
			npairs++;
		}
	}
	assert_true(npairs >= 100);
	assert_null(tsr_step_refusal(TSR_OPTIMIZER_LION, TSR_ORDER_TORCH_CPU, codecs[0], NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_checks),
		cmocka_unit_test(test_missing_lr),
		cmocka_unit_test(test_decouple_lr),
		cmocka_unit_test(test_bias_corrections),
		cmocka_unit_test(test_powers),
		cmocka_unit_test(test_cuda_powers),
		cmocka_unit_test(test_lerp_starts_from_the_nearer_end),
		cmocka_unit_test(test_align),
	};

	return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
