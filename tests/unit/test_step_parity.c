/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps on FP32 state against what PyTorch 2.11 made of the same gradients on a CPU
 * (foreach=False): tests/data/tiny-gpt.  docs/replay.md says why some elements differ.
 */
#include <math.h>

#include "base/isa.h"
#include "ckpt/checkpoint_model.h"
#include "step/hyperparameters.h"
#include "step/step.h"
#include "unit.h"

#define DATA "tests/data/tiny-gpt/"
#define NSTEPS 16u
#define FIRST_STEP 401u

#define SLOTS (TSR_SLOT_VARIANCE + 1) /* none of these runs has AMSGrad */

static const char *const suffixes[SLOTS] = { "", ".exp_avg", ".exp_avg_sq" };

static struct tsr_checkpoint *open_data(const char *name)
{
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	char path[200];
	const char *const paths[] = { path };

	snprintf(path, sizeof(path), DATA "%s.safetensors", name);
	if (tsr_checkpoint_open(paths, 1, NULL, &c, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return c;
}

/* The elements of a tensor, to be freed; NULL if there is no such tensor. */
static void *read_tensor(const struct tsr_checkpoint *c, const char *name, const char *suffix,
			 enum tsr_dtype dtype, size_t *n_ret)
{
	const struct tsr_tensor *t;
	struct tsr_err err = { 0 };
	size_t nbytes;
	char full[200];
	void *x;

	snprintf(full, sizeof(full), "%s%s", name, suffix);
	t = tsr_checkpoint_find(c, full);
	if (!t)
		return NULL;
	assert_int_equal(t->dtype, dtype);
	nbytes = (size_t)tsr_tensor_nbytes(t);
	*n_ret = (size_t)t->numel;
	x = malloc(nbytes + 1);
	assert_non_null(x);
	if (tsr_array_read(c, &c->arrays[t->plane[0]], 0, nbytes, x, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return x;
}

/* --- What is replayed ------------------------------------------------------------------------ */

struct replay {
	const char *expected;
	enum tsr_optimizer optimizer;
	bool resumed; /* from the states of the checkpoint, lr and decay as recorded */
	double hyper[TSR_HYPER_COUNT]; /* 0: the default */
	unsigned differ; /* weights that are known not to be PyTorch's */
};

static const struct replay replays[] = {
	{ "expected-adamw-fp32", TSR_OPTIMIZER_ADAMW, .resumed = true,
	  .hyper = { [TSR_HYPER_BETA2] = 0.95 }, .differ = 18 },
	{ "expected-adam-fp32", TSR_OPTIMIZER_ADAM,
	  .hyper = { [TSR_HYPER_LR] = 1e-3, [TSR_HYPER_WEIGHT_DECAY] = 0.01 }, .differ = 135 },
	{ "expected-sgd-fp32", TSR_OPTIMIZER_SGD,
	  .hyper = { [TSR_HYPER_LR] = 0.1,
		     [TSR_HYPER_MOMENTUM] = 0.9,
		     [TSR_HYPER_WEIGHT_DECAY] = 1e-4 } },
	{ "expected-sgd-nesterov-fp32", TSR_OPTIMIZER_SGD,
	  .hyper = { [TSR_HYPER_LR] = 0.1, [TSR_HYPER_MOMENTUM] = 0.9, [TSR_HYPER_NESTEROV] = 1 } },
	{ "expected-sgd-plain-fp32", TSR_OPTIMIZER_SGD, .hyper = { [TSR_HYPER_LR] = 0.1 } },
	{ "expected-lion-fp32", TSR_OPTIMIZER_LION,
	  .hyper = { [TSR_HYPER_LR] = 1e-4,
		     [TSR_HYPER_BETA2] = 0.99,
		     [TSR_HYPER_WEIGHT_DECAY] = 0.1 } },
};

/* The lr of steps 401 to 416 in the recording. */
static const double recorded_lr[NSTEPS] = {
	0.00021005225639738435, 0.00020907381179759336, 0.00020814521440885877,
	0.00020726651618609043, 0.0002064377662923464,	0.00020565901109608167,
	0.00020493029416855405, 0.00020425165628138622, 0.00020362313540428484,
	0.00020304476670291612, 0.0002025165825369379,	0.00020203861245818956,
	0.00020161088320903836, 0.00020123341872088358, 0.00020090624011281688,
	0.00020062936569044127,
};

/* Vectors do not decay: they are in a group of their own. */
static struct tsr_hyper hyper_of(const struct replay *r, unsigned i, const struct tsr_tensor *t)
{
	struct tsr_hyper h = { 0 };
	struct tsr_err err = { 0 };

	for (unsigned k = 0; k < TSR_HYPER_COUNT; k++) {
		if (r->hyper[k] != 0)
			tsr_hyper_put(&h, (enum tsr_hyper_name)k, r->hyper[k]);
	}
	if (r->resumed) {
		tsr_hyper_put(&h, TSR_HYPER_LR, recorded_lr[i]);
		tsr_hyper_put(&h, TSR_HYPER_WEIGHT_DECAY, t->rank > 1 ? 0.1 : 0);
	}
	tsr_hyper_defaults(&h, r->optimizer);
	if (tsr_hyper_check(&h, r->optimizer, "test", &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return h;
}

/* What came of it, over all parameters. */
struct outcome {
	unsigned n[SLOTS], differ[SLOTS];
	double worst; /* difference over the largest magnitude of its tensor */
};

static void compare(const struct replay *r, const struct tsr_checkpoint *expected, const char *name,
		    enum tsr_slot slot, const float *x, struct outcome *o)
{
	double max = 0, off = 0;
	size_t n;
	float *y = read_tensor(expected, name, suffixes[slot], TSR_F32, &n);

	if (!y) {
		assert_true(slot != TSR_SLOT_WEIGHT && !r->resumed);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		max = fmax(max, fabs((double)y[i]));
		off = fmax(off, fabs((double)x[i] - (double)y[i]));
		o->differ[slot] += bits_of(x[i]) != bits_of(y[i]);
	}
	o->n[slot] += (unsigned)n;
	o->worst = fmax(o->worst, off / max);
	free(y);
}

static void replay_tensor(const struct replay *r, const struct tsr_checkpoint *start,
			  struct tsr_checkpoint *const grads[],
			  const struct tsr_checkpoint *expected, const struct tsr_tensor *t,
			  struct outcome *o)
{
	struct tsr_step step = { .optimizer = r->optimizer, .grad_dtype = TSR_BF16 };
	struct tsr_step_report report = { 0 };
	float *x[SLOTS];
	size_t n;

	for (unsigned p = 0; p < SLOTS; p++) {
		x[p] = read_tensor(start, t->name, suffixes[p], TSR_F32, &n);
		assert_non_null(x[p]);
		if (p != TSR_SLOT_WEIGHT && !r->resumed)
			memset(x[p], 0, n * sizeof(float));
		step.plane[p][0] = x[p];
	}
	for (unsigned i = 0; i < NSTEPS; i++) {
		const struct tsr_hyper h = hyper_of(r, i, t);
		const unsigned slots = 1u << TSR_SLOT_WEIGHT |
				       tsr_optimizer_slots(r->optimizer, &h);
		void *g = read_tensor(grads[i], t->name, "", TSR_BF16, &n);

		for (unsigned p = 0; p < SLOTS; p++)
			step.coding[p] = tsr_coding_default(tsr_codec_find("f32"));
		for (unsigned p = 0; p < SLOTS; p++) {
			if (!(slots >> p & 1))
				step.coding[p].codec = NULL;
		}
		step.scalars = tsr_step_scalars(TSR_ORDER_TORCH_CPU, r->optimizer, &h,
						i + (r->resumed ? FIRST_STEP : 1),
						!r->resumed && i == 0);
		tsr_step_apply(&step, g, 0, n, &report);
		free(g);
	}
	assert_int_equal(report.nonfinite_grad, 0);
	for (unsigned p = 0; p < SLOTS; p++) {
		compare(r, expected, t->name, (enum tsr_slot)p, x[p], o);
		free(x[p]);
	}
}

static void check_replay(const struct replay *r, const struct tsr_checkpoint *start,
			 struct tsr_checkpoint *const grads[])
{
	struct tsr_checkpoint *expected = open_data(r->expected);
	struct outcome o = { 0 };

	for (size_t i = 0; i < grads[0]->ntensors; i++)
		replay_tensor(r, start, grads, expected, &grads[0]->tensors[i], &o);
	assert_int_equal(o.n[TSR_SLOT_WEIGHT], 84288);
	assert_int_equal(o.n[TSR_SLOT_MOMENTUM], r->resumed ? 84288 : 0);
	assert_int_equal(o.differ[TSR_SLOT_MOMENTUM], 0);
	assert_int_equal(o.differ[TSR_SLOT_VARIANCE], 0);
	if (o.differ[TSR_SLOT_WEIGHT] != r->differ || o.worst > 6e-8)
		fail_msg("%s: %u weights differ, worst %g of its tensor's largest", r->expected,
			 o.differ[TSR_SLOT_WEIGHT], o.worst);
	tsr_checkpoint_close(expected);
}

static void test_pytorch_after_16_steps(void **state)
{
	struct tsr_checkpoint *start = open_data("checkpoint"), *grads[NSTEPS];

	(void)state;
	for (unsigned i = 0; i < NSTEPS; i++) {
		char name[100];

		snprintf(name, sizeof(name), "recording/step-%08u", FIRST_STEP + i);
		grads[i] = open_data(name);
	}
	for (const char *const *level = tsr_isa_names(); *level; level++) {
		if (!tsr_isa_select(*level))
			continue;
		for (size_t i = 0; i < COUNT_OF(replays); i++)
			check_replay(&replays[i], start, grads);
	}
	assert_true(tsr_isa_select(NULL));
	for (unsigned i = 0; i < NSTEPS; i++)
		tsr_checkpoint_close(grads[i]);
	tsr_checkpoint_close(start);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pytorch_after_16_steps),
	};

	return cmocka_run_group_tests_name("step parity", tests, NULL, NULL);
}
