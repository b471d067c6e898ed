/* SPDX-License-Identifier: Apache-2.0 */
/* Text from files, made safe to print. */
#ifndef TERSOR_ESCAPE_H
#define TERSOR_ESCAPE_H

#include <stddef.h>

#include "tersor/api.h"

/**
 * tsr_escape() - Make text from a file safe to print on a terminal
 * @dst:     out: at most @dst_nbytes bytes (at least 1), always NUL-terminated
 * @src:     NUL-terminated text; need not be valid UTF-8
 *
 * Control bytes (C0, DEL, C1), bidirectional controls and bytes that are not UTF-8 become \xNN.
 * Text that does not fit ends in "...".  Thread-safe.
 */
TSR_API void tsr_escape(char *dst, size_t dst_nbytes, const char *src);

#endif
