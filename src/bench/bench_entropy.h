/* SPDX-License-Identifier: Apache-2.0 */
/* The planes of a state, whose coding is measured on a CPU and on a GPU: made, or those of a packed file. */
#ifndef TSR_BENCH_ENTROPY_H
#define TSR_BENCH_ENTROPY_H

#include <stdbool.h>

#include "bench/bench.h"
#include "entropy/entropy.h"

struct tsr_bench_plane_kind {
	const char *name;
	enum tsr_dtype dtype;
};

extern const struct tsr_bench_plane_kind tsr_bench_plane_kinds[TSR_BENCH_PLANES];

enum tsr_bench_plane_index {
	TSR_BENCH_WEIGHTS,
	TSR_BENCH_CORRECTIONS,
	TSR_BENCH_MOMENTA,
	TSR_BENCH_VARIANCES
};

/* Elements @first to @first + @n - 1 of a plane, which are coded together. */
struct tsr_bench_piece {
	uint64_t first;
	size_t n;
	bool codes; /* of a variance: */
	struct tsr_entropy_variance variance;
};

struct tsr_bench_state_plane {
	unsigned char *plain; /* @n elements */
	uint16_t *scales; /* of codes of variances */
	uint64_t n, npieces, nscales;
	struct tsr_bench_piece *pieces;
};

struct tsr_bench_state {
	struct tsr_bench_state_plane planes[TSR_BENCH_PLANES];
};

/* Room for planes of @n elements in @npieces pieces; also of scales, if @nscales. */
enum tsr_status tsr_bench_state_plane_alloc(struct tsr_bench_state_plane *p, unsigned index,
					    uint64_t n, uint64_t npieces, uint64_t nscales,
					    struct tsr_err *err);

/* Make a state of @elements parameters; *ret, empty at first, is to be freed whatever is returned. */
enum tsr_status tsr_bench_state_make(uint64_t elements, const struct tsr_run *run,
				     struct tsr_bench_state *ret, struct tsr_err *err);

/* Read that of a packed file into memory, likewise; TSR_E_UNSUPPORTED for a file without such planes. */
enum tsr_status tsr_bench_state_read(const char *path, struct tsr_bench_state *ret,
				     struct tsr_err *err);

/* One or the other, which has no @path. */
static inline enum tsr_status tsr_bench_state_get(const char *path, uint64_t elements,
						  const struct tsr_run *run,
						  struct tsr_bench_state *ret, struct tsr_err *err)
{
	*ret = (struct tsr_bench_state){ 0 };
	return path ? tsr_bench_state_read(path, ret, err)
		    : tsr_bench_state_make(elements, run, ret, err);
}

void tsr_bench_state_free(struct tsr_bench_state *s);

struct tsr_bench_gpu;

/* Pieces of a plane coded on a GPU that are compared with the CPU's, at most. */
#define TSR_BENCH_COMPARED UINT64_C(64)

/* A piece that a GPU has coded and decoded: what of it is in device memory. */
struct tsr_bench_coded {
	const void *plain, *coded, *back;
	size_t n, nbytes; /* elements; coded bytes */
};

/*
 * Fail unless the CPU codes @piece->plain to the same bytes, and @piece->back is as before.  @variance: of
 * codes, in host memory; NULL: of others.  For the piece of number @number, in a message.
 */
enum tsr_status tsr_bench_compare_coded(const struct tsr_bench_gpu *on,
					struct tsr_entropy_kind kind,
					const struct tsr_entropy_variance *variance,
					const struct tsr_bench_coded *piece, uint64_t number,
					struct tsr_err *err);

/* Code a plane of codes of variances on a GPU piece by piece, over and over to about @elements. */
enum tsr_status tsr_bench_codes_gpu(const struct tsr_bench_gpu *on,
				    const struct tsr_bench_state_plane *plane, uint64_t elements,
				    struct tsr_bench_plane *ret, struct tsr_err *err);

#endif
