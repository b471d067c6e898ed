/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an input costs: edges of the control flow and bytes that are allocated.  Counted, not timed, so that
 * a slow machine changes nothing.  Other builds than those for libFuzzer have no such counters.
 */
#include "fuzz.h"

#include <stdio.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTED 1
#endif
#endif

/*
 * The bounds.  The fixed part covers buffers of a command, and what decoding a deflated record may cost;
 * the part per byte is some ten times what the costliest good checkpoint of the corpora needs.
 */
#define EDGES_FIXED 300000000u
#define EDGES_PER_BYTE 10000u
#define ALLOCATED_FIXED ((size_t)256 << 20)
#define ALLOCATED_PER_BYTE 20000u

static struct {
	uint64_t edges, edges_max;
	uint64_t allocated, allocated_max;
	size_t nbytes;
} cost = { .edges_max = UINT64_MAX, .allocated_max = UINT64_MAX };

/* The worst of a run, printed at its end if FUZZ_COST is set. */
static struct {
	double edges, allocated;
} worst;

void cost_more(size_t nbytes)
{
	cost.nbytes += nbytes;
	cost.edges_max = EDGES_FIXED + (uint64_t)EDGES_PER_BYTE * cost.nbytes;
	cost.allocated_max = ALLOCATED_FIXED + (uint64_t)ALLOCATED_PER_BYTE * cost.nbytes;
}

#ifdef COUNTED

#include <sanitizer/allocator_interface.h>

#define UNCOUNTED __attribute__((no_sanitize("coverage", "address", "undefined")))

void __wrap___sanitizer_cov_trace_pc(void);

static void exceeded(const char *what, uint64_t n)
{
	cost.edges_max = cost.allocated_max = UINT64_MAX;
	fprintf(stderr, "cost: over %llu %s for %zu bytes\n", (unsigned long long)n, what, cost.nbytes);
	abort();
}

/* Called at each edge, by -fsanitize-coverage=trace-pc. */
UNCOUNTED void __wrap___sanitizer_cov_trace_pc(void)
{
	if (++cost.edges == cost.edges_max)
		exceeded("edges", cost.edges);
}

UNCOUNTED static void on_malloc(const volatile void *at, size_t nbytes)
{
	(void)at;
	cost.allocated += nbytes;
	if (cost.allocated > cost.allocated_max)
		exceeded("bytes allocated", cost.allocated);
}

UNCOUNTED static void on_free(const volatile void *at)
{
	(void)at;
}

static void print_worst(void)
{
	fprintf(stderr, "cost: at most %.3g edges and %.3g bytes allocated (of what is allowed)\n", worst.edges,
		worst.allocated);
}

static void prepare(void)
{
	static int ready;

	if (ready)
		return;
	ready = 1;
	__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
	if (getenv("FUZZ_COST"))
		atexit(print_worst);
}

#else

static void prepare(void)
{
}

#endif

void cost_start(size_t nbytes)
{
	prepare();
	cost.nbytes = 0;
	cost.edges = cost.allocated = 0;
	cost_more(nbytes);
}

void cost_end(void)
{
	const double edges = (double)cost.edges / (double)cost.edges_max;
	const double allocated = (double)cost.allocated / (double)cost.allocated_max;

	worst.edges = edges > worst.edges ? edges : worst.edges;
	worst.allocated = allocated > worst.allocated ? allocated : worst.allocated;
	cost.edges_max = cost.allocated_max = UINT64_MAX;
}
