/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of coding the planes of a state, piece by piece. */
#include "base/fail.h"
#include "bench/bench_engine.h"
#include "bench/bench_state.h"

/* Parameters that are made for a GPU at most; planes repeat them. */
#define MADE_ELEMENTS (UINT64_C(1) << 24)

/* Pieces of a plane coded on a GPU that are compared with the CPU's, at most. */
#define COMPARED 64u

struct coding {
	struct tsr_bench_engine e;
	const struct tsr_bench_plane *plane;
	bool decodes; /* else it encodes */
	uint64_t copies, n; /* of the plane; elements of all of them, with what is between pieces */
	uint64_t room; /* bytes from one coded piece to the next */
	unsigned npieces;
	struct tsr_gpu_piece *pieces; /* in host memory */
	/* Where the work is done: */
	struct tsr_gpu_piece *there;
	unsigned char *plain, *coded;
	uint16_t *scales;
	uint64_t *damaged;
};

/* --- Runs ------------------------------------------------------------------------------------ */

static enum tsr_status open_job(void *ctx, const struct tsr_run *run, void *scratch,
				struct tsr_err *err)
{
	struct tsr_entropy **e = scratch;

	(void)ctx;
	(void)run;
	*e = tsr_entropy_new(2);
	return *e ? TSR_OK : tsr_fail_nomem(err, "coding planes");
}

static void close_job(void *ctx, void *scratch)
{
	struct tsr_entropy **e = scratch;

	(void)ctx;
	tsr_entropy_free(*e);
}

static uint32_t encode_piece(struct tsr_entropy *e, struct tsr_entropy_kind kind,
			     const struct tsr_gpu_piece *p, void *coded)
{
	if (p->variance.scales.scales)
		return (uint32_t)tsr_entropy_encode_codes(e, &p->variance, p->plain, p->n, coded);
	return (uint32_t)tsr_entropy_encode(e, kind, p->plain, p->n, coded);
}

static enum tsr_status code_piece(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct coding *b = ctx;
	struct tsr_entropy **e = scratch;
	struct tsr_gpu_piece *p = &b->there[job];
	const char *wrong = NULL;

	if (!b->decodes)
		p->nbytes = encode_piece(*e, b->plane->kind, p, p->coded);
	else if (p->variance.scales.scales)
		wrong = tsr_entropy_decode_codes(*e, &p->variance, p->coded, p->nbytes, p->plain,
						 p->n);
	else
		wrong = tsr_entropy_decode(*e, b->plane->kind, p->coded, p->nbytes, p->plain, p->n);
	return wrong ? tsr_fail(err, TSR_E_FORMAT, "benchmark: a coded piece: %s", wrong) : TSR_OK;
}

static enum tsr_status append(void *ctx, struct tsr_err *err)
{
	struct coding *b = ctx;
	const struct tsr_gpu_coding coding = { b->plane->kind, b->plane->nscales > 0 };

	if (b->decodes)
		return tsr_gpu_decode_pieces(b->e.stream, coding, b->there, b->npieces, b->damaged,
					     err);
	return tsr_gpu_encode_pieces(b->e.stream, coding, b->there, b->npieces, NULL, err);
}

/* Copying within a GPU, which all planes are compared with. */
static enum tsr_status append_copy(void *ctx, struct tsr_err *err)
{
	struct coding *b = ctx;

	return tsr_gpu_copy(b->e.stream, b->coded, b->plain, b->n * b->plane->kind.width, err);
}

/* Speed in bytes of the plane. */
static enum tsr_status measure(struct coding *b,
			       enum tsr_status (*on_gpu)(void *, struct tsr_err *),
			       double *gbps_ret, struct tsr_err *err)
{
	const struct tsr_bench_work work = { { .njobs = b->npieces,
					       .scratch_nbytes = sizeof(struct tsr_entropy *),
					       .open = open_job,
					       .close = close_job,
					       .work = code_piece,
					       .ctx = b },
					     on_gpu };
	double seconds;

	TSR_TRY(tsr_bench_time(&b->e, &work, &seconds, err));
	*gbps_ret = 1e-9 * (double)(b->n * b->plane->kind.width) / seconds;
	return TSR_OK;
}

