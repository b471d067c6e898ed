/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of sweeps on the CPU, each once per SIMD level. */
#ifndef TSR_SWEEP_KERNELS_H
#define TSR_SWEEP_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/isa.h"
#include "base/scope.h"
#include "tersor/sweep.h"

/* Consecutive bit patterns with one exponent field and sign.  All about them fits the L1 cache. */
#define TSR_SWEEP_BATCH 512u

/* What lies between encoding and decoding, as wide as the values; and what comes back. */
struct tsr_sweep_batch {
	/* Longer than necessary: arrays that are a multiple of 4 KiB apart evict each other. */
	_Alignas(64) float x[TSR_SWEEP_BATCH + 48];
	float y[TSR_SWEEP_BATCH + 48];
	float rel[TSR_SWEEP_BATCH + 48];
	uint32_t plane[TSR_PLANES_MAX][TSR_SWEEP_BATCH + 80]; /* also room for packed planes */
	/* Computed once, by the first codec that needs it: narrow weights, decoded; random bits. */
	float bf16[TSR_SWEEP_BATCH + 48];
	float f16[TSR_SWEEP_BATCH + 48];
	uint16_t random[TSR_SWEEP_BATCH + 96];
	bool has_bf16, has_f16, has_random;
	uint32_t first; /* bits of x[0] */
};

/*
 * Encode and decode: fill in y for all of x, which are finite.  For codecs with loops that are faster
 * than those of the codec and give the same values; by the row of the codec, NULL for the others.
 */
typedef void tsr_sweep_trip_fn(struct tsr_sweep_batch *s, const struct tsr_codec *codec);
typedef tsr_sweep_trip_fn *const tsr_sweep_trip_table[];
TSR_ISA_DECLARE(tsr_sweep_trip_table, sweep_trips)

/* Add elements @first to @n - 1. */
typedef void tsr_sweep_tally_fn(struct tsr_sweep_batch *s, size_t first, size_t n,
				struct tsr_sweep_row *row);
TSR_ISA_DECLARE(tsr_sweep_tally_fn, sweep_tally)

/* Rows of zeros for these codecs: TSR_E_USAGE for an inverted range or a codec with scales. */
enum tsr_status tsr_sweep_new(const struct tsr_codec *const *codecs, unsigned ncodecs,
			      uint32_t first, uint32_t last, struct tsr_sweep **ret,
			      struct tsr_err *err);

/* Add all rows of a codec. */
static inline void tsr_sweep_rows_add(struct tsr_sweep_row *into, const struct tsr_sweep_row *from)
{
	for (unsigned e = 0; e < TSR_SWEEP_ROWS; e++)
		tsr_sweep_row_add(&into[e], &from[e]);
}

TSR_OWNED_BY(tsr_sweep_free, struct tsr_sweep)

#endif
