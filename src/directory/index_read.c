/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the index of a packed directory (docs/internals/format.md), every byte of it untrusted. */
#include <stdio.h>

#include "base/fail.h"
#include "container/packed/members.h"
#include "directory/directory_data.h"
#include "directory/shard_total.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/temporary.h"
#include "text/bytes.h"
#include "text/json.h"
#include "text/named.h"

#define CHECK_LEAD ",\"check\":\""

/* An index that is being read. */
struct reading {
	struct tsr_directory *d;
	const char *file;
	const char *entry; /* its path, or NULL */
	struct tsr_err *err;
};

static enum tsr_status wrong(struct reading *r, const char *member, const char *expected)
{
	return tsr_fail(r->err, TSR_E_FORMAT, "%s: %s%.200s%s%s: expected %s", r->file,
			r->entry ? "entry " : "", r->entry ? r->entry : "", r->entry ? ": " : "",
			member, expected);
}

/* --- Values ----------------------------------------------------------------------------------- */

/* Every member of an object is one of the words @known. */
static enum tsr_status check_members(struct reading *r, const struct tsr_json *v, const char *known)
{
	for (v = tsr_json_first(v); v; v = tsr_json_next(v)) {
		if (!tsr_is_word(known, tsr_json_key(v)))
			return tsr_fail(r->err, TSR_E_FORMAT, "%s: found the unknown member %.60s",
					r->file, tsr_json_key(v));
	}
	return TSR_OK;
}

static enum tsr_status read_mode(struct reading *r, const struct tsr_json *v, unsigned *ret)
{
	const char *text = tsr_json_string(v);

	if (!text || strlen(text) != 4 || strspn(text, "01234567") != 4 || *text != '0')
		return wrong(r, "mode", "four octal digits from 0000 to 0777");
	*ret = (unsigned)strtoul(text, NULL, 8);
	return TSR_OK;
}

static enum tsr_status read_path(struct reading *r, const struct tsr_json *v, const char **ret)
{
	const char *text = tsr_json_string(v);

	if (!text || !tsr_directory_path_is_valid(text))
		return wrong(
			r, "path",
			"names joined by slashes, below the directory and none of them special");
	*ret = tsr_arena_string(r->d->arena, text);
	return *ret ? TSR_OK : tsr_directory_nomem(r->d, r->err);
}

/* --- Entries ---------------------------------------------------------------------------------- */

/* The names that a packed file of an entry can have. */
static bool is_name_of(struct tsr_directory *d, const struct tsr_directory_entry *e,
		       const char *path)
{
	const size_t n = strlen(e->path);
	const char *name;

	if (e->container == TSR_CONTAINER_DCP) {
		name = tsr_directory_beside(d, e, TSR_DIRECTORY_DCP);
		return name && strcmp(path, name) == 0;
	}
	return strncmp(path, e->path, n) == 0 &&
	       (!path[n] || strcmp(path + n, TSR_DIRECTORY_SUFFIX) == 0);
}

static enum tsr_status read_stored(struct reading *r, const struct tsr_json *v,
				   struct tsr_directory_entry *e, struct tsr_stored_file *f)
{
	if (tsr_json_type(v) != TSR_JSON_OBJECT)
		return wrong(r, "files", "objects");
	TSR_TRY(check_members(r, v, "path nbytes header"));
	TSR_TRY(read_path(r, tsr_json_get(v, "path"), &f->path));
	if (!is_name_of(r->d, e, f->path) ||
	    (e->nstored && strcmp(e->stored[0].path, f->path) == 0))
		return wrong(r, "files",
			     "the entry's path with " TSR_DIRECTORY_SUFFIX
			     " or without, each once, or " TSR_DIRECTORY_DCP " for a .metadata");
	if (!tsr_json_u64(tsr_json_get(v, "nbytes"), &f->nbytes))
		return wrong(r, "files: nbytes", "a size in bytes");
	if (!tsr_packed_read_hash(tsr_json_get(v, "header"), &f->hash))
		return wrong(r, "files: header", "16 hexadecimal digits");
	e->stored_nbytes += f->nbytes;
	return TSR_OK;
}

static enum tsr_status read_packed(struct reading *r, const struct tsr_json *v,
				   struct tsr_directory_entry *e)
{
	const struct tsr_json *files = tsr_json_get(v, "files");
	const char *kind = tsr_json_string(tsr_json_get(v, "kind"));
	struct tsr_stored_file *stored;
	uint64_t generation;

