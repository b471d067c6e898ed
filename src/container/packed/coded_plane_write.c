/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the arrays of packed files piece by piece, once their planes are complete: coded or as they are.
 * Planes of short pieces are coded twice: first to see whether they gain, before headers are laid out.
 */
#include "container/packed/coded_plane_write.h"

#include <stdatomic.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "base/tiles.h"
#include "ckpt/piece_hash.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/coded/deltas.h"
#include "ckpt/gpu/piece_coder.h"
#include "ckpt/tensor_tiles.h"
#include "container/containers.h"
#include "container/delta/delta_write.h"
#include "container/packed/packed_write.h"
#include "io/hash.h"
#include "parts/parted_pipeline.h"

/* Pieces that are on a GPU, or wait for those before them, while threads work on others. */
#define CODED_THERE 8u

struct coding {
	struct tsr_writer *w;
	const struct tsr_tensor *tensors;
	struct tsr_tiles tiles; /* of the arrays, in their order */
	struct tsr_progress progress;
	struct tsr_hasher *hasher; /* of the array that is being written */
	unsigned char *index; /* likewise */
	size_t index_room;
	uint64_t npieces, at; /* pieces of it so far, and its bytes */
	size_t piece_max; /* the most bytes of a coded piece, but for differences */
	uint64_t *first_piece; /* of a delta, per tensor: its first in @outcomes */
	atomic_uchar *outcomes; /* per piece of all tensors: enum tsr_delta_outcome */
};

/* What joining a piece needs. */
struct found {
	uint64_t hash; /* of the plain piece */
	uint64_t nbytes,
		written; /* of what a part wrote, coded or plain: its bytes, and their hash */
};

/* One piece on its way. */
struct scratch {
	struct found found; /* must be first */
	struct tsr_piece_coder *coder;
	struct tsr_delta_scratch *delta; /* NULL without a base */
	unsigned char *coded;
	const unsigned char *bytes; /* what is written: coded or plain */
	bool coding; /* it is not known yet where that is, and how much */
	uint64_t hash;
	size_t nbytes, coded_nbytes;
	uint16_t scales[TSR_PIECE_ELEMENTS];
	_Alignas(64) unsigned char plain[TSR_PIECE_NBYTES];
};

static const struct tsr_tensor *tensor_of(const struct coding *k, const struct tsr_st_entry *e)
{
	return &k->tensors[TSR_TAG_TENSOR(e->tag)];
}

/* --- Pieces ------------------------------------------------------------------------------------- */

static enum tsr_status open_scratch(void *ctx, const struct tsr_run *run, void *memory,
				    struct tsr_err *err)
{
	const struct coding *k = ctx;
	struct scratch *s = memory;
	enum tsr_status status;

	s->coded = malloc(tsr_coded_piece_max());
	s->delta = k->w->plan.base ? tsr_delta_scratch_new() : NULL;
	status = tsr_piece_coder_new(tsr_run_gpu(run), k->piece_max, &s->coder, err);
	if (status == TSR_OK && s->coded && (s->delta || !k->w->plan.base))
		return TSR_OK;
	tsr_delta_scratch_free(s->delta);
	tsr_piece_coder_free(s->coder);
	free(s->coded);
	return status == TSR_OK ? tsr_fail_nomem(err, k->w->plan.path) : status;
}

static void close_scratch(void *ctx, void *memory)
{
	struct scratch *s = memory;

	(void)ctx;
	tsr_delta_scratch_free(s->delta);
	tsr_piece_coder_free(s->coder);
	free(s->coded);
}

/* The part of a plane that a tile covers, or of another plane of the same tensor, whose tag is @tag. */
static enum tsr_status read_plain(const struct coding *k, size_t tag, const struct tsr_tile *tile,
				  void *plain, struct tsr_err *err)
{
	const struct tsr_writer *w = k->w;
	const struct tsr_tensor *t = &k->tensors[TSR_TAG_TENSOR(tag)];
	const unsigned plane = TSR_TAG_PLANE(tag);
	const uint64_t offset = tsr_tile_plane_offset(t, plane, tile);
	const size_t nbytes = tsr_tile_plane_nbytes(t, plane, tile);

	if (w->spool)
		return tsr_file_read(w->spool, plain, nbytes, tsr_writer_spool_at(w, tag) + offset,
				     err);
	return tsr_array_read(w->plan.c, &w->plan.c->arrays[t->plane[plane]], offset, nbytes, plain,
			      err);
}

