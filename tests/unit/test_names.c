/* SPDX-License-Identifier: Apache-2.0 */
/* What tensors are by their names: small checkpoints with the kind and weight of each tensor. */
#include <unistd.h>

#include "ckpt/checkpoint_model.h"
#include "names/params/parameters.h"
#include "tersor/names.h"
#include "unit.h"

struct row {
	const char *name;
	enum tsr_kind kind;
	const char *weight; /* that a momentum or variance belongs to */
	enum tsr_dtype dtype;
	unsigned rank;
	uint64_t shape[3];
};

/* F32 matrices, unless it is said otherwise. */
#define OF_SHAPE(n, k, w, ...) \
	{ \
		.name = n, .kind = TSR_KIND_##k, .weight = w, .dtype = TSR_F32, __VA_ARGS__ \
	}
#define TENSOR(n, k, w) OF_SHAPE(n, k, w, .rank = 2, .shape = { 2, 3 })
#define VECTOR(n, k, w, length) OF_SHAPE(n, k, w, .rank = 1, .shape = { length })
#define SCALAR(n, k) OF_SHAPE(n, k, NULL, .rank = 0)
#define TYPED(n, k, w, type) \
	{ \
		.name = n, .kind = TSR_KIND_##k, .weight = w, .dtype = TSR_##type, .rank = 2, \
		.shape = { \
			2, \
			4 \
		} \
	}
#define ROWS_MAX 12

struct layout {
	const char *about;
	struct row rows[ROWS_MAX]; /* the unused ones have no name */
};

/* --- Checkpoints ---------------------------------------------------------------------------- */

static char dir[] = "/tmp/tersor-names-XXXXXX";
static char paths[2][64];

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return 1;
	for (int i = 0; i < 2; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s/%d.safetensors", dir, i);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		unlink(paths[i]);
	return rmdir(dir);
}

static uint64_t nbytes_of(const struct row *r)
{
	uint64_t n = tsr_dtype_bits(r->dtype) / 8;

	for (unsigned d = 0; d < r->rank; d++)
		n *= r->shape[d];
	return n;
}

/* A safetensors file of @n tensors, all zero. */
static void write_file(const char *path, const struct row *rows, size_t n)
{
	char *header = malloc(200 * n + 20);
	uint64_t at = 0, padded;
	size_t len = 0;
	FILE *f = fopen(path, "wb");

	assert_non_null(header);
	assert_non_null(f);
	len += (size_t)sprintf(header + len, "{");
	for (size_t i = 0; i < n; i++) {
		len += (size_t)sprintf(header + len, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
				       i ? "," : "", rows[i].name, tsr_dtype_name(rows[i].dtype));
		for (unsigned d = 0; d < rows[i].rank; d++)
			len += (size_t)sprintf(header + len, "%s%llu", d ? "," : "",
					       (unsigned long long)rows[i].shape[d]);
		len += (size_t)sprintf(header + len, "],\"data_offsets\":[%llu,%llu]}",
				       (unsigned long long)at,
				       (unsigned long long)(at + nbytes_of(&rows[i])));
		at += nbytes_of(&rows[i]);
	}
	len += (size_t)sprintf(header + len, "}");
	padded = len;
	assert_int_equal(fwrite(&padded, sizeof(padded), 1, f), 1);
	assert_int_equal(fwrite(header, len, 1, f), 1);
	for (uint64_t i = 0; i < at; i++)
		assert_int_not_equal(putc(0, f), EOF);
	assert_int_equal(fclose(f), 0);
	free(header);
}

static size_t count_rows(const struct row *rows)
{
	size_t n = 0;

	while (n < ROWS_MAX && rows[n].name)
		n++;
	return n;
}

