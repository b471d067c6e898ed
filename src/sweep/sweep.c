/* SPDX-License-Identifier: Apache-2.0 */
/* Every bit pattern of a range through codecs, in blocks that threads take one after the other. */
#include "tersor/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "codec/isa.h"
#include "sweep/kernels.h"
#include "codec/math.h"

/* Bit patterns of a job, aligned: they have one exponent field. */
#define BLOCK (UINT32_C(1) << 20)

TSR_ISA_LIST(X_DECLARE_SWEEP)

static const struct level {
	const char *isa;
	const struct tsr_sweep_trip *trips;
	tsr_sweep_tally_fn *tally;
} levels[] = {
#define X(isa) { #isa, tsr_sweep_trips_##isa, tsr_sweep_tally_##isa },
	TSR_ISA_LIST(X)
#undef X
};

struct sweeping {
	const struct level *level;
	tsr_sweep_trip_fn **trips; /* per codec, NULL where it has none */
	const struct tsr_run *run;
	struct tsr_sweep *sweep;
	uint64_t first_block, done_nbytes, total_nbytes;
};

/* A thread's memory for a job. */
struct scratch {
	struct tsr_sweep_strip strip;
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

/* --- Blocks ----------------------------------------------------------------------------------- */

static void round_trip(const struct sweeping *w, unsigned codec, struct tsr_sweep_strip *s)
{
	struct tsr_coding coding = tsr_coding_default(w->sweep->results[codec].codec);
	struct tsr_encode_report report = { 0 };
	void *out[TSR_PLANES_MAX];
	const void *in[TSR_PLANES_MAX];

	if (w->trips[codec] && tsr_exponent_bits(s->x[0]) != (int32_t)TSR_F32_INF) {
		w->trips[codec](s, coding.codec);
		return;
	}
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		in[i] = out[i] = s->plane[i];
	coding.first = s->first;
	coding.codec->encode(&coding, s->x, TSR_SWEEP_STRIP, out, &report);
	coding.codec->decode(&coding, in, TSR_SWEEP_STRIP, s->y);
}

/* Bit patterns @from to @to of one strip.  All of it makes the trip; these are counted. */
static void sweep_strip(const struct sweeping *w, struct scratch *s, uint32_t from, uint32_t to)
{
	const uint32_t start = from / TSR_SWEEP_STRIP * TSR_SWEEP_STRIP;
	const size_t n = to - start + 1;

	s->strip.first = start;
	s->strip.has_bf16 = s->strip.has_fp16 = s->strip.has_random = false;
	for (uint32_t i = 0; i < TSR_SWEEP_STRIP; i++)
		s->strip.x[i] = tsr_f32_from_bits(start + i);
	for (unsigned i = 0; i < w->sweep->ncodecs; i++) {
		round_trip(w, i, &s->strip);
		w->level->tally(&s->strip, from - start, n, &s->rows[i]);
	}
}

static enum tsr_status block_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct sweeping *w = ctx;
	struct scratch *s = scratch;
	const uint32_t start = (uint32_t)((w->first_block + job) * BLOCK);
	const uint32_t first = w->sweep->first > start ? w->sweep->first : start;
	const uint32_t end = start + (BLOCK - 1);
	const uint32_t last = w->sweep->last < end ? w->sweep->last : end;

	(void)err;
	memset(s->rows, 0, w->sweep->ncodecs * sizeof(*s->rows));
	s->exponent = first >> 23 & 0xff;
	s->count = last - first + 1;
	for (uint64_t from = first; from <= last; from = (from | (TSR_SWEEP_STRIP - 1)) + 1) {
		const uint64_t to = from | (TSR_SWEEP_STRIP - 1);

		sweep_strip(w, s, (uint32_t)from, to < last ? (uint32_t)to : last);
	}
	return TSR_OK;
}

