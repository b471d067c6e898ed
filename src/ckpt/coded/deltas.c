/* SPDX-License-Identifier: Apache-2.0 */
/* Deltas: which tensor of a base a tensor differs from, and how its planes do. */
#include "ckpt/coded/deltas.h"

#include "base/fail.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "ckpt/build.h"
#include "ckpt/piece_hash.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/tensor_tiles.h"
#include "ckpt/unproven.h"
#include "io/dir.h"
#include "io/hash.h"
#include "io/node_list.h"

uint64_t tsr_tensors_set(const struct tsr_tensor *tensors, size_t n)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < n; i++) {
		for (unsigned plane = 0; plane < tensors[i].nplanes; plane++)
			hash = tsr_hash(&tensors[i].hash[plane], sizeof(uint64_t), hash);
	}
	return hash;
}

/* --- The set of a plain checkpoint --------------------------------------------------------------- */

struct hashing {
	struct tsr_checkpoint *c;
	struct tsr_tiles pieces;
	const struct tsr_known_piece *known; /* NULL: none is */
	struct tsr_hasher *hasher; /* of the tensor that is at its turn */
	struct tsr_progress progress;
};

struct piece {
	uint64_t hash;
	unsigned char bytes[TSR_PIECE_NBYTES];
};

static enum tsr_status hash_piece(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct hashing *h = ctx;
	const struct tsr_tile tile = tsr_tiles_get(&h->pieces, job);
	const struct tsr_array *a = &h->c->arrays[h->c->tensors[tile.tensor].plane[0]];
	struct piece *p = scratch;

	if (h->known && h->known[job].is) {
		p->hash = h->known[job].hash;
		return TSR_OK;
	}
	TSR_TRY(tsr_array_read(h->c, a, tile.first, (size_t)tile.n, p->bytes, err));
	p->hash = tsr_piece_hash(p->bytes, (size_t)tile.n);
	return TSR_OK;
}

static enum tsr_status take_hash(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct hashing *h = ctx;
	const struct tsr_tile tile = tsr_tiles_get(&h->pieces, job);
	const struct piece *p = scratch;

	if (tile.first == 0)
		tsr_hasher_reset(h->hasher);
	if (tile.n)
		tsr_hasher_add(h->hasher, &p->hash, sizeof(p->hash));
	if (tile.last)
		h->c->tensors[tile.tensor].hash[0] = tsr_hasher_value(h->hasher);
	return tsr_progress_add(&h->progress, 0, err);
}

static enum tsr_status hash_pieces(struct hashing *h, const struct tsr_run *run,
				   struct tsr_err *err)
{
	struct tsr_pipeline pipeline = { .scratch_nbytes = sizeof(struct piece),
					 .work = hash_piece,
					 .commit = take_hash,
					 .ctx = h };

	TSR_TRY(tsr_unproven_pieces(h->c, &h->pieces, err));
	pipeline.njobs = h->pieces.njobs;
	return pipeline.njobs ? tsr_pipeline_run(&pipeline, run, err) : TSR_OK;
}

static enum tsr_status check_plain(const struct tsr_checkpoint *c, struct tsr_err *err)
{
	if (c->coded)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: has states of another tool, expected a plain model", c->path);
	return TSR_OK;
}

enum tsr_status tsr_plain_set(struct tsr_checkpoint *c, const struct tsr_run *run,
			      struct tsr_err *err)
{
	TSR_OWNED(tsr_hasher_free) struct tsr_hasher *hasher = tsr_hasher_new();
	struct hashing h = { .c = c,
			     .hasher = hasher,
			     .known = c->unproven ? c->unproven->known : NULL,
			     .progress = { .run = run, .what = c->path, .total_nbytes = 1 } };
	enum tsr_status status;

	if (!hasher)
		return tsr_fail_nomem(err, c->path);
	TSR_TRY(check_plain(c, err));
	status = hash_pieces(&h, run, err);
	if (status == TSR_OK)
		c->set = tsr_tensors_set(c->tensors, c->ntensors);
	tsr_tiles_free(&h.pieces);
	return status;
}

/* --- How a base is named ------------------------------------------------------------------------ */

