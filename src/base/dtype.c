/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sizes of element types. */
#include "tersor/dtype.h"

#include <string.h>

static const struct {
	const char *name;
	unsigned bits;
} dtypes[TSR_DTYPE_COUNT] = {
#define X(id, name, bits) { name, bits },
	TSR_DTYPE_LIST(X)
#undef X
};

const char *tsr_dtype_name(enum tsr_dtype dtype)
{
	return dtypes[dtype].name;
}

unsigned tsr_dtype_bits(enum tsr_dtype dtype)
{
	return dtypes[dtype].bits;
}

enum tsr_dtype tsr_dtype_find(const char *name)
{
	unsigned i = 0;

	while (i < TSR_DTYPE_COUNT && strcmp(dtypes[i].name, name) != 0)
		i++;
	return (enum tsr_dtype)i;
}
