/* SPDX-License-Identifier: Apache-2.0 */
/* Bases of deltas that are read only once: the hashes of the pieces that were read so far. */
#include "ckpt/unproven.h"

#include "base/arena.h"
#include "base/fail.h"
#include "ckpt/piece_hash.h"
#include "ckpt/tensor_tiles.h"

enum tsr_status tsr_unproven_pieces(const struct tsr_checkpoint *c, struct tsr_tiles *pieces,
				    struct tsr_err *err)
{
	TSR_TRY(tsr_tiles_init(pieces, c->ntensors, c->path, err));
	for (size_t i = 0; i < c->ntensors; i++)
		tsr_tiles_add(pieces, tsr_tensor_nbytes(&c->tensors[i]),
			      tsr_tensor_piece(&c->tensors[i]));
	return TSR_OK;
}

enum tsr_status tsr_unproven_new(struct tsr_checkpoint *base, const char *path, struct tsr_err *err)
{
	struct tsr_unproven *u = NULL;

	TSR_TRY(TSR_NEW(&u, 1, err, path));
	base->unproven = u;
	u->path = tsr_arena_string(base->arena, path);
	TSR_TRY(tsr_unproven_pieces(base, &u->pieces, err));
	u->known = calloc((size_t)u->pieces.njobs + 1, sizeof(*u->known));
	return u->path && u->known ? TSR_OK : tsr_fail_nomem(err, path);
}

void tsr_unproven_note(const struct tsr_checkpoint *base, size_t tensor, uint64_t piece,
		       const void *bytes, size_t nbytes)
{
	const struct tsr_unproven *u = base->unproven;

	if (u)
		u->known[u->pieces.spans[tensor].first_job + piece] = (struct tsr_known_piece){
			tsr_piece_hash(bytes, nbytes), true
		};
}

void tsr_unproven_free(struct tsr_unproven *u)
{
	if (!u)
		return;
	tsr_tiles_free(&u->pieces);
	free(u->known);
	free(u);
}
