/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading arrays, and coded planes, which hold the pieces of a plane entropy coded (format.md, section
 * 4.8), as they are or as what differs from a base.
 */
#include "ckpt/coded/coded_plane.h"

#include "base/fail.h"
#include "base/little_endian.h"
#include "ckpt/build.h"
#include "ckpt/piece_hash.h"
#include "ckpt/decoders.h"
#include "ckpt/gpu/piece_coder.h"
#include "ckpt/layout.h"
#include "ckpt/tensor_tiles.h"
#include "ckpt/unproven.h"

/* --- What an array is --------------------------------------------------------------------------- */

static enum tsr_status misfit(const struct tsr_checkpoint *c, const struct tsr_array *a,
			      const struct tsr_tensor *t, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: tensor %.200s: dtype or shape of coded plane %.200s does not fit",
			tsr_array_path(c, a), t->name, a->name);
}

/* The shape of a plane: that of its tensor, or one dimension. */
static enum tsr_status take_shape(struct tsr_checkpoint *c, struct tsr_array *a,
				  const struct tsr_tensor *t, unsigned plane, struct tsr_err *err)
{
	const struct tsr_plane_desc *p = t->coding.codec ? &t->coding.codec->planes[plane] : NULL;
	const bool shaped = !p || p->unit == TSR_PER_ELEMENT;
	const uint64_t *from = shaped ? t->shape : &a->numel;
	uint64_t *shape;

	a->numel = p ? tsr_plane_count(&t->coding, plane, t->numel) : t->numel;
	a->dtype = p ? tsr_plane_dtype(&t->coding, plane) : t->dtype;
	a->nbytes = p ? tsr_plane_nbytes(&t->coding, plane, t->numel) : tsr_tensor_nbytes(t);
	a->rank = shaped ? t->rank : 1;
	TSR_TRY(TSR_ARENA_NEW(&shape, a->rank + 1, c->arena, tsr_build_nomem(c, err)));
	memcpy(shape, from, a->rank * sizeof(*shape));
	a->shape = shape;
	return TSR_OK;
}

enum tsr_status tsr_coded_take(struct tsr_checkpoint *c, struct tsr_array *a,
			       const struct tsr_tensor *t, unsigned plane, struct tsr_err *err)
{
	struct tsr_coded *coded;

	if (a->dtype != TSR_U8 || a->rank != 1 || t->numel > TSR_CODED_NUMEL_MAX ||
	    (!t->coding.codec && t->numel * tsr_dtype_bits(t->dtype) % 8))
		return misfit(c, a, t, err);
	TSR_TRY(TSR_ARENA_NEW(&coded, 1, c->arena, tsr_build_nomem(c, err)));
	*coded = (struct tsr_coded){ .nbytes = a->nbytes,
				     .npieces = tsr_coded_npieces(t),
				     .piece_nbytes = tsr_coded_piece_nbytes(t, plane) };
	if (coded->nbytes / TSR_CODED_ENTRY < coded->npieces || (!coded->npieces && coded->nbytes))
		return misfit(c, a, t, err);
	if (!c->decoding)
		c->decoding = tsr_decoding_new();
	if (!c->decoding)
		return tsr_fail_nomem(err, c->path);
	a->coded = coded;
	return take_shape(c, a, t, plane, err);
}

/* --- Reading ------------------------------------------------------------------------------------ */

static enum tsr_status damaged(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t piece, const char *what, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: tensor %.200s: data is damaged: piece %" PRIu64 " of %" PRIu64 ": %s",
			tsr_array_path(c, a), a->name, piece + 1, a->coded->npieces, what);
}

/* Bytes of a coded array, which is in a file or in memory. */
static enum tsr_status read_stored(const struct tsr_checkpoint *c, const struct tsr_array *a,
				   uint64_t offset, size_t nbytes, void *buf, struct tsr_err *err)
{
	if (!a->memory)
		return tsr_file_read(c->files[a->file], buf, nbytes, a->offset + offset, err);
	memcpy(buf, a->memory + offset, nbytes);
	return TSR_OK;
}

