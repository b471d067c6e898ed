/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU dispatch: which SIMD levels the processor has, and the choice of one for everything. */
#include "base/isa.h"

#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static bool cpu_has_base(void)
{
	return true;
}

#ifdef __x86_64__
/*
 * Asked of the processor itself: clang 14 has no names for some of these, and in a program that another
 * compiler's library starts (packaging/static) __builtin_cpu_supports() denies all.
 */
struct features {
	unsigned basic, structured, extended; /* ECX of leaf 1, EBX of leaf 7, ECX of 0x80000001 */
	unsigned saved; /* the registers that the system saves: the low half of XCR0 */
};

#define FMA_MOVBE_OSXSAVE_AVX_F16C (1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29)
#define BMI1_AVX2_BMI2 (1u << 3 | 1u << 5 | 1u << 8)
#define AVX512_F_DQ_CD_BW_VL (1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31)
#define LZCNT (1u << 5)
#define SAVES_YMM 0x06u
#define SAVES_ZMM 0xe6u

static struct features read_features(void)
{
	struct features f = { 0 };
	unsigned a, b, c, d;

	if (__get_cpuid(1, &a, &b, &c, &d))
		f.basic = c;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
		f.structured = b;
	if (__get_cpuid(0x80000001, &a, &b, &c, &d))
		f.extended = c;
	if (f.basic & 1u << 27) /* OSXSAVE: without it there is no XGETBV */
		__asm__("xgetbv" : "=a"(f.saved), "=d"(d) : "c"(0));
	return f;
}

static bool has_all(unsigned found, unsigned bits)
{
	return (found & bits) == bits;
}

/* x86-64-v3, all of which the compiler may use. */
static bool cpu_has_avx2(void)
{
	const struct features f = read_features();

	return has_all(f.basic, FMA_MOVBE_OSXSAVE_AVX_F16C) &&
	       has_all(f.structured, BMI1_AVX2_BMI2) && has_all(f.extended, LZCNT) &&
	       has_all(f.saved, SAVES_YMM);
}

/* x86-64-v4, likewise. */
static bool cpu_has_avx512(void)
{
	const struct features f = read_features();

	return cpu_has_avx2() && has_all(f.structured, AVX512_F_DQ_CD_BW_VL) &&
	       has_all(f.saved, SAVES_ZMM);
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
