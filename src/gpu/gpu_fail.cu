/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the CUDA runtime as the library's. */
#include <stdarg.h>
#include <stdio.h>

#include "gpu/cuda.h"

enum tsr_status tsr_gpu_fail(struct tsr_err *err, unsigned index, cudaError_t e, const char *fmt,
			     ...)
{
	const enum tsr_status status = e == cudaErrorMemoryAllocation ? TSR_E_NOMEM : TSR_E_IO;
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	cudaGetLastError();
	return tsr_fail(err, status, "cuda:%u: %s: %s", index, what, cudaGetErrorString(e));
}
