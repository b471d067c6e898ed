/* SPDX-License-Identifier: Apache-2.0 */
/* Going through all tensors of a checkpoint, tile by tile: each is read, checked and decoded. */
#include "pack/walk.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/piece_hash.h"
#include "ckpt/record_crc.h"
#include "ckpt/decoders.h"
#include "ckpt/read.h"
#include "ckpt/tensor_tiles.h"
#include "codec/narrow.h"
#include "parts/parted_pipeline.h"

struct walking {
	const struct tsr_walk *walk;
	const struct tsr_tensor *wanted; /* per tensor */
	struct tsr_tiles tiles;
	unsigned nsides; /* tiles of a job: 2 if any tensors are walked together */
	struct {
		struct tsr_plane_hashes hashes;
		uint64_t hash[TSR_PLANES_MAX]; /* of the tensor being committed */
		struct tsr_record_crc record; /* likewise */
	} checks[2]; /* by side */
	struct tsr_progress progress;
};

/* What a tile's commit needs; what the walk's own work found is behind it. */
struct found {
	uint64_t hash[TSR_PLANES_MAX]; /* of its planes, as by tsr_tile_hash() */
	uint32_t crc; /* of the bytes read, where the file has a checksum of them */
	uint32_t unused;
};

/* Memory of a tile in flight; the walk's extra bytes follow.  Before that of a job is what tiles found. */
struct scratch {
	struct tsr_coder coder;
	struct found *found;
	struct tsr_walked walked;
	bool used;
	_Alignas(64) unsigned char extra[];
};

static size_t found_nbytes(const struct tsr_walk *walk)
{
	return sizeof(struct found) + walk->found_nbytes;
}

static size_t scratch_nbytes(const struct tsr_walk *walk)
{
	return sizeof(struct scratch) + (walk->extra_nbytes + 63) / 64 * 64;
}

/* Where the first side's memory is. */
static size_t sides_at(const struct walking *w)
{
	return (w->nsides * found_nbytes(w->walk) + 63) / 64 * 64;
}

static struct scratch *side_of(const struct walking *w, void *scratch, unsigned side)
{
	unsigned char *bytes = scratch;
	struct scratch *s = (void *)(bytes + sides_at(w) + side * scratch_nbytes(w->walk));

	s->found = (void *)(bytes + side * found_nbytes(w->walk));
	return s;
}

/* --- Reading ------------------------------------------------------------------------------------ */

/* What a codec other than the one wanted holds, such as a compressed state of another tool. */
static enum tsr_status read_decoded(const struct walking *w, const struct tsr_tensor *stored,
				    const struct tsr_walked *t, float *x, struct tsr_err *err)
{
	const size_t size = tsr_dtype_bits(stored->dtype) / 8;
	TSR_OWNED(free) struct tsr_read_scratch *scratch = malloc(sizeof(*scratch));

	if (!scratch)
		return tsr_fail_nomem(err, w->walk->c->path);
	TSR_TRY(tsr_tensor_read_f32(w->walk->c, stored, t->offset / size, t->nbytes / size, scratch,
				    x, err));
	if (!t->tensor->coding.codec)
		tsr_narrow_in_place(stored->dtype, x, t->nbytes / size);
	return TSR_OK;
}

static enum tsr_status read_planes(const struct walking *w, const struct tsr_tensor *stored,
				   struct scratch *s, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->walk->c;
	const struct tsr_tile *tile = &s->walked.tile;

	for (unsigned i = 0; i < stored->nplanes; i++)
		TSR_TRY(tsr_array_read(
			c, &c->arrays[stored->plane[i]], tsr_tile_plane_offset(stored, i, tile),
			tsr_tile_plane_nbytes(stored, i, tile), s->coder.plane[i], err));
	return TSR_OK;
}

