/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_SWEEP_KERNELS_H
#define TSR_SWEEP_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "tersor/sweep.h"

/*
 * A strip: consecutive bit patterns with one exponent field and sign.  Everything about one stays
 * in the L1 cache.
 */
#define TSR_SWEEP_STRIP 512u

/* What lies between encoding and decoding, as wide as the values; and what comes back. */
struct tsr_sweep_strip {
	/* Longer than they need be: arrays a multiple of 4 KiB apart get into each other's way. */
	_Alignas(64) float x[TSR_SWEEP_STRIP + 48];
	float y[TSR_SWEEP_STRIP + 48];
	float rel[TSR_SWEEP_STRIP + 48];
	uint32_t plane[TSR_PLANES_MAX][TSR_SWEEP_STRIP + 80]; /* also room for packed planes */
	/*
	 * What codecs have in common and is made once, by the first that needs it: narrow weights,
	 * decoded, and random bits.
	 */
	float bf16[TSR_SWEEP_STRIP + 48];
	float fp16[TSR_SWEEP_STRIP + 48];
	uint16_t random[TSR_SWEEP_STRIP + 96];
	bool has_bf16, has_fp16, has_random;
	uint32_t first; /* bits of x[0] */
};

/* Fill in y for all of x, which are finite. */
typedef void tsr_sweep_trip_fn(struct tsr_sweep_strip *s, const struct tsr_codec *codec);

/* Add elements @first to @n - 1. */
typedef void tsr_sweep_tally_fn(struct tsr_sweep_strip *s, size_t first, size_t n,
				struct tsr_sweep_row *row);

/* A loop for a codec or family that is faster than encode and decode; the values are the same. */
struct tsr_sweep_trip {
	const char *name;
	tsr_sweep_trip_fn *run;
};

/* TSR_E_USAGE for an inverted range or a codec with scales. */
enum tsr_status tsr_sweep_check(const struct tsr_codec *const *codecs, unsigned ncodecs,
				uint32_t first, uint32_t last, struct tsr_err *err);

/* Per SIMD level; the table ends with a NULL name. */
#define X_DECLARE_SWEEP(isa) \
	extern const struct tsr_sweep_trip tsr_sweep_trips_##isa[]; \
	extern tsr_sweep_tally_fn tsr_sweep_tally_##isa;

#endif
