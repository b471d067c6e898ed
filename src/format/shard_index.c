/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a sharded checkpoint, as Hugging Face tools lay it out. */
#include "format/shard_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/dir.h"
#include "base/fail.h"
#include "text/named.h"
#include "text/json.h"
#include "tersor/dtype.h"

/* --- Reading -------------------------------------------------------------------------------- */

/* An index being read. */
struct reading {
	const char *path;
	struct tsr_index *x;
	struct tsr_named *shard_of; /* of each entry: at first in the order of the text */
	struct tsr_err *err;
};

#define FAIL(r, code, name, ...) \
	tsr_fail_in((r)->err, code, (r)->path, "weight_map: tensor", name, __VA_ARGS__)

static enum tsr_status read_entry(struct reading *r, const struct tsr_json *v)
{
	const char *tensor = tsr_json_key(v), *shard = tsr_json_string(v);

	if (strlen(tensor) > TSR_NAME_MAX)
		return tsr_fail(r->err, TSR_E_LIMIT,
				"%s: weight_map: tensor %.40s...: name of %zu bytes is over the "
				"limit of %u",
				r->path, tensor, strlen(tensor), TSR_NAME_MAX);
	if (!shard)
		return FAIL(r, TSR_E_FORMAT, tensor,
			    "found no string, expected the name of a file");
	if (!tsr_dir_is_name(shard))
		return FAIL(
			r, TSR_E_FORMAT, tensor,
			"found file '%.200s', expected a name of 1 to %u bytes without directories",
			shard, TSR_FILE_NAME_MAX);
	r->shard_of[r->x->nentries] = (struct tsr_named){ shard, r->x->nentries };
	r->x->entries[r->x->nentries] = (struct tsr_index_entry){ .tensor = tensor };
	r->x->nentries++;
	return TSR_OK;
}

static enum tsr_status read_map(struct reading *r, const struct tsr_json *map)
{
	size_t n = 0;

	if (!map || tsr_json_type(map) != TSR_JSON_OBJECT)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: found JSON without an object weight_map, so no index of "
				"shards; give the file with the tensors, or its directory",
				r->path);
	for (const struct tsr_json *v = tsr_json_first(map); v; v = tsr_json_next(v))
		n++;
	if (!n)
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: weight_map: has no tensors", r->path);
	r->x->entries = calloc(n, sizeof(*r->x->entries));
	r->shard_of = calloc(n, sizeof(*r->shard_of));
	if (!r->x->entries || !r->shard_of)
		return tsr_fail_nomem(r->err, r->path);
	for (const struct tsr_json *v = tsr_json_first(map); v; v = tsr_json_next(v))
		TSR_TRY(read_entry(r, v));
	return TSR_OK;
}

/* Writers have stored total_size as integer and as float, and wrongly, so it is only a hint. */
static enum tsr_status read_metadata(struct reading *r, const struct tsr_json *metadata)
{
	if (!metadata)
		return TSR_OK;
	if (tsr_json_type(metadata) != TSR_JSON_OBJECT)
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: metadata is not an object", r->path);
	r->x->has_total = tsr_json_double(tsr_json_get(metadata, "total_size"), &r->x->total);
	return TSR_OK;
}

/* Number the distinct file names in their order. */
static enum tsr_status number_shards(struct reading *r)
{
	struct tsr_index *x = r->x;
	const char *last = NULL;

	x->shards = calloc(x->nentries, sizeof(*x->shards));
	if (!x->shards)
		return tsr_fail_nomem(r->err, r->path);
	tsr_named_sort(r->shard_of, x->nentries);
	for (size_t i = 0; i < x->nentries; i++) {
		const struct tsr_named *shard = &r->shard_of[i];

		if (!last || strcmp(last, shard->name) != 0) {
			last = x->shards[x->nshards] = strdup(shard->name);
			if (!last)
				return tsr_fail_nomem(r->err, r->path);
			x->nshards++;
		}
		x->entries[shard->index].shard = x->nshards - 1;
	}
	return TSR_OK;
}

static int by_tensor(const void *va, const void *vb)
{
	const struct tsr_index_entry *a = va, *b = vb;

	return strcmp(a->tensor, b->tensor);
}

