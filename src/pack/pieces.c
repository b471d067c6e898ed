/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/pieces.h"

#include <stdlib.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"

/* Units of a tensor: elements, or bytes if it has no codec. */
static uint64_t units_of(const struct tsr_tensor *t)
{
	return t->coding.codec ? t->numel : tsr_tensor_nbytes(t);
}

static uint64_t units_per_piece(const struct tsr_tensor *t)
{
	if (!t->coding.codec)
		return TSR_PIECE_NBYTES;
	return TSR_PIECE_ELEMENTS / t->coding.group * t->coding.group;
}

enum tsr_status tsr_pieces_init(struct tsr_pieces *p, const struct tsr_checkpoint *c,
				struct tsr_err *err)
{
	uint64_t next = 0;

	p->c = c;
	p->start = calloc(c->ntensors + 1, sizeof(*p->start));
	if (!p->start)
		return tsr_fail_nomem(err, c->path);
	for (size_t i = 0; i < c->ntensors; i++) {
		const uint64_t units = units_of(&c->tensors[i]),
			       per = units_per_piece(&c->tensors[i]);

		p->start[i] = next;
		next += units ? units / per + (units % per != 0) : 1;
	}
	p->start[c->ntensors] = next;
	return TSR_OK;
}

void tsr_pieces_free(struct tsr_pieces *p)
{
	free(p->start);
	p->start = NULL;
}

uint64_t tsr_pieces_count(const struct tsr_pieces *p)
{
	return p->start[p->c->ntensors];
}

struct tsr_piece tsr_pieces_get(const struct tsr_pieces *p, uint64_t number)
{
	size_t low = 0, high = p->c->ntensors - 1;
	struct tsr_piece piece;
	uint64_t per, left;

	while (low < high) {
		const size_t mid = low + (high - low + 1) / 2;

		if (p->start[mid] <= number)
			low = mid;
		else
			high = mid - 1;
	}
	per = units_per_piece(&p->c->tensors[low]);
	piece.tensor = low;
	piece.first = (number - p->start[low]) * per;
	left = units_of(&p->c->tensors[low]) - piece.first;
	piece.n = (size_t)(left < per ? left : per);
	piece.last = number + 1 == p->start[low + 1];
	return piece;
}

uint64_t tsr_piece_plane_offset(const struct tsr_tensor *t, unsigned plane,
				const struct tsr_piece *p)
{
	return t->coding.codec ? tsr_plane_nbytes(&t->coding, plane, p->first) : p->first;
}

size_t tsr_piece_plane_nbytes(const struct tsr_tensor *t, unsigned plane, const struct tsr_piece *p)
{
	return t->coding.codec ? (size_t)tsr_plane_nbytes(&t->coding, plane, p->n) : p->n;
}

enum tsr_status tsr_piece_read(const struct tsr_checkpoint *c, const struct tsr_piece *p,
			       void *const plane[], struct tsr_err *err)
{
	const struct tsr_tensor *t = &c->tensors[p->tensor];

	for (unsigned i = 0; i < t->nplanes; i++)
		TSR_TRY(tsr_array_read(c, &c->arrays[t->plane[i]], tsr_piece_plane_offset(t, i, p),
				       tsr_piece_plane_nbytes(t, i, p), plane[i], err));
	return TSR_OK;
}
