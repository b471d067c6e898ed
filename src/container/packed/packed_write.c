/* SPDX-License-Identifier: Apache-2.0 */
/* Writing of the packed format: the arrays of its tensors, and the header that describes them. */
#include "container/packed/packed_write.h"

#include <math.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "io/hash.h"
#include "ckpt/build.h"
#include "ckpt/coded/deltas.h"
#include "container/writer.h"
#include "text/base64.h"
#include "tersor/version.h"

/* --- The arrays of packed tensors ---------------------------------------------------------------- */

enum tsr_status tsr_packed_join_name(struct tsr_checkpoint *c, const char *name, const char *suffix,
				     const char **ret, struct tsr_err *err)
{
	const size_t name_len = strlen(name), suffix_len = strlen(suffix);
	char *joined;

	if (name_len + suffix_len > TSR_NAME_MAX)
		return tsr_fail(
			err, TSR_E_LIMIT,
			"%s: tensor %.40s...: the name of its plane %s would be over the limit of "
			"%u bytes",
			c->path, name, suffix, TSR_NAME_MAX);
	joined = tsr_arena_alloc(c->arena, name_len + suffix_len + 1);
	if (!joined)
		return tsr_build_nomem(c, err);
	memcpy(joined, name, name_len);
	memcpy(joined + name_len, suffix, suffix_len + 1);
	*ret = joined;
	return TSR_OK;
}

static enum tsr_status describe_plane(struct tsr_checkpoint *c, const struct tsr_tensor *t,
				      unsigned plane, struct tsr_st_entry *a, struct tsr_err *err)
{
	const struct tsr_plane_desc *desc = &t->coding.codec->planes[plane];
	uint64_t *count;

	a->dtype = tsr_plane_dtype(&t->coding, plane);
	a->nbytes = tsr_plane_nbytes(&t->coding, plane, t->numel);
	if (desc->suffix[0])
		TSR_TRY(tsr_packed_join_name(c, t->name, desc->suffix, &a->name, err));
	if (desc->unit == TSR_PER_ELEMENT)
		return TSR_OK;
	TSR_TRY(TSR_ARENA_NEW(&count, 1, c->arena, tsr_build_nomem(c, err)));
	*count = tsr_plane_count(&t->coding, plane, t->numel);
	a->rank = 1;
	a->shape = count;
	return TSR_OK;
}

enum tsr_status tsr_packed_arrays(struct tsr_checkpoint *c, struct tsr_st_entry **ret,
				  size_t *n_ret, struct tsr_err *err)
{
	struct tsr_st_entry *arrays;

	*n_ret = 0;
	TSR_TRY(TSR_NEW(ret, c->ntensors * TSR_PLANES_MAX + 1, err, c->path));
	arrays = *ret;
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		for (unsigned plane = t->narrow ? 1 : 0; plane < t->nplanes; plane++) {
			struct tsr_st_entry *a = &arrays[(*n_ret)++];

			*a = tsr_stored_array(t, TSR_ARRAY_TAG(i, plane));
			if (t->coding.codec)
				TSR_TRY(describe_plane(c, t, plane, a, err));
		}
	}
	return TSR_OK;
}

enum tsr_status tsr_packed_check_names(const struct tsr_checkpoint *c, struct tsr_err *err)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		if (tsr_packed_name_reserved(c->tensors[i].name))
			return tsr_fail(
				err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: the name ends in the suffix of a plane, "
				"which packed files reserve",
				c->path, c->tensors[i].name);
	}
	return TSR_OK;
}

bool tsr_packed_is_weight(const struct tsr_packed_source *source, size_t tensor, unsigned plane)
{
	const struct tsr_codec *codec = source->tensors[tensor].coding.codec;

	return source->model[tensor] && (!codec || !codec->planes[plane].suffix[0]);
}

/* --- What tensors have in common ----------------------------------------------------------------- */

struct tsr_error_summary tsr_error_summarize(const struct tsr_measured *m)
{
	struct tsr_error_summary s;

