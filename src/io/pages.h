/* SPDX-License-Identifier: Apache-2.0 */
/* Memory returned to the system before it is freed. */
#ifndef TSR_BASE_PAGES_H
#define TSR_BASE_PAGES_H

#include <stddef.h>

/*
 * Return the whole pages inside memory from malloc() to the system.  Their contents are lost; the
 * caller still frees the memory.  For large memory the kernel does work on every page, which free()
 * does on one thread; with this, several threads share it, each with its own part.
 */
void tsr_pages_drop(void *block, size_t nbytes);

/* Return what was freed to the system, after much was built up in small pieces and freed again. */
void tsr_pages_trim(void);

/*
 * For a whole process, once at its start: large blocks are mapped by themselves, however large those were
 * that were freed before.  glibc otherwise takes up to 32 MiB from its heap once such a block was freed,
 * where lists that grow leave holes.
 */
void tsr_pages_map_large(void);

#endif
