/* SPDX-License-Identifier: Apache-2.0 */
/* Coding the blocks of a snapshot's tensors as objects, on all threads. */
#include "store/encode_blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "store/quantize_loops.h"

#define ELEMENT_MAX 8u

/* --- The same tensor in another snapshot ------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
	const struct tsr_stored_tensor *x = *(const struct tsr_stored_tensor *const *)a,
				       *y = *(const struct tsr_stored_tensor *const *)b;
	const int order = strcmp(x->name[0], y->name[0]);

	return order ? order : (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

static bool is_same(const struct tsr_stored_tensor *a, const struct tsr_stored_tensor *b)
{
	return a->n == b->n && a->columns == b->columns && a->phase == b->phase &&
	       a->slots == b->slots && a->kind[0] == b->kind[0] && a->dtype == b->dtype;
}

enum tsr_status tsr_match_tensors(const struct tsr_snapshot *in, const struct tsr_snapshot *of,
				  const struct tsr_stored_tensor ***ret, struct tsr_err *err)
{
	const struct tsr_stored_tensor **sorted = malloc((in->ntensors + 1) * sizeof(*sorted));
	const struct tsr_stored_tensor **found = calloc(of->ntensors + 1, sizeof(*found));

	if (!sorted || !found) {
		free(sorted);
		free(found);
		return tsr_fail_nomem(err, "tensors of a snapshot");
	}
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
	free(sorted);
	*ret = found;
	return TSR_OK;
}

/* --- Jobs ------------------------------------------------------------------------------------- */

static uint64_t count_jobs(const struct tsr_encoding *e)
{
	uint64_t n = 0;

	for (size_t i = 0; i < e->to->ntensors; i++)
		n += e->keep && e->keep[i] ? 0 : tsr_entropy_pieces(e->to->tensors[i].n);
	for (size_t i = 0; !e->copy_rest && i < e->to->npaths; i++)
		n += tsr_entropy_pieces(e->to->paths[i].rest_nbytes);
	return n;
}

static void put_jobs(struct tsr_encoding *e, size_t item, uint64_t n, bool rest)
{
	for (uint64_t i = 0; i < n; i++)
		e->jobs[e->njobs++] = (struct job){ (uint32_t)item, (uint32_t)i, rest };
}

static enum tsr_status find_jobs(struct tsr_encoding *e, struct tsr_err *err)
{
	e->jobs = malloc((size_t)(count_jobs(e) + 1) * sizeof(*e->jobs));
	if (!e->jobs)
		return tsr_fail_nomem(err, e->store->path);
	for (size_t i = 0; i < e->to->ntensors; i++)
		if (!e->keep || !e->keep[i])
			put_jobs(e, i, tsr_entropy_pieces(e->to->tensors[i].n), false);
	for (size_t i = 0; !e->copy_rest && i < e->to->npaths; i++)
		put_jobs(e, i, tsr_entropy_pieces(e->to->paths[i].rest_nbytes), true);
	return TSR_OK;
}

static void close_scratch(void *ctx, void *scratch)
{
	struct tsr_encode_scratch *s = scratch;

	(void)ctx;
	tsr_object_reader_close(&s->reader);
	tsr_object_reader_close(&s->source);
	for (unsigned i = 0; i < TSR_SLOTS; i++) {
		free(s->x[i]);
		free(s->y[i]);
	}
	free(s->bytes);
}

static enum tsr_status open_scratch(void *ctx, const struct tsr_run *run, void *scratch,
				    struct tsr_err *err)
{
	struct tsr_encode_scratch *s = scratch;
	bool failed = false;

