/* SPDX-License-Identifier: Apache-2.0 */
/* Work on a directory, one file after the other: progress over all of it, copies and hashes. */
#ifndef TSR_DIRECTORY_BY_FILE_H
#define TSR_DIRECTORY_BY_FILE_H

#include "io/file.h"
#include "tersor/directory.h"

/* How far work on files has come.  Its address must not change. */
struct tsr_by_file {
	struct tsr_run run; /* for the work on one file */
	const struct tsr_run *given;
	const char *what; /* the directory that a message of cancellation names */
	uint64_t done_nbytes, file_nbytes, total_nbytes;
	bool doubt; /* something may not survive a power cut */
};

/* Start on files of @total_nbytes in all; @run may be NULL. */
void tsr_by_file_start(struct tsr_by_file *b, const struct tsr_run *run, const char *what,
		       uint64_t total_nbytes);

/* Go on to a file of @nbytes: TSR_E_CANCELLED if the caller wants to stop. */
enum tsr_status tsr_by_file_next(struct tsr_by_file *b, uint64_t nbytes, struct tsr_err *err);

/* What tsr_pack() and others get to work on the file; NULL if the caller gave none. */
const struct tsr_run *tsr_by_file_run(const struct tsr_by_file *b);

/* What is done of all files in parts, or NULL. */
struct tsr_parts *tsr_by_file_parts(const struct tsr_by_file *b);

/* TSR_E_DURABILITY of one file is remembered, and the work goes on; so it does after the part of one file. */
enum tsr_status tsr_by_file_settle(struct tsr_by_file *b, enum tsr_status status);

/* A path below a directory. */
struct tsr_place_in {
	const char *directory, *path;
	bool follow; /* allow that it is a symbolic link */
};

enum tsr_status tsr_open_below(const struct tsr_place_in *at, struct tsr_file **ret,
			       struct tsr_err *err);

/* Read all of the file, write it to @to unless that is NULL, and hash it. */
enum tsr_status tsr_copy_file(struct tsr_by_file *b, const struct tsr_place_in *from,
			      const char *to, struct tsr_stored_file *ret, struct tsr_err *err);

/* The size of a packed file, and the hash of its safetensors header. */
enum tsr_status tsr_hash_header(const struct tsr_place_in *at, struct tsr_stored_file *ret,
				struct tsr_err *err);

#endif
