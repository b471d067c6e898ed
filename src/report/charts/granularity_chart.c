/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of 8-bit floats by granularity: a panel per format, a place per granularity. */
#include "report/charts/charts.h"

enum { MEDIAN, LARGEST, LINES };

static const char *const keys[LINES] = { "median of the tensors", "largest" };
static const char *const classes[LINES] = { "s0", "s1" };

const char *tsr_fp8_title(unsigned granularity)
{
	return granularity < TSR_GRANULARITY_SIZES ? "E4M3" : "E5M2";
}

static const char *name_of(size_t granularity)
{
	return tsr_granularity_get((unsigned)granularity)->name;
}

/* The panel of a format, of which @first is the first granularity.  All panels have the same decades. */
static struct tsr_lines panel_of(const struct tsr_granularity_figures *f, unsigned first)
{
	struct tsr_lines l = { .name = tsr_granularity_get(first)->format,
			       .title = tsr_fp8_title(first),
			       .unit = "NMSE by what shares a scale",
			       .y = TSR_AXIS,
			       .wide_log = true,
			       .n = TSR_GRANULARITY_SIZES,
			       .name_of = name_of,
			       .break_at = 1,
			       .head = 150 };

	/* Blocks of several rows are another series than groups in a row. */
	while (tsr_granularity_get((unsigned)l.break_at)->rows <= 1)
		l.break_at++;
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++) {
		tsr_axis_note(&l.y, f->row[i].median);
		tsr_axis_note(&l.y, f->row[i].worst);
	}
	return l;
}

void tsr_granularity_chart_put(const void *ctx, const struct tsr_chart_frame *f,
			       struct tsr_text *svg)
{
	const struct tsr_granularity_figures *figures = ctx;
	const struct tsr_lines panel = panel_of(ctx, 0);
	const int each = 10 * f->width / f->columns, height = tsr_lines_height(&panel);
	const int rows = TSR_GRANULARITY_FORMATS / f->columns;
	double values[TSR_GRANULARITY_SIZES];

	tsr_chart_open(svg, f, "", rows * height / 10, "Errors of 8-bit floats by granularity");
	for (int i = 0; i < TSR_GRANULARITY_FORMATS; i++) {
		const unsigned first = (unsigned)i * TSR_GRANULARITY_SIZES;
		const int top = i / f->columns * height;
		struct tsr_lines l = panel_of(ctx, first);

		tsr_lines_open(svg, &l, i % f->columns * each, top, each);
		for (unsigned k = 0; k < LINES; k++) {
			tsr_chart_put_key(svg, l.area.left + 1800 * (int)k, top + 450, classes[k],
					  k, keys[k]);
			for (unsigned n = 0; n < TSR_GRANULARITY_SIZES; n++)
				values[n] = k == MEDIAN ? figures->row[first + n].median
							: figures->row[first + n].worst;
			tsr_lines_put(svg, &l, classes[k], values, k);
		}
		tsr_text_puts(svg, "</g>\n");
	}
	tsr_text_puts(svg, "</svg>\n");
}
