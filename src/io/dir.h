/* SPDX-License-Identifier: Apache-2.0 */
/* Directories and the names of files. */
#ifndef TSR_BASE_DIR_H
#define TSR_BASE_DIR_H

#include <stdbool.h>
#include <stddef.h>

#include "tersor/status.h"

/* Whether a path is a directory, or a link to one. */
bool tsr_dir_is(const char *path);

/* Whether a path is a symbolic link. */
bool tsr_dir_is_link(const char *path);

/* Names in a directory, sorted. */
struct tsr_dir {
	size_t n;
	char **names;
};

/* The names that end in @suffix, without those that start with a dot; TSR_E_LIMIT above 100,000. */
enum tsr_status tsr_dir_list(const char *path, const char *suffix, struct tsr_dir *ret,
			     struct tsr_err *err);

/* The same of all names but "." and "..". */
enum tsr_status tsr_dir_list_all(const char *path, struct tsr_dir *ret, struct tsr_err *err);
void tsr_dir_free(struct tsr_dir *d);

/* Whether a text is the name of a file and no path: 1 to 255 bytes without directories. */
#define TSR_FILE_NAME_MAX 255u
bool tsr_dir_is_name(const char *s);

/* The number of such names that a path below a directory has, with one slash between two; 0: it is none. */
size_t tsr_dir_count_names(const char *path);

bool tsr_dir_name_ends_with(const char *name, const char *suffix);

/* Whether a name is one that torch.distributed.checkpoint and tersor give a part: __RANK_NUMBER.distcp. */
bool tsr_dir_is_dcp_part(const char *name);

/*
 * Whether anything has this name, even a dangling link.  Where the system fails to answer something may be
 * there: who opens it finds the error, and nobody writes over it.
 */
bool tsr_dir_has(const char *path);

/* The same for a name in a directory. */
bool tsr_dir_has_in(const char *directory, const char *name);

/* A new directory that only its owner can use. */
enum tsr_status tsr_dir_make(const char *path, struct tsr_err *err);

/* Set the permissions of a file or directory. */
enum tsr_status tsr_dir_set_mode(const char *path, unsigned mode, struct tsr_err *err);

/*
 * Move the files of a directory to the one that it is in, set their permissions, and remove it; none of
 * them may be there already.
 */
enum tsr_status tsr_dir_move_up(const char *path, unsigned mode, struct tsr_err *err);

/* Sync the entries of a directory, which messages call @shown. */
enum tsr_status tsr_dir_sync(const char *path, const char *shown, struct tsr_err *err);

/* Remove a file; false with errno if it is still there. */
bool tsr_dir_remove_file(const char *path);

#endif
