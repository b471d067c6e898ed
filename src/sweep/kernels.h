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
#define TSR_SWEEP_STRIP 1024u

/* What lies between encoding and decoding, as wide as the values; and what comes back. */
struct tsr_sweep_strip {
	uint32_t first; /* bits of x[0] */
	bool drawn; /* random is filled in: it is the same for all codecs */
	uint16_t random[TSR_SWEEP_STRIP];
	float x[TSR_SWEEP_STRIP];
	float y[TSR_SWEEP_STRIP];
	uint32_t plane[TSR_PLANES_MAX][TSR_SWEEP_STRIP + 64]; /* also room for packed planes */
	float rel[TSR_SWEEP_STRIP];
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

/* Per SIMD level; the table ends with a NULL name. */
#define X_DECLARE_SWEEP(isa) \
	extern const struct tsr_sweep_trip tsr_sweep_trips_##isa[]; \
	extern tsr_sweep_tally_fn tsr_sweep_tally_##isa;

#endif
