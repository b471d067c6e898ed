/* SPDX-License-Identifier: Apache-2.0 */
/* Files that several processes write together: outputs in the making, and scratch files. */
#ifndef TSR_IO_MEETING_H
#define TSR_IO_MEETING_H

#include "io/file.h"

/*
 * Behind the bytes of such a file there is a mark, a random number that the process which made it chose: a
 * file that was removed and made anew has another, so that what was written into the old one is not taken to
 * be in it.  Who publishes the file cuts the mark off.
 */
#define TSR_MARK_NBYTES 8u

/*
 * Open the file @name of the directory @dir_fd, or make it unless this process @joins what others wrote;
 * *made_ret: it was made.  @flags: how it is opened.
 */
enum tsr_status tsr_mark_open(int dir_fd, const char *name, int flags, unsigned mode, bool joins,
			      const char *path, int *fd_ret, bool *made_ret, struct tsr_err *err);

/*
 * Give an open file room for @nbytes and the mark, and find the mark; @made: this process has made the file,
 * and chooses it.  Others wait for a mark for some seconds, and choose one if who made the file is gone.
 */
enum tsr_status tsr_mark_meet(int fd, const char *path, uint64_t nbytes, bool made,
			      uint64_t *mark_ret, struct tsr_err *err);

/*
 * The mark of a file that others have written; 0 if it has @nbytes and none, since who joined them has found
 * it right and cut it off.  TSR_E_FORMAT if the file, which messages call @name, has another size.
 */
enum tsr_status tsr_mark_read(int fd, const char *path, const char *name, uint64_t nbytes,
			      uint64_t *mark_ret, struct tsr_err *err);

/* The same of a file by its name; false if there is none of that size. */
bool tsr_mark_find(const char *name, uint64_t nbytes, uint64_t *mark_ret);

/* Cut the mark off; 0 or -1 with errno. */
int tsr_mark_cut(int fd, uint64_t nbytes);

/*
 * A scratch file with a name beside @path that follows from @id, which all processes have: it has @nbytes
 * from the first of them on, and stays until it is removed by its name, *@name_ret, which is to be freed.
 * @joins: the others have written it.  Writing is for one thread of each, to different bytes.
 */
enum tsr_status tsr_file_meet(const char *path, uint64_t id, uint64_t nbytes, bool joins,
			      char **name_ret, uint64_t *mark_ret, struct tsr_file **ret,
			      struct tsr_err *err);

#endif
