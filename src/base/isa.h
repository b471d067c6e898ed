/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU dispatch: which SIMD levels there are, and the one that everything uses. */
#ifndef TSR_BASE_ISA_H
#define TSR_BASE_ISA_H

#include <stdbool.h>

/*
 * The files of every simd/ folder are compiled once per level, with TSR_ISA set to its name.
 * TSR_FOR_ISA(x) is the name of the public thing x of such a file: tsr_x_avx2 and so on.
 */
#define TSR_ISA_PASTE2(name, isa) tsr_##name##_##isa
#define TSR_ISA_PASTE(name, isa) TSR_ISA_PASTE2(name, isa)
#define TSR_FOR_ISA(name) TSR_ISA_PASTE(name, TSR_ISA)

/*
 * X(level) for the levels of this build, lowest first; the declaration of a thing for each of them;
 * and an array of these, from which tsr_isa_level() chooses.
 */
#ifdef __x86_64__
#define TSR_ISA_LIST(X) X(base) X(avx2) X(avx512)
#define TSR_ISA_DECLARE(type, name) \
	extern type tsr_##name##_base, tsr_##name##_avx2, tsr_##name##_avx512;
#define TSR_ISA_VARIANTS(name) \
	{ \
		tsr_##name##_base, tsr_##name##_avx2, tsr_##name##_avx512 \
	}
#else
#define TSR_ISA_LIST(X) X(base)
#define TSR_ISA_DECLARE(type, name) extern type tsr_##name##_base;
#define TSR_ISA_VARIANTS(name) \
	{ \
		tsr_##name##_base \
	}
#endif

/* The names of the levels of this build, lowest first; NULL at the end. */
const char *const *tsr_isa_names(void);

/*
 * Use this SIMD level from now on, or the best one that the processor has for NULL.  False if this
 * build or the processor lacks the level.  Not thread-safe: call it first.
 */
bool tsr_isa_select(const char *name);

/* The level in use. */
const char *tsr_isa_name(void);

/* The same as an index: what tsr_isa_select() chose, or else the best that the processor has. */
unsigned tsr_isa_level(void);

#endif