static struct tsr_checkpoint *open_rows(const struct row *rows, size_t n)
{
	const char *const one[] = { paths[0] };
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };

	write_file(paths[0], rows, n);
	if (tsr_checkpoint_open(one, 1, NULL, &c, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return c;
}

static void expect_kinds(const struct tsr_checkpoint *c, const struct row *rows, size_t n,
			 const char *about)
{
	assert_int_equal(c->ntensors, n);
	for (size_t i = 0; i < n; i++) {
		const struct tsr_tensor *t = tsr_checkpoint_find(c, rows[i].name);

		assert_non_null(t);
		if (t->kind != rows[i].kind)
			fail_msg("%s: %s: got %s, want %s", about, t->name, tsr_kind_name(t->kind),
				 tsr_kind_name(rows[i].kind));
		if (!t->weight != !rows[i].weight ||
		    (t->weight && strcmp(t->weight, rows[i].weight) != 0))
			fail_msg("%s: %s: belongs to %s, want %s", about, t->name,
				 t->weight ? t->weight : "none",
				 rows[i].weight ? rows[i].weight : "none");
	}
}

/* In the order given and in the opposite: names decide, not positions. */
static void expect_layout(const struct row *rows, size_t n, const struct tsr_name_rule *rules,
			  unsigned nrules, const char *about)
{
	struct row reversed[ROWS_MAX];

	for (int turn = 0; turn < 2; turn++) {
		struct tsr_err err = { 0 };
		struct tsr_checkpoint *c;

		for (size_t i = 0; i < n; i++)
			reversed[n - 1 - i] = rows[i];
		c = open_rows(turn ? reversed : rows, n);
		if (tsr_names_assign(c, rules, nrules, &err) != TSR_OK)
			fail_msg("%s: %s", about, err.msg);
		expect_kinds(c, rows, n, about);
		tsr_checkpoint_close(c);
	}
}

static void expect_error(const struct row *rows, const struct tsr_name_rule *rules, unsigned nrules,
			 enum tsr_status want, const char *const *words)
{
	struct tsr_checkpoint *c = open_rows(rows, count_rows(rows));
	struct tsr_err err = { 0 };

	assert_int_equal(tsr_names_assign(c, rules, nrules, &err), want);
	assert_int_equal(err.code, want);
	for (; *words; words++) {
		if (!strstr(err.msg, *words))
			fail_msg("no \"%s\" in \"%s\"", *words, err.msg);
	}
	assert_int_equal(tsr_names_assign(c, rules, nrules, NULL), want);
	tsr_checkpoint_close(c);
}

/* --- Names that frameworks give ------------------------------------------------------------- */

static const struct layout layouts[] = {
	{ "torch.optim beside the weight",
	  {
		  TENSOR("l.weight", WEIGHT, NULL),
		  TENSOR("l.weight.exp_avg", MOMENTUM, "l.weight"),
		  TENSOR("l.weight.exp_avg_sq", VARIANCE, "l.weight"),
		  TENSOR("l.weight.max_exp_avg_sq", VARIANCE, "l.weight"),
		  SCALAR("l.weight.step", OTHER),
		  TENSOR("l.other", WEIGHT, NULL),
		  TENSOR("l.other.momentum_buffer", MOMENTUM, "l.other"),
	  } },
	{ "state.<name>.<kind>",
	  {
		  TENSOR("w", WEIGHT, NULL),
		  TENSOR("state.w.exp_avg", MOMENTUM, "w"),
		  TENSOR("state.w.exp_avg_sq", VARIANCE, "w"),
		  SCALAR("state.w.step", OTHER),
	  } },
	{ "optimizer.state.<name>.<kind>",
	  {
		  TENSOR("a.b", WEIGHT, NULL),
		  TENSOR("optimizer.state.a.b.exp_avg", MOMENTUM, "a.b"),
		  TENSOR("optimizer.state.a.b.exp_avg_sq", VARIANCE, "a.b"),
		  VECTOR("optimizer.state.a.b.step", OTHER, NULL, 1),
		  VECTOR("optimizer.param_groups.a.b.lr", OTHER, NULL, 1),
		  TENSOR("optimizer.anything", OTHER, NULL),
	  } },
	{ "optim.state.<name>.<kind>",
	  {
		  TENSOR("w", WEIGHT, NULL),
		  TENSOR("optim.state.w.momentum_buffer", MOMENTUM, "w"),
		  TENSOR("optim.w.exp_avg_sq", VARIANCE, "w"),
	  } },
	{ "means, factors and other arrangements of states",
	  {
		  TENSOR("w", WEIGHT, NULL),
		  OF_SHAPE("optimizer.state.w.exp_avg_slow", OTHER, NULL, .rank = 3,
			   .shape = { 1, 1, 6 }),
		  VECTOR("optimizer.state.w.exp_avg", OTHER, NULL, 2),
		  OF_SHAPE("optimizer.state.w.exp_avg_sq", OTHER, NULL, .rank = 2,
			   .shape = { 2, 1 }),
	  } },
	{ "optimizer.state.<kind>.<name>",
	  {
		  TENSOR("a.b", WEIGHT, NULL),
		  TENSOR("optimizer.state.exp_avg.a.b", MOMENTUM, "a.b"),
		  TENSOR("optimizer.state.exp_avg_sq.a.b", VARIANCE, "a.b"),
		  VECTOR("optimizer.state.step.a.b", OTHER, NULL, 1),
	  } },
	{ "state.<kind>.<name>",
	  {
		  TENSOR("w", WEIGHT, NULL),
		  TENSOR("state.exp_avg.w", MOMENTUM, "w"),
		  TENSOR("state.m.w2", MOMENTUM, NULL),
		  TENSOR("state.v.w", VARIANCE, "w"),
	  } },
	{ "Megatron, chained",
	  {
		  TYPED("w", WEIGHT, NULL, BF16),
		  TYPED("e", WEIGHT, NULL, BF16),
		  TYPED("chained_0.optimizer.state.fp32_param.w", WEIGHT, NULL, F32),
		  TYPED("chained_0.optimizer.state.exp_avg.w", MOMENTUM, "w", F32),
		  TYPED("chained_0.optimizer.state.exp_avg_sq.w", VARIANCE, "w", F32),
		  TYPED("chained_12.optimizer.state.exp_avg.e", MOMENTUM, "e", F32),
		  TYPED("optimizer.chained_1.exp_avg_sq.e", VARIANCE, "e", F32),
	  } },
	{ "Megatron, masters only",
	  {
		  TENSOR("optimizer.state.fp32_param.w", WEIGHT, NULL),
		  TENSOR("optimizer.state.exp_avg.w", MOMENTUM, "optimizer.state.fp32_param.w"),
		  TENSOR("optimizer.state.exp_avg_sq.w", VARIANCE, "optimizer.state.fp32_param.w"),
	  } },
	{ "Megatron fsdp_dtensor",
	  {
		  TENSOR("module.w", WEIGHT, NULL),
		  TENSOR("optimizer.state.module.module.module.w.exp_avg", MOMENTUM, "module.w"),
		  TENSOR("optimizer.state.module.module.module.w.exp_avg_sq", VARIANCE, "module.w"),
	  } },
	{ "TransformerEngine",
	  {
		  TYPED("w", WEIGHT, NULL, BF16),
		  TYPED("w.master_param", WEIGHT, NULL, F32),
		  TYPED("w.exp_avg", MOMENTUM, "w", F32),
	  } },
	{ "DeepSpeed universal",
	  {
		  TENSOR("a.w.fp32", WEIGHT, NULL),
		  TENSOR("a.w.exp_avg", MOMENTUM, "a.w.fp32"),
		  TENSOR("a.w.exp_avg_sq", VARIANCE, "a.w.fp32"),
	  } },
	{ "Paddle",
	  {
		  TENSOR("embed.w_0", WEIGHT, NULL),
		  TENSOR("embed.w_0/moment1_0", MOMENTUM, "embed.w_0"),
		  TENSOR("embed.w_0/moment2_0", VARIANCE, "embed.w_0"),
		  VECTOR("embed.w_0/beta1_pow_acc_0", OTHER, NULL, 1),
		  VECTOR("embed.w_0/beta2_pow_acc_0", OTHER, NULL, 1),
	  } },
	{ "MLX",
	  {
		  TENSOR("l.w", WEIGHT, NULL),
		  TENSOR("l.w.m", MOMENTUM, "l.w"),
		  TENSOR("l.w.v", VARIANCE, "l.w"),
	  } },
	{ "Optax",
	  {
		  TENSOR("l.w", WEIGHT, NULL),
		  TENSOR("l.w.mu", MOMENTUM, "l.w"),
		  TENSOR("l.w.nu", VARIANCE, "l.w"),
	  } },
	{ "states without their weights",
	  {
		  TENSOR("x.exp_avg", MOMENTUM, NULL),
		  TENSOR("x.exp_avg_sq", VARIANCE, NULL),
		  TENSOR("optimizer.state.y.exp_avg", MOMENTUM, NULL),
		  TENSOR("optimizer.y.m2", OTHER, NULL),
		  TENSOR("optimizer.y.v", VARIANCE, NULL),
	  } },
	{ "short names that are parameters of their own",
	  {
		  TENSOR("attn.v", WEIGHT, NULL), /* nothing is called attn */
		  TENSOR("attn.m", WEIGHT, NULL),
		  VECTOR("norm", WEIGHT, NULL, 4),
		  VECTOR("norm.mu", WEIGHT, NULL, 5), /* not of the shape of norm */
		  VECTOR("norm.nu", VARIANCE, "norm", 4),
		  TENSOR("clock.step", WEIGHT, NULL),
		  TENSOR("m", WEIGHT, NULL),
		  TENSOR("v", WEIGHT, NULL),
	  } },
	{ "a weight that a short name takes for its state has states itself",
	  {
		  TENSOR("attn.v", WEIGHT, NULL),
		  TENSOR("attn.v.exp_avg", MOMENTUM, "attn.v"),
		  TENSOR("attn.v.exp_avg_sq", VARIANCE, "attn.v"),
		  TENSOR("state.attn.v.max_exp_avg_sq", VARIANCE, "attn.v"),
	  } },
	{ "wrappers in the model",
	  {
		  TENSOR("module._orig_mod.l.w", WEIGHT, NULL),
		  TENSOR("l.w.exp_avg", MOMENTUM, "module._orig_mod.l.w"),
		  TENSOR("a._checkpoint_wrapped_module.b", WEIGHT, NULL),
		  TENSOR("optimizer.state.a.b.exp_avg", MOMENTUM, "a._checkpoint_wrapped_module.b"),
		  TENSOR("_fsdp_wrapped_module.f._fsdp_wrapped_module.g", WEIGHT, NULL),
		  TENSOR("f.g.momentum_buffer", MOMENTUM,
			 "_fsdp_wrapped_module.f._fsdp_wrapped_module.g"),
	  } },
	{ "wrappers in the state",
	  {
		  TENSOR("l.w", WEIGHT, NULL),
		  TENSOR("state.module._orig_mod.l.w.exp_avg", MOMENTUM, "l.w"),
		  TENSOR("optimizer.state.exp_avg_sq.module.l.w", VARIANCE, "l.w"),
	  } },
	{ "model. in front",
	  {
		  TENSOR("model.l.w", WEIGHT, NULL),
		  TENSOR("optimizer.state.l.w.exp_avg", MOMENTUM, "model.l.w"),
		  TENSOR("model.model.k.w", WEIGHT, NULL),
		  TENSOR("model.k.w.exp_avg", MOMENTUM, "model.model.k.w"),
		  TENSOR("x.model.w", WEIGHT, NULL),
		  TENSOR("x.w.exp_avg", MOMENTUM, NULL), /* further in, it is a name */
	  } },
	{ "the very name before the name without wrappers",
	  {
		  TENSOR("l.w", WEIGHT, NULL),
		  TENSOR("module.l.w", WEIGHT, NULL),
		  TENSOR("l.w.exp_avg", MOMENTUM, "l.w"),
		  TENSOR("module.l.w.exp_avg", MOMENTUM, "module.l.w"),
	  } },
	{ "a last component that is a wrapper's name is a name",
	  {
		  TENSOR("a.module", WEIGHT, NULL),
		  TENSOR("a.module.exp_avg", MOMENTUM, "a.module"),
		  TENSOR("a", WEIGHT, NULL),
		  TENSOR("a.exp_avg", MOMENTUM, "a"),
	  } },
	{ "dtypes and ranks",
	  {
		  TYPED("bf16", WEIGHT, NULL, BF16),
		  TYPED("f16", WEIGHT, NULL, F16),
		  TYPED("f64", WEIGHT, NULL, F64),
		  TYPED("i64", OTHER, NULL, I64),
		  TYPED("bool", OTHER, NULL, BOOL),
		  TYPED("f8", OTHER, NULL, F8_E4M3),
		  TYPED("c64", OTHER, NULL, C64),
		  SCALAR("scalar", OTHER),
		  VECTOR("empty", WEIGHT, NULL, 0),
		  TYPED("bf16.exp_avg", MOMENTUM, "bf16", BF16),
	  } },
	{ "a state without elements fits any weight",
	  {
		  TENSOR("w", WEIGHT, NULL),
		  VECTOR("w.momentum_buffer", MOMENTUM, "w", 0),
	  } },
	{ "names that are hardly any",
	  {
		  TENSOR("exp_avg", WEIGHT, NULL),
		  TENSOR(".exp_avg", WEIGHT, NULL),
		  TENSOR("/moment1_0", WEIGHT, NULL),
		  TENSOR("optimizer.exp_avg", OTHER, NULL),
		  TENSOR("optimizer.", WEIGHT, NULL),
		  TENSOR("state.exp_avg.", OTHER, NULL),
		  TENSOR("x.exp_avg.", WEIGHT, NULL),
		  TENSOR("x.Exp_avg", WEIGHT, NULL),
		  TENSOR("x.exp_avg2", WEIGHT, NULL),
		  TENSOR("x_exp_avg", WEIGHT, NULL),
		  TENSOR("chained_x.exp_avg.y", WEIGHT, NULL),
		  TENSOR("optimizers.exp_avg.y", WEIGHT, NULL),
	  } },
};

static void test_layouts(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(layouts); i++)
		expect_layout(layouts[i].rows, count_rows(layouts[i].rows), NULL, 0,
			      layouts[i].about);
}

