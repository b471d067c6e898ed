/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of the packed format: which arrays of a safetensors file make which tensor. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/coded_plane.h"
#include "ckpt/deltas.h"
#include "codec/narrow.h"
#include "container/packed/members.h"
#include "container/packed/packed_read.h"
#include "io/dir.h"
#include "text/base64.h"
#include "text/json.h"
#include "text/named.h"

struct reading {
	struct tsr_checkpoint *c;
	const char *path;
	bool *used; /* per array: some tensor has it */
	struct tsr_named *sorted; /* the arrays */
	const float *codebook; /* NULL: none */
	bool codebook_used;
	bool entropy, entropy_used; /* there may be coded planes; there are some */
	struct tsr_err *err;
};

static enum tsr_status bad(struct reading *r, const char *name, const char *what)
{
	return tsr_packed_bad(r->path, name, what, r->err);
}

static enum tsr_status read_error(struct reading *r, struct tsr_tensor *t, const struct tsr_json *v)
{
	struct tsr_error_summary *e;

	if (!TSR_PACKED_HAS_MEMBERS(v, "abs", "ulp", "rel", "nmse", "cosine", "exact", "flushed",
				    "scale_underflow"))
		return bad(r, t->name, "error figures are incomplete");
	e = tsr_arena_alloc(r->c->arena, sizeof(*e));
	if (!e)
		return tsr_build_nomem(r->c, r->err);
	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++) {
		const struct tsr_json *value = tsr_json_get(v, tsr_metric_name((enum tsr_metric)i));

		if (tsr_json_type(value) == TSR_JSON_NULL)
			e->value[i] = INFINITY;
		else if (!tsr_json_double(value, &e->value[i]))
			return bad(r, t->name, "an error figure is not a number");
	}
	if (!tsr_json_u64(tsr_json_get(v, "exact"), &e->exact) ||
	    !tsr_json_u64(tsr_json_get(v, "flushed"), &e->flushed) ||
	    !tsr_json_u64(tsr_json_get(v, "scale_underflow"), &e->scale_underflow))
		return bad(r, t->name, "an error count is not an integer");
	t->error = e;
	return TSR_OK;
}

static enum tsr_status read_groups(struct reading *r, struct tsr_tensor *t,
				   const struct tsr_json *v)
{
	const struct tsr_json *scale = tsr_json_get(v, "scale"), *group = tsr_json_get(v, "group");
	const struct tsr_json *rows = tsr_json_get(v, "rows");
	bool has_rows = false;
	uint64_t n;

	if (!t->coding.codec || !t->coding.codec->grouped)
		return scale || group || rows
			       ? bad(r, t->name, "scale, group or rows of a codec without groups")
			       : TSR_OK;
	if (!tsr_json_string(scale) || !tsr_scale_find(tsr_json_string(scale), &t->coding.scale))
		return bad(r, t->name, "unknown scale format");
	if (!(t->coding.codec->scales >> t->coding.scale & 1))
		return bad(r, t->name, "a scale format that its codec does not have");
	if (!tsr_json_u64(group, &n) || n < 1 || n > TSR_GROUP_MAX)
		return bad(r, t->name, "group is not an integer from 1 to 65536");
	t->coding.group = (uint32_t)n;
	t->coding.kind = t->kind;
	if (!rows)
		return TSR_OK;
	t->coding.row = tsr_coding_row(&t->coding, t->rank, t->shape);
	if (!tsr_json_bool(rows, &has_rows) || !has_rows || !t->coding.row)
		return bad(r, t->name,
			   "rows is not true, or of a tensor whose rows its groups divide");
	return TSR_OK;
}

