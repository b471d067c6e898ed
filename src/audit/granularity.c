/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error of 8-bit floats for any tensor, by how many elements share a scale.
 *
 * A tensor is cut into tiles of whole blocks of every granularity, so a tile is all that its groups need;
 * only the scale of the whole tensor takes a pass over the data before.
 */
#include "tersor/granularity.h"

#include <math.h>

#include "audit/floats.h"
#include "audit/granularity_loops.h"
#include "audit/granularity_math.h"
#include "base/fail.h"
#include "base/option_size.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "base/tiles.h"
#include "ckpt/record_crc.h"
#include "ckpt/fingerprint.h"
#include "codec/measuring.h"
#include "parts/parted_pipeline.h"
#include "tersor/names.h"
#include "text/bytes.h"

/* Tiles have whole groups: their rows and columns are multiples of these, or what a tensor has left. */
#define BLOCK_ROWS 8u
#define BLOCK_COLUMNS 128u
#define TILE_ELEMENTS 65536u

#define SIZES(format) \
	{ format, "tensor", 0, 0 }, { format, "1x128", 1, 128 }, { format, "1x64", 1, 64 }, \
		{ format, "1x32", 1, 32 }, { format, "1x16", 1, 16 }, { format, "1x8", 1, 8 }, \
		{ format, "1x4", 1, 4 }, { format, "8x8", 8, 8 }, { format, "4x4", 4, 4 }, \
	{ \
		format, "2x2", 2, 2 \
	}

static const struct tsr_granularity granularities[TSR_GRANULARITY_COUNT] = { SIZES("e4m3"),
									     SIZES("e5m2") };

/* Of the formats, in their order. */
static const struct {
	enum tsr_table_set set;
	float largest;
} formats[TSR_GRANULARITY_FORMATS] = { { TSR_TABLES_E4M3, 448.0f }, { TSR_TABLES_E5M2, 57344.0f } };

static const char *const scale_names[TSR_GRANULARITY_SCALE_COUNT] = {
	[TSR_GRANULARITY_BF16] = "bf16",
	[TSR_GRANULARITY_F32] = "f32",
	[TSR_GRANULARITY_COAT] = "coat",
};

/* The outcome of tsr_granularity_measure(). */
struct tsr_granularities {
	struct tsr_checkpoint *c;
	struct tsr_granularity_tensor *tensors;
	size_t ntensors;
};

/* How a tensor is cut: its tiles go along a band of rows, then to the band below. */
struct cut {
	uint64_t tile_rows, tile_columns;
	uint64_t across; /* tiles side by side */
};

struct measuring {
	struct tsr_granularities *result;
	enum tsr_granularity_scale scale;
	struct tsr_fp8_table table[TSR_GRANULARITY_FORMATS];
	struct tsr_tiles tiles;
	struct tsr_progress progress;
	bool has_largest; /* the first pass is over */
	struct tsr_measure sum[TSR_GRANULARITY_COUNT]; /* of the tensor that is committed */
};

struct scratch {
	struct tsr_read_scratch read;
	struct tsr_tile tile;
	size_t nrows, ncolumns; /* of the tile */
	float x[TILE_ELEMENTS], y[TILE_ELEMENTS];
	/* of each group side by side, then of the elements of a row */
	float absmax[TILE_ELEMENTS], divisor[TILE_ELEMENTS], factor[TILE_ELEMENTS];
	float max;
	uint64_t nonfinite;
	struct tsr_measure measure[TSR_GRANULARITY_COUNT];
};

/* --- Names ------------------------------------------------------------------------------------- */

const struct tsr_granularity *tsr_granularity_get(unsigned index)
{
	return index < TSR_GRANULARITY_COUNT ? &granularities[index] : NULL;
}

const char *tsr_granularity_scale_name(enum tsr_granularity_scale scale)
{
	return scale_names[scale];
}

bool tsr_granularity_scale_find(const char *name, enum tsr_granularity_scale *ret)
{
	return TSR_FIND_NAME(name, scale_names, ret);
}

/* --- Tiles ------------------------------------------------------------------------------------- */

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static struct cut cut_of(const struct tsr_granularity_tensor *t)
{
	const uint64_t rows = t->rows < BLOCK_ROWS ? t->rows : BLOCK_ROWS;
	const uint64_t widest = TILE_ELEMENTS / rows / BLOCK_COLUMNS * BLOCK_COLUMNS;
	const uint64_t columns = t->columns < widest ? t->columns : widest;
	const uint64_t highest = TILE_ELEMENTS / columns / BLOCK_ROWS * BLOCK_ROWS;

	return (struct cut){ highest > rows ? highest : rows, columns,
			     ceil_div(t->columns, columns) };
}

