/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of coding the planes of a state on a GPU, in device time. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "bench/bench_entropy.h"
#include "bench/bench_timing_gpu.h"
#include "entropy/entropy.h"

/* Parameters generated on the CPU; the rest of a plane repeats them. */
#define PATTERN_ELEMENTS (UINT64_C(1) << 24)

enum action { COPY, ENCODE, DECODE };

struct bench {
	struct tsr_bench_gpu on;
	enum action action;
	struct tsr_entropy_kind kind;
	uint64_t n, npieces, room; /* elements; pieces; bytes from one coded piece to the next */
	void *plain, *back; /* in device memory, as all that follow */
	unsigned char *coded, *packed; /* pieces that are `room` apart, and one behind the other */
	uint32_t *nbytes;
	uint64_t *begin, *damaged;
};

static enum tsr_status append(void *ctx, struct tsr_err *err)
{
	struct bench *b = ctx;
	struct tsr_gpu_stream *stream = b->on.stream;

	if (b->action == ENCODE)
		return tsr_gpu_entropy_encode(stream, b->kind, b->plain, b->n, b->coded, b->nbytes,
					      err);
	if (b->action == DECODE)
		return tsr_gpu_entropy_decode(stream, b->kind, b->packed, b->begin, b->n, b->back,
					      b->damaged, err);
	return tsr_gpu_copy(stream, b->back, b->plain, b->n * b->kind.width, err);
}

static enum tsr_status measure(struct bench *b, enum action action, double *seconds_ret,
			       struct tsr_err *err)
{
	b->action = action;
	return tsr_bench_time_gpu(&b->on, append, b, seconds_ret, err);
}

static enum tsr_status allocate(struct bench *b, uint64_t nbytes, void *ret, struct tsr_err *err)
{
	return tsr_gpu_alloc(b->on.gpu, nbytes, "benchmark planes", ret, err);
}

static enum tsr_status prepare(struct bench *b, uint64_t elements, struct tsr_err *err)
{
	const uint64_t npieces = tsr_entropy_pieces(elements);
	const uint64_t room = npieces *
			      tsr_entropy_bound(tsr_entropy_kind(TSR_BF16), TSR_ENTROPY_PIECE);

	TSR_TRY(allocate(b, 2 * elements, &b->plain, err));
	TSR_TRY(allocate(b, 2 * elements, &b->back, err));
	TSR_TRY(allocate(b, room, &b->coded, err));
	TSR_TRY(allocate(b, room, &b->packed, err));
	TSR_TRY(allocate(b, npieces * sizeof(*b->nbytes), &b->nbytes, err));
	TSR_TRY(allocate(b, (npieces + 1) * sizeof(*b->begin), &b->begin, err));
	return allocate(b, sizeof(*b->damaged), &b->damaged, err);
}

static void clean_up(struct bench *b)
{
	void *const memory[] = { b->plain,  b->back,  b->coded,	 b->packed,
				 b->nbytes, b->begin, b->damaged };

	for (unsigned i = 0; i < sizeof(memory) / sizeof(*memory); i++)
		tsr_gpu_free(b->on.gpu, memory[i]);
	tsr_bench_gpu_close(&b->on);
}

/* The pattern over and over, to the end of the plane. */
static enum tsr_status put_pattern(struct bench *b, const struct tsr_bench_state_plane *pattern,
				   struct tsr_err *err)
{
	const uint64_t n = pattern->n < b->n ? pattern->n : b->n;
	const uint64_t made = n * b->kind.width, all = b->n * b->kind.width;

	TSR_TRY(tsr_gpu_put(b->on.stream, b->plain, pattern->plain, made, err));
	for (uint64_t have = made; have < all; have *= 2)
		TSR_TRY(tsr_gpu_copy(b->on.stream, (char *)b->plain + have, b->plain,
				     all - have < have ? all - have : have, err));
	return tsr_gpu_sync(b->on.stream, err);
}

/* Put the coded pieces behind each other, as in a file; *nbytes_ret: of all. */
static enum tsr_status pack_pieces(struct bench *b, uint32_t *nbytes, uint64_t *begin,
				   uint64_t *nbytes_ret, struct tsr_err *err)
{
	const uint64_t none = UINT64_MAX;

	TSR_TRY(tsr_gpu_get(b->on.stream, nbytes, b->nbytes, b->npieces * sizeof(*nbytes), err));
	TSR_TRY(tsr_gpu_sync(b->on.stream, err));
	for (uint64_t i = 0; i < b->npieces; i++) {
		TSR_TRY(tsr_gpu_copy(b->on.stream, b->packed + begin[i], b->coded + i * b->room,
				     nbytes[i], err));
		begin[i + 1] = begin[i] + nbytes[i];
	}
	*nbytes_ret = begin[b->npieces];
	TSR_TRY(tsr_gpu_put(b->on.stream, b->begin, begin, (b->npieces + 1) * sizeof(*begin), err));
	TSR_TRY(tsr_gpu_put(b->on.stream, b->damaged, &none, sizeof(none), err));
	return tsr_gpu_sync(b->on.stream, err);
}

static enum tsr_status pack(struct bench *b, uint64_t *nbytes_ret, struct tsr_err *err)
{
	uint32_t *nbytes = malloc(b->npieces * sizeof(*nbytes));
	uint64_t *begin = calloc(b->npieces + 1, sizeof(*begin));
	enum tsr_status status;

	status = nbytes && begin ? pack_pieces(b, nbytes, begin, nbytes_ret, err)
				 : tsr_fail_nomem(err, "benchmark planes");
	free(nbytes);
	free(begin);
	return status;
}

