/* SPDX-License-Identifier: Apache-2.0 */
/* Coding the blocks of a snapshot's tensors as objects, on all threads. */
#include "store/encode_blocks.h"

#include <math.h>

#include "base/grow.h"
#include "base/order.h"
#include "base/pipeline.h"
#include "store/quantize_loops.h"

/* --- The same tensor in another snapshot ------------------------------------------------------ */

TSR_COMPARE_BY(by_name, struct tsr_stored_tensor *, strcmp((*a)->name[0], (*b)->name[0]),
	       TSR_ORDER((*a)->chunk, (*b)->chunk))

static bool is_same(const struct tsr_stored_tensor *a, const struct tsr_stored_tensor *b)
{
	return a->n == b->n && a->columns == b->columns && a->phase == b->phase &&
	       a->slots == b->slots && a->kind[0] == b->kind[0] && a->dtype == b->dtype;
}

enum tsr_status tsr_match_tensors(const struct tsr_snapshot *in, const struct tsr_snapshot *of,
				  const struct tsr_stored_tensor ***ret, struct tsr_err *err)
{
	TSR_OWNED(free) const struct tsr_stored_tensor **sorted = NULL;
	const struct tsr_stored_tensor **found;

	TSR_TRY(TSR_NEW(&sorted, in->ntensors + 1, err, "tensors of a snapshot"));
	TSR_TRY(TSR_NEW(&found, of->ntensors + 1, err, "tensors of a snapshot"));
	for (size_t i = 0; i < in->ntensors; i++)
		sorted[i] = &in->tensors[i];
	qsort(sorted, in->ntensors, sizeof(*sorted), by_name);
	for (size_t i = 0; i < of->ntensors; i++) {
		const struct tsr_stored_tensor *t = &of->tensors[i];
		const struct tsr_stored_tensor **same = bsearch(&t, sorted, in->ntensors,
								sizeof(*sorted), by_name);

		if (same && is_same(*same, t))
			found[i] = *same;
	}
	*ret = found;
	return TSR_OK;
}

/* --- Jobs ------------------------------------------------------------------------------------- */

static void close_scratch(void *ctx, void *scratch)
{
	struct tsr_encode_scratch *s = scratch;

	(void)ctx;
	tsr_object_reader_close(&s->base);
	tsr_object_reader_close(&s->source);
	free(s->y[0]);
	free(s->y[1]);
	free(s->bytes);
}

static enum tsr_status open_scratch(void *ctx, const struct tsr_run *run, void *scratch,
				    struct tsr_err *err)
{
	const size_t nbytes = (size_t)TSR_STORE_BLOCK * TSR_ENTROPY_WIDTH;
	struct tsr_encode_scratch *s = scratch;

	(void)run;
	*s = (struct tsr_encode_scratch){ .y = { malloc(nbytes), malloc(nbytes) },
					  .bytes = malloc(TSR_OBJECT_MAX) };
	if (s->y[0] && s->y[1] && s->bytes &&
	    tsr_object_reader_open(&s->base, true, NULL) == TSR_OK &&
	    tsr_object_reader_open(&s->source, false, NULL) == TSR_OK)
		return TSR_OK;
	close_scratch(ctx, s);
	return tsr_fail_nomem(err, "blocks of a store");
}

/*
 * Behind the longest chain, the version before the last.  When weights have moved this much further since
 * then, each doubling of which takes a bit, it is the one in the middle, which others can follow; unless they
 * moved much less than between these two, as where a schedule ends.
 */
#define FURTHER 4.0

static void choose_base(struct tsr_encode_scratch *s, size_t n, struct tsr_block_base *ret)
{
	static tsr_differences_fn *const differences[] = TSR_ISA_VARIANTS(sum_differences);
	const unsigned isa = tsr_isa_level();
	const float *x = s->source.y[0], *last = s->base.y[0];
	bool far = s->base.base_at[0] != 0;

	if (far) {
		const double before = differences[isa](x, s->base.base[0], n),
			     middle = differences[isa](x, s->base.base[1], n);

		far = before > FURTHER * FURTHER * differences[isa](x, last, n) &&
		      middle < FURTHER * FURTHER * before;
	}
	s->base_at = s->base.base_at[far];
	*ret = (struct tsr_block_base){ .id = s->base.chain[s->base_at],
					.depth = s->base.nchain - 1 - s->base_at,
					.x = s->base.base[far],
					.last = last };
}

/* What the block's weights were, if the version before has them. */
static enum tsr_status read_base(const struct tsr_encoding *e, struct tsr_encode_scratch *s,
				 const struct tsr_block_job *job, const struct tsr_block_of *of,
				 struct tsr_block_base *ret, struct tsr_err *err)
{
	const struct tsr_stored_tensor *older = job->rest || !e->older ? NULL : e->older[job->item];

	ret->x = NULL;
	if (!older || of->kind[0] != TSR_KIND_WEIGHT || e->to->info.tier.as == TSR_STORE_LOSSLESS)
		return TSR_OK;
	TSR_TRY(tsr_object_read(e->store, &s->base, &older->objects[job->piece], of, err));
	choose_base(s, of->at.n, ret);
	return TSR_OK;
}

