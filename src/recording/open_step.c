/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the gradients of one step, from one file or one per rank. */
#include "recording/recording_data.h"

#include "io/dir.h"
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "io/file.h"

/* Put the step into a message, behind the path of a file of the step that it begins with. */
void tsr_recording_name_step(const struct tsr_recording *r, size_t index, struct tsr_err *err)
{
	const struct tsr_recording_step *step = &r->steps[index];
	struct tsr_err was;
	size_t n = 0;

	if (!err)
		return;
	for (size_t i = 0; i < step->nfiles && !n; i++) {
		TSR_OWNED(free) char *path = tsr_path_join(r->path, step->files[i]);

		n = path ? strlen(path) : 0;
		if (n && (strncmp(err->msg, path, n) != 0 || err->msg[n] != ':'))
			n = 0;
	}
	was = *err;
	tsr_fail_hint(err, was.code, was.hint, "%.*s%sstep %" PRIu64 ": %s", (int)n, was.msg,
		      n ? ": " : "", step->step, was.msg + (n ? n + 2 : 0));
}

/*
 * A file that the recording names must be a regular one.  It is held open while the checkpoint is
 * opened by its path, so that a link that takes its place is noticed.
 */
static enum tsr_status open_part(const struct tsr_recording_data *r, const char *name,
				 const char *path, struct tsr_checkpoint **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	if (r->pub.has_manifest || !tsr_dir_is(path))
		TSR_TRY(tsr_file_open_in(r->pub.path, name, r->options.follow, &f, err));
	TSR_TRY(tsr_checkpoint_open(&path, 1, &r->options, ret, err));
	if (f)
		TSR_TRY(tsr_file_check_unchanged(f, err));
	return TSR_OK;
}

static enum tsr_status open_parts(const struct tsr_recording_data *r,
				  const struct tsr_recording_step *step,
				  struct tsr_checkpoint **parts, struct tsr_err *err)
{
	for (size_t i = 0; i < step->nfiles; i++) {
		TSR_OWNED(free) char *path = tsr_path_join(r->pub.path, step->files[i]);

		if (!path)
			return tsr_fail_nomem(err, r->pub.path);
		TSR_TRY(open_part(r, step->files[i], path, &parts[i], err));
	}
	return TSR_OK;
}

/* Several parts are joined, and one alone if it says where its tensors begin. */
static enum tsr_status join_parts(struct tsr_checkpoint **parts, size_t n,
				  struct tsr_checkpoint **ret, struct tsr_err *err)
{
	if (n == 1 && !tsr_recording_has_offsets(parts[0])) {
		*ret = parts[0];
		parts[0] = NULL;
		return TSR_OK;
	}
	for (size_t i = 0; i < n; i++) {
		if (parts[i]->packed)
			TSR_TRY(tsr_recording_plain_part(&parts[i], err));
	}
	return tsr_recording_join(parts, n, ret, err);
}

/* A packed file may have them as they are, entropy coded, but not in a codec that loses anything. */
static enum tsr_status check_gradients(const struct tsr_checkpoint *c, struct tsr_err *err)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		if (t->coding.codec)
			return tsr_fail(
				err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: is packed as %s, expected a gradient as it "
				"is, entropy coded or not",
				c->path, t->name, t->coding.codec->name);
		if (t->dtype != TSR_BF16 && t->dtype != TSR_F16 && t->dtype != TSR_F32)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: found dtype %s, expected a gradient in "
					"BF16, F16 or F32",
					c->path, t->name, tsr_dtype_name(t->dtype));
	}
	return TSR_OK;
}

enum tsr_status tsr_recording_open_step(const struct tsr_recording *recording, size_t index,
					struct tsr_checkpoint **ret, struct tsr_err *err)
{
	const struct tsr_recording_data *r = (const struct tsr_recording_data *)recording;
	const struct tsr_recording_step *step = &recording->steps[index];
	struct tsr_checkpoint **parts;
	struct tsr_checkpoint *c = NULL;
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&parts, step->nfiles, err, recording->path));
	status = open_parts(r, step, parts, err);
	TSR_THEN(status, join_parts(parts, step->nfiles, &c, err));
	TSR_THEN(status, check_gradients(c, err));
	for (size_t i = 0; i < step->nfiles; i++)
		tsr_checkpoint_close(parts[i]);
	free(parts);
	if (status != TSR_OK) {
		tsr_checkpoint_close(c);
		tsr_recording_name_step(recording, index, err);
		return status;
	}
	*ret = c;
	return TSR_OK;
}
