/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of speed, for `tersor bench`. */
#ifndef TSR_BENCH_BENCH_H
#define TSR_BENCH_BENCH_H

#include <stdbool.h>

#include "tersor/learn.h"
#include "tersor/run.h"
#include "tersor/status.h"

#define TSR_BENCH_KERNELS_MAX 64
#define TSR_BENCH_STEPS_MAX 16
#define TSR_BENCH_PLANES 4
#define TSR_BENCH_CODED (TSR_BENCH_PLANES + 1) /* a GPU codes variances with contexts, too */

/* Speeds count the bytes that must be moved: those read plus those written. */
struct tsr_bench_kernel {
	const char *name;
	double bytes_per_element; /* 4, and those of the planes */
	double encode_gbps, decode_gbps;
};

/* A step of an optimizer: speeds count the gradient read, and the state read and written. */
struct tsr_bench_step {
	const char *name;
	double bytes_per_element;
	double gbps;
};

struct tsr_bench_kernels {
	char device[256]; /* "cpu", or "cuda:0, " and what tsr_gpu_describe() says */
	unsigned threads; /* 0 on a GPU */
	const char *isa; /* NULL on a GPU */
	double copy_gbps; /* copying the same elements: memcpy with the same threads; on the GPU */
	unsigned nkernels;
	struct tsr_bench_kernel kernels[TSR_BENCH_KERNELS_MAX];
	unsigned nsteps; /* 0 if a codec was chosen */
	struct tsr_bench_step steps[TSR_BENCH_STEPS_MAX];
};

/* Measure one codec (NULL: all of them, and the steps) on @elements values in memory. */
enum tsr_status tsr_bench_kernels(const char *codec, uint64_t elements, unsigned repeats,
				  const struct tsr_run *run, struct tsr_bench_kernels *ret,
				  struct tsr_err *err);

/*
 * The same on GPU @index, in device time.  Codecs without kernels are skipped; choosing one is an
 * error.
 */
enum tsr_status tsr_bench_kernels_gpu(unsigned index, const char *codec, uint64_t elements,
				      unsigned repeats, const struct tsr_run *run,
				      struct tsr_bench_kernels *ret, struct tsr_err *err);

/* Speeds count the bytes of the FP32 checkpoint. */
struct tsr_bench_files {
	unsigned threads;
	uint64_t nbytes;
	double copy_gbps, pack_gbps, unpack_gbps, verify_gbps;
	uint64_t peak_rss_nbytes;
};

/* Make a checkpoint of about @nbytes in directory @dir, measure, and remove everything again. */
enum tsr_status tsr_bench_files(const char *dir, uint64_t nbytes, unsigned repeats,
				const struct tsr_run *run, struct tsr_bench_files *ret,
				struct tsr_err *err);

/* A plane that is coded, and decoded again: speeds count the bytes of the plane. */
struct tsr_bench_plane {
	const char *name;
	uint64_t elements; /* 0: there are none, and nothing below is set */
	double bytes_per_element, coded_bytes_per_element;
	double encode_gbps, decode_gbps;
	uint64_t compared; /* pieces that were compared with the CPU's; 0 on the CPU */
};

struct tsr_bench_entropy {
	unsigned threads;
	const char *isa;
	char device[256]; /* empty: the CPU */
	double copy_gbps; /* of the GPU, bytes read and written */
	struct tsr_bench_plane planes[TSR_BENCH_CODED];
};

/*
 * Measure coding, in memory, the planes of a packed file, or with @path NULL those of a made state of
 * @elements parameters.  TSR_E_UNSUPPORTED for a file without packed weights, momenta or variances.
 */
enum tsr_status tsr_bench_entropy(const char *path, uint64_t elements, unsigned repeats,
				  const struct tsr_run *run, struct tsr_bench_entropy *ret,
				  struct tsr_err *err);

/*
 * The same by the kernels of GPU @index, in device time: planes are repeated until they have @elements
 * elements, and those of codes are coded without contexts and once more with them.  The first pieces of each
 * are compared with the CPU's: TSR_E_FORMAT where bytes differ.
 */
enum tsr_status tsr_bench_entropy_gpu(unsigned index, const char *path, uint64_t elements,
				      unsigned repeats, const struct tsr_run *run,
				      struct tsr_bench_entropy *ret, struct tsr_err *err);

/* Finding the codebook of a histogram with values in all bins. */
struct tsr_bench_codebook {
	double seconds, plain_seconds; /* the best of all runs; by trying everything, once */
	bool same; /* both found the same entries */
};

/* Measure with the calling thread; at most TSR_LEARNED_BINS bins, which take about ten seconds. */
enum tsr_status tsr_bench_codebook(unsigned nbins, unsigned repeats, struct tsr_bench_codebook *ret,
				   struct tsr_err *err);

#endif
