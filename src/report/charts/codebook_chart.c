/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of a learned codebook.  Coordinates are integers in tenths of a pixel. */
#include "report/charts/charts.h"

/* Bins that are drawn as one. */
#define BINS_PER_STEP 16
#define NSTEPS (TSR_LEARNED_BINS / BINS_PER_STEP)

static uint64_t count_of(const struct tsr_learned *l, unsigned step)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < BINS_PER_STEP; i++)
		sum += l->count[step * BINS_PER_STEP + i];
	return sum;
}

static void put_x_axis(struct tsr_text *svg, const struct tsr_chart_area *a,
		       const struct tsr_axis *x, const char *const labels[5])
{
	tsr_chart_put_line(svg, "axis", a->left, a->bottom, a->right, a->bottom);
	for (int i = 0; i < 5; i++) {
		const int at = x->from + i * (x->to - x->from) / 4;

		tsr_chart_put_line(svg, "axis", at, a->bottom, at, a->bottom + 50);
		tsr_chart_put_label(svg, "tick mid", at, a->bottom + 180, labels[i]);
	}
}

static void put_histogram(struct tsr_text *svg, const struct tsr_learned *l)
{
	static const char *const labels[] = { "\xe2\x88\x92\x31", "\xe2\x88\x92\x30.5", "0", "0.5",
					      "1" };
	const struct tsr_chart_area a = { 620, 9400, 400, 2900 };
	const struct tsr_axis x = tsr_axis_of(a.left, a.right, -1, 1, false);
	int decades = 1; /* that the largest count needs */
	struct tsr_axis y;

	for (unsigned i = 0; i < NSTEPS; i++) {
		const uint64_t count = count_of(l, i);

		while (count && tsr_chart_log10((double)count) > decades)
			decades++;
	}
	y = tsr_axis_of(a.bottom - 100, a.top, 0, decades, true);
	tsr_chart_open_panel(svg, "histogram", "", &a);
	tsr_chart_put_label(svg, "title", a.left, a.top - 130,
			    "Values over the largest of their block");
	for (int d = 0; d <= decades; d++) {
		tsr_chart_open_y_tick(svg, &a, tsr_axis_tick(&y, d));
		tsr_chart_close_power(svg, 10, d);
	}
	/* The outline of the histogram; an empty step is at the axis. */
	tsr_text_puts(svg, "<path class=\"counts\" d=\"");
	tsr_chart_put_point(svg, false, a.left, a.bottom);
	for (unsigned i = 0; i < NSTEPS; i++) {
		const uint64_t count = count_of(l, i);
		const int at = count ? tsr_axis_at(&y, (double)count) : a.bottom;

		for (unsigned end = i; end <= i + 1; end++)
			tsr_chart_put_point(svg, true,
					    a.left + (int)end * (a.right - a.left) / NSTEPS, at);
	}
	tsr_chart_put_point(svg, true, a.right, a.bottom);
	tsr_text_puts(svg, "z\"/>\n");
	for (unsigned i = 0; i < TSR_CODEBOOK_ENTRIES; i++) {
		const int at = tsr_axis_at(&x, (double)l->codebook[i]);

		tsr_chart_put_line(svg, "entry", at, a.bottom + 220, at, a.bottom + 340);
	}
	put_x_axis(svg, &a, &x, labels);
	tsr_chart_put_label(svg, "note end", a.left - 60, a.bottom + 320, "entries");
	tsr_text_puts(svg, "</g>\n");
}

static void put_entries(struct tsr_text *svg, const struct tsr_learned *l)
{
	static const char *const labels[] = { "0", "64", "128", "192", "256" };
	const struct tsr_chart_area a = { 620, 9400, 3800, 5900 };
	const struct tsr_axis x = tsr_axis_of(a.left, a.right, 0, TSR_CODEBOOK_ENTRIES, false);
	const struct tsr_axis y = tsr_axis_of(a.bottom, a.top, -1, 1, false);

	tsr_chart_open_panel(svg, "codebook", "", &a);
	tsr_chart_put_label(svg, "title", a.left, a.top - 130, "Entries by index; dashed: uniform");
	tsr_chart_put_y_tick(svg, &a, tsr_axis_tick(&y, 1), "1");
	tsr_chart_put_y_tick(svg, &a, tsr_axis_tick(&y, 0), "0");
	tsr_chart_put_y_tick(svg, &a, tsr_axis_tick(&y, -1), "\xe2\x88\x92\x31");
	tsr_chart_put_line(svg, "limit", a.left, a.bottom,
			   tsr_axis_at(&x, TSR_CODEBOOK_ENTRIES - 1), a.top);
	tsr_text_puts(svg, "<g class=\"s1\"><path fill=\"none\" d=\"");
	for (unsigned i = 0; i < TSR_CODEBOOK_ENTRIES; i++)
		tsr_chart_put_point(svg, i > 0, tsr_axis_at(&x, i),
				    tsr_axis_at(&y, (double)l->codebook[i]));
	tsr_text_puts(svg, "\"/></g>\n");
	put_x_axis(svg, &a, &x, labels);
	tsr_text_puts(svg, "</g>\n");
}

void tsr_codebook_put(const void *ctx, const struct tsr_chart_frame *f, struct tsr_text *svg)
{
	tsr_chart_open(svg, f, "", 640,
		       "Histogram of normalised values, and the codebook learned from it");
	put_histogram(svg, ctx);
	put_entries(svg, ctx);
	tsr_text_puts(svg, "</svg>\n");
}