bool tsr_base_name_is_valid(const char *name, unsigned *levels)
{
	const char *at = name;

	for (*levels = 0; strncmp(at, "../", 3) == 0; at += 3)
		++*levels;
	return *levels <= TSR_NODES_DEPTH_MAX + 1 && tsr_dir_count_names(at) == *levels + 1;
}

/* --- Whether a base is the right one ------------------------------------------------------------ */

/* Whether @model is what the update @c leads to, whose planes are the tensors of that. */
static bool is_result(const struct tsr_checkpoint *c, const struct tsr_checkpoint *model)
{
	bool is = model->set == c->set && model->ntensors == c->ntensors;

	for (size_t i = 0; is && i < c->ntensors; i++) {
		const struct tsr_tensor *t = tsr_checkpoint_find(model, c->tensors[i].name);

		is = t && tsr_tensor_same_shape(t, &c->tensors[i]);
	}
	return is;
}

enum tsr_status tsr_delta_check_base(const struct tsr_checkpoint *c, const char *path,
				     struct tsr_err *err)
{
	const struct tsr_checkpoint *base = c->base;

	if (base->set == c->base_name.set)
		return TSR_OK;
	if (is_result(c, base))
		return tsr_fail(err, TSR_E_FORMAT, "%s: the update is already in %s", c->path,
				path);
	return tsr_fail_hint(err, TSR_E_FORMAT, TSR_HINT_BASE,
			     "%s: is not what %s was made from, which was called %s", path, c->path,
			     c->base_name.name);
}

enum tsr_status tsr_delta_prove_later(struct tsr_checkpoint *c, const char *path,
				      struct tsr_err *err)
{
	TSR_TRY(check_plain(c->base, err));
	return tsr_unproven_new(c->base, path, err);
}

enum tsr_status tsr_delta_prove(struct tsr_checkpoint *c, enum tsr_status status,
				const struct tsr_run *run, struct tsr_err *err)
{
	struct tsr_err other;

	if (!c->base || !c->base->unproven || (status != TSR_OK && status != TSR_E_FORMAT))
		return status;
	if (status == TSR_OK) {
		TSR_TRY(tsr_plain_set(c->base, run, err));
		return tsr_delta_check_base(c, c->base->unproven->path, err);
	}
	if (tsr_plain_set(c->base, run, &other) != TSR_OK ||
	    tsr_delta_check_base(c, c->base->unproven->path, &other) == TSR_OK)
		return status;
	if (err)
		*err = other;
	return TSR_E_FORMAT;
}

/* --- Planes and those of the base ---------------------------------------------------------------- */

static bool same_coding(const struct tsr_tensor *a, const struct tsr_tensor *b)
{
	if (a->dtype != b->dtype || a->coding.codec != b->coding.codec)
		return false;
	return !a->coding.codec ||
	       (a->coding.scale == b->coding.scale && a->coding.group == b->coding.group &&
		a->coding.row == b->coding.row);
}

/* BF16 or FP16 if plane 0 holds one such float per element, whatever the codec adds to it. */
static enum tsr_dtype narrow_dtype(const struct tsr_tensor *t)
{
	const struct tsr_codec *codec = t->coding.codec;
	enum tsr_dtype dtype = t->dtype;

	if (codec && (codec->planes[0].suffix[0] || codec->planes[0].unit != TSR_PER_ELEMENT))
		return TSR_DTYPE_COUNT;
	if (codec)
		dtype = tsr_plane_dtype(&t->coding, 0);
	return dtype == TSR_BF16 || dtype == TSR_F16 ? dtype : TSR_DTYPE_COUNT;
}

const struct tsr_tensor *tsr_delta_old(const struct tsr_checkpoint *base,
				       const struct tsr_tensor *t, unsigned plane)
{
	const struct tsr_tensor *old = base ? tsr_checkpoint_find(base, t->name) : NULL;
	const enum tsr_dtype narrow = narrow_dtype(t);

	if (!old || !tsr_tensor_same_shape(old, t))
		return NULL;
	if (same_coding(old, t))
		return old;
	return plane == 0 && narrow != TSR_DTYPE_COUNT && narrow_dtype(old) == narrow ? old : NULL;
}

