/* SPDX-License-Identifier: Apache-2.0 */
/* What a user of the library sees of a packed directory. */
#include "base/fail.h"
#include "base/order.h"
#include "base/utf8.h"
#include "directory/directory_data.h"
#include "io/dir.h"
#include "io/temporary.h"

/* Memory that the paths, entries and reasons of one directory may take. */
#define ARENA_NBYTES_MAX (UINT64_C(1) << 30)

const char *tsr_stored_as_name(enum tsr_stored_as as)
{
	static const char *const names[] = { [TSR_STORED_DIRECTORY] = "directory",
					     [TSR_STORED_COPY] = "copied",
					     [TSR_STORED_PACKED] = "packed",
					     [TSR_STORED_PART] = "part" };

	return names[as];
}

struct tsr_directory_watch tsr_directory_watch_defaults(void)
{
	return (struct tsr_directory_watch){ .size = sizeof(struct tsr_directory_watch) };
}

enum tsr_status tsr_directory_new(const char *path, size_t n, struct tsr_directory **ret,
				  struct tsr_err *err)
{
	TSR_OWNED(tsr_directory_close) struct tsr_directory *d = NULL;

	TSR_TRY(TSR_NEW(&d, 1, err, path));
	d->arena = tsr_arena_new(ARENA_NBYTES_MAX);
	d->path = tsr_arena_string(d->arena, path);
	d->entries = d->path ? tsr_arena_alloc(d->arena, (n + 1) * sizeof(*d->entries)) : NULL;
	if (!d->entries)
		return tsr_fail_nomem(err, path);
	return TSR_GIVE(ret, d);
}

enum tsr_status tsr_directory_add(struct tsr_directory *d, const struct tsr_node *node,
				  struct tsr_err *err)
{
	struct tsr_directory_entry *e = &d->entries[d->n];

	*e = (struct tsr_directory_entry){
		.path = tsr_arena_string(d->arena, node->path),
		.as = node->is_directory ? TSR_STORED_DIRECTORY : TSR_STORED_COPY,
		.mode = node->mode,
		.nbytes = node->nbytes,
		.stored_nbytes = node->nbytes,
	};
	if (!e->path)
		return tsr_directory_nomem(d, err);
	d->n++;
	return TSR_OK;
}

enum tsr_status tsr_directory_list(const char *path, bool follow, struct tsr_nodes *nodes,
				   struct tsr_directory **ret, struct tsr_err *err)
{
	enum tsr_status status;

	TSR_TRY(tsr_nodes_list(path, follow, nodes, err));
	TSR_TRY(tsr_directory_new(path, nodes->n, ret, err));
	status = tsr_node_mode(path, &(*ret)->mode, err);
	for (size_t i = 0; i < nodes->n && status == TSR_OK; i++)
		status = tsr_directory_add(*ret, &nodes->list[i], err);
	return status;
}

void tsr_directory_close(struct tsr_directory *d)
{
	if (!d)
		return;
	tsr_arena_free(d->arena);
	free(d);
}

enum tsr_status tsr_directory_nomem(const struct tsr_directory *d, struct tsr_err *err)
{
	if (!tsr_arena_full(d->arena))
		return tsr_fail_nomem(err, d->path);
	return tsr_fail(err, TSR_E_LIMIT, "%s: its list of files needs more memory than the limit",
			d->path);
}

TSR_COMPARE(by_path, struct tsr_directory_entry, strcmp(a->path, b->path))

struct tsr_directory_entry *tsr_directory_find(const struct tsr_directory *d, const char *path)
{
	const struct tsr_directory_entry key = { .path = path };

	return d->n ? bsearch(&key, d->entries, d->n, sizeof(key), by_path) : NULL;
}

bool tsr_directory_path_is_valid(const char *path)
{
	const size_t n = strlen(path) > TSR_NODE_PATH_MAX ? 0 : tsr_dir_count_names(path);

	return n && n <= TSR_NODES_DEPTH_MAX + 1 && tsr_utf8_is_string(path, strlen(path));
}

enum tsr_status tsr_directory_check_paths(const struct tsr_directory *d, struct tsr_err *err)
{
	for (size_t i = 0; i < d->n; i++) {
		const char *path = d->entries[i].path;

		if (!tsr_directory_path_is_valid(path))
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: found the name %.200s, expected UTF-8 without "
					"backslashes, at most %u directories deep",
					d->path, path, TSR_NODES_DEPTH_MAX);
	}
	return TSR_OK;
}

