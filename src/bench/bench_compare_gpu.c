/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark's kernels have coded, compared with the CPU's bytes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "bench/bench_entropy.h"
#include "bench/bench_timing_gpu.h"

struct buffers {
	struct tsr_entropy *entropy;
	unsigned char *plain, *back, *coded, *expected;
};

static enum tsr_status get(const struct tsr_bench_gpu *on, const struct tsr_bench_coded *piece,
			   unsigned width, const struct buffers *b, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_get(on->stream, b->plain, piece->plain, piece->n * width, err));
	TSR_TRY(tsr_gpu_get(on->stream, b->back, piece->back, piece->n * width, err));
	TSR_TRY(tsr_gpu_get(on->stream, b->coded, piece->coded, piece->nbytes, err));
	return tsr_gpu_sync(on->stream, err);
}

static enum tsr_status compare(const struct tsr_bench_gpu *on, struct tsr_entropy_kind kind,
			       const struct tsr_entropy_variance *variance,
			       const struct tsr_bench_coded *piece, uint64_t number,
			       const struct buffers *b, struct tsr_err *err)
{
	size_t nbytes;

	TSR_TRY(get(on, piece, kind.width, b, err));
	nbytes = variance ? tsr_entropy_encode_codes(b->entropy, variance, b->plain, piece->n,
						     b->expected)
			  : tsr_entropy_encode(b->entropy, kind, b->plain, piece->n, b->expected);
	if (nbytes != piece->nbytes || memcmp(b->coded, b->expected, nbytes))
		return tsr_fail(err, TSR_E_FORMAT,
				"benchmark: coded piece %" PRIu64 " does not have the CPU's bytes",
				number + 1);
	if (memcmp(b->plain, b->back, piece->n * kind.width))
		return tsr_fail(err, TSR_E_FORMAT,
				"benchmark: piece %" PRIu64 " is decoded to other elements",
				number + 1);
	return TSR_OK;
}

enum tsr_status tsr_bench_compare_coded(const struct tsr_bench_gpu *on,
					struct tsr_entropy_kind kind,
					const struct tsr_entropy_variance *variance,
					const struct tsr_bench_coded *piece, uint64_t number,
					struct tsr_err *err)
{
	const size_t room = tsr_entropy_bound(kind, piece->n), nbytes = piece->n * kind.width;
	struct buffers b = { .entropy = tsr_entropy_new(kind.width),
			     .plain = malloc(nbytes),
			     .back = malloc(nbytes),
			     .coded = malloc(room),
			     .expected = malloc(room) };
	enum tsr_status status;

	if (b.entropy && b.plain && b.back && b.coded && b.expected && piece->nbytes <= room)
		status = compare(on, kind, variance, piece, number, &b, err);
	else
		status = tsr_fail_nomem(err, "benchmark planes");
	tsr_entropy_free(b.entropy);
	free(b.plain);
	free(b.back);
	free(b.coded);
	free(b.expected);
	return status;
}
