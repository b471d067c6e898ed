/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU dispatch: which SIMD levels the processor has, and the choice of one for everything. */
#include "base/isa.h"

#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "tersor/codec.h"

static bool cpu_has_base(void)
{
	return true;
}

#ifdef __x86_64__
/* F16C, MOVBE and LZCNT, which clang 14 has no names for. */
static bool cpu_has_rest_of_v3(void)
{
	const unsigned f16c_movbe = 1u << 29 | 1u << 22, lzcnt = 1u << 5;
	unsigned a, b, c = 0, d, extended = 0;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & f16c_movbe) == f16c_movbe &&
	       __get_cpuid(0x80000001, &a, &b, &extended, &d) && (extended & lzcnt) == lzcnt;
}

/* x86-64-v3, all of which the compiler may use. */
static bool cpu_has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
	       cpu_has_rest_of_v3();
}

static bool cpu_has_avx512(void)
{
	return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}
#endif

static const struct {
	const char *name;
	bool (*supported)(void);
} levels[] = {
#define X(isa) { #isa, cpu_has_##isa },
	TSR_ISA_LIST(X)
#undef X
};

#define NLEVELS ((int)(sizeof(levels) / sizeof(*levels)))

static int level_in_use = -1; /* none yet */

/* By the name of it, or for NULL the best that the processor has; -1 if there is none. */
static int find_level(const char *name)
{
	int i = NLEVELS - 1;

	while (i >= 0 && ((name && strcmp(levels[i].name, name) != 0) || !levels[i].supported()))
		i--;
	return i;
}

/* Racing first calls all store the same level. */
unsigned tsr_isa_level(void)
{
	int level = __atomic_load_n(&level_in_use, __ATOMIC_RELAXED);

	if (level < 0) {
		level = find_level(NULL);
		__atomic_store_n(&level_in_use, level, __ATOMIC_RELAXED);
	}
	return (unsigned)level;
}

bool tsr_isa_select(const char *name)
{
	const int level = find_level(name);

	if (level >= 0)
		level_in_use = level;
	return level >= 0;
}

const char *tsr_isa_name(void)
{
	return levels[tsr_isa_level()].name;
}

const char *const *tsr_isa_names(void)
{
#define X(isa) #isa,
	static const char *const names[] = { TSR_ISA_LIST(X) NULL };
#undef X

	return names;
}
