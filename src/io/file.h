/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are read, and files that appear only when they are complete. */
#ifndef TSR_BASE_FILE_H
#define TSR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scope.h"
#include "tersor/status.h"

/* Paths of the standard streams. */
#define TSR_STANDARD_INPUT "/dev/stdin"
#define TSR_STANDARD_OUTPUT "/dev/stdout"

/* --- Inputs --------------------------------------------------------------------------------- */

/* An open regular file.  Never mapped: a file that shrinks must be an error, not a signal. */
struct tsr_file;

/* TSR_E_IO for anything but a regular file that can be read; does not wait on a FIFO (io/spool.h does). */
enum tsr_status tsr_file_open(const char *path, struct tsr_file **ret, struct tsr_err *err);
void tsr_file_close(struct tsr_file *f);
TSR_OWNED_BY(tsr_file_close, struct tsr_file)

/*
 * The file @name, which has no '/' (TSR_E_FORMAT), in a directory.  Unless @follow, a symbolic link
 * is refused; what a link leads to is not confined to the directory.
 */
enum tsr_status tsr_file_open_in(const char *directory, const char *name, bool follow,
				 struct tsr_file **ret, struct tsr_err *err);

/*
 * A file without a name in $TMPDIR (/tmp), for what memory should not hold; gone when closed.
 * @path stands for it in messages.  Its size is what was written so far; it never counts as
 * changed.  Writing is for one thread, and not while others read.
 */
enum tsr_status tsr_file_scratch(const char *path, struct tsr_file **ret, struct tsr_err *err);

/* The same in another directory. */
enum tsr_status tsr_file_scratch_in(const char *directory, const char *path, struct tsr_file **ret,
				    struct tsr_err *err);
enum tsr_status tsr_file_scratch_write(struct tsr_file *f, const void *buf, size_t nbytes,
				       uint64_t offset, struct tsr_err *err);

/* Give up the room of bytes that nobody will read any more, where the file system can do that. */
void tsr_file_scratch_drop(struct tsr_file *f, uint64_t nbytes, uint64_t offset);

/* One that others write too, called @name, of a descriptor that it takes; whoever wants to removes it. */
enum tsr_status tsr_file_scratch_shared(int fd, const char *path, const char *name,
					struct tsr_file **ret, struct tsr_err *err);

/* Sync what was written. */
enum tsr_status tsr_file_scratch_sync(const struct tsr_file *f, struct tsr_err *err);

/*
 * A scratch file of @nbytes that is made when it is first read: @fill writes all of it, from any thread
 * but once at a time, and again after it failed.  Closing frees @ctx with @free_ctx, and so does failure.
 */
typedef enum tsr_status tsr_file_fill(void *ctx, struct tsr_file *into, struct tsr_err *err);
enum tsr_status tsr_file_scratch_later(const char *path, uint64_t nbytes, tsr_file_fill *fill,
				       void *ctx, void (*free_ctx)(void *), struct tsr_file **ret,
				       struct tsr_err *err);

const char *tsr_file_path(const struct tsr_file *f);
uint64_t tsr_file_size(const struct tsr_file *f);

/* When it was modified last, in seconds, as it was opened. */
int64_t tsr_file_time(const struct tsr_file *f);

/* The fraction of that second, which many copies do not keep. */
uint64_t tsr_file_nanoseconds(const struct tsr_file *f);

/* Exactly @nbytes at @offset, or an error; the file ending early is "changed".  Thread-safe. */
enum tsr_status tsr_file_read(const struct tsr_file *f, void *buf, size_t nbytes, uint64_t offset,
			      struct tsr_err *err);

/* All of it and a NUL, to be freed; TSR_E_LIMIT if @what, which it is, is over @nbytes_max. */
enum tsr_status tsr_file_load(const struct tsr_file *f, uint64_t nbytes_max, const char *what,
			      char **ret, struct tsr_err *err);

/* TSR_E_IO if size, time or identity differ from those at opening.  Call it after reading. */
enum tsr_status tsr_file_check_unchanged(const struct tsr_file *f, struct tsr_err *err);

/* TSR_E_IO if @path names this file, by any link. */
enum tsr_status tsr_file_check_not(const struct tsr_file *f, const char *path, struct tsr_err *err);