/* Where a piece is in its array, and the hash that it should have. */
static enum tsr_status find_piece(const struct tsr_checkpoint *c, const struct tsr_array *a,
				  uint64_t piece, uint64_t *begin_ret, uint64_t *end_ret,
				  uint64_t *hash_ret, struct tsr_err *err)
{
	const struct tsr_coded *coded = a->coded;
	const uint64_t first = coded->npieces * TSR_CODED_ENTRY, before = piece ? 1 : 0;
	unsigned char entry[2 * TSR_CODED_ENTRY];
	const unsigned char *own = entry + before * TSR_CODED_ENTRY;

	TSR_TRY(read_stored(c, a, (piece - before) * TSR_CODED_ENTRY,
			    (1 + before) * TSR_CODED_ENTRY, entry, err));
	*begin_ret = before ? tsr_get_le(entry, 8) : first;
	*end_ret = tsr_get_le(own, 8);
	*hash_ret = tsr_get_le(own + 8, 8);
	if (*begin_ret < first || *end_ret < *begin_ret || *end_ret > coded->nbytes ||
	    (piece + 1 == coded->npieces && *end_ret != coded->nbytes))
		return damaged(c, a, piece, "its place in the index is outside the array", err);
	return TSR_OK;
}

enum tsr_status tsr_coded_hash(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t piece, uint64_t *hash_ret, struct tsr_err *err)
{
	uint64_t begin, end;

	return find_piece(c, a, piece, &begin, &end, hash_ret, err);
}

static enum tsr_status make_room(const struct tsr_checkpoint *c, struct tsr_decoder *d,
				 struct tsr_err *err)
{
	if (!d->old)
		d->old = malloc(TSR_PIECE_NBYTES);
	if (!d->both)
		d->both = malloc(TSR_PIECE_NBYTES);
	return d->old && d->both ? TSR_OK : tsr_fail_nomem(err, c->path);
}

/* The coded bytes of a piece of @n elements into @d, and the hash of what they decode to. */
static enum tsr_status fetch_piece(const struct tsr_checkpoint *c, const struct tsr_array *a,
				   uint64_t piece, size_t n, struct tsr_decoder *d,
				   size_t *nbytes_ret, uint64_t *hash_ret, struct tsr_err *err)
{
	struct tsr_entropy_kind kind = tsr_coded_kind(a->dtype);
	uint64_t begin, end;

	TSR_TRY(find_piece(c, a, piece, &begin, &end, hash_ret, err));
	if (a->coded->old)
		kind.width += a->coded->difference.correction;
	if (end - begin > tsr_entropy_bound(kind, n))
		return damaged(c, a, piece, "has more bytes than any such piece", err);
	*nbytes_ret = (size_t)(end - begin);
	return read_stored(c, a, begin, *nbytes_ret, d->coded, err);
}

static struct tsr_entropy *entropy_of(const struct tsr_decoder *d)
{
	return tsr_piece_coder_entropy(d->coder);
}

static bool holds_differences(const struct tsr_decoder *d, size_t nbytes)
{
	return nbytes && d->coded[0] == TSR_ENTROPY_DIFFERENCES;
}

/* --- Differences from a base, which are read with a decoder of the base's ------------------------- */

/* Old scales and codes of variances into d->old, and the new scales, which are read before all else. */
static enum tsr_status read_old_scales(const struct tsr_checkpoint *c, const struct tsr_array *a,
				       uint64_t piece, struct tsr_decoder *d, size_t n,
				       struct tsr_entropy_old *old, struct tsr_err *err)
{
	const struct tsr_coded *coded = a->coded;
	const uint64_t first = piece * coded->piece_nbytes,
		       at = tsr_plane_nbytes(&coded->coding, 1, first);
	const size_t nbytes = (size_t)tsr_plane_nbytes(&coded->coding, 1, n);
	unsigned char *const scales = d->old + TSR_PIECE_ELEMENTS;

	TSR_TRY(tsr_array_read(c->base, coded->old_scales, at, nbytes, scales, err));
	TSR_TRY(tsr_array_read(c, &c->arrays[coded->scales], at, nbytes, d->scales, err));
	tsr_coded_put_scales(&coded->coding, first, scales, d->scales, old);
	return TSR_OK;
}

/* The name of the tensor that an array is a plane of; looked for only when something is wrong. */
static const char *tensor_of(const struct tsr_checkpoint *c, const struct tsr_array *a)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		for (unsigned plane = 0; plane < c->tensors[i].nplanes; plane++) {
			if (&c->arrays[c->tensors[i].plane[plane]] == a)
				return c->tensors[i].name;
		}
	}
	return a->name;
}

