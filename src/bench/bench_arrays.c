/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of codecs and of optimizer steps on arrays in memory. */
#include "base/fail.h"
#include "bench/bench_engine.h"
#include "replay/gpu/batch_step.h"

/* Values that are made; arrays repeat them. */
#define MADE_ELEMENTS (UINT64_C(1) << 22)

/* Where planes begin. */
#define ALIGNMENT UINT64_C(256)

#define LEARNED_BLOCK 256u /* it divides tiles */

enum action { FILL, COPY, ENCODE, DECODE, STEP };

struct arrays {
	struct tsr_bench_engine e;
	uint64_t n, nmade; /* elements; those of them that are made */
	float *made[TSR_SLOTS], *x; /* in host memory; what is encoded */
	/* The planes of each slot of a state or, in the first, of a codec; a gradient, or copied elements. */
	void *room[TSR_SLOTS + 1];
	/* What the next run is of: */
	enum action action;
	enum tsr_slot values;
	struct tsr_coding coding;
	void *plane[TSR_PLANES_MAX];
	struct tsr_step step;
};

/* --- Runs ------------------------------------------------------------------------------------ */

static enum tsr_status do_tile(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct arrays *a = ctx;
	const uint64_t first = job * TSR_BENCH_TILE;
	const uint64_t left = a->n - first;
	const size_t n = (size_t)(left < TSR_BENCH_TILE ? left : TSR_BENCH_TILE);
	struct tsr_encode_report encoded = { 0 };
	struct tsr_step_report stepped = { 0 };
	float *y = (float *)a->room[TSR_SLOTS] + first;
	void *plane[TSR_PLANES_MAX] = { NULL };

	(void)scratch;
	(void)err;
	for (unsigned i = 0; a->coding.codec && i < a->coding.codec->nplanes; i++)
		plane[i] = (char *)a->plane[i] + tsr_plane_nbytes(&a->coding, i, first);
	if (a->action == FILL)
		memcpy(a->x + first, a->made[a->values] + first % MADE_ELEMENTS, n * sizeof(float));
	else if (a->action == COPY)
		memcpy(y, a->x + first, n * sizeof(float));
	else if (a->action == ENCODE)
		a->coding.codec->encode(&a->coding, a->x + first, n, plane, &encoded);
	else if (a->action == DECODE)
		a->coding.codec->decode(&a->coding, (const void *const *)plane, n, y);
	else
		tsr_step_apply(&a->step, a->room[TSR_SLOTS], first, n, &stepped);
	return TSR_OK;
}

static enum tsr_status fill_on_gpu(struct arrays *a, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_copy(a->e.stream, a->x, a->made[a->values], a->nmade * sizeof(float), err));
	for (uint64_t have = a->nmade; have < a->n; have *= 2)
		TSR_TRY(tsr_gpu_copy(a->e.stream, a->x + have, a->x,
				     (a->n - have < have ? a->n - have : have) * sizeof(float),
				     err));
	return TSR_OK;
}

static enum tsr_status append(void *ctx, struct tsr_err *err)
{
	struct arrays *a = ctx;
	float *y = a->room[TSR_SLOTS];

	switch (a->action) {
	case FILL:
		return fill_on_gpu(a, err);
	case COPY:
		return tsr_gpu_copy(a->e.stream, y, a->x, a->n * sizeof(float), err);
	case ENCODE:
		return tsr_gpu_encode(a->e.stream, &a->coding, a->x, a->n, a->plane, NULL, err);
	case DECODE:
		return tsr_gpu_decode(a->e.stream, &a->coding, (const void *const *)a->plane, a->n,
				      y, err);
	case STEP:
		return tsr_gpu_step(a->e.stream, &a->step, y, a->n, NULL, err);
	}
	return TSR_OK;
}

static struct tsr_bench_work work_of(struct arrays *a, enum action action)
{
	a->action = action;
	return (struct tsr_bench_work){ { .njobs = (a->n + TSR_BENCH_TILE - 1) / TSR_BENCH_TILE,
					  .work = do_tile,
					  .ctx = a },
					append };
}

static enum tsr_status run(struct arrays *a, enum action action, struct tsr_err *err)
{
	const struct tsr_bench_work work = work_of(a, action);

	return tsr_bench_run(&a->e, &work, err);
}

