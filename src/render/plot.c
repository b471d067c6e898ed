/* SPDX-License-Identifier: Apache-2.0 */
/* What SVG charts are drawn with: axes, paths, markers and labels. */
#include "render/plot.h"

#include <stdio.h>
#include <stdlib.h>

TSR_EMBED(tsr_plot_css, "src/render/plot.css");

/* --- Numbers ---------------------------------------------------------------------------------- */

/* ln m = 2 atanh((m - 1) / (m + 1)) */
double tsr_chart_log10(double v)
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

/* Powers up to 10^22 are exact, so one operation rounds. */
double tsr_chart_times_power(double m, int exponent)
{
	double unit = 1;

	for (int i = 0; i < abs(exponent); i++)
		unit *= 10;
	return exponent < 0 ? m / unit : m * unit;
}

double tsr_chart_round_step(double v)
{
	const int exponent = (int)floor(tsr_chart_log10(v));

	for (int m = 1; m <= 5; m += m == 1 ? 1 : 3) {
		const double step = tsr_chart_times_power(m, exponent);

		if (step >= v * 0.999999)
			return step;
	}
	return tsr_chart_times_power(10, exponent);
}

/* Without the zeros that printf() puts into exponents. */
void tsr_chart_put_error(double value, int digits, struct tsr_text *out)
{
	char text[40];
	char *exponent;

	if (isinf(value)) {
		tsr_text_puts(out, "\xe2\x88\x9e");
		return;
	}
	if (!(value > 0)) {
		tsr_text_puts(out, "0");
		return;
	}
	snprintf(text, sizeof(text), "%.*e", digits, value);
	exponent = strchr(text, 'e');
	tsr_text_put(out, text, (size_t)(exponent - text));
	tsr_text_printf(out, "e%d", atoi(exponent + 1));
}

/* --- Axes ------------------------------------------------------------------------------------- */

void tsr_axis_note(struct tsr_axis *a, double value)
{
	if (isnan(value))
		return;
	if (isinf(value)) {
		a->any_infinite = true;
	} else if (value > 0) {
		a->least = fmin(a->least, value);
		a->most = fmax(a->most, value);
	} else {
		a->any_zero = true;
	}
}

void tsr_axis_fit(struct tsr_axis *a, int from, int to, int edge)
{
	const int toward = to > from ? 1 : -1;

	a->log = true;
	a->low = a->least <= a->most ? floor(tsr_chart_log10(a->least) + 1e-9) : 0;
	a->high = a->least <= a->most ? ceil(tsr_chart_log10(a->most) - 1e-9) : 0;
	a->high += a->high <= a->low;
	a->zero = from;
	a->infinity = to;
	a->from = from + (a->any_zero ? toward * edge : 0);
	a->to = to - (a->any_infinite ? toward * edge : 0);
}

int tsr_axis_at(const struct tsr_axis *a, double value)
{
	double offset;

	if (a->log && isinf(value))
		return a->infinity;
	if (a->log && !(value > 0))
		return a->zero;
	offset = ((a->log ? tsr_chart_log10(value) : value) - a->low) / (a->high - a->low) *
		 (a->to - a->from);
	return a->from + (int)(offset + (offset < 0 ? -0.5 : 0.5));
}

int tsr_axis_tick(const struct tsr_axis *a, int tick)
{
	const int low = (int)a->low, high = (int)a->high;

	return a->from + (tick - low) * (a->to - a->from) / (high - low);
}

int tsr_axis_every(const struct tsr_axis *a, int each)
{
	const int room = abs(a->to - a->from) / each;

	return 1 + ((int)(a->high - a->low) - 1) / (room > 1 ? room : 1);
}

/* --- Elements --------------------------------------------------------------------------------- */

static void put_tenths(struct tsr_text *svg, int tenths)
{
	tsr_text_printf(svg, "%s%d", tenths < 0 ? "-" : "", abs(tenths) / 10);
	if (tenths % 10)
		tsr_text_printf(svg, ".%d", abs(tenths) % 10);
}

/* ' x="12.3"' */
static void put_attribute(struct tsr_text *svg, const char *name, int tenths)
{
	tsr_text_printf(svg, " %s=\"", name);
	put_tenths(svg, tenths);
	tsr_text_puts(svg, "\"");
}

void tsr_chart_open(struct tsr_text *svg, const struct tsr_chart_frame *f, const char *class,
		    int height, const char *label)
{
	tsr_text_printf(svg,
			"<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"%s\" class=\"plot%s\" "
			"width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
			"aria-label=\"%s\">\n<style>%s</style>\n"
			"<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n",
			f->id, class, f->width, height, f->width, height, label, tsr_plot_css);
}

void tsr_chart_open_panel(struct tsr_text *svg, const char *name, const char *more,
			  const struct tsr_chart_area *area)
{
	tsr_text_printf(svg, "<g class=\"panel\" data-panel=\"%s\"%s", name, more);
	put_attribute(svg, "data-left", area->left);
	put_attribute(svg, "data-right", area->right);
	put_attribute(svg, "data-top", area->top);
	put_attribute(svg, "data-bottom", area->bottom);
	tsr_text_puts(svg, ">\n");
}

void tsr_chart_put_line(struct tsr_text *svg, const char *class, int x1, int y1, int x2, int y2)
{
	tsr_text_printf(svg, "<line class=\"%s\"", class);
	put_attribute(svg, "x1", x1);
	put_attribute(svg, "y1", y1);
	put_attribute(svg, "x2", x2);
	put_attribute(svg, "y2", y2);
	tsr_text_puts(svg, "/>\n");
}

