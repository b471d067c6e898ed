/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a sharded checkpoint, as Hugging Face tools lay it out. */
#include "format/shard_index.h"

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
	struct tsr_json_rules rules;
	const char *text; /* of the file, checked */
	size_t nbytes;
	struct tsr_named *shard_of; /* of each entry: at first in the order of the text */
	struct tsr_err *err;
};

#define FAIL(r, code, name, ...) \
	tsr_fail_in((r)->err, code, (r)->path, "weight_map: tensor", name, __VA_ARGS__)

/* The name of a shard in memory: mostly that of the entry before. */
static const char *keep_shard(struct reading *r, const char *shard)
{
	const char *before = r->x->nentries ? r->shard_of[r->x->nentries - 1].name : NULL;

	return before && strcmp(before, shard) == 0 ? before : tsr_arena_string(r->x->arena, shard);
}

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
	tensor = tsr_arena_string(r->x->arena, tensor);
	shard = keep_shard(r, shard);
	if (!tensor || !shard)
		return tsr_fail_nomem(r->err, r->path);
	r->shard_of[r->x->nentries] = (struct tsr_named){ shard, r->x->nentries };
	r->x->entries[r->x->nentries] = (struct tsr_named){ .name = tensor };
	r->x->nentries++;
	return TSR_OK;
}

/* One member at a time: a tree of all of them would be several times as large. */
static enum tsr_status read_members(struct reading *r, const char *map, size_t nbytes)
{
	size_t at = 0;

	for (;;) {
		TSR_OWNED(tsr_json_free) struct tsr_json *v = NULL;

		TSR_TRY(tsr_json_take_member(map, nbytes, &at, &r->rules, &v, r->err));
		if (!v)
			return TSR_OK;
		TSR_TRY(read_entry(r, v));
	}
}

static enum tsr_status read_map(struct reading *r)
{
	size_t first, end, n;

	TSR_TRY(tsr_json_find_member(r->text, r->nbytes, "weight_map", &r->rules, &first, &end,
				     r->err));
	if (first == end || r->text[first] != '{')
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: found JSON without an object weight_map, so no index of "
				"shards; give the file with the tensors, or its directory",
				r->path);
	n = tsr_json_count_elements(r->text + first, end - first);
	if (!n)
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: weight_map: has no tensors", r->path);
	TSR_TRY(TSR_TAKE(&r->x->entries, n, r->x->arena, r->err, r->path));
	TSR_TRY(TSR_TAKE(&r->shard_of, n, r->x->arena, r->err, r->path));
	return read_members(r, r->text + first, end - first);
}

/* Writers have stored total_size as integer and as float, and wrongly, so it is only a hint. */
static enum tsr_status read_metadata(struct reading *r)
{
	struct tsr_json *metadata;
	size_t first, end;

	TSR_TRY(tsr_json_find_member(r->text, r->nbytes, "metadata", &r->rules, &first, &end,
				     r->err));
	if (first == end)
		return TSR_OK;
	if (r->text[first] != '{')
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: metadata is not an object", r->path);
	TSR_TRY(tsr_json_parse(r->text + first, end - first, &r->rules, &metadata, r->err));
	r->x->has_total = tsr_json_double(tsr_json_get(metadata, "total_size"), &r->x->total);
	tsr_json_free(metadata);
	return TSR_OK;
}

/* Number the distinct file names in their order. */
static enum tsr_status number_shards(struct reading *r)
{
	struct tsr_index *x = r->x;
	const char *last = NULL;

	TSR_TRY(TSR_TAKE(&x->shards, x->nentries, x->arena, r->err, r->path));
	tsr_named_sort(r->shard_of, x->nentries);
	for (size_t i = 0; i < x->nentries; i++) {
		const struct tsr_named *shard = &r->shard_of[i];

		if (!last || strcmp(last, shard->name) != 0)
			last = x->shards[x->nshards++] = shard->name;
		x->entries[shard->index].index = x->nshards - 1;
	}
	return TSR_OK;
}

static enum tsr_status read_root(struct reading *r)
{
	if (r->text[strspn(r->text, " \t\n\r")] != '{')
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: index is not a JSON object", r->path);
	TSR_TRY(read_metadata(r));
	TSR_TRY(read_map(r));
	TSR_TRY(number_shards(r));
	tsr_named_sort(r->x->entries, r->x->nentries);
	return TSR_OK;
}

static enum tsr_status read_text(struct reading *r, const struct tsr_file *f)
{
	TSR_OWNED(free) char *text = NULL;

	TSR_TRY(tsr_file_load(f, TSR_INDEX_NBYTES_MAX, r->rules.part, &text, r->err));
	r->text = text;
	r->nbytes = (size_t)tsr_file_size(f);
	TSR_TRY(tsr_json_check(text, r->nbytes, &r->rules, r->err));
	return read_root(r);
}

enum tsr_status tsr_index_read(const struct tsr_file *f, struct tsr_index **ret,
			       struct tsr_err *err)
{
	struct reading r = { .path = tsr_file_path(f),
			     .rules = { .file = tsr_file_path(f),
					.part = "index",
					.max_depth = 16,
					.max_values = TSR_INDEX_VALUES_MAX },
			     .err = err };
	TSR_OWNED(tsr_index_free) struct tsr_index *x = NULL;

	TSR_TRY(TSR_NEW(&x, 1, err, r.path));
	x->arena = tsr_arena_new(SIZE_MAX);
	r.x = x;
	TSR_TRY(read_text(&r, f));
	return TSR_GIVE(ret, x);
}

void tsr_index_free(struct tsr_index *x)
{
	if (!x)
		return;
	tsr_arena_free(x->arena);
	free(x);
}

/* --- Writing -------------------------------------------------------------------------------- */

static void put_entry(const char *tensor, const char *shard, bool first, struct tsr_text *out)
{
	tsr_text_puts(out, first ? "\n    " : ",\n    ");
	tsr_json_quote_ascii(out, tensor);
	tsr_text_puts(out, ": ");
	tsr_json_quote_ascii(out, shard);
}

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
	for (size_t i = 0; i < n; i++)
		put_entry(sorted[i].name, shard_of[sorted[i].index], i == 0, out);
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
