/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The length of the blocks that a tensor is made of (Gefen).
 *
 * By the rule of its program a length is good if blocks next to each other differ: its score is the mean
 * of |mean of logarithms in block i + 1 - that in block i|, and the best peak of scores over all
 * divisors is taken.  Logarithms are integers, so their sums are exact in any order.  By the rule of its
 * paper the deviation within blocks counts, and the largest drop from divisor to divisor is taken; its
 * sums are FP64, one element after the other.
 */
#include "learn/partition.h"

#include <math.h>

#include "base/fail.h"
#include "base/order.h"
#include "learn/learn_loops.h"
#include "learn/log_math.h"
#include "learn/wide.h"

/* Shorter blocks are none, and are candidates only as neighbours of longer ones. */
#define SHORTEST 8u
/* Longer blocks are cut, unless nothing divides them. */
#define LONGEST 1024u

/* What has been seen of the blocks of one length. */
struct blocks {
	uint64_t length;
	int64_t open,
		last; /* sums of logarithms: of the block not complete yet, of the one before */
	tsr_u128 differences; /* sum of |that of a block - that of the one before| */
	double begin; /* by the paper: the sum of all elements before the open block */
	double squares; /* and the sum of squares of the sums of blocks */
};

struct tsr_partition {
	enum tsr_partition_rule rule;
	uint64_t numel, done;
	size_t ncandidates;
	size_t first; /* candidate of which a score is needed */
	double sum, squares; /* by the paper: of all elements so far */
	struct blocks blocks[]; /* per candidate */
};

/* Of the blocks of one length in a part. */
struct inner {
	int64_t head; /* up to the end of the first block that ends in the part, or all */
	int64_t first, last; /* complete blocks */
	uint64_t differences;
	int64_t tail; /* after the last block that ends in the part */
};

struct tsr_partition_part {
	uint64_t first;
	size_t n, room, ninner;
	float *x;
	int32_t *logs;
	int64_t *
		before; /* sum of the logarithms before each element; or as double, of the elements */
	struct inner *inner; /* per candidate */
};

/* --- Candidates --------------------------------------------------------------------------------- */

uint64_t tsr_largest_divisor(uint64_t n, uint64_t most)
{
	uint64_t d = most < n ? most : n;

	while (d > 1 && n % d)
		d--;
	return d ? d : 1;
}

TSR_COMPARE(compare_lengths, struct blocks, TSR_ORDER(a->length, b->length))

/* Divisors of numel with at least @least blocks; how many, put into @blocks if it is not NULL. */
static size_t list_divisors(uint64_t numel, uint64_t least, struct blocks *blocks)
{
	size_t n = 0;

	for (uint64_t d = 1; d <= numel / d; d++) {
		const uint64_t pair[] = { d, numel / d };

		for (unsigned i = 0; numel % d == 0 && i < (pair[0] == pair[1] ? 1u : 2u); i++) {
			if (numel / pair[i] < least)
				continue;
			if (blocks)
				blocks[n].length = pair[i];
			n++;
		}
	}
	return n;
}

enum tsr_status tsr_partition_new(uint64_t numel, enum tsr_partition_rule rule, const char *what,
				  struct tsr_partition **ret, struct tsr_err *err)
{
	const uint64_t least = rule == TSR_PARTITION_VARIANCE ? 2 : 4;
	const size_t n = list_divisors(numel, least, NULL);
	struct tsr_partition *p = calloc(1, sizeof(*p) + n * sizeof(*p->blocks));

	if (!p)
		return tsr_fail_nomem(err, what);
	list_divisors(numel, least, p->blocks);
	qsort(p->blocks, n, sizeof(*p->blocks), compare_lengths);
	p->rule = rule;
	p->numel = numel;
	p->ncandidates = n;
	while (rule == TSR_PARTITION_ADJACENT && p->first + 1 < n &&
	       p->blocks[p->first + 1].length <= SHORTEST)
		p->first++;
	*ret = p;
	return TSR_OK;
}