/* Begin to code a piece: codes of a variance with contexts, which depend on its scales. */
static enum tsr_status begin_coding(const struct coding *k, const struct tsr_st_entry *e,
				    const struct tsr_tile *tile, struct scratch *s,
				    struct tsr_err *err)
{
	const struct tsr_tensor *t = tensor_of(k, e);
	const struct tsr_entropy_kind kind = tsr_coded_kind(tsr_coded_plane_dtype(t, e->tag));
	struct tsr_entropy_variance variance;
	struct tsr_piece piece = { .kind = kind, .n = s->nbytes / kind.width };

	if (tsr_coded_has_contexts(t, TSR_TAG_PLANE(e->tag))) {
		TSR_TRY(read_plain(k, e->tag + 1, tile, s->scales, err));
		tsr_coded_shorten_scales(&t->coding, tsr_tile_plane_nbytes(t, 1, tile), s->scales);
		variance = tsr_coded_variance(&t->coding, tsr_coded_columns(t), tile->first,
					      s->scales);
		piece.variance = &variance;
	}
	s->coding = true;
	return tsr_piece_encode_begin(s->coder, &piece, s->plain, s->coded, err);
}

/* Wait for a piece that is being coded. */
static enum tsr_status end_coding(struct scratch *s, struct tsr_err *err)
{
	const void *coded;

	if (!s->coding)
		return TSR_OK;
	s->coding = false;
	TSR_TRY(tsr_piece_encode_end(s->coder, &coded, &s->coded_nbytes, err));
	s->bytes = coded;
	return TSR_OK;
}

/* What is known of a piece of two planes that may be coded together; NULL: another piece. */
static atomic_uchar *outcome_of(const struct coding *k, const struct tsr_st_entry *e,
				const struct tsr_tile *tile)
{
	const size_t tensor = TSR_TAG_TENSOR(e->tag);

	if (!k->outcomes || !tile->n || !tsr_coded_is_joined(k->w, e->tag))
		return NULL;
	return &k->outcomes[k->first_piece[tensor] +
			    tile->first / tsr_tensor_piece(&k->tensors[tensor])];
}

/* Code a piece, which lies in @s->coded, by what differs from the base, if that takes fewer bytes. */
static enum tsr_status try_differences(const struct coding *k, const struct tsr_st_entry *e,
				       const struct tsr_tile *tile, struct scratch *s,
				       struct tsr_err *err)
{
	const struct tsr_delta_piece piece = { .base = k->w->plan.base,
					       .tensor = tensor_of(k, e),
					       .plane = TSR_TAG_PLANE(e->tag),
					       .tile = *tile,
					       .entropy = tsr_piece_coder_entropy(s->coder),
					       .plain = s->plain,
					       .nbytes = s->nbytes,
					       .coded = &s->coded,
					       .coded_nbytes = &s->coded_nbytes,
					       .outcome = outcome_of(k, e, tile) };
	const size_t first = e->tag - piece.plane;
	unsigned char *const both = s->delta->both;

	if (tsr_delta_kind(piece.tensor, piece.plane, false).of == TSR_DIFFERENCE_VARIANCES)
		TSR_TRY(read_plain(k, e->tag + 1, tile, s->delta->scales, err));
	if (!piece.outcome)
		return tsr_delta_code(s->delta, &piece, err);
	TSR_TRY(read_plain(k, first, tile, both, err));
	TSR_TRY(read_plain(k, first + 1, tile, both + tsr_tile_plane_nbytes(piece.tensor, 0, tile),
			   err));
	return tsr_delta_code_both(s->delta, &piece, err);
}

