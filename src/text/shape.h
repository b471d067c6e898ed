/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of a tensor in words. */
#ifndef TSR_TEXT_SHAPE_H
#define TSR_TEXT_SHAPE_H

#include <stddef.h>
#include <stdint.h>

/* "[2, 3]", or as many dimensions as @room bytes hold. */
void tsr_shape_text(char *out, size_t room, unsigned rank, const uint64_t *shape);

#endif
