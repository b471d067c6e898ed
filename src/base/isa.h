/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_BASE_ISA_H
#define TSR_BASE_ISA_H

#include <stdbool.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

/*
 * The files of src/base/simd/ and src/codec/simd/ are compiled once per SIMD level, with TSR_ISA
 * set to its name.  TSR_FOR_ISA(x) is the name of the public thing x of such a file: tsr_x_avx2
 * and so on.
 */
#define TSR_ISA_PASTE2(name, isa) tsr_##name##_##isa
#define TSR_ISA_PASTE(name, isa) TSR_ISA_PASTE2(name, isa)
#define TSR_FOR_ISA(name) TSR_ISA_PASTE(name, TSR_ISA)

/* X(level) for the levels of this build, lowest first. */
#ifdef __x86_64__
#define TSR_ISA_LIST(X) X(base) X(avx2) X(avx512)
#else
#define TSR_ISA_LIST(X) X(base)
#endif

/* Whether the processor has a level. */
static inline bool tsr_cpu_has_base(void)
{
	return true;
}

#ifdef __x86_64__
/* F16C, MOVBE and LZCNT, which clang 14 has no names for. */
static inline bool tsr_cpu_has_rest_of_v3(void)
{
	const unsigned f16c_movbe = 1u << 29 | 1u << 22, lzcnt = 1u << 5;
	unsigned a, b, c = 0, d, extended = 0;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & f16c_movbe) == f16c_movbe &&
	       __get_cpuid(0x80000001, &a, &b, &extended, &d) && (extended & lzcnt) == lzcnt;
}

/* x86-64-v3, all of which the compiler may use. */
static inline bool tsr_cpu_has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
	       tsr_cpu_has_rest_of_v3();
}

static inline bool tsr_cpu_has_avx512(void)
{
	return tsr_cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}
#endif

#endif