static enum tsr_status code_differences(const struct coding *k, const struct tsr_st_entry *e,
					const struct tsr_tile *tile, struct scratch *s,
					struct tsr_err *err)
{
	TSR_TRY(end_coding(s, err));
	if (s->bytes != s->coded)
		memcpy(s->coded, s->bytes, s->coded_nbytes);
	TSR_TRY(try_differences(k, e, tile, s, err));
	s->bytes = s->coded;
	return TSR_OK;
}

/* Whether a piece is to be as memory has it: coded already. */
static bool take_coded(const struct coding *k, const struct tsr_st_entry *e,
		       const struct tsr_tile *tile, struct scratch *s)
{
	const struct tsr_writer *w = k->w;
	const struct tsr_tensor *t = tensor_of(k, e);
	const struct tsr_array *a = &w->plan.c->arrays[t->plane[TSR_TAG_PLANE(e->tag)]];

	if (!w->coded_nbytes[e->tag] || w->spool || w->plan.base || !a->coded || !a->memory)
		return false;
	s->bytes = tsr_coded_in_memory(a, tile->first / tsr_tensor_piece(t), &s->coded_nbytes,
				       &s->hash);
	return true;
}

/* Code a piece, or begin to: what writes it waits for that. */
static enum tsr_status code_piece(void *ctx, void *memory, uint64_t job, struct tsr_err *err)
{
	const struct coding *k = ctx;
	struct scratch *s = memory;
	const struct tsr_tile tile = tsr_tiles_get(&k->tiles, job);
	const struct tsr_st_entry *e = &k->w->arrays[tile.tensor];
	const struct tsr_tensor *t = tensor_of(k, e);
	const unsigned plane = TSR_TAG_PLANE(e->tag);
	const atomic_uchar *outcome;
	unsigned known;

	s->nbytes = tsr_tile_plane_nbytes(t, plane, &tile);
	s->coded_nbytes = 0;
	s->bytes = s->plain;
	s->coding = false;
	if (take_coded(k, e, &tile, s))
		return TSR_OK;
	TSR_TRY(read_plain(k, e->tag, &tile, s->plain, err));
	s->hash = tsr_piece_hash(s->plain, s->nbytes);
	if (!k->w->coded_nbytes[e->tag])
		return TSR_OK;
	outcome = outcome_of(k, e, &tile);
	known = outcome ? atomic_load(outcome) : TSR_DELTA_OPEN;
	if (known == TSR_DELTA_TOGETHER && plane == 1) {
		tsr_put_le(s->coded, TSR_ENTROPY_WITHIN, 4);
		s->bytes = s->coded;
		s->coded_nbytes = 4;
		return TSR_OK;
	}
	TSR_TRY(begin_coding(k, e, &tile, s, err));
	if (s->delta && known != TSR_DELTA_APART)
		return code_differences(k, e, &tile, s, err);
	return k->w->plan.part ? end_coding(s, err) : TSR_OK;
}

/* --- Arrays ------------------------------------------------------------------------------------- */

/* Place the next array behind the one before it, and leave room for its index. */
static enum tsr_status begin_array(struct coding *k, size_t array, struct tsr_err *err)
{
	struct tsr_st_entry *e = &k->w->arrays[array];
	const struct tsr_place *place = &k->w->places[e->tag];
	const struct tsr_writer_file *f = &k->w->files[place->file];
	const struct tsr_st_entry *before = array > f->first ? e - 1 : NULL;
	const uint64_t npieces = tsr_coded_npieces(tensor_of(k, e));
	unsigned char *index;

	e->offset = before ? before->offset + before->nbytes : 0;
	tsr_hasher_reset(k->hasher);
	k->npieces = 0;
	k->at = 0;
	if (!k->w->coded_nbytes[e->tag])
		return TSR_OK;
	k->at = npieces * TSR_CODED_ENTRY;
	if (k->at <= k->index_room)
		return TSR_OK;
	index = realloc(k->index, k->at);
	if (!index)
		return tsr_fail_nomem(err, k->w->plan.path);
	k->index = index;
	k->index_room = k->at;
	return TSR_OK;
}