static enum tsr_status check_decoded(struct bench *b, struct tsr_err *err)
{
	uint64_t damaged;

	TSR_TRY(tsr_gpu_get(b->on.stream, &damaged, b->damaged, sizeof(damaged), err));
	TSR_TRY(tsr_gpu_sync(b->on.stream, err));
	if (damaged == UINT64_MAX)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT, "benchmark: a coded piece was not decoded");
}

static enum tsr_status compare_pieces(const struct bench *b, uint64_t *compared_ret,
				      struct tsr_err *err)
{
	const uint64_t n = b->npieces < TSR_BENCH_COMPARED ? b->npieces : TSR_BENCH_COMPARED;

	for (uint64_t i = 0; i < n; i++) {
		const uint64_t first = i * TSR_ENTROPY_PIECE, left = b->n - first;
		const uint64_t at = first * b->kind.width;
		struct tsr_bench_coded piece = {
			.plain = (char *)b->plain + at,
			.coded = b->coded + i * b->room,
			.back = (char *)b->back + at,
			.n = left < TSR_ENTROPY_PIECE ? (size_t)left : TSR_ENTROPY_PIECE,
		};
		uint32_t nbytes;

		TSR_TRY(tsr_gpu_get(b->on.stream, &nbytes, &b->nbytes[i], sizeof(nbytes), err));
		TSR_TRY(tsr_gpu_sync(b->on.stream, err));
		piece.nbytes = nbytes;
		TSR_TRY(tsr_bench_compare_coded(&b->on, b->kind, NULL, &piece, i, err));
	}
	*compared_ret = n;
	return TSR_OK;
}

static enum tsr_status measure_plane(struct bench *b, unsigned index,
				     const struct tsr_bench_state_plane *pattern,
				     struct tsr_bench_plane *ret, struct tsr_err *err)
{
	const struct tsr_bench_plane_kind *kind = &tsr_bench_plane_kinds[index];
	uint64_t nbytes = 0, compared = 0;
	double encode, decode;

	b->kind = tsr_entropy_kind(kind->dtype);
	b->room = tsr_entropy_bound(b->kind, TSR_ENTROPY_PIECE);
	TSR_TRY(put_pattern(b, pattern, err));
	TSR_TRY(measure(b, ENCODE, &encode, err));
	TSR_TRY(pack(b, &nbytes, err));
	TSR_TRY(measure(b, DECODE, &decode, err));
	TSR_TRY(check_decoded(b, err));
	TSR_TRY(compare_pieces(b, &compared, err));
	*ret = (struct tsr_bench_plane){
		.name = kind->name,
		.elements = b->n,
		.bytes_per_element = b->kind.width,
		.coded_bytes_per_element = (double)nbytes / (double)b->n,
		.encode_gbps = 1e-9 * (double)(b->n * b->kind.width) / encode,
		.decode_gbps = 1e-9 * (double)(b->n * b->kind.width) / decode,
		.compared = compared,
	};
	return TSR_OK;
}

/* Variances once more, with contexts. */
static enum tsr_status measure_codes(const struct bench *b, const struct tsr_bench_state *state,
				     struct tsr_bench_entropy *ret, struct tsr_err *err)
{
	const struct tsr_bench_state_plane *variances = &state->planes[TSR_BENCH_VARIANCES];
	struct tsr_bench_plane *row = ret->planes + TSR_BENCH_PLANES;

	row->name = "variances, contexts";
	return variances->n ? tsr_bench_codes_gpu(&b->on, variances, b->n, row, err) : TSR_OK;
}

static enum tsr_status run_bench(struct bench *b, const struct tsr_bench_state *state,
				 struct tsr_bench_entropy *ret, struct tsr_err *err)
{
	double seconds;

	b->kind = tsr_entropy_kind(TSR_BF16);
	TSR_TRY(measure(b, COPY, &seconds, err));
	ret->copy_gbps = 1e-9 * 2 * (double)(b->n * b->kind.width) / seconds;
	for (unsigned i = 0; i < TSR_BENCH_PLANES; i++) {
		const struct tsr_bench_state_plane *pattern = &state->planes[i];

		ret->planes[i].name = tsr_bench_plane_kinds[i].name;
		if (pattern->n)
			TSR_TRY(measure_plane(b, i, pattern, &ret->planes[i], err));
	}
	return measure_codes(b, state, ret, err);
}

enum tsr_status tsr_bench_entropy_gpu(unsigned index, const char *path, uint64_t elements,
				      unsigned repeats, const struct tsr_run *run,
				      struct tsr_bench_entropy *ret, struct tsr_err *err)
{
	const uint64_t made = elements < PATTERN_ELEMENTS ? elements : PATTERN_ELEMENTS;
	struct bench b = { .n = elements, .npieces = tsr_entropy_pieces(elements) };
	struct tsr_bench_state state = { 0 };
	enum tsr_status status;
	int prefix;

	*ret = (struct tsr_bench_entropy){ .threads = 0 };
	prefix = snprintf(ret->device, sizeof(ret->device), "cuda:%u, ", index);
	status = tsr_bench_gpu_open(&b.on, index, repeats, run, err);
	if (status == TSR_OK)
		status = tsr_gpu_describe(index, ret->device + prefix,
					  sizeof(ret->device) - (size_t)prefix, err);
	if (status == TSR_OK)
		status = tsr_bench_state_get(path, made, run, &state, err);
	if (status == TSR_OK)
		status = prepare(&b, elements, err);
	if (status == TSR_OK)
		status = run_bench(&b, &state, ret, err);
	tsr_bench_state_free(&state);
	clean_up(&b);
	return status;
}
