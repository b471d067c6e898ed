/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the file of a snapshot, every byte of it untrusted (docs/internals/format.md, section 19.3). */
#include <stdio.h>

#include "base/fail.h"
#include "directory/directory_data.h"
#include "io/file.h"
#include "store/ranges.h"
#include "text/json.h"

#define NBYTES_MAX (UINT64_C(1) << 30)
#define CHECK_LEAD ",\"check\":\""
#define CHECK_NBYTES (sizeof(CHECK_LEAD) - 1 + TSR_OBJECT_DIGITS + 3) /* "}\n behind it */

struct reading {
	struct tsr_arena *arena;
	const char *file;
	struct tsr_snapshot *to;
	struct tsr_err *err;
};

static enum tsr_status wrong(struct reading *r, const char *what, const char *expected)
{
	return tsr_fail(r->err, TSR_E_FORMAT, "%s: %s: expected %s", r->file, what, expected);
}

static enum tsr_status nomem(struct reading *r)
{
	return tsr_fail_nomem(r->err, r->file);
}

/* --- Values ----------------------------------------------------------------------------------- */

static enum tsr_status get_u64(struct reading *r, const struct tsr_json *v, const char *key,
			       uint64_t most, uint64_t *ret)
{
	if (tsr_json_u64(tsr_json_get(v, key), ret) && *ret <= most)
		return TSR_OK;
	return wrong(r, key, "a number in its range");
}

static enum tsr_status get_u32(struct reading *r, const struct tsr_json *v, const char *key,
			       uint32_t most, uint32_t *ret)
{
	uint64_t value;

	TSR_TRY(get_u64(r, v, key, most, &value));
	*ret = (uint32_t)value;
	return TSR_OK;
}

static enum tsr_status get_bool(struct reading *r, const struct tsr_json *v, const char *key,
				bool *ret)
{
	return tsr_json_bool(tsr_json_get(v, key), ret) ? TSR_OK : wrong(r, key, "true or false");
}

static enum tsr_status get_double(struct reading *r, const struct tsr_json *v, const char *key,
				  double *ret)
{
	return tsr_json_double(tsr_json_get(v, key), ret) ? TSR_OK : wrong(r, key, "a number");
}

static enum tsr_status get_text(struct reading *r, const struct tsr_json *v, const char *key,
				const char **ret)
{
	const char *text = tsr_json_string(tsr_json_get(v, key));

	if (!text)
		return wrong(r, key, "a string");
	*ret = tsr_arena_string(r->arena, text);
	return *ret ? TSR_OK : nomem(r);
}

/* Ids one behind the other; @n of them, or with UINT64_MAX any number, which *n_ret then is. */
static enum tsr_status get_ids(struct reading *r, const struct tsr_json *v, const char *key,
			       uint64_t n, struct tsr_object_id **ret, size_t *n_ret)
{
	const char *text = tsr_json_string(tsr_json_get(v, key));
	const size_t found = text ? strlen(text) / TSR_OBJECT_DIGITS : 0;
	struct tsr_object_text one = { { 0 } };

	if (!text || strlen(text) % TSR_OBJECT_DIGITS || (n != UINT64_MAX && found != n))
		return wrong(r, key, "as many hashes of 32 digits as it has objects");
	TSR_TRY(TSR_ARENA_NEW(ret, found, r->arena, nomem(r)));
	for (size_t i = 0; i < found; i++) {
		memcpy(one.text, text + TSR_OBJECT_DIGITS * i, TSR_OBJECT_DIGITS);
		if (!tsr_object_parse(one.text, &(*ret)[i]))
			return wrong(r, key, "hexadecimal digits");
	}
	if (n_ret)
		*n_ret = found;
	return TSR_OK;
}

static enum tsr_status get_list(struct reading *r, const struct tsr_json *v, const char *key,
				const struct tsr_json **ret, size_t *n_ret)
{
	*ret = tsr_json_get(v, key);
	if (!tsr_json_is_list(*ret))
		return wrong(r, key, "a list");
	*n_ret = tsr_json_size(*ret);
	return TSR_OK;
}

