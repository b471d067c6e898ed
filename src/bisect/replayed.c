/* SPDX-License-Identifier: Apache-2.0 */
/* Which of two runs has the results that a replay of its gradients has. */
#include "bisect/comparing.h"

#include "base/fail.h"
#include "recording/signing.h"
#include "tersor/replay.h"
#include "text/named.h"

struct replayed {
	struct tsr_comparing *c;
	struct tsr_run_side *side; /* the replay's state */
	const struct tsr_run *run;
};

static enum tsr_status count(struct tsr_comparing *c, const struct tsr_run_side *s,
			     struct tsr_err *err)
{
	struct tsr_bisect *r = c->result;
	TSR_OWNED(free) struct tsr_named *keys = NULL;

	TSR_TRY(tsr_side_keys(s, &keys, err));
	for (size_t i = 0; i < r->ntensors; i++) {
		const struct tsr_bisect_tensor *t = &r->tensors[i];
		const struct tsr_named *found;

		/* What both have alike says nothing. */
		if (!t->ndiffering || t->first_step != r->step || tsr_is_gradient(t->of))
			continue;
		found = tsr_named_find(keys, s->ntensors,
				       c->side[0].tensors[c->pairs[i].at[0]].key);
		r->nreplayed += found != NULL;
		for (unsigned k = 0; found && k < 2; k++)
			r->nright[k] += tsr_signature_equal(&s->signatures[found->index],
							    &t->first[k]);
	}
	return TSR_OK;
}

static enum tsr_status look(void *ctx, struct tsr_checkpoint *state, uint64_t step,
			    const struct tsr_hyper *hyper, size_t ngroups, struct tsr_err *err)
{
	struct replayed *k = ctx;
	enum tsr_status status;

	(void)hyper, (void)ngroups;
	if (step != k->c->result->step)
		return TSR_OK;
	status = tsr_side_sign_state(k->side, state, k->run, err);
	k->side->current = NULL; /* the replay's */
	TSR_THEN(status, count(k->c, k->side, err));
	return status;
}

/* The run with gradients; -1: neither has any. */
static int which(const struct tsr_comparing *c)
{
	return c->side[0].recording ? 0 : c->side[1].recording ? 1 : -1;
}

enum tsr_status tsr_replay_cause(struct tsr_comparing *c, const char *from,
				 const struct tsr_run *run, struct tsr_err *err)
{
	struct tsr_bisect *r = c->result;
	const struct tsr_recording *recording;
	struct tsr_replay_options o = tsr_replay_defaults();
	TSR_SCOPED(tsr_side_close) struct tsr_run_side side = { .ntensors = 0 };
	struct replayed k = { c, &side, run };

	r->replayed = -1;
	if (!from || (r->cause != TSR_BISECT_OPTIMIZER && r->cause != TSR_BISECT_STATE))
		return TSR_OK;
	if (which(c) < 0)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: neither %s nor %s has gradients to replay from it", from,
				c->side[0].pub.path, c->side[1].pub.path);
	r->replayed = which(c);
	recording = c->side[r->replayed].recording;
	o.open = c->side[0].open;
	o.last_step = r->step;
	o.each_step = look;
	o.ctx = &k;
	TSR_TRY(tsr_side_open(&side, from, c->side[0].open, err));
	if (!side.paths)
		return tsr_fail(err, TSR_E_USAGE, "%s: is no checkpoint", from);
	if (side.steps[0] >= r->step)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: is of step %" PRIu64 ", expected one before step %" PRIu64,
				from, side.steps[0], r->step);
	if (side.steps[0] + 1 > recording->steps[0].step)
		o.first_step = side.steps[0] + 1;
	TSR_TRY(tsr_replay(&from, 1, recording->path, NULL, &o, run, &c->replay, err));
	r->from = tsr_replay_source(c->replay);
	return TSR_OK;
}
