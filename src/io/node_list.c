/* SPDX-License-Identifier: Apache-2.0 */
/* Everything below a directory, listed. */
#include "io/node_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/grow.h"
#include "io/dir.h"
#include "io/file.h"

struct listing {
	const char *root;
	bool follow;
	struct tsr_nodes nodes;
	struct tsr_err *err;
};

/* What a node is, links followed or refused. */
static enum tsr_status look(const struct listing *l, const char *full, struct stat *st)
{
	if (lstat(full, st) != 0)
		return tsr_fail_errno(l->err, errno, "%s: cannot stat", full);
	if (S_ISLNK(st->st_mode)) {
		if (!l->follow)
			return tsr_fail_hint(
				l->err, TSR_E_UNSUPPORTED, TSR_HINT_FOLLOW_LINKS,
				"%s: found a symbolic link, expected a file or directory", full);
		if (stat(full, st) != 0)
			return tsr_fail_errno(l->err, errno, "%s: cannot stat", full);
		if (S_ISDIR(st->st_mode))
			return tsr_fail(l->err, TSR_E_UNSUPPORTED,
					"%s: found a symbolic link to a directory, expected one "
					"to a file",
					full);
	}
	if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
		return tsr_fail(l->err, TSR_E_UNSUPPORTED,
				"%s: found a %s, expected a file or directory", full,
				S_ISFIFO(st->st_mode)	? "FIFO"
				: S_ISSOCK(st->st_mode) ? "socket"
							: "device");
	return TSR_OK;
}

/* Add one; it has @path from then on, unless that fails. */
static enum tsr_status add(struct listing *l, char *path, const struct stat *st)
{
	struct tsr_nodes *nodes = &l->nodes;

	if (nodes->n == TSR_NODES_MAX)
		return tsr_fail(l->err, TSR_E_LIMIT, "%s: has more entries than the limit of %u",
				l->root, TSR_NODES_MAX);
	TSR_TRY(TSR_GROW(&nodes->list, nodes->n, l->err, l->root));
	nodes->list[nodes->n++] = (struct tsr_node){ .path = path,
						     .is_directory = S_ISDIR(st->st_mode),
						     .mode = st->st_mode & 0777,
						     .nbytes = S_ISREG(st->st_mode)
								       ? (uint64_t)st->st_size
								       : 0,
						     .device = st->st_dev,
						     .inode = st->st_ino,
						     .mtime_s = st->st_mtim.tv_sec,
						     .mtime_ns = st->st_mtim.tv_nsec };
	return TSR_OK;
}

static enum tsr_status list_directory(struct listing *l, const char *below, unsigned depth);

/* Add the entry @name of the directory @below (""; the root), and what is in it. */
static enum tsr_status list_entry(struct listing *l, const char *below, const char *name,
				  unsigned depth)
{
	TSR_OWNED(free) char *path = *below ? tsr_path_join(below, name) : strdup(name);
	TSR_OWNED(free) char *full = path ? tsr_path_join(l->root, path) : NULL;
	const char *added = path;
	struct stat st;

	if (!full)
		return tsr_fail_nomem(l->err, l->root);
	if (strlen(path) > TSR_NODE_PATH_MAX)
		return tsr_fail(l->err, TSR_E_LIMIT,
				"%s: found a path of more than %u bytes below it", l->root,
				TSR_NODE_PATH_MAX);
	TSR_TRY(look(l, full, &st));
	TSR_TRY(add(l, path, &st));
	path = NULL;
	return S_ISDIR(st.st_mode) ? list_directory(l, added, depth + 1) : TSR_OK;
}

static enum tsr_status list_directory(struct listing *l, const char *below, unsigned depth)
{
	TSR_OWNED(free) char *full = *below ? tsr_path_join(l->root, below) : strdup(l->root);
	TSR_SCOPED(tsr_dir_free) struct tsr_dir found = { 0 };

	if (!full)
		return tsr_fail_nomem(l->err, l->root);
	if (depth > TSR_NODES_DEPTH_MAX)
		return tsr_fail(l->err, TSR_E_LIMIT,
				"%s: has more than %u directories in each other", l->root,
				TSR_NODES_DEPTH_MAX);
	TSR_TRY(tsr_dir_list_all(full, &found, l->err));
	for (size_t i = 0; i < found.n; i++)
		TSR_TRY(list_entry(l, below, found.names[i], depth));
	return TSR_OK;
}

static int by_path(const void *va, const void *vb)
{
	const struct tsr_node *a = va, *b = vb;

	return strcmp(a->path, b->path);
}

enum tsr_status tsr_nodes_list(const char *directory, bool follow, struct tsr_nodes *ret,
			       struct tsr_err *err)
{
	struct listing l = { .root = directory, .follow = follow, .err = err };
	const enum tsr_status status = list_directory(&l, "", 0);

	if (status != TSR_OK)
		tsr_nodes_free(&l.nodes);
	TSR_TRY(status);
	if (l.nodes.n)
		qsort(l.nodes.list, l.nodes.n, sizeof(*l.nodes.list), by_path);
	*ret = l.nodes;
	return TSR_OK;
}

void tsr_nodes_free(struct tsr_nodes *nodes)
{
	for (size_t i = 0; i < nodes->n; i++)
		free(nodes->list[i].path);
	free(nodes->list);
	*nodes = (struct tsr_nodes){ 0 };
}

static bool is_unchanged(const struct tsr_node *a, const struct tsr_node *b)
{
	return a->is_directory == b->is_directory && a->device == b->device &&
	       a->inode == b->inode &&
	       (a->is_directory ||
		(a->nbytes == b->nbytes && a->mtime_s == b->mtime_s && a->mtime_ns == b->mtime_ns));
}

enum tsr_status tsr_nodes_check_unchanged(const struct tsr_nodes *nodes, const char *directory,
					  bool follow, struct tsr_err *err)
{
	TSR_SCOPED(tsr_nodes_free) struct tsr_nodes now = { 0 };
	const char *changed = NULL, *how = "";
	size_t i = 0, j = 0;

	TSR_TRY(tsr_nodes_list(directory, follow, &now, err));
	for (; !changed && (i < nodes->n || j < now.n); i++, j++) {
		const int order = i == nodes->n ? 1
				  : j == now.n	? -1
						: by_path(&nodes->list[i], &now.list[j]);

		changed = order > 0 ? now.list[j].path : nodes->list[i].path;
		how = order < 0 ? "removed" : order > 0 ? "added" : "modified or replaced";
		if (order == 0 && is_unchanged(&nodes->list[i], &now.list[j]))
			changed = NULL;
	}
	if (!changed)
		return TSR_OK;
	return tsr_fail(err, TSR_E_IO, "%s/%s: changed while reading: it was %s", directory,
			changed, how);
}

enum tsr_status tsr_node_mode(const char *path, unsigned *ret, struct tsr_err *err)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat", path);
	*ret = st.st_mode & 0777;
	return TSR_OK;
}

const struct tsr_node *tsr_nodes_find(const struct tsr_nodes *nodes, const char *path)
{
	const struct tsr_node key = { .path = (char *)path };

	return nodes->n ? bsearch(&key, nodes->list, nodes->n, sizeof(key), by_path) : NULL;
}
