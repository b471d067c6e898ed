/* SPDX-License-Identifier: Apache-2.0 */
/* Files that several processes write together: outputs in the making, and scratch files. */
#ifndef TSR_IO_MEETING_H
#define TSR_IO_MEETING_H

#include "io/file.h"

/*
 * Open the file @name of the directory @dir_fd for reading and writing: whoever is first makes it, of
 * @nbytes.  @joins: the others have written it; TSR_E_FORMAT if it has another size.
 */
enum tsr_status tsr_file_met(int dir_fd, const char *name, unsigned mode, uint64_t nbytes,
			     bool joins, const char *path, int *fd_ret, struct tsr_err *err);

/*
 * A scratch file with a name beside @path that follows from @id, which all processes have: it has @nbytes
 * from the first of them on, and stays until it is removed by its name, *@name_ret, which is to be freed.
 * @joins: the others have written it.  Writing is for one thread of each, to different bytes.
 */
enum tsr_status tsr_file_meet(const char *path, uint64_t id, uint64_t nbytes, bool joins,
			      char **name_ret, struct tsr_file **ret, struct tsr_err *err);

#endif