static enum tsr_status block_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct sweeping *w = ctx;
	const struct scratch *s = scratch;

	(void)job;
	for (unsigned i = 0; i < w->sweep->ncodecs; i++)
		tsr_sweep_row_add(&w->sweep->results[i].rows[s->exponent], &s->rows[i]);
	w->done_nbytes += (uint64_t)s->count * sizeof(float) * w->sweep->ncodecs;
	if (w->run && w->run->progress &&
	    !w->run->progress(w->run->ctx, w->done_nbytes, w->total_nbytes))
		return tsr_fail(err, TSR_E_CANCELLED, "sweep: cancelled");
	return TSR_OK;
}

/* --- A sweep ---------------------------------------------------------------------------------- */

static void choose_kernels(struct sweeping *w)
{
	size_t i = 0;

	while (strcmp(levels[i].isa, tsr_isa_name()) != 0)
		i++;
	w->level = &levels[i];
	for (unsigned c = 0; c < w->sweep->ncodecs; c++) {
		const struct tsr_codec *codec = w->sweep->results[c].codec;
		const char *name = codec->family ? codec->family : codec->name;

		for (const struct tsr_sweep_trip *t = w->level->trips; t->name; t++) {
			if (strcmp(t->name, name) == 0)
				w->trips[c] = t->run;
		}
	}
}

static enum tsr_status run_blocks(struct sweeping *w, struct tsr_err *err)
{
	const struct tsr_sweep *s = w->sweep;
	struct tsr_pipeline pipeline = {
		.scratch_nbytes = sizeof(struct scratch) +
				  s->ncodecs * sizeof(struct tsr_sweep_row),
		.work = block_work,
		.commit = block_commit,
		.ctx = w,
	};

	w->trips = calloc(s->ncodecs + 1, sizeof(*w->trips));
	if (!w->trips)
		return tsr_fail_nomem(err, "sweep");
	choose_kernels(w);
	w->first_block = s->first / BLOCK;
	w->total_nbytes = ((uint64_t)s->last - s->first + 1) * sizeof(float) * s->ncodecs;
	pipeline.njobs = s->last / BLOCK - w->first_block + 1;
	return tsr_pipeline_run(&pipeline, w->run, err);
}

enum tsr_status tsr_sweep_check(const struct tsr_codec *const *codecs, unsigned ncodecs,
				uint32_t first, uint32_t last, struct tsr_err *err)
{
	if (first > last)
		return tsr_fail(err, TSR_E_USAGE, "sweep: first is %08x, after the last, %08x",
				first, last);
	for (unsigned i = 0; i < ncodecs; i++) {
		if (codecs[i]->grouped)
			return tsr_fail(err, TSR_E_USAGE, "sweep: codec %s has scales",
					codecs[i]->name);
	}
	return TSR_OK;
}

enum tsr_status tsr_sweep_run(const struct tsr_codec *const *codecs, unsigned ncodecs,
			      uint32_t first, uint32_t last, const struct tsr_run *run,
			      struct tsr_sweep **ret, struct tsr_err *err)
{
	struct sweeping w = { .run = run };
	enum tsr_status status = tsr_sweep_check(codecs, ncodecs, first, last, err);

	if (status != TSR_OK)
		return status;
	w.sweep = calloc(1, sizeof(*w.sweep));
	if (!w.sweep)
		return tsr_fail_nomem(err, "sweep");
	*w.sweep = (struct tsr_sweep){ .first = first, .last = last, .ncodecs = ncodecs };
	w.sweep->results = calloc(ncodecs + 1, sizeof(*w.sweep->results));
	status = w.sweep->results ? TSR_OK : tsr_fail_nomem(err, "sweep");
	for (unsigned i = 0; i < ncodecs && status == TSR_OK; i++)
		w.sweep->results[i].codec = codecs[i];
	if (status == TSR_OK)
		status = run_blocks(&w, err);
	free(w.trips);
	if (status != TSR_OK) {
		tsr_sweep_free(w.sweep);
		return status;
	}
	*ret = w.sweep;
	return TSR_OK;
}

void tsr_sweep_free(struct tsr_sweep *s)
{
	if (!s)
		return;
	free(s->results);
	free(s);
}
