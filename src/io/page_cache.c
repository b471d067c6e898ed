/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What large files leave in the system's cache of pages.  Tiles are read and written by several threads and
 * in several regions of a file, so that their ranges are joined first: advice costs a look at every CPU.
 */
#include "io/page_cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* Ranges that grow at the same time: the planes of a packed file, for a few threads. */
#define GROWING 16u

/* Ranges being written out, which are dropped when as many came after them. */
#define FLYING 4u

#define RANGE_NBYTES (UINT64_C(8) << 20)

struct range {
	uint64_t first, end;
};

struct tsr_trail {
	pthread_mutex_t lock;
	struct range growing[GROWING], flying[FLYING];
	unsigned next, next_flying; /* to be replaced */
	bool writes;
};

static _Atomic uint64_t moved, limit;

static uint64_t limit_now(void)
{
	uint64_t nbytes = atomic_load(&limit);

	if (!nbytes) {
		const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

		nbytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 4 : UINT64_MAX;
		atomic_store(&limit, nbytes);
	}
	return nbytes;
}

void tsr_trail_set_limit(uint64_t nbytes)
{
	atomic_store(&limit, nbytes);
	atomic_store(&moved, 0);
}

struct tsr_trail *tsr_trail_new(void)
{
	struct tsr_trail *t = calloc(1, sizeof(*t));

	if (t)
		pthread_mutex_init(&t->lock, NULL);
	return t;
}

void tsr_trail_free(struct tsr_trail *t)
{
	if (!t)
		return;
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* Wait until a range is written, then drop its pages, or those that nobody changed. */
static void drop(const struct tsr_trail *t, int fd, const struct range *r)
{
	const off_t first = (off_t)r->first, nbytes = (off_t)(r->end - r->first);

	if (r->first == r->end)
		return;
	if (t->writes)
		(void)sync_file_range(fd, first, nbytes,
				      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					      SYNC_FILE_RANGE_WAIT_AFTER);
	(void)posix_fadvise(fd, first, nbytes, POSIX_FADV_DONTNEED);
}

/* A range that grows no more: what was read goes at once, what was written when the disk has it. */
static void leave(struct tsr_trail *t, int fd, struct range *r)
{
	if (!t->writes) {
		drop(t, fd, r);
	} else if (r->first < r->end) {
		struct range *old = &t->flying[t->next_flying];

		(void)sync_file_range(fd, (off_t)r->first, (off_t)(r->end - r->first),
				      SYNC_FILE_RANGE_WRITE);
		drop(t, fd, old);
		*old = *r;
		t->next_flying = (t->next_flying + 1) % FLYING;
	}
	*r = (struct range){ 0 };
}

/* Join all growing ranges that touch a new one, and return where it is; NULL: none does. */
static struct range *join(struct tsr_trail *t, struct range more)
{
	struct range *found = NULL;

	for (unsigned i = 0; i < GROWING; i++) {
		struct range *g = &t->growing[i];

		if (g->first == g->end || (g->end != more.first && g->first != more.end))
			continue;
		more.first = g->first < more.first ? g->first : more.first;
		more.end = g->end > more.end ? g->end : more.end;
		*g = (struct range){ 0 };
		found = g;
	}
	if (found)
		*found = more;
	return found;
}

static void add(struct tsr_trail *t, int fd, uint64_t offset, uint64_t nbytes)
{
	const struct range more = { offset, offset + nbytes };
	struct range *r = join(t, more);

	if (!r) {
		r = &t->growing[t->next];
		t->next = (t->next + 1) % GROWING;
		leave(t, fd, r);
		*r = more;
	}
	if (r->end - r->first >= RANGE_NBYTES)
		leave(t, fd, r);
}

static void moves(struct tsr_trail *t, int fd, uint64_t offset, uint64_t nbytes, bool writes)
{
	if (!t || !nbytes || atomic_fetch_add(&moved, nbytes) + nbytes <= limit_now())
		return;
	pthread_mutex_lock(&t->lock);
	t->writes = writes;
	add(t, fd, offset, nbytes);
	pthread_mutex_unlock(&t->lock);
}

void tsr_trail_read(struct tsr_trail *t, int fd, uint64_t offset, uint64_t nbytes)
{
	moves(t, fd, offset, nbytes, false);
}

void tsr_trail_written(struct tsr_trail *t, int fd, uint64_t offset, uint64_t nbytes)
{
	moves(t, fd, offset, nbytes, true);
}

void tsr_trail_end(struct tsr_trail *t, int fd)
{
	if (!t)
		return;
	for (unsigned i = 0; i < GROWING; i++)
		leave(t, fd, &t->growing[i]);
	for (unsigned i = 0; i < FLYING; i++) {
		drop(t, fd, &t->flying[i]);
		t->flying[i] = (struct range){ 0 };
	}
}
