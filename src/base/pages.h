/* SPDX-License-Identifier: Apache-2.0 */
/* Memory returned to the system before it is freed. */
#ifndef TSR_BASE_PAGES_H
#define TSR_BASE_PAGES_H

#include <stddef.h>

/*
 * Give back the memory of the pages inside a block of malloc(), whose values are lost; it is still
 * to be freed.  Giving back a large block is the kernel's work on every page, which free() does on
 * one thread; with this several can do it at once, each on a block of its own.
 */
void tsr_pages_drop(void *block, size_t nbytes);

#endif