/* --- Files ------------------------------------------------------------------------------------ */

static enum tsr_status read_crcs(struct reading *r, const struct tsr_json *v,
				 struct tsr_stored_path *p)
{
	const struct tsr_json *list;
	uint64_t *number;
	size_t n = 0;

	TSR_TRY(get_list(r, v, "crcs", &list, &n));
	if (n % 3)
		return wrong(r, "crcs", "three numbers for each");
	p->ncrcs = n / 3;
	TSR_TRY(TSR_ARENA_NEW(&p->crcs, p->ncrcs, r->arena, nomem(r)));
	number = &p->crcs->at;
	for (v = tsr_json_first(list); v; v = tsr_json_next(v))
		if (!tsr_json_u64(v, number++))
			return wrong(r, "crcs", "numbers");
	for (size_t i = 0; i < p->ncrcs; i++)
		if (p->crcs[i].at + 4 > p->nbytes ||
		    p->crcs[i].offset + p->crcs[i].nbytes > p->nbytes)
			return wrong(r, "crcs", "places in the file");
	return TSR_OK;
}

static enum tsr_status read_path(struct reading *r, const struct tsr_json *v,
				 struct tsr_stored_path *p)
{
	uint32_t mode;

	TSR_TRY(get_text(r, v, "path", &p->path));
	if (!tsr_directory_path_is_valid(p->path))
		return wrong(r, "path",
			     "names joined by slashes, below the checkpoint and none special");
	TSR_TRY(get_bool(r, v, "directory", &p->is_directory));
	TSR_TRY(get_u32(r, v, "mode", 0777, &mode));
	p->mode = mode;
	TSR_TRY(get_u64(r, v, "nbytes", TSR_JSON_INT_MAX, &p->nbytes));
	return read_crcs(r, v, p);
}

static enum tsr_status read_paths(struct reading *r, const struct tsr_json *root)
{
	const struct tsr_json *list;
	size_t i = 0;

	TSR_TRY(get_list(r, root, "files", &list, &r->to->npaths));
	TSR_TRY(TSR_ARENA_NEW(&r->to->paths, r->to->npaths, r->arena, nomem(r)));
	for (const struct tsr_json *v = tsr_json_first(list); v; v = tsr_json_next(v), i++) {
		TSR_TRY(read_path(r, v, &r->to->paths[i]));
		if (i && strcmp(r->to->paths[i - 1].path, r->to->paths[i].path) >= 0)
			return wrong(r, "files", "paths in their order, each once");
	}
	if (r->to->is_file && (r->to->npaths != 1 || r->to->paths[0].is_directory ||
			       strchr(r->to->paths[0].path, '/')))
		return wrong(r, "files", "one file");
	return TSR_OK;
}

/* The objects of what tensors leave of each file, whose number follows from them. */
static enum tsr_status read_rests(struct reading *r, const struct tsr_json *root)
{
	const struct tsr_json *v = tsr_json_first(tsr_json_get(root, "files"));

	TSR_TRY(tsr_snapshot_find_rest(r->arena, r->to, r->file, r->err));
	for (size_t i = 0; i < r->to->npaths; i++, v = tsr_json_next(v))
		TSR_TRY(get_ids(r, v, "rest", tsr_entropy_pieces(r->to->paths[i].rest_nbytes),
				&r->to->paths[i].rest, NULL));
	return TSR_OK;
}

/* --- Tensors ---------------------------------------------------------------------------------- */

static enum tsr_status read_slot(struct reading *r, const struct tsr_json *v,
				 struct tsr_stored_tensor *t, unsigned slot)
{
	const char *kind = tsr_json_string(tsr_json_get(v, "kind"));

	TSR_TRY(get_text(r, v, "name", &t->name[slot]));
	if (!kind || !tsr_kind_find(kind, &t->kind[slot]))
		return wrong(r, "kind", "weight, momentum, variance or other");
	TSR_TRY(get_u32(r, v, "file", UINT32_MAX, &t->file[slot]));
	return get_u64(r, v, "offset", TSR_JSON_INT_MAX, &t->offset[slot]);
}

