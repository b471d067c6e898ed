/* SPDX-License-Identifier: Apache-2.0 */
/* Learning from a checkpoint: one pass to find the blocks of all tensors, one to count what is in them. */
#include "tersor/learn.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/option_size.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "base/tiles.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"
#include "ckpt/tensor_tiles.h"
#include "codec/nonfinite.h"
#include "learn/histogram.h"
#include "learn/partition.h"
#include "text/named.h"

/* What results may take in memory. */
#define ARENA_MAX (UINT64_C(256) << 20)

/* The longest block of a momentum whose elements share no variance. */
#define LONE_BLOCK 256u

_Static_assert(TSR_LEARNED_BINS == TSR_HISTOGRAM_BINS, "one histogram");

/* The states of one parameter. */
struct unit {
	const struct tsr_tensor *shape; /* in which blocks are found */
	bool squared; /* they are found in its squares */
	const struct tsr_tensor *values; /* that are counted; NULL: none */
	struct tsr_partition *partition;
	bool spoiled; /* some element of one of them is not finite, or a variance negative */
};

struct learning {
	struct tsr_learned pub; /* what callers see; must be first */
	struct tsr_arena *arena;
	struct tsr_learned_tensor *tensors;
	const struct tsr_checkpoint *c;
	struct tsr_learn_options options;
	struct unit *units; /* per tensor of the result */
	struct tsr_tiles tiles;
	struct tsr_histogram tensor, all; /* of the tensor being counted; of all before */
	struct tsr_progress progress;
	struct tsr_err *err;
};

/* Memory of a job. */
struct scratch {
	struct tsr_read_scratch read;
	float x[TSR_TILE_ELEMENTS];
	struct tsr_partition_part *part;
	struct tsr_histogram histogram;
	uint64_t nbad; /* values that are not finite, or negative where there must be none */
};

struct tsr_learn_options tsr_learn_defaults(void)
{
	return (struct tsr_learn_options){ .size = sizeof(struct tsr_learn_options) };
}

/* --- What there is to learn from ---------------------------------------------------------------- */

static bool is_wanted(const struct learning *l, const struct tsr_tensor *t)
{
	const bool state = t->kind == TSR_KIND_MOMENTUM || t->kind == TSR_KIND_VARIANCE;

	return (l->options.gradients || state) && t->numel > 0 && tsr_tensor_has_f32(t);
}

/* The unit of tensors that share a name. */
static struct unit join(const struct learning *l, const struct tsr_named *list, size_t n)
{
	const struct tsr_tensor *momentum = NULL, *variance = NULL;
	struct unit u = { 0 };

	for (size_t i = n; i-- > 0;) {
		const struct tsr_tensor *t = &l->c->tensors[list[i].index];

		if (t->kind == TSR_KIND_VARIANCE && !l->options.gradients)
			variance = t;
		else
			momentum = t;
	}
	u.values = momentum;
	u.squared = !variance || (momentum && momentum->numel != variance->numel);
	u.shape = u.squared ? momentum : variance;
	return u;
}

static enum tsr_status add_unit(struct learning *l, const char *name, const struct unit *u)
{
	struct tsr_learned_tensor *t = &l->tensors[l->pub.ntensors];
	struct unit *to = &l->units[l->pub.ntensors];

	*to = *u;
	t->name = tsr_arena_string(l->arena, name);
	t->numel = u->shape->numel;
	if (!t->name)
		return tsr_fail_nomem(l->err, l->c->path);
	l->pub.ntensors++;
	return tsr_partition_new(t->numel, l->options.partition, l->c->path, &to->partition,
				 l->err);
}

static enum tsr_status list_units(struct learning *l, struct tsr_named *list)
{
	size_t n = 0;

	for (size_t i = 0; i < l->c->ntensors; i++) {
		const struct tsr_tensor *t = &l->c->tensors[i];

		if (is_wanted(l, t))
			list[n++] = (struct tsr_named){
				t->weight && !l->options.gradients ? t->weight : t->name, i
			};
	}
	if (!n)
		return tsr_fail(l->err, TSR_E_UNSUPPORTED, "%s: found no %s to learn from",
				l->c->path,
				l->options.gradients ? "gradients" : "momenta or variances");
	tsr_named_sort(list, n);
	l->tensors = tsr_arena_alloc(l->arena, n * sizeof(*l->tensors));
	l->units = calloc(n, sizeof(*l->units));
	if (!l->tensors || !l->units)
		return tsr_fail_nomem(l->err, l->c->path);
	for (size_t i = 0, end; i < n; i = end) {
		struct unit u;

		for (end = i + 1; end < n && strcmp(list[end].name, list[i].name) == 0;)
			end++;
		u = join(l, list + i, end - i);
		TSR_TRY(add_unit(l, list[i].name, &u));
	}
	return TSR_OK;
}

/* --- Passes over the data ----------------------------------------------------------------------- */

static void close_scratch(void *ctx, void *memory)
{
	struct scratch *s = memory;

	(void)ctx;
	tsr_partition_part_free(s->part);
}

