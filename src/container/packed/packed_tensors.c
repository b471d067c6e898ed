/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of the packed format: which arrays of a safetensors file make which tensor. */
#include <math.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "ckpt/build.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/coded/deltas.h"
#include "codec/narrow.h"
#include "container/packed/members.h"
#include "container/packed/packed_read.h"
#include "text/base64.h"
#include "text/json.h"
#include "text/named.h"
#include "text/shape.h"

/* How tensors are stored: what a file says once for all that have it in common. */
struct coding {
	enum tsr_kind kind;
	enum tsr_dtype dtype;
	struct tsr_coding coding; /* without a row */
	bool rows;
	bool used; /* some tensor has it */
};

/* The bytes of a list that is base64, taken in the order of the tensors. */
struct column {
	struct tsr_text bytes;
	size_t at;
};

struct reading {
	struct tsr_checkpoint *c;
	const char *path;
	struct tsr_arena *arena; /* of what is needed only here */
	bool *used; /* per array: some tensor has it */
	size_t nown; /* arrays of the packed file itself; those behind are of its weights file */
	size_t next; /* no array before it is left */
	struct tsr_named *sorted; /* the arrays */
	struct coding *codings;
	size_t ncodings;
	struct column hashes, errors;
	bool has_errors;
	const float *codebook; /* NULL: none */
	bool codebook_used;
	bool entropy, entropy_used; /* there may be coded planes; there are some */
	struct tsr_err *err;
};

#define BAD_SHAPE "shape is not a list of integers within limits"

static enum tsr_status bad(struct reading *r, const char *name, const char *what)
{
	return tsr_packed_bad(r->path, name, what, r->err);
}

/* --- Codings ------------------------------------------------------------------------------------- */

static enum tsr_status read_groups(struct reading *r, struct coding *to, const struct tsr_json *v)
{
	const struct tsr_json *scale = tsr_json_get(v, "scale"), *group = tsr_json_get(v, "group");
	const struct tsr_json *rows = tsr_json_get(v, "rows");
	uint64_t n;

	if (!to->coding.codec || !to->coding.codec->grouped)
		return scale || group || rows
			       ? bad(r, NULL, "scale, group or rows of a codec without groups")
			       : TSR_OK;
	if (!tsr_json_string(scale) || !tsr_scale_find(tsr_json_string(scale), &to->coding.scale))
		return bad(r, NULL, "unknown scale format");
	if (!(to->coding.codec->scales >> to->coding.scale & 1))
		return bad(r, NULL, "a scale format that its codec does not have");
	if (!tsr_json_u64(group, &n) || n < 1 || n > TSR_GROUP_MAX)
		return bad(r, NULL, "group is not an integer from 1 to 65536");
	if (to->coding.codec->code_bits && n % TSR_BIT_PACKED_SHARE)
		return bad(r, NULL, "group of packed codes is no multiple of 32");
	to->coding.group = (uint32_t)n;
	to->coding.kind = to->kind;
	if (rows && (!tsr_json_bool(rows, &to->rows) || !to->rows))
		return bad(r, NULL, "rows is not true");
	if (to->coding.codec->rank && !rows)
		return bad(r, NULL, "a low-rank codec without rows");
	return TSR_OK;
}

/* What relative and stochastic codecs have, and no others. */
static enum tsr_status read_eps_and_seed(struct reading *r, struct coding *to,
					 const struct tsr_json *v)
{
	const struct tsr_json *eps = tsr_json_get(v, "eps"), *seed = tsr_json_get(v, "seed");
	const struct tsr_codec *codec = to->coding.codec;
	double value;

	if (!codec || !codec->relative) {
		if (eps)
			return bad(r, NULL, "eps of a codec that is not relative");
	} else if (!tsr_json_double(eps, &value) || !(value >= 0) || !((float)value < INFINITY)) {
		return bad(r, NULL, "eps is not a number from 0 on");
	} else {
		tsr_coding_use_eps(&to->coding, (float)value);
	}
	if (!codec || !codec->stochastic)
		return seed ? bad(r, NULL, "seed of a codec that is not stochastic") : TSR_OK;
	return tsr_json_u64(seed, &to->coding.seed) ? TSR_OK : bad(r, NULL, "no seed");
}

