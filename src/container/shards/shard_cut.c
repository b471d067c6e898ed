/* SPDX-License-Identifier: Apache-2.0 */
/* Where the arrays of a safetensors output are cut into files. */
#include "container/shards/shard_cut.h"

#include "base/grow.h"
#include "container/packed/packed.h"
#include "container/packed/packed_write.h"
#include "container/tree.h"

/* What coding may add to an array in a header: a suffix, and another size. */
#define CODED_MORE 40u

/* Where one header is not enough, each has so much less than it may: one at a time is in memory. */
#define SEVERAL 4u

/* What a packed file says once, besides lists: versions, sets, a codebook, names of other files. */
#define PACKED_ONCE 8192u

/* The most JSON values that it says of a tensor, besides its shape; the digits of hashes and figures. */
#define PACKED_VALUES 16u
#define PACKED_FIGURES (4 * (8 * TSR_PLANES_MAX + TSR_PACKED_ERROR_NBYTES) / 3 + 1)

/* What a header takes, or a part of it. */
struct room {
	uint64_t nbytes;
	uint64_t nvalues; /* JSON values of the header itself */
	uint64_t npacked; /* those of the text that a packed file has in it */
};

struct cutting {
	const struct tsr_writer *w;
	uint64_t data_nbytes; /* no offset is larger */
	unsigned share; /* of the limits: 1 of so many */
	struct tsr_text entry, quoted; /* the texts of one tensor, to see their length */
};

static void add(struct room *to, const struct room *more)
{
	to->nbytes += more->nbytes;
	to->nvalues += more->nvalues;
	to->npacked += more->npacked;
}

static bool fits(const struct cutting *k, const struct room *r)
{
	return r->nbytes <= TSR_ST_HEADER_MAX / k->share &&
	       r->nvalues <= TSR_ST_VALUES_MAX / k->share &&
	       r->npacked <= TSR_PACKED_VALUES_MAX / k->share;
}

/* The length of a text as a string in a header, and in it as a key or value. */
static uint64_t quoted_nbytes(struct cutting *k, const char *text)
{
	k->quoted.nbytes = 0;
	tsr_json_put_string(&k->quoted, NULL, text);
	return k->quoted.nbytes + 1;
}

/* What every header has, whatever its tensors: metadata, the tree in the first file only. */
static struct room room_of_meta(struct cutting *k, bool first)
{
	const struct tsr_writer_plan *plan = &k->w->plan;
	struct room r = { .nbytes = 64, .nvalues = 2 };

	for (size_t i = 0; i < plan->nmeta; i++) {
		const char *value = plan->meta[i].value;

		if (!first && strcmp(plan->meta[i].key, TSR_TREE_KEY) == 0)
			continue;
		r.nvalues++;
		r.nbytes += quoted_nbytes(k, plan->meta[i].key);
		/* That of a packed file is made of its tensors. */
		if (value)
			r.nbytes += quoted_nbytes(k, value);
	}
	if (plan->packed) {
		r.nbytes += PACKED_ONCE + 21 * plan->packed->norder;
		r.npacked += 32 + plan->packed->norder;
	}
	return r;
}

static struct room room_of_array(struct cutting *k, const struct tsr_st_entry *array)
{
	struct tsr_st_entry last = *array;
	struct room r = { .nvalues = 6 + array->rank };

	last.offset = k->data_nbytes - array->nbytes;
	k->entry.nbytes = 0;
	tsr_st_put_entry(&last, &k->entry);
	r.nbytes = k->entry.nbytes + 1 + (k->w->plan.coded != TSR_CODED_NONE ? CODED_MORE : 0);
	return r;
}

/* What the packed file may say of a tensor, as text in the header: with its quotes escaped. */
static struct room room_of_packed(struct cutting *k, const struct tsr_tensor *t)
{
	struct room r = { .npacked = PACKED_VALUES + t->rank };

	k->entry.nbytes = 0;
	tsr_packed_put_tensor(t, UINT32_MAX, false, true, &k->entry);
	tsr_packed_put_coding(t, &k->entry);
	if (!k->entry.failed)
		r.nbytes = quoted_nbytes(k, k->entry.bytes) + PACKED_FIGURES;
	return r;
}

/* The tensor whose arrays begin at @first: what it takes, and where they end. */
static size_t end_of_tensor(struct cutting *k, size_t first, struct room *room, uint64_t *nbytes)
{
	const struct tsr_writer_plan *plan = &k->w->plan;
	const struct tsr_st_entry *a = k->w->arrays;
	const size_t tensor = TSR_TAG_TENSOR(a[first].tag);
	size_t end = first;

	*room = (struct room){ .nbytes = 0 };
	*nbytes = 0;
	while (end < plan->narrays && TSR_TAG_TENSOR(a[end].tag) == tensor) {
		const struct room one = room_of_array(k, &a[end]);

		add(room, &one);
		*nbytes += a[end++].nbytes;
	}
	if (plan->packed) {
		const struct room one = room_of_packed(k, &plan->packed->tensors[tensor]);

		add(room, &one);
	}
	return end;
}

/*
 * The end of the file that starts with array @first.  After a tensor that is too large by itself, empty
 * ones still fit, except in packed files.
 */
static size_t end_of_file(struct cutting *k, size_t first, bool *by_header)
{
	const struct tsr_writer_plan *plan = &k->w->plan;
	const uint64_t max = plan->max_shard_nbytes;
	struct room all = room_of_meta(k, !first), more;
	uint64_t nbytes = 0, more_nbytes;
	size_t i = first;

	while (i < plan->narrays) {
		const size_t end = end_of_tensor(k, i, &more, &more_nbytes);
		const uint64_t left = nbytes < max ? max - nbytes : 0;

		add(&all, &more);
		if (max && i > first && (more_nbytes > left || (plan->packed && nbytes > max)))
			break;
		if (i > first && !fits(k, &all)) {
			*by_header = true;
			break;
		}
		nbytes += more_nbytes;
		i = end;
	}
	return i;
}

static enum tsr_status cut(struct cutting *k, struct tsr_shard_cuts *cuts, struct tsr_err *err)
{
	const char *path = k->w->plan.path;
	size_t at = 0;

	*cuts = (struct tsr_shard_cuts){ .by_header = cuts->by_header };
	do {
		TSR_TRY(TSR_ARENA_GROW(&cuts->ends, cuts->nfiles, k->w->arena, err, path));
		at = end_of_file(k, at, &cuts->by_header);
		cuts->ends[cuts->nfiles++] = at;
	} while (at < k->w->plan.narrays);
	return k->entry.failed || k->quoted.failed ? tsr_fail_nomem(err, path) : TSR_OK;
}

enum tsr_status tsr_shards_cut(const struct tsr_writer *w, struct tsr_shard_cuts *ret,
			       struct tsr_err *err)
{
	struct cutting k = { .w = w, .share = 1 };
	enum tsr_status status;

	*ret = (struct tsr_shard_cuts){ .ends = NULL };
	for (size_t i = 0; i < w->plan.narrays; i++)
		k.data_nbytes += w->arrays[i].nbytes;
	status = cut(&k, ret, err);
	if (status == TSR_OK && ret->by_header) {
		k.share = SEVERAL;
		status = cut(&k, ret, err);
	}
	tsr_text_free(&k.entry);
	tsr_text_free(&k.quoted);
	return status;
}