	TSR_TRY(check_members(r, v, "path as mode nbytes kind generation files"));
	if (!kind || !tsr_container_find(kind, &e->container))
		return wrong(r, "kind", "safetensors, pt, dcp, npz or npy");
	if (e->container == TSR_CONTAINER_DCP &&
	    strcmp(tsr_path_name(e->path), TSR_DIRECTORY_METADATA) != 0)
		return wrong(r, "kind", "dcp of a .metadata only");
	if (!tsr_json_u64(tsr_json_get(v, "generation"), &generation) || generation > UINT32_MAX)
		return wrong(r, "generation", "a number of lossy generations");
	e->generation = (unsigned)generation;
	if (!tsr_json_is_list(files) || !tsr_json_first(files))
		return wrong(r, "files", "a list of files");
	TSR_TRY(TSR_ARENA_NEW(&stored, TSR_DIRECTORY_STORED_MAX, r->d->arena,
			      tsr_directory_nomem(r->d, r->err)));
	e->stored = stored;
	for (files = tsr_json_first(files); files; files = tsr_json_next(files)) {
		if (e->nstored == TSR_DIRECTORY_STORED_MAX)
			return wrong(r, "files", "at most 2");
		TSR_TRY(read_stored(r, files, e, &stored[e->nstored]));
		e->nstored++;
	}
	return TSR_OK;
}

static enum tsr_status read_digits(struct reading *r, const struct tsr_json *v, const char **ret)
{
	const char *text = tsr_json_string(v);
	const size_t n = text ? strlen(text) : 0;

	if (!n || n > TSR_TOTAL_DIGITS_MAX || strspn(text, "0123456789") != n)
		return wrong(r, "total_size", "two numbers of at most 20 digits");
	*ret = tsr_arena_string(r->d->arena, text);
	return *ret ? TSR_OK : tsr_directory_nomem(r->d, r->err);
}

/* What a copied index of shards has in place of the source's total. */
static enum tsr_status read_total(struct reading *r, const struct tsr_json *v,
				  struct tsr_directory_entry *e, struct tsr_stored_file *stored)
{
	if (!v)
		return TSR_OK;
	if (tsr_json_type(v) != TSR_JSON_OBJECT ||
	    !tsr_dir_name_ends_with(e->path, TSR_SHARD_INDEX_SUFFIX))
		return wrong(r, "total_size", "an object, of an *" TSR_SHARD_INDEX_SUFFIX);
	TSR_TRY(check_members(r, v, "at was is"));
	TSR_TRY(read_digits(r, tsr_json_get(v, "was"), &e->total_was));
	TSR_TRY(read_digits(r, tsr_json_get(v, "is"), &e->total_is));
	if (!tsr_json_u64(tsr_json_get(v, "at"), &e->total_at) ||
	    strlen(e->total_was) > e->nbytes || e->total_at > e->nbytes - strlen(e->total_was))
		return wrong(r, "total_size", "an offset in the file");
	stored->nbytes = e->nbytes - strlen(e->total_was) + strlen(e->total_is);
	e->stored_nbytes = stored->nbytes;
	return TSR_OK;
}

static enum tsr_status read_copy(struct reading *r, const struct tsr_json *v,
				 struct tsr_directory_entry *e)
{
	const struct tsr_json *reason = tsr_json_get(v, "reason");
	struct tsr_stored_file *stored;

	TSR_TRY(TSR_ARENA_NEW(&stored, 1, r->d->arena, tsr_directory_nomem(r->d, r->err)));
	TSR_TRY(check_members(r, v, "path as mode nbytes xxh3 total_size reason"));
	if (!tsr_packed_read_hash(tsr_json_get(v, "xxh3"), &stored->hash))
		return wrong(r, "xxh3", "16 hexadecimal digits");
	stored->path = e->path;
	stored->nbytes = e->nbytes;
	e->stored = stored;
	e->nstored = 1;
	e->stored_nbytes = e->nbytes;
	TSR_TRY(read_total(r, tsr_json_get(v, "total_size"), e, stored));
	if (!reason)
		return TSR_OK;
	if (!tsr_json_string(reason) || strlen(tsr_json_string(reason)) > TSR_DIRECTORY_REASON_MAX)
		return wrong(r, "reason", "a text of at most 1024 bytes");
	e->reason = tsr_arena_string(r->d->arena, tsr_json_string(reason));
	return e->reason ? TSR_OK : tsr_directory_nomem(r->d, r->err);
}

/* The directory that an entry is in is an entry before it. */
static enum tsr_status check_parent(struct reading *r, const char *path)
{
	const char *slash = strrchr(path, '/');
	const struct tsr_directory_entry *parent;
	TSR_OWNED(free) char *name = NULL;