static enum tsr_status read_coding(struct reading *r, struct coding *to, const struct tsr_json *v)
{
	const char *kind = tsr_json_string(tsr_json_get(v, "kind"));
	const char *codec = tsr_json_string(tsr_json_get(v, "codec"));
	const struct tsr_json *dtype = tsr_json_get(v, "dtype");

	if (!TSR_PACKED_HAS_MEMBERS(v, "kind", "codec", "?dtype", "?scale", "?group", "?rows",
				    "?eps", "?seed"))
		return bad(r, NULL, "a coding with missing or unknown members");
	if (!kind || !tsr_kind_find(kind, &to->kind))
		return bad(r, NULL, "kind is unknown");
	to->dtype = !dtype ? TSR_F32
			   : tsr_dtype_find(tsr_json_string(dtype) ? tsr_json_string(dtype) : "");
	if (to->dtype == TSR_DTYPE_COUNT)
		return bad(r, NULL, "unknown dtype");
	if (!codec)
		return bad(r, NULL, "no codec");
	to->coding.group = 1;
	to->coding.codec = tsr_codec_find(codec);
	if (!to->coding.codec && strcmp(codec, "raw") != 0)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED, "%s: unknown codec %.60s", r->path,
				codec);
	if (to->coding.codec && !tsr_codec_takes(to->coding.codec, to->dtype))
		return bad(r, NULL, "a codec with a dtype that it does not take");
	if (to->coding.codec && to->coding.codec->has_codebook) {
		if (!r->codebook)
			return bad(r, NULL, "a codec with a codebook, and no codebook");
		to->coding.codebook = r->codebook;
	}
	TSR_TRY(read_eps_and_seed(r, to, v));
	return read_groups(r, to, v);
}

static enum tsr_status read_codings(struct reading *r, const struct tsr_json *v)
{
	if (!tsr_json_is_list(v))
		return bad(r, NULL, "no list of codings");
	TSR_TRY(TSR_TAKE(&r->codings, tsr_json_size(v) + 1, r->arena, r->err, r->path));
	for (v = tsr_json_first(v); v; v = tsr_json_next(v))
		TSR_TRY(read_coding(r, &r->codings[r->ncodings++], v));
	return TSR_OK;
}

/* --- What the file says once --------------------------------------------------------------------- */

static enum tsr_status read_column(struct reading *r, struct column *to, const struct tsr_json *v,
				   const char *what)
{
	if (!tsr_json_string(v) || !tsr_base64_get(&to->bytes, tsr_json_string(v)))
		return bad(r, NULL, what);
	return to->bytes.failed ? tsr_fail_nomem(r->err, r->path) : TSR_OK;
}

static void free_column(struct column *column)
{
	tsr_text_free(&column->bytes);
}

/* The next bytes; NULL: there are not so many. */
static const unsigned char *take_bytes(struct column *from, size_t nbytes)
{
	if (nbytes > from->bytes.nbytes - from->at)
		return NULL;
	from->at += nbytes;
	return (const unsigned char *)from->bytes.bytes + from->at - nbytes;
}

/* The codebook of all tensors that have one: finite entries that do not decrease. */
static enum tsr_status read_codebook(struct reading *r, const struct tsr_json *v)
{
	TSR_SCOPED(free_column) struct column book = { .at = 0 };
	const float *entry;

