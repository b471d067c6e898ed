/* SPDX-License-Identifier: Apache-2.0 */
/* Opening one of two runs, whatever it is. */
#include "bisect/sides.h"

#include "base/fail.h"
#include "base/order.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/temporary.h"
#include "recording/recording_data.h"
#include "recording/signature_file.h"
#include "text/bytes.h"

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

/* The path of an entry of a directory, which lives as long as the side. */
static enum tsr_status entry_path(const struct tsr_run_side *s, const char *name, char **ret,
				  struct tsr_err *err)
{
	const size_t len = strlen(s->pub.path);

	*ret = tsr_arena_printf(s->arena, "%s%s%s", s->pub.path,
				len && s->pub.path[len - 1] == '/' ? "" : "/", name);
	return *ret ? TSR_OK : tsr_side_nomem(s, err);
}

/* The files of signatures in a directory, if it is one and has any. */
static enum tsr_status open_directory(struct tsr_run_side *s, bool *ret, struct tsr_err *err)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir found = { 0 };
	TSR_OWNED(free) char **paths = NULL;

	*ret = false;
	if (!tsr_dir_is(s->pub.path))
		return TSR_OK;
	TSR_TRY(tsr_dir_list(s->pub.path, TSR_SIGNATURES_SUFFIX, &found, err));
	TSR_TRY(TSR_NEW(&paths, found.n + 1, err, s->pub.path));
	for (size_t i = 0; i < found.n; i++)
		TSR_TRY(entry_path(s, found.names[i], &paths[i], err));
	*ret = found.n > 0;
	return found.n ? tsr_side_open_signatures(s, paths, found.n, err) : TSR_OK;
}

/* --- Series of checkpoints --------------------------------------------------------------------- */

/* The number that the name of a step's file or directory ends in, behind a separator: not that of "fp32". */
static bool step_of(const char *name, bool folder, uint64_t *ret)
{
	const char *end = folder ? NULL : strrchr(name, '.');
	const char *first = end = end ? end : name + strlen(name);

	while (first > name && first[-1] >= '0' && first[-1] <= '9')
		first--;
	return (first == name || strchr("-_.", first[-1])) &&
	       (folder || tsr_recording_step_of(name, ret)) &&
	       tsr_digits(first, (size_t)(end - first), TSR_STEP_MAX, ret);
}

struct numbered {
	uint64_t step;
	char *path;
};

TSR_COMPARE(by_step, struct numbered, TSR_ORDER(a->step, b->step))

static enum tsr_status take_series(struct tsr_run_side *s, struct numbered *found, size_t n,
				   struct tsr_err *err)
{
	TSR_TRY(TSR_NEW(&s->steps, n + 1, err, s->pub.path));
	TSR_TRY(TSR_NEW(&s->paths, n + 1, err, s->pub.path));
	qsort(found, n, sizeof(*found), by_step);
	for (; s->nsteps < n; s->nsteps++) {
		const size_t i = s->nsteps;

		if (i && found[i].step == found[i - 1].step)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found %s and %s of one step, expected one",
					s->pub.path, tsr_path_name(s->paths[i - 1]),
					tsr_path_name(found[i].path));
		s->steps[i] = found[i].step;
		s->paths[i] = found[i].path;
	}
	return TSR_OK;
}

/*
 * The entries of a directory that are named by step: directories, or if there are less than two, files.
 * None: *n_ret is 0.
 */
static enum tsr_status list_series(struct tsr_run_side *s, bool folders, struct tsr_err *err)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir d = { 0 };
	TSR_OWNED(free) struct numbered *found = NULL;
	size_t n = 0;

	TSR_TRY(tsr_dir_list(s->pub.path, "", &d, err));
	TSR_TRY(TSR_NEW(&found, d.n + 1, err, s->pub.path));
	for (size_t i = 0; i < d.n; i++) {
		bool folder;

		TSR_TRY(entry_path(s, d.names[i], &found[n].path, err));
		folder = tsr_dir_is(found[n].path);
		n += step_of(d.names[i], folder, &found[n].step) && (folder || !folders);
	}
	return n >= (folders ? 2 : 1) ? take_series(s, found, n, err) : TSR_OK;
}

/* A checkpoint, or if there is none at its path a directory of several. */
static enum tsr_status open_checkpoints(struct tsr_run_side *s, struct tsr_err *err)
{
	struct tsr_checkpoint *c = NULL;
	struct tsr_file *f = NULL;
	const char *path = s->pub.path;
	enum tsr_status status;

	s->pub.source = TSR_BISECT_CHECKPOINTS;
	if (tsr_dir_is(path)) {
		TSR_TRY(list_series(s, true, err));
	} else {
		/* It is opened more than once, which a stream cannot be. */
		TSR_TRY(tsr_file_open(path, &f, err));
		tsr_file_close(f);
	}
	if (!s->nsteps) {
		status = tsr_checkpoint_open(&path, 1, s->open, &c, err);
		tsr_checkpoint_close(c);
		if (status != TSR_OK && !tsr_dir_is(path))
			return status;
		if (status != TSR_OK)
			TSR_TRY(list_series(s, false, err));
		if (status != TSR_OK && !s->nsteps)
			return status;
	}
	if (!s->nsteps) {
		struct numbered only = { .path = (char *)path };

		s->unnumbered = !step_of(tsr_path_name(path), tsr_dir_is(path), &only.step);
		TSR_TRY(take_series(s, &only, 1, err));
	}
	return tsr_side_open_values(s, err);
}

enum tsr_status tsr_side_open(struct tsr_run_side *s, const char *path,
			      const struct tsr_open_options *open, struct tsr_err *err)
{
	const bool recording = tsr_dir_is(path) && tsr_dir_has_in(path, TSR_MANIFEST_NAME);
	char *file = (char *)path;
	bool found;

	s->open = open;
	s->room = SIZE_MAX;
	s->arena = tsr_arena_new(ARENA_MAX);
	s->pub.path = s->arena ? tsr_arena_copy(s->arena, path, strlen(path)) : NULL;
	if (!s->pub.path)
		return tsr_fail_nomem(err, path);
	if (is_signatures(path))
		return tsr_side_open_signatures(s, &file, 1, err);
	if (recording)
		TSR_TRY(tsr_recording_open(s->pub.path, s->open, &s->recording, err));
	s->pub.run = s->recording;
	TSR_TRY(open_directory(s, &found, err));
	if (found)
		return TSR_OK;
	if (!recording)
		return open_checkpoints(s, err);
	s->pub.source = TSR_BISECT_GRADIENTS;
	return tsr_side_open_values(s, err);
}

void tsr_side_close(struct tsr_run_side *s)
{
	for (size_t i = 0; s->files && i < s->pub.nfiles; i++)
		tsr_signatures_close(s->files[i]);
	free(s->files);
	tsr_checkpoint_close(s->current);
	tsr_recording_close(s->recording);
	free(s->paths);
	free(s->tensors);
	free((void *)s->at);
	free(s->steps);
	free(s->signatures);
	tsr_map_free(&s->keys);
	tsr_arena_free(s->arena);
}
