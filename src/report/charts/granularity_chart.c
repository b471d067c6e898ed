/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of 8-bit floats by granularity: a panel per format, a place per granularity. */
#include "report/charts/granularity_chart.h"

#include "report/charts/plot_lines.h"

enum { MEDIAN, LARGEST, LINES };

static const char *const keys[LINES] = { "median of the tensors", "largest" };
static const char *const classes[LINES] = { "s0", "s1" };

const char *tsr_fp8_title(enum tsr_fp8 format)
{
	return format == TSR_FP8_E4M3 ? "E4M3" : "E5M2";
}

static const char *name_of(size_t granularity)
{
	return tsr_granularity_get((unsigned)granularity)->name;
}

/* Blocks of several rows are another series than groups in a row. */
static size_t first_blocks(void)
{
	size_t i = 1;

	while (i < TSR_GRANULARITY_COUNT && (tsr_granularity_get((unsigned)i)->rows <= 1 ||
					     tsr_granularity_get((unsigned)i - 1)->rows > 1))
		i++;
	return i;
}

/* The values of a line. */
static void values_of(const struct tsr_granularity_figures *f, enum tsr_fp8 format, int line,
		      double ret[TSR_GRANULARITY_COUNT])
{
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++)
		ret[i] = line == MEDIAN ? f->row[format][i].median : f->row[format][i].worst;
}

/* Both panels have the same decades. */
static struct tsr_axis range_of(const struct tsr_granularity_figures *f)
{
	struct tsr_axis y = TSR_AXIS;
	double values[TSR_GRANULARITY_COUNT];

	for (int i = 0; i < TSR_FP8_COUNT * LINES; i++) {
		values_of(f, (enum tsr_fp8)(i / LINES), i % LINES, values);
		for (unsigned k = 0; k < TSR_GRANULARITY_COUNT; k++)
			tsr_axis_note(&y, values[k]);
	}
	return y;
}

static struct tsr_lines panel_of(const struct tsr_granularity_figures *f, enum tsr_fp8 format)
{
	return (struct tsr_lines){ .name = tsr_fp8_name(format),
				   .title = tsr_fp8_title(format),
				   .unit = "NMSE by what shares a scale",
				   .y = range_of(f),
				   .wide_log = true,
				   .n = TSR_GRANULARITY_COUNT,
				   .name_of = name_of,
				   .break_at = first_blocks(),
				   .head = 150 };
}

static void put_panel(struct tsr_text *svg, const struct tsr_granularity_figures *f,
		      enum tsr_fp8 format, int left, int top, int width)
{
	struct tsr_lines l = panel_of(f, format);
	double values[TSR_GRANULARITY_COUNT];

	tsr_lines_open(svg, &l, left, top, width);
	for (int i = 0; i < LINES; i++) {
		tsr_chart_put_key(svg, l.area.left + 1800 * i, top + 450, classes[i], (unsigned)i,
				  keys[i]);
		values_of(f, format, i, values);
		tsr_lines_put(svg, &l, classes[i], values, (unsigned)i);
	}
	tsr_text_puts(svg, "</g>\n");
}

void tsr_granularity_chart_put(const struct tsr_granularity_figures *f, const char *id, int width,
			       int columns, struct tsr_text *svg)
{
	const struct tsr_lines panel = panel_of(f, TSR_FP8_E4M3);
	const int each = 10 * width / columns, height = tsr_lines_height(&panel);
	const struct tsr_chart_head head = { .id = id,
					     .width = width,
					     .height = TSR_FP8_COUNT / columns * height / 10,
					     .label = "Errors of 8-bit floats by granularity" };

	tsr_chart_open(svg, &head);
	for (int i = 0; i < TSR_FP8_COUNT; i++)
		put_panel(svg, f, (enum tsr_fp8)i, i % columns * each, i / columns * height, each);
	tsr_text_puts(svg, "</svg>\n");
}