	if (!v)
		return TSR_OK;
	TSR_TRY(read_column(r, &book, v, "codebook is not base64 of 256 floats"));
	if (book.bytes.nbytes != TSR_PACKED_CODEBOOK_NBYTES)
		return bad(r, NULL, "codebook is not base64 of 256 floats");
	entry = tsr_arena_dup(r->c->arena, book.bytes.bytes, book.bytes.nbytes);
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

/* --- Tensors ------------------------------------------------------------------------------------- */

static const char *suffix_of(const struct tsr_tensor *t, unsigned plane)
{
	return t->coding.codec ? t->coding.codec->planes[plane].suffix : "";
}

/* The length of a name without a suffix that it ends in; SIZE_MAX: it does not. */
static size_t without(const char *name, size_t len, const char *suffix)
{
	const size_t n = strlen(suffix);

	return len >= n && memcmp(name + len - n, suffix, n) == 0 ? len - n : SIZE_MAX;
}

/* The name that is given, or that of the next array, which is then the first plane. */
static enum tsr_status read_name(struct reading *r, struct tsr_tensor *t, const struct tsr_json *v,
				 bool narrow)
{
	const char *name = tsr_json_string(v);
	size_t len = name ? strlen(name) : 0, plain;

	while (r->next < r->nown && r->used[r->next])
		r->next++;
	if (v && !name)
		return bad(r, NULL, "a name is not a string");
	if (!v) {
		if (r->next == r->nown)
			return bad(r, NULL, "more tensors than arrays");
		name = r->c->arrays[r->next].name;
		len = strlen(name);
		plain = r->entropy ? without(name, len, TSR_CODED_SUFFIX) : SIZE_MAX;
		len = without(name, plain < len ? plain : len,
			      suffix_of(t, narrow && t->nplanes > 1));
		if (len == SIZE_MAX)
			return bad(r, name, "is not the first plane of the next tensor");
	}
	t->name = tsr_arena_copy(r->c->arena, name, len);
	if (!t->name)
		return tsr_build_nomem(r->c, r->err);
	if (tsr_packed_name_reserved(t->name) || strcmp(t->name, "__metadata__") == 0)
		return bad(r, t->name, "a name that no source tensor can have");
	return TSR_OK;
}

/* A member that is the name of another tensor, which may not be read yet; NULL: there is none. */
static enum tsr_status read_other(struct reading *r, const struct tsr_tensor *t,
				  const struct tsr_json *v, const char *bad_name, const char **ret)
{
	*ret = NULL;
	if (!v)
		return TSR_OK;
	if (!tsr_json_string(v))
		return bad(r, t->name, bad_name);
	*ret = tsr_arena_string(r->c->arena, tsr_json_string(v));
	return *ret ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

/* The tensors that relative codes go with, and whose array is the first plane if this one has none. */
static enum tsr_status read_others(struct reading *r, struct tsr_tensor *t,
				   const struct tsr_json *v)
{
	const struct tsr_codec *codec = t->coding.codec;

	TSR_TRY(read_other(r, t, tsr_json_get(v, "beside"), "beside is not a name", &t->beside));
	TSR_TRY(read_other(r, t, tsr_json_get(v, "narrow"), "narrow is not a name", &t->narrow));
	if (!t->beside != !(codec && codec->relative))
		return bad(r, t->name,
			   t->beside ? "beside of a codec that is not relative" : "no beside");
	if (t->narrow && (!codec || t->nplanes != 2 || codec->planes[0].suffix[0]))
		return bad(r, t->name, "narrow of a codec without a correction");
	return TSR_OK;
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

static enum tsr_status read_planes(struct reading *r, struct tsr_tensor *t)
{
	for (unsigned i = t->narrow ? 1 : 0; i < t->nplanes; i++) {
		const struct tsr_plane_desc *p = t->coding.codec ? &t->coding.codec->planes[i]
								 : NULL;
		const char *suffix = suffix_of(t, i);
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
		    !(shaped ? same_shape(a, t->rank, t->shape) : same_shape(a, 1, &count)))
			return tsr_fail(
				r->err, TSR_E_FORMAT,
				"%s: tensor %.200s: dtype or shape of plane %.200s does not "
				"fit its codec",
				tsr_file_path(r->c->files[a->file]), t->name, a->name);
	}
	return TSR_OK;
}

/* The shape that is given. */
static enum tsr_status read_shape(struct reading *r, struct tsr_tensor *t, const struct tsr_json *v)
{
	uint64_t *shape;

	if (!tsr_json_is_list(v) || tsr_json_size(v) > TSR_RANK_MAX)
		return bad(r, t->name, BAD_SHAPE);
	TSR_TRY(TSR_ARENA_NEW(&shape, tsr_json_size(v), r->c->arena,
			      tsr_build_nomem(r->c, r->err)));
	t->shape = shape;
	for (v = tsr_json_first(v); v; v = tsr_json_next(v)) {
		if (!tsr_json_u64(v, &shape[t->rank++]))
			return bad(r, t->name, BAD_SHAPE);
	}
	return TSR_OK;
}

/* That of the first plane, which the packed file itself has: no check of it covers another one's header. */
static enum tsr_status take_shape(struct reading *r, struct tsr_tensor *t)
{
	const struct tsr_codec *codec = t->coding.codec;
	const char *suffix = suffix_of(t, 0);
	const struct tsr_named *found;

	if (t->narrow || (codec && codec->planes[0].unit != TSR_PER_ELEMENT))
		return bad(r, t->name, "no shape");
	found = tsr_named_find_joined(r->sorted, r->c->narrays, t->name, strlen(t->name), suffix);
	if (!found && r->entropy) /* which may be coded */
		return bad(r, t->name, "no shape");
	if (!found)
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: tensor %.200s: no plane %.200s%s",
				r->path, t->name, t->name, suffix);
	if (found->index >= r->nown)
		return bad(r, t->name, "no shape");
	t->shape = r->c->arrays[found->index].shape;
	t->rank = r->c->arrays[found->index].rank;
	return TSR_OK;
}

static enum tsr_status find_shape(struct reading *r, struct tsr_tensor *t, const struct tsr_json *v)
{
	TSR_TRY(v ? read_shape(r, t, v) : take_shape(r, t));
	return tsr_shape_numel(t->rank, t->shape, &t->numel) ? TSR_OK : bad(r, t->name, BAD_SHAPE);
}

static enum tsr_status read_hashes(struct reading *r, struct tsr_tensor *t)
{
	for (unsigned i = 0; i < t->nplanes; i++) {
		const unsigned char *bytes = take_bytes(&r->hashes, sizeof(t->hash[i]));

		if (!bytes)
			return bad(r, t->name, "no hash for each plane");
		t->hash[i] = tsr_get_le(bytes, sizeof(t->hash[i]));
	}
	return TSR_OK;
}

static enum tsr_status read_errors(struct reading *r, struct tsr_tensor *t)
{
	unsigned char unmeasured[TSR_PACKED_ERROR_NBYTES];
	const unsigned char *bytes;
	struct tsr_error_summary *e;