/* --- What is coded --------------------------------------------------------------------------- */

/* Piece number @i of all copies. */
static struct tsr_gpu_piece describe(const struct coding *b, unsigned i)
{
	const struct tsr_bench_plane *p = b->plane;
	const struct tsr_bench_piece *from = &p->pieces[i % p->npieces];
	const uint64_t copy = i / p->npieces, at = copy * p->room + from->at;
	struct tsr_gpu_piece piece = { .variance = from->variance,
				       .plain = b->plain + at * p->kind.width,
				       .coded = b->coded + i * b->room,
				       .n = (uint32_t)from->n };

	if (piece.variance.scales.scales)
		piece.variance.scales.scales = b->scales + copy * p->nscales +
					       (from->variance.scales.scales - p->scales);
	return piece;
}

static enum tsr_status allocate(struct coding *b, struct tsr_err *err)
{
	const struct {
		void *array_ret;
		uint64_t nbytes;
	} arrays[] = { { &b->there, b->npieces * sizeof(*b->there) },
		       { &b->plain, b->n * b->plane->kind.width },
		       { &b->coded, b->npieces * b->room },
		       { &b->scales, b->copies * b->plane->nscales * sizeof(*b->scales) },
		       { &b->damaged, sizeof(*b->damaged) } };

	TSR_TRY(TSR_NEW(&b->pieces, b->npieces, err, "a benchmark's pieces"));
	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		TSR_TRY(tsr_bench_alloc(&b->e, arrays[i].nbytes, arrays[i].array_ret, err));
	return TSR_OK;
}

static enum tsr_status prepare(struct coding *b, uint64_t elements, struct tsr_err *err)
{
	const struct tsr_bench_plane *p = b->plane;
	const uint64_t nbytes = p->room * p->kind.width, undamaged = UINT64_MAX;

	b->decodes = false;
	b->copies = b->e.gpu && elements > p->n ? elements / p->n : 1;
	b->n = b->copies * p->room;
	b->npieces = (unsigned)(b->copies * p->npieces);
	b->room = tsr_entropy_bound(p->kind, TSR_ENTROPY_PIECE);
	TSR_TRY(allocate(b, err));
	for (unsigned i = 0; i < b->npieces; i++)
		b->pieces[i] = describe(b, i);
	TSR_TRY(tsr_bench_put(&b->e, b->there, b->pieces, b->npieces * sizeof(*b->pieces), err));
	for (uint64_t i = 0; i < b->copies; i++) {
		TSR_TRY(tsr_bench_put(&b->e, b->plain + i * nbytes, p->plain, nbytes, err));
		TSR_TRY(tsr_bench_put(&b->e, b->scales + i * p->nscales, p->scales,
				      p->nscales * sizeof(*p->scales), err));
	}
	return tsr_bench_put(&b->e, b->damaged, &undamaged, sizeof(undamaged), err);
}

/* What was coded is decoded to where it was; a GPU is checked, so it is no longer there. */
static enum tsr_status turn(struct coding *b, uint64_t *nbytes_ret, struct tsr_err *err)
{
	b->decodes = true;
	TSR_TRY(tsr_bench_get(&b->e, b->pieces, b->there, b->npieces * sizeof(*b->pieces), err));
	for (unsigned i = 0; i < b->npieces; i++)
		*nbytes_ret += b->pieces[i].nbytes;
	return b->e.gpu ? tsr_gpu_zero(b->e.stream, b->plain, b->n * b->plane->kind.width, err)
			: TSR_OK;
}

/* --- Comparing with the CPU ------------------------------------------------------------------ */

