/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_BASE_MARKUP_H
#define TSR_BASE_MARKUP_H

#include <stddef.h>
#include <stdint.h>

#include "text/text.h"

/*
 * What figures and pages are written with: SVG and HTML, the same bytes on every machine.
 * Coordinates are integers in tenths of a pixel.
 */

/* log10(v) of a finite v > 0, by arithmetic that is the same everywhere. */
double tsr_svg_log10(double v);

/* "12.3" */
void tsr_svg_put_tenths(struct tsr_text *svg, int tenths);

/* ' x="12.3"' */
void tsr_svg_put_attribute(struct tsr_text *svg, const char *name, int tenths);

void tsr_svg_put_segment(struct tsr_text *svg, const char *class, int x1, int y1, int x2, int y2);

/* A text element; @text is put as it is.  The first leaves it open. */
void tsr_svg_open_label(struct tsr_text *svg, const char *class, int x, int y);
void tsr_svg_put_label(struct tsr_text *svg, const char *class, int x, int y, const char *text);

/* A power with its exponent raised, in class "up"; a true minus sign. */
void tsr_svg_put_power(struct tsr_text *svg, const char *class, int x, int y, int base,
		       int exponent);

/* Shapes that are told apart without colour, in class "marker"; @shape counts modulo these. */
#define TSR_SVG_MARKERS 8u
void tsr_svg_put_marker(struct tsr_text *svg, int x, int y, unsigned shape);

/* An element @tag with commas between thousands. */
void tsr_html_put_count(struct tsr_text *html, const char *tag, uint64_t n);

/*
 * Text from a file in an element or an attribute: made safe to show as by tsr_escape(), then with
 * references for what markup is made of.
 */
void tsr_html_put_text(struct tsr_text *html, const char *text);

/*
 * Styles and scripts of pages are files of their own, so that tools for them can read them, and are
 * taken into the object by the assembler.
 */
#define TSR_EMBED(name, path) \
	__asm__(".section .rodata\n.global " #name "\n.hidden " #name "\n" #name \
		":\n.incbin \"" path "\"\n.byte 0\n.previous\n"); \
	extern const char name[] __attribute__((visibility("hidden")))

#endif
