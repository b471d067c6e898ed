/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps on the CPU: every bit pattern of a range through codecs, in tiles that threads take in turn. */
#include "tersor/sweep.h"

#include "base/fail.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "sweep/kernels.h"
#include "codec/math.h"

/* Bit patterns of a tile, aligned: they have one exponent field. */
#define TILE (UINT32_C(1) << 20)

struct sweeping {
	tsr_sweep_trip_fn *const *trips; /* by row of a codec, NULL where it has none */
	tsr_sweep_tally_fn *tally;
	struct tsr_sweep *sweep;
	uint64_t first_tile;
	struct tsr_progress progress;
};

/* A thread's memory for a tile. */
struct scratch {
	struct tsr_sweep_batch batch;
	unsigned exponent;
	uint32_t count;
	struct tsr_sweep_row rows[]; /* per codec */
};

/* --- Rows ------------------------------------------------------------------------------------- */

void tsr_sweep_row_add(struct tsr_sweep_row *into, const struct tsr_sweep_row *from)
{
	into->count += from->count;
	into->exact += from->exact;
	into->overflow += from->overflow;
	into->nan_in += from->nan_in;
	into->nan_out += from->nan_out;
	into->compared += from->compared;
	into->rel_sum[1] += from->rel_sum[1];
	into->rel_sum[1] += __builtin_add_overflow(into->rel_sum[0], from->rel_sum[0],
						   &into->rel_sum[0]);
	into->max_rel = tsr_max_magnitude(into->max_rel, from->max_rel);
	into->max_ulp = from->max_ulp > into->max_ulp ? from->max_ulp : into->max_ulp;
}

double tsr_sweep_row_mean(const struct tsr_sweep_row *row)
{
	const double sum = (double)row->rel_sum[1] * 0x1p64 + (double)row->rel_sum[0];

	return row->compared ? sum * 0x1p-47 / (double)row->compared : 0;
}

struct tsr_sweep_row tsr_sweep_finite(const struct tsr_sweep_result *r)
{
	struct tsr_sweep_row total = { 0 };

	for (unsigned i = 0; i + 1 < TSR_SWEEP_ROWS; i++)
		tsr_sweep_row_add(&total, &r->rows[i]);
	return total;
}

/* --- Tiles ------------------------------------------------------------------------------------ */

static void round_trip(const struct sweeping *w, unsigned codec, struct tsr_sweep_batch *s)
{
	struct tsr_coding coding = tsr_coding_default(w->sweep->results[codec].codec);
	tsr_sweep_trip_fn *const trip = w->trips[coding.codec->row];
	struct tsr_encode_report report = { 0 };
	void *out[TSR_PLANES_MAX];
	const void *in[TSR_PLANES_MAX];

	if (trip && tsr_exponent_bits(s->x[0]) != (int32_t)TSR_F32_INF) {
		trip(s, coding.codec);
		return;
	}
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		in[i] = out[i] = s->plane[i];
	coding.first = s->first;
	coding.codec->encode(&coding, s->x, TSR_SWEEP_BATCH, out, &report);
	coding.codec->decode(&coding, in, TSR_SWEEP_BATCH, s->y);
}

/* Bit patterns @from to @to of one batch.  All of it is encoded and decoded; these are counted. */
static void sweep_batch(const struct sweeping *w, struct scratch *s, uint32_t from, uint32_t to)
{
	const uint32_t start = from / TSR_SWEEP_BATCH * TSR_SWEEP_BATCH;
	const size_t n = to - start + 1;

	s->batch.first = start;
	s->batch.has_bf16 = s->batch.has_f16 = s->batch.has_random = false;
	for (uint32_t i = 0; i < TSR_SWEEP_BATCH; i++)
		s->batch.x[i] = tsr_f32_from_bits(start + i);
	for (unsigned i = 0; i < w->sweep->ncodecs; i++) {
		round_trip(w, i, &s->batch);
		w->tally(&s->batch, from - start, n, &s->rows[i]);
	}
}

