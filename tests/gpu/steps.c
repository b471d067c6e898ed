/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of every optimizer on every kind of state, on both sides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_gpu.h"
#include "replay/gpu/batch_step.h"
#include "step/hyperparameters.h"
#include "step/step.h"

/* --- What is stepped --------------------------------------------------------------------------- */

static const struct rule {
	const char *name;
	enum tsr_optimizer optimizer;
	enum tsr_order order;
	bool nesterov, first, maximize, amsgrad;
	double momentum, decay;
} rules[] = {
	{ "plain SGD", TSR_OPTIMIZER_SGD, .decay = 0.01 },
	{ "SGD", TSR_OPTIMIZER_SGD, .momentum = 0.9, .decay = 0.01 },
	{ "SGD, Nesterov", TSR_OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true },
	{ "SGD, first step", TSR_OPTIMIZER_SGD, .momentum = 0.9, .first = true },
	{ "SGDW", TSR_OPTIMIZER_SGDW, .momentum = 0.9, .decay = 0.1 },
	{ "Adam", TSR_OPTIMIZER_ADAM, .decay = 0.01 },
	{ "AdamW", TSR_OPTIMIZER_ADAMW, .decay = 0.1 },
	{ "AdamW, first step", TSR_OPTIMIZER_ADAMW, .first = true },
	{ "Lion", TSR_OPTIMIZER_LION, .decay = 0.1 },
	{ "FlashOptim's Adam", TSR_OPTIMIZER_ADAM, .order = TSR_ORDER_FLASHOPTIM, .decay = 0.01 },
	{ "FlashOptim's AdamW", TSR_OPTIMIZER_ADAMW, .order = TSR_ORDER_FLASHOPTIM, .decay = 0.1 },
	{ "COAT's AdamW", TSR_OPTIMIZER_ADAMW, .order = TSR_ORDER_COAT, .decay = 0.1 },
	{ "bitsandbytes' Adam", TSR_OPTIMIZER_ADAM, .order = TSR_ORDER_BITSANDBYTES, .decay = 0.1 },
	{ "PyTorch's fused AdamW", TSR_OPTIMIZER_ADAMW, .order = TSR_ORDER_TORCH_CUDA_FUSED,
	  .decay = 0.1 },
	{ "PyTorch's fused Adam", TSR_OPTIMIZER_ADAM, .order = TSR_ORDER_TORCH_CUDA_FUSED,
	  .decay = 0.01, .maximize = true },
	{ "AMSGrad", TSR_OPTIMIZER_ADAMW, .decay = 0.1, .amsgrad = true },
	{ "PyTorch's fused AMSGrad", TSR_OPTIMIZER_ADAM, .order = TSR_ORDER_TORCH_CUDA_FUSED,
	  .decay = 0.01, .amsgrad = true },
	{ "PyTorch's capturable AMSGrad", TSR_OPTIMIZER_ADAMW,
	  .order = TSR_ORDER_TORCH_CUDA_CAPTURABLE_FORLOOP, .decay = 0.1, .amsgrad = true },
	{ "PyTorch's capturable Adam", TSR_OPTIMIZER_ADAM, .order = TSR_ORDER_TORCH_CUDA_CAPTURABLE,
	  .decay = 0.01 },
	{ "a CPU's fused Adam", TSR_OPTIMIZER_ADAM, .order = TSR_ORDER_TORCH_CPU_FUSED,
	  .decay = 0.01 },
	{ "a CPU's fused SGD", TSR_OPTIMIZER_SGD, .order = TSR_ORDER_TORCH_CPU_FUSED,
	  .momentum = 0.9, .decay = 0.01 },
	{ "PyTorch's older fused Adam", TSR_OPTIMIZER_ADAM,
	  .order = TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE, .decay = 0.01 },
	{ "PyTorch's older fused SGD", TSR_OPTIMIZER_SGD,
	  .order = TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE, .momentum = 0.9, .nesterov = true },
	{ "FlashOptim's Lion", TSR_OPTIMIZER_LION, .order = TSR_ORDER_FLASHOPTIM, .decay = 0.1 },
	{ "Gefen", TSR_OPTIMIZER_GEFEN, .decay = 0.1 },
};