	for (enum tsr_metric i = 0; i < TSR_METRIC_COUNT; i++)
		s.value[i] = tsr_packed_figure(i,
					       tsr_packed_figure_bits(i, tsr_measured_error(m, i)));
	return s;
}

void tsr_packed_put_coding(const struct tsr_tensor *t, struct tsr_text *json)
{
	const struct tsr_codec *codec = t->coding.codec;

	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "kind", tsr_kind_name(t->kind));
	tsr_json_put_string(json, "codec", codec ? codec->name : "raw");
	if (t->dtype != TSR_F32)
		tsr_json_put_string(json, "dtype", tsr_dtype_name(t->dtype));
	if (codec && codec->grouped) {
		tsr_json_put_string(json, "scale", tsr_scale_name(t->coding.scale));
		tsr_json_put_u64(json, "group", t->coding.group);
		if (t->coding.row)
			tsr_json_put_bool(json, "rows", true);
	}
	if (codec && codec->relative)
		tsr_json_put_double(json, "eps", fabs((double)t->coding.eps));
	if (codec && codec->stochastic)
		tsr_json_put_u64(json, "seed", t->coding.seed);
	tsr_json_close(json, '}');
}

/* --- The header ---------------------------------------------------------------------------------- */

void tsr_packed_put_tensor(const struct tsr_tensor *t, uint32_t coding, bool named, bool shaped,
			   struct tsr_text *json)
{
	const bool relative = t->coding.codec && t->coding.codec->relative;

	if (!named && !shaped && !t->narrow && !relative) {
		tsr_json_put_u64(json, NULL, coding);
		return;
	}
	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "coding", coding);
	if (named)
		tsr_json_put_string(json, "name", t->name);
	if (shaped)
		tsr_json_put_u64s(json, "shape", t->shape, t->rank);
	if (relative)
		tsr_json_put_string(json, "beside", t->beside);
	if (t->narrow)
		tsr_json_put_string(json, "narrow", t->narrow);
	tsr_json_close(json, '}');
}

static void compose_shard(const struct tsr_packed_source *source,
			  const struct tsr_packed_shard *shard, struct tsr_text *json)
{
	char set[17];

	snprintf(set, sizeof(set), "%016" PRIx64,
		 tsr_tensors_set(source->tensors, source->ntensors));
	tsr_json_open(json, "shard", '{');
	tsr_json_put_u64(json, "number", shard->number);
	tsr_json_put_u64(json, "count", shard->count);
	tsr_json_put_string(json, "set", set);
	tsr_json_close(json, '}');
}

static void compose_base(const struct tsr_packed_source *source, struct tsr_text *json)
{
	char set[17];

	snprintf(set, sizeof(set), "%016" PRIx64, source->base.set);
	tsr_json_open(json, "base", '{');
	tsr_json_put_string(json, "name", source->base.name);
	tsr_json_put_string(json, "set", set);
	tsr_json_put_u64(json, "depth", source->base.depth);
	tsr_json_close(json, '}');
}

/* The one codebook of the tensors of a file, if some have one. */
static enum tsr_status compose_codebook(const struct tsr_packed_source *source,
					const struct tsr_packed_shard *shard, const char *path,
					struct tsr_text *json, struct tsr_err *err)
{
	const struct tsr_tensor *with = NULL;
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };

	for (size_t i = shard->first; i < shard->end; i++) {
		const struct tsr_tensor *t = &source->tensors[i];

		if (!t->coding.codec || !t->coding.codec->has_codebook)
			continue;
		if (with && memcmp(with->coding.codebook, t->coding.codebook,
				   TSR_PACKED_CODEBOOK_NBYTES) != 0)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: found a codebook of its own, expected "
					"that of %.200s",
					path, t->name, with->name);
		with = t;
	}
	if (!with)
		return TSR_OK;
	tsr_base64_put(&text, with->coding.codebook, TSR_PACKED_CODEBOOK_NBYTES);
	tsr_json_put_string(json, "codebook", text.failed ? NULL : text.bytes);
	json->failed = json->failed || text.failed;
	return TSR_OK;
}