/* Each weight with its own states, found among many. */
static void test_many_weights(void **state)
{
	enum { N = 3000 };
	struct row *rows = calloc(3 * N, sizeof(*rows));
	char(*names)[64] = calloc(3 * N, sizeof(*names));
	struct tsr_checkpoint *c;

	(void)state;
	assert_non_null(rows);
	assert_non_null(names);
	for (size_t i = 0; i < N; i++) {
		static const char *const forms[] = {
			"model.layers.%zu.w",
			"layers.%zu.w.exp_avg",
			"optimizer.state.exp_avg_sq.layers.%zu.w",
		};

		for (size_t j = 0; j < 3; j++) {
			struct row row = TENSOR(NULL, WEIGHT, NULL);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
			snprintf(names[3 * i + j], sizeof(names[0]), forms[j], (i * 7919) % N);
#pragma GCC diagnostic pop
			row.name = names[3 * i + j];
			row.kind = j == 0   ? TSR_KIND_WEIGHT
				   : j == 1 ? TSR_KIND_MOMENTUM
					    : TSR_KIND_VARIANCE;
			row.weight = j ? names[3 * i] : NULL;
			rows[3 * i + j] = row;
		}
	}
	c = open_rows(rows, 3 * N);
	assert_int_equal(tsr_names_assign(c, NULL, 0, NULL), TSR_OK);
	expect_kinds(c, rows, 3 * N, "many weights");
	tsr_checkpoint_close(c);
	free(rows);
	free(names);
}

