/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that appear only when they are complete. */
#ifndef TSR_IO_OUT_DIRECTORY_H
#define TSR_IO_OUT_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "tersor/status.h"

/*
 * A directory in the making: `.NAME.<16 hex digits>.tmp` beside its target until it is published,
 * when it takes the target's name at once.  Whatever fails before that, the target is untouched.
 * Only its owner can look into it before that.
 */
struct tsr_outdir;

/**
 * struct tsr_outdir_target - Where a directory is to appear
 * @path:  absent, or with @force a directory
 * @force: replace it as a whole
 * @sign:  with @force: a file that shows that the directory is one to replace; NULL: any is
 * @input: a directory that is read: neither may lie in the other
 */
struct tsr_outdir_target {
	const char *path;
	bool force;
	const char *sign;
	const char *input;
};

/* Whether tsr_outdir_create() would accept this target now, and @nbytes fit there. */
enum tsr_status tsr_outdir_check(const struct tsr_outdir_target *target, uint64_t nbytes,
				 struct tsr_err *err);

/* Start one, to be ended with tsr_outdir_publish() or tsr_outdir_discard(). */
enum tsr_status tsr_outdir_create(const struct tsr_outdir_target *target, struct tsr_outdir **ret,
				  struct tsr_err *err);

/* Where to put what is in it. */
const char *tsr_outdir_path(const struct tsr_outdir *d);

/*
 * Set the directory's permissions, sync it, rename, sync its parent, remove what it replaced; frees
 * @d in every case.  All in it must be synced.  TSR_E_DURABILITY if only the last steps failed: the
 * directory is complete under its name.  Any other failure: the target is untouched.
 */
enum tsr_status tsr_outdir_publish(struct tsr_outdir *d, unsigned mode, struct tsr_err *err);

/* Remove all of it and free @d, which may be NULL. */
void tsr_outdir_discard(struct tsr_outdir *d);

/* A new directory that only its owner can use. */
enum tsr_status tsr_directory_make(const char *path, struct tsr_err *err);

/* Set the permissions of a file or directory. */
enum tsr_status tsr_path_set_mode(const char *path, unsigned mode, struct tsr_err *err);

/* Sync the entries of a directory, which it must be allowed to read. */
enum tsr_status tsr_directory_sync(const char *path, struct tsr_err *err);

#endif