bool tsr_directory_is_packed(const char *path)
{
	return tsr_dir_is(path) && tsr_dir_has_in(path, TSR_DIRECTORY_INDEX);
}

/* --- Checkpoints of torch.distributed.checkpoint ---------------------------------------------- */

static size_t directory_len(const char *path)
{
	return (size_t)(tsr_path_name(path) - path);
}

bool tsr_directory_is_part(const struct tsr_directory_entry *metadata, const char *path)
{
	const size_t len = directory_len(metadata->path);

	return directory_len(path) == len && strncmp(metadata->path, path, len) == 0 &&
	       tsr_dir_name_ends_with(path, ".distcp");
}

const char *tsr_directory_beside(struct tsr_directory *d, const struct tsr_directory_entry *e,
				 const char *name)
{
	const size_t len = directory_len(e->path);
	char *text = tsr_arena_alloc(d->arena, len + strlen(name) + 1);

	if (text) {
		memcpy(text, e->path, len);
		strcpy(text + len, name);
	}
	return text;
}

struct tsr_directory_entry *tsr_directory_metadata_of(struct tsr_directory *d,
						      const struct tsr_directory_entry *e)
{
	const char *path = tsr_directory_beside(d, e, TSR_DIRECTORY_METADATA);

	return path ? tsr_directory_find(d, path) : NULL;
}

void tsr_directory_find_parts(struct tsr_directory *d)
{
	for (size_t i = 0; i < d->n; i++) {
		struct tsr_directory_entry *e = &d->entries[i], *metadata;

		if (e->as == TSR_STORED_DIRECTORY || !tsr_dir_name_ends_with(e->path, ".distcp"))
			continue;
		metadata = tsr_directory_metadata_of(d, e);
		if (!metadata || metadata->as == TSR_STORED_DIRECTORY)
			continue;
		metadata->container = TSR_CONTAINER_DCP;
		e->as = TSR_STORED_PART;
	}
}

size_t tsr_directory_nentries(const struct tsr_directory *d)
{
	return d->n;
}

const struct tsr_directory_entry *tsr_directory_entry(const struct tsr_directory *d, size_t index)
{
	return index < d->n ? &d->entries[index] : NULL;
}

const char *tsr_directory_path(const struct tsr_directory *d)
{
	return d->path;
}

uint64_t tsr_directory_index_nbytes(const struct tsr_directory *d)
{
	return d->index_nbytes;
}

size_t tsr_directory_nfaults(const struct tsr_directory *d)
{
	return d->nfaults;
}

const char *tsr_directory_remark(const struct tsr_directory *d)
{
	return d->remark;
}

/* --- What is in it ------------------------------------------------------------------------------ */

struct tsr_named *tsr_directory_known(const struct tsr_directory *d, size_t *n_ret)
{
	struct tsr_named *names = calloc(d->n * (1 + TSR_DIRECTORY_STORED_MAX) + 1, sizeof(*names));
	size_t n = 0;

	if (!names)
		return NULL;
	names[n++].name = TSR_DIRECTORY_INDEX;
	for (size_t i = 0; i < d->n; i++) {
		const struct tsr_directory_entry *e = &d->entries[i];

		if (e->as == TSR_STORED_DIRECTORY)
			names[n++].name = e->path;
		for (unsigned j = 0; j < e->nstored; j++)
			names[n++].name = e->stored[j].path;
	}
	tsr_named_sort(names, n);
	*n_ret = n;
	return names;
}

enum tsr_status tsr_directory_remark_others(struct tsr_directory *d, bool follow,
					    struct tsr_err *err)
{
	TSR_SCOPED(tsr_nodes_free) struct tsr_nodes nodes = { 0 };
	TSR_OWNED(free) struct tsr_named *known = NULL;
	const char *first = NULL;
	size_t nknown = 0, n = 0;

	TSR_TRY(tsr_nodes_list(d->path, follow, &nodes, err));
	known = tsr_directory_known(d, &nknown);
	if (!known)
		return tsr_directory_nomem(d, err);
	for (size_t i = 0; i < nodes.n; i++) {
		const struct tsr_node *node = &nodes.list[i];

		if (tsr_named_find(known, nknown, node->path))
			continue;
		first = n++ ? first : node->path;
	}
	if (!n)
		return TSR_OK;
	d->remark = tsr_arena_printf(
		d->arena, "%s: left out %zu %s not in its index, such as %.255s", d->path, n,
		n == 1 ? "entry that is" : "entries that are", first);
	return d->remark ? TSR_OK : tsr_directory_nomem(d, err);
}
