/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thinning a store: snapshots become coarser or are dropped, and exact ones behind them are coded anew from
 * what is now before them.  Each new version is complete before it takes the place of the old one, whose
 * objects stay until no snapshot needs them.
 */
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "base/fail.h"
#include "store/encode_blocks.h"

struct plan {
	enum tsr_store_change change;
	struct tsr_store_tier tier;
	bool rebased; /* kept, but its weights differ from another version than before */
};

struct thinning {
	struct tsr_store *store;
	const struct tsr_snapshot *from; /* the version that is read */
	struct plan *plans; /* per snapshot */
	struct tsr_progress progress;
};

/* --- The plan --------------------------------------------------------------------------------- */

static bool is_about(const struct tsr_store *s, size_t i, const struct tsr_store_rule *rule)
{
	const uint64_t step = s->snapshots[i].info.step,
		       last = s->snapshots[s->nsnapshots - 1].info.step;

	switch (rule->which) {
	case TSR_STORE_LAST:
		return s->nsnapshots - i <= rule->n;
	case TSR_STORE_EVERY:
		return step % rule->n == 0;
	case TSR_STORE_OLDER:
		return last - step > rule->n;
	case TSR_STORE_STEP:
		return step == rule->n;
	case TSR_STORE_REST:
		break;
	}
	return true;
}

static void decide(const struct tsr_store *s, size_t i, const struct tsr_store_rule *rules,
		   unsigned nrules, struct plan *plan)
{
	const struct tsr_store_tier *now = &s->snapshots[i].info.tier;

	*plan = (struct plan){ .tier = *now };
	for (unsigned k = 0; k < nrules; k++) {
		if (!is_about(s, i, &rules[k]))
			continue;
		if (rules[k].drop) {
			plan->change = TSR_STORE_DROPPED;
		} else if (tsr_store_tier_is_finer(now, &rules[k].tier)) {
			plan->change = TSR_STORE_RECODED;
			plan->tier = rules[k].tier;
		}
		return;
	}
}

/* Behind a version that changed, exact ones differ from the new one; coarse ones keep what they need. */
static void find_rebased(struct thinning *t)
{
	bool changed = false;

	for (size_t i = 0; i < t->store->nsnapshots; i++) {
		struct plan *plan = &t->plans[i];

		plan->rebased = changed && plan->change == TSR_STORE_KEPT &&
				plan->tier.as == TSR_STORE_CODES &&
				t->store->snapshots[i].info.depth;
		changed = plan->change != TSR_STORE_KEPT || plan->rebased;
		if (plan->change == TSR_STORE_RECODED || plan->rebased)
			t->progress.total_nbytes += t->store->snapshots[i].info.nbytes;
	}
}

/* Bytes of objects that only snapshots need which are dropped or become coarser. */
static uint64_t count_freed(const struct thinning *t)
{
	const struct tsr_store *s = t->store;
	uint64_t freed = 0;

	for (size_t i = 0; i < s->nobjects; i++) {
		const struct tsr_known_object *o = &s->objects[i];
		bool kept = false;

		for (size_t k = o->first; k && k <= o->last; k++)
			kept = kept || t->plans[k - 1].change == TSR_STORE_KEPT;
		freed += kept ? 0 : o->nbytes;
	}
	return freed;
}

/* --- A new version ---------------------------------------------------------------------------- */

static enum tsr_status read_block(void *ctx, struct tsr_encode_scratch *s,
				  const struct tsr_block_job *job, struct tsr_err *err)
{
	const struct thinning *t = ctx;
	const struct tsr_block_of of = tsr_job_block(t->from, job);

	return tsr_object_read(t->store, &s->source, tsr_job_object(t->from, job), &of, err);
}

/* The error of what was coded from a version that had one: at most the sum of both roots, squared. */
static double both(double a, double b)
{
	if (a < 0 || b < 0)
		return a > b ? a : b;
	return (sqrt(a) + sqrt(b)) * (sqrt(a) + sqrt(b));
}

static void add_errors(struct tsr_store_errors *to, const struct tsr_store_errors *from)
{
	to->weight = both(to->weight, from->weight);
	to->update = both(to->update, from->update);
	to->variance = both(to->variance, from->variance);
	if (from->weight_ulps > 0)
		to->weight_ulps = fmax(to->weight_ulps, 0) + from->weight_ulps;
}

/* The same snapshot with room for other objects. */
static enum tsr_status copy(struct tsr_store *s, const struct tsr_snapshot *from,
			    struct tsr_snapshot *to, struct tsr_err *err)
{
	*to = *from;
	to->nneeds = 0;
	to->needs = NULL;
	to->info.depth = 0;
	to->tensors = tsr_arena_dup(s->arena, from->tensors,
				    from->ntensors * sizeof(*from->tensors));
	for (size_t i = 0; to->tensors && i < to->ntensors; i++) {
		struct tsr_stored_tensor *t = &to->tensors[i];

		t->objects = tsr_arena_dup(s->arena, t->objects,
					   tsr_entropy_pieces(t->n) * sizeof(*t->objects));
		if (!t->objects)
			return tsr_fail_nomem(err, s->path);
	}
	return to->tensors ? TSR_OK : tsr_fail_nomem(err, s->path);
}