bool tsr_delta_joins(const struct tsr_tensor *t)
{
	const struct tsr_codec *codec = t->coding.codec;
	enum tsr_dtype correction;

	if (!codec || t->narrow || t->nplanes != 2 || narrow_dtype(t) == TSR_DTYPE_COUNT ||
	    codec->planes[1].unit != TSR_PER_ELEMENT)
		return false;
	correction = tsr_plane_dtype(&t->coding, 1);
	return correction == TSR_I8 || correction == TSR_I16;
}

static bool is_float(enum tsr_dtype dtype, unsigned *mantissa_ret)
{
	*mantissa_ret = dtype == TSR_BF16 ? 7 : dtype == TSR_F16 ? 10 : 23;
	return dtype == TSR_BF16 || dtype == TSR_F16 || dtype == TSR_F32;
}

struct tsr_difference_kind tsr_delta_kind(const struct tsr_tensor *t, unsigned plane, bool joined)
{
	const enum tsr_dtype dtype = t->coding.codec ? tsr_plane_dtype(&t->coding, plane)
						     : t->dtype;
	struct tsr_difference_kind kind = { .width = tsr_entropy_kind(dtype).width };

	if (kind.width != 1 && kind.width != 2 && kind.width != 4)
		return (struct tsr_difference_kind){ .width = 0 };
	if (is_float(dtype, &kind.mantissa))
		kind.of = TSR_DIFFERENCE_FLOATS;
	if (plane == 0 && tsr_coded_is_root(&t->coding))
		kind.of = TSR_DIFFERENCE_VARIANCES;
	if (joined && plane == 0)
		kind.correction = tsr_entropy_kind(tsr_plane_dtype(&t->coding, 1)).width;
	return kind;
}

/* One plane of a tensor of the base, which is coded; @joined: coded with the other one. */
static enum tsr_status link_plane(struct tsr_checkpoint *c, const struct tsr_tensor *t,
				  const struct tsr_tensor *old, unsigned plane, bool joined,
				  struct tsr_err *err)
{
	struct tsr_array *a = &c->arrays[t->plane[plane]];
	struct tsr_coded *coded;

	TSR_TRY(TSR_ARENA_NEW(&coded, 1, c->arena, tsr_build_nomem(c, err)));
	*coded = *a->coded;
	coded->difference = tsr_delta_kind(t, plane, joined);
	if (coded->difference.of == TSR_DIFFERENCE_VARIANCES) {
		coded->coding = t->coding;
		coded->old_scales = &c->base->arrays[old->plane[1]];
		coded->scales = t->plane[1];
	}
	coded->old = &c->base->arrays[old->plane[plane]];
	coded->old_tensor = (size_t)(old - c->base->tensors);
	coded->joined = joined;
	coded->partner = joined ? t->plane[!plane] : t->plane[plane];
	coded->plane = plane;
	a->coded = coded;
	return TSR_OK;
}

static enum tsr_status link_tensor(struct tsr_checkpoint *c, const struct tsr_tensor *t,
				   struct tsr_err *err)
{
	const bool joined = tsr_delta_joins(t) && c->arrays[t->plane[0]].coded &&
			    c->arrays[t->plane[1]].coded && tsr_delta_old(c->base, t, 1);

	for (unsigned plane = t->narrow ? 1 : 0; plane < t->nplanes; plane++) {
		const struct tsr_tensor *old = tsr_delta_old(c->base, t, plane);

		if (old && c->arrays[t->plane[plane]].coded)
			TSR_TRY(link_plane(c, t, old, plane, joined, err));
	}
	return TSR_OK;
}

enum tsr_status tsr_delta_link(struct tsr_checkpoint *c, struct tsr_err *err)
{
	for (size_t i = 0; i < c->ntensors; i++)
		TSR_TRY(link_tensor(c, &c->tensors[i], err));
	/* The planes of others, which are arrays of their own here. */
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const struct tsr_tensor *from = t->narrow ? tsr_checkpoint_find(c, t->narrow)
							  : NULL;

		if (from)
			c->arrays[t->plane[0]].coded = c->arrays[from->plane[0]].coded;
	}
	return TSR_OK;
}