static void test_weights_and_states_in_two_files(void **state)
{
	static const struct row model[] = { TENSOR("w", WEIGHT, NULL) };
	static const struct row optimizer[] = {
		TENSOR("optimizer.state.w.exp_avg", MOMENTUM, "w"),
		TENSOR("w.exp_avg_sq", VARIANCE, "w"),
	};
	const char *const both[] = { paths[1], paths[0] };
	struct tsr_checkpoint *c = NULL;

	(void)state;
	write_file(paths[0], model, COUNT_OF(model));
	write_file(paths[1], optimizer, COUNT_OF(optimizer));
	assert_int_equal(tsr_checkpoint_open(both, 2, NULL, &c, NULL), TSR_OK);
	assert_int_equal(tsr_names_assign(c, NULL, 0, NULL), TSR_OK);
	assert_string_equal(tsr_checkpoint_find(c, "optimizer.state.w.exp_avg")->weight, "w");
	assert_string_equal(tsr_checkpoint_find(c, "w.exp_avg_sq")->weight, "w");
	tsr_checkpoint_close(c);
}

/* --- The table of parameters ---------------------------------------------------------------- */

static size_t index_of(const struct tsr_checkpoint *c, const char *name)
{
	return (size_t)(tsr_checkpoint_find(c, name) - c->tensors);
}

