/* SPDX-License-Identifier: Apache-2.0 */
/* Going through all tensors of a checkpoint, tile by tile: each is read, checked and decoded. */
#include "pack/walk.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/checksum.h"
#include "ckpt/read.h"
#include "codec/narrow.h"

struct walking {
	const struct tsr_walk *walk;
	const struct tsr_tensor *wanted; /* per tensor */
	struct tsr_tiles tiles;
	struct tsr_plane_hashes hashes;
	uint64_t hash[TSR_PLANES_MAX]; /* of the tensor being committed */
	struct tsr_record_crc record; /* likewise */
	struct tsr_progress progress;
};

/* Memory of a tile in flight; the walk's extra bytes follow. */
struct scratch {
	struct tsr_coder coder; /* first: the pipeline opens it */
	uint32_t crc; /* of the bytes read, where the file has a checksum of them */
	struct tsr_walked walked;
	_Alignas(64) unsigned char extra[];
};

/* --- Reading ------------------------------------------------------------------------------------ */

/* What a codec other than the one wanted holds, such as a compressed state of another tool. */
static enum tsr_status read_decoded(const struct walking *w, const struct tsr_tensor *stored,
				    const struct tsr_walked *t, float *x, struct tsr_err *err)
{
	const size_t size = tsr_dtype_bits(stored->dtype) / 8;
	struct tsr_read_scratch *scratch = malloc(sizeof(*scratch));
	enum tsr_status status;

	if (!scratch)
		return tsr_fail_nomem(err, w->walk->c->path);
	status = tsr_tensor_read_f32(w->walk->c, stored, t->offset / size, t->nbytes / size,
				     scratch, x, err);
	free(scratch);
	if (!t->tensor->coding.codec)
		tsr_narrow_in_place(stored->dtype, x, t->nbytes / size);
	return status;
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
	s->crc = tsr_record_sum(a, to, t->nbytes);
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

static enum tsr_status tile_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct walking *w = ctx;
	struct scratch *s = scratch;
	const struct tsr_walk *walk = w->walk;
	const struct tsr_tile tile = tsr_tiles_get(&w->tiles, job);
	const struct tsr_tensor *stored = &walk->c->tensors[tile.tensor];
	const struct tsr_tensor *wanted = &w->wanted[tile.tensor];
	const bool coded = wanted->coding.codec != NULL, same = is_as_wanted(stored, wanted);
	const size_t unit = coded ? tsr_dtype_bits(wanted->dtype) / 8 : 1;

	s->walked = (struct tsr_walked){ .tile = tile,
					 .tensor = wanted,
					 .data = coded ? (void *)s->coder.m->x : s->coder.plane[0],
					 .nbytes = tile.n * unit,
					 .offset = tile.first * unit,
					 .coder = &s->coder,
					 .has_planes = same || !coded,
					 .hashed = same && walk->c->packed };
	TSR_TRY(read_tile(w, stored, s, err));
	return walk->work ? walk->work(walk->ctx, s->extra, &s->walked, err) : TSR_OK;
}

/* --- Checking ----------------------------------------------------------------------------------- */

static enum tsr_status check_tile(struct walking *w, const struct scratch *s, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->walk->c;
	const struct tsr_walked *t = &s->walked;
	const struct tsr_tensor *stored = &c->tensors[t->tile.tensor];

	if (t->hashed) {
		tsr_plane_hashes_add(&w->hashes, stored, &t->tile, s->coder.plane, w->hash);
		if (t->tile.last)
			TSR_TRY(tsr_plane_hashes_check(c, stored, w->hash, err));
	}
	if (stored->coding.codec)
		return TSR_OK;
	return tsr_record_commit(&w->record, c, &c->arrays[stored->plane[0]], t->offset, t->nbytes,
				 s->crc, err);
}

static enum tsr_status tile_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct walking *w = ctx;
	struct scratch *s = scratch;
	const struct tsr_walk *walk = w->walk;

	(void)job;
	TSR_TRY(check_tile(w, s, err));
	if (walk->commit)
		TSR_TRY(walk->commit(walk->ctx, s->extra, &s->walked, err));
	return tsr_progress_add(&w->progress, s->walked.nbytes, err);
}

static enum tsr_status tile_finish(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct walking *w = ctx;
	struct scratch *s = scratch;

	(void)job;
	return w->walk->finish(w->walk->ctx, s->extra, &s->walked, err);
}

/* --- All of it ---------------------------------------------------------------------------------- */

static enum tsr_status run_tiles(struct walking *w, struct tsr_err *err)
{
	const struct tsr_walk *walk = w->walk;
	const struct tsr_pipeline pipeline = {
		.njobs = w->tiles.njobs,
		.scratch_nbytes = sizeof(struct scratch) + walk->extra_nbytes,
		.open = walk->encodes ? tsr_coder_open_encoder : tsr_coder_open_decoder,
		.close = tsr_coder_close,
		.work = tile_work,
		.commit = tile_commit,
		.finish = walk->finish ? tile_finish : NULL,
		.ctx = w,
	};

	TSR_TRY(tsr_pipeline_run(&pipeline, w->progress.run, err));
	return tsr_checkpoint_check_unchanged(walk->c, err);
}

enum tsr_status tsr_walk_run(const struct tsr_walk *walk, const struct tsr_run *run,
			     struct tsr_err *err)
{
	const struct tsr_checkpoint *c = walk->c;
	struct walking w = { .walk = walk, .wanted = walk->wanted ? walk->wanted : c->tensors };
	enum tsr_status status;

	w.progress = (struct tsr_progress){ .run = run, .what = walk->what ? walk->what : c->path };
	for (size_t i = 0; i < c->ntensors; i++)
		w.progress.total_nbytes += tsr_tensor_nbytes(&c->tensors[i]);
	TSR_TRY(tsr_records_check(c, run, err));
	status = tsr_tensor_tiles(&w.tiles, w.wanted, c->ntensors, c->path, err);
	if (status == TSR_OK)
		status = tsr_plane_hashes_init(&w.hashes, c->path, err);
	if (status == TSR_OK)
		status = run_tiles(&w, err);
	tsr_plane_hashes_free(&w.hashes);
	tsr_tiles_free(&w.tiles);
	return status;
}
