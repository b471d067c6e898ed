// SPDX-License-Identifier: Apache-2.0
/*
 * The CUDA runtime of the emulated GPU, and its threads: fibers of one CPU thread.  A fiber runs
 * until it waits for its warp or block or is done; then the next one does.  Warps are run one after
 * the other, each until all of it waits for the block.
 */
#include <csetjmp>
#include <cstdio>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <ucontext.h>

#include <cuda_runtime.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

static void die(const char *what, const char *operation)
{
	fprintf(stderr, "emulated GPU: block %u, thread %u: %s in %s\n", blockIdx.x, threadIdx.x,
		what, operation);
	abort();
}

/* --- Fibers ------------------------------------------------------------------------------------ */

#define THREADS_MAX 1024u
#define STACK_NBYTES (256u << 10)

enum wait { RUNNING, FOR_WARP, FOR_BLOCK, DONE };

struct fiber {
	jmp_buf context;
	char *stack;
	dim3 index;
	enum wait wait;
	const char *operation; /* that it waits in */
	unsigned mask;
};

static struct fiber fibers[THREADS_MAX], *current;
static jmp_buf scheduler;
static unsigned nfibers, nthreads;
static uint64_t given[2][THREADS_MAX]; /* of this and the next meeting */
static unsigned parity[THREADS_MAX]; /* per fiber: which of the two comes next */
static void (*body)(void *);
static void *body_ctx;
static std::recursive_mutex busy;

#ifdef __SANITIZE_ADDRESS__
static const void *main_stack;
static size_t main_stack_nbytes;
static void *main_fake;
#endif

static void to_scheduler(struct fiber *self)
{
#ifdef __SANITIZE_ADDRESS__
	void *fake;

	__sanitizer_start_switch_fiber(&fake, main_stack, main_stack_nbytes);
#endif
	if (_setjmp(self->context) == 0)
		_longjmp(scheduler, 1);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(fake, &main_stack, &main_stack_nbytes);
#endif
}

static void resume(struct fiber *f)
{
	current = f;
	threadIdx = f->index;
	f->wait = RUNNING;
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(&main_fake, f->stack, STACK_NBYTES);
#endif
	if (_setjmp(scheduler) == 0)
		_longjmp(f->context, 1);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(main_fake, NULL, NULL);
#endif
}

static ucontext_t creator;

/* A fiber lives for ever: one body after the other. */
static void fiber_main(void)
{
	struct fiber *self = current;

#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(NULL, &main_stack, &main_stack_nbytes);
#endif
	for (;;) {
		self->wait = DONE;
		to_scheduler(self);
		body(body_ctx);
	}
}

static void make_fiber(void)
{
	struct fiber *f = &fibers[nfibers++];
	ucontext_t start;

	f->stack = (char *)malloc(STACK_NBYTES);
	getcontext(&start);
	start.uc_stack.ss_sp = f->stack;
	start.uc_stack.ss_size = STACK_NBYTES;
	start.uc_link = &creator;
	makecontext(&start, fiber_main, 0);
	current = f;
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(&main_fake, f->stack, STACK_NBYTES);
#endif
	if (_setjmp(scheduler) == 0)
		setcontext(&start);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(main_fake, NULL, NULL);
#endif
}

/* --- Warps and blocks -------------------------------------------------------------------------- */

/* All of a warp waits in the same operation, whose mask names it all. */
static void check_meeting(const struct fiber *warp, unsigned n)
{
	const unsigned all = n == warpSize ? 0xffffffffu : (1u << n) - 1;

	for (unsigned i = 0; i < n; i++) {
		threadIdx = warp[i].index;
		if (warp[i].wait != FOR_WARP || strcmp(warp[i].operation, warp[0].operation) != 0)
			die("not all of the warp is", warp[0].wait == FOR_WARP ? warp[0].operation :
									     "an operation of it");
		if ((warp[i].mask & all) != all)
			die("the mask has not all of the warp", warp[i].operation);
	}
}

/* Until all of it waits for the block or is done. */
static void run_warp(struct fiber *warp, unsigned n)
{
	for (;;) {
		unsigned waiting = 0;

		for (unsigned i = 0; i < n; i++) {
			if (warp[i].wait != DONE)
				resume(&warp[i]);
		}
		for (unsigned i = 0; i < n; i++)
			waiting += warp[i].wait == FOR_WARP;
		if (!waiting)
			return;
		check_meeting(warp, n);
	}
}

static void run_block(void)
{
	unsigned waiting, done;

	for (unsigned i = 0; i < nthreads; i++) {
		fibers[i].wait = RUNNING;
		fibers[i].index = dim3(i % blockDim.x, i / blockDim.x, 0);
	}
	do {
		waiting = done = 0;
		for (unsigned i = 0; i < nthreads; i += warpSize)
			run_warp(&fibers[i], std::min(nthreads - i, warpSize));
		for (unsigned i = 0; i < nthreads; i++) {
			waiting += fibers[i].wait == FOR_BLOCK;
			done += fibers[i].wait == DONE;
		}
		if (waiting && done)
			die("a thread of the block is done while another waits", "__syncthreads");
	} while (waiting);
}

