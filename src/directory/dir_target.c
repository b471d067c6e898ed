/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that packing or unpacking one makes. */
#include "directory/dir_target.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "io/dir.h"
#include "io/file.h"

static bool is_stream(const struct tsr_dir_target *target)
{
	return strcmp(target->path, TSR_STANDARD_OUTPUT) == 0;
}

enum tsr_status tsr_dir_check_target(const struct tsr_directory *input,
				     const struct tsr_dir_target *target, uint64_t nbytes,
				     struct tsr_err *err)
{
	/* What a dry run without an output has for one; starting it fails. */
	if (is_stream(target))
		return TSR_OK;
	TSR_TRY(tsr_outdir_check_outside(target->path, input->path, err));
	TSR_TRY(tsr_outdir_check_not_below(target->path, input->path, err));
	TSR_TRY(tsr_outdir_check_target(target->path, target->marker, target->force, err));
	return tsr_outdir_check_space(target->path, nbytes, err);
}

enum tsr_status tsr_dir_start(const struct tsr_dir_target *target, struct tsr_outdir **ret,
			      struct tsr_err *err)
{
	enum tsr_status status;

	if (is_stream(target))
		return tsr_fail(err, TSR_E_USAGE, "%s: expected a name for the output directory",
				target->path);
	TSR_TRY(tsr_outdir_create(target->path, target->marker, target->force, ret, err));
	status = tsr_dir_set_mode(tsr_outdir_path(*ret), 0700, err);
	if (status != TSR_OK)
		tsr_outdir_discard(*ret);
	return status;
}

/* Sync the directories and set their permissions, those in others first. */
static enum tsr_status finish(const struct tsr_directory *d, const char *out, struct tsr_err *err)
{
	for (size_t i = d->n; i-- > 0;) {
		const struct tsr_directory_entry *e = &d->entries[i];
		enum tsr_status status;
		char *path;

		if (e->as != TSR_STORED_DIRECTORY)
			continue;
		path = tsr_path_join(out, e->path);
		if (!path)
			return tsr_fail_nomem(err, out);
		status = tsr_dir_sync(path, path, err);
		if (status == TSR_OK)
			status = tsr_dir_set_mode(path, e->mode, err);
		free(path);
		TSR_TRY(status);
	}
	return tsr_dir_set_mode(out, d->mode, err);
}

enum tsr_status tsr_dir_end(const struct tsr_directory *d, struct tsr_outdir *made,
			    enum tsr_status status, struct tsr_err *err)
{
	if (status == TSR_OK)
		status = finish(d, tsr_outdir_path(made), err);
	if (status == TSR_OK)
		return tsr_outdir_publish(made, err);
	tsr_outdir_discard(made);
	return status;
}