static uint64_t ntiles_of(const struct tsr_granularity_tensor *t)
{
	struct cut cut;

	if (!t->floating || !t->rows || !t->columns || t->nonfinite)
		return 0;
	cut = cut_of(t);
	return cut.across * ceil_div(t->rows, cut.tile_rows);
}

/* The tile of a job, if it has one, and how large it is. */
static void find_tile(void *ctx, void *scratch, uint64_t job)
{
	const struct measuring *m = ctx;
	struct scratch *s = scratch;

	s->tile = tsr_tiles_get(&m->tiles, job);
	s->nrows = s->ncolumns = 0;
	if (s->tile.n) {
		const struct tsr_granularity_tensor *t = &m->result->tensors[s->tile.tensor];
		const struct cut cut = cut_of(t);
		const uint64_t below = t->rows - s->tile.first / cut.across * cut.tile_rows;
		const uint64_t right = t->columns - s->tile.first % cut.across * cut.tile_columns;

		s->nrows = (size_t)(below < cut.tile_rows ? below : cut.tile_rows);
		s->ncolumns = (size_t)(right < cut.tile_columns ? right : cut.tile_columns);
	}
}

/* The elements of a tile, row by row without gaps. */
static enum tsr_status read_tile(const struct measuring *m, struct scratch *s, struct tsr_err *err)
{
	const struct tsr_granularity_tensor *t = &m->result->tensors[s->tile.tensor];
	const struct cut cut = cut_of(t);
	const uint64_t at = s->tile.first / cut.across * cut.tile_rows * t->columns +
			    s->tile.first % cut.across * cut.tile_columns;

	if (cut.across == 1)
		return tsr_floats_read(m->result->c, t->tensor, at, s->nrows * s->ncolumns,
				       &s->read, s->x, err);
	for (size_t i = 0; i < s->nrows; i++)
		TSR_TRY(tsr_floats_read(m->result->c, t->tensor, at + i * t->columns, s->ncolumns,
					&s->read, s->x + i * s->ncolumns, err));
	return TSR_OK;
}

/* --- Errors ------------------------------------------------------------------------------------ */

/* What comes back of the tile, and its error. */
static void measure_granularity(const struct measuring *m, struct scratch *s, unsigned index)
{
	static tsr_column_max_fn *const column_max[] = TSR_ISA_VARIANTS(column_max);
	static tsr_through_fp8_fn *const through_fp8[] = TSR_ISA_VARIANTS(through_fp8);
	const struct tsr_granularity *g = &granularities[index];
	const size_t height = g->rows ? g->rows : s->nrows;
	const size_t width = g->columns ? g->columns : s->ncolumns;
	const size_t ngroups = (size_t)ceil_div(s->ncolumns, width);
	const struct tsr_fp8_table *table = &m->table[index / TSR_GRANULARITY_SIZES];

	for (size_t top = 0; top < s->nrows; top += height) {
		const size_t end = height < s->nrows - top ? top + height : s->nrows;

		memset(s->absmax, 0, ngroups * sizeof(*s->absmax));
		for (size_t row = top; g->rows && row < end; row++)
			column_max[tsr_isa_level()](s->x + row * s->ncolumns, s->ncolumns, width,
						    s->absmax);
		if (!g->rows)
			s->absmax[0] = (float)m->result->tensors[s->tile.tensor].max;
		/* The scales of elements of a row from the largest magnitudes of its groups. */
		for (size_t first = 0, group = 0; first < s->ncolumns; first += width, group++) {
			const struct tsr_granularity_scales scales = tsr_granularity_scales_of(
				m->scale, s->absmax[group], table->largest, !g->rows);
			const size_t left = s->ncolumns - first;

			for (size_t i = 0; i < (width < left ? width : left); i++) {
				s->divisor[first + i] = scales.divisor;
				s->factor[first + i] = scales.factor;
			}
		}
		for (size_t row = top; row < end; row++)
			through_fp8[tsr_isa_level()](table, s->x + row * s->ncolumns, s->ncolumns,
						     s->divisor, s->factor,
						     s->y + row * s->ncolumns);
	}
	tsr_measure_add(&s->measure[index], s->x, s->y, s->nrows * s->ncolumns);
}

