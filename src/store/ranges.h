/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a checkpoint as the ranges of its tensors and what is around them, the rest. */
#ifndef TSR_STORE_RANGES_H
#define TSR_STORE_RANGES_H

#include "store/store_data.h"

/*
 * Find the ranges of each file of a snapshot, from its tensors, and how much the rest has.  TSR_E_FORMAT if
 * ranges overlap or are not within their file; @path: for messages.
 */
enum tsr_status tsr_snapshot_find_rest(struct tsr_arena *arena, struct tsr_snapshot *snapshot,
				       const char *path, struct tsr_err *err);

/* How many ranges of a file begin before a byte of it. */
size_t tsr_ranges_before(const struct tsr_stored_path *p, uint64_t offset);

/*
 * Call @part for each run of @nbytes of the rest of a file from byte @at of the rest on: where it is in the
 * file, and in the rest from @at on.
 */
typedef enum tsr_status tsr_rest_part(void *ctx, uint64_t offset, size_t at, size_t nbytes,
				      struct tsr_err *err);
enum tsr_status tsr_rest_each(const struct tsr_stored_path *p, uint64_t at, size_t nbytes,
			      tsr_rest_part *part, void *ctx, struct tsr_err *err);

/*
 * Find the CRC-32s of zip members that hold tensors, whose elements will change: @p->crcs.  @bytes: all of
 * the rest of the file (zip_crcs.c).
 */
enum tsr_status tsr_find_crcs(struct tsr_arena *arena, struct tsr_stored_path *p,
			      const uint8_t *bytes, struct tsr_err *err);

#endif