/* Time an action, and what it moves per element makes a speed of it. */
static enum tsr_status measure(struct arrays *a, enum action action, double bytes_per_element,
			       double *gbps_ret, struct tsr_err *err)
{
	const struct tsr_bench_work work = work_of(a, action);
	double seconds;

	TSR_TRY(tsr_bench_time(&a->e, &work, &seconds, err));
	*gbps_ret = 1e-9 * (double)a->n * bytes_per_element / seconds;
	return TSR_OK;
}

/* Values of a slot to encode from now on, in these planes, which are one behind the other in @room. */
static enum tsr_status prepare(struct arrays *a, enum tsr_slot values,
			       const struct tsr_coding *coding, void *room, struct tsr_err *err)
{
	unsigned char *at = room;

	a->values = values;
	a->coding = *coding;
	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		a->plane[i] = at;
		at += (tsr_plane_nbytes(coding, i, a->n) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	}
	return run(a, FILL, err);
}

/* --- Codecs ---------------------------------------------------------------------------------- */

/* As it is measured: learned codecs have blocks of 256, and entries at equal distances. */
static struct tsr_coding coding_of(const struct tsr_codec *codec)
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

static enum tsr_status measure_codec(struct arrays *a, const struct tsr_codec *codec,
				     struct tsr_bench *ret, struct tsr_err *err)
{
	const struct tsr_coding coding = coding_of(codec);
	struct tsr_bench_row *row = tsr_bench_add(ret, TSR_BENCH_KERNELS, codec->name);
	enum tsr_slot values = TSR_SLOT_WEIGHT;

	while (!(codec->kinds & tsr_slot_kind(values)))
		values++;
	row->bytes_per_element = sizeof(float) + tsr_coding_bytes_per_element(&coding);
	TSR_TRY(prepare(a, values, &coding, a->room[0], err));
	TSR_TRY(measure(a, ENCODE, row->bytes_per_element, &row->gbps[0], err));
	return measure(a, DECODE, row->bytes_per_element, &row->gbps[1], err);
}

static enum tsr_status measure_codecs(struct arrays *a, const char *only, struct tsr_bench *ret,
				      struct tsr_err *err)
{
	static const char *const learned[] = { "gefen8", "blockmean" };

	if (only)
		return measure_codec(a, tsr_codec_find(only), ret, err);
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (!(*c)->family || (*c)->extra_bits == 8)
			TSR_TRY(measure_codec(a, *c, ret, err));
	}
	for (unsigned i = 0; i < sizeof(learned) / sizeof(*learned); i++)
		TSR_TRY(measure_codec(a, tsr_codec_find(learned[i]), ret, err));
	return TSR_OK;
}

/* --- Steps ----------------------------------------------------------------------------------- */

/* A name, the order of operations, the optimizer, the gradient's type, and the codec of each slot. */
#define CASE(name, order, optimizer, grad, ...) \
	{ \
		name, TSR_ORDER_##order, TSR_OPTIMIZER_##optimizer, TSR_##grad, \
		{ \
			__VA_ARGS__ \
		} \
	}
#define FLASH "bf16+ulp8", "softsign8"

static const struct step_case {
	const char *name;
	enum tsr_order order;
	enum tsr_optimizer optimizer;
	enum tsr_dtype grad_dtype;
	const char *codec[TSR_SLOTS]; /* NULL where the optimizer keeps none */
} step_cases[] = {
	CASE("adamw fp32", TORCH_CPU, ADAMW, F32, "f32", "f32", "f32"),
	CASE("adamw flash", TORCH_CPU, ADAMW, BF16, FLASH, "sqrt8"),
	CASE("adam flash", TORCH_CPU, ADAM, BF16, FLASH, "sqrt8"),
	CASE("adamw linear", TORCH_CPU, ADAMW, BF16, "bf16+ulp8", "linear8", "ulinear8"),
	CASE("adamw tight", TORCH_CPU, ADAMW, BF16, "bf16+ulp8", "ratio8", "log8"),
	CASE("adamw coat", COAT, ADAMW, BF16, "bf16+ulp8", "e4m3x", "e4m3x"),
	CASE("adamw bitsandbytes", BITSANDBYTES, ADAMW, BF16, "bf16+ulp8", "dyn8", "dyn8"),
	CASE("gefen", TORCH_CPU, GEFEN, BF16, "bf16+ulp8", "gefen8", "blockmean"),
	CASE("gefen bf16", TORCH_CPU, GEFEN, BF16, "bf16", "gefen8", "blockmean"),
	CASE("lion fp32", TORCH_CPU, LION, F32, "f32", "f32"),
	CASE("lion flash", TORCH_CPU, LION, BF16, FLASH),
	CASE("sgd fp32", TORCH_CPU, SGD, F32, "f32", "f32"),
	CASE("sgd flash", TORCH_CPU, SGD, BF16, FLASH),
};