	if (!slash)
		return TSR_OK;
	name = strndup(path, (size_t)(slash - path));
	if (!name)
		return tsr_fail_nomem(r->err, r->file);
	parent = tsr_directory_find(r->d, name);
	if (!parent || parent->as != TSR_STORED_DIRECTORY)
		return wrong(r, "path", "one in a directory that is an entry before it");
	return TSR_OK;
}

static enum tsr_status read_entry(struct reading *r, const struct tsr_json *v)
{
	struct tsr_directory_entry *e = &r->d->entries[r->d->n];
	const char *as;

	r->entry = NULL;
	if (tsr_json_type(v) != TSR_JSON_OBJECT)
		return wrong(r, "entries", "objects");
	TSR_TRY(read_path(r, tsr_json_get(v, "path"), &e->path));
	r->entry = e->path;
	if (r->d->n && strcmp(e[-1].path, e->path) >= 0)
		return wrong(r, "path", "each path once, sorted by bytes");
	if (strcmp(e->path, TSR_DIRECTORY_INDEX) == 0)
		return wrong(r, "path", "another name than the index has");
	TSR_TRY(check_parent(r, e->path));
	TSR_TRY(read_mode(r, tsr_json_get(v, "mode"), &e->mode));
	as = tsr_json_string(tsr_json_get(v, "as"));
	r->d->n++;
	while (as && e->as < TSR_STORED_PART && strcmp(as, tsr_stored_as_name(e->as)) != 0)
		e->as++;
	if (!as || strcmp(as, tsr_stored_as_name(e->as)) != 0)
		return wrong(r, "as", "directory, copied, packed or part");
	if (e->as == TSR_STORED_DIRECTORY)
		return check_members(r, v, "path as mode");
	if (!tsr_json_u64(tsr_json_get(v, "nbytes"), &e->nbytes))
		return wrong(r, "nbytes", "a size in bytes");
	if (e->as == TSR_STORED_COPY)
		return read_copy(r, v, e);
	return e->as == TSR_STORED_PACKED ? read_packed(r, v, e)
					  : check_members(r, v, "path as mode nbytes");
}

/* Each part is in the directory of a .metadata that is packed. */
static enum tsr_status check_part(struct reading *r, const struct tsr_directory_entry *part)
{
	const struct tsr_directory_entry *metadata = tsr_directory_metadata_of(r->d, part);

	if (metadata && metadata->as == TSR_STORED_PACKED &&
	    metadata->container == TSR_CONTAINER_DCP && tsr_directory_is_part(metadata, part->path))
		return TSR_OK;
	r->entry = part->path;
	return wrong(r, "as", "a part of a packed .metadata beside it");
}

/* No file of an entry has the name of another entry, or of its file; @stored has room for all files. */
static enum tsr_status check_names(struct reading *r, struct tsr_named *stored)
{
	size_t n = 0;

	for (size_t i = 0; i < r->d->n; i++) {
		const struct tsr_directory_entry *e = &r->d->entries[i];

		r->entry = e->path;
		for (unsigned j = 0; j < e->nstored; j++) {
			const char *name = e->stored[j].path;
			const struct tsr_directory_entry *other = tsr_directory_find(r->d, name);

			if (other && other != e)
				return wrong(r, "files", "names that are no other entry's");
			stored[n++] = (struct tsr_named){ name, i };
		}
	}
	tsr_named_sort(stored, n);
	for (size_t i = 1; i < n; i++) {
		r->entry = r->d->entries[stored[i].index].path;
		if (strcmp(stored[i - 1].name, stored[i].name) == 0)
			return wrong(r, "files", "names that no other entry's file has");
	}
	return TSR_OK;
}

/* Reports add sizes up, of all entries. */
static enum tsr_status check_entries(struct reading *r)
{
	TSR_OWNED(free) struct tsr_named *stored = NULL;
	uint64_t sum = 0;

	for (size_t i = 0; i < r->d->n; i++) {
		const struct tsr_directory_entry *e = &r->d->entries[i];

		if (e->as == TSR_STORED_PART)
			TSR_TRY(check_part(r, e));
		r->entry = e->path;
		if (__builtin_add_overflow(sum, e->nbytes, &sum) ||
		    __builtin_add_overflow(sum, e->stored_nbytes, &sum) || sum > INT64_MAX)
			return wrong(r, "nbytes",
				     "sizes of all entries that are below 2^63 together");
	}
	TSR_TRY(TSR_NEW(&stored, TSR_DIRECTORY_STORED_MAX * r->d->n + 1, r->err, r->file));
	return check_names(r, stored);
}