/* Codings before the last ones are not sought, but put again. */
#define CODINGS_SOUGHT 64u

/* The lists of a text while they grow, tensor by tensor. */
struct lists {
	struct tsr_text codings, hashes, errors, tensors;
	size_t from[CODINGS_SOUGHT]; /* where the last codings begin in their list */
	uint32_t ncodings;
	bool measured; /* some tensor has error figures */
};

static void free_lists(struct lists *l)
{
	tsr_text_free(&l->codings);
	tsr_text_free(&l->hashes);
	tsr_text_free(&l->errors);
	tsr_text_free(&l->tensors);
}

/* The number of a tensor's coding, which is put into the list if it is not there. */
static uint32_t number_coding(struct lists *l, const struct tsr_tensor *t)
{
	const size_t before = l->codings.nbytes, first = before ? before + 1 : 0;
	uint32_t k = l->ncodings > CODINGS_SOUGHT ? l->ncodings - CODINGS_SOUGHT : 0;

	tsr_packed_put_coding(t, &l->codings);
	if (l->codings.failed)
		return 0;
	while (k < l->ncodings && memcmp(l->codings.bytes + l->from[k % CODINGS_SOUGHT],
					 l->codings.bytes + first, l->codings.nbytes - first) != 0)
		k++;
	if (k < l->ncodings)
		l->codings.nbytes = before;
	else
		l->from[l->ncodings++ % CODINGS_SOUGHT] = first;
	return k;
}

static void add_figures(struct lists *l, const struct tsr_tensor *t)
{
	char bytes[8];

	for (unsigned p = 0; p < t->nplanes; p++) {
		tsr_put_le(bytes, t->hash[p], sizeof(bytes));
		tsr_text_put(&l->hashes, bytes, sizeof(bytes));
	}
	for (enum tsr_metric m = 0; t->coding.codec && m < TSR_METRIC_COUNT; m++) {
		const unsigned n = tsr_packed_figure_nbytes(m);

		tsr_put_le(bytes,
			   t->error ? tsr_packed_figure_bits(m, t->error->value[m]) : UINT64_MAX,
			   n);
		tsr_text_put(&l->errors, bytes, n);
	}
	l->measured = l->measured || t->error;
}

static void put_base64(const char *key, const struct tsr_text *bytes, struct tsr_text *json)
{
	tsr_json_open_string(json, key);
	tsr_base64_put(json, bytes->bytes, bytes->nbytes);
	tsr_json_close_string(json);
}

static void put_list(const char *key, const struct tsr_text *list, struct tsr_text *json)
{
	tsr_json_open(json, key, '[');
	if (list->nbytes)
		tsr_text_put(json, list->bytes, list->nbytes);
	tsr_json_close(json, ']');
}

/* The tensors, of which the file has @n arrays: what these show is not said again. */
static void compose_tensors(const struct tsr_packed_source *source,
			    const struct tsr_packed_shard *shard, const struct tsr_st_entry *arrays,
			    size_t n, struct tsr_text *json)
{
	TSR_SCOPED(free_lists) struct lists l = { .ncodings = 0 };
	const struct tsr_st_entry *end = arrays + n;

	for (size_t i = shard->first; i < shard->end; i++) {
		const struct tsr_tensor *t = &source->tensors[i];
		const struct tsr_codec *codec = t->coding.codec;
		const bool first = arrays < end &&
				   arrays->tag == TSR_ARRAY_TAG(i, t->narrow != NULL);
		/* Only this header's arrays show a shape: nothing proves those of the weights file. */
		const bool shaped = t->narrow || !first || arrays->shape != t->shape ||
				    (codec && codec->planes[0].unit != TSR_PER_ELEMENT);

		tsr_packed_put_tensor(t, number_coding(&l, t), !first, shaped, &l.tensors);
		add_figures(&l, t);
		while (arrays < end && TSR_TAG_TENSOR(arrays->tag) == i)
			arrays++;
	}
	put_list("codings", &l.codings, json);
	put_base64("xxh3", &l.hashes, json);
	if (l.measured)
		put_base64("error", &l.errors, json);
	put_list("tensors", &l.tensors, json);
	json->failed |= l.codings.failed || l.hashes.failed || l.errors.failed || l.tensors.failed;
}

