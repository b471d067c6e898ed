/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that some steps have no gradient for. */
#include "replay/missing_gradients.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "recording/recording_data.h"

void tsr_replay_saw_gradient(struct tsr_replay_param *p, size_t step)
{
	p->first_missing += p->first_missing == step;
	p->nseen++;
}

/* The first of the first step that lacks any; NULL: no step does. */
static const struct tsr_replay_param *find_first(const struct tsr_replay_param *params, size_t n,
						 size_t nsteps)
{
	const struct tsr_replay_param *first = NULL;

	for (size_t i = 0; i < n; i++) {
		if (params[i].nseen < nsteps &&
		    (!first || params[i].first_missing < first->first_missing))
			first = &params[i];
	}
	return first;
}

static enum tsr_status refuse(const struct tsr_replaying *r, const struct tsr_replay_param *p)
{
	const struct tsr_recording_step *step = &r->recording->steps[r->first + p->first_missing];
	char *path = tsr_recording_path(r->recording->path, step->files[0]);
	enum tsr_status status;

	if (!path)
		return tsr_fail_nomem(r->err, r->recording->path);
	status = tsr_fail_hint(r->err, TSR_E_FORMAT, TSR_HINT_SKIP_MISSING,
			       "%s: step %" PRIu64
			       ": tensor %.200s: found no gradient of this parameter, expected one",
			       step->nfiles == 1 ? path : r->recording->path, step->step,
			       p->recorded);
	free(path);
	return status;
}

enum tsr_status tsr_replay_list_missing(struct tsr_replaying *r,
					const struct tsr_replay_param *params, size_t n)
{
	struct tsr_replay *result = r->result;
	const struct tsr_replay_param *first = find_first(params, n, result->nsteps);
	size_t nmissing = 0;

	if (!first)
		return TSR_OK;
	if (r->options->on_missing == TSR_MISSING_FAIL)
		return refuse(r, first);
	for (size_t i = 0; i < n; i++)
		nmissing += params[i].nseen < result->nsteps;
	result->missing = calloc(nmissing, sizeof(*result->missing));
	if (!result->missing)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < n; i++) {
		if (params[i].nseen == result->nsteps)
			continue;
		result->missing[result->nmissing++] = (struct tsr_replay_missing){
			.name = params[i].name,
			.first = result->steps[params[i].first_missing].step,
			.nsteps = result->nsteps - params[i].nseen,
		};
	}
	return TSR_OK;
}