/* Read a tile: its planes, or else its elements or bytes, to where @data says. */
static enum tsr_status read_tile(const struct walking *w, const struct tsr_tensor *stored,
				 struct scratch *s, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->walk->c;
	const struct tsr_array *a = &c->arrays[stored->plane[0]];
	const struct tsr_walked *t = &s->walked;
	const bool coded = t->tensor->coding.codec != NULL;
	const bool widens = coded && stored->dtype != TSR_F32;
	const struct tsr_tensor *beside = tsr_tensor_beside(c, stored);
	void *to = coded && !widens ? (void *)s->coder.m->x : s->coder.plane[0];

	if (t->has_planes && coded && stored->coding.codec) {
		TSR_TRY(read_planes(w, stored, s, err));
		if (!w->walk->work)
			return TSR_OK;
		if (beside)
			TSR_TRY(tsr_coder_beside(&s->coder, c, beside, NULL, t->tile.first,
						 t->tile.n, err));
		return s->coder.decode(&s->coder, &stored->coding, stored->dtype, t->tile.n, err);
	}
	if (stored->coding.codec)
		return read_decoded(w, stored, t, coded ? s->coder.m->x : to, err);
	TSR_TRY(tsr_array_read(c, a, t->offset, t->nbytes, to, err));
	s->found->crc = tsr_record_sum(a, to, t->nbytes);
	if (widens)
		tsr_widen(stored->dtype, to, t->tile.n, s->coder.m->x);
	return TSR_OK;
}

static bool is_as_wanted(const struct tsr_tensor *stored, const struct tsr_tensor *wanted)
{
	if (!stored->coding.codec || !wanted->coding.codec)
		return stored->coding.codec == wanted->coding.codec;
	return tsr_coding_is_same(&stored->coding, &wanted->coding);
}

/* What one side's tile of a tensor is, in its own units. */
static void describe_tile(const struct walking *w, struct scratch *s, unsigned side,
			  struct tsr_tile tile)
{
	const struct tsr_walk *walk = w->walk;
	const struct tsr_tensor *stored = &walk->c->tensors[tile.tensor];
	const struct tsr_tensor *wanted = &w->wanted[tile.tensor];
	const bool coded = wanted->coding.codec != NULL, same = is_as_wanted(stored, wanted);
	const size_t unit = coded ? tsr_dtype_bits(wanted->dtype) / 8 : 1;

	s->walked = (struct tsr_walked){ .tile = tile,
					 .tensor = wanted,
					 .nbytes = tile.n * unit,
					 .offset = tile.first * unit,
					 .coder = &s->coder,
					 .has_planes = same || !coded,
					 .hashed = same && walk->c->packed,
					 .found = s->found + 1,
					 .extra = s->extra,
					 .side = side };
	s->used = true;
}

/* The hashes of planes as they are stored.  Those of coded pieces were compared when they were read. */
static enum tsr_status hash_stored(const struct walking *w, struct scratch *s,
				   const struct tsr_tensor *stored, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->walk->c;
	const struct tsr_tile *tile = &s->walked.tile;
	uint64_t *hash = s->found->hash;

	for (unsigned i = 0; i < stored->nplanes && tsr_tile_is_piece(stored, tile); i++) {
		const struct tsr_array *a = &c->arrays[stored->plane[i]];

		if (a->coded && tile->n)
			TSR_TRY(tsr_coded_hash(c, a, tile->first / tsr_tensor_piece(stored),
					       &hash[i], err));
		else
			hash[i] = tsr_piece_hash(s->coder.plane[i],
						 tsr_tile_plane_nbytes(stored, i, tile));
	}
	return TSR_OK;
}

/* Read it. */
static enum tsr_status open_tile(const struct walking *w, struct scratch *s, unsigned side,
				 struct tsr_tile tile, struct tsr_err *err)
{
	const struct tsr_tensor *stored = &w->walk->c->tensors[tile.tensor];

	describe_tile(w, s, side, tile);
	s->walked.data = s->walked.tensor->coding.codec ? (void *)s->coder.m->x : s->coder.plane[0];
	TSR_TRY(read_tile(w, stored, s, err));
	return s->walked.hashed ? hash_stored(w, s, stored, err) : TSR_OK;
}

