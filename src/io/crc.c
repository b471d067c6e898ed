/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32, as in zip archives. */
#include "io/crc.h"

#include <libdeflate.h>
#include <zlib.h>

uint32_t tsr_crc32(uint32_t crc, const void *bytes, size_t nbytes)
{
	/* libdeflate takes NULL as a request for the initial value. */
	return nbytes ? libdeflate_crc32(crc, bytes, nbytes) : crc;
}

uint32_t tsr_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t nbytes_b)
{
	_Static_assert(sizeof(z_off_t) == sizeof(int64_t), "lengths of more than 32 bits");
	/* zlib's length is signed, and with a negative one it never returns. */
	for (; nbytes_b > INT64_MAX; nbytes_b -= INT64_MAX)
		crc_a = (uint32_t)crc32_combine(crc_a, 0, INT64_MAX);
	return (uint32_t)crc32_combine(crc_a, crc_b, (z_off_t)nbytes_b);
}
