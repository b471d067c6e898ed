/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of speed, for `tersor bench`: rows of one table, each the median of several runs. */
#ifndef TSR_BENCH_BENCH_H
#define TSR_BENCH_BENCH_H

#include "render/document.h"
#include "tersor/run.h"
#include "tersor/status.h"

/* What is 0 is usual for the kind of measurement. */
struct tsr_bench_options {
	const unsigned *gpu; /* the index of the GPU to measure; NULL: the CPU */
	const char *codec; /* the only codec to measure; NULL: all of them, and steps */
	const char *path; /* the packed file whose planes are coded; NULL: a made state */
	const char *dir; /* where files are made */
	uint64_t elements; /* of an array */
	uint64_t file_nbytes; /* of the file, about */
	uint64_t repeats;
};

enum tsr_bench_table { TSR_BENCH_KERNELS, TSR_BENCH_STEPS, TSR_BENCH_PLANES, TSR_BENCH_FILES };

/*
 * A codec, a step of an optimizer, a plane that is coded, or a command on files.  Speeds count what is read
 * and written: of codecs the elements and their planes, of steps the gradient and twice the state.  Of
 * planes and files they count the bytes of the plane and of the FP32 checkpoint.
 */
struct tsr_bench_row {
	enum tsr_bench_table table;
	const char *name;
	uint64_t elements;
	double bytes_per_element;
	double coded_bytes_per_element; /* of planes */
	double gbps[2]; /* of codecs and planes: to encode, to decode; of others the first */
	uint64_t compared; /* of planes: pieces that were compared with the CPU's; 0 on the CPU */
};

#define TSR_BENCH_ROWS 96

struct tsr_bench {
	char device[256]; /* "cpu", or "cuda:0, " and what tsr_gpu_describe() says */
	unsigned threads; /* 0 on a GPU */
	const char *isa; /* NULL on a GPU */
	double copy_gbps; /* plain copying, as the rows count; 0: not measured */
	uint64_t nbytes, peak_rss_nbytes; /* of the checkpoint file; of the process */
	unsigned nrows;
	struct tsr_bench_row rows[TSR_BENCH_ROWS];
};

/* Measure codecs and steps on arrays in memory: on the CPU, or in device time on a GPU. */
enum tsr_status tsr_bench_arrays(const struct tsr_bench_options *o, const struct tsr_run *run,
				 struct tsr_bench *ret, struct tsr_err *err);

/*
 * Measure, in memory, coding the planes of a state; on a GPU planes are repeated to about the elements that
 * are asked for, and the first pieces of each are compared with the CPU's: TSR_E_FORMAT where bytes differ.
 * TSR_E_UNSUPPORTED for a file without packed weights, momenta or variances.
 */
enum tsr_status tsr_bench_planes(const struct tsr_bench_options *o, const struct tsr_run *run,
				 struct tsr_bench *ret, struct tsr_err *err);

/* Make a checkpoint, measure copying, packing, unpacking and verifying it, and remove everything again. */
enum tsr_status tsr_bench_files(const struct tsr_bench_options *o, const struct tsr_run *run,
				struct tsr_bench *ret, struct tsr_err *err);

/* A kind of measurement, and what is usual for it on the CPU and on a GPU. */
struct tsr_bench_kind {
	enum tsr_status (*measure)(const struct tsr_bench_options *o, const struct tsr_run *run,
				   struct tsr_bench *ret, struct tsr_err *err);
	void (*report)(struct tsr_report *r, const struct tsr_bench_options *o,
		       const struct tsr_bench *b);
	uint64_t elements[2];
	unsigned repeats[2];
};

extern const struct tsr_bench_kind tsr_bench_of_arrays, tsr_bench_of_planes, tsr_bench_of_files;

/* Measure; @o is completed. */
enum tsr_status tsr_bench_measure(const struct tsr_bench_kind *kind, struct tsr_bench_options *o,
				  const struct tsr_run *run, struct tsr_bench *ret,
				  struct tsr_err *err);

#endif
