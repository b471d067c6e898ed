/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a zip archive that is to be written, each with bytes that are known beforehand. */
#ifndef TSR_FORMAT_ZIP_MEMBERS_H
#define TSR_FORMAT_ZIP_MEMBERS_H

#include "base/arena.h"
#include "format/zip.h"
#include "text/text.h"

struct tsr_zip_members {
	const char *path; /* of the archive, for messages */
	uint64_t base; /* where the archive begins in its file */
	size_t n, room;
	struct tsr_arena *arena; /* has the lists and names */
	struct tsr_zip_entry *entries;
	struct tsr_text *heads; /* per member: the bytes that it begins with */
};

/* Room for @room members; free with tsr_zip_members_free(), also on failure. */
enum tsr_status tsr_zip_members_init(struct tsr_zip_members *m, size_t room, const char *path,
				     struct tsr_err *err);
void tsr_zip_members_free(struct tsr_zip_members *m);

/*
 * Add a member named @prefix @name @suffix that begins with @head, which is taken over (NULL: with
 * nothing), and goes on with @data_nbytes of data.
 */
enum tsr_status tsr_zip_members_add(struct tsr_zip_members *m, const char *prefix, const char *name,
				    const char *suffix, struct tsr_text *head, uint64_t data_nbytes,
				    struct tsr_err *err);

/* Where in the file the data of a member begins, once tsr_zip_layout() placed it. */
uint64_t tsr_zip_members_data(const struct tsr_zip_members *m, size_t member);

/* Add the next bytes of a member's data to its checksum; @crc is their CRC-32. */
void tsr_zip_members_sum(struct tsr_zip_members *m, size_t member, uint32_t crc, uint64_t nbytes);

/* Write all that is not data: what the members begin with, their headers and the directory. */
enum tsr_status tsr_zip_members_write(const struct tsr_zip_members *m, struct tsr_outfile *f,
				      struct tsr_err *err);

#endif