/* The versions that the new object is decoded with, from this one of the chain on. */
static void note_needs(struct tsr_encode_scratch *s, unsigned first)
{
	s->nneeds = 0;
	for (unsigned i = first; i < s->base.nchain; i++)
		s->needs[s->nneeds++] = s->base.chain[i];
}

static enum tsr_status work(void *ctx, void *scratch, uint64_t number, struct tsr_err *err)
{
	struct tsr_encoding *e = ctx;
	struct tsr_encode_scratch *s = scratch;
	const struct tsr_block_job *job = &e->jobs[number];
	const struct tsr_block_of of = tsr_job_block(e->to, job);
	const size_t nbytes = (size_t)of.at.n * (tsr_dtype_bits(of.dtype) / 8);
	struct tsr_block_base base;
	size_t coded;

	s->sums = (struct tsr_store_sums){ 0 };
	s->nneeds = 0;
	s->read_nbytes = nbytes * of.slots;
	s->is_new = false;
	TSR_TRY(e->read(e->ctx, s, job, err));
	TSR_TRY(read_base(e, s, job, &of, &base, err));
	coded = tsr_block_encode(s->base.coder, &of, &e->to->info.tier, base.x ? &base : NULL,
				 e->to->eps, (const void *const *)s->source.y, s->y, s->bytes,
				 &s->sums);
	s->object_nbytes = coded;
	if (!coded) {
		s->id = s->base.chain[0];
		note_needs(s, 1);
		return TSR_OK;
	}
	if (s->bytes[2])
		note_needs(s, s->base_at);
	if (e->same && memcmp(s->source.y[0], s->y[0], nbytes) != 0) {
		s->id = *tsr_job_object(e->to, job);
		s->nneeds = s->source.nchain - 1;
		memcpy(s->needs, s->source.chain + 1, s->nneeds * sizeof(*s->needs));
		return TSR_OK;
	}
	s->id = tsr_object_name(s->bytes, coded);
	return tsr_object_put(e->store, &s->id, s->bytes, coded, &s->is_new, err);
}

/* --- Results ---------------------------------------------------------------------------------- */

static void add_sums(struct tsr_store_sums *to, const struct tsr_store_sums *s)
{
	to->moved += s->moved;
	to->weights += s->weights;
	to->rounded += s->rounded;
	to->ulps += s->ulps;
	to->update += s->update;
	to->updates += s->updates;
	to->root += s->root;
	to->roots += s->roots;
}

/* The errors of a tensor: those of the snapshot are of its worst one. */
static void note_errors(struct tsr_store_errors *errors, const struct tsr_store_sums *s)
{
	if (s->moved > 0)
		errors->weight = fmax(errors->weight, s->weights / s->moved);
	if (s->ulps > 0)
		errors->weight_ulps = fmax(errors->weight_ulps, sqrt(s->rounded / s->ulps));
	if (s->updates > 0)
		errors->update = fmax(errors->update, s->update / s->updates);
	if (s->roots > 0)
		errors->variance = fmax(errors->variance, s->root / s->roots);
}

static enum tsr_status commit(void *ctx, void *scratch, uint64_t number, struct tsr_err *err)
{
	struct tsr_encoding *e = ctx;
	struct tsr_snapshot *to = e->to;
	const struct tsr_encode_scratch *s = scratch;
	const struct tsr_block_job *job = &e->jobs[number];
	const bool last = job->rest ||
			  job->piece + 1 == tsr_entropy_pieces(to->tensors[job->item].n);

	*tsr_job_object(to, job) = s->id;
	/* What the snapshot needs besides the objects of its tensors. */
	for (unsigned i = 0; i < s->nneeds; i++) {
		TSR_TRY(TSR_ARENA_GROW(&to->needs, to->nneeds, e->store->arena, err,
				       e->store->path));
		to->needs[to->nneeds++] = s->needs[i];
	}
	if (s->nneeds > to->info.depth)
		to->info.depth = s->nneeds;
	add_sums(&e->sums, &s->sums);
	if (last) {
		note_errors(&to->info.errors, &e->sums);
		e->sums = (struct tsr_store_sums){ 0 };
	}
	e->added->nobjects++;
	e->added->new_nbytes += s->is_new ? s->object_nbytes : 0;
	if (!job->rest && to->tensors[job->item].kind[0])
		e->added->nlossy += s->read_nbytes;
	else
		e->added->nother += s->read_nbytes;
	return tsr_progress_add(&e->progress, s->read_nbytes, err);
}

enum tsr_status tsr_encode_blocks(struct tsr_encoding *e, const struct tsr_run *run,
				  struct tsr_err *err)
{
	struct tsr_pipeline p = { .scratch_nbytes = sizeof(struct tsr_encode_scratch),
				  .open = open_scratch,
				  .close = close_scratch,
				  .work = work,
				  .commit = commit,
				  .ctx = e };
	enum tsr_status status = TSR_OK;

	if (e->base)
		status = tsr_match_tensors(e->base, e->to, &e->older, err);
	TSR_THEN(status, tsr_block_jobs(e->to, e->keep, !e->copy_rest, &e->jobs, &e->njobs, err));
	p.njobs = e->njobs;
	if (status == TSR_OK && p.njobs)
		status = tsr_pipeline_run(&p, run, err);
	free(e->older);
	free(e->jobs);
	return status;
}
