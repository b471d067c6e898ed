/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of the packed format: what it says of the file, and that its header is as it was written. */
#include "container/packed/packed_read.h"

#include <stdio.h>

#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/meta.h"
#include "container/packed/members.h"
#include "io/dir.h"
#include "io/hash.h"
#include "text/json.h"

struct reading {
	struct tsr_checkpoint *c;
	const char *path;
	struct tsr_err *err;
};

static enum tsr_status bad(struct reading *r, const char *what)
{
	return tsr_packed_bad(r->path, NULL, what, r->err);
}

/* Take an entry out of the metadata; NULL if it is missing. */
static const char *take_meta(struct tsr_checkpoint *c, const char *key)
{
	for (size_t i = 0; i < c->nmeta; i++) {
		const char *value = c->meta[i].value;

		if (strcmp(c->meta[i].key, key) != 0)
			continue;
		c->nmeta--;
		memmove(&c->meta[i], &c->meta[i + 1], (c->nmeta - i) * sizeof(*c->meta));
		return value;
	}
	return NULL;
}

/* Give the source its own `format` entry back, or none. */
static enum tsr_status restore_format(struct reading *r, const struct tsr_json *format)
{
	if (!format || (tsr_json_type(format) != TSR_JSON_NULL && !tsr_json_string(format)))
		return bad(r, "source format is neither a string nor null");
	if (!tsr_json_string(format)) {
		take_meta(r->c, "format");
		return TSR_OK;
	}
	for (size_t i = 0; i < r->c->nmeta; i++) {
		const char *value = tsr_json_string(format);

		if (strcmp(r->c->meta[i].key, "format") != 0)
			continue;
		r->c->meta[i].value = tsr_arena_string(r->c->arena, value);
		return r->c->meta[i].value ? TSR_OK : tsr_fail_nomem(r->err, r->path);
	}
	return bad(r, "no format entry beside it");
}

static enum tsr_status read_shard(struct reading *r, const struct tsr_json *v)
{
	struct tsr_shard *s = &r->c->shard;

	*s = (struct tsr_shard){ .number = 1, .count = 1 };
	if (!v)
		return TSR_OK;
	if (!TSR_PACKED_HAS_MEMBERS(v, "number", "count", "set") ||
	    !tsr_json_u64(tsr_json_get(v, "number"), &s->number) ||
	    !tsr_json_u64(tsr_json_get(v, "count"), &s->count) ||
	    !tsr_packed_read_hash(tsr_json_get(v, "set"), &s->set) || s->count < 2 ||
	    s->number < 1 || s->number > s->count)
		return bad(r, "shard is not a number, a count and a set");
	return TSR_OK;
}

/* The name of the file that has the weights, if they are not in this one. */
static enum tsr_status read_weights(struct reading *r, const struct tsr_json *v, bool sharded,
				    const char **ret)
{
	*ret = NULL;
	if (!v)
		return TSR_OK;
	*ret = tsr_json_string(v);
	if (!*ret || !tsr_dir_is_name(*ret))
		return bad(r, "weights is not the name of a file");
	return sharded ? bad(r, "shard and weights") : TSR_OK;
}

static enum tsr_status read_root(struct reading *r, const struct tsr_json *root,
				 const char **weights_ret)
{
	const struct tsr_json *source = tsr_json_get(root, "source");
	uint64_t number;

	if (!tsr_json_u64(tsr_json_get(root, "version"), &number))
		return bad(r, "no version");
	if (number != TSR_PACKED_VERSION)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: found packed format version %" PRIu64 ", expected %d", r->path,
				number, TSR_PACKED_VERSION);
	if (!TSR_PACKED_HAS_MEMBERS(root, "version", "tool", "source", "generation", "?shard",
				    "?weights", "?codebook", "?entropy", "?base", "codings", "xxh3",
				    "?error", "tensors") ||
	    !TSR_PACKED_HAS_MEMBERS(source, "kind", "format", "?order") ||
	    !tsr_json_string(tsr_json_get(source, "kind")) ||
	    !tsr_json_string(tsr_json_get(root, "tool")))
		return bad(r, "missing or unknown members");
	if (!tsr_container_find(tsr_json_string(tsr_json_get(source, "kind")), &r->c->container))
		return tsr_fail(r->err, TSR_E_UNSUPPORTED, "%s: unknown source kind %.60s", r->path,
				tsr_json_string(tsr_json_get(source, "kind")));
	if (!tsr_json_u64(tsr_json_get(root, "generation"), &number) || number > TSR_GENERATION_MAX)
		return bad(r, "generation is not an integer within limits");
	r->c->generation = (unsigned)number;
	if (tsr_meta_find(r->c->meta, r->c->nmeta, TSR_GENERATION_KEY))
		return bad(r, "an entry " TSR_GENERATION_KEY " beside it");
	TSR_TRY(read_shard(r, tsr_json_get(root, "shard")));
	TSR_TRY(read_weights(r, tsr_json_get(root, "weights"), r->c->shard.count > 1, weights_ret));
	if (!tsr_meta_read_order(r->c, tsr_json_get(source, "order")))
		return bad(r, "order is not a list of each number from 0 on");
	return restore_format(r, tsr_json_get(source, "format"));
}

/* The hash of a header in which zeros stand for its check. */
static enum tsr_status verify_check(struct reading *r, const char *header, uint64_t nbytes,
				    const char *digits)
{
	const char *check = tsr_packed_find_check(header), *rest = check ? check + 16 : header;
	struct tsr_hasher *hasher = tsr_hasher_new();
	char found[17];

	if (!hasher)
		return tsr_fail_nomem(r->err, r->path);
	if (check) {
		tsr_hasher_add(hasher, header, (size_t)(check - header));
		tsr_hasher_add(hasher, TSR_PACKED_CHECK_ZEROS, 16);
	}
	tsr_hasher_add(hasher, rest, (size_t)(header + nbytes - rest));
	snprintf(found, sizeof(found), "%016" PRIx64, tsr_hasher_value(hasher));
	tsr_hasher_free(hasher);
	if (!check || !digits || strcmp(digits, found) != 0)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: header was modified: found check %s, expected %.40s", r->path,
				found, digits ? digits : "an entry " TSR_PACKED_CHECK_KEY);
	return TSR_OK;
}

enum tsr_status tsr_packed_read(struct tsr_checkpoint *c, const char *header,
				uint64_t header_nbytes, struct tsr_json **ret,
				const char **weights_ret, struct tsr_err *err)
{
	const struct tsr_json_rules rules = tsr_packed_rules(c->path);
	struct reading r = { .c = c, .path = c->path, .err = err };
	const char *text = take_meta(c, TSR_PACKED_KEY);
	const char *check = take_meta(c, TSR_PACKED_CHECK_KEY);

	TSR_TRY(verify_check(&r, header, header_nbytes, check));
	TSR_TRY(tsr_json_parse(text, strlen(text), &rules, ret, err));
	return read_root(&r, *ret, weights_ret);
}
