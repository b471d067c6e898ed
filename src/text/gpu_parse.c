/* SPDX-License-Identifier: Apache-2.0 */
/* Names of GPUs; the same with and without CUDA. */
#include <string.h>

#include "tersor/gpu.h"

#define INDEX_MAX 1023

bool tsr_gpu_parse(const char *device, unsigned *index_ret)
{
	unsigned index = 0;

	if (strncmp(device, "cuda", 4) != 0)
		return false;
	if (device[4] && (device[4] != ':' || !device[5]))
		return false;
	for (const char *c = device + (device[4] ? 5 : 4); *c; c++) {
		if (*c < '0' || *c > '9')
			return false;
		index = 10 * index + (unsigned)(*c - '0');
		if (index > INDEX_MAX)
			return false;
	}
	*index_ret = index;
	return true;
}
