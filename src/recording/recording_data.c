/* SPDX-License-Identifier: Apache-2.0 */
/* Paths and memory of a recording. */
#include "recording/recording_data.h"

#include "base/fail.h"
#include "io/file.h"

enum tsr_status tsr_recording_nomem(const struct tsr_recording_data *r, struct tsr_err *err)
{
	if (!tsr_arena_full(r->arena))
		return tsr_fail_nomem(err, r->pub.path);
	return tsr_fail(err, TSR_E_LIMIT,
			"%s: names and values take more memory than the limit of %" PRIu64 " MiB",
			r->pub.path, (TSR_RECORDING_ARENA_MAX >> 20));
}

/* A step can be a link to elsewhere, or a directory of its own. */
static enum tsr_status check_not_step(const struct tsr_recording *r, const char *file,
				      const char *path, struct tsr_err *err)
{
	TSR_OWNED(free) char *step = tsr_path_join(r->path, file);

	if (!step)
		return tsr_fail_nomem(err, r->path);
	TSR_TRY(tsr_path_check_not(step, path, err));
	return tsr_path_check_not_in(step, path, err);
}

enum tsr_status tsr_recording_check_not(const struct tsr_recording *r, const char *path,
					struct tsr_err *err)
{
	TSR_TRY(tsr_path_check_not_in(r->path, path, err));
	for (size_t i = 0; i < r->nsteps; i++) {
		for (size_t f = 0; f < r->steps[i].nfiles; f++)
			TSR_TRY(check_not_step(r, r->steps[i].files[f], path, err));
	}
	return TSR_OK;
}
