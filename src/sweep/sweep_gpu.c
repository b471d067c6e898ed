/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps on GPUs: each takes a part of the range, and the CPU what is left at its ends. */
#include "base/fail.h"
#include "base/progress.h"
#include "sweep/kernels.h"
#include "gpu/gpu_work.h"
#include "tersor/sweep.h"

#define ROWS_NBYTES (TSR_SWEEP_ROWS * sizeof(struct tsr_sweep_row))

/* A GPU and its part of the range. */
struct worker {
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *stream;
	struct tsr_gpu_event *done; /* with the codec before this one */
	struct tsr_sweep_row *rows; /* per codec and exponent field, in device memory */
	uint64_t first, n;
};

struct sweeping {
	const struct tsr_codec *const *codecs;
	const struct tsr_run *run;
	struct worker *workers;
	unsigned nworkers;
	struct tsr_sweep_row *found; /* of one GPU */
	struct tsr_sweep *sweep; /* of these codecs, and the whole range */
};

/* --- GPUs -------------------------------------------------------------------------------------- */

/* On failure, worker_free() frees what was allocated. */
static enum tsr_status worker_open(struct worker *w, unsigned index, unsigned ncodecs,
				   struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_open(index, &w->gpu, err));
	TSR_TRY(tsr_gpu_stream_new(w->gpu, &w->stream, err));
	TSR_TRY(tsr_gpu_event_new(w->gpu, &w->done, err));
	TSR_TRY(tsr_gpu_alloc(w->gpu, ncodecs * ROWS_NBYTES, "a sweep", (void **)&w->rows, err));
	return tsr_gpu_zero(w->stream, w->rows, ncodecs * ROWS_NBYTES, err);
}

static void worker_free(struct worker *w)
{
	if (!w->gpu)
		return;
	tsr_gpu_stream_free(w->stream);
	tsr_gpu_event_free(w->done);
	tsr_gpu_free(w->gpu, w->rows);
	tsr_gpu_close(w->gpu);
}

/* The whole batches from @begin to @end, in parts that differ by one batch at most. */
static void share(const struct sweeping *s, uint64_t begin, uint64_t end)
{
	const uint64_t nbatches = (end - begin) / TSR_GPU_SWEEP_BATCH;

	for (unsigned i = 0; i < s->nworkers; i++) {
		const uint64_t from = nbatches * i / s->nworkers,
			       to = nbatches * (i + 1) / s->nworkers;

		s->workers[i].first = begin + from * TSR_GPU_SWEEP_BATCH;
		s->workers[i].n = (to - from) * TSR_GPU_SWEEP_BATCH;
	}
}

/* The next codec is started before the last one is waited for: the GPUs always have work. */
static enum tsr_status run_codecs(const struct sweeping *s, struct tsr_err *err)
{
	const uint64_t nbytes = ((uint64_t)s->sweep->last - s->sweep->first + 1) * sizeof(float);
	struct tsr_progress progress = { .run = s->run,
					 .what = "sweep",
					 .total_nbytes = s->sweep->ncodecs * nbytes };

	for (unsigned c = 0; c < s->sweep->ncodecs; c++) {
		for (unsigned i = 0; i < s->nworkers; i++)
			TSR_TRY(tsr_gpu_record(s->workers[i].stream, s->workers[i].done, err));
		for (unsigned i = 0; i < s->nworkers; i++) {
			const struct worker *w = &s->workers[i];

			TSR_TRY(tsr_gpu_sweep(w->stream, s->codecs[c], (uint32_t)w->first, w->n,
					      w->rows + (size_t)c * TSR_SWEEP_ROWS, err));
		}
		for (unsigned i = 0; i < s->nworkers; i++)
			TSR_TRY(tsr_gpu_reach(s->workers[i].done, err));
		TSR_TRY(tsr_progress_add(&progress, c ? nbytes : 0, err));
	}
	for (unsigned i = 0; i < s->nworkers; i++)
		TSR_TRY(tsr_gpu_sync(s->workers[i].stream, err));
	return TSR_OK;
}

