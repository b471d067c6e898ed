/* SPDX-License-Identifier: Apache-2.0 */
#include "report/markup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tersor/escape.h"

/* --- SVG -------------------------------------------------------------------------------------- */

/* ln m = 2 atanh((m - 1) / (m + 1)) */
double tsr_svg_log10(double v)
{
	int exponent;
	const double m = frexp(v, &exponent), t = (m - 1) / (m + 1), tt = t * t;
	double power = t, sum = 0;

	for (int i = 1; i < 60; i += 2) {
		sum += power / i;
		power *= tt;
	}
	return (2 * sum / 0.693147180559945309 + exponent) * 0.301029995663981195;
}

void tsr_svg_put_tenths(struct tsr_text *svg, int tenths)
{
	tsr_text_printf(svg, "%s%d", tenths < 0 ? "-" : "", abs(tenths) / 10);
	if (tenths % 10)
		tsr_text_printf(svg, ".%d", abs(tenths) % 10);
}

void tsr_svg_put_attribute(struct tsr_text *svg, const char *name, int tenths)
{
	tsr_text_printf(svg, " %s=\"", name);
	tsr_svg_put_tenths(svg, tenths);
	tsr_text_puts(svg, "\"");
}

void tsr_svg_put_segment(struct tsr_text *svg, const char *class, int x1, int y1, int x2, int y2)
{
	tsr_text_printf(svg, "<line class=\"%s\"", class);
	tsr_svg_put_attribute(svg, "x1", x1);
	tsr_svg_put_attribute(svg, "y1", y1);
	tsr_svg_put_attribute(svg, "x2", x2);
	tsr_svg_put_attribute(svg, "y2", y2);
	tsr_text_puts(svg, "/>\n");
}

void tsr_svg_open_label(struct tsr_text *svg, const char *class, int x, int y)
{
	tsr_text_printf(svg, "<text class=\"%s\"", class);
	tsr_svg_put_attribute(svg, "x", x);
	tsr_svg_put_attribute(svg, "y", y);
	tsr_text_puts(svg, ">");
}

void tsr_svg_put_label(struct tsr_text *svg, const char *class, int x, int y, const char *text)
{
	tsr_svg_open_label(svg, class, x, y);
	tsr_text_printf(svg, "%s</text>\n", text);
}

void tsr_svg_put_power(struct tsr_text *svg, const char *class, int x, int y, int base,
		       int exponent)
{
	tsr_svg_open_label(svg, class, x, y);
	tsr_text_printf(svg, "%d<tspan class=\"up\" dy=\"-4\">%s%d</tspan></text>\n", base,
			exponent < 0 ? "\xe2\x88\x92" : "", abs(exponent));
}

void tsr_svg_put_marker(struct tsr_text *svg, int x, int y, unsigned shape)
{
	/* Around 0, 0 in pixels. */
	static const char *const shapes[TSR_SVG_MARKERS] = {
		"M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", /* circle */
		"M-3 -3h6v6h-6z", /* square */
		"M0 -4l4 7h-8z", /* triangle */
		"M0 -4.5l4 4.5l-4 4.5l-4 -4.5z", /* diamond */
		"M-3.5 -3.5l7 7m0 -7l-7 7", /* cross */
		"M0 4l4 -7h-8z", /* triangle, upside down */
		"M-4 0h8m-4 -4v8", /* plus */
		"M-4 0l2 -3.5h4l2 3.5l-2 3.5h-4z", /* hexagon */
	};

	tsr_text_puts(svg, "<path class=\"marker\" transform=\"translate(");
	tsr_svg_put_tenths(svg, x);
	tsr_text_puts(svg, " ");
	tsr_svg_put_tenths(svg, y);
	tsr_text_printf(svg, ")\" d=\"%s\"/>\n", shapes[shape % TSR_SVG_MARKERS]);
}

/* --- HTML ------------------------------------------------------------------------------------- */

void tsr_html_put_count(struct tsr_text *html, const char *tag, uint64_t n)
{
	char digits[24];
	const int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);

	tsr_text_printf(html, "<%s>", tag);
	for (int i = 0; i < len; i++)
		tsr_text_printf(html, i && (len - i) % 3 == 0 ? ",%c" : "%c", digits[i]);
	tsr_text_printf(html, "</%s>", tag);
}

void tsr_html_put_text(struct tsr_text *html, const char *text)
{
	const size_t room = 4 * strlen(text) + 1;
	char *safe = malloc(room);

	if (!safe) {
		html->failed = true;
		return;
	}
	tsr_escape(safe, room, text);
	for (const char *c = safe; *c; c++) {
		if (strchr("&<>\"'", *c))
			tsr_text_printf(html, "&#%d;", *c);
		else
			tsr_text_put(html, c, 1);
	}
	free(safe);
}
