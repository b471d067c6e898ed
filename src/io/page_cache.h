/* SPDX-License-Identifier: Apache-2.0 */
/* What large files leave in the system's cache of pages. */
#ifndef TSR_IO_PAGE_CACHE_H
#define TSR_IO_PAGE_CACHE_H

#include <stdint.h>

/*
 * What was read or written of one file, and is to leave the cache behind it.  Once a process has moved more
 * bytes than a quarter of the machine's memory, what it moves further is written out early and dropped, so
 * that other programs' files stay cached.  Less than that stays, for who reads it again.  All of this is
 * advice: nothing fails.  Thread-safe.
 */
struct tsr_trail;

/* NULL when out of memory, which every other function takes. */
struct tsr_trail *tsr_trail_new(void);

/* @nbytes at @offset of @fd were read, or written. */
void tsr_trail_read(struct tsr_trail *t, int fd, uint64_t offset, uint64_t nbytes);
void tsr_trail_written(struct tsr_trail *t, int fd, uint64_t offset, uint64_t nbytes);

/* Drop what is left of a file that is read no more, or was synced. */
void tsr_trail_end(struct tsr_trail *t, int fd);
void tsr_trail_free(struct tsr_trail *t);

/* The bytes that a process may leave in the cache, in place of that quarter: for tests. */
void tsr_trail_set_limit(uint64_t nbytes);

#endif
