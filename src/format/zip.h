/* SPDX-License-Identifier: Apache-2.0 */
/* Zip archives, read strictly and written deterministically. */
#ifndef TSR_FORMAT_ZIP_H
#define TSR_FORMAT_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scope.h"
#include "io/file.h"
#include "text/named.h"
#include "tersor/status.h"

/* --- Reading -------------------------------------------------------------------------------- */

/* Limits; what all deflated members inflate to may be four times the archive, if that is more. */
#define TSR_ZIP_MEMBERS_MAX 1000000u
#define TSR_ZIP_DIRECTORY_MAX (UINT64_C(256) << 20)
#define TSR_ZIP_INFLATED_MAX (UINT64_C(64) << 30)
#define TSR_ZIP_RATIO_MAX 1032u /* deflate cannot do better */
#define TSR_ZIP_NAME_MAX 0xffffu

struct tsr_zip_member {
	const char *name; /* UTF-8, relative, no empty, "." or ".." component, no backslash */
	uint64_t offset; /* of the stored bytes, from the start of the file */
	uint64_t stored_nbytes;
	uint64_t nbytes; /* after inflating; the same if not deflated */
	bool deflated;
	bool has_crc; /* false: the writer left it out (0 for a member that is not empty) */
	uint32_t crc;
};

/* The directory of an archive; read-only once read. */
struct tsr_zip {
	size_t nmembers;
	struct tsr_zip_member *members; /* in the order of the central directory; names differ */
	struct tsr_named *by_name; /* the members, sorted */
	char *names;
};

/**
 * tsr_zip_read() - Read and check the directory of a zip archive
 * @base, @nbytes: the part of the file that is the archive; its offsets count from @base
 * @where: the start of every message: "FILE", or "FILE: model.weight" for one inside
 *
 * The archive fills its part exactly: members, central directory and the comment, if any, follow
 * each other without a gap or a shared byte, so that there is one way to read it.  Sizes and
 * checksums are the central directory's; local headers must agree in name, method and flags, data
 * descriptors in everything.  Members are stored or deflated; anything encrypted, split over disks
 * or otherwise compressed is TSR_E_UNSUPPORTED, as are directories.
 */
enum tsr_status tsr_zip_read(const struct tsr_file *f, uint64_t base, uint64_t nbytes,
			     const char *where, struct tsr_zip **ret, struct tsr_err *err);
void tsr_zip_free(struct tsr_zip *z);
TSR_OWNED_BY(tsr_zip_free, struct tsr_zip)

/* The member with this name, or NULL. */
const struct tsr_zip_member *tsr_zip_find(const struct tsr_zip *z, const char *name);

/*
 * What is wrong with the name of a member, or NULL: it must be a plain relative path.  Readers refuse
 * other names, and writers do not write them.
 */
const char *tsr_zip_name_flaw(const char *name, size_t nbytes);

/* A whole member, inflated and checked, into memory to be freed; TSR_E_LIMIT above @max_nbytes. */
enum tsr_status tsr_zip_load(const struct tsr_file *f, const struct tsr_zip_member *m,
			     uint64_t max_nbytes, const char *where, void **ret,
			     struct tsr_err *err);

/*
 * The first bytes of a member, at most @nbytes, inflated if need be; *got_ret says how many.  Not
 * checked against the CRC.
 */
enum tsr_status tsr_zip_peek(const struct tsr_file *f, const struct tsr_zip_member *m, void *buf,
			     size_t nbytes, size_t *got_ret, const char *where,
			     struct tsr_err *err);

/*
 * A scratch file with a deflated member's contents, which are inflated and checked, length and CRC, when
 * they are first read: many commands never read them.  @f must stay open as long.  Memory does not grow
 * with the member.
 */
enum tsr_status tsr_zip_inflated(const struct tsr_file *f, const struct tsr_zip_member *m,
				 const char *where, struct tsr_file **ret, struct tsr_err *err);

/* --- Writing -------------------------------------------------------------------------------- */

/* A stored member to be written.  The caller sets the first four. */
struct tsr_zip_entry {
	const char *name;
	uint64_t nbytes;
	unsigned align; /* its data starts at a multiple of this: 1, or a power of 2 up to 64 */
	uint32_t crc; /* may be set as late as tsr_zip_write_headers() */
	uint64_t header_offset, offset; /* set by tsr_zip_layout(): of header and of data */
};

/*
 * Place members one behind the other; returns the size of the whole archive.  zip64 is used only
 * where a size, an offset or the count needs it.  The padding is an extra field as PyTorch's.
 * Sizes are those of data that exists: together they stay below 2^63.
 */
uint64_t tsr_zip_layout(struct tsr_zip_entry *entries, size_t n);

/*
 * All local headers, the central directory and its end, of an archive that begins at @base of its
 * file.  The data is written by the caller, before or after.  TSR_E_LIMIT for a name longer than
 * TSR_ZIP_NAME_MAX.
 */
enum tsr_status tsr_zip_write_headers(struct tsr_outfile *f, uint64_t base,
				      const struct tsr_zip_entry *entries, size_t n,
				      struct tsr_err *err);

#endif