static const char *const weights[] = {
	"bf16+ulp8", "f32",	   "bf16+ulp16", "bf16+exact16", "bf16+bf16", "bf16",
	"fp16+ulp8", "fp16+ulp16", "fp16+fp16",	 "fp16",	 "bf16+sr4",  "fp16+trunc5",
};

static const struct {
	const char *momentum, *variance;
} states[] = {
	{ "softsign8", "sqrt8" },  { "f32", "f32" },	   { "bf16", "bf16" },
	{ "linear8", "ulinear8" }, { "softsign8", "f32" }, { "f32", "ulinear8" },
	{ "ratio8", "sqrt8" },	   { "ratio8", "f32" },	   { "ratio8", "log8" },
	{ "e4m3x", "e4m3x" },	   { "dyn8", "dyn8" },	   { "ratio9", "log7" },
	{ "ratio4", "log4" },
};

static struct tsr_coding coding_of(const char *name, enum tsr_scale scale, uint32_t group)
{
	struct tsr_coding c = tsr_coding_with(tsr_codec_find(name), scale, group);

	c.seed = 77;
	c.stream = 5;
	return c;
}

/* The one that fused kernels take. */
static uint32_t group_of(const char *momentum)
{
	const struct tsr_codec *codec = tsr_codec_find(momentum);

	return codec->grouped ? codec->group : TSR_GROUP_DEFAULT;
}

static bool has_variance(const struct rule *r)
{
	return r->optimizer == TSR_OPTIMIZER_ADAM || r->optimizer == TSR_OPTIMIZER_ADAMW ||
	       r->optimizer == TSR_OPTIMIZER_GEFEN;
}

/* The codec that stands for @name: ratios need a variance, which the step moves first. */
static const char *momentum_of(const struct rule *r, const char *name)
{
	const bool has_ratios = has_variance(r) && r->optimizer != TSR_OPTIMIZER_GEFEN;

	return tsr_codec_find(name)->relative && !has_ratios ? "softsign8" : name;
}

static bool has_momentum(const struct rule *r)
{
	return has_variance(r) || r->momentum != 0 || r->optimizer == TSR_OPTIMIZER_LION;
}

static struct tsr_step_scalars scalars_of(const struct rule *r)
{
	const uint64_t t = r->first ? 1 : 17;
	struct tsr_hyper h = { .set = 0 };

	tsr_hyper_put(&h, TSR_HYPER_LR, 0.001);
	tsr_hyper_put(&h, TSR_HYPER_WEIGHT_DECAY, r->decay);
	tsr_hyper_put(&h, TSR_HYPER_MOMENTUM, r->momentum);
	tsr_hyper_put(&h, TSR_HYPER_NESTEROV, r->nesterov);
	tsr_hyper_put(&h, TSR_HYPER_MAXIMIZE, r->maximize);
	tsr_hyper_put(&h, TSR_HYPER_AMSGRAD, r->amsgrad);
	tsr_hyper_defaults(&h, r->optimizer);
	return tsr_step_scalars(r->order, r->optimizer, &h, t, r->first);
}

/* --- Arrays on both sides ---------------------------------------------------------------------- */

#define ROOM ((size_t)40000 * sizeof(float))

static struct plane {
	unsigned char *host, *got;
	void *device;
} planes[TSR_SLOTS][TSR_PLANES_MAX], grad_plane;
static struct tsr_step_report *device_report;
static float *values;

static void plane_new(struct plane *p)
{
	struct tsr_err err;

	p->host = must_have(malloc(ROOM));
	p->got = must_have(malloc(ROOM));
	must(tsr_gpu_alloc(gpu, ROOM, "a test plane", &p->device, &err), &err);
}