static enum tsr_status encode(struct thinning *t, const struct plan *plan, struct tsr_snapshot *to,
			      const struct tsr_snapshot *base, const bool *keep,
			      const struct tsr_run *run, struct tsr_err *err)
{
	struct tsr_store_added ignored = { .nobjects = 0 };
	struct tsr_encoding e = { .store = t->store,
				  .to = to,
				  .base = base,
				  .read = read_block,
				  .ctx = t,
				  .added = &ignored,
				  .copy_rest = true,
				  .keep = keep,
				  .same = plan->rebased,
				  .progress = t->progress };

	to->info.tier = plan->tier;
	if (!plan->rebased)
		to->info.errors = (struct tsr_store_errors){ -1, -1, -1, -1 };
	TSR_TRY(tsr_encode_blocks(&e, run, err));
	t->progress.done_nbytes = e.progress.done_nbytes;
	if (plan->rebased)
		to->info.errors = t->from->info.errors;
	else
		add_errors(&to->info.errors, &t->from->info.errors);
	return TSR_OK;
}

/* Whether a tensor keeps its objects: weights alone have versions, and not all state becomes coarser. */
static bool stays(const struct tsr_stored_tensor *t, bool rebased)
{
	if (rebased)
		return t->kind[0] != TSR_KIND_WEIGHT;
	return t->kind[0] == TSR_KIND_OTHER || (t->kind[0] == TSR_KIND_MOMENTUM && t->slots == 1);
}

static enum tsr_status recode(struct thinning *t, size_t i, const struct tsr_snapshot *base,
			      const struct tsr_run *run, struct tsr_err *err)
{
	struct tsr_snapshot *old = &t->store->snapshots[i], to;
	TSR_OWNED(free) bool *keep = NULL;

	TSR_TRY(TSR_NEW(&keep, old->ntensors + 1, err, t->store->path));
	TSR_TRY(copy(t->store, old, &to, err));
	for (size_t k = 0; k < old->ntensors; k++)
		keep[k] = stays(&old->tensors[k], t->plans[i].rebased);
	t->from = old;
	TSR_TRY(encode(t, &t->plans[i], &to, base, keep, run, err));
	TSR_TRY(tsr_objects_sync(t->store, err));
	TSR_TRY(tsr_snapshot_write(t->store, &to, true, err));
	*old = to;
	return TSR_OK;
}

static enum tsr_status drop(const struct tsr_store *s, uint64_t step, struct tsr_err *err)
{
	TSR_OWNED(free) char *path = NULL;

	TSR_TRY(tsr_store_path(s, &path, err, TSR_SNAPSHOT_PATH, step));
	if (unlink(path) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot remove", path);
	return TSR_OK;
}

static enum tsr_status change_all(struct thinning *t, const struct tsr_run *run,
				  struct tsr_err *err)
{
	const struct tsr_snapshot *base = NULL;
	struct tsr_store *s = t->store;

	for (size_t i = 0; i < s->nsnapshots; i++) {
		const struct plan *plan = &t->plans[i];

		if (plan->change == TSR_STORE_DROPPED)
			continue;
		if (plan->change == TSR_STORE_RECODED || plan->rebased)
			TSR_TRY(recode(t, i, base, run, err));
		base = &s->snapshots[i];
	}
	for (size_t i = 0; i < s->nsnapshots; i++)
		if (t->plans[i].change == TSR_STORE_DROPPED)
			TSR_TRY(drop(s, s->snapshots[i].info.step, err));
	return TSR_OK;
}

static enum tsr_status thin(struct thinning *t, const struct tsr_run *run, uint64_t *freed_ret,
			    struct tsr_err *err)
{
	const uint64_t before = tsr_store_nbytes(t->store, NULL);
	uint64_t swept;

	TSR_TRY(tsr_store_begin(t->store, err));
	TSR_TRY(change_all(t, run, err));
	TSR_TRY(tsr_store_load(t->store, err));
	TSR_TRY(tsr_store_sweep(t->store, &swept, err));
	TSR_TRY(tsr_store_load(t->store, err));
	*freed_ret = tsr_store_nbytes(t->store, NULL);
	*freed_ret = *freed_ret < before ? before - *freed_ret : 0;
	return TSR_OK;
}

enum tsr_status tsr_store_thin(struct tsr_store *s, const struct tsr_store_rule *rules,
			       unsigned nrules, bool dry_run, const struct tsr_run *run,
			       tsr_store_thinned *told, void *ctx, uint64_t *freed_ret,
			       struct tsr_err *err)
{
	struct thinning t = { .store = s };
	enum tsr_status status = TSR_OK;

	TSR_TRY(tsr_store_check_whole(s, err));
	TSR_TRY(TSR_NEW(&t.plans, s->nsnapshots + 1, err, s->path));
	for (size_t i = 0; i < s->nsnapshots; i++)
		decide(s, i, rules, nrules, &t.plans[i]);
	t.progress = (struct tsr_progress){ .run = run, .what = s->path };
	find_rebased(&t);
	for (size_t i = 0; told && i < s->nsnapshots; i++)
		told(ctx, &s->snapshots[i].info, t.plans[i].change, &t.plans[i].tier);
	*freed_ret = count_freed(&t);
	if (!dry_run)
		status = thin(&t, run, freed_ret, err);
	tsr_store_end(s, status == TSR_OK);
	free(t.plans);
	return status;
}
