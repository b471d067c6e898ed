/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_PACK_RECORDS_H
#define TSR_PACK_RECORDS_H

#include "ckpt/checkpoint_model.h"
#include "tersor/run.h"

/*
 * Checksums that containers have of their records.  A tensor that is one whole record is checked
 * while it is read, piece by piece; records that are read otherwise are checked beforehand.
 */

/* Whether the tensor's bytes are checked as they pass: it is read raw and has a checksum. */
bool tsr_record_is_streamed(const struct tsr_checkpoint *c, const struct tsr_tensor *t);

/* The same of an array that is a tensor as it is stored. */
bool tsr_array_is_streamed(const struct tsr_array *a);

/* The checksum of a record in the making.  Start from zeros for each tensor. */
struct tsr_record_crc {
	uint32_t crc;
};

/* Add the next @nbytes, whose own CRC-32 is @crc. */
void tsr_record_add(struct tsr_record_crc *r, uint32_t crc, uint64_t nbytes);

/* TSR_E_FORMAT if the record has another checksum; it is the array of a tensor that is streamed. */
enum tsr_status tsr_record_check(const struct tsr_checkpoint *c, const struct tsr_array *a,
				 const struct tsr_record_crc *r, struct tsr_err *err);

/* Read and check every record that is not streamed, or with @all every record. */
enum tsr_status tsr_records_check(const struct tsr_checkpoint *c, bool all,
				  const struct tsr_run *run, struct tsr_err *err);

#endif