/* The hashes of planes that were encoded. */
static void hash_encoded(const struct walking *w, struct scratch *s)
{
	if (w->walk->hash_into && !s->walked.hashed)
		tsr_tile_hash(s->walked.tensor, &s->walked.tile, s->coder.plane, s->found->hash);
}

/* The tile of one of two tensors, whose units are elements, in units of this one. */
static struct tsr_tile tile_beside(const struct walking *w, const struct tsr_tile *tile,
				   size_t tensor)
{
	const struct tsr_tensor *t = &w->wanted[tensor];
	const size_t unit = t->coding.codec ? 1 : tsr_dtype_bits(t->dtype) / 8;

	return (struct tsr_tile){ tensor, tile->first * unit, tile->n * unit, tile->last };
}

static enum tsr_status work_on_pair(const struct walking *w, struct scratch *s[2],
				    const struct tsr_tile *tile, struct tsr_err *err)
{
	const struct tsr_tensor *first = &w->wanted[tile->tensor];
	const unsigned m = first->kind == TSR_KIND_MOMENTUM ? 0 : 1;
	const struct tsr_walked *const walked[2] = { &s[m]->walked, &s[!m]->walked };

	TSR_TRY(open_tile(w, s[0], 0, tile_beside(w, tile, tile->tensor), err));
	TSR_TRY(open_tile(w, s[1], 1, tile_beside(w, tile, first->partner - 1), err));
	TSR_TRY(w->walk->work_pair(w->walk->ctx, walked, err));
	hash_encoded(w, s[0]);
	hash_encoded(w, s[1]);
	return TSR_OK;
}

static enum tsr_status tile_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct walking *w = ctx;
	struct scratch *s[2] = { side_of(w, scratch, 0), NULL };
	const struct tsr_walk *walk = w->walk;
	const struct tsr_tile tile = tsr_tiles_get(&w->tiles, job);

	if (w->nsides > 1) {
		s[1] = side_of(w, scratch, 1);
		s[1]->used = false;
		if (tsr_tensor_is_paired(w->wanted, walk->c->ntensors, tile.tensor,
					 walk->raw_pairs))
			return work_on_pair(w, s, &tile, err);
	}
	TSR_TRY(open_tile(w, s[0], 0, tile, err));
	if (walk->work)
		TSR_TRY(walk->work(walk->ctx, &s[0]->walked, err));
	hash_encoded(w, s[0]);
	return TSR_OK;
}

/* --- Checking ----------------------------------------------------------------------------------- */

/* The tensor whose planes are hashed; NULL: they are not. */
static const struct tsr_tensor *hashed_tensor(const struct walking *w, const struct tsr_walked *t)
{
	if (t->hashed)
		return &w->walk->c->tensors[t->tile.tensor];
	return w->walk->hash_into ? t->tensor : NULL;
}

static enum tsr_status check_tile(struct walking *w, const struct scratch *s, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->walk->c;
	const struct tsr_walked *t = &s->walked;
	const struct tsr_tensor *stored = &c->tensors[t->tile.tensor];
	const struct tsr_tensor *hashed = hashed_tensor(w, t);
	const unsigned side = t->side;
	uint64_t *hash = t->hashed || !hashed ? w->checks[side].hash
					      : w->walk->hash_into[t->tile.tensor].hash;

	if (hashed)
		tsr_plane_hashes_add(&w->checks[side].hashes, hashed, &t->tile, s->coder.plane,
				     s->found->hash, hash);
	if (t->hashed && t->tile.last)
		TSR_TRY(tsr_plane_hashes_check(c, stored, hash, err));
	if (stored->coding.codec)
		return TSR_OK;
	return tsr_record_commit(&w->checks[side].record, c, &c->arrays[stored->plane[0]],
				 t->offset, t->nbytes, s->found->crc, err);
}

static enum tsr_status tile_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct walking *w = ctx;

	(void)job;
	for (unsigned i = 0; i < w->nsides; i++) {
		struct scratch *s = side_of(w, scratch, i);

		if (!s->used)
			continue;
		TSR_TRY(check_tile(w, s, err));
		if (w->walk->commit)
			TSR_TRY(w->walk->commit(w->walk->ctx, &s->walked, err));
		TSR_TRY(tsr_progress_add(&w->progress, s->walked.nbytes, err));
	}
	return TSR_OK;
}

