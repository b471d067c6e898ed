/* SPDX-License-Identifier: Apache-2.0 */
/* What pages of reports have in common: one HTML file that needs no network. */
#ifndef TSR_REPORT_PAGE_H
#define TSR_REPORT_PAGE_H

#include "report/charts/plot.h"

/*
 * Every page has page.css; one with values for its charts also has page.js.
 * Without its script a page still shows everything but the values under the pointer.
 */

/* Up to the first element of the body. */
void tsr_page_open(struct tsr_text *html, const char *title);

/* Two drawings of one chart, for wide and for narrow windows, and where values are shown. */
void tsr_page_put_charts(struct tsr_text *html, tsr_chart_put *put, const void *ctx);

/* The end; @json: the values that the script shows, NULL without one. */
void tsr_page_close(struct tsr_text *html, const struct tsr_text *json);

/*
 * Text from a file in an element or an attribute: made safe to show as by tsr_escape(), then with
 * references for the characters of markup.
 */
void tsr_html_put_text(struct tsr_text *html, const char *text);

/*
 * Styles and scripts are files of their own, so that tools for them can read them.  The assembler
 * takes them into the object.
 */
#define TSR_EMBED(name, path) \
	__asm__(".section .rodata\n.global " #name "\n.hidden " #name "\n" #name \
		":\n.incbin \"" path "\"\n.byte 0\n.previous\n"); \
	extern const char name[] __attribute__((visibility("hidden")))

#endif
