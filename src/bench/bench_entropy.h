/* SPDX-License-Identifier: Apache-2.0 */
/* The planes of a made state, whose coding is measured on a CPU and on a GPU. */
#ifndef TSR_BENCH_ENTROPY_H
#define TSR_BENCH_ENTROPY_H

#include "bench/bench.h"
#include "tersor/dtype.h"

struct tsr_bench_plane_kind {
	const char *name;
	enum tsr_dtype dtype;
};

extern const struct tsr_bench_plane_kind tsr_bench_plane_kinds[TSR_BENCH_PLANES];

/* Make those of @elements parameters, to be freed each. */
enum tsr_status tsr_bench_planes(uint64_t elements, const struct tsr_run *run,
				 void *planes[TSR_BENCH_PLANES], struct tsr_err *err);

#endif
