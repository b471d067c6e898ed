/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a recording that have the same files, so that these are looked at once. */
#include "base/fail.h"
#include "recording/recording_data.h"
#include "text/text_numbers.h"

struct finding {
	struct tsr_recording_data *r;
	struct tsr_text_numbers *files;
	size_t *user; /* per file: the first step that has it */
	size_t *alike;
	struct tsr_err *err;
};

static enum tsr_status in_two(const struct finding *f, size_t index, const char *file, size_t other)
{
	const struct tsr_recording_step *steps = f->r->pub.steps;

	if (index == other)
		return tsr_fail(f->err, TSR_E_FORMAT,
				"%s: step %" PRIu64 ": found file %.200s twice, expected it once",
				f->r->pub.path, steps[index].step, file);
	return tsr_fail(f->err, TSR_E_FORMAT,
			"%s: step %" PRIu64 ": found file %.200s, which step %" PRIu64
			" has among other files, expected it in one step, or in steps with the "
			"same files",
			f->r->pub.path, steps[index].step, file, steps[other].step);
}

/* Whether two steps have the same files in the same order. */
static bool same_files(const struct tsr_recording_step *a, const struct tsr_recording_step *b)
{
	size_t i = 0;

	while (i < a->nfiles && i < b->nfiles && strcmp(a->files[i], b->files[i]) == 0)
		i++;
	return i == a->nfiles && i == b->nfiles;
}

/* What a step has is new, or all of it is another's. */
static enum tsr_status look_at(struct finding *f, size_t index)
{
	const struct tsr_recording_step *step = &f->r->pub.steps[index];

	f->alike[index] = index;
	for (size_t i = 0; i < step->nfiles; i++) {
		const char *file = step->files[i];
		const size_t known = f->files->n;
		size_t number;

		if (!tsr_text_number(f->files, file, strlen(file), &number))
			return tsr_fail_nomem(f->err, f->r->pub.path);
		if (number == known) {
			f->user[number] = index;
			continue;
		}
		if (i || !same_files(step, &f->r->pub.steps[f->user[number]]))
			return in_two(f, index, file, f->user[number]);
		f->alike[index] = f->user[number];
		return TSR_OK;
	}
	return TSR_OK;
}

enum tsr_status tsr_recording_find_alike(struct tsr_recording_data *r, struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_numbers_free) struct tsr_text_numbers files = { 0 };
	TSR_OWNED(free) size_t *user = NULL;
	struct finding f = { .r = r, .files = &files, .err = err };
	size_t nfiles = 0;

	for (size_t i = 0; i < r->pub.nsteps; i++)
		nfiles += r->pub.steps[i].nfiles;
	TSR_TRY(TSR_ARENA_NEW(&f.alike, r->pub.nsteps, r->arena, tsr_recording_nomem(r, err)));
	r->alike = f.alike;
	TSR_TRY(TSR_NEW(&user, nfiles + 1, err, r->pub.path));
	f.user = user;
	for (size_t i = 0; i < r->pub.nsteps; i++)
		TSR_TRY(look_at(&f, i));
	return TSR_OK;
}

size_t tsr_recording_alike(const struct tsr_recording *recording, size_t index)
{
	return ((const struct tsr_recording_data *)recording)->alike[index];
}
