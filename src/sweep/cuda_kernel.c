/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel of somebody else's file, by the CUDA driver.  The driver is loaded when it is needed, by its
 * binary interface alone, so that this works in a build without CUDA.
 */
#include "sweep/cuda_kernel.h"

#include <dlfcn.h>

#include "base/fail.h"

#define GUARD_BYTE 0xa5

/* X(function, arguments) of the driver; handles and addresses of the GPU are as in its ABI. */
#define DRIVER(X) \
	X(cuInit, unsigned flags) \
	X(cuDeviceGet, int *device, int index) \
	X(cuDevicePrimaryCtxRetain, void **context, int device) \
	X(cuCtxSetCurrent, void *context) \
	X(cuModuleLoad, void **module, const char *path) \
	X(cuModuleGetFunction, void **function, void *module, const char *name) \
	X(cuMemAlloc_v2, uint64_t *address, size_t nbytes) \
	X(cuMemcpyHtoD_v2, uint64_t to, const void *from, size_t nbytes) \
	X(cuMemcpyDtoH_v2, void *to, uint64_t from, size_t nbytes) \
	X(cuMemsetD8_v2, uint64_t to, unsigned char byte, size_t nbytes) \
	X(cuLaunchKernel, void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
	  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_nbytes, \
	  void *stream, void **arguments, void **extra) \
	X(cuGetErrorString, int result, const char **text)

/* The driver's functions; those of a process are the same for everybody. */
static struct {
#define X(function, ...) int (*function)(__VA_ARGS__);
	DRIVER(X)
#undef X
} driver;

static enum tsr_status find_driver(const char *path, struct tsr_err *err)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *missing = NULL;
	void *found;

	if (!library)
		return tsr_fail(err, TSR_E_FORMAT, "%s: needs the CUDA driver: %s", path,
				dlerror());
#define X(function, ...) \
	found = dlsym(library, #function); \
	memcpy(&driver.function, &found, sizeof(found)); \
	missing = found ? missing : #function;
	DRIVER(X)
#undef X
	if (missing)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found a CUDA driver without %s, expected CUDA 11 or later",
				path, missing);
	return TSR_OK;
}

static const char *reason(int result)
{
	const char *text = NULL;

	driver.cuGetErrorString(result, &text);
	return text ? text : "unknown error";
}

/* @what failed on a file, unless it did not. */
static enum tsr_status check(int result, const char *path, const char *what, struct tsr_err *err)
{
	if (result == 0)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT, "%s: %s: %s", path, what, reason(result));
}

static int open_gpu(unsigned gpu)
{
	int device, result = driver.cuInit(0);
	void *context;

	if (result == 0)
		result = driver.cuDeviceGet(&device, (int)gpu);
	if (result == 0)
		result = driver.cuDevicePrimaryCtxRetain(&context, device);
	return result ? result : driver.cuCtxSetCurrent(context);
}

enum tsr_status tsr_cuda_kernels_open(struct tsr_cuda_kernels *k, const char *path, unsigned gpu,
				      size_t in_nbytes, size_t out_nbytes, struct tsr_err *err)
{
	k->path = path;
	TSR_TRY(find_driver(path, err));
	TSR_TRY(check(open_gpu(gpu), path, "the GPU cannot be used", err));
	TSR_TRY(check(driver.cuModuleLoad(&k->module, path), path, "cannot be loaded", err));
	TSR_TRY(check(driver.cuMemAlloc_v2(&k->in, in_nbytes), path, "no memory on the GPU", err));
	return check(driver.cuMemAlloc_v2(&k->out, out_nbytes + TSR_CUDA_KERNEL_GUARD), path,
		     "no memory on the GPU", err);
}

enum tsr_status tsr_cuda_kernels_find(const struct tsr_cuda_kernels *k, const char *symbol,
				      void **ret, struct tsr_err *err)
{
	if (driver.cuModuleGetFunction(ret, k->module, symbol) != 0)
		return tsr_fail(err, TSR_E_FORMAT, "%s: found no kernel %s", k->path, symbol);
	return TSR_OK;
}

/* Its first error; a copy from the GPU waits for the kernel. */
static int run(const struct tsr_cuda_kernels *k, void *kernel, const float *in, size_t n, void *out,
	       size_t out_nbytes, unsigned char *guard)
{
	const size_t nblocks = (n + TSR_CUDA_KERNEL_THREADS - 1) / TSR_CUDA_KERNEL_THREADS;
	uint64_t from = k->in, to = k->out, count = n;
	void *arguments[] = { &from, &to, &count };
	int result = driver.cuMemcpyHtoD_v2(from, in, n * sizeof(float));

	if (result == 0)
		result = driver.cuMemsetD8_v2(to + out_nbytes, GUARD_BYTE, TSR_CUDA_KERNEL_GUARD);
	if (result == 0)
		result = driver.cuLaunchKernel(kernel, (unsigned)nblocks, 1, 1,
					       TSR_CUDA_KERNEL_THREADS, 1, 1, 0, NULL, arguments,
					       NULL);
	if (result == 0)
		result = driver.cuMemcpyDtoH_v2(out, to, out_nbytes);
	if (result == 0)
		result = driver.cuMemcpyDtoH_v2(guard, to + out_nbytes, TSR_CUDA_KERNEL_GUARD);
	return result;
}

enum tsr_status tsr_cuda_kernels_call(const struct tsr_cuda_kernels *k, void *kernel,
				      const float *in, size_t n, void *out, size_t out_nbytes,
				      struct tsr_err *err)
{
	unsigned char guard[TSR_CUDA_KERNEL_GUARD];
	const int result = run(k, kernel, in, n, out, out_nbytes, guard);

	if (result)
		return tsr_fail(err, TSR_E_FORMAT, "failed: %s", reason(result));
	for (size_t i = 0; i < sizeof(guard); i++) {
		if (guard[i] != GUARD_BYTE)
			return tsr_fail(err, TSR_E_FORMAT, "wrote behind its results");
	}
	return TSR_OK;
}