static void plane_free(struct plane *p)
{
	free(p->host);
	free(p->got);
	tsr_gpu_free(gpu, p->device);
}

/* A case: arrays begin @shift elements behind an aligned address. */
struct trial {
	struct tsr_step step; /* on the host */
	size_t n, shift;
	enum data data;
	const char *rule;
	uint64_t seed;
	void (*spoil)(const struct trial *t); /* NULL, or makes of the state what no encoder does */
};

static size_t entry_nbytes(const struct tsr_coding *c, unsigned plane)
{
	return tsr_dtype_bits(tsr_plane_dtype(c, plane)) / 8;
}

/* The planes of @data, encoded by the CPU. */
static void fill_slot(struct trial *t, unsigned slot)
{
	static const enum data ordinary[TSR_SLOTS] = { DATA_WEIGHTS, DATA_WEIGHTS, DATA_VARIANCES,
						       DATA_VARIANCES };
	const struct tsr_coding *c = &t->step.coding[slot];
	struct tsr_encode_report report = { 0 };

	if (!c->codec)
		return;
	for (unsigned i = 0; i < c->codec->nplanes; i++)
		t->step.plane[slot][i] = planes[slot][i].host + t->shift * entry_nbytes(c, i);
	fill(values, t->n, t->data == DATA_WEIGHTS ? ordinary[slot] : t->data, t->seed + slot + 11);
	for (size_t i = 0; slot >= TSR_SLOT_VARIANCE && i < t->n; i++)
		values[i] = values[i] < 0 ? -values[i] : values[i];
	c->codec->encode(c, values, t->n, t->step.plane[slot], &report);
}

/* Another byte in 700 on average, so that most warps have none. */
static void damage(const struct trial *t)
{
	uint64_t z = t->seed;

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_coding *c = &t->step.coding[p];

		for (unsigned i = 0; c->codec && i < c->codec->nplanes; i++) {
			const uint64_t nbytes = tsr_plane_nbytes(c, i, t->n);
			unsigned char *plane = t->step.plane[p][i];

			for (uint64_t at = 0; at < nbytes; at += 1 + (z >> 33) % 1400) {
				z = z * 6364136223846793005u + 1442695040888963407u;
				plane[at] = z >> 63 ? (unsigned char)(z >> 40) : 0x80;
			}
		}
	}
}

/* Weights of zero with corrections, the units of which are far below all others. */
static void empty_weights(const struct trial *t)
{
	memset(t->step.plane[TSR_SLOT_WEIGHT][0], 0, t->n * sizeof(uint16_t));
	memset(t->step.plane[TSR_SLOT_WEIGHT][1], 127, t->n);
}

static void *fill_grad(const struct trial *t)
{
	const char *const narrow = t->step.grad_dtype == TSR_BF16  ? "bf16"
				   : t->step.grad_dtype == TSR_F16 ? "fp16"
								   : "f32";
	const struct tsr_coding c = coding_of(narrow, TSR_SCALE_E8M8, 1);
	unsigned char *at = grad_plane.host + t->shift * entry_nbytes(&c, 0);
	struct tsr_encode_report report = { 0 };

	fill(values, t->n, t->data, t->seed + 5);
	c.codec->encode(&c, values, t->n, (void *[]){ at }, &report);
	return at;
}

/* The same step on the GPU, of what is on the host now. */
static struct tsr_step upload(const struct trial *t)
{
	struct tsr_step s = t->step;
	struct tsr_err err;

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_coding *c = &s.coding[p];

		for (unsigned i = 0; c->codec && i < c->codec->nplanes; i++) {
			must(tsr_gpu_copy(stream, planes[p][i].device, planes[p][i].host, ROOM,
					  &err),
			     &err);
			s.plane[p][i] = (unsigned char *)planes[p][i].device +
					t->shift * entry_nbytes(c, i);
		}
	}
	must(tsr_gpu_copy(stream, grad_plane.device, grad_plane.host, ROOM, &err), &err);
	return s;
}