	(void)run;
	*s = (struct tsr_encode_scratch){ .bytes = malloc(TSR_OBJECT_MAX) };
	for (unsigned i = 0; i < TSR_SLOTS; i++) {
		s->x[i] = malloc((size_t)TSR_STORE_BLOCK * ELEMENT_MAX);
		s->y[i] = malloc((size_t)TSR_STORE_BLOCK * ELEMENT_MAX);
		failed = failed || !s->x[i] || !s->y[i];
	}
	if (failed || !s->bytes || tsr_object_reader_open(&s->reader, true, NULL) != TSR_OK ||
	    tsr_object_reader_open(&s->source, false, NULL) != TSR_OK) {
		close_scratch(ctx, s);
		return tsr_fail_nomem(err, "blocks of a store");
	}
	return TSR_OK;
}

/*
 * Behind the longest chain, the version before the last.  When weights have moved this much further since
 * then, each doubling of which takes a bit, it is the one in the middle, which others can follow; unless they
 * moved much less than between these two, as where a schedule ends.
 */
#define FURTHER 4.0

static void choose_base(struct tsr_encode_scratch *s, const float *last, size_t n,
			struct tsr_block_base *ret)
{
	static tsr_differences_fn *const differences[] = TSR_ISA_VARIANTS(sum_differences);
	const unsigned isa = tsr_isa_level();
	const float *x = s->x[0];
	bool far = s->reader.base_at[0] != 0;

	if (far) {
		const double before = differences[isa](x, s->reader.base[0], n),
			     middle = differences[isa](x, s->reader.base[1], n);

		far = before > FURTHER * FURTHER * differences[isa](x, last, n) &&
		      middle < FURTHER * FURTHER * before;
	}
	s->base_at = s->reader.base_at[far];
	*ret = (struct tsr_block_base){ .id = s->reader.chain[s->base_at],
					.depth = s->reader.nchain - 1 - s->base_at,
					.x = s->reader.base[far],
					.last = last };
}

/* What the block's weights were, if the version before has them. */
static enum tsr_status read_base(const struct tsr_encoding *e, struct tsr_encode_scratch *s,
				 const struct job *job, const struct tsr_block_of *of,
				 struct tsr_block_base *ret, struct tsr_err *err)
{
	const struct tsr_stored_tensor *older = job->rest || !e->older ? NULL : e->older[job->item];
	void *const y[TSR_SLOTS] = { s->y[1], NULL };

	ret->x = NULL;
	if (!older || of->kind[0] != TSR_KIND_WEIGHT || e->to->info.tier.as == TSR_STORE_LOSSLESS)
		return TSR_OK;
	TSR_TRY(tsr_object_read(e->store, &s->reader, &older->objects[job->piece], of, y, err));
	choose_base(s, s->y[1], of->at.n, ret);
	return TSR_OK;
}

static struct tsr_object_id *place(const struct tsr_encoding *e, const struct job *job)
{
	return job->rest ? &e->to->paths[job->item].rest[job->piece]
			 : &e->to->tensors[job->item].objects[job->piece];
}

/* The versions that the new object is decoded with, from this one of the chain on. */
static void note_needs(struct tsr_encode_scratch *s, unsigned first)
{
	s->nneeds = 0;
	for (unsigned i = first; i < s->reader.nchain; i++)
		s->needs[s->nneeds++] = s->reader.chain[i];
}

static enum tsr_status work(void *ctx, void *scratch, uint64_t number, struct tsr_err *err)
{
	struct tsr_encoding *e = ctx;
	struct tsr_encode_scratch *s = scratch;
	const struct job *job = &e->jobs[number];
	const struct tsr_block_of of = job->rest
					       ? tsr_rest_block(e->to->paths[job->item].rest_nbytes,
								job->piece)
					       : tsr_stored_block(&e->to->tensors[job->item],
								  job->piece);
	const size_t nbytes = (size_t)of.at.n * (tsr_dtype_bits(of.dtype) / 8);
	struct tsr_block_base base;
	size_t coded;

