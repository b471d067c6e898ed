/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a directory without a manifest, found by the names of its files. */
#include "recording/recording_data.h"

#include "base/order.h"
#include "io/dir.h"
#include "io/file.h"
#include "base/fail.h"
#include "container/containers.h"
#include "torch/dcp.h"
#include "text/bytes.h"

/* The length of a name without its extension; 0 if no step is called so: an .npy names no parameter. */
static size_t stem_of(const char *name)
{
	enum tsr_container container;
	const size_t n = tsr_container_stem(name, &container);

	return n && container != TSR_CONTAINER_NPY ? n : 0;
}

bool tsr_recording_step_of(const char *name, uint64_t *step_ret)
{
	const size_t n = stem_of(name);

	return n && tsr_digits_at_end(name, n, TSR_STEP_MAX, step_ret);
}

/* A step and its file, or its directory of torch.distributed.checkpoint. */
struct found_step {
	uint64_t step;
	const char *name;
};

TSR_COMPARE_BY(by_step, struct found_step, TSR_ORDER(a->step, b->step), strcmp(a->name, b->name))

/* Whether a name in the directory is a step, and its number. */
static enum tsr_status look_at(struct tsr_recording_data *r, const char *name, bool *is_step,
			       uint64_t *step, struct tsr_err *err)
{
	size_t n = stem_of(name);
	TSR_OWNED(free) char *path = NULL;

	*is_step = n > 0;
	if (!n) {
		path = tsr_path_join(r->pub.path, name);
		if (!path)
			return tsr_fail_nomem(err, r->pub.path);
		*is_step = tsr_dir_is(path) && tsr_dcp_looks_like(path);
		n = strlen(name);
	}
	if (!*is_step)
		return TSR_OK;
	if (!tsr_digits_at_end(name, n, TSR_STEP_MAX, step))
		return tsr_fail(
			err, TSR_E_FORMAT,
			"%s/%.255s: found no step number at the end of the name, expected one "
			"in every file of a recording without " TSR_MANIFEST_NAME,
			r->pub.path, name);
	if (!*step)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s/%.255s: found step 0, expected 1 for the first step ever",
				r->pub.path, name);
	return TSR_OK;
}

static enum tsr_status find_steps(struct tsr_recording_data *r, const struct tsr_dir *d,
				  struct found_step *steps, size_t *n_ret, struct tsr_err *err)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		bool is_step;

		TSR_TRY(look_at(r, d->names[i], &is_step, &steps[n].step, err));
		steps[n].name = d->names[i];
		n += is_step;
	}
	if (!n)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: found neither " TSR_MANIFEST_NAME
				" nor files named by step, expected a recording",
				r->pub.path);
	qsort(steps, n, sizeof(*steps), by_step);
	for (size_t i = 1; i < n; i++) {
		const struct found_step *a = &steps[i - 1], *b = &steps[i];

		if (a->step == b->step)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: step %" PRIu64
					": found %.255s and %.255s, expected one file",
					r->pub.path, a->step, a->name, b->name);
		if (b->step != a->step + 1)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found step %" PRIu64 " after step %" PRIu64
					", expected %" PRIu64,
					r->pub.path, b->step, a->step, a->step + 1);
	}
	*n_ret = n;
	return TSR_OK;
}

static enum tsr_status keep_steps(struct tsr_recording_data *r, const struct found_step *found,
				  size_t n, struct tsr_err *err)
{
	struct tsr_recording_step *steps = tsr_arena_alloc(r->arena, n * sizeof(*steps));
	struct tsr_recording_group *group = tsr_arena_alloc(r->arena, sizeof(*group));
	const char **files = tsr_arena_alloc(r->arena, n * sizeof(*files));

	if (!steps || !group || !files)
		return tsr_recording_nomem(r, err);
	for (size_t i = 0; i < n; i++) {
		files[i] = tsr_arena_string(r->arena, found[i].name);
		if (!files[i])
			return tsr_recording_nomem(r, err);
		steps[i] = (struct tsr_recording_step){ .step = found[i].step,
							.nfiles = 1,
							.files = &files[i] };
	}
	r->pub.ngroups = 1;
	r->pub.groups = group;
	r->pub.nsteps = n;
	r->pub.steps = steps;
	return TSR_OK;
}

enum tsr_status tsr_recording_list_steps(struct tsr_recording_data *r, struct tsr_err *err)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir d = { 0 };
	TSR_OWNED(free) struct found_step *found = NULL;
	size_t n = 0;

	TSR_TRY(tsr_dir_list(r->pub.path, "", &d, err));
	TSR_TRY(TSR_NEW(&found, d.n + 1, err, r->pub.path));
	TSR_TRY(find_steps(r, &d, found, &n, err));
	return keep_steps(r, found, n, err);
}