static enum tsr_status read_slots(struct reading *r, const struct tsr_json *v,
				  struct tsr_stored_tensor *t)
{
	const struct tsr_json *list;
	size_t n = 0;

	TSR_TRY(get_list(r, v, "of", &list, &n));
	if (n != 1 && n != 2)
		return wrong(r, "of", "one tensor, or a momentum and its variance");
	t->slots = (unsigned)n;
	n = 0;
	for (v = tsr_json_first(list); v; v = tsr_json_next(v), n++)
		TSR_TRY(read_slot(r, v, t, (unsigned)n));
	if (t->slots == 2 && (t->kind[0] != TSR_KIND_MOMENTUM || t->kind[1] != TSR_KIND_VARIANCE))
		return wrong(r, "of", "one tensor, or a momentum and its variance");
	return TSR_OK;
}

static enum tsr_status read_tensor(struct reading *r, const struct tsr_json *v,
				   struct tsr_stored_tensor *t)
{
	const char *dtype = tsr_json_string(tsr_json_get(v, "dtype"));
	uint32_t chunk;

	TSR_TRY(read_slots(r, v, t));
	TSR_TRY(get_u32(r, v, "chunk", UINT32_MAX, &chunk));
	t->chunk = chunk;
	t->dtype = dtype ? tsr_dtype_find(dtype) : TSR_DTYPE_COUNT;
	if (t->dtype == TSR_DTYPE_COUNT || !tsr_entropy_kind(t->dtype).width)
		return wrong(r, "dtype", "a type of whole bytes");
	TSR_TRY(get_u64(r, v, "n", TSR_JSON_INT_MAX / 8, &t->n));
	TSR_TRY(get_u32(r, v, "columns", 0xffffff, &t->columns));
	TSR_TRY(get_u32(r, v, "phase", 0xffffff, &t->phase));
	if (!t->n || (t->phase && t->phase >= t->columns))
		return wrong(r, "phase", "less than columns");
	return get_ids(r, v, "objects", tsr_entropy_pieces(t->n), &t->objects, NULL);
}

static enum tsr_status read_tensors(struct reading *r, const struct tsr_json *root)
{
	const struct tsr_json *list;
	size_t i = 0;

	TSR_TRY(get_list(r, root, "tensors", &list, &r->to->ntensors));
	TSR_TRY(TSR_ARENA_NEW(&r->to->tensors, r->to->ntensors, r->arena, nomem(r)));
	for (const struct tsr_json *v = tsr_json_first(list); v; v = tsr_json_next(v))
		TSR_TRY(read_tensor(r, v, &r->to->tensors[i++]));
	return TSR_OK;
}

/* --- The file --------------------------------------------------------------------------------- */

static enum tsr_status read_tier(struct reading *r, const struct tsr_json *root,
				 struct tsr_store_tier *t)
{
	static const char *const words[] = { "lossless", "codes", "bounds" };
	const struct tsr_json *v = tsr_json_get(root, "tier");
	const char *name = tsr_json_string(tsr_json_get(v, "name")),
		   *as = tsr_json_string(tsr_json_get(v, "as"));
	unsigned i = 0;

	while (as && i < 3 && strcmp(as, words[i]) != 0)
		i++;
	if (!name || strlen(name) >= sizeof(t->name) || !as || i == 3)
		return wrong(r, "tier", "a tier");
	memcpy(t->name, name, strlen(name) + 1);
	t->as = (enum tsr_store_as)i;
	TSR_TRY(get_double(r, v, "weight", &t->weight));
	TSR_TRY(get_double(r, v, "update", &t->update));
	return get_double(r, v, "variance", &t->variance);
}

static enum tsr_status read_info(struct reading *r, const struct tsr_json *root)
{
	struct tsr_snapshot_info *info = &r->to->info;
	const struct tsr_json *errors = tsr_json_get(root, "errors");
	uint32_t depth;
	uint64_t version;
	double eps;