static enum tsr_status check_hash(const struct coding *k, const struct tsr_st_entry *e,
				  struct tsr_err *err)
{
	const struct tsr_tensor *t = tensor_of(k, e);
	const uint64_t found = tsr_hasher_value(k->hasher);
	const uint64_t expected = t->hash[TSR_TAG_PLANE(e->tag)];

	if (found == expected)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: tensor %.200s: data of %.200s is damaged: found hash %016" PRIx64
			", expected %016" PRIx64,
			k->w->plan.c->path, t->name, e->name, found, expected);
}

static enum tsr_status put(const struct coding *k, const struct tsr_st_entry *e, const void *bytes,
			   size_t nbytes, uint64_t offset, struct tsr_err *err)
{
	const size_t file = k->w->places[e->tag].file;

	return tsr_outfile_write(k->w->outputs.files[file], bytes, nbytes,
				 k->w->files[file].header_nbytes + e->offset + offset, err);
}

static enum tsr_status end_array(struct coding *k, size_t array, struct tsr_err *err)
{
	struct tsr_st_entry *e = &k->w->arrays[array];

	TSR_TRY(check_hash(k, e, err));
	e->nbytes = k->at;
	if (!k->w->coded_nbytes[e->tag])
		return TSR_OK;
	k->w->coded_nbytes[e->tag] = k->at;
	return put(k, e, k->index, k->npieces * TSR_CODED_ENTRY, 0, err);
}

/*
 * Give up a piece in the spool that is coded and no contexts depend on: its memory is used for what is
 * written next, and output and spool together take little more room than the spool.  Planes of parts stay:
 * joining them may fail, and be done again.
 */
static void drop_plain(const struct coding *k, const struct tsr_st_entry *e,
		       const struct tsr_tile *tile)
{
	const struct tsr_tensor *t = tensor_of(k, e);
	const unsigned plane = TSR_TAG_PLANE(e->tag);

	if (k->w->spool && !k->w->plan.part && !k->w->plan.base &&
	    !(plane && tsr_coded_has_contexts(t, 0)))
		tsr_file_scratch_drop(k->w->spool, tsr_tile_plane_nbytes(t, plane, tile),
				      tsr_writer_spool_at(k->w, e->tag) +
					      tsr_tile_plane_offset(t, plane, tile));
}

/* Write a piece as @bytes, which are coded or plain. */
static enum tsr_status write_as(struct coding *k, const struct scratch *s, uint64_t job,
				const unsigned char *bytes, struct tsr_err *err)
{
	const struct tsr_tile tile = tsr_tiles_get(&k->tiles, job);
	const struct tsr_st_entry *e = &k->w->arrays[tile.tensor];
	const bool coded = k->w->coded_nbytes[e->tag] != 0;
	const size_t nbytes = coded ? s->coded_nbytes : s->nbytes;

	if (tile.first == 0)
		TSR_TRY(begin_array(k, tile.tensor, err));
	if (tile.n) {
		const size_t at = k->npieces++ * TSR_CODED_ENTRY;

		TSR_TRY(put(k, e, bytes, nbytes, k->at, err));
		k->at += nbytes;
		tsr_hasher_add(k->hasher, &s->hash, sizeof(s->hash));
		if (coded) {
			k->w->differs[e->tag] |= bytes[0] == TSR_ENTROPY_DIFFERENCES ||
						 bytes[0] == TSR_ENTROPY_WITHIN;
			tsr_put_le(k->index + at, k->at, 8);
			tsr_put_le(k->index + at + 8, s->hash, 8);
		}
		drop_plain(k, e, &tile);
	}
	if (tile.last)
		TSR_TRY(end_array(k, tile.tensor, err));
	return tsr_progress_add(&k->progress, s->nbytes, err);
}

static enum tsr_status write_piece(void *ctx, void *memory, uint64_t job, struct tsr_err *err)
{
	struct scratch *s = memory;

	TSR_TRY(end_coding(s, err));
	return write_as(ctx, s, job, s->bytes, err);
}

/* --- In parts: where a piece goes is known when all before it are coded --------------------------- */

