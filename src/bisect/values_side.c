/* SPDX-License-Identifier: Apache-2.0 */
/* A run of which there are the tensors themselves: gradients of a recording, or checkpoints. */
#include "bisect/sides.h"

#include "base/fail.h"
#include "ckpt/record_crc.h"
#include "ckpt/read.h"
#include "names/params/parameters.h"
#include "recording/signing.h"
#include "text/bytes.h"

/* --- What a tensor is -------------------------------------------------------------------------- */

static const char *const slots[TSR_SLOTS] = {
	[TSR_SLOT_MOMENTUM] = "momentum",
	[TSR_SLOT_VARIANCE] = "variance",
	[TSR_SLOT_MAX_VARIANCE] = "max_exp_avg_sq",
};

/*
 * What an optimizer keeps of a weight besides, as AdEMAMix its slow momentum, is what its key says, as in a
 * file of signatures: unless that says what the weight has already.
 */
static enum tsr_status name_state(const struct tsr_checkpoint *c, const struct tsr_parameters *p,
				  struct tsr_signed_tensor *what, struct tsr_err *err)
{
	static const char *const not_keys[] = { "weight", "gradient" };
	const char *dot = strrchr(what->name, '.');
	const struct tsr_tensor *weight;
	char *name;

	if (!dot || TSR_IS_AMONG(dot + 1, not_keys))
		return TSR_OK;
	name = tsr_arena_copy(p->arena, what->name, (size_t)(dot - what->name));
	if (!name)
		return tsr_fail_nomem(err, c->path);
	weight = tsr_checkpoint_find(c, name);
	if (!weight || weight->kind != TSR_KIND_WEIGHT)
		return TSR_OK;
	for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
		if (p->list[weight - c->tensors].tensor[slot] != SIZE_MAX &&
		    strcmp(tsr_side_slot(dot + 1), slots[slot]) == 0)
			return TSR_OK;
	}
	what->name = weight->name;
	what->of = dot + 1;
	return TSR_OK;
}

/* What the tensors of a checkpoint are to which weight. */
static enum tsr_status name_roles(const struct tsr_checkpoint *c, const struct tsr_parameters *p,
				  struct tsr_signed_tensor *what, struct tsr_err *err)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		what[i].name = c->tensors[i].name;
		what[i].of = c->tensors[i].kind == TSR_KIND_WEIGHT ? "weight" : "other";
	}
	for (size_t i = 0; i < p->n; i++) {
		const struct tsr_parameter *at = &p->list[i];
		const char *weight = c->tensors[at->tensor[TSR_SLOT_WEIGHT]].name;

		for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
			const size_t state = at->tensor[slot];

			if (state == SIZE_MAX || c->tensors[state].kind == TSR_KIND_OTHER)
				continue;
			if (c->tensors[state].weight)
				what[state].name = weight;
			what[state].of = slots[slot];
		}
		if (at->counter != SIZE_MAX) {
			what[at->counter].name = weight;
			what[at->counter].of = "step";
		}
	}
	for (size_t i = 0; i < c->ntensors; i++) {
		if (p->roles[i].role == TSR_ROLE_MASTER ||
		    (p->roles[i].state && strcmp(what[i].of, "other") == 0))
			TSR_TRY(name_state(c, p, &what[i], err));
	}
	return TSR_OK;
}

/* --- A step ------------------------------------------------------------------------------------ */

/* The tensors of the open step; new ones are added.  *indices_ret: per tensor of it; to be freed. */
static enum tsr_status find_tensors(struct tsr_run_side *s, size_t **indices_ret,
				    struct tsr_err *err)
{
	struct tsr_checkpoint *c = s->current;
	TSR_SCOPED(tsr_parameters_free) struct tsr_parameters p = { 0 };
	TSR_OWNED(free) struct tsr_signed_tensor *what = NULL;

