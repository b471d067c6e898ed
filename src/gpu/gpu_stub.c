/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for device.cu in a build without CUDA. */
#include "base/fail.h"
#include "tersor/gpu.h"

bool tsr_gpu_built(void)
{
	return false;
}

unsigned tsr_gpu_count(void)
{
	return 0;
}

enum tsr_status tsr_gpu_describe(unsigned index, char *text, size_t room, struct tsr_err *err)
{
	(void)text;
	(void)room;
	return tsr_gpu_check(index, err);
}

enum tsr_status tsr_gpu_check(unsigned index, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_IO,
			"cuda:%u: built without CUDA; build where nvcc is on the PATH", index);
}
