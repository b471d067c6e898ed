/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 of packed planes: of their pieces, and of planes by those. */
#include "ckpt/piece_hash.h"

#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/tensor_tiles.h"

uint64_t tsr_piece_hash(const void *bytes, size_t nbytes)
{
	return tsr_hash(bytes, nbytes, 0);
}

void tsr_tile_hash(const struct tsr_tensor *t, const struct tsr_tile *tile, void *const plane[],
		   uint64_t hash[])
{
	if (!tsr_tile_is_piece(t, tile))
		return;
	for (unsigned i = 0; i < t->nplanes; i++)
		hash[i] = tsr_piece_hash(plane[i], tsr_tile_plane_nbytes(t, i, tile));
}

enum tsr_status tsr_plane_hashes_init(struct tsr_plane_hashes *h, const char *what,
				      struct tsr_err *err)
{
	*h = (struct tsr_plane_hashes){ .plane = { NULL } };
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++) {
		h->plane[i] = tsr_hasher_new();
		h->piece[i] = tsr_hasher_new();
		if (!h->plane[i] || !h->piece[i]) {
			tsr_plane_hashes_free(h);
			return tsr_fail_nomem(err, what);
		}
	}
	return TSR_OK;
}

void tsr_plane_hashes_free(struct tsr_plane_hashes *h)
{
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++) {
		tsr_hasher_free(h->plane[i]);
		tsr_hasher_free(h->piece[i]);
	}
	*h = (struct tsr_plane_hashes){ .plane = { NULL } };
}

static void end_piece(struct tsr_plane_hashes *h, unsigned i)
{
	const uint64_t hash = tsr_hasher_value(h->piece[i]);

	tsr_hasher_add(h->plane[i], &hash, sizeof(hash));
	tsr_hasher_reset(h->piece[i]);
}

/* The bytes of a tile that has parts of several pieces, or only a part of one. */
static void add_parts(struct tsr_plane_hashes *h, const struct tsr_tensor *t,
		      const struct tsr_tile *tile, unsigned i, const unsigned char *bytes)
{
	const uint64_t piece = tsr_tensor_piece(t);
	struct tsr_tile part = { .n = 0 };

	for (uint64_t at = 0; at < tile->n; at += part.n) {
		const uint64_t left = tile->n - at;

		part.first = tile->first + at;
		part.n = (size_t)(piece - part.first % piece);
		part.n = part.n < left ? part.n : (size_t)left;
		tsr_hasher_add(h->piece[i], bytes, tsr_tile_plane_nbytes(t, i, &part));
		bytes += tsr_tile_plane_nbytes(t, i, &part);
		if ((part.first + part.n) % piece == 0 || (tile->last && part.n == left))
			end_piece(h, i);
	}
}

void tsr_plane_hashes_add(struct tsr_plane_hashes *h, const struct tsr_tensor *t,
			  const struct tsr_tile *tile, void *const plane[],
			  const uint64_t tile_hash[], uint64_t hash[])
{
	const bool is_piece = tsr_tile_is_piece(t, tile);

	for (unsigned i = 0; i < t->nplanes; i++) {
		if (tile->first == 0) {
			tsr_hasher_reset(h->plane[i]);
			tsr_hasher_reset(h->piece[i]);
		}
		if (!is_piece && !plane[i]) {
			if (tile->last)
				hash[i] = tile_hash[i];
			continue;
		}
		if (!is_piece)
			add_parts(h, t, tile, i, plane[i]);
		else if (tile->n)
			tsr_hasher_add(h->plane[i], &tile_hash[i], sizeof(tile_hash[i]));
		if (tile->last)
			hash[i] = tsr_hasher_value(h->plane[i]);
	}
}

uint64_t tsr_plane_hash(const void *bytes, size_t nbytes)
{
	const uint64_t piece = tsr_piece_hash(bytes, nbytes);

	return tsr_hash(&piece, sizeof(piece), 0);
}

enum tsr_status tsr_plane_hashes_whole(const struct tsr_tensor *t, void *const plane[],
				       uint64_t hash[], const char *what, struct tsr_err *err)
{
	const uint64_t units = t->coding.codec ? t->numel : tsr_tensor_nbytes(t);
	const struct tsr_tile tile = { .n = (size_t)units, .last = true };
	TSR_SCOPED(tsr_plane_hashes_free) struct tsr_plane_hashes h = { .plane = { NULL } };

	TSR_TRY(tsr_plane_hashes_init(&h, what, err));
	tsr_tile_hash(t, &tile, plane, hash);
	tsr_plane_hashes_add(&h, t, &tile, plane, hash, hash);
	return TSR_OK;
}

enum tsr_status tsr_plane_hashes_check(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				       const uint64_t hash[], struct tsr_err *err)
{
	for (unsigned i = 0; i < t->nplanes; i++) {
		if (hash[i] != t->hash[i])
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: tensor %.200s: data of %.200s is damaged: found hash "
					"%016" PRIx64 ", expected %016" PRIx64,
					tsr_array_path(c, &c->arrays[t->plane[i]]), t->name,
					c->arrays[t->plane[i]].name, hash[i], t->hash[i]);
	}
	return TSR_OK;
}
