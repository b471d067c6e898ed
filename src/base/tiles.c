/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of which tensor a job works on. */
#include "base/tiles.h"

#include "base/fail.h"

enum tsr_status tsr_tiles_init(struct tsr_tiles *tiles, size_t ntensors, const char *what,
			       struct tsr_err *err)
{
	*tiles = (struct tsr_tiles){ .spans = calloc(ntensors + 1, sizeof(*tiles->spans)) };
	return tiles->spans ? TSR_OK : tsr_fail_nomem(err, what);
}

void tsr_tiles_add(struct tsr_tiles *tiles, uint64_t units, uint64_t units_per_tile)
{
	tiles->spans[tiles->ntensors++] = (struct tsr_tile_span){ .units = units,
								  .units_per_tile = units_per_tile,
								  .first_job = tiles->njobs };
	tiles->njobs += units ? (units - 1) / units_per_tile + 1 : 1;
}

void tsr_tiles_skip(struct tsr_tiles *tiles)
{
	tiles->spans[tiles->ntensors++] = (struct tsr_tile_span){ .units_per_tile = 1,
								  .first_job = tiles->njobs };
}

struct tsr_tile tsr_tiles_get(const struct tsr_tiles *tiles, uint64_t job)
{
	size_t low = 0, high = tiles->ntensors - 1;
	const struct tsr_tile_span *span;
	struct tsr_tile tile;
	uint64_t left;

	/* The last tensor whose tiles begin at or before the job. */
	while (low < high) {
		const size_t mid = low + (high - low + 1) / 2;

		if (tiles->spans[mid].first_job <= job)
			low = mid;
		else
			high = mid - 1;
	}
	span = &tiles->spans[low];
	tile.tensor = low;
	tile.first = (job - span->first_job) * span->units_per_tile;
	left = span->units - tile.first;
	tile.n = (size_t)(left < span->units_per_tile ? left : span->units_per_tile);
	tile.last = left <= span->units_per_tile;
	return tile;
}

void tsr_tiles_free(struct tsr_tiles *tiles)
{
	free(tiles->spans);
	*tiles = (struct tsr_tiles){ .spans = NULL };
}
