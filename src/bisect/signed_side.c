/* SPDX-License-Identifier: Apache-2.0 */
/* A run of which there are files of signatures, one per rank. */
#include "bisect/sides.h"

#include "base/fail.h"
#include "base/order.h"
#include "text/named.h"

static enum tsr_status load(struct tsr_run_side *s, size_t index, const struct tsr_run *run,
			    struct tsr_err *err)
{
	struct tsr_signature *at = s->signatures;

	(void)run;
	for (size_t i = 0; i < s->pub.nfiles; i++) {
		const struct tsr_signed_step *step;

		TSR_TRY(tsr_signatures_read(s->files[i], index, &step, err));
		if (step->step != s->steps[index])
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found step %" PRIu64 ", expected %" PRIu64
					": that of the first rank, or the next one",
					s->files[i]->path, step->step, s->steps[index]);
		memcpy(at, step->tensors, s->files[i]->ntensors * sizeof(*at));
		at += s->files[i]->ntensors;
		if (!i)
			s->lr = step->lr;
	}
	return TSR_OK;
}

/* Gradients that were recorded beside them. */
static enum tsr_status values(struct tsr_run_side *s, size_t index, struct tsr_err *err)
{
	const struct tsr_recording *r = s->recording;
	const uint64_t first = r ? r->steps[0].step : 0, step = s->steps[index];

	if (!r || step < first || step - first >= r->nsteps)
		return TSR_OK;
	tsr_checkpoint_close(s->current);
	s->current = NULL;
	TSR_TRY(tsr_recording_open_step(r, (size_t)(step - first), &s->current, err));
	for (size_t i = 0; i < s->ntensors; i++)
		s->at[i] = tsr_is_gradient(s->tensors[i].is.of) && !s->tensors[i].is.part
				   ? tsr_checkpoint_find(s->current, s->tensors[i].is.name)
				   : NULL;
	return TSR_OK;
}

TSR_COMPARE(by_rank, struct tsr_signatures *, TSR_ORDER((*a)->rank, (*b)->rank))

/* Each rank has one file, and all say how many there are. */
static enum tsr_status check_ranks(struct tsr_run_side *s, struct tsr_err *err)
{
	qsort(s->files, s->pub.nfiles, sizeof(struct tsr_signatures *), by_rank);
	s->pub.nranks = s->files[0]->nranks;
	for (size_t i = 1; i < s->pub.nfiles; i++) {
		const struct tsr_signatures *a = s->files[i - 1], *b = s->files[i];

		if (a->nranks != b->nranks)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: is of %" PRIu64 " ranks, %s of %" PRIu64, b->path,
					b->nranks, a->path, a->nranks);
		if (a->rank == b->rank)
			return tsr_fail(err, TSR_E_FORMAT, "%s: is of rank %" PRIu64 ", as %s is",
					b->path, b->rank, a->path);
	}
	return TSR_OK;
}

static enum tsr_status add_tensors(struct tsr_run_side *s, struct tsr_err *err)
{
	size_t index;

	s->pass++;
	for (size_t i = 0; i < s->pub.nfiles; i++) {
		for (size_t k = 0; k < s->files[i]->ntensors; k++)
			TSR_TRY(tsr_side_tensor(s, &s->files[i]->tensors[k], s->files[i]->rank,
						&index, err));
	}
	return TSR_OK;
}

/* Whole tensors of other ranks are twins of those that the first one has. */
static enum tsr_status find_twins(struct tsr_run_side *s, struct tsr_err *err)
{
	const size_t nfirst = s->files[0]->ntensors;
	TSR_OWNED(free) struct tsr_named *first = NULL;

	TSR_TRY(TSR_NEW(&first, s->ntensors, err, s->pub.path));
	for (size_t i = 0; i < nfirst; i++)
		first[i] = (struct tsr_named){ s->tensors[i].is.name, i };
	tsr_named_sort(first, nfirst);
	for (size_t i = nfirst; i < s->ntensors; i++) {
		struct tsr_run_tensor *t = &s->tensors[i];
		const struct tsr_named *found = tsr_named_find(first, nfirst, t->is.name);

		for (; found && found < first + nfirst && !t->is.part &&
		       strcmp(found->name, t->is.name) == 0;
		     found++) {
			if (strcmp(s->tensors[found->index].is.of, t->is.of) == 0)
				t->twin = found->index;
		}
	}
	return TSR_OK;
}

/* A step counts if all ranks have it. */
static enum tsr_status list_steps(struct tsr_run_side *s, struct tsr_err *err)
{
	const struct tsr_signed_step *step;

	s->nsteps = SIZE_MAX;
	for (size_t i = 0; i < s->pub.nfiles; i++) {
		s->nsteps = s->files[i]->nsteps < s->nsteps ? (size_t)s->files[i]->nsteps
							    : s->nsteps;
		s->pub.torn_nbytes += s->files[i]->torn_nbytes;
	}
	TSR_TRY(TSR_NEW(&s->steps, s->nsteps + 1, err, s->pub.path));
	for (size_t i = 0; i < s->nsteps; i++) {
		TSR_TRY(tsr_signatures_read(s->files[0], i, &step, err));
		s->steps[i] = step->step;
		if (i && s->steps[i] <= s->steps[i - 1])
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found step %" PRIu64 " after step %" PRIu64,
					s->files[0]->path, s->steps[i], s->steps[i - 1]);
	}
	return TSR_OK;
}

enum tsr_status tsr_side_open_signatures(struct tsr_run_side *s, char *const *paths, size_t n,
					 struct tsr_err *err)
{
	static const struct tsr_run_kind kind = { load, values };

	TSR_TRY(TSR_NEW(&s->files, n, err, s->pub.path));
	s->kind = &kind;
	s->pub.source = TSR_BISECT_SIGNATURES;
	for (; s->pub.nfiles < n; s->pub.nfiles++)
		TSR_TRY(tsr_signatures_open(paths[s->pub.nfiles], &s->files[s->pub.nfiles], err));
	TSR_TRY(check_ranks(s, err));
	s->pub.run = s->files[0]->run;
	TSR_TRY(add_tensors(s, err));
	TSR_TRY(find_twins(s, err));
	return list_steps(s, err);
}