static enum tsr_status tile_finish(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct walking *w = ctx;

	(void)job;
	for (unsigned i = 0; i < w->nsides; i++) {
		struct scratch *s = side_of(w, scratch, i);

		if (s->used)
			TSR_TRY(w->walk->finish(w->walk->ctx, &s->walked, err));
	}
	return TSR_OK;
}

/* --- Memory ------------------------------------------------------------------------------------- */

static void close_sides(const struct walking *w, void *scratch, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		tsr_coder_close(NULL, &side_of(w, scratch, i)->coder);
}

static void tile_close(void *ctx, void *scratch)
{
	const struct walking *w = ctx;

	close_sides(w, scratch, w->nsides);
}

static enum tsr_status tile_open(void *ctx, const struct tsr_run *run, void *scratch,
				 struct tsr_err *err)
{
	const struct walking *w = ctx;

	for (unsigned i = 0; i < w->nsides; i++) {
		struct tsr_coder *coder = &side_of(w, scratch, i)->coder;
		const enum tsr_status status = w->walk->encodes ? tsr_coder_open_encoder(NULL, run,
											 coder, err)
								: tsr_coder_open_decoder(
									  NULL, run, coder, err);

		if (status == TSR_OK)
			continue;
		close_sides(w, scratch, i);
		return status;
	}
	return TSR_OK;
}

/* --- In parts ----------------------------------------------------------------------------------- */

/* The tiles of a job: two if a momentum and its variance share theirs. */
static unsigned tiles_of_job(const struct walking *w, uint64_t job, struct tsr_tile tile[2])
{
	const struct tsr_tile own = tsr_tiles_get(&w->tiles, job);
	const struct tsr_tensor *t = &w->wanted[own.tensor];

	tile[0] = own;
	if (w->nsides < 2 ||
	    !tsr_tensor_is_paired(w->wanted, w->walk->c->ntensors, own.tensor, w->walk->raw_pairs))
		return 1;
	tile[0] = tile_beside(w, &own, own.tensor);
	tile[1] = tile_beside(w, &own, t->partner - 1);
	return 2;
}

static uint64_t weigh_job(void *ctx, uint64_t job)
{
	const struct walking *w = ctx;
	uint64_t nbytes = 0;
	struct tsr_tile tile[2];
	const unsigned n = tiles_of_job(w, job, tile);

	for (unsigned i = 0; i < n; i++) {
		const struct tsr_tensor *t = &w->wanted[tile[i].tensor];

		nbytes += tile[i].n * (t->coding.codec ? tsr_dtype_bits(t->dtype) / 8 : 1);
	}
	return nbytes;
}

/* Tiles that are no pieces have no hashes of their own, so one part has all of their tensor. */
static bool divides_at(void *ctx, uint64_t job)
{
	const struct walking *w = ctx;
	struct tsr_tile tile[2];
	const unsigned n = tiles_of_job(w, job, tile);

	for (unsigned i = 0; i < n && tile[i].first; i++) {
		if (!tsr_tile_is_piece(&w->wanted[tile[i].tensor], &tile[i]))
			return false;
	}
	return true;
}

/* What a commit has in place of a tile that was read. */
static void restore_job(void *ctx, void *scratch, uint64_t job)
{
	const struct walking *w = ctx;
	struct tsr_tile tile[2];
	const unsigned n = tiles_of_job(w, job, tile);

	for (unsigned i = 0; i < w->nsides; i++) {
		struct scratch *s = side_of(w, scratch, i);

		s->used = false;
		if (i < n)
			describe_tile(w, s, i, tile[i]);
	}
}