static const char *name_of(const struct tsr_step *s, unsigned slot)
{
	return s->coding[slot].codec ? s->coding[slot].codec->name : "-";
}

static void compare_planes(const struct trial *t)
{
	struct tsr_err err;

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_coding *c = &t->step.coding[p];

		for (unsigned i = 0; c->codec && i < c->codec->nplanes; i++) {
			struct plane *x = &planes[p][i];
			size_t at = 0;

			must(tsr_gpu_copy(stream, x->got, x->device, ROOM, &err), &err);
			must(tsr_gpu_sync(stream, &err), &err);
			while (at < ROOM && x->host[at] == x->got[at])
				at++;
			if (at < ROOM)
				check_failed("%s, %s %s %s, %s scales, data %d, n %zu, shift %zu: "
					     "%s, plane %u, byte %zu is %02x, expected %02x",
					     t->rule, name_of(&t->step, 0), name_of(&t->step, 1),
					     name_of(&t->step, 2),
					     tsr_scale_name(t->step.coding[1].scale), (int)t->data,
					     t->n, t->shift, tsr_slot_name((enum tsr_slot)p), i, at,
					     x->got[at], x->host[at]);
		}
	}
}

static void compare(struct trial *t)
{
	struct tsr_step_report want = { 0 }, got;
	const unsigned char *grad = fill_grad(t);
	struct tsr_step device;
	struct tsr_err err;

	if (t->step.scalars.amsgrad)
		t->step.coding[TSR_SLOT_MAX_VARIANCE] = t->step.coding[TSR_SLOT_VARIANCE];
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		t->step.coding[p].kind = tsr_slot_kind((enum tsr_slot)p);
		fill_slot(t, p);
	}
	if (t->spoil)
		t->spoil(t);
	device = upload(t);
	must(tsr_gpu_zero(stream, device_report, sizeof(*device_report), &err), &err);
	tsr_step_apply(&t->step, grad, 0, t->n, &want);
	must(tsr_gpu_step(stream, &device,
			  (unsigned char *)grad_plane.device + (grad - grad_plane.host), t->n,
			  device_report, &err),
	     &err);
	compare_planes(t);
	must(tsr_gpu_copy(stream, &got, device_report, sizeof(got), &err), &err);
	must(tsr_gpu_sync(stream, &err), &err);
	if (memcmp(&want, &got, sizeof(got)) != 0)
		check_failed("%s, %s %s %s, data %d: the report differs", t->rule,
			     name_of(&t->step, 0), name_of(&t->step, 1), name_of(&t->step, 2),
			     (int)t->data);
}

/* --- All of them ------------------------------------------------------------------------------- */

static const enum data kinds_of_data[] = { DATA_WEIGHTS,   DATA_SPECIAL, DATA_FINITE, DATA_TINY,
					   DATA_VARIANCES, DATA_HUGE,	 DATA_ZERO,   DATA_EQUAL };