/* The text of the `tersor` entry, checked as a reader will. */
static enum tsr_status compose_packed(const struct tsr_packed_source *source,
				      const struct tsr_packed_shard *shard,
				      const struct tsr_st_entry *arrays, size_t n, const char *path,
				      struct tsr_text *json, struct tsr_err *err)
{
	const struct tsr_json_rules rules = tsr_packed_rules(path);

	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "version", TSR_PACKED_VERSION);
	tsr_json_put_string(json, "tool", "tersor " TSR_VERSION);
	tsr_json_open(json, "source", '{');
	tsr_json_put_string(json, "kind", source->kind);
	tsr_json_put_string(json, "format", source->format);
	if (source->order) {
		tsr_json_open(json, "order", '[');
		for (size_t i = 0; i < source->norder; i++)
			tsr_json_put_u64(json, NULL, source->order[i]);
		tsr_json_close(json, ']');
	}
	tsr_json_close(json, '}');
	tsr_json_put_u64(json, "generation", source->generation);
	if (shard->count > 1)
		compose_shard(source, shard, json);
	if (shard->weights)
		tsr_json_put_string(json, "weights", shard->weights);
	TSR_TRY(compose_codebook(source, shard, path, json, err));
	if (shard->coded)
		tsr_json_put_string(json, "entropy", TSR_PACKED_CODER);
	if (shard->coded && source->base.name)
		compose_base(source, json);
	compose_tensors(source, shard, arrays, n, json);
	tsr_json_close(json, '}');
	if (json->failed)
		return tsr_fail_nomem(err, path);
	return tsr_json_check(json->bytes, json->nbytes, &rules, err);
}

enum tsr_status tsr_packed_header(const struct tsr_packed_source *source,
				  const struct tsr_packed_shard *shard,
				  const struct tsr_st_entry *entries, size_t n,
				  struct tsr_meta *meta, size_t nmeta, uint64_t json_nbytes,
				  const char *path, struct tsr_text *header, struct tsr_err *err)
{
	const struct tsr_json_rules rules = tsr_st_rules(path);
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };
	TSR_OWNED(free) struct tsr_st_entry *listed = NULL;
	const char *check;
	char digits[17];

	TSR_TRY(TSR_NEW(&listed, n + 1, err, path));
	if (n)
		memcpy(listed, entries, n * sizeof(*listed));
	tsr_st_sort_by_tag(listed, n);
	TSR_TRY(compose_packed(source, shard, listed, n, path, &text, err));
	for (size_t i = 0; i < nmeta; i++) {
		if (strcmp(meta[i].key, TSR_PACKED_KEY) == 0)
			meta[i].value = text.bytes;
	}
	tsr_st_compose(listed, n, meta, nmeta, header);
	if (header->failed)
		return tsr_fail_nomem(err, path);
	/* The second time only digits differ, and the packed text in it was checked again. */
	if (!json_nbytes)
		TSR_TRY(tsr_json_check(header->bytes, header->nbytes, &rules, err));
	TSR_TRY(tsr_st_frame(header, json_nbytes > header->nbytes ? json_nbytes : header->nbytes,
			     path, err));
	check = tsr_packed_find_check(header->bytes + 8);
	snprintf(digits, sizeof(digits), "%016" PRIx64,
		 tsr_hash(header->bytes + 8, header->nbytes - 8, 0));
	memcpy(header->bytes + (check - header->bytes), digits, 16);
	return TSR_OK;
}