	TSR_TRY(get_u64(r, root, "tersor_snapshot", 1, &version));
	TSR_TRY(get_u64(r, root, "step", TSR_JSON_INT_MAX, &info->step));
	TSR_TRY(get_text(r, root, "name", &info->name));
	TSR_TRY(read_tier(r, root, &info->tier));
	TSR_TRY(get_double(r, errors, "weight", &info->errors.weight));
	TSR_TRY(get_double(r, errors, "weight_ulps", &info->errors.weight_ulps));
	TSR_TRY(get_double(r, errors, "update", &info->errors.update));
	TSR_TRY(get_double(r, errors, "variance", &info->errors.variance));
	TSR_TRY(get_u32(r, root, "depth", TSR_STORE_CHAIN_MAX, &depth));
	info->depth = depth;
	TSR_TRY(get_double(r, root, "eps", &eps));
	r->to->eps = (float)eps;
	return get_bool(r, root, "file", &r->to->is_file);
}

static void count_all(struct tsr_snapshot *s)
{
	for (size_t i = 0; i < s->npaths; i++) {
		s->info.nfiles += !s->paths[i].is_directory;
		s->info.nbytes += s->paths[i].nbytes;
	}
	for (size_t i = 0; i < s->ntensors; i++)
		if (s->tensors[i].kind[0] == TSR_KIND_WEIGHT)
			s->info.nparameters += s->tensors[i].n;
}

/* The hash at the end is of all bytes before it. */
static enum tsr_status check_text(struct reading *r, const char *text, uint64_t nbytes)
{
	const size_t n = (size_t)nbytes - CHECK_NBYTES;
	struct tsr_object_id found;

	if (nbytes <= CHECK_NBYTES || memcmp(text + n, CHECK_LEAD, sizeof(CHECK_LEAD) - 1) != 0 ||
	    memcmp(text + nbytes - 3, "\"}\n", 3) != 0)
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: is not the file of a snapshot", r->file);
	found = tsr_object_name(text, n);
	if (memcmp(text + nbytes - 3 - TSR_OBJECT_DIGITS, tsr_object_text(&found).text,
		   TSR_OBJECT_DIGITS) != 0)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: damaged: its bytes do not have the hash at its end", r->file);
	return TSR_OK;
}

static enum tsr_status read_text(struct reading *r, const char *text, uint64_t nbytes)
{
	const struct tsr_json_rules rules = {
		.file = r->file, .part = "snapshot", .max_depth = 6, .max_values = (size_t)1 << 26
	};
	TSR_OWNED(tsr_json_free) struct tsr_json *root = NULL;

	TSR_TRY(check_text(r, text, nbytes));
	TSR_TRY(tsr_json_parse(text, (size_t)nbytes, &rules, &root, r->err));
	TSR_TRY(read_info(r, root));
	TSR_TRY(read_paths(r, root));
	TSR_TRY(read_tensors(r, root));
	TSR_TRY(read_rests(r, root));
	TSR_TRY(get_ids(r, root, "needs", UINT64_MAX, &r->to->needs, &r->to->nneeds));
	count_all(r->to);
	return TSR_OK;
}

enum tsr_status tsr_snapshot_read(const struct tsr_store *s, const char *name,
				  struct tsr_snapshot *ret, struct tsr_err *err)
{
	TSR_OWNED(free) char *text = NULL;
	TSR_OWNED(free) char *path = NULL;
	char own[32];
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(tsr_store_path(s, &path, err, TSR_SNAPSHOTS "/%s", name));
	TSR_TRY(tsr_file_open(path, &f, err));
	TSR_TRY(tsr_file_load(f, NBYTES_MAX, "snapshot", &text, err));
	struct reading r = { s->arena, path, ret, err };

	*ret = (struct tsr_snapshot){ 0 };
	TSR_TRY(read_text(&r, text, tsr_file_size(f)));
	snprintf(own, sizeof(own), "%015" PRIu64 ".json", ret->info.step);
	if (strcmp(own, name) != 0)
		return tsr_fail(err, TSR_E_FORMAT, "%s: is the file of step %" PRIu64, path,
				ret->info.step);
	return TSR_OK;
}
