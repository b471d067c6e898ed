/* SPDX-License-Identifier: Apache-2.0 */
/* Paths, and names and descriptors for outputs in the making. */
#ifndef TSR_BASE_TEMPORARY_H
#define TSR_BASE_TEMPORARY_H

#include <stdbool.h>
#include <stdint.h>

#include "tersor/status.h"

/* The directory of a path, to be freed; "." if it has none.  NULL when out of memory. */
char *tsr_path_directory(const char *path);

/* The last component of a path, within it. */
const char *tsr_path_name(const char *path);

/* A path without slashes at its end, to be freed; "/" stays.  NULL when out of memory. */
char *tsr_path_trim(const char *path);

/* Open the directory that @path is in. */
enum tsr_status tsr_path_open_directory(const char *path, int *fd_ret, struct tsr_err *err);

/* A new name `.NAME.<16 hex digits>.tmp`, to be freed; @path is what messages name. */
enum tsr_status tsr_temporary_name(const char *name, const char *path, char **ret,
				   struct tsr_err *err);

/* The same for all who have @id. */
enum tsr_status tsr_temporary_name_of(const char *name, uint64_t id, const char *path, char **ret,
				      struct tsr_err *err);

/* Whether a name is like these. */
bool tsr_temporary_is_name(const char *name);

/*
 * Count outputs in the making: @change more of them.  While there is none a signal may end the
 * process at once, since nothing is left behind.  One that got its name counts for good: a process that a
 * signal ends has not done its work.  Async-signal-safe, as is asking.
 */
void tsr_temporary_hold(int change);
bool tsr_temporary_any(void);

/* fsync; -1 with errno. */
int tsr_temporary_sync(int fd);

/* Whether an errno says that the file system or the kernel lacks the call, or a flag of it. */
bool tsr_temporary_lacking(int errnum);

#endif
