/* SPDX-License-Identifier: Apache-2.0 */
/* The charts of a replay: its curves over steps.  Coordinates are integers in tenths of a pixel. */
#include <stdlib.h>

#include "replay/replay_result.h"
#include "report/charts/chart.h"
#include "report/charts/replay_chart.h"
#include "report/charts/replay_plot.h"

enum { CIRCLE, SQUARE };

static void put_key(struct tsr_text *svg, int x, const char *class, unsigned shape,
		    const char *text)
{
	tsr_text_printf(svg, "<g class=\"%s\">", class);
	tsr_chart_put_sample(svg, x, 200, shape, "", "");
	tsr_chart_put_label(svg, "key", x + 420, 240, text);
}

/* --- The whole -------------------------------------------------------------------------------- */

/* Height of the legend. */
#define HEAD 400

static void put_panel(struct tsr_text *svg, const struct tsr_curves *curves, unsigned panel,
		      int left, int top, int width)
{
	const struct tsr_curve *c = &curves->curve[panel];
	const struct tsr_plot p = tsr_plot_open(svg, curves->replay, c, panel, left, top, width);

	tsr_plot_put_line(svg, &p, "worst", c->worst, SQUARE);
	tsr_plot_put_line(svg, &p, "all", c->total, CIRCLE);
	tsr_plot_close(svg, &p, c);
}

static const char style[] = TSR_PLOT_STYLE
	".curves .all path{stroke:#0060a8}.curves .worst path{stroke:#c44e00}"
	".curves.few .worst path:first-child{stroke-dasharray:5 3}"
	"@media(prefers-color-scheme:dark){"
	".curves .all path{stroke:#6cb8f0}.curves .worst path{stroke:#ff9d5c}}";

void tsr_curves_put(const struct tsr_curves *c, const struct tsr_curves_layout *layout,
		    struct tsr_text *svg)
{
	const int columns = layout->columns, width = 10 * layout->width / columns;
	const unsigned rows = (c->n + (unsigned)columns - 1) / (unsigned)columns;
	const struct tsr_chart_head head = {
		.id = layout->id,
		.class = c->replay->nsteps <= TSR_PLOT_DASHED ? "curves few" : "curves",
		.width = layout->width,
		.height = (HEAD + (int)rows * TSR_PLOT_HEIGHT + 60) / 10,
		.label = "Figures of the replay over steps",
		.style = style,
	};

	tsr_chart_open(svg, &head);
	if (c->n) {
		put_key(svg, 60, "all", CIRCLE, "all tensors");
		put_key(svg, 1360, "worst", SQUARE, "worst tensor of each step");
	} else {
		tsr_chart_put_label(svg, "key", 60, 240, "no step was compared with FP32");
	}
	for (unsigned i = 0; i < c->n; i++)
		put_panel(svg, c, i, (int)i % columns * width,
			  HEAD + (int)i / columns * TSR_PLOT_HEIGHT, width);
	tsr_text_puts(svg, "</svg>\n");
}