static enum tsr_status open_scratch(void *ctx, const struct tsr_run *run, void *memory,
				    struct tsr_err *err)
{
	const struct learning *l = ctx;
	struct scratch *s = memory;

	(void)run;
	s->part = tsr_partition_part_new(TSR_TILE_ELEMENTS);
	return s->part ? TSR_OK : tsr_fail_nomem(err, l->c->path);
}

static enum tsr_status read_tile(const struct learning *l, const struct tsr_tensor *t,
				 const struct tsr_tile *tile, struct scratch *s,
				 struct tsr_err *err)
{
	for (size_t at = 0; at < tile->n; at += TSR_READ_MAX) {
		const size_t n = tile->n - at < TSR_READ_MAX ? tile->n - at : TSR_READ_MAX;

		TSR_TRY(tsr_tensor_read_f32(l->c, t, tile->first + at, n, &s->read, s->x + at,
					    err));
	}
	s->nbad = tsr_count_nonfinite(TSR_F32, s->x, tile->n * sizeof(*s->x));
	return TSR_OK;
}

static enum tsr_status find_blocks(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct learning *l = ctx;
	const struct tsr_tile tile = tsr_tiles_get(&l->tiles, job);
	const struct unit *u = &l->units[tile.tensor];
	struct scratch *s = scratch;

	TSR_TRY(read_tile(l, u->shape, &tile, s, err));
	for (size_t i = 0; i < tile.n; i++) {
		if (u->squared)
			s->x[i] *= s->x[i];
		else
			s->nbad += s->x[i] < 0.0f;
	}
	return tsr_partition_prepare(u->partition, tile.first, s->x, tile.n, s->part, err);
}

/* Nothing is learned of a gradient that is none; a state's tensor stays as it is. */
static enum tsr_status check_values(struct learning *l, const struct tsr_tile *tile, uint64_t nbad,
				    struct tsr_err *err)
{
	if (nbad && l->options.gradients)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found %" PRIu64
				" values that are not finite, expected none in gradients to learn "
				"from",
				l->c->path, l->tensors[tile->tensor].name, nbad);
	if (nbad)
		l->units[tile->tensor].spoiled = true;
	return TSR_OK;
}

static enum tsr_status keep_candidates(struct learning *l, const struct tsr_partition *p,
				       struct tsr_learned_tensor *t, struct tsr_err *err)
{
	struct tsr_learned_candidate *list;
	uint64_t length;
	double score;
	size_t n = 0;

	while (tsr_partition_candidate(p, n, &length, &score))
		n++;
	TSR_TRY(TSR_ARENA_NEW(&list, n, l->arena, tsr_fail_nomem(err, l->c->path)));
	for (size_t i = 0; i < n; i++)
		tsr_partition_candidate(p, i, &list[i].length, &list[i].score);
	t->ncandidates = n;
	t->candidates = list;
	return TSR_OK;
}

static enum tsr_status add_blocks(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct learning *l = ctx;
	const struct scratch *s = scratch;
	const struct tsr_tile tile = tsr_tiles_get(&l->tiles, job);
	struct unit *u = &l->units[tile.tensor];
	struct tsr_learned_tensor *t = &l->tensors[tile.tensor];

	TSR_TRY(check_values(l, &tile, s->nbad, err));
	tsr_partition_add(u->partition, s->part);
	if (tile.last) {
		t->period = u->spoiled ? 1 : (uint32_t)tsr_partition_period(u->partition);
		t->block = t->period > 1 ? t->period
					 : (uint32_t)tsr_largest_divisor(t->numel, LONE_BLOCK);
		TSR_TRY(keep_candidates(l, u->partition, t, err));
		free(u->partition);
		u->partition = NULL;
	}
	return tsr_progress_add(&l->progress, tile.n * sizeof(float), err);
}

/* Gefen's program counts by periods: of a tensor with period 1 every value is -1, 0 or 1. */
static uint32_t counted_block(const struct learning *l, size_t tensor)
{
	return l->options.peer ? l->tensors[tensor].period : l->tensors[tensor].block;
}

static enum tsr_status count_values(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct learning *l = ctx;
	const struct tsr_tile tile = tsr_tiles_get(&l->tiles, job);
	const struct unit *u = &l->units[tile.tensor];
	struct scratch *s = scratch;

	s->nbad = 0;
	if (!u->values)
		return TSR_OK;
	s->histogram = (struct tsr_histogram){ .nonfinite = 0 };
	TSR_TRY(read_tile(l, u->values, &tile, s, err));
	tsr_histogram_add(&s->histogram, s->x, tile.n, counted_block(l, tile.tensor));
	return TSR_OK;
}

static enum tsr_status add_values(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct learning *l = ctx;
	const struct scratch *s = scratch;
	const struct tsr_tile tile = tsr_tiles_get(&l->tiles, job);
	struct unit *u = &l->units[tile.tensor];

	TSR_TRY(check_values(l, &tile, s->nbad, err));
	if (tile.first == 0)
		l->tensor = (struct tsr_histogram){ .nonfinite = 0 };
	if (u->values)
		tsr_histogram_merge(&l->tensor, &s->histogram);
	if (tile.last && u->values && !u->spoiled) {
		tsr_histogram_merge(&l->all, &l->tensor);
		l->tensors[tile.tensor].counted = true;
	}
	return tsr_progress_add(&l->progress, tile.n * sizeof(float), err);
}

