/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32s of a container's records: the zip members of .pt and .npz. */
#ifndef TSR_CKPT_RECORD_CRC_H
#define TSR_CKPT_RECORD_CRC_H

#include "ckpt/checkpoint_model.h"
#include "tersor/run.h"

/* An array that is one whole record is checked while it is read; the CRC-32 of what was read so far. */
struct tsr_record_crc {
	uint32_t crc;
};

/* The CRC-32 of some bytes of an array as it is stored; 0 if there is nothing to check them against. */
uint32_t tsr_record_sum(const struct tsr_array *a, const void *bytes, size_t nbytes);

/*
 * Check the next @nbytes bytes of an array, from byte @offset on, whose tsr_record_sum() is @crc.
 * Tiles come in order; the first one starts @r anew and the last one compares: TSR_E_FORMAT if the
 * file has another checksum.  Does nothing for an array that has none of its own.
 */
enum tsr_status tsr_record_commit(struct tsr_record_crc *r, const struct tsr_checkpoint *c,
				  const struct tsr_array *a, uint64_t offset, uint64_t nbytes,
				  uint32_t crc, struct tsr_err *err);

/*
 * Read and check the records that tsr_record_commit() cannot check: tensors that are part of a
 * record or strided in it, or that are decoded as they are read.  Each part checks its share of them.
 */
enum tsr_status tsr_records_check(const struct tsr_checkpoint *c, const struct tsr_run *run,
				  struct tsr_err *err);

/* Read and check every record: for readers that do not go through tensors in order. */
enum tsr_status tsr_records_check_all(const struct tsr_checkpoint *c, const struct tsr_run *run,
				      struct tsr_err *err);

#endif