/* The variance that relative codes go with, which may not be read yet, and the eps. */
static enum tsr_status read_beside(struct reading *r, struct tsr_tensor *t,
				   const struct tsr_json *v)
{
	const struct tsr_json *beside = tsr_json_get(v, "beside"), *eps = tsr_json_get(v, "eps");
	double value;

	if (!t->coding.codec || !t->coding.codec->relative)
		return beside || eps
			       ? bad(r, t->name, "beside or eps of a codec that is not relative")
			       : TSR_OK;
	if (!tsr_json_string(beside))
		return bad(r, t->name, "beside is not a name");
	if (!tsr_json_double(eps, &value) || !(value >= 0) || !((float)value < INFINITY))
		return bad(r, t->name, "eps is not a number from 0 on");
	t->coding.eps = (float)value;
	t->beside = tsr_arena_string(r->c->arena, tsr_json_string(beside));
	return t->beside ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

static enum tsr_status read_coding(struct reading *r, struct tsr_tensor *t,
				   const struct tsr_json *v)
{
	const char *codec = tsr_json_string(tsr_json_get(v, "codec"));
	const struct tsr_json *seed = tsr_json_get(v, "seed");

	t->coding.group = 1;
	t->nplanes = 1;
	if (!codec)
		return bad(r, t->name, "no codec");
	if (strcmp(codec, "raw") != 0) {
		t->coding.codec = tsr_codec_find(codec);
		if (!t->coding.codec)
			return tsr_fail(r->err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: unknown codec %.60s", r->path, t->name,
					codec);
		t->nplanes = t->coding.codec->nplanes;
		if (t->coding.codec->has_codebook && !r->codebook)
			return bad(r, t->name, "a codec with a codebook, and no codebook");
		if (t->coding.codec->has_codebook) {
			t->coding.codebook = r->codebook;
			r->codebook_used = true;
		}
	}
	if (!t->coding.codec || !t->coding.codec->stochastic) {
		if (seed)
			return bad(r, t->name, "seed of a codec that is not stochastic");
	} else if (!tsr_json_u64(seed, &t->coding.seed)) {
		return bad(r, t->name, "no seed");
	}
	TSR_TRY(read_beside(r, t, v));
	return read_groups(r, t, v);
}

/* The codebook of all tensors that have one: finite entries that do not decrease. */
static enum tsr_status read_codebook(struct reading *r, const struct tsr_json *v)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text bytes = { 0 };
	const float *entry;

	if (!v)
		return TSR_OK;
	if (!tsr_json_string(v) || !tsr_base64_get(&bytes, tsr_json_string(v)) ||
	    bytes.nbytes != TSR_PACKED_CODEBOOK_NBYTES)
		return bad(r, NULL, "codebook is not base64 of 256 floats");
	entry = tsr_arena_dup(r->c->arena, bytes.bytes, bytes.nbytes);
	if (!entry)
		return tsr_build_nomem(r->c, r->err);
	for (unsigned i = 0; i < 256; i++) {
		if (!isfinite(entry[i]) || (i && entry[i] < entry[i - 1]))
			return bad(r, NULL, "codebook is not ascending");
	}
	r->codebook = entry;
	return TSR_OK;
}

/* The coder of coded planes, if there are any. */
static enum tsr_status read_entropy(struct reading *r, const struct tsr_json *v)
{
	if (!v)
		return TSR_OK;
	if (!tsr_json_string(v))
		return bad(r, NULL, "entropy is not a name");
	if (strcmp(tsr_json_string(v), TSR_PACKED_CODER) != 0)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED, "%s: unknown entropy coder %.60s",
				r->path, tsr_json_string(v));
	r->entropy = true;
	return TSR_OK;
}

/* What a delta says of its base. */
static enum tsr_status read_base(struct reading *r, const struct tsr_json *v)
{
	struct tsr_base_name *base = &r->c->base_name;
	const char *name = tsr_json_string(tsr_json_get(v, "name"));
	unsigned levels;
	uint64_t depth;

