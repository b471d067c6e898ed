/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are taken into the program. */
#ifndef TSR_BASE_EMBED_H
#define TSR_BASE_EMBED_H

/*
 * Prose, styles and scripts are files of their own, so that tools for them can read them.  The assembler
 * takes them into the object, as a string; make knows them by its rules.
 */
#define TSR_EMBED(name, path) \
	__asm__(".section .rodata\n.global " #name "\n.hidden " #name "\n" #name \
		":\n.incbin \"" path "\"\n.byte 0\n.previous\n"); \
	extern const char name[] __attribute__((visibility("hidden")))

#endif
