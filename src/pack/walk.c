/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/walk.h"

#include "base/crc.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/pipeline.h"
#include "ckpt/checkpoint_model.h"
#include "pack/coder.h"
#include "ckpt/checksum.h"

struct walking {
	const struct tsr_walk *walk;
	const struct tsr_run *run;
	struct tsr_pieces pieces;
	struct tsr_hasher *hasher[TSR_PLANES_MAX];
	struct tsr_record_crc record; /* of the tensor being committed */
	uint64_t done_nbytes, total_nbytes;
};

/* What there is of a piece under way; the walk's extra bytes follow. */
struct scratch {
	struct tsr_coder coder; /* first: the pipeline opens it */
	uint32_t crc; /* of what was read, where the file has a checksum of it */
	struct tsr_restored restored;
	_Alignas(64) unsigned char extra[];
};

static enum tsr_status piece_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct walking *w = ctx;
	struct scratch *s = scratch;
	const struct tsr_walk *walk = w->walk;
	const struct tsr_piece piece = tsr_pieces_get(&w->pieces, job);
	const struct tsr_tensor *t = &walk->c->tensors[piece.tensor];
	struct tsr_coder_memory *m = s->coder.m;
	void *plane[TSR_PLANES_MAX];

	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		plane[i] = m->plane[i];
	TSR_TRY(tsr_piece_read(walk->c, &piece, plane, err));
	if (tsr_record_is_streamed(walk->c, t))
		s->crc = tsr_crc32(0, m->plane[0], piece.n);
	s->restored = (struct tsr_restored){ .piece = piece,
					     .tensor = t,
					     .data = m->plane[0],
					     .nbytes = piece.n,
					     .offset = piece.first };
	if (t->coding.codec) {
		TSR_TRY(tsr_coder_decode(&s->coder, &t->coding, piece.n, err));
		s->restored.data = m->x;
		s->restored.nbytes *= sizeof(float);
		s->restored.offset *= sizeof(float);
	}
	return walk->work ? walk->work(walk->ctx, s->extra, &s->restored, err) : TSR_OK;
}

static enum tsr_status check_hashes(struct walking *w, const struct scratch *s, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->walk->c;
	const struct tsr_tensor *t = s->restored.tensor;

	for (unsigned i = 0; i < t->nplanes; i++) {
		uint64_t found;

		if (s->restored.piece.first == 0)
			tsr_hasher_reset(w->hasher[i]);
		tsr_hasher_add(w->hasher[i], s->coder.m->plane[i],
			       tsr_piece_plane_nbytes(t, i, &s->restored.piece));
		if (!s->restored.piece.last)
			continue;
		found = tsr_hasher_value(w->hasher[i]);
		if (found != t->hash[i])
			return tsr_fail(
				err, TSR_E_FORMAT,
				"%s: tensor %.200s: data of %.200s is damaged: found hash %016llx, "
				"expected %016llx",
				c->path, t->name, c->arrays[t->plane[i]].name,
				(unsigned long long)found, (unsigned long long)t->hash[i]);
	}
	return TSR_OK;
}

static enum tsr_status check_record(struct walking *w, const struct scratch *s, struct tsr_err *err)
{
	const struct tsr_restored *r = &s->restored;

	if (r->piece.first == 0)
		w->record = (struct tsr_record_crc){ 0 };
	tsr_record_add(&w->record, s->crc, r->piece.n);
	return r->piece.last
		       ? tsr_record_check(w->walk->c, &w->walk->c->arrays[r->tensor->plane[0]],
					  &w->record, err)
		       : TSR_OK;
}

static enum tsr_status piece_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct walking *w = ctx;
	struct scratch *s = scratch;
	const struct tsr_walk *walk = w->walk;

	(void)job;
	if (walk->c->packed)
		TSR_TRY(check_hashes(w, s, err));
	if (tsr_record_is_streamed(walk->c, s->restored.tensor))
		TSR_TRY(check_record(w, s, err));
	if (walk->commit)
		TSR_TRY(walk->commit(walk->ctx, s->extra, &s->restored, err));
	w->done_nbytes += s->restored.nbytes;
	if (w->run && w->run->progress &&
	    !w->run->progress(w->run->ctx, w->done_nbytes, w->total_nbytes))
		return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled", walk->c->path);
	return TSR_OK;
}

static enum tsr_status piece_finish(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct walking *w = ctx;
	struct scratch *s = scratch;

	(void)job;
	return w->walk->finish(w->walk->ctx, s->extra, &s->restored, err);
}

enum tsr_status tsr_walk_run(const struct tsr_walk *walk, const struct tsr_run *run,
			     struct tsr_err *err)
{
	struct walking w = { .walk = walk, .run = run };
	struct tsr_pipeline pipeline = {
		.scratch_nbytes = sizeof(struct scratch) + walk->extra_nbytes,
		.open = tsr_coder_open_decoder,
		.close = tsr_coder_close,
		.work = piece_work,
		.commit = piece_commit,
		.finish = walk->finish ? piece_finish : NULL,
		.ctx = &w,
	};
	enum tsr_status status = tsr_records_check(walk->c, false, run, err);

	if (status == TSR_OK)
		status = tsr_pieces_init(&w.pieces, walk->c, err);

	for (unsigned i = 0; i < TSR_PLANES_MAX && status == TSR_OK; i++) {
		w.hasher[i] = tsr_hasher_new();
		if (!w.hasher[i])
			status = tsr_fail_nomem(err, walk->c->path);
	}
	for (size_t i = 0; i < walk->c->ntensors; i++)
		w.total_nbytes += tsr_tensor_nbytes(&walk->c->tensors[i]);
	if (status == TSR_OK) {
		pipeline.njobs = tsr_pieces_count(&w.pieces);
		status = tsr_pipeline_run(&pipeline, run, err);
	}
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		tsr_hasher_free(w.hasher[i]);
	tsr_pieces_free(&w.pieces);
	return status == TSR_OK ? tsr_checkpoint_check_unchanged(walk->c, err) : status;
}
