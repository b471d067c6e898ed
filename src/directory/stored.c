/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a packed directory has for its entries. */
#include "directory/stored.h"

#include "base/fail.h"
#include "base/option_size.h"
#include "directory/copying.h"
#include "io/dir.h"

enum tsr_status tsr_directory_open_options(struct tsr_open_options *ret,
					   const struct tsr_open_options *given,
					   struct tsr_err *err)
{
	*ret = tsr_open_defaults();
	TSR_TRY(tsr_options_take(ret, given, err));
	ret->numbered = true;
	return TSR_OK;
}

enum tsr_status tsr_stored_open_options(struct tsr_open_options *ret,
					const struct tsr_open_options *given, struct tsr_err *err)
{
	TSR_TRY(tsr_directory_open_options(ret, given, err));
	ret->parts = true;
	return TSR_OK;
}

bool tsr_stored_as_model(const struct tsr_checkpoint *c, enum tsr_coded_planes coded)
{
	const struct tsr_tensor *t;

	if (coded == TSR_CODED_ALL || tsr_checkpoint_container(c) != TSR_CONTAINER_SAFETENSORS)
		return false;
	for (size_t i = 0; (t = tsr_checkpoint_tensor(c, i)); i++) {
		if (t->kind == TSR_KIND_WEIGHT && t->coding.codec)
			return true;
	}
	return false;
}

enum tsr_status tsr_stored_list(struct tsr_directory *d, struct tsr_directory_entry *e, bool two,
				struct tsr_err *err)
{
	struct tsr_stored_file *stored = tsr_arena_alloc(d->arena, 2 * sizeof(*stored));
	const char *path = e->container == TSR_CONTAINER_DCP
				   ? tsr_directory_beside(d, e, TSR_DIRECTORY_DCP)
				   : tsr_arena_printf(d->arena, "%s" TSR_DIRECTORY_SUFFIX, e->path);

	if (!stored || !path)
		return tsr_directory_nomem(d, err);
	stored[0].path = e->path;
	stored[two ? 1 : 0].path = path;
	e->as = TSR_STORED_PACKED;
	e->stored = stored;
	e->nstored = two ? 2 : 1;
	return TSR_OK;
}

const struct tsr_stored_file *tsr_opened_file(const struct tsr_directory_entry *e)
{
	return &e->stored[e->nstored - 1];
}

static enum tsr_status check_size(struct tsr_traversal *t, const struct tsr_stored_file *stored)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(tsr_open_below(t, t->d->path, stored->path, &f));
	if (tsr_file_size(f) == stored->nbytes)
		return TSR_OK;
	return tsr_fail(t->err, TSR_E_FORMAT, "%s/%s: found %" PRIu64 " bytes, expected %" PRIu64,
			t->d->path, stored->path, tsr_file_size(f), stored->nbytes);
}

enum tsr_status tsr_check_stored(struct tsr_traversal *t, const struct tsr_directory_entry *e)
{
	for (unsigned i = 0; i < e->nstored; i++) {
		struct tsr_stored_file found = { 0 };

		TSR_TRY(check_size(t, &e->stored[i]));
		if (e->as != TSR_STORED_PACKED)
			continue;
		TSR_TRY(tsr_hash_header(t, t->d->path, e->stored[i].path, &found));
		if (found.hash != e->stored[i].hash)
			return tsr_fail(t->err, TSR_E_FORMAT,
					"%s/%s: is not the file that was written here: its header "
					"has the hash %016" PRIx64 ", expected %016" PRIx64,
					t->d->path, e->stored[i].path, found.hash,
					e->stored[i].hash);
	}
	return TSR_OK;
}

enum tsr_status tsr_stored_finish(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	e->stored_nbytes = 0;
	for (unsigned i = 0; i < e->nstored; i++) {
		struct tsr_stored_file *stored = (struct tsr_stored_file *)&e->stored[i];
		const char *path;

		TSR_TRY(tsr_traversal_path(t, t->out, stored->path, &path));
		TSR_TRY(tsr_hash_header(t, t->out, stored->path, stored));
		TSR_TRY(tsr_dir_set_mode(path, e->mode, t->err));
		e->stored_nbytes += stored->nbytes;
	}
	return TSR_OK;
}
