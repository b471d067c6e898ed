/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors cut into tiles: the part of a tensor that one job of a pipeline works on. */
#ifndef TSR_BASE_TILES_H
#define TSR_BASE_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/status.h"

/* Consecutive units (elements or bytes, as the list was made) of one tensor. */
struct tsr_tile {
	size_t tensor; /* its index in the list */
	uint64_t first;
	size_t n;
	bool last; /* of its tensor */
};

/* How one tensor of the list is cut. */
struct tsr_tile_span {
	uint64_t units, units_per_tile;
	uint64_t first_job;
};

/* The tiles of a list of tensors, one tensor after the other.  Job numbers count them from 0. */
struct tsr_tiles {
	size_t ntensors;
	struct tsr_tile_span *spans;
	uint64_t njobs;
};

/* Make room for @ntensors tensors.  A message of failure names @what. */
enum tsr_status tsr_tiles_init(struct tsr_tiles *tiles, size_t ntensors, const char *what,
			       struct tsr_err *err);

/* Add the next tensor; @units_per_tile is at least 1.  A tensor without units has one empty tile. */
void tsr_tiles_add(struct tsr_tiles *tiles, uint64_t units, uint64_t units_per_tile);

/* Add the next tensor without a tile of its own: it is part of an earlier one's jobs. */
void tsr_tiles_skip(struct tsr_tiles *tiles);

/* The tile of a job below tiles->njobs.  Thread-safe. */
struct tsr_tile tsr_tiles_get(const struct tsr_tiles *tiles, uint64_t job);

/* Free the list; one that is all zeros is allowed. */
void tsr_tiles_free(struct tsr_tiles *tiles);

#endif
