/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of what a checkpoint stores: CRC-32 of a container's records, XXH3 of packed planes. */
#ifndef TSR_CKPT_CHECKSUM_H
#define TSR_CKPT_CHECKSUM_H

#include "io/hash.h"
#include "base/tiles.h"
#include "ckpt/checkpoint_model.h"
#include "tersor/run.h"

/* --- Records: zip members of .pt and .npz ------------------------------------------------------ */

/* An array that is one whole record is checked while it is read; the CRC-32 of what was read so far. */
struct tsr_record_crc {
	uint32_t crc;
};

/* The CRC-32 of some bytes of an array as it is stored; 0 if there is nothing to check them against. */
uint32_t tsr_record_sum(const struct tsr_array *a, const void *bytes, size_t nbytes);

/*
 * Check the next @nbytes bytes of an array, from byte @offset on, whose tsr_record_sum() is @crc.
 * Tiles come in order; the first one starts @r anew and the last one compares: TSR_E_FORMAT if the
 * file has another checksum.  Does nothing for an array that has none of its own.
 */
enum tsr_status tsr_record_commit(struct tsr_record_crc *r, const struct tsr_checkpoint *c,
				  const struct tsr_array *a, uint64_t offset, uint64_t nbytes,
				  uint32_t crc, struct tsr_err *err);

/*
 * Read and check the records that tsr_record_commit() cannot check: tensors that are part of a
 * record or strided in it, or that are decoded as they are read.  Each part checks its share of them.
 */
enum tsr_status tsr_records_check(const struct tsr_checkpoint *c, const struct tsr_run *run,
				  struct tsr_err *err);

/* Read and check every record: for readers that do not go through tensors in order. */
enum tsr_status tsr_records_check_all(const struct tsr_checkpoint *c, const struct tsr_run *run,
				      struct tsr_err *err);

/* --- Planes of packed files -------------------------------------------------------------------- */

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
