/* SPDX-License-Identifier: Apache-2.0 */
/* What measurements in memory share: arrays and timed runs, on the CPU or on a GPU. */
#ifndef TSR_BENCH_ENGINE_H
#define TSR_BENCH_ENGINE_H

#include <stddef.h>

#include "base/pipeline.h"
#include "bench/bench.h"
#include "gpu/gpu_work.h"

/* Elements that a job covers: a multiple of every power-of-two group. */
#define TSR_BENCH_TILE (UINT64_C(1) << 18)

#define TSR_BENCH_ARRAYS_MAX 16

struct tsr_bench_engine {
	const struct tsr_run *run;
	unsigned repeats;
	double *seconds; /* room for @repeats */
	struct tsr_gpu *gpu; /* NULL: the CPU, and nothing of the next line */
	struct tsr_gpu_stream *stream;
	struct tsr_gpu_event *start, *stop;
	void *arrays[TSR_BENCH_ARRAYS_MAX];
	unsigned narrays;
};

/* What is run: jobs on the CPU's threads, or, with the same context, work that @append puts on the stream. */
struct tsr_bench_work {
	struct tsr_pipeline cpu;
	enum tsr_status (*append)(void *ctx, struct tsr_err *err);
};

/* Open what is to be measured, and say in @ret what it is; to be closed after a failure, too. */
enum tsr_status tsr_bench_open(struct tsr_bench_engine *e, const struct tsr_bench_options *o,
			       const struct tsr_run *run, struct tsr_bench *ret,
			       struct tsr_err *err);
void tsr_bench_close(struct tsr_bench_engine *e);

/* An array where the work is done, which has the last 256 bytes of it to spare; all are freed at once. */
enum tsr_status tsr_bench_alloc(struct tsr_bench_engine *e, uint64_t nbytes, void *array_ret,
				struct tsr_err *err);
void tsr_bench_free_arrays(struct tsr_bench_engine *e);

/* Copy to an array, and from one; done when they return. */
enum tsr_status tsr_bench_put(const struct tsr_bench_engine *e, void *array, const void *from,
			      uint64_t nbytes, struct tsr_err *err);
enum tsr_status tsr_bench_get(const struct tsr_bench_engine *e, void *to, const void *array,
			      uint64_t nbytes, struct tsr_err *err);

/* Run it once; median seconds of the repeats, after runs that do not count. */
enum tsr_status tsr_bench_run(const struct tsr_bench_engine *e, const struct tsr_bench_work *work,
			      struct tsr_err *err);
enum tsr_status tsr_bench_time(const struct tsr_bench_engine *e, const struct tsr_bench_work *work,
			       double *seconds_ret, struct tsr_err *err);

/* The median; sorts the array. */
double tsr_bench_median(double *seconds, unsigned n);

/* The next row. */
struct tsr_bench_row *tsr_bench_add(struct tsr_bench *ret, enum tsr_bench_table table,
				    const char *name);

/*
 * Elements @first to @first + @n - 1 of a weight, a momentum or a variance like those of a trained matrix,
 * with TSR_BENCH_COLUMNS columns, of which @first is a multiple: second moments are a row times a column
 * times noise.  Plane by plane they have about the entropy of a trained state.
 */
#define TSR_BENCH_COLUMNS 1024u
void tsr_bench_values(enum tsr_kind kind, uint64_t first, size_t n, float *x);

#endif