/*
 * A base whose bytes are the right ones can have tensors of other names or shapes, and damage can make a
 * difference of a piece that is none: what is stored does not tell which.
 */
static enum tsr_status lacks_old(const struct tsr_checkpoint *c, const struct tsr_array *a,
				 struct tsr_err *err)
{
	return tsr_fail(
		err, TSR_E_FORMAT,
		"%s: tensor %.200s: is damaged, or was made with a base that has a tensor of this "
		"name, dtype and shape, which %s has not",
		tsr_array_path(c, a), tensor_of(c, a), c->base->path);
}

/* A base of the right bytes can have them under each other's names: then nothing is damaged. */
static enum tsr_status differs(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t piece, const char *what, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: tensor %.200s: piece %" PRIu64 " of %" PRIu64
			": %s: data is damaged, here or in %s, or that is not the base that this "
			"was made with",
			tsr_array_path(c, a), tensor_of(c, a), piece + 1, a->coded->npieces, what,
			c->base->path);
}

/* Refuse a piece whose mode needs a base, in a checkpoint without one. */
static enum tsr_status check_whole(const struct tsr_checkpoint *c, const struct tsr_array *a,
				   struct tsr_err *err)
{
	for (uint64_t piece = 0; piece < a->coded->npieces; piece++) {
		unsigned char first = 0;
		uint64_t begin, end, hash;

		TSR_TRY(find_piece(c, a, piece, &begin, &end, &hash, err));
		if (begin < end)
			TSR_TRY(tsr_file_read(c->files[a->file], &first, 1, a->offset + begin,
					      err));
		if (first == TSR_ENTROPY_DIFFERENCES || first == TSR_ENTROPY_WITHIN)
			return lacks_old(c, a, err);
	}
	return TSR_OK;
}

enum tsr_status tsr_coded_check_whole(const struct tsr_checkpoint *c, struct tsr_err *err)
{
	for (size_t i = 0; c->base && i < c->ntensors; i++) {
		for (unsigned plane = 0; plane < c->tensors[i].nplanes; plane++) {
			const struct tsr_array *a = &c->arrays[c->tensors[i].plane[plane]];

			if (a->coded && !a->coded->old)
				TSR_TRY(check_whole(c, a, err));
		}
	}
	return TSR_OK;
}

static enum tsr_status read_differences(const struct tsr_checkpoint *c, const struct tsr_array *a,
					uint64_t piece, struct tsr_decoder *d, size_t nbytes,
					void *plain, size_t n, struct tsr_err *err)
{
	const struct tsr_coded *coded = a->coded;
	struct tsr_entropy_old old = { .kind = coded->difference };
	const char *wrong;

	if (!c->base)
		return damaged(c, a, piece, "differs from a plane, but the file has no base", err);
	if (!coded->old)
		return lacks_old(c, a, err);
	if (!coded->difference.width || coded->joined)
		return damaged(c, a, piece, "holds differences, which it cannot", err);
	TSR_TRY(make_room(c, d, err));
	old.plane = d->old;
	TSR_TRY(tsr_array_read(c->base, coded->old, piece * coded->piece_nbytes,
			       n * coded->difference.width, d->old, err));
	tsr_unproven_note(c->base, coded->old_tensor, piece, d->old, n * coded->difference.width);
	if (coded->difference.of == TSR_DIFFERENCE_VARIANCES)
		TSR_TRY(read_old_scales(c, a, piece, d, n, &old, err));
	wrong = tsr_entropy_decode_differences(entropy_of(d), &old, d->coded, nbytes, plain, NULL,
					       n);
	return wrong ? differs(c, a, piece, wrong, err) : TSR_OK;
}

/* Two planes that are coded together, of one piece: floats, and behind them their corrections. */
struct both {
	const struct tsr_array *floats, *corrections;
	uint64_t piece;
	size_t n, floats_nbytes, nbytes;
};

static struct both find_both(const struct tsr_checkpoint *c, const struct tsr_array *a,
			     uint64_t piece)
{
	const struct tsr_array *other = &c->arrays[a->coded->partner];
	struct both b = { .floats = a->coded->plane ? other : a,
			  .corrections = a->coded->plane ? a : other,
			  .piece = piece };
	const struct tsr_difference_kind kind = b.floats->coded->difference;
	const uint64_t size = b.floats->coded->piece_nbytes / kind.width,
		       left = b.floats->numel - piece * size;

	b.n = (size_t)(left < size ? left : size);
	b.floats_nbytes = b.n * kind.width;
	b.nbytes = b.n * (kind.width + kind.correction);
	return b;
}

