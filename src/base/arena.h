/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed all at once, up to a limit. */
#ifndef TSR_BASE_ARENA_H
#define TSR_BASE_ARENA_H

#include <stddef.h>

#include "base/scope.h"

/* Memory that is freed all at once, up to a limit.  Not thread-safe. */
struct tsr_arena;

/* NULL when out of memory.  @max_nbytes: what all allocations together may take. */
struct tsr_arena *tsr_arena_new(size_t max_nbytes);

/* Frees all that was allocated from it.  NULL is allowed. */
void tsr_arena_free(struct tsr_arena *a);
TSR_OWNED_BY(tsr_arena_free, struct tsr_arena)

/*
 * Zeroed memory, aligned for any type; @nbytes may be 0.  NULL when out of memory or past the
 * limit: tsr_arena_full() says which.  An arena that is NULL, as one that could not be made, has no memory.
 */
void *tsr_arena_alloc(struct tsr_arena *a, size_t nbytes);

/* The same for @n items in *ret, or @failure if there are none; for TSR_TRY(). */
#define TSR_ARENA_NEW(ret, n, arena, failure) \
	((*(ret) = tsr_arena_alloc((arena), (n) * sizeof(**(ret)))) ? TSR_OK : (failure))

/* The same from the arena of one operation, which has no limit: out of memory for @what. */
#define TSR_TAKE(ret, n, arena, err, what) \
	TSR_ARENA_NEW(ret, n, arena, tsr_fail_nomem((err), (what)))

/* A NUL-terminated copy of @nbytes bytes.  @bytes may be NULL if there are none. */
char *tsr_arena_copy(struct tsr_arena *a, const void *bytes, size_t nbytes);

/* A copy of text. */
char *tsr_arena_string(struct tsr_arena *a, const char *text);

/* Text as printf() composes it. */
char *tsr_arena_printf(struct tsr_arena *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A copy of bytes without a NUL, aligned for any type. */
void *tsr_arena_dup(struct tsr_arena *a, const void *bytes, size_t nbytes);

/*
 * As realloc(): @p, of @old_nbytes from tsr_arena_alloc() or this function, made @new_nbytes long,
 * which is not less.  The new bytes are not set.  On failure NULL, and @p is as before.  A large
 * allocation is grown without leaving the old one behind; @p may be NULL if @old_nbytes is 0.
 */
void *tsr_arena_grow(struct tsr_arena *a, void *p, size_t old_nbytes, size_t new_nbytes);

/* Whether the last allocation that failed did so because of the limit. */
_Bool tsr_arena_full(const struct tsr_arena *a);

/* What the allocations took so far, padding included. */
size_t tsr_arena_used(const struct tsr_arena *a);

/* Set another limit, even below what is used, for a part of the work; returns the one before. */
size_t tsr_arena_limit(struct tsr_arena *a, size_t max_nbytes);

#endif
