/* SPDX-License-Identifier: Apache-2.0 */
/* Memory returned to the system before it is freed. */
#include "io/pages.h"

#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

void tsr_pages_drop(void *block, size_t nbytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t before = -(uintptr_t)block & (page - 1);
	size_t inside;

	if (nbytes <= before)
		return;
	inside = (nbytes - before) / page * page;
	/* An optimisation: failure is harmless. */
	if (inside)
		(void)madvise((char *)block + before, inside, MADV_DONTNEED);
}

void tsr_pages_trim(void)
{
#ifdef __GLIBC__
	(void)malloc_trim(0);
#endif
}

/* Of malloc(): a block of so many bytes is mapped by itself. */
#define MAPPED_NBYTES (4 << 20)

void tsr_pages_map_large(void)
{
#ifdef __GLIBC__
	(void)mallopt(M_MMAP_THRESHOLD, MAPPED_NBYTES);
#endif
}