static enum tsr_status read_both(const struct tsr_checkpoint *c, const struct tsr_array *floats,
				 const struct tsr_array *corrections, const struct both *like,
				 unsigned char *to, struct tsr_err *err);

/* Decode both from the floats' piece, of @nbytes in @d, to @to. */
static enum tsr_status decode_both(const struct tsr_checkpoint *c, const struct both *b,
				   struct tsr_decoder *d, size_t nbytes, const uint64_t hash[2],
				   unsigned char *to, struct tsr_err *err)
{
	const struct tsr_coded *coded = b->floats->coded;
	const struct tsr_entropy_old old = { .kind = coded->difference,
					     .plane = d->old,
					     .correction = d->old + b->floats_nbytes };
	const char *wrong;

	TSR_TRY(read_both(c->base, coded->old, b->corrections->coded->old, b, d->old, err));
	wrong = tsr_entropy_decode_differences(entropy_of(d), &old, d->coded, nbytes, to,
					       to + b->floats_nbytes, b->n);
	if (wrong)
		return differs(c, b->floats, b->piece, wrong, err);
	if (tsr_piece_hash(to, b->floats_nbytes) != hash[0])
		return differs(c, b->floats, b->piece, "does not have its hash", err);
	if (tsr_piece_hash(to + b->floats_nbytes, b->nbytes - b->floats_nbytes) != hash[1])
		return differs(c, b->corrections, b->piece, "does not have its hash", err);
	return TSR_OK;
}

/* If the planes are coded together in this piece, decode both to @to: *@together_ret. */
static enum tsr_status try_both(const struct tsr_checkpoint *c, const struct both *b,
				struct tsr_decoder *d, unsigned char *to, bool *together_ret,
				struct tsr_err *err)
{
	size_t nbytes = 0, mark_nbytes = 0;
	uint64_t hash[2];

	*together_ret = false;
	TSR_TRY(fetch_piece(c, b->corrections, b->piece, b->n, d, &mark_nbytes, &hash[1], err));
	if (!mark_nbytes || d->coded[0] != TSR_ENTROPY_WITHIN)
		return TSR_OK;
	if (mark_nbytes != 4 || tsr_get_le(d->coded, 4) != TSR_ENTROPY_WITHIN)
		return damaged(c, b->corrections, b->piece, "has more than its place", err);
	TSR_TRY(fetch_piece(c, b->floats, b->piece, b->n, d, &nbytes, &hash[0], err));
	TSR_TRY(make_room(c, d, err));
	*together_ret = true;
	return decode_both(c, b, d, nbytes, hash, to, err);
}

/* Of a base, whatever it is. */
static enum tsr_status read_both(const struct tsr_checkpoint *c, const struct tsr_array *floats,
				 const struct tsr_array *corrections, const struct both *like,
				 unsigned char *to, struct tsr_err *err)
{
	const uint64_t first = like->piece * like->floats->coded->piece_nbytes,
		       first_correction = like->piece * like->corrections->coded->piece_nbytes;
	bool together = false;

	if (floats->coded && floats->coded->joined) {
		const struct both b = find_both(c, floats, like->piece);
		struct tsr_decoder *d;
		enum tsr_status status;

		TSR_TRY(tsr_decoder_take(c, NULL, 0, &d, err));
		d->held = NULL;
		status = try_both(c, &b, d, to, &together, err);
		tsr_decoder_return(c->decoding, d);
		if (status != TSR_OK || together)
			return status;
	}
	TSR_TRY(tsr_array_read(c, floats, first, like->floats_nbytes, to, err));
	return tsr_array_read(c, corrections, first_correction, like->nbytes - like->floats_nbytes,
			      to + like->floats_nbytes, err);
}

/* Hold both planes of a piece, if they are coded together. */
static enum tsr_status hold_both(const struct tsr_checkpoint *c, const struct both *b,
				 struct tsr_decoder *d, bool *together_ret, struct tsr_err *err)
{
	*together_ret = d->held == b->floats->coded && d->piece == b->piece && d->holds_both;
	if (*together_ret)
		return TSR_OK;
	d->held = NULL;
	TSR_TRY(make_room(c, d, err));
	TSR_TRY(try_both(c, b, d, d->both, together_ret, err));
	if (!*together_ret)
		return TSR_OK;
	d->held = b->floats->coded;
	d->piece = b->piece;
	d->holds_both = true;
	return TSR_OK;
}