/* "DIRECTORY/NAME", to be freed; NULL when out of memory. */
char *tsr_path_join(const char *directory, const char *name);

/* TSR_E_IO if @path names the input @input, by any link; neither needs to exist. */
enum tsr_status tsr_path_check_not(const char *input, const char *path, struct tsr_err *err);

/* TSR_E_IO if @path is, or would be, an entry of the input @directory. */
enum tsr_status tsr_path_check_not_in(const char *directory, const char *path, struct tsr_err *err);

/* --- Outputs -------------------------------------------------------------------------------- */

/*
 * A file in the making: `.NAME.<16 hex digits>.tmp` beside its target until it is published, when
 * it takes the target's name at once.  Whatever fails before that, the target is untouched.  With the
 * target TSR_STANDARD_OUTPUT it is a scratch file, whose bytes publishing writes to standard output;
 * a terminal is refused.
 */
struct tsr_outfile;

/**
 * tsr_outfile_create() - Start a file
 * @path:    the target: absent, or with @force a regular file; never a link, directory or device
 * @nbytes:  its final size, reserved so that a full disk shows now
 * @ret:     out: to be ended with tsr_outfile_publish() or tsr_outfile_discard()
 */
enum tsr_status tsr_outfile_create(const char *path, bool force, uint64_t nbytes,
				   struct tsr_outfile **ret, struct tsr_err *err);

/* The same for one that is new, but has the permissions of the file @like, which it will replace. */
enum tsr_status tsr_outfile_create_like(const char *path, const char *like, uint64_t nbytes,
					struct tsr_outfile **ret, struct tsr_err *err);

/* The same, where messages name @shown, which has the same last component; nothing is replaced. */
enum tsr_status tsr_outfile_create_as(const char *path, const char *shown, uint64_t nbytes,
				      struct tsr_outfile **ret, struct tsr_err *err);

/*
 * A file that several processes write, each its own bytes: its temporary name follows from @id, which all of
 * them have, and it stays until one of them publishes it or removes it by its name.  @joins: the others have
 * written all of it, @nbytes.
 */
enum tsr_status tsr_outfile_meet(const char *path, bool force, uint64_t nbytes, uint64_t id,
				 bool joins, struct tsr_outfile **ret, struct tsr_err *err);

/*
 * Who joined the parts put the file of all parts in place at @path, and failed later: give it back its name
 * in the making.  Nothing if something has that name, or if there is nothing at @path.
 */
enum tsr_status tsr_outfile_take_back(const char *path, uint64_t id, struct tsr_err *err);

/* Sync a file that others write too, and leave it to them; frees @f in every case. */
enum tsr_status tsr_outfile_leave(struct tsr_outfile *f, struct tsr_err *err);

/* The path of its temporary name, to be freed; NULL when out of memory. */
char *tsr_outfile_temporary(const struct tsr_outfile *f);

/* All of @nbytes at @offset, or an error.  Thread-safe. */
enum tsr_status tsr_outfile_write(struct tsr_outfile *f, const void *buf, size_t nbytes,
				  uint64_t offset, struct tsr_err *err);

/* Bytes that were written.  Not of standard output. */
enum tsr_status tsr_outfile_read(const struct tsr_outfile *f, void *buf, size_t nbytes,
				 uint64_t offset, struct tsr_err *err);

/*
 * Sync, close, rename, sync the directory; frees *@f in every case, and sets it to NULL.
 * TSR_E_DURABILITY if only the last step failed: the file is complete under its name.  TSR_E_IO: the
 * target is untouched.
 */
enum tsr_status tsr_outfile_publish(struct tsr_outfile **f, struct tsr_err *err);

/* A file of these bytes, started, written and published. */
enum tsr_status tsr_outfile_write_whole(const char *path, bool force, const void *bytes,
					size_t nbytes, struct tsr_err *err);

/* Remove the temporary file and free @f, which may be NULL. */
void tsr_outfile_discard(struct tsr_outfile *f);
TSR_OWNED_BY(tsr_outfile_discard, struct tsr_outfile)

/* Whether tsr_outfile_create() would accept this target now. */
enum tsr_status tsr_outfile_check_target(const char *path, bool force, struct tsr_err *err);

#endif
