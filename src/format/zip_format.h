/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_FORMAT_ZIP_FORMAT_H
#define TSR_FORMAT_ZIP_FORMAT_H

/* What the files that read and write zip archives share: numbers of the format, and the end. */
#include <stddef.h>
#include <stdint.h>

#include "base/little_endian.h"
#include "io/file.h"
#include "tersor/status.h"

#define TSR_ZIP_LOCAL 0x04034b50u /* signatures */
#define TSR_ZIP_CENTRAL 0x02014b50u
#define TSR_ZIP_END 0x06054b50u
#define TSR_ZIP_LOCATOR 0x07064b50u
#define TSR_ZIP_END64 0x06064b50u
#define TSR_ZIP_DESCRIPTOR 0x08074b50u

enum {
	TSR_ZIP_LOCAL_NBYTES = 30, /* all without name, extra fields and comment */
	TSR_ZIP_CENTRAL_NBYTES = 46,
	TSR_ZIP_END_NBYTES = 22,
	TSR_ZIP_LOCATOR_NBYTES = 20,
	TSR_ZIP_END64_NBYTES = 56,
};

#define TSR_ZIP_FLAG_ENCRYPTED 0x0001u
#define TSR_ZIP_FLAG_DESCRIPTOR 0x0008u
#define TSR_ZIP_FLAG_UTF8 0x0800u

#define TSR_ZIP_STORED 0u
#define TSR_ZIP_DEFLATED 8u

#define TSR_ZIP_EXTRA64 0x0001u /* extra field: the sizes and offset that need 64 bits */

/* A field that holds this has its value in a zip64 record. */
#define TSR_ZIP_U16_ESCAPE 0xffffu
#define TSR_ZIP_U32_ESCAPE 0xffffffffu

static inline uint16_t tsr_zip_get16(const unsigned char *p)
{
	return (uint16_t)tsr_get_le(p, 2);
}

static inline uint32_t tsr_zip_get32(const unsigned char *p)
{
	return (uint32_t)tsr_get_le(p, 4);
}

static inline uint64_t tsr_zip_get64(const unsigned char *p)
{
	return tsr_get_le(p, 8);
}

/* The part of a file that is an archive, and how messages about it start. */
struct tsr_zip_part {
	const struct tsr_file *f;
	uint64_t base, nbytes;
	const char *where;
	struct tsr_err *err;
};

/* @nbytes at @offset of the archive, which is known to hold them. */
static inline enum tsr_status tsr_zip_read_part(const struct tsr_zip_part *a, void *buf,
						size_t nbytes, uint64_t offset)
{
	return tsr_file_read(a->f, buf, nbytes, a->base + offset, a->err);
}

/* The central directory; its offset counts from the start of the archive. */
struct tsr_zip_directory {
	uint64_t offset, nbytes, count;
};

/*
 * Find the central directory, which ends where the records that end the archive start.  It is in
 * the archive and within the limits, and could hold as many entries as it is said to.
 */
enum tsr_status tsr_zip_find_directory(const struct tsr_zip_part *a, struct tsr_zip_directory *ret);

/* "split over disks". */
enum tsr_status tsr_zip_fail_split(const struct tsr_zip_part *a);

#endif
