/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed all at once, up to a limit. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small allocations are cut from chunks; one of LARGE bytes or more gets memory of its own. */
#define CHUNK ((size_t)256 << 10)
#define LARGE_USUAL ((size_t)32 << 10)

/* Let AddressSanitizer see each allocation, so that it catches writes past the end of one. */
#if defined(__SANITIZE_ADDRESS__)
#define LARGE ((size_t)1)
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LARGE ((size_t)1)
#endif
#endif
#ifndef LARGE
#define LARGE LARGE_USUAL
#endif

/* What malloc gave: a chunk or a large allocation; the memory handed out follows. */
struct block {
	alignas(max_align_t) struct block *prev;
	struct block *next;
};

struct tsr_arena {
	struct block ring; /* of all blocks */
	char *at, *end; /* what is left of the last chunk */
	size_t used, limit;
	bool full;
};

struct tsr_arena *tsr_arena_new(size_t max_nbytes)
{
	struct tsr_arena *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->ring.prev = a->ring.next = &a->ring;
	a->limit = max_nbytes;
	return a;
}

void tsr_arena_free(struct tsr_arena *a)
{
	if (!a)
		return;
	while (a->ring.next != &a->ring) {
		struct block *b = a->ring.next;

		a->ring.next = b->next;
		free(b);
	}
	free(a);
}

/* Count @nbytes more. */
static bool charge(struct tsr_arena *a, size_t nbytes)
{
	if (a->used > a->limit || nbytes > a->limit - a->used) {
		a->full = true;
		return false;
	}
	a->used += nbytes;
	return true;
}

/* The failure of malloc: what was counted is not taken. */
static void *no_memory(struct tsr_arena *a, size_t charged)
{
	a->used -= charged;
	a->full = false;
	return NULL;
}

static void *new_block(struct tsr_arena *a, size_t nbytes, bool zeroed)
{
	struct block *b;

	if (nbytes > SIZE_MAX - sizeof(*b))
		return NULL;
	b = zeroed ? calloc(1, sizeof(*b) + nbytes) : malloc(sizeof(*b) + nbytes);
	if (!b)
		return NULL;
	b->prev = &a->ring;
	b->next = a->ring.next;
	b->next->prev = a->ring.next = b;
	return b + 1;
}

static void *alloc_large(struct tsr_arena *a, size_t nbytes)
{
	void *p;

	if (!charge(a, nbytes))
		return NULL;
	p = new_block(a, nbytes, true);
	return p ? p : no_memory(a, nbytes);
}

static void *alloc_small(struct tsr_arena *a, size_t nbytes, size_t align)
{
	size_t pad = a->at ? -(uintptr_t)a->at & (align - 1) : 0;
	void *p;

	if (!a->at || nbytes + pad > (size_t)(a->end - a->at)) {
		char *chunk;

		if (!charge(a, nbytes))
			return NULL;
		chunk = new_block(a, CHUNK, false);
		if (!chunk)
			return no_memory(a, nbytes);
		a->at = chunk;
		a->end = chunk + CHUNK;
		pad = 0;
	} else if (!charge(a, nbytes + pad)) {
		return NULL;
	}
	p = a->at + pad;
	a->at += pad + nbytes;
	return memset(p, 0, nbytes);
}

static void *alloc(struct tsr_arena *a, size_t nbytes, size_t align)
{
	if (!a)
		return NULL;
	if (nbytes == 0)
		nbytes = 1;
	return nbytes >= LARGE ? alloc_large(a, nbytes) : alloc_small(a, nbytes, align);
}

void *tsr_arena_alloc(struct tsr_arena *a, size_t nbytes)
{
	return alloc(a, nbytes, alignof(max_align_t));
}

char *tsr_arena_copy(struct tsr_arena *a, const void *bytes, size_t nbytes)
{
	char *copy;

	if (nbytes == SIZE_MAX) {
		a->full = true;
		return NULL;
	}
	copy = alloc(a, nbytes + 1, 1); /* zeroed: the NUL is there */
	if (copy && nbytes)
		memcpy(copy, bytes, nbytes);
	return copy;
}

char *tsr_arena_string(struct tsr_arena *a, const char *text)
{
	return tsr_arena_copy(a, text, strlen(text));
}

char *tsr_arena_printf(struct tsr_arena *a, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap, again;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	if (n >= 0)
		text = tsr_arena_alloc(a, (size_t)n + 1);
	if (text)
		vsnprintf(text, (size_t)n + 1, fmt, again);
	va_end(again);
	va_end(ap);
	return text;
}

void *tsr_arena_dup(struct tsr_arena *a, const void *bytes, size_t nbytes)
{
	void *copy = tsr_arena_alloc(a, nbytes);

	if (copy && nbytes)
		memcpy(copy, bytes, nbytes);
	return copy;
}

static void *grow_large(struct tsr_arena *a, void *p, size_t old_nbytes, size_t new_nbytes)
{
	struct block *b = (struct block *)p - 1;

	if (!charge(a, new_nbytes - old_nbytes))
		return NULL;
	b = new_nbytes > SIZE_MAX - sizeof(*b) ? NULL : realloc(b, sizeof(*b) + new_nbytes);
	if (!b)
		return no_memory(a, new_nbytes - old_nbytes);
	b->prev->next = b;
	b->next->prev = b;
	return b + 1;
}

void *tsr_arena_grow(struct tsr_arena *a, void *p, size_t old_nbytes, size_t new_nbytes)
{
	void *grown;

	if (p && old_nbytes >= LARGE)
		return grow_large(a, p, old_nbytes, new_nbytes);
	/* The last allocation of a chunk grows in place, unless it would become a large one. */
	if (p && old_nbytes && (char *)p + old_nbytes == a->at && new_nbytes < LARGE &&
	    new_nbytes - old_nbytes <= (size_t)(a->end - a->at)) {
		if (!charge(a, new_nbytes - old_nbytes))
			return NULL;
		a->at += new_nbytes - old_nbytes;
		return p;
	}
	grown = tsr_arena_alloc(a, new_nbytes);
	if (grown && old_nbytes)
		memcpy(grown, p, old_nbytes);
	return grown;
}

_Bool tsr_arena_full(const struct tsr_arena *a)
{
	return a->full;
}

size_t tsr_arena_used(const struct tsr_arena *a)
{
	return a->used;
}

size_t tsr_arena_limit(struct tsr_arena *a, size_t max_nbytes)
{
	const size_t before = a->limit;

	a->limit = max_nbytes;
	return before;
}