/* Some of everything else goes by turns with the number of the case. */
static void run_trial(const struct rule *r, const char *weight, size_t state, size_t data,
		      unsigned number)
{
	static const enum tsr_dtype dtypes[] = { TSR_F32, TSR_BF16, TSR_F16 };
	static const size_t lengths[] = { 4096, 1000, 33, 10017 };
	const enum tsr_scale scale = (enum tsr_scale)(number / 3 % TSR_SCALE_F28);
	const uint32_t group = number % 7 == 6 ? 100 : group_of(states[state].momentum);
	struct trial t = { .n = lengths[number % 4],
			   .shift = number % 5 == 4 ? number % 3 : 0,
			   .data = kinds_of_data[data],
			   .rule = r->name };

	t.step = (struct tsr_step){ .optimizer = r->optimizer,
				    .order = r->order,
				    .scalars = scalars_of(r),
				    .grad_dtype = dtypes[number % 3] };
	t.step.scalars.elements = t.n;
	t.step.coding[TSR_SLOT_WEIGHT] = coding_of(weight, scale, 1);
	if (has_momentum(r))
		t.step.coding[TSR_SLOT_MOMENTUM] = coding_of(momentum_of(r, states[state].momentum),
							     scale, group);
	if (has_variance(r))
		t.step.coding[TSR_SLOT_VARIANCE] = coding_of(states[state].variance, scale, group);
	for (unsigned p = TSR_SLOT_MOMENTUM; p < TSR_SLOTS && number % 7 == 5; p++) {
		const struct tsr_codec *codec = t.step.coding[p].codec;

		t.step.coding[p].row = codec && codec->grouped && !codec->flat ? 48 : 0;
	}
	compare(&t);
}

static uint64_t check_rule(const struct rule *r, bool few)
{
	uint64_t cases = 0;
	unsigned number = 0;

	for (size_t w = 0; w < COUNT_OF(weights); w += few ? 4 : 1) {
		for (size_t s = 0; s < COUNT_OF(states); s += few ? 2 : 1) {
			for (size_t d = 0; d < COUNT_OF(kinds_of_data); d += few ? 3 : 1, cases++)
				run_trial(r, weights[w], s, d, number += (unsigned)(w + s + d + 1));
		}
	}
	return cases;
}

/* The state for which a kernel tells ordinary numbers from others: at the edges of what it takes for ordinary. */
static uint64_t check_edges(unsigned nseeds)
{
	static const enum tsr_dtype dtypes[] = { TSR_BF16, TSR_F32, TSR_F16 };
	uint64_t cases = 0;

	for (size_t i = 0; i < COUNT_OF(rules) * 3 * 3 * nseeds; i++, cases++) {
		const struct rule *r = &rules[i % COUNT_OF(rules)];
		const size_t rest = i / COUNT_OF(rules);
		const enum tsr_scale scale = (enum tsr_scale)(rest / 3 % TSR_SCALE_F28);
		struct trial t = { .n = 9000 + i % 700,
				   .data = DATA_EDGES,
				   .rule = r->name,
				   .seed = 1000 * (i + 1),
				   .spoil = rest / 9 % 2 == 1 ? damage : NULL };

		t.step = (struct tsr_step){ .optimizer = r->optimizer,
					    .order = r->order,
					    .scalars = scalars_of(r),
					    .grad_dtype = dtypes[rest % 3] };
		t.step.coding[TSR_SLOT_WEIGHT] = coding_of("bf16+ulp8", scale, 1);
		if (has_momentum(r))
			t.step.coding[TSR_SLOT_MOMENTUM] = coding_of("softsign8", scale,
								     TSR_GROUP_DEFAULT);
		if (has_variance(r))
			t.step.coding[TSR_SLOT_VARIANCE] = coding_of("sqrt8", scale,
								     TSR_GROUP_DEFAULT);
		compare(&t);
	}
	return cases;
}

/* --- Matrices ---------------------------------------------------------------------------------- */

static const struct rule matrix_rules[] = {
	{ "Muon", TSR_OPTIMIZER_MUON, .nesterov = true, .momentum = 0.95, .decay = 0.1 },
	{ "Muon, no Nesterov", TSR_OPTIMIZER_MUON, .momentum = 0.3 },
	{ "GefenMuon", TSR_OPTIMIZER_GEFEN_MUON, .nesterov = true, .momentum = 0.95, .decay = 0.1 },
};

/* Tiles of a product have 64 or 128 rows and columns, and 16 terms of its sums. */
static const struct {
	uint64_t rows, columns;
} shapes[] = {
	{ 1, 1 }, { 5, 1 }, { 12, 20 }, { 65, 33 }, { 64, 130 }, { 16, 2000 }, { 190, 200 }
};

