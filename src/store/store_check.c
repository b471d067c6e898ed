/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a store, and comparing two of its snapshots. */
#include <math.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "store/encode_blocks.h"

/* --- Verifying -------------------------------------------------------------------------------- */

struct verifying {
	struct tsr_store *store;
	tsr_store_fault *fault;
	void *ctx;
	struct tsr_progress progress;
	uint64_t nfaults;
};

struct verified {
	uint8_t *bytes;
	struct tsr_err err;
	bool damaged;
};

static enum tsr_status open_bytes(void *ctx, const struct tsr_run *run, void *scratch,
				  struct tsr_err *err)
{
	struct verified *v = scratch;

	(void)ctx;
	(void)run;
	v->bytes = malloc(TSR_OBJECT_MAX);
	return v->bytes ? TSR_OK : tsr_fail_nomem(err, "objects of a store");
}

static void close_bytes(void *ctx, void *scratch)
{
	(void)ctx;
	free(((struct verified *)scratch)->bytes);
}

/* A damaged object is told of in its turn, and the others are read, too. */
static enum tsr_status verify_object(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct verifying *v = ctx;
	struct verified *s = scratch;
	struct tsr_object_head head;
	size_t nbytes;
	enum tsr_status status = tsr_object_get(v->store, &v->store->objects[job].id, s->bytes,
						&nbytes, &s->err);
	const char *wrong = status == TSR_OK ? tsr_object_head(s->bytes, nbytes, &head) : NULL;

	s->damaged = status == TSR_E_FORMAT || wrong;
	if (wrong)
		(void)tsr_fail(&s->err, TSR_E_FORMAT, "%s: an object: %s", v->store->path, wrong);
	return status == TSR_OK || s->damaged ? TSR_OK : tsr_fail(err, status, "%s", s->err.msg);
}

static enum tsr_status tell(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct verifying *v = ctx;
	struct verified *s = scratch;

	if (s->damaged) {
		v->nfaults++;
		if (v->fault)
			v->fault(v->ctx, s->err.msg);
	}
	return tsr_progress_add(&v->progress, v->store->objects[job].nbytes, err);
}

enum tsr_status tsr_store_verify(struct tsr_store *s, const struct tsr_run *run,
				 tsr_store_fault *fault, void *ctx, struct tsr_err *err)
{
	struct verifying v = { .store = s, .fault = fault, .ctx = ctx };
	struct tsr_pipeline p = { .scratch_nbytes = sizeof(struct verified),
				  .njobs = s->nobjects,
				  .open = open_bytes,
				  .close = close_bytes,
				  .work = verify_object,
				  .commit = tell,
				  .ctx = &v };

	v.progress = (struct tsr_progress){ .run = run,
					    .what = s->path,
					    .total_nbytes = tsr_store_nbytes(s, NULL) };
	if (p.njobs)
		TSR_TRY(tsr_pipeline_run(&p, run, err));
	for (size_t i = 0; i < s->nnotes; i++, v.nfaults++)
		if (fault)
			fault(ctx, s->notes[i]);
	if (v.nfaults)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found %" PRIu64 " faults; snapshots that need none of what is "
				"damaged or missing are whole",
				s->path, v.nfaults);
	return TSR_OK;
}

/* --- Comparing -------------------------------------------------------------------------------- */

struct comparing {
	struct tsr_store *store;
	const struct tsr_snapshot *a, *b;
	const struct tsr_stored_tensor **same; /* of @a, per tensor of @b */
	struct tsr_object_reader before, after;
	tsr_store_found *found;
	void *ctx;
	struct tsr_progress progress;
	struct tsr_store_compared *ret;
};

static void compare_block(const float *x, const float *y, size_t n, struct tsr_store_difference *d)
{
	for (size_t i = 0; i < n; i++) {
		d->nother += x[i] != y[i];
		d->rms += (double)x[i] * x[i];
		d->moved += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
	}
}

static enum tsr_status compare_pieces(struct comparing *c, const struct tsr_stored_tensor *older,
				      const struct tsr_stored_tensor *t,
				      struct tsr_store_difference d[TSR_SLOTS], struct tsr_err *err)
{
	for (uint64_t piece = 0; piece < tsr_entropy_pieces(t->n); piece++) {
		const struct tsr_block_of of = tsr_stored_block(t, piece);

		TSR_TRY(tsr_object_read(c->store, &c->before, &older->objects[piece], &of, err));
		TSR_TRY(tsr_object_read(c->store, &c->after, &t->objects[piece], &of, err));
		for (unsigned k = 0; k < t->slots; k++)
			compare_block(c->before.y[k], c->after.y[k], of.at.n, &d[k]);
	}
	return TSR_OK;
}