/* --- Contexts ----------------------------------------------------------------------------------- */

/* Where @n codes from @first on are, with their scales, which are read with a decoder of their own. */
static enum tsr_status read_variance(const struct tsr_checkpoint *c, const struct tsr_coded *coded,
				     struct tsr_decoder *d, uint64_t first, size_t n,
				     struct tsr_entropy_variance *ret, struct tsr_err *err)
{
	const uint64_t offset = tsr_plane_nbytes(&coded->coding, 1, first);
	const size_t nbytes = (size_t)tsr_plane_nbytes(&coded->coding, 1, n);

	TSR_TRY(tsr_array_read(c, &c->arrays[coded->scales], offset, nbytes, d->scales, err));
	tsr_coded_shorten_scales(&coded->coding, nbytes, d->scales);
	*ret = tsr_coded_variance(&coded->coding, coded->columns, first, d->scales);
	return TSR_OK;
}

/* --- Pieces ------------------------------------------------------------------------------------- */

/* Decode a piece of @n elements from @nbytes bytes; scales are read only if it needs them. */
static enum tsr_status decode_piece(const struct tsr_checkpoint *c, const struct tsr_array *a,
				    uint64_t piece, struct tsr_decoder *d, size_t nbytes,
				    void *plain, size_t n, struct tsr_err *err)
{
	const struct tsr_coded *coded = a->coded;
	struct tsr_entropy_variance variance;
	struct tsr_piece coding = { .kind = tsr_coded_kind(a->dtype), .n = n };
	const char *wrong;

	if (coded->has_contexts && tsr_entropy_has_contexts(d->coded, nbytes)) {
		TSR_TRY(read_variance(c, coded, d, piece * coded->piece_nbytes, n, &variance, err));
		coding.variance = &variance;
	}
	TSR_TRY(tsr_piece_decode(d->coder, &coding, d->coded, nbytes, plain, &wrong, err));
	return wrong ? damaged(c, a, piece, wrong, err) : TSR_OK;
}

/* Decode @nbytes, all of a piece, into @plain. */
static enum tsr_status read_piece(const struct tsr_checkpoint *c, const struct tsr_array *a,
				  uint64_t piece, struct tsr_decoder *d, void *plain, size_t nbytes,
				  struct tsr_err *err)
{
	const size_t n = nbytes / tsr_coded_kind(a->dtype).width;
	size_t coded_nbytes = 0;
	uint64_t hash = 0;
	bool differences;

	TSR_TRY(fetch_piece(c, a, piece, n, d, &coded_nbytes, &hash, err));
	differences = holds_differences(d, coded_nbytes);
	if (differences)
		TSR_TRY(read_differences(c, a, piece, d, coded_nbytes, plain, n, err));
	else
		TSR_TRY(decode_piece(c, a, piece, d, coded_nbytes, plain, n, err));
	if (tsr_piece_hash(plain, nbytes) != hash)
		return (differences ? differs : damaged)(c, a, piece, "does not have its hash",
							 err);
	return TSR_OK;
}

/* Decode the next piece of an array in memory, @left bytes or less, and put its hash into the index. */
static enum tsr_status seal_piece(const struct tsr_checkpoint *c, const struct tsr_array *a,
				  uint64_t piece, struct tsr_decoder *d, uint64_t left,
				  uint64_t *hash_ret, struct tsr_err *err)
{
	const uint64_t size = a->coded->piece_nbytes;
	const size_t nbytes = (size_t)(left < size ? left : size),
		     n = nbytes / tsr_coded_kind(a->dtype).width;
	unsigned char *index = (unsigned char *)(uintptr_t)a->memory;
	size_t coded_nbytes;

	TSR_TRY(fetch_piece(c, a, piece, n, d, &coded_nbytes, hash_ret, err));
	TSR_TRY(decode_piece(c, a, piece, d, coded_nbytes, d->plain, n, err));
	*hash_ret = tsr_piece_hash(d->plain, nbytes);
	tsr_put_le(index + piece * TSR_CODED_ENTRY + 8, *hash_ret, 8);
	return TSR_OK;
}