void tsr_chart_put_rect(struct tsr_text *svg, const char *class, int x, int y, int width,
			int height)
{
	tsr_text_puts(svg, "<rect");
	if (class)
		tsr_text_printf(svg, " class=\"%s\"", class);
	put_attribute(svg, "x", x);
	put_attribute(svg, "y", y);
	put_attribute(svg, "width", width);
	put_attribute(svg, "height", height);
	tsr_text_puts(svg, "/>\n");
}

void tsr_chart_open_label(struct tsr_text *svg, const char *class, int x, int y)
{
	tsr_text_printf(svg, "<text class=\"%s\"", class);
	put_attribute(svg, "x", x);
	put_attribute(svg, "y", y);
	tsr_text_puts(svg, ">");
}

void tsr_chart_put_label(struct tsr_text *svg, const char *class, int x, int y, const char *text)
{
	tsr_chart_open_label(svg, class, x, y);
	tsr_text_printf(svg, "%s</text>\n", text);
}

/* With a true minus sign. */
void tsr_chart_close_power(struct tsr_text *svg, int base, int exponent)
{
	tsr_text_printf(svg, "%d<tspan class=\"up\" dy=\"-4\">%s%d</tspan></text>\n", base,
			exponent < 0 ? "\xe2\x88\x92" : "", abs(exponent));
}

void tsr_chart_open_y_tick(struct tsr_text *svg, const struct tsr_chart_area *a, int y)
{
	tsr_chart_put_line(svg, "grid", a->left, y, a->right, y);
	tsr_chart_open_label(svg, "tick end", a->left - 60, y + 40);
}

void tsr_chart_put_y_tick(struct tsr_text *svg, const struct tsr_chart_area *a, int y,
			  const char *text)
{
	tsr_chart_open_y_tick(svg, a, y);
	tsr_text_printf(svg, "%s</text>\n", text);
}

void tsr_chart_put_decades(struct tsr_text *svg, const struct tsr_axis *x, int top, int bottom,
			   int each)
{
	const int low = (int)x->low, high = (int)x->high, every = tsr_axis_every(x, each);

	/* Zero and infinity are two more. */
	for (int d = low; d <= high + 2; d++) {
		const bool zero = d == high + 1, infinity = d == high + 2;
		const int at = zero ? x->zero : infinity ? x->infinity : tsr_axis_tick(x, d);

		if (zero ? !x->any_zero : infinity ? !x->any_infinite : (high - d) % every != 0)
			continue;
		tsr_chart_put_line(svg, "grid", at, top, at, bottom);
		tsr_chart_open_label(svg, "tick mid", at, bottom + 160);
		if (zero || infinity)
			tsr_text_puts(svg, zero ? "0</text>\n" : "\xe2\x88\x9e</text>\n");
		else
			tsr_chart_close_power(svg, 10, d);
	}
}

void tsr_chart_put_marker(struct tsr_text *svg, int x, int y, unsigned shape)
{
	/* Around 0, 0 in pixels. */
	static const char *const shapes[] = {
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
	put_tenths(svg, x);
	tsr_text_puts(svg, " ");
	put_tenths(svg, y);
	tsr_text_printf(svg, ")\" d=\"%s\"/>\n",
			shapes[shape % (sizeof(shapes) / sizeof(*shapes))]);
}

void tsr_chart_put_point(struct tsr_text *svg, bool line, int x, int y)
{
	tsr_text_puts(svg, line ? "L" : "M");
	put_tenths(svg, x);
	tsr_text_puts(svg, " ");
	put_tenths(svg, y);
}

void tsr_chart_put_dot(struct tsr_text *svg)
{
	tsr_text_puts(svg, "h0.1");
}

void tsr_chart_put_key(struct tsr_text *svg, int x, int y, const char *class, unsigned shape,
		       const char *words)
{
	tsr_text_printf(svg, "<g class=\"%s\"><path fill=\"none\" d=\"", class);
	tsr_chart_put_point(svg, false, x, y);
	tsr_text_puts(svg, "h34\"/>");
	tsr_chart_put_marker(svg, x + 170, y, shape);
	tsr_text_puts(svg, "</g>\n");
	tsr_chart_put_label(svg, "key", x + 420, y + 40, words);
}

/* --- Heat maps ---------------------------------------------------------------------------------- */

unsigned tsr_chart_class(double value, int decade)
{
	unsigned class = 0;

	while (class + 1 < TSR_CHART_CLASSES &&
	       value > tsr_chart_times_power(1, decade + (int)class))
		class ++;
	return class;
}

void tsr_chart_put_classes(struct tsr_text *svg, int x, int y, int decade)
{
	tsr_chart_put_label(svg, "tick end", x - 60, y + 130, "at most");
	for (unsigned i = 0; i < TSR_CHART_CLASSES; i++, x += 330) {
		tsr_text_printf(svg, "<g class=\"cell q%u\">", i);
		tsr_chart_put_rect(svg, NULL, x + 10, y, 310, 180);
		tsr_chart_open_label(svg, "mid", x + 165, y + 130);
		if (i + 1 < TSR_CHART_CLASSES)
			tsr_chart_close_power(svg, 10, decade + (int)i);
		else
			tsr_text_puts(svg, "more</text>\n");
		tsr_text_puts(svg, "</g>\n");
	}
}