static void run_matrix(const struct rule *r, size_t shape, size_t data, unsigned number)
{
	static const char *const momenta[] = { "f32", "softsign8", "bf16", "gefen8" };
	static const enum tsr_dtype dtypes[] = { TSR_F32, TSR_BF16, TSR_F16 };
	static float entry[256];
	struct trial t = { .n = shapes[shape].rows * shapes[shape].columns,
			   .data = kinds_of_data[data],
			   .seed = number,
			   .rule = r->name };

	for (int i = 0; i < 256; i++)
		entry[i] = (float)(i - 128) / 128;
	t.step = (struct tsr_step){ .optimizer = r->optimizer,
				    .scalars = scalars_of(r),
				    .grad_dtype = dtypes[number % 3],
				    .rows = shapes[shape].rows,
				    .columns = shapes[shape].columns };
	t.step.work = must_have(malloc(tsr_step_work(&t.step) * sizeof(float)));
	t.step.coding[TSR_SLOT_WEIGHT] = coding_of(number % 2 ? "f32" : "bf16+ulp8", TSR_SCALE_E8M8,
						   1);
	t.step.coding[TSR_SLOT_MOMENTUM] = coding_of(momenta[number % COUNT_OF(momenta)],
						     TSR_SCALE_E8M8, TSR_GROUP_DEFAULT);
	t.step.coding[TSR_SLOT_MOMENTUM].codebook = entry;
	compare(&t);
	free(t.step.work);
}

static uint64_t check_matrices(const struct rule *r, bool few)
{
	uint64_t cases = 0;
	unsigned number = 0;

	for (size_t s = 0; s < COUNT_OF(shapes); s++) {
		for (size_t d = 0; d < COUNT_OF(kinds_of_data); d += few ? 3 : 1, cases++)
			run_matrix(r, s, d, number++);
	}
	return cases;
}

/* Factors so large that what such weights are decides all bits. */
static uint64_t check_empty_weights(void)
{
	uint64_t cases = 0;

	for (size_t i = 0; i < COUNT_OF(rules); i++, cases++) {
		const struct rule *r = &rules[i];
		struct trial t = {
			.n = 4096, .data = DATA_ZERO, .rule = r->name, .spoil = empty_weights
		};

		t.step = (struct tsr_step){ .optimizer = r->optimizer,
					    .order = r->order,
					    .scalars = scalars_of(r),
					    .grad_dtype = TSR_BF16 };
		t.step.scalars.l2 = 0x1p110f;
		t.step.scalars.keep = 0x1p110f;
		t.step.coding[TSR_SLOT_WEIGHT] = coding_of("bf16+ulp8", TSR_SCALE_E8M8, 1);
		if (has_momentum(r))
			t.step.coding[TSR_SLOT_MOMENTUM] = coding_of("softsign8", TSR_SCALE_E8M8,
								     TSR_GROUP_DEFAULT);
		if (has_variance(r))
			t.step.coding[TSR_SLOT_VARIANCE] = coding_of("sqrt8", TSR_SCALE_E8M8,
								     TSR_GROUP_DEFAULT);
		compare(&t);
	}
	return cases;
}

/* --- Blocks ------------------------------------------------------------------------------------ */

