/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a checkpoint as the ranges of its tensors and what is around them, the rest. */
#include "store/ranges.h"

#include "base/grow.h"
#include "base/order.h"

static uint32_t block_elements(uint64_t n, uint64_t piece)
{
	const uint64_t left = n - piece * TSR_STORE_BLOCK;

	return left < TSR_STORE_BLOCK ? (uint32_t)left : TSR_STORE_BLOCK;
}

struct tsr_block_of tsr_stored_block(const struct tsr_stored_tensor *t, uint64_t piece)
{
	const uint64_t first = t->phase + piece * TSR_STORE_BLOCK;

	return (struct tsr_block_of){
		.at = { .n = block_elements(t->n, piece),
			.columns = t->columns,
			.phase = t->columns ? (uint32_t)(first % t->columns) : 0 },
		.slots = t->slots,
		.kind = { t->kind[0], t->slots == 2 ? t->kind[1] : TSR_KIND_OTHER },
		.dtype = t->dtype,
	};
}

/* The objects of a snapshot's tensors, then of the rests of its files. */
static uint64_t count_pieces(const struct tsr_snapshot *s, const bool *keep, bool rests,
			     size_t item)
{
	if (item < s->ntensors)
		return keep && keep[item] ? 0 : tsr_entropy_pieces(s->tensors[item].n);
	return rests ? tsr_entropy_pieces(s->paths[item - s->ntensors].rest_nbytes) : 0;
}

enum tsr_status tsr_block_jobs(const struct tsr_snapshot *s, const bool *keep, bool rests,
			       struct tsr_block_job **ret, size_t *n_ret, struct tsr_err *err)
{
	const size_t items = s->ntensors + s->npaths;
	uint64_t n = 0;

	for (size_t i = 0; i < items; i++)
		n += count_pieces(s, keep, rests, i);
	TSR_TRY(TSR_NEW(ret, (size_t)n + 1, err, "blocks of a snapshot"));
	*n_ret = 0;
	for (size_t i = 0; i < items; i++) {
		const bool rest = i >= s->ntensors;

		for (uint64_t k = 0; k < count_pieces(s, keep, rests, i); k++)
			(*ret)[(*n_ret)++] = (struct tsr_block_job){
				(uint32_t)(rest ? i - s->ntensors : i), (uint32_t)k, rest
			};
	}
	return TSR_OK;
}

struct tsr_block_of tsr_job_block(const struct tsr_snapshot *s, const struct tsr_block_job *job)
{
	if (!job->rest)
		return tsr_stored_block(&s->tensors[job->item], job->piece);
	/* Bytes that no tensor has. */
	return (struct tsr_block_of){ .at = { .n = block_elements(s->paths[job->item].rest_nbytes,
								  job->piece) },
				      .slots = 1,
				      .dtype = TSR_U8 };
}

struct tsr_object_id *tsr_job_object(const struct tsr_snapshot *s, const struct tsr_block_job *job)
{
	return job->rest ? &s->paths[job->item].rest[job->piece]
			 : &s->tensors[job->item].objects[job->piece];
}

TSR_COMPARE(by_offset, struct tsr_stored_range, TSR_ORDER(a->offset, b->offset))

static enum tsr_status add_ranges(struct tsr_arena *arena, struct tsr_snapshot *s, const char *path,
				  struct tsr_err *err)
{
	for (size_t i = 0; i < s->ntensors; i++) {
		const struct tsr_stored_tensor *t = &s->tensors[i];

		for (unsigned k = 0; k < t->slots; k++) {
			struct tsr_stored_path *p;

			if (t->file[k] >= s->npaths)
				return tsr_fail(err, TSR_E_FORMAT,
						"%s: %s is in a file that is not there", path,
						t->name[k]);
			p = &s->paths[t->file[k]];
			TSR_TRY(TSR_ARENA_GROW(&p->ranges, p->nranges, arena, err, path));
			p->ranges[p->nranges++] = (struct tsr_stored_range){
				t->offset[k], t->n * tsr_dtype_bits(t->dtype) / 8, 0
			};
		}
	}
	return TSR_OK;
}

/* Ranges follow each other within their file. */
static bool find_rest(struct tsr_stored_path *p)
{
	uint64_t end = 0;

	p->rest_nbytes = 0;
	if (p->nranges)
		qsort(p->ranges, p->nranges, sizeof(*p->ranges), by_offset);
	for (size_t i = 0; i < p->nranges; i++) {
		struct tsr_stored_range *range = &p->ranges[i];

		if (range->offset < end || range->nbytes > p->nbytes ||
		    range->offset > p->nbytes - range->nbytes)
			return false;
		p->rest_nbytes += range->offset - end;
		range->rest = p->rest_nbytes;
		end = range->offset + range->nbytes;
	}
	p->rest_nbytes += p->nbytes - end;
	return !p->is_directory || !p->nbytes;
}

enum tsr_status tsr_snapshot_find_rest(struct tsr_arena *arena, struct tsr_snapshot *s,
				       const char *path, struct tsr_err *err)
{
	TSR_TRY(add_ranges(arena, s, path, err));
	for (size_t i = 0; i < s->npaths; i++)
		if (!find_rest(&s->paths[i]))
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: tensors of %s overlap or are not within it", path,
					s->paths[i].path);
	return TSR_OK;
}

size_t tsr_ranges_before(const struct tsr_stored_path *p, uint64_t offset)
{
	size_t low = 0, high = p->nranges;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (p->ranges[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

enum tsr_status tsr_rest_each(const struct tsr_stored_path *p, uint64_t at, size_t nbytes,
			      tsr_rest_part *part, void *ctx, struct tsr_err *err)
{
	size_t low = 0, high = p->nranges, done = 0;

	/* The first range with more of the rest before it than @at. */
	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (p->ranges[middle].rest <= at)
			low = middle + 1;
		else
			high = middle;
	}
	while (done < nbytes) {
		const uint64_t here = at + done;
		const uint64_t end = low < p->nranges ? p->ranges[low].rest : p->rest_nbytes;
		const struct tsr_stored_range *before = low ? &p->ranges[low - 1] : NULL;
		const uint64_t offset = before ? before->offset + before->nbytes + here -
							 before->rest
					       : here;
		const size_t n = end - here < nbytes - done ? (size_t)(end - here) : nbytes - done;

		if (n)
			TSR_TRY(part(ctx, offset, done, n, err));
		done += n;
		low++;
	}
	return TSR_OK;
}