static enum tsr_status compare_tensor(struct comparing *c, size_t i, struct tsr_err *err)
{
	const struct tsr_stored_tensor *t = &c->b->tensors[i], *older = c->same[i];
	struct tsr_store_difference d[TSR_SLOTS] = { { .nelements = t->n }, { .nelements = t->n } };

	if (memcmp(older->objects, t->objects, tsr_entropy_pieces(t->n) * sizeof(*t->objects)) != 0)
		TSR_TRY(compare_pieces(c, older, t, d, err));
	for (unsigned k = 0; k < t->slots; k++) {
		c->ret->ntensors++;
		c->ret->nother += d[k].nother > 0;
		d[k].name = t->name[k];
		d[k].rms = sqrt(d[k].rms / (double)t->n);
		d[k].moved = sqrt(d[k].moved / (double)t->n);
		if (d[k].nother && c->found)
			c->found(c->ctx, &d[k]);
	}
	return tsr_progress_add(&c->progress, t->n * t->slots * sizeof(float), err);
}

static bool same_rest(const struct tsr_stored_path *a, const struct tsr_stored_path *b)
{
	return a->nbytes == b->nbytes && a->rest_nbytes == b->rest_nbytes &&
	       memcmp(a->rest, b->rest, tsr_entropy_pieces(a->rest_nbytes) * sizeof(*a->rest)) == 0;
}

/* Both lists are sorted. */
static void compare_paths(struct comparing *c)
{
	size_t i = 0, k = 0;

	while (i < c->a->npaths || k < c->b->npaths) {
		const struct tsr_stored_path *a = i < c->a->npaths ? &c->a->paths[i] : NULL;
		const struct tsr_stored_path *b = k < c->b->npaths ? &c->b->paths[k] : NULL;
		/* Two files are compared whatever they are called. */
		const int order = c->a->is_file && c->b->is_file ? 0
				  : !a				 ? 1
				  : !b				 ? -1
								 : strcmp(a->path, b->path);

		if (order) {
			c->ret->nonly++;
		} else if (!a->is_directory) {
			c->ret->nfiles++;
			c->ret->nother_files += !same_rest(a, b);
		}
		i += order <= 0;
		k += order >= 0;
	}
}

static enum tsr_status compare(struct comparing *c, struct tsr_err *err)
{
	size_t nsame = 0;

	for (size_t i = 0; i < c->b->ntensors; i++) {
		const struct tsr_stored_tensor *t = &c->b->tensors[i];

		nsame += c->same[i] != NULL;
		c->ret->nonly += !c->same[i];
		if (c->same[i] && t->dtype == TSR_F32 && t->kind[0])
			TSR_TRY(compare_tensor(c, i, err));
	}
	c->ret->nonly += c->a->ntensors - nsame;
	compare_paths(c);
	return TSR_OK;
}

enum tsr_status tsr_store_diff(struct tsr_store *s, uint64_t a, uint64_t b,
			       const struct tsr_run *run, tsr_store_found *found, void *ctx,
			       struct tsr_store_compared *ret, struct tsr_err *err)
{
	struct comparing c = { .store = s,
			       .a = tsr_store_find(s, a),
			       .b = tsr_store_find(s, b),
			       .found = found,
			       .ctx = ctx,
			       .ret = ret };
	enum tsr_status status;

	*ret = (struct tsr_store_compared){ 0 };
	if (!c.a || !c.b)
		return tsr_fail(err, TSR_E_USAGE, "%s: has no step %" PRIu64, s->path, c.a ? b : a);
	TSR_TRY(tsr_match_tensors(c.a, c.b, &c.same, err));
	c.progress = (struct tsr_progress){ run, s->path, 0, c.b->info.nbytes };
	status = tsr_object_reader_open(&c.before, false, err);
	TSR_THEN(status, tsr_object_reader_open(&c.after, false, err));
	TSR_THEN(status, compare(&c, err));
	tsr_object_reader_close(&c.before);
	tsr_object_reader_close(&c.after);
	free(c.same);
	return status;
}
