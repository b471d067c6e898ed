/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of a tensor in words. */
#include "text/shape.h"

#include <inttypes.h>
#include <stdio.h>

void tsr_shape_text(char *out, size_t room, unsigned rank, const uint64_t *shape)
{
	size_t at = (size_t)snprintf(out, room, "[");

	for (unsigned d = 0; d < rank && at + 24 < room; d++)
		at += (size_t)snprintf(out + at, room - at, "%s%" PRIu64, d ? ", " : "", shape[d]);
	snprintf(out + at, room - at, "]");
}