#define GPUS_MAX 64

static bool is_the_one(const char *variable, unsigned *count);
static thread_local int device; /* the current one */
static bool broken[GPUS_MAX]; /* a kernel failed there */

void emulated_grid(dim3 blocks, dim3 threads, void (*what)(void *ctx), void *ctx)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);
	static unsigned launches;

	broken[device] = broken[device] || is_the_one("TERSOR_EMULATED_BAD_LAUNCH", &launches);
	if (broken[device])
		return;
	body = what;
	body_ctx = ctx;
	gridDim = blocks;
	blockDim = threads;
	nthreads = threads.x * threads.y;
	if (nthreads == 0 || nthreads > THREADS_MAX || threads.z != 1 || blocks.x == 0 ||
	    blocks.y == 0 || blocks.y > 65535 || blocks.z != 1)
		die("a launch of this shape is refused", "<<<>>>");
	while (nfibers < nthreads)
		make_fiber();
	for (unsigned y = 0; y < blocks.y; y++) {
		for (unsigned x = 0; x < blocks.x; x++) {
			blockIdx = dim3(x, y);
			run_block();
		}
	}
}

const uint64_t *emulated_meet(const char *operation, unsigned mask, uint64_t value)
{
	struct fiber *self = current;
	const size_t index = (size_t)(self - fibers);
	uint64_t *const slots = given[parity[index]];

	parity[index] ^= 1;
	slots[index] = value;
	self->wait = FOR_WARP;
	self->operation = operation;
	self->mask = mask;
	to_scheduler(self);
	return slots + index / warpSize * warpSize;
}

void __syncthreads(void)
{
	current->wait = FOR_BLOCK;
	to_scheduler(current);
}

/* --- The runtime ------------------------------------------------------------------------------- */

#define MEMORY_MAX (UINT64_C(1) << 40)

/*
 * Work waits until something waits for it: what lacks a wait, such as a copy into memory that a
 * kernel has yet to read, goes wrong here every time.
 */
struct queue {
	std::deque<std::function<void()>> work;
	uint64_t done, appended;
};

struct emulated_stream {
	std::shared_ptr<struct queue> queue;
	int device;
};

/* The work that was in the queue, which may outlive the stream. */
struct emulated_event {
	std::shared_ptr<struct queue> queue;
	uint64_t position;
	struct timespec at;
	int device;
};

#define HOST (-1)

/* Memory of a GPU, or of the host for copies. */
struct block {
	size_t nbytes;
	int device;
};

static std::set<cudaStream_t> streams;
static std::map<const char *, struct block> blocks;

/* The device of a stream, which may be the default one. */
static int stream_device(cudaStream_t stream)
{
	return stream ? stream->device : device;
}

static void advance(struct queue *q, uint64_t position)
{
	while (q->done < position) {
		const std::function<void()> work = q->work.front();

		q->work.pop_front();
		q->done++;
		work();
	}
}

static void drain(cudaStream_t stream)
{
	if (stream)
		advance(stream->queue.get(), stream->queue->appended);
}

void emulated_append(cudaStream_t stream, const std::function<void()> &work)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	if (!stream) {
		work();
		return;
	}
	/* Whoever does it later, on whatever device. */
	stream->queue->work.push_back([=]() {
		const int was = device;

		device = stream_device(stream);
		work();
		device = was;
	});
	stream->queue->appended++;
}

/* What a place in memory is part of, or NULL. */
static const struct block *block_of(const void *memory)
{
	auto after = blocks.upper_bound((const char *)memory);

	if (after == blocks.begin() || (const char *)memory >= (--after)->first + after->second.nbytes)
		return NULL;
	return &after->second;
}

static bool is_host_memory(const void *memory)
{
	const struct block *b = block_of(memory);

	return b && b->device == HOST;
}

/* GPUs do not see each other's memory. */
static void check_reach(cudaStream_t stream, const void *memory, const char *operation)
{
	const struct block *b = block_of(memory);

	if (b && b->device != HOST && b->device != stream_device(stream))
		die("memory of another GPU", operation);
}

void emulated_check(cudaStream_t stream, const void *argument, size_t nbytes)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	for (size_t at = 0; at + sizeof(void *) <= nbytes; at += sizeof(void *)) {
		const void *word;

		memcpy(&word, (const char *)argument + at, sizeof(word));
		check_reach(stream, word, "an argument of a kernel");
	}
}

static thread_local cudaError_t last_error;

static cudaError_t failed(cudaError_t e)
{
	last_error = e;
	return e;
}

/* TERSOR_EMULATED_GPUS: how many there are, 1 if unset. */
static int device_count(void)
{
	const char *n = getenv("TERSOR_EMULATED_GPUS");

	return n ? std::min(atoi(n), GPUS_MAX) : 1;
}

/*
 * Whether this is the call that an environment variable has the number of, counted from 1; of those on GPU
 * TERSOR_EMULATED_BAD_GPU, if that is set.
 */