/* The step itself, without planes: ordinary hyperparameters, the default scales and groups. */
static struct tsr_step step_of(const struct step_case *c)
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
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		if (!c->codec[p])
			continue;
		step.coding[p] = coding_of(tsr_codec_find(c->codec[p]));
		step.coding[p].kind = tsr_slot_kind((enum tsr_slot)p);
	}
	return step;
}

static enum tsr_status measure_step(struct arrays *a, const struct step_case *c,
				    struct tsr_bench *ret, struct tsr_err *err)
{
	const char *grad_codec = c->grad_dtype == TSR_F32 ? "f32" : "bf16";
	const struct tsr_coding grad = tsr_coding_default(tsr_codec_find(grad_codec));
	struct tsr_bench_row *row = tsr_bench_add(ret, TSR_BENCH_STEPS, c->name);

	a->step = step_of(c);
	row->bytes_per_element = tsr_dtype_bits(c->grad_dtype) / 8.0;
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_coding *coding = &a->step.coding[p];

		if (!coding->codec)
			continue;
		row->bytes_per_element += 2 * tsr_coding_bytes_per_element(coding);
		TSR_TRY(prepare(a, (enum tsr_slot)p, coding, a->room[p], err));
		memcpy(a->step.plane[p], a->plane, sizeof(a->plane));
		TSR_TRY(run(a, ENCODE, err));
	}
	TSR_TRY(prepare(a, TSR_SLOT_MOMENTUM, &grad, a->room[TSR_SLOTS], err));
	TSR_TRY(run(a, ENCODE, err));
	return measure(a, STEP, row->bytes_per_element, &row->gbps[0], err);
}

/* --- All of it ------------------------------------------------------------------------------- */

/* No coding takes more than 4 bytes per element. */
static enum tsr_status allocate(struct arrays *a, struct tsr_err *err)
{
	const uint64_t nbytes = a->n * sizeof(float) + TSR_PLANES_MAX * ALIGNMENT;

	a->nmade = a->n < MADE_ELEMENTS ? a->n : MADE_ELEMENTS;
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		a->made[p] = malloc(a->nmade * sizeof(float));
		if (!a->made[p])
			return tsr_fail_nomem(err, "a benchmark's values");
		tsr_bench_values(tsr_slot_kind((enum tsr_slot)p), 0, a->nmade, a->made[p]);
	}
	TSR_TRY(tsr_bench_alloc(&a->e, a->n * sizeof(float), &a->x, err));
	for (unsigned i = 0; i <= TSR_SLOTS; i++)
		TSR_TRY(tsr_bench_alloc(&a->e, nbytes, &a->room[i], err));
	return TSR_OK;
}

static enum tsr_status measure_all(struct arrays *a, const char *codec, struct tsr_bench *ret,
				   struct tsr_err *err)
{
	const struct tsr_coding copied = tsr_coding_default(tsr_codec_find("f32"));

	TSR_TRY(allocate(a, err));
	TSR_TRY(prepare(a, TSR_SLOT_WEIGHT, &copied, a->room[0], err));
	TSR_TRY(measure(a, COPY, 2 * sizeof(float), &ret->copy_gbps, err));
	TSR_TRY(measure_codecs(a, codec, ret, err));
	for (size_t i = 0; !codec && i < sizeof(step_cases) / sizeof(*step_cases); i++)
		TSR_TRY(measure_step(a, &step_cases[i], ret, err));
	return TSR_OK;
}

enum tsr_status tsr_bench_arrays(const struct tsr_bench_options *o, const struct tsr_run *run,
				 struct tsr_bench *ret, struct tsr_err *err)
{
	struct arrays a = { .n = o->elements };
	enum tsr_status status = tsr_bench_open(&a.e, o, run, ret, err);

	if (status == TSR_OK)
		status = measure_all(&a, o->codec, ret, err);
	for (unsigned p = 0; p < TSR_SLOTS; p++)
		free(a.made[p]);
	tsr_bench_close(&a.e);
	return status;
}