/* --- Parts -------------------------------------------------------------------------------------- */

struct tsr_partition_part *tsr_partition_part_new(size_t room)
{
	const size_t each = sizeof(int64_t) + sizeof(float) + sizeof(int32_t);
	struct tsr_partition_part *part = calloc(1, sizeof(*part) + (room + 1) * each);

	if (!part)
		return NULL;
	part->room = room;
	part->before = (void *)(part + 1);
	part->x = (void *)(part->before + room + 1);
	part->logs = (void *)(part->x + room + 1);
	return part;
}

void tsr_partition_part_free(struct tsr_partition_part *part)
{
	if (!part)
		return;
	free(part->inner);
	free(part);
}

/* The end of the first block that ends after @first. */
static uint64_t first_end(uint64_t first, uint64_t length)
{
	return (first / length + 1) * length;
}

static struct inner look_inside(const struct tsr_partition_part *part, uint64_t length)
{
	const uint64_t end = first_end(part->first, length) - part->first;
	const int64_t *before = part->before;
	struct inner in = { .head = before[end < part->n ? end : part->n] };
	uint64_t at = end;

	if (end > part->n)
		return in;
	for (; part->n - at >= length; at += length) {
		const int64_t sum = before[at + length] - before[at];
		const int64_t difference = sum - in.last;

		if (at == end)
			in.first = sum;
		else
			in.differences += (uint64_t)(difference < 0 ? -difference : difference);
		in.last = sum;
	}
	in.tail = before[part->n] - before[at];
	return in;
}

static enum tsr_status make_room(const struct tsr_partition *p, struct tsr_partition_part *part,
				 struct tsr_err *err)
{
	if (part->ninner >= p->ncandidates)
		return TSR_OK;
	free(part->inner);
	part->ninner = 0;
	TSR_TRY(TSR_NEW(&part->inner, p->ncandidates, err, "blocks of tensors"));
	part->ninner = p->ncandidates;
	return TSR_OK;
}

enum tsr_status tsr_partition_prepare(const struct tsr_partition *p, uint64_t first, const float *x,
				      size_t n, struct tsr_partition_part *part,
				      struct tsr_err *err)
{
	static tsr_logs_fn *const logs[] = TSR_ISA_VARIANTS(logs);

	TSR_TRY(make_room(p, part, err));
	part->first = first;
	part->n = n;
	memcpy(part->x, x, n * sizeof(*x));
	if (p->rule == TSR_PARTITION_VARIANCE)
		return TSR_OK;
	logs[tsr_isa_level()](x, n, part->logs);
	for (size_t i = 0; i < n; i++)
		part->before[i + 1] = part->before[i] + part->logs[i];
	for (size_t i = p->first; i < p->ncandidates; i++)
		part->inner[i] = look_inside(part, p->blocks[i].length);
	return TSR_OK;
}

/* --- All parts ---------------------------------------------------------------------------------- */

static void add_difference(struct blocks *b, int64_t sum)
{
	b->differences += (uint64_t)(sum < b->last ? b->last - sum : sum - b->last);
	b->last = sum;
}

/* Blocks of one length, of which the part has @in. */
static void add_blocks(struct blocks *b, const struct tsr_partition_part *part,
		       const struct inner *in)
{
	const uint64_t end = first_end(part->first, b->length);
	const uint64_t part_end = part->first + part->n;

	if (end > part_end) {
		b->open += in->head;
		return;
	}
	if (end == b->length)
		b->last = b->open + in->head;
	else
		add_difference(b, b->open + in->head);
	if (part_end - end >= b->length) {
		add_difference(b, in->first);
		b->differences += in->differences;
		b->last = in->last;
	}
	b->open = in->tail;
}

/* By the paper: @before is the sum of all elements before each of the part. */
static void add_squares(struct blocks *b, const struct tsr_partition_part *part,
			const double *before)
{
	for (uint64_t end = first_end(part->first, b->length); end <= part->first + part->n;
	     end += b->length) {
		const double sum = before[end - part->first] - b->begin;

		b->squares += sum * sum;
		b->begin = before[end - part->first];
	}
}