static bool is_the_one(const char *variable, unsigned *count)
{
	const char *n = getenv(variable), *gpu = getenv("TERSOR_EMULATED_BAD_GPU");

	return n && (!gpu || atoi(gpu) == device) && ++*count == (unsigned)atoi(n);
}

/* What runs after it finds out that a kernel failed; the launch does not. */
cudaError_t emulated_status(void)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	return broken[device] ? failed(cudaErrorLaunchFailure) : cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
	switch (e) {
	case cudaSuccess:
		return "no error";
	case cudaErrorMemoryAllocation:
		return "out of memory";
	case cudaErrorInvalidDevice:
		return "invalid device ordinal";
	case cudaErrorLaunchFailure:
		return "unspecified launch failure";
	default:
		return "invalid argument";
	}
}

cudaError_t cudaGetLastError(void)
{
	const cudaError_t e = last_error;

	last_error = cudaSuccess;
	return e;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = device_count();
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
	if (index >= device_count())
		return failed(cudaErrorInvalidDevice);
	device = index;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int index)
{
	if (index >= device_count())
		return failed(cudaErrorInvalidDevice);
	memset(prop, 0, sizeof(*prop));
	strcpy(prop->name, "emulated GPU");
	prop->totalGlobalMem = MEMORY_MAX;
	prop->major = 9;
	prop->multiProcessorCount = 2;
	return cudaSuccess;
}

/* The only one: how many multiprocessors there are. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int index)
{
	*value = 2;
	return index < device_count() ? cudaSuccess : failed(cudaErrorInvalidDevice);
}

cudaError_t emulated_malloc(void **memory, size_t nbytes)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);
	static unsigned calls;
	const bool fails = is_the_one("TERSOR_EMULATED_BAD_MALLOC", &calls);

	*memory = nbytes < MEMORY_MAX && !fails ? aligned_alloc(256, (nbytes + 255) / 256 * 256) : NULL;
	if (!*memory)
		return failed(cudaErrorMemoryAllocation);
	memset(*memory, 0xa7, nbytes);
	blocks[(const char *)*memory] = { nbytes, device };
	return cudaSuccess;
}

/* Waits for the whole GPU. */
cudaError_t cudaFree(void *memory)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	for (cudaStream_t stream : streams) {
		if (stream->device == device)
			drain(stream);
	}
	if (memory)
		check_reach(NULL, memory, "cudaFree");
	blocks.erase((const char *)memory);
	free(memory);
	return cudaSuccess;
}

cudaError_t emulated_malloc_host(void **memory, size_t nbytes)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);
	const cudaError_t e = emulated_malloc(memory, nbytes);

	if (e == cudaSuccess)
		blocks[(const char *)*memory].device = HOST;
	return e;
}

cudaError_t cudaFreeHost(void *memory)
{
	return cudaFree(memory);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, cudaMemcpyKind)
{
	if (nbytes)
		memcpy(to, from, nbytes);
	return emulated_status();
}

cudaError_t cudaMemset(void *to, int value, size_t nbytes)
{
	memset(to, value, nbytes);
	return emulated_status();
}

/* Memory of the host that is not for copies goes through a buffer, at once. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	check_reach(stream, to, "a copy");
	check_reach(stream, from, "a copy");
	if (kind != cudaMemcpyDeviceToDevice &&
	    !is_host_memory(kind == cudaMemcpyHostToDevice ? from : to)) {
		drain(stream);
		return cudaMemcpy(to, from, nbytes, kind);
	}
	emulated_append(stream, [=]() { cudaMemcpy(to, from, nbytes, kind); });
	return emulated_status();
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t nbytes, cudaStream_t stream)
{
	emulated_check(stream, &to, sizeof(to));
	emulated_append(stream, [=]() { cudaMemset(to, value, nbytes); });
	return emulated_status();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	*stream = new emulated_stream{ std::make_shared<struct queue>(), device };
	streams.insert(*stream);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	drain(stream);
	streams.erase(stream);
	delete stream;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	drain(stream);
	return emulated_status();
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return cudaStreamSynchronize(stream);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	*event = new emulated_event();
	(*event)->device = device;
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	cudaEventSynchronize(event);
	delete event;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	if (event->device != stream_device(stream))
		die("an event of another GPU", "cudaEventRecord");
	emulated_append(stream, [=]() { clock_gettime(CLOCK_MONOTONIC, &event->at); });
	event->queue = stream ? stream->queue : NULL;
	event->position = stream ? stream->queue->appended : 0;
	return emulated_status();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);

	if (event->queue)
		advance(event->queue.get(), event->position);
	return emulated_status();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
	std::lock_guard<std::recursive_mutex> only_one(busy);
	const std::shared_ptr<struct queue> other = event->queue;
	const uint64_t position = event->position;

	if (other)
		emulated_append(stream, [=]() { advance(other.get(), position); });
	return emulated_status();
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
	*milliseconds = 1e3f * (float)(to->at.tv_sec - from->at.tv_sec) +
			1e-6f * (float)(to->at.tv_nsec - from->at.tv_nsec);
	return cudaSuccess;
}