/* Piece number @i of the first copy became the CPU's bytes, and itself again; @room: it and twice coded. */
static enum tsr_status compare_piece(const struct coding *b, unsigned i, struct tsr_entropy *e,
				     unsigned char *room, struct tsr_err *err)
{
	struct tsr_gpu_piece piece = b->pieces[i];
	const uint64_t nbytes = piece.n * b->plane->kind.width;
	const struct tsr_bench_piece *from = &b->plane->pieces[i];
	unsigned char *const before = b->plane->plain + from->at * b->plane->kind.width;
	unsigned char *coded = room + TSR_ENTROPY_PIECE * b->plane->kind.width;

	TSR_TRY(tsr_bench_get(&b->e, room, piece.plain, nbytes, err));
	TSR_TRY(tsr_bench_get(&b->e, coded, piece.coded, b->room, err));
	piece.plain = before;
	piece.variance = from->variance;
	if (encode_piece(e, b->plane->kind, &piece, coded + b->room) != piece.nbytes ||
	    memcmp(coded, coded + b->room, piece.nbytes) != 0)
		return tsr_fail(err, TSR_E_FORMAT,
				"benchmark: coded piece %u does not have the CPU's bytes", i + 1);
	if (memcmp(before, room, nbytes) != 0)
		return tsr_fail(err, TSR_E_FORMAT,
				"benchmark: piece %u is decoded to other elements", i + 1);
	return TSR_OK;
}

/* On a GPU: every piece was decoded, and the first ones are compared. */
static enum tsr_status check(const struct coding *b, uint64_t *compared_ret, struct tsr_err *err)
{
	const size_t nbytes = TSR_ENTROPY_PIECE * b->plane->kind.width + 2 * b->room;
	struct tsr_entropy *e = tsr_entropy_new(b->plane->kind.width);
	unsigned char *room = malloc(nbytes);
	uint64_t damaged = 0;
	enum tsr_status status = e && room ? tsr_bench_get(&b->e, &damaged, b->damaged,
							   sizeof(damaged), err)
					   : tsr_fail_nomem(err, "a benchmark's pieces");

	if (status == TSR_OK && damaged != UINT64_MAX)
		status = tsr_fail(err, TSR_E_FORMAT, "benchmark: a coded piece was not decoded");
	for (unsigned i = 0; i < b->plane->npieces && i < COMPARED && status == TSR_OK; i++) {
		status = compare_piece(b, i, e, room, err);
		++*compared_ret;
	}
	free(room);
	tsr_entropy_free(e);
	return status;
}

/* --- All planes ------------------------------------------------------------------------------ */

static enum tsr_status measure_plane(struct coding *b, uint64_t elements, struct tsr_bench *ret,
				     struct tsr_err *err)
{
	struct tsr_bench_row *row = tsr_bench_add(ret, TSR_BENCH_PLANES, b->plane->name);
	uint64_t nbytes = 0;

	TSR_TRY(prepare(b, elements, err));
	if (b->e.gpu && !(ret->copy_gbps > 0)) {
		TSR_TRY(measure(b, append_copy, &ret->copy_gbps, err));
		ret->copy_gbps *= 2;
	}
	TSR_TRY(measure(b, append, &row->gbps[0], err));
	TSR_TRY(turn(b, &nbytes, err));
	TSR_TRY(measure(b, append, &row->gbps[1], err));
	row->elements = b->copies * b->plane->n;
	row->bytes_per_element = b->plane->kind.width;
	row->coded_bytes_per_element = (double)nbytes / (double)row->elements;
	return b->e.gpu ? check(b, &row->compared, err) : TSR_OK;
}

enum tsr_status tsr_bench_planes(const struct tsr_bench_options *o, const struct tsr_run *run,
				 struct tsr_bench *ret, struct tsr_err *err)
{
	const bool repeated = o->gpu && o->elements > MADE_ELEMENTS;
	struct tsr_bench_state state = { 0 };
	struct coding b = { .plane = NULL };
	enum tsr_status status = tsr_bench_open(&b.e, o, run, ret, err);

	if (status == TSR_OK)
		status = tsr_bench_state_get(o->path, repeated ? MADE_ELEMENTS : o->elements, run,
					     &state, err);
	for (unsigned i = 0; i < TSR_BENCH_STATE_PLANES && status == TSR_OK; i++) {
		b.plane = &state.planes[i];
		if (b.plane->n)
			status = measure_plane(&b, o->elements, ret, err);
		free(b.pieces);
		b.pieces = NULL;
		tsr_bench_free_arrays(&b.e);
	}
	tsr_bench_state_free(&state);
	tsr_bench_close(&b.e);
	return status;
}
