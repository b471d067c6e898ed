/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32, as in zip archives. */
#ifndef TSR_FORMAT_CRC_H
#define TSR_FORMAT_CRC_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32 as in zip files, continued from @crc (0 at the start) over @nbytes more. */
uint32_t tsr_crc32(uint32_t crc, const void *bytes, size_t nbytes);

/* The CRC-32 of A followed by B, from those of A and B and the length of B. */
uint32_t tsr_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t nbytes_b);

#endif