static void test_the_table_has_all_that_belongs_to_a_parameter(void **state)
{
	static const struct row rows[] = {
		TENSOR("module.w", WEIGHT, NULL),
		TENSOR("w.exp_avg", MOMENTUM, "w"),
		TENSOR("w.exp_avg_sq", VARIANCE, "w"),
		SCALAR("w.step", OTHER),
		TENSOR("w.max_exp_avg_sq", VARIANCE, "w"),
		TENSOR("w.master_param", WEIGHT, NULL),
		TENSOR("v", WEIGHT, NULL),
		TENSOR("x.exp_avg", MOMENTUM, NULL),
	};
	struct tsr_checkpoint *c = open_rows(rows, COUNT_OF(rows));
	bool kept[ROWS_MAX] = { false };
	struct tsr_parameters p = { .n = 0 };
	const struct tsr_parameter *own;
	size_t w, other;

	(void)state;
	assert_int_equal(tsr_parameters_find(c, NULL, 0, &p, NULL), TSR_OK);
	assert_int_equal(tsr_parameters_weight(&p, "model.w", &w, NULL), TSR_OK);
	assert_int_equal(w, index_of(c, "module.w"));
	assert_int_equal(tsr_parameters_weight(&p, "w.exp_avg", &other, NULL), TSR_OK);
	assert_true(other == SIZE_MAX && p.stray_state);
	own = &p.list[w];
	assert_int_equal(own->tensor[TSR_SLOT_WEIGHT], w);
	assert_int_equal(own->tensor[TSR_SLOT_MOMENTUM], index_of(c, "w.exp_avg"));
	assert_int_equal(own->tensor[TSR_SLOT_VARIANCE], index_of(c, "w.exp_avg_sq"));
	assert_int_equal(own->tensor[TSR_SLOT_MAX_VARIANCE], index_of(c, "w.max_exp_avg_sq"));
	assert_int_equal(own->master, index_of(c, "w.master_param"));
	assert_int_equal(own->counter, index_of(c, "w.step"));
	kept[index_of(c, "v")] = true;
	assert_int_equal(tsr_parameters_keep(&p, kept, NULL), TSR_OK);
	assert_true(p.n == 1 && p.of_weight[w] == SIZE_MAX && !p.of_weight[index_of(c, "v")]);
	assert_int_equal(p.list[0].tensor[TSR_SLOT_WEIGHT], index_of(c, "v"));
	assert_int_equal(p.list[0].tensor[TSR_SLOT_MOMENTUM], SIZE_MAX);
	tsr_parameters_free(&p);
	tsr_checkpoint_close(c);
}

