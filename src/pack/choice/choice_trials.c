/* SPDX-License-Identifier: Apache-2.0 */
/* Trying candidates on the data: one walk over the tensors that are not settled for one of each. */
#include "pack/choice/choice_units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "pack/outcome/muon_matrix.h"

struct trials {
	const struct tsr_choosing *choosing;
	const struct tsr_encoding *encoding;
	struct tsr_choice_units *units;
	double bound;
	bool *skip; /* per tensor */
};

/* --- What it found ------------------------------------------------------------------------------- */

/*
 * Of a momentum of Muon that was made orthogonal its update's; of another one the largest of those in this
 * codec; its own NMSE if there are none.
 */
static double error_of_muon(const struct trials *r, size_t momentum)
{
	const struct tsr_packed_tensor *results = r->encoding->results;
	const struct tsr_checkpoint *wanted = r->encoding->wanted;
	double largest = -1;

	if (results[momentum].update.n)
		return results[momentum].update.nmse;
	for (size_t i = 0; i < wanted->ntensors; i++) {
		const struct tsr_tensor *t = &wanted->tensors[i];

		if (t->orthogonal && results[i].update.n && results[i].update.nmse > largest &&
		    t->coding.codec == wanted->tensors[momentum].coding.codec)
			largest = results[i].update.nmse;
	}
	return largest >= 0 ? largest : results[momentum].measure.nmse;
}

static double error_of(const struct trials *r, const struct tsr_choice_unit *u)
{
	const struct tsr_packed_tensor *results = r->encoding->results;

	if (u->by_step)
		return tsr_weight_step(&results[u->tensor[0]].measure, &results[u->variance].update,
				       r->choosing->lr);
	if (tsr_choice_unit_is_pair(u))
		return results[u->tensor[1]].update.nmse;
	if (r->encoding->wanted->tensors[u->tensor[0]].orthogonal)
		return error_of_muon(r, u->tensor[0]);
	return results[u->tensor[u->nonfinite[0]]].measure.nmse;
}

/* Note the error of the option tried; one that finds values that no codec can hold changes all options. */
static void settle(const struct trials *r, struct tsr_choice_unit *u)
{
	double error = error_of(r, u);
	bool again = false;

	for (unsigned i = 0; i < u->n; i++) {
		if (u->nonfinite[i])
			continue;
		u->reason[i] = tsr_encoded_raw_reason(r->encoding, u->tensor[i]);
		if (u->reason[i] != TSR_RAW_NO)
			error = INFINITY;
		if (u->reason[i] == TSR_RAW_NONFINITE)
			again = u->nonfinite[i] = true;
	}
	u->options[u->ntried++].error = error == error ? error : INFINITY;
	if (again)
		tsr_choice_unit_list(r->encoding->wanted, r->choosing->choice, u);
}

static bool is_settled(const struct trials *r, const struct tsr_choice_unit *u)
{
	return u->ntried == u->noptions ||
	       (u->ntried && u->options[u->ntried - 1].error <= tsr_choice_unit_bound(u, r->bound));
}

/* Have the next option of each unit that is not settled in the codings; how many these are. */
static size_t prepare(struct trials *r)
{
	const struct tsr_tensor *tensors = r->encoding->wanted->tensors;
	size_t n = 0;

	memset(r->skip, true, r->encoding->wanted->ntensors);
	for (size_t i = 0; i < r->units->n; i++) {
		const struct tsr_choice_unit *u = &r->units->list[i];

		if (is_settled(r, u))
			continue;
		tsr_choice_unit_give(r->encoding->wanted, r->choosing->choice, u, u->ntried);
		/* A walk takes both or none, and a variance without a choice may be beside one with one. */
		for (unsigned s = 0; s < u->n; s++) {
			const size_t partner = tensors[u->tensor[s]].partner;

			r->skip[u->tensor[s]] = false;
			if (partner && partner <= r->encoding->wanted->ntensors)
				r->skip[partner - 1] = false;
		}
		n++;
	}
	return n;
}

enum tsr_status tsr_choice_try(const struct tsr_choosing *choosing, struct tsr_choice_units *units,
			       double bound, struct tsr_err *err)
{
	const struct tsr_checkpoint *stored = choosing->encoding->stored;
	struct tsr_walk walk = tsr_encoding_walk(choosing->encoding, choosing->what);
	TSR_OWNED(free) bool *skip = calloc(stored->ntensors + 1, sizeof(*skip));
	struct trials r = { .choosing = choosing,
			    .encoding = choosing->encoding,
			    .units = units,
			    .bound = bound,
			    .skip = skip };

	if (!skip)
		return tsr_fail_nomem(err, choosing->what);
	walk.skip = skip;
	while (prepare(&r)) {
		TSR_TRY(tsr_walk_run(&walk, choosing->run, err));
		TSR_TRY(tsr_muon_measure_all(stored, r.encoding->wanted, skip, r.encoding->results,
					     err));
		for (size_t i = 0; i < units->n; i++) {
			if (!skip[units->list[i].tensor[0]])
				settle(&r, &units->list[i]);
		}
	}
	return TSR_OK;
}