static bool is_coded(const struct coding *k, uint64_t job)
{
	const struct tsr_tile tile = tsr_tiles_get(&k->tiles, job);

	return k->w->coded_nbytes[k->w->arrays[tile.tensor].tag] != 0;
}

static void note_piece(void *ctx, void *memory, uint64_t job)
{
	struct scratch *s = memory;

	s->found.hash = s->hash;
	s->found.nbytes = is_coded(ctx, job) ? s->coded_nbytes : s->nbytes;
	s->found.written = tsr_hash(s->bytes, (size_t)s->found.nbytes, 0);
}

static enum tsr_status put_piece(void *ctx, void *memory, uint64_t job, struct tsr_err *err)
{
	const struct coding *k = ctx;
	const struct scratch *s = memory;

	(void)job;
	return tsr_part_put(k->w->plan.part, s->bytes, (size_t)s->found.nbytes, err);
}

static uint64_t weigh_piece(void *ctx, uint64_t job)
{
	const struct coding *k = ctx;
	const struct tsr_tile tile = tsr_tiles_get(&k->tiles, job);
	const struct tsr_st_entry *e = &k->w->arrays[tile.tensor];

	return tsr_tile_plane_nbytes(tensor_of(k, e), TSR_TAG_PLANE(e->tag), &tile);
}

static enum tsr_status join_piece(void *ctx, void *memory, uint64_t job, struct tsr_err *err)
{
	struct coding *k = ctx;
	struct scratch *s = memory;
	const uint64_t plain = weigh_piece(ctx, job), found = s->found.nbytes;
	const bool coded = is_coded(k, job);

	if (coded ? found > tsr_coded_piece_max() || !found != !plain : found != plain)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found a piece of %" PRIu64 " bytes in its parts, expected "
				"%s%" PRIu64,
				k->w->plan.path, found, coded ? "one for " : "", plain);
	s->hash = s->found.hash;
	s->nbytes = (size_t)plain;
	s->coded_nbytes = (size_t)found;
	if (!s->coded)
		TSR_TRY(TSR_TAKE(&s->coded, tsr_coded_piece_max(), k->w->arena, err,
				 k->w->plan.path));
	s->bytes = s->coded;
	return found ? tsr_part_get(k->w->plan.part, s->coded, s->coded_nbytes, s->found.written,
				    err)
		     : TSR_OK;
}

/* Of a trial: count what the pieces of a plane take, and how many bytes it is to have. */
static enum tsr_status count_piece(void *ctx, void *memory, uint64_t job, struct tsr_err *err)
{
	struct coding *k = ctx;
	struct scratch *s = memory;
	const struct tsr_tile tile = tsr_tiles_get(&k->tiles, job);
	const struct tsr_st_entry *e = &k->w->arrays[tile.tensor];

	TSR_TRY(end_coding(s, err));
	if (tile.first == 0)
		k->at = tsr_coded_npieces(tensor_of(k, e)) * TSR_CODED_ENTRY;
	k->at += s->coded_nbytes;
	if (tile.last)
		k->w->coded_nbytes[e->tag] = k->at + TSR_CODED_GAIN <= e->nbytes ? k->at : 0;
	return tsr_progress_add(&k->progress, 0, err);
}

static void end_file(const struct tsr_writer *w, struct tsr_writer_file *f)
{
	const struct tsr_st_entry *last = f->end > f->first ? &w->arrays[f->end - 1] : NULL;

	f->nbytes = f->header_nbytes + (last ? last->offset + last->nbytes : 0);
}

/* Of a trial only the pieces of planes that are tried. */
static enum tsr_status list_pieces(struct coding *k, bool trial, struct tsr_err *err)
{
	const struct tsr_writer *w = k->w;

	tsr_tiles_free(&k->tiles);
	TSR_TRY(tsr_tiles_init(&k->tiles, w->plan.narrays, w->plan.path, err));
	for (size_t i = 0; i < w->plan.narrays; i++) {
		const struct tsr_tensor *t = tensor_of(k, &w->arrays[i]);

		if (trial && !tsr_coded_is_tried(w, &w->arrays[i]))
			tsr_tiles_skip(&k->tiles);
		else
			tsr_tiles_add(&k->tiles, t->coding.codec ? t->numel : tsr_tensor_nbytes(t),
				      tsr_tensor_piece(t));
	}
	return TSR_OK;
}

