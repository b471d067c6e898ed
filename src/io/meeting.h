/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch files that several processes write together. */
#ifndef TSR_BASE_MEETING_H
#define TSR_BASE_MEETING_H

#include "io/file.h"

/*
 * A scratch file with a name beside @path that follows from @id, which all processes have: it has @nbytes
 * from the first of them on, and stays until it is removed by its name, *@name_ret, which is to be freed.
 * @joins: the others have written it.  Writing is for one thread of each, to different bytes.
 */
enum tsr_status tsr_file_meet(const char *path, uint64_t id, uint64_t nbytes, bool joins,
			      char **name_ret, struct tsr_file **ret, struct tsr_err *err);

#endif