	if (!v)
		return TSR_OK;
	if (!TSR_PACKED_HAS_MEMBERS(v, "name", "set", "depth") || !name ||
	    !tsr_base_name_is_valid(name, &levels) ||
	    !tsr_packed_read_hash(tsr_json_get(v, "set"), &base->set) ||
	    !tsr_json_u64(tsr_json_get(v, "depth"), &depth) || depth < 1)
		return bad(r, NULL, "base is not the name of a file, a set and a depth");
	if (depth > TSR_CHAIN_MAX)
		return tsr_fail(r->err, TSR_E_LIMIT,
				"%s: is a delta at depth %" PRIu64 ", over the limit of %u",
				r->path, depth, TSR_CHAIN_MAX);
	if (!r->entropy)
		return bad(r, NULL, "base without entropy");
	base->depth = (unsigned)depth;
	base->name = tsr_arena_string(r->c->arena, name);
	return base->name ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

/* The tensor whose array is the first plane, if this one has none. */
static enum tsr_status read_narrow(struct reading *r, struct tsr_tensor *t,
				   const struct tsr_json *v)
{
	const struct tsr_json *narrow = tsr_json_get(v, "narrow");

	if (!narrow)
		return TSR_OK;
	if (!tsr_json_string(narrow))
		return bad(r, t->name, "narrow is not a name");
	if (!t->coding.codec || t->nplanes != 2 || t->coding.codec->planes[0].suffix[0])
		return bad(r, t->name, "narrow of a codec without a correction");
	t->narrow = tsr_arena_string(r->c->arena, tsr_json_string(narrow));
	return t->narrow ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

/* The array NAME + SUFFIX, which no tensor had so far. */
static struct tsr_array *take_array(struct reading *r, const char *name, const char *suffix,
				    size_t *index_ret)
{
	const struct tsr_named *found = tsr_named_find_joined(r->sorted, r->c->narrays, name,
							      strlen(name), suffix);

	if (!found || r->used[found->index])
		return NULL;
	*index_ret = found->index;
	r->used[found->index] = true;
	return &r->c->arrays[found->index];
}

static bool same_shape(const struct tsr_array *a, unsigned rank, const uint64_t *shape)
{
	return a->rank == rank && (!rank || memcmp(a->shape, shape, rank * sizeof(*shape)) == 0);
}

/* A plane as it is, or else coded, which then looks as if it were not. */
static enum tsr_status take_plane(struct reading *r, struct tsr_tensor *t, unsigned plane,
				  const char *suffix, const struct tsr_array **ret)
{
	char coded[64];
	struct tsr_array *a = take_array(r, t->name, suffix, &t->plane[plane]);

	*ret = a;
	if (a || !r->entropy)
		return TSR_OK;
	snprintf(coded, sizeof(coded), "%s" TSR_CODED_SUFFIX, suffix);
	*ret = a = take_array(r, t->name, coded, &t->plane[plane]);
	if (!a)
		return TSR_OK;
	r->entropy_used = true;
	return tsr_coded_take(r->c, a, t, plane, r->err);
}

static enum tsr_status read_planes(struct reading *r, struct tsr_tensor *t, uint64_t *shape)
{
	for (unsigned i = t->narrow ? 1 : 0; i < t->nplanes; i++) {
		const struct tsr_plane_desc *p = t->coding.codec ? &t->coding.codec->planes[i]
								 : NULL;
		const char *suffix = p ? p->suffix : "";
		const enum tsr_dtype dtype = p ? tsr_plane_dtype(&t->coding, i) : t->dtype;
		const bool shaped = !p || p->unit == TSR_PER_ELEMENT;
		const uint64_t count = p ? tsr_plane_count(&t->coding, i, t->numel) : 0;
		const struct tsr_array *a;

		TSR_TRY(take_plane(r, t, i, suffix, &a));
		if (!a)
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: tensor %.200s: no plane %.200s%s", r->path, t->name,
					t->name, suffix);
		if (a->dtype != dtype ||
		    !(shaped ? same_shape(a, t->rank, shape) : same_shape(a, 1, &count)))
			return tsr_fail(
				r->err, TSR_E_FORMAT,
				"%s: tensor %.200s: dtype or shape of plane %.200s does not "
				"fit its codec",
				tsr_file_path(r->c->files[a->file]), t->name, a->name);
	}
	return TSR_OK;
}

static enum tsr_status read_shape(struct reading *r, struct tsr_tensor *t, const struct tsr_json *v,
				  uint64_t **shape_ret)
{
	uint64_t *shape;

	if (!tsr_json_is_list(v))
		return bad(r, t->name, "no shape");
	TSR_TRY(TSR_NEW(&shape, TSR_RANK_MAX + 1, r->err, r->path));
	*shape_ret = shape;
	t->shape = shape;
	t->numel = 1;
	for (v = tsr_json_first(v); v; v = tsr_json_next(v)) {
		if (t->rank == TSR_RANK_MAX || !tsr_json_u64(v, &shape[t->rank]) ||
		    __builtin_mul_overflow(t->numel, shape[t->rank], &t->numel))
			return bad(r, t->name, "shape is not a list of integers within limits");
		t->rank++;
	}
	return TSR_OK;
}

/* A first plane with an element each is shaped like the tensor; it may not be known yet. */
static enum tsr_status keep_shape(struct reading *r, struct tsr_tensor *t, const uint64_t *shape)
{
	const size_t nbytes = t->rank * sizeof(*shape);
	const bool shaped = !t->coding.codec || t->coding.codec->planes[0].unit == TSR_PER_ELEMENT;

	t->shape = t->narrow || !shaped ? tsr_arena_dup(r->c->arena, shape, nbytes)
					: r->c->arrays[t->plane[0]].shape;
	return t->shape ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

static enum tsr_status read_tensor(struct reading *r, const struct tsr_json *v)
{
	struct tsr_tensor *t = &r->c->tensors[r->c->ntensors];
	const char *name, *kind, *dtype;
	TSR_OWNED(free) uint64_t *shape = NULL;
	const struct tsr_json *hash, *error;

