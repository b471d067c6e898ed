/* SPDX-License-Identifier: Apache-2.0 */
/* Opening one of two runs, whatever it is. */
#include "bisect/sides.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/dir.h"
#include "io/file.h"
#include "recording/signature_file.h"

#define ARENA_MAX ((size_t)1 << 30)

/* --- What is at a path ------------------------------------------------------------------------- */

static bool is_signatures(const char *path)
{
	struct tsr_file *f = NULL;
	char magic[8];
	bool is = false;

	if (!tsr_dir_is(path) && tsr_file_open(path, &f, NULL) == TSR_OK)
		is = tsr_file_size(f) >= sizeof(magic) &&
		     tsr_file_read(f, magic, sizeof(magic), 0, NULL) == TSR_OK &&
		     memcmp(magic, TSR_SIGNATURES_MAGIC, sizeof(magic)) == 0;
	tsr_file_close(f);
	return is;
}

/* The files of signatures in a directory, if it is one and has any. */
static enum tsr_status open_directory(struct tsr_run_side *s, const char *path, bool *ret,
				      struct tsr_err *err)
{
	struct tsr_dir found = { 0 };
	enum tsr_status status = TSR_OK;

	*ret = false;
	if (!tsr_dir_is(path))
		return TSR_OK;
	TSR_TRY(tsr_dir_list(path, TSR_SIGNATURES_SUFFIX, &found, err));
	for (size_t i = 0; i < found.n && status == TSR_OK; i++) {
		char *file = tsr_path_join(path, found.names[i]);

		free(found.names[i]);
		found.names[i] = file;
		if (!file)
			status = tsr_fail_nomem(err, path);
	}
	if (status == TSR_OK && found.n) {
		*ret = true;
		status = tsr_side_open_signatures(s, found.names, found.n, err);
	}
	tsr_dir_free(&found);
	return status;
}

enum tsr_status tsr_side_open(struct tsr_run_side *s, const char *path,
			      const struct tsr_open_options *open, const struct tsr_run *run,
			      struct tsr_err *err)
{
	char *file = (char *)path;
	bool found;

	(void)run;
	s->open = open;
	s->arena = tsr_arena_new(ARENA_MAX);
	s->pub.path = s->arena ? tsr_arena_copy(s->arena, path, strlen(path)) : NULL;
	if (!s->pub.path)
		return tsr_fail_nomem(err, path);
	if (is_signatures(path))
		return tsr_side_open_signatures(s, &file, 1, err);
	TSR_TRY(open_directory(s, path, &found, err));
	if (found)
		return TSR_OK;
	if (access(path, F_OK) != 0)
		return tsr_fail_errno(err, errno, "%s", path);
	return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: has no signatures", path);
}

void tsr_side_close(struct tsr_run_side *s)
{
	if (s->kind)
		s->kind->close(s);
	tsr_recording_close(s->recording);
	free(s->tensors);
	free(s->steps);
	free(s->signatures);
	tsr_arena_free(s->arena);
}