/* --- Jobs --------------------------------------------------------------------------------------- */

/* In the first pass the largest magnitude, in the second the errors. */
static enum tsr_status measure_tile(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct measuring *m = ctx;
	struct scratch *s = scratch;

	memset(s->measure, 0, sizeof(s->measure));
	s->max = 0.0f;
	s->nonfinite = 0;
	find_tile(ctx, s, job);
	if (!s->tile.n)
		return TSR_OK;
	TSR_TRY(read_tile(m, s, err));
	for (size_t i = 0; !m->has_largest && i < s->nrows * s->ncolumns; i++) {
		s->nonfinite += tsr_exponent_bits(s->x[i]) == (int32_t)TSR_F32_INF;
		s->max = tsr_max_magnitude(s->max, tsr_abs(s->x[i]));
	}
	for (unsigned i = 0; m->has_largest && i < TSR_GRANULARITY_COUNT; i++)
		measure_granularity(m, s, i);
	return TSR_OK;
}

/* --- In parts ---------------------------------------------------------------------------------- */

static uint64_t weigh_tile(void *ctx, uint64_t job)
{
	const struct measuring *m = ctx;
	const struct tsr_tile tile = tsr_tiles_get(&m->tiles, job);
	const struct tsr_granularity_tensor *t = &m->result->tensors[tile.tensor];

	return tile.n ? t->rows * t->columns * sizeof(float) / ntiles_of(t) : 1;
}

/* --- Of a tensor ------------------------------------------------------------------------------- */

/* Codes of a byte, and scales of 2 or 4. */
static uint64_t nbytes_of(const struct measuring *m, const struct tsr_granularity_tensor *t,
			  const struct tsr_granularity *g)
{
	const uint64_t rows = g->rows ? g->rows : t->rows;
	const uint64_t columns = g->columns ? g->columns : t->columns;
	const uint64_t size = m->scale == TSR_GRANULARITY_F32 ? 4 : 2;

	return t->rows * t->columns +
	       size * ceil_div(t->rows, rows) * ceil_div(t->columns, columns);
}

static void finish_tensor(struct measuring *m, struct tsr_granularity_tensor *t)
{
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++) {
		const struct tsr_measure *sum = &m->sum[i];

		t->error[i] = (struct tsr_granularity_error){
			tsr_measure_value(sum, TSR_METRIC_NMSE), (double)sum->max_abs, sum->flushed,
			nbytes_of(m, t, &granularities[i])
		};
	}
	memset(m->sum, 0, sizeof(m->sum));
}

static enum tsr_status commit_tile(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct measuring *m = ctx;
	const struct scratch *s = scratch;
	struct tsr_granularity_tensor *t = &m->result->tensors[s->tile.tensor];

	(void)job;
	if (!s->tile.n)
		return TSR_OK;
	if (!m->has_largest) {
		t->nonfinite += s->nonfinite;
		t->max = fmax(t->max, (double)s->max);
	} else {
		for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++)
			tsr_measure_merge(&m->sum[i], &s->measure[i]);
		if (s->tile.last)
			finish_tensor(m, t);
	}
	return tsr_progress_add(&m->progress, s->nrows * s->ncolumns * sizeof(float), err);
}

/* --- All tensors ------------------------------------------------------------------------------- */

/*
 * One pass over all tiles.  That for errors is done in parts; the largest magnitudes every part, and who
 * joins, finds itself, since errors need them all.
 */
static enum tsr_status run_pass(struct measuring *m, struct tsr_err *err)
{
	struct tsr_pipeline pipeline = { .scratch_nbytes = sizeof(struct scratch),
					 .work = measure_tile,
					 .commit = commit_tile,
					 .ctx = m };
	const struct tsr_parted p = { .pipeline = &pipeline,
				      .what = m->result->c->path,
				      .weigh = weigh_tile,
				      .found_at = offsetof(struct scratch, measure),
				      .found_nbytes = sizeof(((struct scratch *)NULL)->measure),
				      .restore = find_tile,
				      .keeps_failures = true };
	const struct tsr_granularities *g = m->result;