	s->pass++;
	TSR_TRY(TSR_NEW(&what, c->ntensors + 1, err, c->path));
	TSR_TRY(TSR_NEW(indices_ret, c->ntensors + 1, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		what[i] = (struct tsr_signed_tensor){ t->name, "gradient", tsr_signed_dtype(t),
						      t->rank, t->shape,   false };
	}
	if (s->paths) {
		TSR_TRY(tsr_names_fill(c, NULL, 0, NULL, &p, err));
		TSR_TRY(name_roles(c, &p, what, err));
	}
	for (size_t i = 0; i < c->ntensors; i++)
		TSR_TRY(tsr_side_tensor(s, &what[i], 0, &(*indices_ret)[i], err));
	return TSR_OK;
}

static enum tsr_status open_step(struct tsr_run_side *s, size_t index, struct tsr_err *err)
{
	tsr_checkpoint_close(s->current);
	s->current = NULL;
	return s->paths ? tsr_checkpoint_open((const char *const *)&s->paths[index], 1, s->open,
					      &s->current, err)
			: tsr_recording_open_step(s->recording, index, &s->current, err);
}

/* Which tensor of the step is which of the side's. */
static enum tsr_status match(struct tsr_run_side *s, struct tsr_err *err)
{
	TSR_OWNED(free) size_t *indices = NULL;

	TSR_TRY(find_tensors(s, &indices, err));
	for (size_t i = 0; i < s->ntensors; i++)
		s->at[i] = NULL;
	for (size_t i = 0; i < s->current->ntensors; i++)
		s->at[indices[i]] = &s->current->tensors[i];
	return TSR_OK;
}

enum tsr_status tsr_side_sign_state(struct tsr_run_side *s, struct tsr_checkpoint *state,
				    const struct tsr_run *run, struct tsr_err *err)
{
	if (s->current != state)
		tsr_checkpoint_close(s->current);
	s->current = state;
	free(s->signatures);
	free((void *)s->at);
	s->signatures = NULL;
	s->at = NULL;
	s->room = s->ntensors + state->ntensors;
	TSR_TRY(TSR_NEW(&s->signatures, s->room + 1, err, s->pub.path));
	TSR_TRY(TSR_NEW(&s->at, s->room + 1, err, s->pub.path));
	TSR_TRY(match(s, err));
	return tsr_sign_tensors(state, s->at, s->ntensors, s->signatures, run, err);
}

static enum tsr_status load(struct tsr_run_side *s, size_t index, const struct tsr_run *run,
			    struct tsr_err *err)
{
	TSR_TRY(open_step(s, index, err));
	TSR_TRY(match(s, err));
	TSR_TRY(tsr_records_check_all(s->current, run, err));
	TSR_TRY(tsr_sign_tensors(s->current, s->at, s->ntensors, s->signatures, run, err));
	s->lr = s->recording ? s->recording->steps[index].lr : NULL;
	return tsr_checkpoint_check_unchanged(s->current, err);
}

/* --- The table of all steps -------------------------------------------------------------------- */

/* The largest number of steps that a counter of the open checkpoint says; 0: none does. */
static uint64_t count_of(const struct tsr_run_side *s, const size_t *indices)
{
	uint64_t most = 0;

	for (size_t i = 0; i < s->current->ntensors; i++) {
		const struct tsr_tensor *t = &s->current->tensors[i];
		float x;

		if (strcmp(s->tensors[indices[i]].is.of, "step") == 0 && tsr_tensor_has_f32(t) &&
		    t->numel == 1 &&
		    tsr_checkpoint_read_f32(s->current, t, 0, 1, &x, NULL) == TSR_OK && x >= 0 &&
		    x < 0x1p48f && (uint64_t)x > most)
			most = (uint64_t)x;
	}
	return most;
}

static enum tsr_status look_at_step(struct tsr_run_side *s, size_t index, struct tsr_err *err)
{
	TSR_OWNED(free) size_t *indices = NULL;

	TSR_TRY(open_step(s, index, err));
	TSR_TRY(find_tensors(s, &indices, err));
	if (s->paths && s->nsteps == 1 && count_of(s, indices)) {
		s->steps[0] = count_of(s, indices);
		s->unnumbered = false;
	}
	return TSR_OK;
}

enum tsr_status tsr_side_open_values(struct tsr_run_side *s, struct tsr_err *err)
{
	static const struct tsr_run_kind kind = { load, NULL };

	s->kind = &kind;
	s->pub.nranks = s->pub.nfiles = 1;
	if (!s->paths) {
		s->nsteps = s->recording->nsteps;
		TSR_TRY(TSR_NEW(&s->steps, s->nsteps + 1, err, s->pub.path));
		for (size_t i = 0; i < s->nsteps; i++)
			s->steps[i] = s->recording->steps[i].step;
	}
	for (size_t i = 0; i < s->nsteps; i++)
		TSR_TRY(look_at_step(s, i, err));
	return TSR_OK;
}