static enum tsr_status read_root(struct reading *r)
{
	const struct tsr_json *root = r->x->json;

	if (tsr_json_type(root) != TSR_JSON_OBJECT)
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: index is not a JSON object", r->path);
	TSR_TRY(read_metadata(r, tsr_json_get(root, "metadata")));
	TSR_TRY(read_map(r, tsr_json_get(root, "weight_map")));
	TSR_TRY(number_shards(r));
	qsort(r->x->entries, r->x->nentries, sizeof(*r->x->entries), by_tensor);
	return TSR_OK;
}

static enum tsr_status parse_file(const struct tsr_file *f, struct tsr_json **ret,
				  struct tsr_err *err)
{
	const struct tsr_json_rules rules = {
		.file = tsr_file_path(f),
		.part = "index",
		.max_depth = 16,
		.max_values = TSR_INDEX_VALUES_MAX,
	};

	return tsr_json_read_file(f, TSR_INDEX_NBYTES_MAX, &rules, ret, err);
}

enum tsr_status tsr_index_read(const struct tsr_file *f, struct tsr_index **ret,
			       struct tsr_err *err)
{
	struct reading r = { .path = tsr_file_path(f), .err = err };
	enum tsr_status status;

	r.x = calloc(1, sizeof(*r.x));
	if (!r.x)
		return tsr_fail_nomem(err, r.path);
	status = parse_file(f, &r.x->json, err);
	if (status == TSR_OK)
		status = read_root(&r);
	free(r.shard_of);
	if (status != TSR_OK) {
		tsr_index_free(r.x);
		return status;
	}
	*ret = r.x;
	return TSR_OK;
}

void tsr_index_free(struct tsr_index *x)
{
	if (!x)
		return;
	for (size_t i = 0; i < x->nshards; i++)
		free(x->shards[i]);
	free(x->shards);
	free(x->entries);
	if (x->json)
		tsr_json_free(x->json);
	free(x);
}

const struct tsr_index_entry *tsr_index_find(const struct tsr_index *x, const char *tensor)
{
	const struct tsr_index_entry key = { .tensor = tensor };

	return bsearch(&key, x->entries, x->nentries, sizeof(key), by_tensor);
}

/* --- Writing -------------------------------------------------------------------------------- */

static void put_map(const char *const *tensors, const char *const *shard_of, size_t n,
		    struct tsr_text *out)
{
	struct tsr_named *sorted = calloc(n, sizeof(*sorted));

	if (!sorted) {
		out->failed = true;
		return;
	}
	for (size_t i = 0; i < n; i++)
		sorted[i] = (struct tsr_named){ tensors[i], i };
	/* The order of UTF-8 bytes is that of code points, by which Python sorts. */
	tsr_named_sort(sorted, n);
	for (size_t i = 0; i < n; i++) {
		tsr_text_puts(out, i ? ",\n    " : "\n    ");
		tsr_json_quote_ascii(out, sorted[i].name);
		tsr_text_puts(out, ": ");
		tsr_json_quote_ascii(out, shard_of[sorted[i].index]);
	}
	tsr_text_puts(out, "\n  ");
	free(sorted);
}

void tsr_index_compose(const char *const *tensors, const char *const *shard_of, size_t n,
		       uint64_t total_nbytes, struct tsr_text *out)
{
	tsr_text_printf(out,
			"{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n"
			"  \"weight_map\": {",
			total_nbytes);
	if (n)
		put_map(tensors, shard_of, n, out);
	tsr_text_puts(out, "}\n}\n");
}

void tsr_shard_name(const char *file_name, size_t shard, size_t nshards, struct tsr_text *out)
{
	const char *slash = strrchr(file_name, '/');
	const char *name = slash ? slash + 1 : file_name;
	const char *dot = strrchr(name, '.');

	if (!dot || dot == name)
		dot = name + strlen(name);
	tsr_text_put(out, file_name, (size_t)(dot - file_name));
	tsr_text_printf(out, "-%05zu-of-%05zu%s", shard + 1, nshards, dot);
}
