/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that appear only when they are complete. */
#ifndef TSR_IO_ATOMIC_DIR_H
#define TSR_IO_ATOMIC_DIR_H

#include "base/scope.h"
#include "io/file.h"

/*
 * A directory in the making: `.NAME.<16 hex digits>.tmp` beside its target until it is published, when
 * it takes the target's name at once.  Whatever fails before that, the target is untouched.
 */
struct tsr_outdir;

/*
 * Which directory at the target is replaced: an empty one, or with @force one in which everything is a
 * regular file or a directory that @owns says is of this kind of output; @path is below the target.  NULL:
 * only an empty one is.  Any other is left as it is, and its first other entry is named.
 */
struct tsr_outdir_rule {
	bool force;
	bool (*owns)(const void *ctx, const char *path);
	const void *ctx;
};

/**
 * tsr_outdir_create() - Start a directory
 * @path: the target; slashes at its end are ignored.  Absent, or what @rule allows; never a link
 * @ret:  out: to be ended with tsr_outdir_publish() or tsr_outdir_discard()
 */
enum tsr_status tsr_outdir_create(const char *path, const struct tsr_outdir_rule *rule,
				  struct tsr_outdir **ret, struct tsr_err *err);

/*
 * The same for several processes that make it together: its name in the making follows from @id, which all
 * have, and each but the one that @joins makes it if it is not there.  tsr_outdir_leave() can end it too.
 */
enum tsr_status tsr_outdir_meet(const char *path, const struct tsr_outdir_rule *rule, uint64_t id,
				bool joins, struct tsr_outdir **ret, struct tsr_err *err);

/* Whether tsr_outdir_create() would accept this target now, and its file system has room for @nbytes. */
enum tsr_status tsr_outdir_check_target(const char *path, const struct tsr_outdir_rule *rule,
					uint64_t nbytes, struct tsr_err *err);

/* TSR_E_IO if the file or directory @input is @path or anything below it: replacing @path would lose it. */
enum tsr_status tsr_outdir_check_outside(const char *path, const char *input, struct tsr_err *err);

/* TSR_E_IO if @path is, or would be, anywhere below the directory @input. */
enum tsr_status tsr_outdir_check_not_below(const char *path, const char *input,
					   struct tsr_err *err);

/* Where the directory is in the making: for what makes its files itself. */
const char *tsr_outdir_path(const struct tsr_outdir *d);

/*
 * Start the file @name, a path relative to the directory without "..", of @nbytes; directories that lead to
 * it are made.  Messages name it by the target.  To be ended with tsr_outfile_publish() or
 * tsr_outfile_discard() before the directory is.
 */
enum tsr_status tsr_outdir_file(struct tsr_outdir *d, const char *name, uint64_t nbytes,
				struct tsr_outfile **ret, struct tsr_err *err);

/*
 * Rename to the target, if @rule still allows it, and sync the directory above; what was there is removed.
 * Frees @d in every case.  TSR_E_DURABILITY if the new directory has its name but the sync or the removal
 * failed.
 */
enum tsr_status tsr_outdir_publish(struct tsr_outdir *d, const struct tsr_outdir_rule *rule,
				   struct tsr_err *err);

/* Leave the directory as it is for those who meet in it, and free @d. */
void tsr_outdir_leave(struct tsr_outdir *d);

/* Remove the directory and all in it, and free @d, which may be NULL. */
void tsr_outdir_discard(struct tsr_outdir *d);
TSR_OWNED_BY(tsr_outdir_discard, struct tsr_outdir)

#endif