	if (!TSR_PACKED_HAS_MEMBERS(v, "name", "kind", "dtype", "shape", "codec", "?scale",
				    "?group", "?rows", "?beside", "?eps", "?seed", "?narrow",
				    "xxh3", "?error"))
		return bad(r, NULL, "a tensor with missing or unknown members");
	name = tsr_json_string(tsr_json_get(v, "name"));
	kind = tsr_json_string(tsr_json_get(v, "kind"));
	dtype = tsr_json_string(tsr_json_get(v, "dtype"));
	if (!name || !kind || !dtype || !tsr_kind_find(kind, &t->kind))
		return bad(r, name, "name, kind or dtype is unknown");
	t->dtype = tsr_dtype_find(dtype);
	if (t->dtype == TSR_DTYPE_COUNT)
		return bad(r, name, "unknown dtype");
	if (tsr_packed_name_reserved(name) || strcmp(name, "__metadata__") == 0)
		return bad(r, name, "a name that no source tensor can have");
	t->name = name; /* until the array that lends it is known */
	TSR_TRY(read_shape(r, t, tsr_json_get(v, "shape"), &shape));
	t->shape = shape;
	TSR_TRY(read_coding(r, t, v));
	TSR_TRY(read_narrow(r, t, v));
	TSR_TRY(read_planes(r, t, shape));
	TSR_TRY(keep_shape(r, t, shape));
	if (t->coding.codec && !tsr_codec_takes(t->coding.codec, t->dtype))
		return bad(r, t->name, "a codec on a tensor of a dtype that it does not take");
	hash = tsr_json_get(v, "xxh3");
	hash = tsr_json_is_list(hash) ? tsr_json_first(hash) : NULL;
	for (unsigned i = 0; i < t->nplanes; i++) {
		if (!hash || !tsr_packed_read_hash(hash, &t->hash[i]))
			return bad(r, t->name, "no hash for each plane");
		hash = tsr_json_next(hash);
	}
	if (hash)
		return bad(r, t->name, "more hashes than planes");
	error = tsr_json_get(v, "error");
	if (error && !t->coding.codec)
		return bad(r, t->name, "error figures of a raw tensor");
	if (error)
		TSR_TRY(read_error(r, t, error));
	/* The name of its array may carry a suffix: keep a copy. */
	t->name = tsr_arena_string(r->c->arena, name);
	if (!t->name)
		return tsr_fail_nomem(r->err, r->path);
	r->c->ntensors++;
	return TSR_OK;
}

/* One after the other: a tree of all of them would be several times as large as their text. */
static enum tsr_status read_list(struct reading *r, const struct tsr_packed_text *text)
{
	const struct tsr_json_rules rules = tsr_packed_rules(r->path);
	size_t at = 0;

	TSR_TRY(TSR_NEW(&r->c->tensors, tsr_json_count_elements(text->tensors, text->nbytes) + 1,
			r->err, r->path));
	for (;;) {
		TSR_OWNED(tsr_json_free) struct tsr_json *v = NULL;

		TSR_TRY(tsr_json_take_element(text->tensors, text->nbytes, &at, &rules, &v,
					      r->err));
		if (!v)
			return TSR_OK;
		TSR_TRY(read_tensor(r, v));
	}
}

static enum tsr_status read_tensors(struct reading *r, const struct tsr_packed_text *text)
{
	if (!text->tensors)
		return bad(r, NULL, "no list of tensors");
	TSR_TRY(read_list(r, text));
	for (size_t i = 0; i < r->c->narrays; i++) {
		if (!r->used[i])
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: tensor %.200s: is not a plane of any packed tensor",
					tsr_file_path(r->c->files[r->c->arrays[i].file]),
					r->c->arrays[i].name);
	}
	return TSR_OK;
}

enum tsr_status tsr_packed_read_tensors(struct tsr_checkpoint *c,
					const struct tsr_packed_text *text, struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	struct reading r = { .c = c, .path = c->path, .err = err };

	TSR_TRY(TSR_TAKE(&r.used, c->narrays + 1, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&r.sorted, c->narrays + 1, arena, err, c->path));
	for (size_t i = 0; i < c->narrays; i++)
		r.sorted[i] = (struct tsr_named){ c->arrays[i].name, i };
	tsr_named_sort(r.sorted, c->narrays);
	TSR_TRY(read_codebook(&r, tsr_json_get(text->root, "codebook")));
	TSR_TRY(read_entropy(&r, tsr_json_get(text->root, "entropy")));
	TSR_TRY(read_base(&r, tsr_json_get(text->root, "base")));
	TSR_TRY(read_tensors(&r, text));
	if (r.codebook && !r.codebook_used)
		return bad(&r, NULL, "a codebook that no tensor has");
	if (r.entropy && !r.entropy_used)
		return bad(&r, NULL, "entropy without a coded plane");
	return TSR_OK;
}
