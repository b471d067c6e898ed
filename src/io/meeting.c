/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch files that several processes write together. */
#include "io/meeting.h"

#include <stdlib.h>

#include "base/fail.h"
#include "io/temporary.h"

/* The path of the temporary name that follows from @id. */
static enum tsr_status name_met(const char *path, uint64_t id, char **ret, struct tsr_err *err)
{
	char *dir = tsr_path_directory(path), *name = NULL;
	enum tsr_status status = dir ? TSR_OK : tsr_fail_nomem(err, path);

	if (status == TSR_OK)
		status = tsr_temporary_name_of(tsr_path_name(path), id, path, &name, err);
	if (status == TSR_OK) {
		*ret = tsr_path_join(dir, name);
		status = *ret ? TSR_OK : tsr_fail_nomem(err, path);
	}
	free(name);
	free(dir);
	return status;
}

enum tsr_status tsr_file_meet(const char *path, uint64_t id, uint64_t nbytes, bool joins,
			      char **name_ret, struct tsr_file **ret, struct tsr_err *err)
{
	enum tsr_status status;
	char *name = NULL;

	TSR_TRY(name_met(path, id, &name, err));
	status = tsr_file_scratch_shared(path, name, nbytes, joins, ret, err);
	if (status == TSR_OK) {
		*name_ret = name;
	} else {
		free(name);
	}
	return status;
}
