/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share a group of any size. */
#ifndef TSR_GPU_TEAMS_CUH
#define TSR_GPU_TEAMS_CUH

#include "gpu/cuda.h"
#include "gpu/vector.cuh"
#include "tersor/codec.h"

/* 2^log_team threads to a group, at most a warp; each has every 2^log_team-th element. */
struct team {
	uint64_t group; /* index of the group */
	uint64_t first; /* its first element */
	uint32_t count; /* its elements, 0 behind the end */
	uint32_t thread, nthreads;
};

/* How elements are put into groups: as struct tsr_coding says, with the size that groups really have. */
struct groups {
	uint32_t size;
	uint32_t row, in_row; /* elements and groups of a row; or 0 */
};

static __device__ __forceinline__ struct team my_team(uint64_t n, struct groups groups,
						      unsigned log_team)
{
	const uint64_t thread = tsr_first_vector(1);
	uint64_t end = n;
	struct team t;

	t.group = thread >> log_team;
	if (groups.row) {
		const uint64_t row = t.group / groups.in_row * groups.row;

		t.first = row + t.group % groups.in_row * groups.size;
		end = n - row < groups.row || row > n ? n : row + groups.row;
	} else {
		t.first = t.group * groups.size;
	}
	t.count = t.first >= end		? 0
		  : end - t.first < groups.size ? (uint32_t)(end - t.first)
						: groups.size;
	t.nthreads = 1u << log_team;
	t.thread = threadIdx.x & (t.nthreads - 1);
	return t;
}

static inline unsigned log_team_of(uint32_t group)
{
	unsigned log_team = 0;

	while (log_team < 5 && (1u << log_team) < group)
		log_team++;
	return log_team;
}

static inline struct groups groups_of(const struct tsr_coding *coding)
{
	const struct groups g = { tsr_coding_group(coding), coding->row,
				  tsr_coding_row_groups(coding) };

	return g;
}

/* Plane 1 has an entry per group. */
static inline unsigned team_blocks(const struct tsr_coding *coding, uint64_t n, unsigned log_team)
{
	const uint64_t threads = tsr_plane_count(coding, 1, n) << log_team;

	return tsr_blocks(threads, 1);
}

#endif
