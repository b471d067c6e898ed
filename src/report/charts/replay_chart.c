/* SPDX-License-Identifier: Apache-2.0 */
/* The charts of a replay: its curves over steps.  Coordinates are integers in tenths of a pixel. */
#include "report/charts/charts.h"

#include <stdio.h>

#include "replay/findings/replay_figures.h"
#include "replay/replay_result.h"

enum { CIRCLE, SQUARE };

/* Height of the legend. */
#define HEAD 400

struct tsr_lines tsr_curve_lines(const struct tsr_replay *r, const struct tsr_curve_kind *kind,
				 const struct tsr_axis *y, const char *name)
{
	return (struct tsr_lines){ .name = name,
				   .title = kind->title,
				   .unit = kind->unit,
				   .y = *y,
				   .wide_log = kind->wide_log,
				   .percent = kind->percent,
				   .n = r->nsteps,
				   .first = r->nsteps ? r->steps[0].step : 0,
				   .word = "step" };
}

void tsr_curve_put_limits(struct tsr_text *svg, const struct tsr_lines *l,
			  enum tsr_figure_name figure)
{
	if (figure == TSR_FIGURE_UPDATE_NMSE || figure == TSR_FIGURE_UPDATE_QUANT)
		tsr_lines_put_limit(svg, l, TSR_REPLAY_DIVERGED, "as large as the update");
	if (figure == TSR_FIGURE_UPDATE_NMSE)
		tsr_lines_put_limit(svg, l, TSR_UPDATE_BAD, "10% of its length");
}

void tsr_curves_put(const void *ctx, const struct tsr_chart_frame *f, struct tsr_text *svg)
{
	const struct tsr_curves *c = ctx;
	const int columns = f->columns, width = 10 * f->width / columns;
	const int rows = ((int)c->n + columns - 1) / columns;
	const int height = tsr_lines_height(&(struct tsr_lines){ .head = 0 });

	tsr_chart_open(svg, f, c->replay->nsteps <= TSR_LINES_DASHED ? " few" : "",
		       (HEAD + rows * height + 60) / 10, "Figures of the replay over steps");
	if (c->n) {
		tsr_chart_put_key(svg, 60, 200, "all", CIRCLE, "all tensors");
		tsr_chart_put_key(svg, 1360, 200, "worst", SQUARE, "worst tensor of each step");
	} else {
		tsr_chart_put_label(svg, "key", 60, 240, "no step was compared with FP32");
	}
	for (int i = 0; i < (int)c->n; i++) {
		const struct tsr_curve *curve = &c->curve[i];
		struct tsr_lines l;
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		l = tsr_curve_lines(c->replay, curve->kind, &curve->y, name);
		tsr_lines_open(svg, &l, i % columns * width, HEAD + i / columns * height, width);
		tsr_lines_put(svg, &l, "worst", curve->worst, SQUARE);
		tsr_lines_put(svg, &l, "all", curve->total, CIRCLE);
		tsr_curve_put_limits(svg, &l, curve->kind->figure);
		tsr_text_puts(svg, "</g>\n");
	}
	tsr_text_puts(svg, "</svg>\n");
}
