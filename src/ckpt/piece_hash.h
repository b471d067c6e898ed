/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 of packed planes: of their pieces, and of planes by those. */
#ifndef TSR_CKPT_PIECE_HASH_H
#define TSR_CKPT_PIECE_HASH_H

#include "base/tiles.h"
#include "ckpt/checkpoint_model.h"
#include "io/hash.h"

/* The hash of a piece of a plane, of its bytes as they are before they are coded.  Thread-safe. */
uint64_t tsr_piece_hash(const void *bytes, size_t nbytes);

/* The hashes of one tensor's planes, made of those of their pieces, tile by tile. */
struct tsr_plane_hashes {
	struct tsr_hasher *plane[TSR_PLANES_MAX], *piece[TSR_PLANES_MAX];
};

/* The hashes of a tile's planes if it is a piece of its tensor, else nothing.  Thread-safe. */
void tsr_tile_hash(const struct tsr_tensor *t, const struct tsr_tile *tile, void *const plane[],
		   uint64_t hash[]);

enum tsr_status tsr_plane_hashes_init(struct tsr_plane_hashes *h, const char *what,
				      struct tsr_err *err);
void tsr_plane_hashes_free(struct tsr_plane_hashes *h);

/*
 * Add the next tile, which has @tile_hash, in order; the last one puts the planes' hashes into @hash.
 * If plane[0] is NULL, hash[] of the last tile holds the hashes of whole planes, unless the tile is a piece.
 */
void tsr_plane_hashes_add(struct tsr_plane_hashes *h, const struct tsr_tensor *t,
			  const struct tsr_tile *tile, void *const plane[],
			  const uint64_t tile_hash[], uint64_t hash[]);

/* The hash of a plane that is one piece; @nbytes is not 0. */
uint64_t tsr_plane_hash(const void *bytes, size_t nbytes);

/* The hashes of a tensor whose planes are in memory. */
enum tsr_status tsr_plane_hashes_whole(const struct tsr_tensor *t, void *const plane[],
				       uint64_t hash[], const char *what, struct tsr_err *err);

/* TSR_E_FORMAT if the planes of a tensor of a packed file have hashes other than the recorded ones. */
enum tsr_status tsr_plane_hashes_check(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				       const uint64_t hash[], struct tsr_err *err);

#endif
