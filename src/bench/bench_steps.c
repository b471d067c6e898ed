/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of optimizer steps in memory. */
#include "bench/bench_steps.h"

#include "base/fail.h"
#include "base/pipeline.h"
#include "bench/bench_timing.h"
#include "step/hyperparameters.h"

#define FLASH \
	{ \
		"bf16+ulp8", "softsign8", "sqrt8" \
	}
#define FLASH_MOMENTUM \
	{ \
		"bf16+ulp8", "softsign8", NULL \
	}
#define F32 \
	{ \
		"f32", "f32", "f32" \
	}
#define F32_MOMENTUM \
	{ \
		"f32", "f32", NULL \
	}
#define STATE(codec) \
	{ \
		"bf16+ulp8", codec, codec \
	}

/* A name, the order of operations, the optimizer, the gradient's type. */
#define CASE(name, order, optimizer, grad, ...) \
	{ \
		name, TSR_ORDER_##order, TSR_OPTIMIZER_##optimizer, TSR_##grad, __VA_ARGS__ \
	}

const struct tsr_bench_step_case tsr_bench_step_cases[] = {
	CASE("adamw fp32", PYTORCH, ADAMW, F32, F32),
	CASE("adamw flash", PYTORCH, ADAMW, BF16, FLASH),
	CASE("adam flash", PYTORCH, ADAM, BF16, FLASH),
	CASE("adamw linear", PYTORCH, ADAMW, BF16, { "bf16+ulp8", "linear8", "ulinear8" }),
	CASE("adamw tight", PYTORCH, ADAMW, BF16, { "bf16+ulp8", "ratio8", "log8" }),
	CASE("adamw coat", COAT, ADAMW, BF16, STATE("e4m3x")),
	CASE("adamw bitsandbytes", BITSANDBYTES, ADAMW, BF16, STATE("dyn8")),
	CASE("gefen", PYTORCH, GEFEN, BF16, { "bf16+ulp8", "gefen8", "blockmean" }),
	CASE("gefen bf16", PYTORCH, GEFEN, BF16, { "bf16", "gefen8", "blockmean" }),
	CASE("lion fp32", PYTORCH, LION, F32, F32_MOMENTUM),
	CASE("lion flash", PYTORCH, LION, BF16, FLASH_MOMENTUM),
	CASE("sgd fp32", PYTORCH, SGD, F32, F32_MOMENTUM),
	CASE("sgd flash", PYTORCH, SGD, BF16, FLASH_MOMENTUM),
	{ NULL, TSR_ORDER_COUNT, TSR_OPTIMIZER_COUNT, TSR_F32, { NULL, NULL, NULL } },
};

#define LEARNED_BLOCK 256u /* it divides tiles */

struct tsr_coding tsr_bench_coding(const struct tsr_codec *codec)
{
	struct tsr_coding coding = tsr_coding_default(codec);
	static float codebook[256];

	if (!codec->learned)
		return coding;
	for (unsigned i = 0; i < 256; i++)
		codebook[i] = (2.0f * (float)i - 255.0f) / 255.0f;
	coding.codebook = codebook;
	coding.group = LEARNED_BLOCK;
	return coding;
}

struct tsr_step tsr_bench_step_of(const struct tsr_bench_step_case *c)
{
	struct tsr_step step = { .optimizer = c->optimizer,
				 .order = c->order,
				 .grad_dtype = c->grad_dtype };
	struct tsr_hyper h = { 0 };

	tsr_hyper_put(&h, TSR_HYPER_LR, 1e-4);
	tsr_hyper_put(&h, TSR_HYPER_WEIGHT_DECAY, 0.01);
	tsr_hyper_put(&h, TSR_HYPER_MOMENTUM, 0.9);
	tsr_hyper_defaults(&h, c->optimizer);
	step.scalars = tsr_step_scalars(c->order, c->optimizer, &h, 1000, false);
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		if (!c->codec[p])
			continue;
		step.coding[p] = tsr_bench_coding(tsr_codec_find(c->codec[p]));
		step.coding[p].kind = tsr_part_kind((enum tsr_part)p);
	}
	return step;
}

