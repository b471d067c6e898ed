/* SPDX-License-Identifier: Apache-2.0 */
/* The map of two runs: how far each tensor differs at each step. */
#include "report/charts/charts.h"

#include "render/format.h"

/* Distances, in tenths of a pixel. */
enum { LABEL = 2500, RIGHT = 120, ROW = 150, TITLE = 480, STEPS = 260, KEY = 460 };

/* Rows of a chart. */
#define ROWS_MAX 60u

/* The decade of the first colour. */
#define DECADE_FIRST (-6)

/* What was compared, those that differ first. */
static size_t rows_of(const struct tsr_bisect *b, const struct tsr_bisect_tensor *ret[ROWS_MAX])
{
	size_t n = 0;

	for (unsigned pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < b->ntensors && n < ROWS_MAX; i++) {
			const struct tsr_bisect_tensor *t = &b->tensors[i];

			if (t->ncompared && (pass ? !t->ndiffering : t->ndiffering > 0))
				ret[n++] = t;
		}
	}
	return n;
}

/* "equal" is a class of its own. */
static unsigned class_of(float change)
{
	return change == 0 ? TSR_CHART_CLASSES : tsr_chart_class((double)change, DECADE_FIRST);
}

static void put_row(struct tsr_text *svg, const struct tsr_bisect *b,
		    const struct tsr_bisect_tensor *t, int top, int width)
{
	for (unsigned i = 0, end; i < b->ncolumns; i = end) {
		const int x = LABEL + width * (int)i / (int)b->ncolumns;
		float most = t->heat[i];

		/* Neighbours of one colour are one rectangle. */
		for (end = i + 1; end < b->ncolumns && (t->heat[end] < 0) == (most < 0) &&
				  (most < 0 || class_of(t->heat[end]) == class_of(most));
		     end++)
			most = t->heat[end] > most ? t->heat[end] : most;
		if (most < 0)
			continue;
		tsr_text_printf(svg, "<g class=\"cell q%u\"><title>", class_of(most));
		tsr_html_put_text(svg, t->name);
		tsr_text_puts(svg, ", ");
		tsr_html_put_text(svg, t->of);
		tsr_text_printf(svg, ", from step %" PRIu64, b->column[i]);
		if (end < b->ncolumns)
			tsr_text_printf(svg, ", before step %" PRIu64, b->column[end]);
		tsr_text_printf(
			svg, most > 0 ? ": differs by up to %.2g</title>\n" : ": equal</title>\n",
			(double)most);
		tsr_chart_put_rect(svg, NULL, x, top + 10,
				   LABEL + width * (int)end / (int)b->ncolumns - x, ROW - 20);
		tsr_text_puts(svg, "</g>\n");
	}
}

void tsr_bisect_chart_put(const void *ctx, const struct tsr_chart_frame *f, struct tsr_text *svg)
{
	const struct tsr_bisect *b = ctx;
	const struct tsr_bisect_tensor *rows[ROWS_MAX];
	const size_t n = rows_of(b, rows);
	const int width = 10 * f->width - LABEL - RIGHT, bottom = TITLE + ROW * (int)n;
	const struct tsr_chart_area area = { LABEL, LABEL + width, TITLE, bottom };
	const unsigned every = (b->ncolumns + 7) / 8;
	char step[24];

	tsr_chart_open(svg, f, "", (bottom + STEPS + KEY) / 10,
		       "Differences of two runs by tensor and step");
	tsr_chart_open_panel(svg, "steps", "", &area);
	tsr_chart_put_label(svg, "title", 60, 200, "Differences");
	tsr_chart_put_label(svg, "tick", 60, 360,
			    "of root mean squares, relative to the larger; grey: the same bits");
	for (size_t i = 0; i < n; i++) {
		const int top = TITLE + ROW * (int)i;

		tsr_chart_open_label(svg, "tick end", LABEL - 60, top + 115);
		tsr_html_put_text(svg, tsr_format_name(rows[i]->name, 24).text);
		tsr_text_puts(svg, " ");
		tsr_html_put_text(svg, tsr_format_name(rows[i]->of, 14).text);
		tsr_text_puts(svg, "</text>\n");
		put_row(svg, b, rows[i], top, width);
	}
	for (unsigned i = 0; i < b->ncolumns; i += every) {
		snprintf(step, sizeof(step), "%" PRIu64, b->column[i]);
		tsr_chart_put_label(svg, "tick", LABEL + width * (int)i / (int)b->ncolumns,
				    bottom + 150, step);
	}
	tsr_chart_put_classes(svg, LABEL, bottom + STEPS, DECADE_FIRST);
	tsr_text_puts(svg, "</g>\n</svg>\n");
}