	if (!r->has_errors || !t->coding.codec)
		return TSR_OK;
	bytes = take_bytes(&r->errors, TSR_PACKED_ERROR_NBYTES);
	if (!bytes)
		return bad(r, t->name, "no error figures");
	memset(unmeasured, 0xff, sizeof(unmeasured));
	if (memcmp(bytes, unmeasured, sizeof(unmeasured)) == 0)
		return TSR_OK;
	TSR_TRY(TSR_ARENA_NEW(&e, 1, r->c->arena, tsr_build_nomem(r->c, r->err)));
	for (enum tsr_metric i = 0; i < TSR_METRIC_COUNT; i++) {
		const unsigned n = tsr_packed_figure_nbytes(i);

		e->value[i] = tsr_packed_figure(i, tsr_get_le(bytes, n));
		if (isnan(e->value[i]))
			return bad(r, t->name, "an error figure is not a number");
		bytes += n;
	}
	t->error = e;
	return TSR_OK;
}

/* A tensor is its coding, or an object with what else has to be said of it. */
static enum tsr_status read_tensor(struct reading *r, const struct tsr_json *v)
{
	const bool object = tsr_json_type(v) == TSR_JSON_OBJECT;
	struct tsr_tensor *t = &r->c->tensors[r->c->ntensors];
	struct coding *coding;
	uint64_t index;