/* --- The whole -------------------------------------------------------------------------------- */

static enum tsr_status read_root(const char *path, const char *file, const struct tsr_json *root,
				 struct tsr_directory **ret, struct tsr_err *err)
{
	struct reading r = { .file = file, .err = err };
	const struct tsr_json *entries = tsr_json_get(root, "entries");
	uint64_t version;

	if (tsr_json_type(root) != TSR_JSON_OBJECT ||
	    !tsr_json_u64(tsr_json_get(root, "tersor_directory"), &version))
		return wrong(&r, "tersor_directory", "the version of a packed directory");
	if (version != TSR_INDEX_VERSION)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: found version %" PRIu64 " of packed directories, expected %u",
				file, version, TSR_INDEX_VERSION);
	TSR_TRY(check_members(&r, root, "tersor_directory tool mode entries check"));
	if (!tsr_json_string(tsr_json_get(root, "tool")))
		return wrong(&r, "tool", "a text");
	if (!tsr_json_is_list(entries))
		return wrong(&r, "entries", "a list");
	if (tsr_json_size(entries) > TSR_NODES_MAX)
		return tsr_fail(err, TSR_E_LIMIT, "%s: has more entries than the limit of %u", file,
				TSR_NODES_MAX);
	TSR_TRY(tsr_directory_new(path, tsr_json_size(entries), ret, err));
	r.d = *ret;
	TSR_TRY(read_mode(&r, tsr_json_get(root, "mode"), &r.d->mode));
	for (const struct tsr_json *v = tsr_json_first(entries); v; v = tsr_json_next(v))
		TSR_TRY(read_entry(&r, v));
	return check_entries(&r);
}

/* The text hashes to the digits at its end, with zeros in their place. */
static enum tsr_status check_text(const char *file, char *text, size_t nbytes, struct tsr_err *err)
{
	const size_t tail = TSR_INDEX_HEX + strlen(TSR_INDEX_END);
	char found[TSR_INDEX_HEX + 1], expected[TSR_INDEX_HEX + 1];
	char *digits;

	if (nbytes < tail + strlen(CHECK_LEAD) ||
	    memcmp(text + nbytes - strlen(TSR_INDEX_END), TSR_INDEX_END, strlen(TSR_INDEX_END)) ||
	    memcmp(text + nbytes - tail - strlen(CHECK_LEAD), CHECK_LEAD, strlen(CHECK_LEAD)))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: is no complete index of a packed directory: expected a check "
				"at its end",
				file);
	digits = text + nbytes - tail;
	snprintf(found, sizeof(found), "%.16s", digits);
	memcpy(digits, TSR_INDEX_ZEROS, TSR_INDEX_HEX);
	snprintf(expected, sizeof(expected), "%016" PRIx64, tsr_hash(text, nbytes, 0));
	memcpy(digits, found, TSR_INDEX_HEX);
	if (strcmp(found, expected) != 0)
		return tsr_fail(err, TSR_E_FORMAT, "%s: damaged: its hash is %s, expected %.16s",
				file, expected, found);
	return TSR_OK;
}

static enum tsr_status parse(const struct tsr_file *f, const struct tsr_json_rules *rules,
			     struct tsr_json **ret, struct tsr_err *err)
{
	const size_t nbytes = (size_t)tsr_file_size(f);
	TSR_OWNED(free) char *text = NULL;

	TSR_TRY(tsr_file_load(f, TSR_DIRECTORY_INDEX_NBYTES_MAX, "an index", &text, err));
	TSR_TRY(check_text(rules->file, text, nbytes, err));
	return tsr_json_parse(text, nbytes, rules, ret, err);
}

enum tsr_status tsr_directory_open(const char *path, struct tsr_directory **ret,
				   struct tsr_err *err)
{
	TSR_OWNED(tsr_directory_close) struct tsr_directory *d = NULL;
	TSR_OWNED(tsr_json_free) struct tsr_json *root = NULL;
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	struct tsr_json_rules rules = { .part = "index",
					.max_depth = 6,
					.max_values = TSR_DIRECTORY_VALUES_MAX,
					.integers_only = true };

	TSR_TRY(tsr_file_open_in(path, TSR_DIRECTORY_INDEX, false, &f, err));
	rules.file = tsr_file_path(f);
	TSR_TRY(parse(f, &rules, &root, err));
	TSR_TRY(read_root(path, rules.file, root, &d, err));
	d->index_nbytes = tsr_file_size(f);
	return TSR_GIVE(ret, d);
}
