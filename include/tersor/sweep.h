/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps of FP32 bit patterns through codecs. */
#ifndef TERSOR_SWEEP_H
#define TERSOR_SWEEP_H

#include <stdint.h>

#include "tersor/api.h"
#include "tersor/codec.h"
#include "tersor/run.h"
#include "tersor/status.h"

/* Exponent fields of FP32; the sign is folded. */
#define TSR_SWEEP_ROWS 256

/**
 * struct tsr_sweep_row - What became of the bit patterns of one exponent field
 *
 * All members but the maxima add up; see tsr_sweep_row_add().
 */
struct tsr_sweep_row {
	uint64_t count; /* bit patterns */
	uint64_t exact; /* came back with the same bits */
	uint64_t overflow; /* finite, came back infinite */
	uint64_t nan_in; /* were NaN */
	uint64_t nan_out; /* came back NaN */
	uint64_t compared; /* finite and not 0, came back finite: those with a relative error */
	uint64_t rel_sum[2]; /* of |x - y| / |x|, in units of 2^-47; low word, high word */
	float max_rel;
	uint32_t max_ulp; /* of those that are and came back finite */
};

/* Add a row to another one: sums are added, maxima are kept. */
TSR_API void tsr_sweep_row_add(struct tsr_sweep_row *into, const struct tsr_sweep_row *from);

/* The mean relative error of the values compared; 0 if there are none. */
TSR_API double tsr_sweep_row_mean(const struct tsr_sweep_row *row);

/* What became of the range in one codec. */
struct tsr_sweep_result {
	const struct tsr_codec *codec;
	struct tsr_sweep_row rows[TSR_SWEEP_ROWS]; /* by exponent field */
};

/* Rows 0 to 254, finite values, in one; row 255 holds infinities and NaN. */
TSR_API struct tsr_sweep_row tsr_sweep_finite(const struct tsr_sweep_result *r);

/* The outcome of tsr_sweep_run(). */
struct tsr_sweep {
	uint32_t first, last;
	unsigned ncodecs;
	struct tsr_sweep_result *results; /* in the order of the codecs that were given */
};

/**
 * tsr_sweep_run() - Encode and decode every FP32 bit pattern of a range, and compare
 * @codecs:  @ncodecs codecs without scales
 * @first:   first bit pattern
 * @last:    last bit pattern, not below @first
 * @ret:     out: to be freed with tsr_sweep_free(); untouched on failure
 *
 * Every pattern goes through every codec.  Results are sums of integers and maxima: they do not
 * depend on threads, SIMD level or the order of work, and those of two ranges add up to that of
 * both.  Stochastic codecs draw with seed 0, stream 0 and the pattern as the element's index.
 * Progress counts 4 bytes per pattern and codec.
 *
 * Return: TSR_OK; TSR_E_USAGE for an inverted range or a codec with scales; TSR_E_CANCELLED;
 * TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_sweep_run(const struct tsr_codec *const *codecs, unsigned ncodecs,
				      uint32_t first, uint32_t last, const struct tsr_run *run,
				      struct tsr_sweep **ret, struct tsr_err *err);

/**
 * tsr_sweep_run_gpu() - tsr_sweep_run() on GPUs, which share the range
 * @gpus:  @ngpus indices, each as in "cuda:N"
 *
 * The figures are the same.  Ends of the range that are too short for a GPU are swept on the CPU.
 *
 * Return: as tsr_sweep_run() and tsr_gpu_open().
 */
TSR_API enum tsr_status tsr_sweep_run_gpu(const struct tsr_codec *const *codecs, unsigned ncodecs,
					  uint32_t first, uint32_t last, const unsigned *gpus,
					  unsigned ngpus, const struct tsr_run *run,
					  struct tsr_sweep **ret, struct tsr_err *err);

/* NULL is allowed. */
TSR_API void tsr_sweep_free(struct tsr_sweep *s);

#endif
