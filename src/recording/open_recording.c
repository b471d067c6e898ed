/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: opening, closing, recognizing them, and the group of a parameter. */
#include <unistd.h>

#include "io/dir.h"
#include "base/fail.h"
#include "io/file.h"
#include "base/option_size.h"
#include "recording/recording_data.h"
#include "container/containers.h"
#include "torch/dcp.h"

/* --- Opening ---------------------------------------------------------------------------------- */

static enum tsr_status open_path(struct tsr_recording_data *r, const char *path,
				 struct tsr_err *err)
{
	if (access(path, F_OK) == 0 && !tsr_dir_is(path))
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is a file, expected a recording: a directory with a file of "
				"gradients for each step",
				path);
	r->pub.has_manifest = tsr_dir_has_in(path, TSR_MANIFEST_NAME);
	TSR_TRY(r->pub.has_manifest ? tsr_recording_read_manifest(r, err)
				    : tsr_recording_list_steps(r, err));
	return tsr_recording_find_alike(r, err);
}

enum tsr_status tsr_recording_new(const char *path, const struct tsr_open_options *options,
				  struct tsr_recording_data **ret, struct tsr_err *err)
{
	struct tsr_open_options o = tsr_open_defaults();
	struct tsr_recording_data *r;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(TSR_NEW(&r, 1, err, path));
	r->options = o;
	/* What a gradient is called says nothing about its kind. */
	r->options.as_stored = true;
	r->options.parts = true;
	r->pub.optimizer = TSR_OPTIMIZER_COUNT;
	r->pub.order = TSR_ORDER_COUNT;
	r->pub.run.fused = r->pub.run.foreach = r->pub.run.capturable = -1;
	r->arena = tsr_arena_new(TSR_RECORDING_ARENA_MAX);
	r->pub.path = tsr_arena_string(r->arena, path);
	if (!r->pub.path) {
		tsr_recording_close(&r->pub);
		return tsr_fail_nomem(err, path);
	}
	*ret = r;
	return TSR_OK;
}

enum tsr_status tsr_recording_open(const char *path, const struct tsr_open_options *options,
				   struct tsr_recording **ret, struct tsr_err *err)
{
	struct tsr_recording_data *r = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_recording_new(path, options, &r, err));
	status = open_path(r, path, err);
	return TSR_MADE(status, ret, &r->pub, tsr_recording_close);
}

void tsr_recording_close(struct tsr_recording *recording)
{
	struct tsr_recording_data *r = (struct tsr_recording_data *)recording;

	if (!r)
		return;
	tsr_arena_free(r->arena);
	free(r);
}

/* --- Recognizing a recording -------------------------------------------------------------- */

/* Whether a manifest claims to be one of ours, even if it is cut off later. */
static bool claims_to_be_ours(const char *directory)
{
	TSR_OWNED(free) char *path = tsr_path_join(directory, TSR_MANIFEST_NAME);
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	char text[4096];
	size_t n;

	if (!path || tsr_file_open(path, &f, NULL) != TSR_OK)
		return false;
	n = tsr_file_size(f) < sizeof(text) ? (size_t)tsr_file_size(f) : sizeof(text);
	return tsr_file_read(f, text, n, 0, NULL) == TSR_OK &&
	       memmem(text, n, "tersor-recording", strlen("tersor-recording"));
}

/* Whether a file has one rank's parts of a model; the number in its name is no step. */
static bool is_part(const char *directory, const char *name)
{
	TSR_OWNED(free) char *path = tsr_path_join(directory, name);

	return path && (tsr_hf_parts_named(path) || strstr(name, "_world_size_"));
}

static size_t count(const char *directory, const char *suffix, bool steps_only)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir found = { 0 };
	size_t n = 0;

	if (tsr_dir_list(directory, suffix, &found, NULL) != TSR_OK)
		return 0;
	for (size_t i = 0; i < found.n; i++) {
		uint64_t step;

		n += !steps_only || (tsr_recording_step_of(found.names[i], &step) &&
				     !is_part(directory, found.names[i]));
	}
	return n;
}

/* A directory that tsr_checkpoint_open() takes is a checkpoint, unless its manifest says otherwise. */
bool tsr_recording_probe(const char *path)
{
	if (!tsr_dir_is(path) || tsr_dcp_looks_like(path))
		return false;
	if (claims_to_be_ours(path))
		return true;
	if (count(path, ".index.json", false) || count(path, ".safetensors", false) == 1 ||
	    count(path, "model.safetensors", false))
		return false;
	return tsr_dir_has_in(path, TSR_MANIFEST_NAME) || count(path, "", true) > 0;
}

/* --- Questions -------------------------------------------------------------------------------- */

const struct tsr_recording_group *tsr_recording_group_of(const struct tsr_recording *recording,
							 const char *param)
{
	const struct tsr_recording_data *r = (const struct tsr_recording_data *)recording;
	const struct tsr_named *found;

	if (recording->ngroups == 1 && !recording->groups[0].params)
		return recording->groups;
	found = tsr_named_find(r->params, r->nparams, param);
	return found ? &recording->groups[found->index] : NULL;
}
