/* SPDX-License-Identifier: Apache-2.0 */
/* What a recording has in all: its gradients, and totals of steps and groups. */
#include "base/arena.h"
#include "base/grow.h"
#include "base/order.h"
#include "ckpt/checkpoint_model.h"
#include "recording/recording_data.h"
#include "recording/recording_summary.h"
#include "tersor/recording.h"
#include "text/map.h"
#include "text/named.h"
#include "text/shape.h"

/* What names and shapes of gradients may take in memory. */
#define ARENA_NBYTES_MAX (UINT64_C(1) << 30)

struct summing {
	const struct tsr_recording *r;
	struct tsr_recording_summary *s;
	struct tsr_map places; /* of struct tsr_named: gradients by name */
	size_t *times; /* per step: how many have its files; 0 if an earlier one has them */
	struct tsr_err *err;
};

TSR_COMPARE(by_name, struct tsr_recorded_gradient, strcmp(a->name, b->name))

static bool is_at(const void *item, const void *key)
{
	return strcmp(((const struct tsr_named *)item)->name, key) == 0;
}

static enum tsr_status add_gradient(struct summing *m, const struct tsr_tensor *t,
				    struct tsr_named *place, size_t times)
{
	struct tsr_recording_summary *s = m->s;
	const uint64_t *shape = tsr_arena_dup(s->arena, t->shape, t->rank * sizeof(*shape));
	const char *name = tsr_arena_string(s->arena, t->name);

	if (!shape || !name)
		return tsr_fail_nomem(m->err, m->r->path);
	TSR_TRY(TSR_GROW(&s->gradients, s->ngradients, m->err, m->r->path));
	*place = (struct tsr_named){ name, s->ngradients };
	s->gradients[s->ngradients++] = (struct tsr_recorded_gradient){
		.name = name,
		.group = tsr_recording_group_of(m->r, name),
		.dtype = t->dtype,
		.rank = t->rank,
		.shape = shape,
		.numel = t->numel,
		.nsteps = times,
	};
	return TSR_OK;
}

static enum tsr_status add_tensor(struct summing *m, const struct tsr_checkpoint *c, size_t index,
				  const struct tsr_tensor *t)
{
	const size_t times = m->times[index];
	struct tsr_recorded_gradient *g;
	struct tsr_named *place;
	bool is_new;

	place = tsr_map_put(&m->places, tsr_map_hash(&m->places, t->name, strlen(t->name), 0),
			    t->name, &is_new);
	if (!place)
		return tsr_fail_nomem(m->err, m->r->path);
	if (is_new)
		return add_gradient(m, t, place, times);
	g = &m->s->gradients[place->index];
	g->nsteps += times;
	if (g->rank == t->rank &&
	    (!g->rank || memcmp(g->shape, t->shape, g->rank * sizeof(*g->shape)) == 0))
		return TSR_OK;
	return tsr_fail(m->err, TSR_E_FORMAT,
			"%s: step %" PRIu64
			": tensor %.200s: found shape %s, expected %s as in the steps before",
			c->path, m->r->steps[index].step, t->name,
			tsr_shape_words(t->rank, t->shape).text,
			tsr_shape_words(g->rank, g->shape).text);
}

static enum tsr_status add_step(struct summing *m, size_t index)
{
	struct tsr_recording_summary *s = m->s;
	struct tsr_recorded_step *step = &s->steps[index];
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;

	if (!m->times[index])
		return TSR_OK;
	TSR_TRY(tsr_recording_open_step(m->r, index, &c, m->err));
	for (size_t i = 0; i < c->ntensors; i++) {
		TSR_TRY(add_tensor(m, c, index, &c->tensors[i]));
		step->nbytes += tsr_tensor_nbytes(&c->tensors[i]);
		step->dtypes |= 1u << c->tensors[i].dtype;
		step->ntensors++;
	}
	return TSR_OK;
}

static void add_groups(struct summing *m)
{
	struct tsr_recording_summary *s = m->s;
	uint64_t found = 0;

	for (size_t i = 0; i < s->ngradients; i++) {
		const struct tsr_recorded_gradient *g = &s->gradients[i];

		if (!g->group)
			continue;
		s->groups[g->group - m->r->groups].nparams++;
		s->groups[g->group - m->r->groups].numel += g->numel;
		found += g->nsteps;
	}
	for (size_t g = 0; g < m->r->ngroups; g++) {
		if (m->r->groups[g].params)
			s->groups[g].nparams = m->r->groups[g].nparams;
		s->nmissing += s->groups[g].nparams * m->r->nsteps;
	}
	s->nmissing -= found;
}

/* Steps with the files of an earlier one have what that has. */
static enum tsr_status add_steps(struct summing *m)
{
	struct tsr_recording_summary *s = m->s;

	for (size_t i = 0; i < m->r->nsteps; i++)
		m->times[tsr_recording_alike(m->r, i)]++;
	for (size_t i = 0; i < m->r->nsteps; i++) {
		TSR_TRY(add_step(m, i));
		s->steps[i] = s->steps[tsr_recording_alike(m->r, i)];
		s->nbytes += s->steps[i].nbytes;
		s->dtypes |= s->steps[i].dtypes;
		s->nfiles += m->r->steps[i].nfiles;
	}
	if (s->ngradients)
		qsort(s->gradients, s->ngradients, sizeof(*s->gradients), by_name);
	return TSR_OK;
}

static void widen(struct tsr_recorded_range *r, double value)
{
	r->low = r->n && r->low <= value ? r->low : value;
	r->high = r->n && r->high >= value ? r->high : value;
	r->n++;
}

static enum tsr_status sum_up(struct summing *m)
{
	struct tsr_recording_summary *s = m->s;

	TSR_TRY(TSR_NEW(&m->times, m->r->nsteps + 1, m->err, m->r->path));
	TSR_TRY(TSR_NEW(&s->steps, m->r->nsteps + 1, m->err, m->r->path));
	TSR_TRY(TSR_NEW(&s->groups, m->r->ngroups + 1, m->err, m->r->path));
	TSR_TRY(add_steps(m));
	for (size_t i = 0; i < m->r->nsteps; i++) {
		const struct tsr_recording_step *step = &m->r->steps[i];

		if (step->has_loss)
			widen(&s->loss, step->loss);
		for (size_t g = 0; step->lr && g < m->r->ngroups; g++)
			widen(&s->groups[g].lr, step->lr[g]);
	}
	add_groups(m);
	return TSR_OK;
}

enum tsr_status tsr_recording_summarize(const struct tsr_recording *r,
					struct tsr_recording_summary **ret, struct tsr_err *err)
{
	struct summing m = {
		.r = r,
		.places = { .item_nbytes = sizeof(struct tsr_named), .same = is_at },
		.err = err,
	};
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&m.s, 1, err, r->path));
	m.s->recording = r;
	m.s->arena = tsr_arena_new(ARENA_NBYTES_MAX);
	status = m.s->arena ? sum_up(&m) : tsr_fail_nomem(err, r->path);
	tsr_map_free(&m.places);
	free(m.times);
	return TSR_MADE(status, ret, m.s, tsr_recording_summary_free);
}

void tsr_recording_summary_free(struct tsr_recording_summary *s)
{
	if (!s)
		return;
	tsr_arena_free(s->arena);
	free(s->gradients);
	free(s->steps);
	free(s->groups);
	free(s);
}