static enum tsr_status run_pieces(struct coding *k, bool trial, const struct tsr_run *run,
				  struct tsr_err *err)
{
	/* Parts that have written planes into a spool code nothing. */
	struct tsr_parts *part = trial || k->w->spool ? NULL : k->w->plan.part;
	const struct tsr_pipeline pipeline = {
		.njobs = k->tiles.njobs,
		.scratch_nbytes = sizeof(struct scratch),
		.waiting = tsr_run_gpu(run) ? CODED_THERE : 0,
		.open = open_scratch,
		.close = close_scratch,
		.work = code_piece,
		.commit = tsr_part_joins(part) ? join_piece : NULL,
		.finish = trial			  ? count_piece
			  : tsr_part_is_one(part) ? put_piece
						  : write_piece,
		.ctx = k,
	};
	const struct tsr_parted parted = { .pipeline = &pipeline,
					   .what = k->w->plan.path,
					   .weigh = weigh_piece,
					   .found_nbytes = sizeof(struct found),
					   .order = note_piece,
					   .join_finish = write_piece,
					   .keeps_failures = true };

	if (part)
		return tsr_parted_run(&parted, run, err);
	return k->tiles.njobs ? tsr_pipeline_run(&pipeline, run, err) : TSR_OK;
}

/* Room for the outcomes of a delta's pieces. */
static enum tsr_status list_outcomes(struct coding *k, struct tsr_err *err)
{
	const size_t ntensors = k->w->plan.packed->ntensors;
	struct tsr_arena *arena = k->w->arena;
	uint64_t n = 0;

	if (!k->w->plan.base)
		return TSR_OK;
	TSR_TRY(TSR_TAKE(&k->first_piece, ntensors + 1, arena, err, k->w->plan.path));
	for (size_t i = 0; i < ntensors; i++) {
		k->first_piece[i] = n;
		n += tsr_coded_npieces(&k->tensors[i]);
	}
	return TSR_TAKE(&k->outcomes, n + 1, arena, err, k->w->plan.path);
}

static enum tsr_status write_coded(struct coding *k, const struct tsr_run *run, struct tsr_err *err)
{
	struct tsr_writer *w = k->w;

	TSR_TRY(TSR_TAKE(&w->coded_nbytes, w->ntags + 1, w->arena, err, w->plan.path));
	TSR_TRY(TSR_TAKE(&w->differs, w->ntags + 1, w->arena, err, w->plan.path));
	k->hasher = tsr_hasher_new();
	if (!k->hasher)
		return tsr_fail_nomem(err, w->plan.path);
	k->piece_max = tsr_coded_choose_planes(w);
	TSR_TRY(list_outcomes(k, err));
	TSR_TRY(list_pieces(k, true, err));
	TSR_TRY(run_pieces(k, true, run, err));
	TSR_TRY(tsr_coded_lay_out(w, err));
	TSR_TRY(list_pieces(k, false, err));
	TSR_TRY(run_pieces(k, false, run, err));
	if (!w->spool)
		TSR_TRY(tsr_part_end(w->plan.part, err));
	for (size_t i = 0; i < w->nfiles; i++)
		end_file(w, &w->files[i]);
	return tsr_safetensors_index(w, err);
}

enum tsr_status tsr_coded_write(struct tsr_writer *w, const struct tsr_run *run,
				struct tsr_err *err)
{
	struct coding k = { .w = w,
			    .tensors = w->plan.packed->tensors,
			    .progress = { .run = run,
					  .what = w->plan.path,
					  .total_nbytes = tsr_writer_data_nbytes(w) } };
	const enum tsr_status status = write_coded(&k, run, err);

	tsr_tiles_free(&k.tiles);
	tsr_hasher_free(k.hasher);
	free(k.index);
	return status;
}
