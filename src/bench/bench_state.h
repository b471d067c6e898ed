/* SPDX-License-Identifier: Apache-2.0 */
/* The planes of a state, whose coding is measured: made, or those of a packed file. */
#ifndef TSR_BENCH_STATE_H
#define TSR_BENCH_STATE_H

#include "entropy/entropy.h"
#include "tersor/run.h"
#include "tersor/status.h"

enum {
	TSR_BENCH_WEIGHTS,
	TSR_BENCH_CORRECTIONS,
	TSR_BENCH_MOMENTA,
	TSR_BENCH_VARIANCES,
	TSR_BENCH_STATE_PLANES
};

/* Where pieces begin in memory: multiples of this many bytes. */
#define TSR_BENCH_PIECE_ALIGNMENT 16u

/* Elements that are coded together. */
struct tsr_bench_piece {
	uint64_t at; /* where they begin in the plane */
	size_t n;
	struct tsr_entropy_variance variance; /* of codes with contexts: those with scales */
};

struct tsr_bench_plane {
	const char *name;
	struct tsr_entropy_kind kind;
	uint64_t n, room; /* elements; those and what is between pieces */
	unsigned char *plain;
	uint64_t nscales, npieces;
	uint16_t *scales;
	struct tsr_bench_piece *pieces;
};

struct tsr_bench_state {
	struct tsr_bench_plane planes[TSR_BENCH_STATE_PLANES];
};

/*
 * Read the planes of a packed file, TSR_E_UNSUPPORTED if it has none; with @path NULL make those of @elements
 * parameters.  To be freed after a failure, too.
 */
enum tsr_status tsr_bench_state_get(const char *path, uint64_t elements, const struct tsr_run *run,
				    struct tsr_bench_state *ret, struct tsr_err *err);
void tsr_bench_state_free(struct tsr_bench_state *s);

#endif