	s->sums = (struct tsr_store_sums){ 0 };
	s->nneeds = 0;
	s->read_nbytes = nbytes * of.slots;
	s->is_new = false;
	TSR_TRY(e->read(e->ctx, s, job->item, job->piece, job->rest, err));
	TSR_TRY(read_base(e, s, job, &of, &base, err));
	coded = tsr_block_encode(s->reader.coder, &of, &e->to->info.tier, base.x ? &base : NULL,
				 e->to->eps, (const void *const *)s->x, s->y, s->bytes, &s->sums);
	s->object_nbytes = coded;
	if (!coded) {
		s->id = s->reader.chain[0];
		note_needs(s, 1);
		return TSR_OK;
	}
	if (s->bytes[2])
		note_needs(s, s->base_at);
	if (e->same && memcmp(s->x[0], s->y[0], nbytes) != 0) {
		s->id = *place(e, job);
		s->nneeds = s->source.nchain - 1;
		memcpy(s->needs, s->source.chain + 1, s->nneeds * sizeof(*s->needs));
		return TSR_OK;
	}
	s->id = tsr_object_name(s->bytes, coded);
	return tsr_object_put(e->store, &s->id, s->bytes, coded, &s->is_new, err);
}

/* --- Results ---------------------------------------------------------------------------------- */

enum tsr_status tsr_encoding_need(struct tsr_encoding *e, const struct tsr_object_id *id,
				  struct tsr_err *err)
{
	struct tsr_snapshot *s = e->to;

	if (s->nneeds == e->needs_room) {
		const size_t room = e->needs_room ? 2 * e->needs_room : 256;
		void *grown = tsr_arena_grow(e->store->arena, e->needs_room ? s->needs : NULL,
					     e->needs_room * sizeof(*s->needs),
					     room * sizeof(*s->needs));

		if (!grown)
			return tsr_fail_nomem(err, e->store->path);
		s->needs = grown;
		e->needs_room = room;
	}
	s->needs[s->nneeds++] = *id;
	return TSR_OK;
}

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

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* The errors of a tensor: those of the snapshot are of its worst one. */
static void note_errors(struct tsr_store_errors *errors, const struct tsr_store_sums *s)
{
	if (s->moved > 0)
		errors->weight = larger(errors->weight, s->weights / s->moved);
	if (s->ulps > 0)
		errors->weight_ulps = larger(errors->weight_ulps, sqrt(s->rounded / s->ulps));
	if (s->updates > 0)
		errors->update = larger(errors->update, s->update / s->updates);
	if (s->roots > 0)
		errors->variance = larger(errors->variance, s->root / s->roots);
}

static enum tsr_status commit(void *ctx, void *scratch, uint64_t number, struct tsr_err *err)
{
	struct tsr_encoding *e = ctx;
	const struct tsr_encode_scratch *s = scratch;
	const struct job *job = &e->jobs[number];
	const bool last = job->rest ||
			  job->piece + 1 == tsr_entropy_pieces(e->to->tensors[job->item].n);

	*place(e, job) = s->id;
	for (unsigned i = 0; i < s->nneeds; i++)
		TSR_TRY(tsr_encoding_need(e, &s->needs[i], err));
	if (s->nneeds > e->to->info.depth)
		e->to->info.depth = s->nneeds;
	add_sums(&e->sums, &s->sums);
	if (last)
		note_errors(&e->to->info.errors, &e->sums);
	if (last)
		e->sums = (struct tsr_store_sums){ 0 };
	e->nobjects++;
	e->new_nbytes += s->is_new ? s->object_nbytes : 0;
	if (!job->rest && e->to->tensors[job->item].kind[0])
		e->nlossy += s->read_nbytes;
	else
		e->nother += s->read_nbytes;
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
	if (status == TSR_OK)
		status = find_jobs(e, err);
	p.njobs = e->njobs;
	if (status == TSR_OK && p.njobs)
		status = tsr_pipeline_run(&p, run, err);
	free(e->older);
	free(e->jobs);
	return status;
}