/* --- The ends of the range --------------------------------------------------------------------- */

static enum tsr_status add_cpu(const struct sweeping *s, uint64_t begin, uint64_t end,
			       struct tsr_err *err)
{
	const struct tsr_run quiet = { .threads = s->run ? s->run->threads : 0 };
	TSR_OWNED(tsr_sweep_free) struct tsr_sweep *part = NULL;

	if (begin == end)
		return TSR_OK;
	TSR_TRY(tsr_sweep_run(s->codecs, s->sweep->ncodecs, (uint32_t)begin, (uint32_t)(end - 1),
			      &quiet, &part, err));
	for (unsigned c = 0; c < s->sweep->ncodecs; c++)
		tsr_sweep_rows_add(s->sweep->results[c].rows, part->results[c].rows);
	return TSR_OK;
}

static enum tsr_status sweep_range(const struct sweeping *s, struct tsr_err *err)
{
	const uint64_t batch = TSR_GPU_SWEEP_BATCH, end = (uint64_t)s->sweep->last + 1;
	const uint64_t up = (s->sweep->first + batch - 1) / batch * batch,
		       down = end / batch * batch;
	const uint64_t middle = up < down ? up : end, middle_end = up < down ? down : end;

	share(s, middle, middle_end);
	TSR_TRY(add_cpu(s, s->sweep->first, middle, err));
	TSR_TRY(add_cpu(s, middle_end, end, err));
	TSR_TRY(run_codecs(s, err));
	for (unsigned i = 0; i < s->nworkers; i++) {
		const struct worker *w = &s->workers[i];

		TSR_TRY(tsr_gpu_copy(w->stream, s->found, w->rows, s->sweep->ncodecs * ROWS_NBYTES,
				     err));
		TSR_TRY(tsr_gpu_sync(w->stream, err));
		for (unsigned c = 0; c < s->sweep->ncodecs; c++) {
			struct tsr_sweep_result *r = &s->sweep->results[c];

			for (uint64_t at = w->first; at < w->first + w->n;
			     at += TSR_GPU_SWEEP_BATCH)
				r->rows[at >> 23 & 0xff].count += TSR_GPU_SWEEP_BATCH;
			tsr_sweep_rows_add(r->rows, s->found + (size_t)c * TSR_SWEEP_ROWS);
		}
	}
	return TSR_OK;
}

/* --- All of it --------------------------------------------------------------------------------- */

static enum tsr_status prepare(struct sweeping *s, const unsigned *gpus, struct tsr_err *err)
{
	const unsigned ncodecs = s->sweep->ncodecs;

	s->workers = calloc(s->nworkers, sizeof(*s->workers));
	s->found = malloc(ncodecs * ROWS_NBYTES + 1);
	if (!s->workers || !s->found)
		return tsr_fail_nomem(err, "sweep");
	for (unsigned i = 0; i < s->nworkers; i++)
		TSR_TRY(worker_open(&s->workers[i], gpus[i], ncodecs, err));
	return TSR_OK;
}

enum tsr_status tsr_sweep_run_gpu(const struct tsr_codec *const *codecs, unsigned ncodecs,
				  uint32_t first, uint32_t last, const unsigned *gpus,
				  unsigned ngpus, const struct tsr_run *run, struct tsr_sweep **ret,
				  struct tsr_err *err)
{
	struct sweeping s = { .codecs = codecs, .run = run, .nworkers = ngpus };
	enum tsr_status status;

	TSR_TRY(tsr_sweep_new(codecs, ncodecs, first, last, &s.sweep, err));
	status = prepare(&s, gpus, err);
	TSR_THEN(status, sweep_range(&s, err));
	for (unsigned i = 0; s.workers && i < ngpus; i++)
		worker_free(&s.workers[i]);
	free(s.workers);
	free(s.found);
	return TSR_MADE(status, ret, s.sweep, tsr_sweep_free);
}