static enum tsr_status run_pass(struct learning *l, bool counts)
{
	struct tsr_pipeline p = { .scratch_nbytes = sizeof(struct scratch),
				  .open = open_scratch,
				  .close = close_scratch,
				  .work = counts ? count_values : find_blocks,
				  .commit = counts ? add_values : add_blocks,
				  .ctx = l };

	tsr_tiles_free(&l->tiles);
	TSR_TRY(tsr_tiles_init(&l->tiles, l->pub.ntensors, l->c->path, l->err));
	for (size_t i = 0; i < l->pub.ntensors; i++) {
		const uint32_t block = counts ? counted_block(l, i) : 1;

		tsr_tiles_add(&l->tiles, counts && !l->units[i].values ? 0 : l->tensors[i].numel,
			      TSR_TILE_ELEMENTS - TSR_TILE_ELEMENTS % block);
	}
	p.njobs = l->tiles.njobs;
	return tsr_pipeline_run(&p, l->progress.run, l->err);
}

/* --- The codebook ------------------------------------------------------------------------------- */

/* The entry nearest to 0, of two the lower, becomes 0: zeros decode to zeros. */
static void put_zero(float *entry)
{
	unsigned best = 1;

	for (unsigned i = 2; i < TSR_CODEBOOK_ENTRIES - 1; i++) {
		const float near = entry[best] < 0 ? -entry[best] : entry[best];

		if ((entry[i] < 0 ? -entry[i] : entry[i]) < near)
			best = i;
	}
	entry[best] = 0.0f;
}

static enum tsr_status learn_codebook(struct learning *l)
{
	struct tsr_learned *r = &l->pub;

	memcpy(r->count, l->all.count, sizeof(r->count));
	r->nonempty = tsr_histogram_nonempty(r->count);
	if (r->nonempty < TSR_CODEBOOK_ENTRIES && !l->options.few)
		return tsr_fail_hint(l->err, TSR_E_UNSUPPORTED, TSR_HINT_FEW,
				     "%s: found values in %u bins of the histogram, expected at "
				     "least %d, as many as a codebook has entries",
				     l->c->path, r->nonempty, TSR_CODEBOOK_ENTRIES);
	TSR_TRY(tsr_optimum(r->count, TSR_LEARNED_BINS, TSR_CODEBOOK_ENTRIES, true, r->codebook,
			    l->err));
	if (!l->options.peer)
		put_zero(r->codebook);
	r->nmse = tsr_optimum_nmse(r->count, TSR_LEARNED_BINS, r->codebook, TSR_CODEBOOK_ENTRIES);
	return TSR_OK;
}

/* --- All of it ---------------------------------------------------------------------------------- */

static enum tsr_status learn(struct learning *l)
{
	TSR_OWNED(free) struct tsr_named *list = NULL;

	TSR_TRY(TSR_NEW(&list, l->c->ntensors + 1, l->err, l->c->path));
	TSR_TRY(list_units(l, list));
	for (size_t i = 0; i < l->pub.ntensors; i++) {
		const uint64_t nbytes = l->tensors[i].numel * sizeof(float);

		l->progress.total_nbytes += l->units[i].values ? 2 * nbytes : nbytes;
	}
	TSR_TRY(run_pass(l, false));
	TSR_TRY(run_pass(l, true));
	TSR_TRY(tsr_checkpoint_check_unchanged(l->c, l->err));
	return learn_codebook(l);
}

enum tsr_status tsr_learn(const struct tsr_checkpoint *c, const struct tsr_learn_options *options,
			  const struct tsr_run *run, struct tsr_learned **ret, struct tsr_err *err)
{
	struct tsr_learn_options o = tsr_learn_defaults();
	struct learning *l;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(TSR_NEW(&l, 1, err, c->path));
	l->c = c;
	l->options = o;
	l->err = err;
	l->progress = (struct tsr_progress){ .run = run, .what = c->path };
	l->arena = tsr_arena_new(ARENA_MAX);
	status = l->arena ? learn(l) : tsr_fail_nomem(err, c->path);
	for (size_t i = 0; l->units && i < l->pub.ntensors; i++)
		free(l->units[i].partition);
	free(l->units);
	l->units = NULL;
	tsr_tiles_free(&l->tiles);
	l->pub.tensors = l->tensors;
	return TSR_MADE(status, ret, &l->pub, tsr_learned_free);
}

void tsr_learned_free(struct tsr_learned *r)
{
	struct learning *l = (struct learning *)r;

	if (!l)
		return;
	tsr_arena_free(l->arena);
	free(l);
}

static int by_name(const void *name, const void *tensor)
{
	return strcmp(name, ((const struct tsr_learned_tensor *)tensor)->name);
}

const struct tsr_learned_tensor *tsr_learned_find(const struct tsr_learned *l, const char *name)
{
	return bsearch(name, l->tensors, l->ntensors, sizeof(*l->tensors), by_name);
}