	tsr_tiles_free(&m->tiles);
	TSR_TRY(tsr_tiles_init(&m->tiles, g->ntensors, g->c->path, err));
	for (size_t i = 0; i < g->ntensors; i++)
		tsr_tiles_add(&m->tiles, ntiles_of(&g->tensors[i]), 1);
	pipeline.njobs = m->tiles.njobs;
	return m->has_largest ? tsr_parted_run(&p, m->progress.run, err)
			      : tsr_pipeline_run(&pipeline, m->progress.run, err);
}

/* Rows are all dimensions but the last. */
static void add_tensor(struct measuring *m, const struct tsr_tensor *t)
{
	struct tsr_granularity_tensor *added = &m->result->tensors[m->result->ntensors++];
	const uint64_t columns = t->rank ? t->shape[t->rank - 1] : 1;

	*added = (struct tsr_granularity_tensor){ .tensor = t,
						  .floating = tsr_tensor_is_floating(t),
						  .rows = columns ? t->numel / columns : 0,
						  .columns = columns };
	if (added->floating)
		m->progress.total_nbytes += 2 * t->numel * sizeof(float);
}

static enum tsr_status measure_all(struct measuring *m, unsigned kinds, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = m->result->c;
	struct tsr_granularities *g;

	m->progress.what = c->path;
	for (unsigned i = 0; i < TSR_GRANULARITY_FORMATS; i++) {
		const struct tsr_tables *tables = tsr_tables_get(formats[i].set);

		m->table[i] = (struct tsr_fp8_table){ &tables->row[0],
						      tables->entry + tables->row[0].first,
						      formats[i].largest };
	}
	g = m->result;
	if (kinds)
		TSR_TRY(tsr_names_assign(g->c, NULL, 0, err));
	TSR_TRY(TSR_NEW(&g->tensors, g->c->ntensors + 1, err, g->c->path));
	for (size_t i = 0; i < g->c->ntensors; i++) {
		if (!kinds || (g->c->tensors[i].kind & kinds))
			add_tensor(m, &g->c->tensors[i]);
	}
	TSR_TRY(g->ntensors ? TSR_OK
			    : tsr_fail(err, TSR_E_USAGE, "%s: no tensor of %s", g->c->path,
				       kinds ? "these kinds" : "any kind"));
	TSR_TRY(tsr_inputs_name((const struct tsr_checkpoint *const[]){ c }, 1, 0, m->progress.run,
				err));
	TSR_TRY(tsr_records_check_all(c, m->progress.run, err));
	TSR_TRY(run_pass(m, err));
	m->has_largest = true;
	TSR_TRY(run_pass(m, err));
	TSR_TRY(tsr_checkpoint_check_unchanged(c, err));
	return m->progress.run ? tsr_part_end(m->progress.run->parts, err) : TSR_OK;
}

struct tsr_granularity_options tsr_granularity_defaults(void)
{
	return (struct tsr_granularity_options){ .size = sizeof(struct tsr_granularity_options) };
}

enum tsr_status tsr_granularity_measure(const char *const *paths, unsigned npaths,
					const struct tsr_granularity_options *options,
					const struct tsr_run *run, struct tsr_granularities **ret,
					struct tsr_err *err)
{
	struct tsr_granularity_options o = tsr_granularity_defaults();
	struct measuring *m;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(TSR_NEW(&m, 1, err, paths[0]));
	m->progress.run = run;
	m->scale = o.scale;
	status = TSR_NEW(&m->result, 1, err, paths[0]);
	TSR_THEN(status, tsr_checkpoint_open(paths, npaths, o.open, &m->result->c, err));
	TSR_THEN(status, measure_all(m, o.kinds, err));
	tsr_tiles_free(&m->tiles);
	status = TSR_MADE(status, ret, m->result, tsr_granularities_free);
	free(m);
	return status;
}

void tsr_granularities_free(struct tsr_granularities *g)
{
	if (!g)
		return;
	tsr_checkpoint_close(g->c);
	free(g->tensors);
	free(g);
}

const struct tsr_checkpoint *tsr_granularities_checkpoint(const struct tsr_granularities *g)
{
	return g->c;
}

size_t tsr_granularities_ntensors(const struct tsr_granularities *g)
{
	return g->ntensors;
}

const struct tsr_granularity_tensor *tsr_granularities_tensor(const struct tsr_granularities *g,
							      size_t index)
{
	return index < g->ntensors ? &g->tensors[index] : NULL;
}
