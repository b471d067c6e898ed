/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_MEMORY_FILES_H
#define TSR_TESTS_MEMORY_FILES_H

/*
 * Files and directories below /mem that exist in memory only.  The linker sends the file calls of the library
 * here (--wrap, targets.mk), and what is elsewhere goes on to the system.  For one thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY "/mem"

/* Make or replace a file and the directories above it; false if that cannot be, as of a name in use. */
bool memory_put(const char *path, const void *bytes, size_t nbytes);
/* The same of memory from malloc(), which is the file's from now on, or freed. */
bool memory_give(const char *path, void *bytes, size_t nbytes);
bool memory_make_directory(const char *path);

/* Let a file end in a hole. */
void memory_set_size(const char *path, uint64_t nbytes);

/* How many files and directories there are below a directory. */
size_t memory_count(const char *directory);

/* Remove all below a directory. */
void memory_remove(const char *directory);

/* Remove everything.  No descriptor may be open. */
void memory_clear(void);

#endif
