/* SPDX-License-Identifier: Apache-2.0 */
/* Writing of the packed format: the arrays of its tensors, and the header that describes them. */
#include "container/packed/packed_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "io/hash.h"
#include "ckpt/build.h"
#include "ckpt/deltas.h"
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

/* --- Error summaries ----------------------------------------------------------------------------- */

struct tsr_error_summary tsr_error_summarize(const struct tsr_measured *m, uint64_t scale_underflow)
{
	struct tsr_error_summary s = {
		.exact = m->exact,
		.flushed = m->flushed,
		.scale_underflow = scale_underflow,
	};

	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++)
		s.value[i] = tsr_json_round_double(tsr_measured_value(m, (enum tsr_metric)i));
	return s;
}

/* --- The header ---------------------------------------------------------------------------------- */

struct tsr_error_summary tsr_error_widest(uint64_t numel)
{
	struct tsr_error_summary s = {
		.exact = numel,
		.flushed = numel,
		.scale_underflow = numel,
	};

	/* No number that is not negative takes more than these 15 characters; e-308 takes longer to print. */
	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++)
		s.value[i] = 1.23456789e-100;
	return s;
}

static void compose_error(const struct tsr_error_summary *e, struct tsr_text *json)
{
	tsr_json_open(json, "error", '{');
	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++)
		tsr_json_put_double(json, tsr_metric_name((enum tsr_metric)i), e->value[i]);
	tsr_json_put_u64(json, "exact", e->exact);
	tsr_json_put_u64(json, "flushed", e->flushed);
	tsr_json_put_u64(json, "scale_underflow", e->scale_underflow);
	tsr_json_close(json, '}');
}

void tsr_packed_put_tensor(const struct tsr_tensor *t, struct tsr_text *json)
{
	char digits[17];

	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", t->name);
	tsr_json_put_string(json, "kind", tsr_kind_name(t->kind));
	tsr_json_put_string(json, "dtype", tsr_dtype_name(t->dtype));
	tsr_json_put_u64s(json, "shape", t->shape, t->rank);
	tsr_json_put_string(json, "codec", t->coding.codec ? t->coding.codec->name : "raw");
	if (t->coding.codec && t->coding.codec->grouped) {
		tsr_json_put_string(json, "scale", tsr_scale_name(t->coding.scale));
		tsr_json_put_u64(json, "group", t->coding.group);
		if (t->coding.row)
			tsr_json_put_bool(json, "rows", true);
	}
	if (t->coding.codec && t->coding.codec->relative) {
		tsr_json_put_string(json, "beside", t->beside);
		tsr_json_put_double(json, "eps", fabs((double)t->coding.eps));
	}
	if (t->coding.codec && t->coding.codec->stochastic)
		tsr_json_put_u64(json, "seed", t->coding.seed);
	if (t->narrow)
		tsr_json_put_string(json, "narrow", t->narrow);
	tsr_json_open(json, "xxh3", '[');
	for (unsigned i = 0; i < t->nplanes; i++) {
		snprintf(digits, sizeof(digits), "%016" PRIx64, t->hash[i]);
		tsr_json_put_string(json, NULL, digits);
	}
	tsr_json_close(json, ']');
	if (t->error)
		compose_error(t->error, json);
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

/* The text of a file's `tersor` entry while it is put into the header, piece by piece. */
struct composing {
	const struct tsr_packed_source *source;
	const struct tsr_packed_shard *shard;
	const char *path;
	struct tsr_json_rules rules;
	struct tsr_json_before before; /* the pieces so far */
	struct tsr_text piece;
};

/* All of it but its tensors. */
static enum tsr_status compose_frame(const struct composing *k, struct tsr_text *json,
				     struct tsr_err *err)
{
	const struct tsr_packed_source *source = k->source;
	const struct tsr_packed_shard *shard = k->shard;

	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "version", TSR_PACKED_VERSION);
	tsr_json_put_string(json, "tool", "tersor " TSR_VERSION);
	tsr_json_open(json, "source", '{');
	tsr_json_put_string(json, "kind", source->kind);
	if (source->format)
		tsr_json_put_string(json, "format", source->format);
	else
		tsr_json_put_null(json, "format");
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
	TSR_TRY(compose_codebook(source, shard, k->path, json, err));
	if (shard->coded)
		tsr_json_put_string(json, "entropy", TSR_PACKED_CODER);
	if (shard->coded && source->base.name)
		compose_base(source, json);
	tsr_json_open(json, "tensors", '[');
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
	return TSR_OK;
}

/* Check the piece, and put it without its last @nend bytes. */
static enum tsr_status put_piece(struct composing *k, size_t nend, struct tsr_text *header,
				 struct tsr_err *err)
{
	if (k->piece.failed)
		return tsr_fail_nomem(err, k->path);
	TSR_TRY(tsr_json_check_part(k->piece.bytes, k->piece.nbytes, &k->rules, &k->before, err));
	k->piece.nbytes -= nend;
	k->piece.bytes[k->piece.nbytes] = '\0';
	k->before.nbytes += k->piece.nbytes;
	tsr_json_put_piece(header, k->piece.bytes);
	k->piece.nbytes = 0;
	return TSR_OK;
}

/* The `tersor` entry.  Each piece is checked as a reader will check all of it. */
static enum tsr_status put_packed(void *ctx, struct tsr_text *header, struct tsr_err *err)
{
	static const char end[] = "]}";
	struct composing *k = ctx;

	TSR_TRY(compose_frame(k, &k->piece, err));
	TSR_TRY(put_piece(k, strlen(end), header, err));
	for (size_t i = k->shard->first; i < k->shard->end; i++) {
		if (i > k->shard->first) {
			tsr_json_put_piece(header, ",");
			k->before.nbytes++;
		}
		tsr_packed_put_tensor(&k->source->tensors[i], &k->piece);
		TSR_TRY(put_piece(k, 0, header, err));
	}
	tsr_json_put_piece(header, end);
	return TSR_OK;
}

enum tsr_status tsr_packed_header(const struct tsr_packed_source *source,
				  const struct tsr_packed_shard *shard,
				  const struct tsr_st_entry *entries, size_t n,
				  const struct tsr_meta *meta, size_t nmeta, uint64_t json_nbytes,
				  const char *path, struct tsr_text *header, struct tsr_err *err)
{
	const struct tsr_json_rules rules = tsr_st_rules(path);
	struct composing k = {
		.source = source, .shard = shard, .path = path, .rules = tsr_packed_rules(path)
	};
	enum tsr_status status;
	const char *check;
	char digits[17];

	status = tsr_st_compose_with(entries, n, meta, nmeta, TSR_PACKED_KEY, put_packed, &k,
				     header, err);
	tsr_text_free(&k.piece);
	if (status != TSR_OK)
		return status;
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
