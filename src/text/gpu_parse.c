/* SPDX-License-Identifier: Apache-2.0 */
/* Names of GPUs; the same with and without CUDA. */
#include <string.h>

#include "tersor/gpu.h"
#include "text/bytes.h"

#define INDEX_MAX 1023

bool tsr_gpu_parse(const char *device, unsigned *index_ret)
{
	uint64_t index = 0;

	if (strncmp(device, "cuda", 4) != 0)
		return false;
	if (device[4] &&
	    (device[4] != ':' || !tsr_digits(device + 5, strlen(device + 5), INDEX_MAX, &index)))
		return false;
	*index_ret = (unsigned)index;
	return true;
}
