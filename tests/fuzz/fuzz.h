/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_FUZZ_H
#define TSR_TESTS_FUZZ_H

/* What all fuzz targets share: driver.c calls a target, and bounds what its input may cost. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tersor/status.h"

#define REQUIRE(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

/* The target: abort()s if what is promised does not hold. */
void fuzz_input(const uint8_t *data, size_t nbytes);

/* The target's own mutation of @nbytes of @room bytes; returns the new length.  With FUZZ_MUTATOR only. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t room, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t na, const uint8_t *b, size_t nb,
				 uint8_t *out, size_t room, unsigned seed);

/* libFuzzer's mutation of bytes. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t nbytes, size_t room);

/* What refuses an input says why, in one line. */
static inline void check_refusal(enum tsr_status status, const struct tsr_err *err)
{
	REQUIRE(status == TSR_E_FORMAT || status == TSR_E_UNSUPPORTED || status == TSR_E_LIMIT ||
		status == TSR_E_IO);
	REQUIRE(err->code == status && err->msg[0] && !strchr(err->msg, '\n'));
}

/* --- Cost (cost.c) ---------------------------------------------------------------------------- */

/*
 * Edges of the control flow and bytes of allocations are counted in builds for libFuzzer.  An input may cost
 * a fixed amount and so much per byte of its own and of its files (memory_files.h).  Each target says how much:
 * some three times the most that the corpora took.
 */
struct cost_bounds {
	uint64_t edges, edges_per_byte;
	uint64_t allocated, allocated_per_byte;
};
extern const struct cost_bounds fuzz_cost;

void cost_start(size_t nbytes);
void cost_more(size_t nbytes);
void cost_end(void);

#endif