static enum tsr_status tile_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct sweeping *w = ctx;
	struct scratch *s = scratch;
	const uint32_t start = (uint32_t)((w->first_tile + job) * TILE);
	const uint32_t first = w->sweep->first > start ? w->sweep->first : start;
	const uint32_t end = start + (TILE - 1);
	const uint32_t last = w->sweep->last < end ? w->sweep->last : end;

	(void)err;
	memset(s->rows, 0, w->sweep->ncodecs * sizeof(*s->rows));
	s->exponent = first >> 23 & 0xff;
	s->count = last - first + 1;
	for (uint64_t from = first; from <= last; from = (from | (TSR_SWEEP_BATCH - 1)) + 1) {
		const uint64_t to = from | (TSR_SWEEP_BATCH - 1);

		sweep_batch(w, s, (uint32_t)from, to < last ? (uint32_t)to : last);
	}
	return TSR_OK;
}

static enum tsr_status tile_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct sweeping *w = ctx;
	const struct scratch *s = scratch;

	(void)job;
	for (unsigned i = 0; i < w->sweep->ncodecs; i++)
		tsr_sweep_row_add(&w->sweep->results[i].rows[s->exponent], &s->rows[i]);
	return tsr_progress_add(&w->progress,
				(uint64_t)s->count * sizeof(float) * w->sweep->ncodecs, err);
}

/* --- A sweep ---------------------------------------------------------------------------------- */

static enum tsr_status run_tiles(struct sweeping *w, struct tsr_err *err)
{
	static tsr_sweep_trip_fn *const *const trips[] = TSR_ISA_VARIANTS(sweep_trips);
	static tsr_sweep_tally_fn *const tally[] = TSR_ISA_VARIANTS(sweep_tally);
	const struct tsr_sweep *s = w->sweep;
	struct tsr_pipeline pipeline = {
		.scratch_nbytes = sizeof(struct scratch) +
				  s->ncodecs * sizeof(struct tsr_sweep_row),
		.work = tile_work,
		.commit = tile_commit,
		.ctx = w,
	};

	w->trips = trips[tsr_isa_level()];
	w->tally = tally[tsr_isa_level()];
	w->first_tile = s->first / TILE;
	w->progress.total_nbytes = ((uint64_t)s->last - s->first + 1) * sizeof(float) * s->ncodecs;
	pipeline.njobs = s->last / TILE - w->first_tile + 1;
	return tsr_pipeline_run(&pipeline, w->progress.run, err);
}

enum tsr_status tsr_sweep_new(const struct tsr_codec *const *codecs, unsigned ncodecs,
			      uint32_t first, uint32_t last, struct tsr_sweep **ret,
			      struct tsr_err *err)
{
	TSR_OWNED(tsr_sweep_free) struct tsr_sweep *s = NULL;

	if (first > last)
		return tsr_fail(err, TSR_E_USAGE, "sweep: first is %08x, after the last, %08x",
				first, last);
	for (unsigned i = 0; i < ncodecs; i++) {
		if (codecs[i]->grouped)
			return tsr_fail(err, TSR_E_USAGE, "sweep: codec %s has scales",
					codecs[i]->name);
	}
	TSR_TRY(TSR_NEW(&s, 1, err, "sweep"));
	*s = (struct tsr_sweep){ .first = first, .last = last, .ncodecs = ncodecs };
	TSR_TRY(TSR_NEW(&s->results, ncodecs + 1, err, "sweep"));
	for (unsigned i = 0; i < ncodecs; i++)
		s->results[i].codec = codecs[i];
	return TSR_GIVE(ret, s);
}

enum tsr_status tsr_sweep_run(const struct tsr_codec *const *codecs, unsigned ncodecs,
			      uint32_t first, uint32_t last, const struct tsr_run *run,
			      struct tsr_sweep **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_sweep_free) struct tsr_sweep *s = NULL;
	struct sweeping w = { .progress = { .run = run, .what = "sweep" } };

	TSR_TRY(tsr_sweep_new(codecs, ncodecs, first, last, &s, err));
	w.sweep = s;
	TSR_TRY(run_tiles(&w, err));
	return TSR_GIVE(ret, s);
}

void tsr_sweep_free(struct tsr_sweep *s)
{
	if (!s)
		return;
	free(s->results);
	free(s);
}
