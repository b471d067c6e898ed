/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a packed directory has for its entries. */
#include "directory/stored.h"

#include <inttypes.h>

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

bool tsr_opens_links(const struct tsr_open_options *open)
{
	return open && open->follow;
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
				   ? tsr_directory_dcp_name(d, e)
				   : tsr_directory_join(d, e->path, TSR_DIRECTORY_SUFFIX);

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

static enum tsr_status check_size(const struct tsr_place_in *at, uint64_t expected,
				  struct tsr_err *err)
{
	struct tsr_file *f = NULL;
	uint64_t found;

	TSR_TRY(tsr_open_below(at, &f, err));
	found = tsr_file_size(f);
	tsr_file_close(f);
	if (found == expected)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT, "%s/%s: found %" PRIu64 " bytes, expected %" PRIu64,
			at->directory, at->path, found, expected);
}

enum tsr_status tsr_check_stored(const struct tsr_directory *d, const struct tsr_directory_entry *e,
				 bool follow, struct tsr_err *err)
{
	for (unsigned i = 0; i < e->nstored; i++) {
		const struct tsr_place_in at = { d->path, e->stored[i].path, follow };
		struct tsr_stored_file found = { 0 };

		TSR_TRY(check_size(&at, e->stored[i].nbytes, err));
		if (e->as != TSR_STORED_PACKED)
			continue;
		TSR_TRY(tsr_hash_header(&at, &found, err));
		if (found.hash != e->stored[i].hash)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s/%s: is not the file that was written here: its header "
					"has the hash %016" PRIx64 ", expected %016" PRIx64,
					d->path, at.path, found.hash, e->stored[i].hash);
	}
	return TSR_OK;
}

enum tsr_status tsr_stored_finish(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	e->stored_nbytes = 0;
	for (unsigned i = 0; i < e->nstored; i++) {
		struct tsr_stored_file *stored = (struct tsr_stored_file *)&e->stored[i];
		const struct tsr_place_in at = { t->out, stored->path, false };
		const char *path;

		TSR_TRY(tsr_traversal_path(t, t->out, stored->path, &path));
		TSR_TRY(tsr_hash_header(&at, stored, t->err));
		TSR_TRY(tsr_dir_set_mode(path, e->mode, t->err));
		e->stored_nbytes += stored->nbytes;
	}
	return TSR_OK;
}