/* The hashes of planes whose tiles are no pieces are known with the last one. */
static void order_job(void *ctx, void *scratch, uint64_t job)
{
	struct walking *w = ctx;

	(void)job;
	for (unsigned i = 0; i < w->nsides; i++) {
		struct scratch *s = side_of(w, scratch, i);
		const struct tsr_walked *t = &s->walked;
		const struct tsr_tensor *hashed = s->used ? hashed_tensor(w, t) : NULL;

		if (hashed && !tsr_tile_is_piece(hashed, &t->tile))
			tsr_plane_hashes_add(&w->checks[i].hashes, hashed, &t->tile, s->coder.plane,
					     s->found->hash, s->found->hash);
	}
}

/* --- All of it ---------------------------------------------------------------------------------- */

/* Jobs of fewer bytes, on average, take threads longer to share than one to do. */
#define SHARED_NBYTES 4096u

static enum tsr_status run_tiles(struct walking *w, struct tsr_err *err)
{
	const struct tsr_walk *walk = w->walk;
	struct tsr_run run = w->progress.run ? *w->progress.run : (struct tsr_run){ .threads = 1 };
	const struct tsr_pipeline pipeline = {
		.njobs = w->tiles.njobs,
		.scratch_nbytes = sides_at(w) + w->nsides * scratch_nbytes(walk),
		.open = tile_open,
		.close = tile_close,
		.work = tile_work,
		.commit = tile_commit,
		.finish = walk->finish ? tile_finish : NULL,
		.ctx = w,
	};
	const struct tsr_parted parted = { .pipeline = &pipeline,
					   .what = w->progress.what,
					   .weigh = weigh_job,
					   .divides = divides_at,
					   .found_nbytes = w->nsides * found_nbytes(walk),
					   .restore = restore_job,
					   .order = order_job,
					   .keeps_failures = true };

	if (w->progress.total_nbytes / SHARED_NBYTES < w->tiles.njobs)
		run.threads = 1;
	TSR_TRY(walk->in_parts ? tsr_parted_run(&parted, &run, err)
			       : tsr_pipeline_run(&pipeline, &run, err));
	return tsr_checkpoint_check_unchanged(walk->c, err);
}

/* Whether any tensors are walked together. */
static bool has_pairs(const struct walking *w)
{
	for (size_t i = 0; w->walk->work_pair && i < w->walk->c->ntensors; i++) {
		if (tsr_tensor_is_paired(w->wanted, w->walk->c->ntensors, i, w->walk->raw_pairs))
			return true;
	}
	return false;
}

static enum tsr_status prepare(struct walking *w, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->walk->c;

	w->nsides = has_pairs(w) ? 2 : 1;
	TSR_TRY(tsr_tensor_tiles(&w->tiles, w->wanted, c->ntensors, w->nsides > 1,
				 w->walk->raw_pairs, w->walk->skip, c->path, err));
	for (unsigned i = 0; i < w->nsides; i++)
		TSR_TRY(tsr_plane_hashes_init(&w->checks[i].hashes, c->path, err));
	return TSR_OK;
}

enum tsr_status tsr_walk_run(const struct tsr_walk *walk, const struct tsr_run *run,
			     struct tsr_err *err)
{
	const struct tsr_checkpoint *c = walk->c;
	struct walking w = { .walk = walk, .wanted = walk->wanted ? walk->wanted : c->tensors };
	enum tsr_status status;

	w.progress = (struct tsr_progress){ .run = run, .what = walk->what ? walk->what : c->path };
	for (size_t i = 0; i < c->ntensors; i++) {
		if (!walk->skip || !walk->skip[i])
			w.progress.total_nbytes += tsr_tensor_nbytes(&c->tensors[i]);
	}
	if (!walk->skip)
		TSR_TRY(tsr_records_check(c, run, err));
	status = prepare(&w, err);
	if (status == TSR_OK) {
		tsr_coded_decode_on(c, run);
		status = run_tiles(&w, err);
		tsr_coded_decode_on(c, NULL);
	}
	for (unsigned i = 0; i < 2; i++)
		tsr_plane_hashes_free(&w.checks[i].hashes);
	tsr_tiles_free(&w.tiles);
	return status;
}
