/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of deltas: coded by what differs from a base where that takes fewer bytes. */
#include "container/delta/delta_write.h"

#include "base/fail.h"
#include "base/little_endian.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/coded/deltas.h"

struct tsr_delta_scratch *tsr_delta_scratch_new(void)
{
	struct tsr_delta_scratch *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	s->coded = malloc(tsr_coded_piece_max());
	if (s->coded)
		return s;
	free(s);
	return NULL;
}

void tsr_delta_scratch_free(struct tsr_delta_scratch *s)
{
	if (s)
		free(s->coded);
	free(s);
}

/* The elements of a plane that the base has in this place. */
static enum tsr_status read_old(const struct tsr_delta_piece *p, const struct tsr_tensor *old,
				unsigned plane, unsigned char *to, struct tsr_err *err)
{
	return tsr_array_read(p->base, &p->base->arrays[old->plane[plane]],
			      tsr_tile_plane_offset(p->tensor, plane, &p->tile),
			      tsr_tile_plane_nbytes(p->tensor, plane, &p->tile), to, err);
}

/* What was just coded in the scratch is the piece. */
static void take(struct tsr_delta_scratch *s, const struct tsr_delta_piece *p, size_t nbytes)
{
	unsigned char *const coded = *p->coded;

	*p->coded = s->coded;
	*p->coded_nbytes = nbytes;
	s->coded = coded;
}

enum tsr_status tsr_delta_code(struct tsr_delta_scratch *s, const struct tsr_delta_piece *p,
			       struct tsr_err *err)
{
	const struct tsr_tensor *old = tsr_delta_old(p->base, p->tensor, p->plane);
	struct tsr_entropy_old from = { .kind = tsr_delta_kind(p->tensor, p->plane, false),
					.plane = s->old };
	size_t nbytes;

	if (!old || !from.kind.width || !p->nbytes)
		return TSR_OK;
	TSR_TRY(read_old(p, old, p->plane, s->old, err));
	if (from.kind.of == TSR_DIFFERENCE_VARIANCES) {
		TSR_TRY(read_old(p, old, 1, s->old + TSR_PIECE_ELEMENTS, err));
		tsr_coded_put_scales(&p->tensor->coding, p->tile.first, s->old + TSR_PIECE_ELEMENTS,
				     s->scales, &from);
	}
	nbytes = tsr_entropy_encode_differences(p->entropy, &from, p->plain, NULL,
						p->nbytes / from.kind.width, s->coded,
						*p->coded_nbytes - 1);
	if (nbytes)
		take(s, p, nbytes);
	return TSR_OK;
}

/* What the other plane takes apart. */
static size_t size_of_other(struct tsr_delta_scratch *s, const struct tsr_delta_piece *p, size_t n,
			    const unsigned char *other)
{
	const struct tsr_entropy_kind kind = tsr_coded_kind(
		tsr_plane_dtype(&p->tensor->coding, !p->plane));

	return tsr_entropy_encode(p->entropy, kind, other, n, s->coded);
}

enum tsr_status tsr_delta_code_both(struct tsr_delta_scratch *s, const struct tsr_delta_piece *p,
				    struct tsr_err *err)
{
	const struct tsr_tensor *old = tsr_delta_old(p->base, p->tensor, 1);
	const struct tsr_difference_kind kind = tsr_delta_kind(p->tensor, 0, true);
	const size_t n = (size_t)p->tile.n, at = n * kind.width;
	const struct tsr_entropy_old from = { .kind = kind,
					      .plane = s->old,
					      .correction = s->old + at };
	size_t apart, nbytes;

	if (!n)
		return TSR_OK;
	TSR_TRY(read_old(p, old, 0, s->old, err));
	TSR_TRY(read_old(p, old, 1, s->old + at, err));
	apart = *p->coded_nbytes + size_of_other(s, p, n, p->plane ? s->both : s->both + at);
	nbytes = tsr_entropy_encode_differences(p->entropy, &from, s->both, s->both + at, n,
						s->coded, apart - 5);
	atomic_store(p->outcome, nbytes ? TSR_DELTA_TOGETHER : TSR_DELTA_APART);
	if (nbytes && p->plane == 0)
		take(s, p, nbytes);
	if (nbytes && p->plane == 1) {
		tsr_put_le(*p->coded, TSR_ENTROPY_WITHIN, 4);
		*p->coded_nbytes = 4;
	}
	return TSR_OK;
}
