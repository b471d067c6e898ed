/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that share memory in a way that no output keeps. */
#include "ckpt/shared_views.h"

#include "base/fail.h"
#include "base/order.h"
#include "ckpt/build.h"
#include "ckpt/layout.h"

/* The bytes of a file that an array lies in. */
struct extent {
	unsigned file;
	uint64_t start, end;
	bool dense; /* all of them are its own */
	const struct tsr_array *array;
};

/* False if the array has no place of its own: no elements, memory, or several chunks. */
static bool find_extent(const struct tsr_array *a, struct extent *e)
{
	const uint64_t item = tsr_dtype_bits(a->dtype) / 8;
	uint64_t last = 0;

	if (!a->nbytes || !item || a->memory || a->coded || (a->layout && a->layout->nchunks != 1))
		return false;
	*e = (struct extent){ a->file, a->offset, a->offset + a->nbytes, true, a };
	if (!a->layout)
		return true;
	for (unsigned i = 0; !a->layout->flat && i < a->rank; i++) {
		uint64_t reach;

		if (__builtin_mul_overflow(a->shape[i] - 1, a->layout->chunks->stride[i], &reach) ||
		    __builtin_add_overflow(last, reach, &last))
			return false;
	}
	if (a->layout->flat)
		last = a->numel - 1;
	e->file = a->layout->chunks->file;
	e->start = a->layout->chunks->offset;
	if (__builtin_mul_overflow(last + 1, item, &last) ||
	    __builtin_add_overflow(e->start, last, &e->end))
		return false;
	e->dense = last <= a->nbytes;
	return true;
}

/* Arrays are in the order of the checkpoint. */
TSR_COMPARE_BY(by_place, struct extent, TSR_ORDER(a->file, b->file),
	       tsr_order_then(TSR_ORDER(a->start, b->start), TSR_ORDER(a->array, b->array)))

/* How many share elements with one before them, and the first that does. */
static size_t count_shared(const struct extent *e, size_t n, const struct tsr_array **first_ret)
{
	uint64_t any = 0, dense = 0; /* where those before end */
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		if (!i || e[i].file != e[i - 1].file)
			any = dense = 0;
		if (e[i].start < (e[i].dense ? any : dense)) {
			*first_ret = count ? *first_ret : e[i].array;
			count++;
		}
		any = e[i].end > any ? e[i].end : any;
		if (e[i].dense)
			dense = e[i].end > dense ? e[i].end : dense;
	}
	return count;
}

enum tsr_status tsr_note_shared_views(struct tsr_checkpoint *c, struct tsr_err *err)
{
	TSR_OWNED(free) struct extent *e = NULL;
	const struct tsr_array *first = NULL;
	size_t n = 0, count;

	/* In a packed file two tensors share a plane, not memory. */
	if (c->packed)
		return TSR_OK;
	TSR_TRY(TSR_NEW(&e, c->narrays + 1, err, c->path));
	for (size_t i = 0; i < c->narrays; i++)
		n += find_extent(&c->arrays[i], &e[n]);
	qsort(e, n, sizeof(*e), by_place);
	count = count_shared(e, n, &first);
	if (!count)
		return TSR_OK;
	return tsr_build_note(
		c, err,
		"%s: tensor %.200s: shares its memory with another one under a different "
		"view, which no output keeps: they come apart (%zu in all)",
		c->path, first->name, count);
}