static void add_by_paper(struct tsr_partition *p, const struct tsr_partition_part *part)
{
	double *before = (double *)(void *)part->before;

	before[0] = p->sum;
	for (size_t i = 0; i < part->n; i++) {
		const double x = (double)part->x[i];

		p->sum += x;
		p->squares += x * x;
		before[i + 1] = p->sum;
	}
	for (size_t i = 0; i < p->ncandidates; i++)
		add_squares(&p->blocks[i], part, before);
}

void tsr_partition_add(struct tsr_partition *p, const struct tsr_partition_part *part)
{
	if (p->rule == TSR_PARTITION_VARIANCE)
		add_by_paper(p, part);
	for (size_t i = p->first; p->rule == TSR_PARTITION_ADJACENT && i < p->ncandidates; i++)
		add_blocks(&p->blocks[i], part, &part->inner[i]);
	p->done += part->n;
}

/* --- The choice --------------------------------------------------------------------------------- */

/* Scores as fractions, compared exactly: differences / (length * pairs of blocks). */
static int compare_scores(const struct tsr_partition *p, const struct blocks *a,
			  const struct blocks *b)
{
	const tsr_u128 left = a->differences * (p->numel - b->length);
	const tsr_u128 right = b->differences * (p->numel - a->length);

	return (left > right) - (left < right);
}

/* A block that is too long: the shortest one that divides it and is longer than LONGEST. */
static uint64_t cut(const struct tsr_partition *p, uint64_t period)
{
	if (period <= LONGEST)
		return period;
	for (size_t i = 0; i < p->ncandidates; i++) {
		const uint64_t length = p->blocks[i].length;

		if (length > LONGEST && period % length == 0)
			return length <= TSR_GROUP_MAX ? length
						       : tsr_largest_divisor(period, LONGEST);
	}
	return period;
}

static uint64_t best_peak(const struct tsr_partition *p)
{
	const struct blocks *best = NULL;

	for (size_t i = p->first + 1; i + 1 < p->ncandidates; i++) {
		const struct blocks *b = &p->blocks[i];

		if (b->length <= SHORTEST || compare_scores(p, b, b - 1) <= 0 ||
		    compare_scores(p, b, b + 1) <= 0)
			continue;
		if (!best || compare_scores(p, b, best) >= 0)
			best = b;
	}
	return best ? cut(p, best->length) : 1;
}

/* The deviation of elements within blocks. */
static double deviation(const struct tsr_partition *p, const struct blocks *b)
{
	const double rest = p->squares - b->squares / (double)b->length;

	return b->length > 1 && rest > 0 ? sqrt(rest / (double)p->numel) : 0;
}

static uint64_t largest_drop(const struct tsr_partition *p)
{
	double least = 1e-12;
	uint64_t length = 1;

	for (size_t i = 1; i < p->ncandidates; i++) {
		const double drop = deviation(p, &p->blocks[i]) - deviation(p, &p->blocks[i - 1]);

		if (drop < least) {
			least = drop;
			length = p->blocks[i].length;
		}
	}
	if (length < SHORTEST)
		return 1;
	return length <= TSR_GROUP_MAX ? length : cut(p, length);
}

uint64_t tsr_partition_period(const struct tsr_partition *p)
{
	return p->rule == TSR_PARTITION_VARIANCE ? largest_drop(p) : best_peak(p);
}

bool tsr_partition_candidate(const struct tsr_partition *p, size_t i, uint64_t *length_ret,
			     double *score_ret)
{
	const struct blocks *b = &p->blocks[p->first + i];

	if (i >= p->ncandidates - p->first)
		return false;
	*length_ret = b->length;
	*score_ret = p->rule == TSR_PARTITION_VARIANCE ? deviation(p, b)
						       : (double)b->differences / TSR_LOG_UNIT /
								 (double)(p->numel - b->length);
	return true;
}