	if (object && !TSR_PACKED_HAS_MEMBERS(v, "coding", "?name", "?shape", "?beside", "?narrow"))
		return bad(r, NULL, "a tensor with missing or unknown members");
	if (!tsr_json_u64(object ? tsr_json_get(v, "coding") : v, &index) || index >= r->ncodings)
		return bad(r, NULL, "a tensor without one of the codings");
	coding = &r->codings[index];
	coding->used = true;
	t->kind = coding->kind;
	t->dtype = coding->dtype;
	t->coding = coding->coding;
	t->nplanes = coding->coding.codec ? coding->coding.codec->nplanes : 1;
	r->codebook_used = r->codebook_used || coding->coding.codebook;
	TSR_TRY(read_name(r, t, tsr_json_get(v, "name"), tsr_json_get(v, "narrow") != NULL));
	TSR_TRY(read_others(r, t, v));
	TSR_TRY(find_shape(r, t, tsr_json_get(v, "shape")));
	if (coding->rows) {
		t->coding.row = tsr_coding_row(&t->coding, t->rank, t->shape);
		t->coding.share = tsr_coding_share(&t->coding, t->rank, t->shape);
		if (!t->coding.row)
			return bad(r, t->name,
				   coding->coding.codec->rank
					   ? "a low-rank codec of a tensor that it is not for"
					   : "rows of a tensor whose rows its groups divide");
	}
	TSR_TRY(read_planes(r, t));
	TSR_TRY(read_hashes(r, t));
	TSR_TRY(read_errors(r, t));
	r->c->ntensors++;
	return TSR_OK;
}

static enum tsr_status read_tensors(struct reading *r, const struct tsr_json *v)
{
	if (!tsr_json_is_list(v))
		return bad(r, NULL, "no list of tensors");
	if (tsr_json_size(v) > r->c->narrays)
		return bad(r, NULL, "more tensors than arrays");
	TSR_TRY(TSR_NEW(&r->c->tensors, tsr_json_size(v) + 1, r->err, r->path));
	for (v = tsr_json_first(v); v; v = tsr_json_next(v))
		TSR_TRY(read_tensor(r, v));
	for (size_t i = 0; i < r->ncodings; i++) {
		if (!r->codings[i].used)
			return bad(r, NULL, "a coding that no tensor has");
	}
	if (r->hashes.at < r->hashes.bytes.nbytes)
		return bad(r, NULL, "more hashes than planes");
	if (r->errors.at < r->errors.bytes.nbytes)
		return bad(r, NULL, "more error figures than tensors with a codec");
	for (size_t i = 0; i < r->c->narrays; i++) {
		if (!r->used[i])
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: tensor %.200s: is not a plane of any packed tensor",
					tsr_file_path(r->c->files[r->c->arrays[i].file]),
					r->c->arrays[i].name);
	}
	return TSR_OK;
}

static void free_columns(struct reading *r)
{
	free_column(&r->hashes);
	free_column(&r->errors);
}

enum tsr_status tsr_packed_read_tensors(struct tsr_checkpoint *c, size_t nown,
					const struct tsr_json *text, struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	const struct tsr_json *errors = tsr_json_get(text, "error");
	TSR_SCOPED(free_columns)
	struct reading r = { .c = c,
			     .path = c->path,
			     .arena = arena,
			     .nown = nown,
			     .has_errors = errors != NULL,
			     .err = err };

	TSR_TRY(TSR_TAKE(&r.used, c->narrays + 1, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&r.sorted, c->narrays + 1, arena, err, c->path));
	for (size_t i = 0; i < c->narrays; i++)
		r.sorted[i] = (struct tsr_named){ c->arrays[i].name, i };
	tsr_named_sort(r.sorted, c->narrays);
	TSR_TRY(read_codebook(&r, tsr_json_get(text, "codebook")));
	TSR_TRY(read_entropy(&r, tsr_json_get(text, "entropy")));
	TSR_TRY(read_base(&r, tsr_json_get(text, "base")));
	TSR_TRY(read_codings(&r, tsr_json_get(text, "codings")));
	TSR_TRY(read_column(&r, &r.hashes, tsr_json_get(text, "xxh3"), "xxh3 is not base64"));
	if (errors)
		TSR_TRY(read_column(&r, &r.errors, errors, "error is not base64"));
	TSR_TRY(read_tensors(&r, tsr_json_get(text, "tensors")));
	if (r.codebook && !r.codebook_used)
		return bad(&r, NULL, "a codebook that no tensor has");
	if (r.entropy && !r.entropy_used)
		return bad(&r, NULL, "entropy without a coded plane");
	return TSR_OK;
}