static void test_a_tensor_without_dimensions_is_a_parameter_where_it_is_known(void **state)
{
	static const struct row rows[] = {
		TENSOR("w", WEIGHT, NULL),
		SCALAR("module.scale", OTHER),
		SCALAR("scale.exp_avg", OTHER),
	};
	struct tsr_checkpoint *c = open_rows(rows, COUNT_OF(rows));
	struct tsr_parameters p = { .n = 0 };
	size_t at;

	(void)state;
	assert_int_equal(tsr_parameters_find(c, NULL, 0, &p, NULL), TSR_OK);
	for (unsigned pass = 0; pass < 2; pass++) {
		assert_int_equal(tsr_parameters_weight(&p, "scale", &at, NULL), TSR_OK);
		assert_int_equal(at, pass ? index_of(c, "module.scale") : SIZE_MAX);
		assert_int_equal(tsr_parameters_know(&p, "scale", NULL), TSR_OK);
		assert_int_equal(tsr_parameters_know(&p, "w", NULL), TSR_OK);
		assert_int_equal(tsr_parameters_update(&p, NULL), TSR_OK);
	}
	assert_int_equal(c->tensors[at].kind, TSR_KIND_WEIGHT);
	assert_int_equal(p.list[at].tensor[TSR_SLOT_MOMENTUM], index_of(c, "scale.exp_avg"));
	tsr_parameters_free(&p);
	tsr_checkpoint_close(c);
}

/* --- What is never guessed ------------------------------------------------------------------ */

static void test_a_state_of_two_weights_is_an_error(void **state)
{
	static const struct row rows[ROWS_MAX] = {
		TENSOR("module.w", WEIGHT, NULL),
		TENSOR("_orig_mod.w", WEIGHT, NULL),
		TENSOR("w.exp_avg", MOMENTUM, NULL),
	};
	static const char *const words[] = { "w.exp_avg", "ambiguous", "module.w", "_orig_mod.w",
					     NULL };

	(void)state;
	expect_error(rows, NULL, 0, TSR_E_FORMAT, words);
}