enum tsr_status tsr_coded_seal(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t *hash_ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_hasher_free) struct tsr_hasher *hasher = tsr_hasher_new();
	enum tsr_status status = TSR_OK;
	struct tsr_decoder *d;

	if (!hasher)
		return tsr_fail_nomem(err, c->path);
	TSR_TRY(tsr_decoder_take(c, NULL, 0, &d, err));
	d->held = NULL;
	tsr_hasher_reset(hasher);
	for (uint64_t i = 0; i < a->coded->npieces && status == TSR_OK; i++) {
		const uint64_t left = a->nbytes - i * a->coded->piece_nbytes;
		uint64_t hash = 0;

		status = seal_piece(c, a, i, d, left, &hash, err);
		tsr_hasher_add(hasher, &hash, sizeof(hash));
	}
	tsr_decoder_return(c->decoding, d);
	*hash_ret = tsr_hasher_value(hasher);
	return status;
}

const unsigned char *tsr_coded_in_memory(const struct tsr_array *a, uint64_t piece,
					 size_t *nbytes_ret, uint64_t *hash_ret)
{
	const unsigned char *entry = a->memory + piece * TSR_CODED_ENTRY;
	const uint64_t begin = piece ? tsr_get_le(entry - TSR_CODED_ENTRY, 8)
				     : a->coded->npieces * TSR_CODED_ENTRY;

	*nbytes_ret = (size_t)(tsr_get_le(entry, 8) - begin);
	*hash_ret = tsr_get_le(entry + 8, 8);
	return a->memory + begin;
}

static enum tsr_status read_part(const struct tsr_checkpoint *c, const struct tsr_array *a,
				 uint64_t piece, size_t from, size_t nbytes, struct tsr_decoder *d,
				 void *buf, struct tsr_err *err)
{
	const struct tsr_coded *coded = a->coded;
	const uint64_t left = a->nbytes - piece * coded->piece_nbytes;
	const size_t whole = (size_t)(left < coded->piece_nbytes ? left : coded->piece_nbytes);

	if (coded->joined) {
		const struct both b = find_both(c, a, piece);
		bool together;

		TSR_TRY(hold_both(c, &b, d, &together, err));
		if (together) {
			memcpy(buf, d->both + (coded->plane ? b.floats_nbytes : 0) + from, nbytes);
			return TSR_OK;
		}
	}
	if (d->held != coded || d->piece != piece || d->holds_both) {
		if (from == 0 && nbytes == whole)
			return read_piece(c, a, piece, d, buf, nbytes, err);
		d->held = NULL;
		TSR_TRY(read_piece(c, a, piece, d, d->plain, whole, err));
		d->held = coded;
		d->piece = piece;
		d->holds_both = false;
	}
	memcpy(buf, d->plain + from, nbytes);
	return TSR_OK;
}

static enum tsr_status read_coded(const struct tsr_checkpoint *c, const struct tsr_array *a,
				  uint64_t offset, size_t nbytes, void *buf, struct tsr_err *err)
{
	const uint64_t size = a->coded->piece_nbytes;
	enum tsr_status status = TSR_OK;
	struct tsr_decoder *d;

	if (!nbytes)
		return TSR_OK;
	TSR_TRY(tsr_decoder_take(
		c,
		a->coded->joined && a->coded->plane ? c->arrays[a->coded->partner].coded : a->coded,
		offset / size, &d, err));
	for (size_t at = 0, n; at < nbytes && status == TSR_OK; at += n) {
		const uint64_t from = (offset + at) % size;

		n = size - from < nbytes - at ? (size_t)(size - from) : nbytes - at;
		status = read_part(c, a, (offset + at) / size, (size_t)from, n, d,
				   (unsigned char *)buf + at, err);
	}
	tsr_decoder_return(c->decoding, d);
	return status;
}

enum tsr_status tsr_array_read(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t offset, size_t nbytes, void *buf, struct tsr_err *err)
{
	if (a->coded)
		return read_coded(c, a, offset, nbytes, buf, err);
	if (!c->nfiles && !a->memory)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: its elements are in a job's memory", c->path,
				a->name);
	if (a->layout)
		return tsr_layout_read(c, a, offset, nbytes, buf, err);
	if (a->memory) {
		if (nbytes)
			memcpy(buf, a->memory + offset, nbytes);
		return TSR_OK;
	}
	return tsr_file_read(c->files[a->file], buf, nbytes, a->offset + offset, err);
}
