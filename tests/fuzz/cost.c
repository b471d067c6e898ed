/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an input costs: edges of the control flow and bytes that are allocated.  Counted, not timed, so that
 * a slow machine changes nothing.  Other builds than those for libFuzzer have no such counters.  With FUZZ_COST
 * set, a line for each input says what it took.
 */
#include "fuzz.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTED 1
#endif
#endif

static struct {
	uint64_t edges, edges_max;
	uint64_t allocated, allocated_max;
	size_t nbytes;
	bool prints; /* FUZZ_COST is set */
} cost = { .edges_max = UINT64_MAX, .allocated_max = UINT64_MAX };

void cost_more(size_t nbytes)
{
	cost.nbytes += nbytes;
	cost.edges_max = fuzz_cost.edges + fuzz_cost.edges_per_byte * cost.nbytes;
	cost.allocated_max = fuzz_cost.allocated + fuzz_cost.allocated_per_byte * cost.nbytes;
}

#ifdef COUNTED

#include <sanitizer/allocator_interface.h>

#define UNCOUNTED __attribute__((no_sanitize("coverage", "address", "undefined")))

void __wrap___sanitizer_cov_trace_pc(void);

static void exceeded(const char *what, uint64_t n)
{
	cost.edges_max = cost.allocated_max = UINT64_MAX;
	fprintf(stderr, "cost: over %llu %s for %zu bytes\n", (unsigned long long)n, what,
		cost.nbytes);
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

static void prepare(void)
{
	static int ready;

	if (ready)
		return;
	ready = 1;
	cost.prints = getenv("FUZZ_COST") != NULL;
	__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
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
	if (cost.prints)
		fprintf(stderr, "cost: %zu bytes, %" PRIu64 " edges, %" PRIu64 " bytes allocated\n",
			cost.nbytes, cost.edges, cost.allocated);
	cost.edges_max = cost.allocated_max = UINT64_MAX;
}