/* A short name may be no state at all; but it is not the state of whichever weight comes first. */
static void test_a_short_name_of_two_weights_is_not_guessed(void **state)
{
	static const struct row rows[] = {
		TENSOR("module.w", WEIGHT, NULL),
		TENSOR("_orig_mod.w", WEIGHT, NULL),
		TENSOR("w.m", WEIGHT, NULL),
	};
	struct tsr_checkpoint *c = open_rows(rows, COUNT_OF(rows));

	(void)state;
	if (tsr_names_assign(c, NULL, 0, NULL) == TSR_OK)
		expect_kinds(c, rows, COUNT_OF(rows), "a short name");
	tsr_checkpoint_close(c);
}

static void test_two_claims_to_one_state_are_an_error(void **state)
{
	static const struct {
		struct row rows[ROWS_MAX];
		const char *words[4];
	} cases[] = {
		{ { TENSOR("w", WEIGHT, NULL), TENSOR("w.exp_avg", MOMENTUM, NULL),
		    TENSOR("w.momentum_buffer", MOMENTUM, NULL) },
		  { "w.exp_avg", "w.momentum_buffer", "momentum of w", NULL } },
		{ { TENSOR("w", WEIGHT, NULL), TENSOR("w.exp_avg_sq", VARIANCE, NULL),
		    TENSOR("w/moment2_0", VARIANCE, NULL) },
		  { "w.exp_avg_sq", "w/moment2_0", "variance of w", NULL } },
		{ { TENSOR("w", WEIGHT, NULL), TENSOR("module.w.exp_avg", MOMENTUM, NULL),
		    TENSOR("optimizer.state.exp_avg.w", MOMENTUM, NULL) },
		  { "module.w.exp_avg", "optimizer.state.exp_avg.w", "ambiguous", NULL } },
		{ { TENSOR("w", WEIGHT, NULL), TENSOR("w.m", MOMENTUM, NULL),
		    TENSOR("w.exp_avg", MOMENTUM, NULL) },
		  { "w.m", "w.exp_avg", "ambiguous", NULL } },
		{ { TENSOR("x.exp_avg", MOMENTUM, NULL),
		    TENSOR("state.x.exp_avg", MOMENTUM, NULL) },
		  { "x.exp_avg", "state.x.exp_avg", "ambiguous", NULL } },
		{ { TENSOR("x.exp_avg", MOMENTUM, NULL),
		    TENSOR("module.x.exp_avg", MOMENTUM, NULL) },
		  { "x.exp_avg", "module.x.exp_avg", "ambiguous", NULL } },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		expect_error(cases[i].rows, NULL, 0, TSR_E_FORMAT, cases[i].words);
}

static void test_a_state_of_another_shape_is_an_error(void **state)
{
	static const struct row cases[][ROWS_MAX] = {
		{ TENSOR("w", WEIGHT, NULL), VECTOR("w.exp_avg", MOMENTUM, NULL, 7) },
		{ TENSOR("w", WEIGHT, NULL),
		  OF_SHAPE("w.exp_avg", MOMENTUM, NULL, .rank = 2, .shape = { 3, 3 }) },
		{ TENSOR("w", WEIGHT, NULL),
		  OF_SHAPE("w.exp_avg", MOMENTUM, NULL, .rank = 3, .shape = { 2, 3, 2 }) },
		{ TENSOR("module.w", WEIGHT, NULL),
		  VECTOR("optimizer.state.exp_avg.w", MOMENTUM, NULL, 4) },
	};
	static const char *const words[] = { "exp_avg", "found shape [", "expected [2, 3]", "w",
					     NULL };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		expect_error(cases[i], NULL, 0, TSR_E_FORMAT, words);
}

/* --- Rules of the user ---------------------------------------------------------------------- */

static void test_rules_settle_kinds(void **state)
{
	static const struct row rows[] = {
		TENSOR("a.first", MOMENTUM, NULL),
		TENSOR("a.second", VARIANCE, NULL),
		TENSOR("b.w", OTHER, NULL),
		TENSOR("b.w.exp_avg", MOMENTUM, NULL), /* its weight is none any more */
		TENSOR("c.w", WEIGHT, NULL),
		TENSOR("c.w.exp_avg", WEIGHT, NULL),
		TENSOR("c.w.exp_avg.exp_avg_sq", VARIANCE, "c.w.exp_avg"),
		TENSOR("optimizer.kept", WEIGHT, NULL),
		TENSOR("d+e", WEIGHT, NULL),
	};
	static const struct tsr_name_rule rules[] = {
		{ "^a\\.first$", TSR_KIND_MOMENTUM },
		{ "^a\\.", TSR_KIND_VARIANCE }, /* not for a.first: the first rule counts */
		{ "b.w$", TSR_KIND_OTHER },
		{ "^c.w.exp_avg$|kept", TSR_KIND_WEIGHT },
		{ "nothing", TSR_KIND_MOMENTUM },
		{ "d\\+e", TSR_KIND_WEIGHT },
	};

	(void)state;
	expect_layout(rows, COUNT_OF(rows), rules, COUNT_OF(rules), "rules");
}

static void test_a_rule_settles_what_is_ambiguous(void **state)
{
	static const struct row rows[] = {
		TENSOR("w", WEIGHT, NULL),
		TENSOR("w.exp_avg", MOMENTUM, "w"),
		TENSOR("w.momentum_buffer", OTHER, NULL),
		TENSOR("module.u", WEIGHT, NULL),
		TENSOR("_orig_mod.u", OTHER, NULL),
		TENSOR("u.exp_avg", MOMENTUM, "module.u"),
		VECTOR("u.exp_avg_sq", OTHER, NULL, 2),
	};
	static const struct tsr_name_rule rules[] = {
		{ "momentum_buffer", TSR_KIND_OTHER },
		{ "^_orig_mod", TSR_KIND_OTHER },
		{ "u.exp_avg_sq", TSR_KIND_OTHER },
	};

	(void)state;
	expect_layout(rows, COUNT_OF(rows), rules, COUNT_OF(rules), "a settled ambiguity");
}

static void test_malformed_expressions(void **state)
{
	static const struct row rows[ROWS_MAX] = { TENSOR("w", WEIGHT, NULL) };
	static const char *const expressions[] = { "(", "[a", "a{2,1}", "[[:nope:]]", "a)(" };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(expressions); i++) {
		const struct tsr_name_rule rules[] = {
			{ "w", TSR_KIND_MOMENTUM },
			{ expressions[i], TSR_KIND_WEIGHT },
		};
		const char *const words[] = { "regular expression", expressions[i], NULL };

		expect_error(rows, rules, 2, TSR_E_USAGE, words);
	}
}