/* Steps by blocks; some of everything goes by turns. */
static uint64_t check_blocks(enum cases cases)
{
	static const uint32_t sizes[] = { 64, 48, 77, 256, 2, 1000, 31, 4096, 20000 };
	static const char *const kinds[] = { "bf16+ulp8", "bf16", "f32", "fp16+ulp8" };
	static const enum tsr_dtype dtypes[] = { TSR_BF16, TSR_F32, TSR_BF16, TSR_F16 };
	static const enum data data[] = { DATA_WEIGHTS, DATA_EDGES, DATA_SPECIAL, DATA_ZERO,
					  DATA_FINITE,	DATA_TINY,  DATA_HUGE,	  DATA_EQUAL };
	static float book[256];
	const unsigned count = cases == CASES_ALL ? 720 : 144;

	for (int i = 0; i < 256; i++) {
		const float x = (float)(i - 128) / 128;

		book[i] = i == 255 ? 1 : x * (0.25f + 0.75f * (x < 0 ? -x : x));
	}
	for (unsigned i = 0; i < count; i++) {
		const unsigned turn = i / COUNT_OF(sizes);
		const struct rule r = { .name = turn % 3 ? "Gefen" : "AdamW by blocks",
					.optimizer = turn % 3 ? TSR_OPTIMIZER_GEFEN
							      : TSR_OPTIMIZER_ADAMW,
					.decay = 0.1,
					.first = turn % 5 == 4 };
		struct trial t = { .n = turn % 2 ? 20011
						 : 17000 - 17000 % sizes[i % COUNT_OF(sizes)],
				   .shift = turn % 4 == 3 ? turn % 3 : 0,
				   .data = data[turn % COUNT_OF(data)],
				   .rule = r.name,
				   .seed = 1000 * (i + 1),
				   .spoil = turn % 7 == 6 ? damage : NULL };

		t.step = (struct tsr_step){ .optimizer = r.optimizer,
					    .scalars = scalars_of(&r),
					    .grad_dtype = dtypes[i % COUNT_OF(dtypes)] };
		t.step.coding[TSR_SLOT_WEIGHT] = coding_of(kinds[i % COUNT_OF(kinds)],
							   TSR_SCALE_E8M8, 1);
		t.step.coding[TSR_SLOT_MOMENTUM] = coding_of("gefen8", TSR_SCALE_F32,
							     sizes[i % COUNT_OF(sizes)]);
		t.step.coding[TSR_SLOT_MOMENTUM].codebook = book;
		t.step.coding[TSR_SLOT_VARIANCE] = coding_of("blockmean", TSR_SCALE_F32,
							     sizes[i % COUNT_OF(sizes)]);
		compare(&t);
	}
	return count;
}

void check_steps(enum cases cases)
{
	struct tsr_err err;

	values = must_have(malloc(ROOM));
	plane_new(&grad_plane);
	for (unsigned p = 0; p < TSR_SLOTS * TSR_PLANES_MAX; p++)
		plane_new(&planes[p / TSR_PLANES_MAX][p % TSR_PLANES_MAX]);
	must(tsr_gpu_alloc(gpu, sizeof(*device_report), "a report", (void **)&device_report, &err),
	     &err);
	for (size_t i = 0; i < COUNT_OF(rules); i++) {
		char claim[80];

		snprintf(claim, sizeof(claim), "steps of %s", rules[i].name);
		check_begin(claim);
		check_end(check_rule(&rules[i], cases == CASES_FEW));
	}
	for (size_t i = 0; i < COUNT_OF(matrix_rules); i++) {
		char claim[80];

		snprintf(claim, sizeof(claim), "steps of %s", matrix_rules[i].name);
		check_begin(claim);
		check_end(check_matrices(&matrix_rules[i], cases == CASES_FEW));
	}
	check_begin("steps of numbers that are hardly ordinary");
	check_end(check_edges(cases == CASES_FEW ? 2 : 40));
	check_begin("steps of weights that are zero but for their corrections");
	check_end(check_empty_weights());
	check_begin("steps by blocks");
	check_end(check_blocks(cases));
	tsr_gpu_free(gpu, device_report);
	for (unsigned p = 0; p < TSR_SLOTS * TSR_PLANES_MAX; p++)
		plane_free(&planes[p / TSR_PLANES_MAX][p % TSR_PLANES_MAX]);
	plane_free(&grad_plane);
	free(values);
}