/* Bytes of state and gradient that move. */
static double step_nbytes(const struct tsr_step *step)
{
	double nbytes = tsr_dtype_bits(step->grad_dtype) / 8.0;

	for (unsigned p = 0; p < TSR_PARTS; p++) {
		if (step->coding[p].codec)
			nbytes += 2 * tsr_coding_bytes_per_element(&step->coding[p]);
	}
	return nbytes;
}

uint64_t tsr_bench_step_room(uint64_t n)
{
	return n * sizeof(float);
}

void tsr_bench_put_planes(struct tsr_step *step, void *const room[TSR_PARTS], uint64_t n,
			  uint64_t alignment)
{
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_coding *c = &step->coding[p];
		unsigned char *at = room[p];

		for (unsigned i = 0; c->codec && i < c->codec->nplanes; i++) {
			step->plane[p][i] = at;
			at += (tsr_plane_nbytes(c, i, n) + alignment - 1) / alignment * alignment;
		}
	}
}

void tsr_bench_add_step(struct tsr_bench_kernels *ret, const struct tsr_bench_step_case *c,
			const struct tsr_step *step, uint64_t n, double seconds)
{
	struct tsr_bench_step *s = &ret->steps[ret->nsteps++];

	s->name = c->name;
	s->bytes_per_element = step_nbytes(step);
	s->gbps = 1e-9 * (double)n * s->bytes_per_element / seconds;
}

struct bench {
	uint64_t n;
	struct tsr_step step;
	void *grad;
	bool fill;
};

static void fill(const struct bench *b, uint64_t first, size_t n, float *x)
{
	struct tsr_encode_report report = { 0 };
	void *plane[TSR_PLANES_MAX];

	tsr_bench_values(x, n, first);
	for (size_t i = 0; i < n; i++) {
		if (b->step.grad_dtype == TSR_F32)
			((float *)b->grad)[first + i] = x[i];
		else
			((uint16_t *)b->grad)[first + i] = (uint16_t)tsr_bf16_from_f32(x[i]);
	}
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_coding *c = &b->step.coding[p];

		for (unsigned i = 0; c->codec && i < c->codec->nplanes; i++)
			plane[i] = (unsigned char *)b->step.plane[p][i] +
				   tsr_plane_nbytes(c, i, first);
		for (size_t i = 0; p == TSR_PART_VARIANCE && i < n; i++)
			x[i] *= x[i];
		if (c->codec)
			c->codec->encode(c, x, n, plane, &report);
	}
}

static enum tsr_status do_job(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct bench *b = ctx;
	const uint64_t first = job * TSR_BENCH_TILE;
	const size_t n = tsr_bench_tile(b->n, first);
	struct tsr_step_report report = { 0 };

	(void)err;
	if (b->fill)
		fill(b, first, n, scratch);
	else
		tsr_step_apply(&b->step, b->grad, first, n, &report);
	return TSR_OK;
}

/* Median seconds of a step. */
static enum tsr_status measure(struct bench *b, unsigned repeats, const struct tsr_run *run,
			       double *seconds_ret, struct tsr_err *err)
{
	const struct tsr_pipeline p = { .njobs = tsr_bench_njobs(b->n),
					.scratch_nbytes = TSR_BENCH_TILE * sizeof(float),
					.work = do_job,
					.ctx = b };

	b->fill = true;
	TSR_TRY(tsr_pipeline_run(&p, run, err));
	b->fill = false;
	return tsr_bench_time(&p, repeats, run, seconds_ret, err);
}

enum tsr_status tsr_bench_steps(void *const room[4], uint64_t n, unsigned repeats,
				const struct tsr_run *run, struct tsr_bench_kernels *ret,
				struct tsr_err *err)
{
	for (const struct tsr_bench_step_case *c = tsr_bench_step_cases; c->name; c++) {
		struct bench b = { .n = n, .step = tsr_bench_step_of(c), .grad = room[TSR_PARTS] };
		double seconds;

		tsr_bench_put_planes(&b.step, room, n, sizeof(uint16_t));
		TSR_TRY(measure(&b, repeats, run, &seconds, err));
		tsr_bench_add_step(ret, c, &b.step, n, seconds);
	}
	return TSR_OK;
}