static void test_a_packed_file_knows_its_kinds(void **state)
{
	static const struct row rows[] = { TENSOR("w", OTHER, NULL),
					   TENSOR("w.exp_avg", OTHER, NULL) };
	static const struct tsr_name_rule rule = { ".", TSR_KIND_WEIGHT };
	struct tsr_checkpoint *c = open_rows(rows, COUNT_OF(rows));

	(void)state;
	c->packed = true;
	assert_int_equal(tsr_names_assign(c, &rule, 1, NULL), TSR_OK);
	expect_kinds(c, rows, COUNT_OF(rows), "a packed file");
	c->packed = false;
	tsr_checkpoint_close(c);
}

static void test_no_tensors_at_all(void **state)
{
	struct tsr_checkpoint *c = open_rows(NULL, 0);

	(void)state;
	assert_int_equal(tsr_names_assign(c, NULL, 0, NULL), TSR_OK);
	tsr_checkpoint_close(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_many_weights),
		cmocka_unit_test(test_weights_and_states_in_two_files),
		cmocka_unit_test(test_the_table_has_all_that_belongs_to_a_parameter),
		cmocka_unit_test(test_a_tensor_without_dimensions_is_a_parameter_where_it_is_known),
		cmocka_unit_test(test_a_state_of_two_weights_is_an_error),
		cmocka_unit_test(test_a_short_name_of_two_weights_is_not_guessed),
		cmocka_unit_test(test_two_claims_to_one_state_are_an_error),
		cmocka_unit_test(test_a_state_of_another_shape_is_an_error),
		cmocka_unit_test(test_rules_settle_kinds),
		cmocka_unit_test(test_a_rule_settles_what_is_ambiguous),
		cmocka_unit_test(test_malformed_expressions),
		cmocka_unit_test(test_a_packed_file_knows_its_kinds),
		cmocka_unit_test(test_no_tensors_at_all),
	};

	return cmocka_run_group_tests_name("names", tests, make_dir, remove_dir);
}
