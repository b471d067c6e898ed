/* SPDX-License-Identifier: Apache-2.0 */
/* Making the index of a directory whose files are packed already, as the ranks of a job write them. */
#include "base/fail.h"
#include "directory/copying.h"
#include "directory/stored.h"
#include "io/dir.h"
#include "io/file.h"

/* Open a packed file that stands for a source of its own; *ret stays NULL for any other file. */
static enum tsr_status open_packed(struct tsr_traversal *t, const struct tsr_directory_entry *e,
				   struct tsr_checkpoint **ret)
{
	struct tsr_open_options open;
	struct tsr_checkpoint *c = NULL;
	enum tsr_status status;
	bool holds = false;
	const char *path;

	TSR_TRY(tsr_probe_below(t, t->d->path, e->path, &holds));
	if (!holds)
		return TSR_OK;
	TSR_TRY(tsr_stored_open_options(&open, NULL, t->err));
	TSR_TRY(tsr_traversal_path(t, t->d->path, e->path, &path));
	status = tsr_checkpoint_open(&path, 1, &open, &c, t->err);
	if (status != TSR_OK)
		return status == TSR_E_UNSUPPORTED ? TSR_OK : status;
	if (tsr_checkpoint_is_packed(c) && tsr_checkpoint_container(c) != TSR_CONTAINER_DCP)
		*ret = c;
	else
		tsr_checkpoint_close(c);
	return TSR_OK;
}

static enum tsr_status index_entry(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	struct tsr_stored_file *stored = tsr_arena_alloc(t->d->arena, sizeof(*stored));
	struct tsr_checkpoint *c = NULL;

	if (e->as == TSR_STORED_DIRECTORY)
		return TSR_OK;
	if (!stored)
		return tsr_directory_nomem(t->d, t->err);
	*stored = (struct tsr_stored_file){ .path = e->path };
	e->stored = stored;
	e->nstored = 1;
	TSR_TRY(open_packed(t, e, &c));
	if (!c) {
		TSR_TRY(tsr_copy_file(t, t->d->path, e->path, NULL, stored));
		e->nbytes = stored->nbytes;
		return TSR_OK;
	}
	e->as = TSR_STORED_PACKED;
	e->container = tsr_checkpoint_container(c);
	e->generation = tsr_checkpoint_generation(c);
	e->nbytes = 0;
	for (size_t i = 0; i < c->ntensors; i++)
		e->nbytes += tsr_tensor_nbytes(&c->tensors[i]);
	tsr_checkpoint_close(c);
	return tsr_hash_header(t, t->d->path, e->path, stored);
}

static enum tsr_status make(struct tsr_traversal *t, const char *index)
{
	TSR_TRY(tsr_directory_check_paths(t->d, t->err));
	TSR_TRY(tsr_traversal_each(t, index_entry));
	TSR_TRY(tsr_nodes_check_unchanged(&t->nodes, t->d->path, t->follow, t->err));
	return tsr_directory_write_index(t, index);
}

enum tsr_status tsr_directory_index(const char *path, struct tsr_err *err)
{
	struct tsr_traversal t = { .output.path = path };
	TSR_OWNED(free) char *index = tsr_path_join(path, TSR_DIRECTORY_INDEX);
	TSR_OWNED(tsr_directory_close) struct tsr_directory *made = NULL;
	enum tsr_status status;

	if (!index)
		return tsr_fail_nomem(err, path);
	(void)tsr_dir_remove_file(index);
	status = tsr_traversal_open(&t, path, NULL, err);
	TSR_THEN(status, make(&t, index));
	return tsr_traversal_end(&t, status, &made);
}
