/* SPDX-License-Identifier: Apache-2.0 */
/* The charts of replays in several states: figures over steps, with a line per state. */
#include "report/charts/states_chart.h"

#include <math.h>
#include <stdio.h>

#include "report/charts/replay_plot.h"
#include "replay/replay_result.h"

/* --- Curves ----------------------------------------------------------------------------------- */

bool tsr_states_curves_find(struct tsr_states_curves *c, const struct tsr_replay_states *s)
{
	*c = (struct tsr_states_curves){ .states = s };
	for (unsigned i = 0; i < s->n; i++) {
		if (tsr_curves_find(&c->curves[i], s->replay[i]))
			continue;
		tsr_states_curves_free(c);
		return false;
	}
	return true;
}

void tsr_states_curves_free(struct tsr_states_curves *c)
{
	for (unsigned i = 0; i < c->states->n; i++)
		tsr_curves_free(&c->curves[i]);
}

/* --- Panels ----------------------------------------------------------------------------------- */

static const struct panel {
	struct tsr_curve_kind kind;
	bool worst; /* of the worst tensor instead of all */
} panels[] = {
	{ { TSR_FIGURE_UPDATE_NMSE, "Update error, all tensors", "NMSE", .wide_log = true },
	  false },
	{ { TSR_FIGURE_UPDATE_NMSE, "Update error, worst tensor", "NMSE", .wide_log = true },
	  true },
	{ { TSR_FIGURE_MOMENTUM_NMSE, "Momentum error", "NMSE", .wide_log = true }, false },
	{ { TSR_FIGURE_VARIANCE_NMSE, "Variance error", "NMSE", .wide_log = true }, false },
	{ { TSR_FIGURE_WEIGHT_NMSE, "Weight error", "NMSE", .wide_log = true }, false },
	{ { TSR_FIGURE_STALLED, "Stalled weights", "%", .percent = true }, false },
};

#define NPANELS (sizeof(panels) / sizeof(*panels))

/* The values of a state in a panel; NULL: it has no such figure. */
static const double *values_of(const struct tsr_states_curves *c, unsigned state,
			       const struct panel *panel)
{
	const struct tsr_curves *curves = &c->curves[state];

	for (unsigned i = 0; i < curves->n; i++) {
		if (curves->curve[i].kind->figure == panel->kind.figure)
			return panel->worst ? curves->curve[i].worst : curves->curve[i].total;
	}
	return NULL;
}

/* A curve with the range of all states; false if none has the figure. */
static bool range_of(const struct tsr_states_curves *c, const struct panel *panel,
		     struct tsr_curve *ret)
{
	bool any = false;

	*ret = (struct tsr_curve){ .kind = &panel->kind, .least = INFINITY, .most = -INFINITY };
	for (unsigned s = 0; s < c->states->n; s++) {
		const double *values = values_of(c, s, panel);

		for (size_t i = 0; values && i < c->states->replay[s]->nsteps; i++)
			tsr_curve_note(ret, values[i]);
		any = any || values;
	}
	return any;
}

/* --- The whole -------------------------------------------------------------------------------- */

/* Colours of Okabe and Ito's palette; markers tell states apart without them. */
static const char style[] = TSR_PLOT_STYLE
	".s0 path{stroke:#0072b2}.s1 path{stroke:#d55e00}.s2 path{stroke:#009e73}"
	".s3 path{stroke:#b8578f}.s4 path{stroke:#222}.s5 path{stroke:#b37a00}"
	".s6 path{stroke:#3d8fc4}.s7 path{stroke:#777}"
	"@media(prefers-color-scheme:dark){.s0 path{stroke:#6cb8f0}"
	".s1 path{stroke:#ff9d5c}.s2 path{stroke:#3fd3a5}.s3 path{stroke:#e5a0c8}"
	".s4 path{stroke:#e6e6e6}.s5 path{stroke:#f0b95a}.s6 path{stroke:#a5d4f5}"
	".s7 path{stroke:#aab0b8}}";

enum { STYLES = 8, KEY_WIDTH = 1950, KEY_HEIGHT = 220, PADDING = 180 };

static void put_keys(const struct tsr_replay_states *s, int per_row, struct tsr_text *svg)
{
	for (unsigned i = 0; i < s->n; i++) {
		const int x = 60 + (int)i % per_row * KEY_WIDTH,
			  y = 200 + (int)i / per_row * KEY_HEIGHT;
		char label[80];

		snprintf(label, sizeof(label), "%.20s, %.3f B", s->form[i].name,
			 tsr_state_bytes(s->replay[i]));
		tsr_text_printf(svg, "<g class=\"s%u\">", i % STYLES);
		tsr_chart_put_sample(svg, x, y, i, "", "");
		tsr_chart_put_label(svg, "key", x + 420, y + 40, label);
	}
}

static void put_panel(const struct tsr_states_curves *c, unsigned panel,
		      const struct tsr_curve *range, int left, int top, int width,
		      struct tsr_text *svg)
{
	const struct tsr_plot p = tsr_plot_open(svg, c->states->replay[0], range, panel, left, top,
						width);

	for (unsigned s = 0; s < c->states->n; s++) {
		const double *values = values_of(c, s, &panels[panel]);
		char class[8];

		snprintf(class, sizeof(class), "s%u", s % STYLES);
		if (values)
			tsr_plot_put_line(svg, &p, class, values, s);
	}
	tsr_plot_close(svg, &p, range);
}

void tsr_states_curves_put(const struct tsr_states_curves *c, const char *id, int width,
			   int columns, struct tsr_text *svg)
{
	const int per_row = width * 10 / KEY_WIDTH > 1 ? width * 10 / KEY_WIDTH : 1;
	const int rows = ((int)c->states->n + per_row - 1) / per_row;
	const int head_height = PADDING + rows * KEY_HEIGHT, panel_width = 10 * width / columns;
	struct tsr_curve range[NPANELS];
	unsigned drawn[NPANELS];
	int n = 0;

	for (unsigned i = 0; i < NPANELS; i++) {
		if (range_of(c, &panels[i], &range[i]))
			drawn[n++] = i;
	}
	tsr_chart_open(svg, &(struct tsr_chart_head){
				    .id = id,
				    .class = "curves few",
				    .width = width,
				    .height = (head_height +
					       (n + columns - 1) / columns * TSR_PLOT_HEIGHT + 60) /
					      10,
				    .label = "Figures of the states over steps",
				    .style = style });
	put_keys(c->states, per_row, svg);
	for (int i = 0; i < n; i++)
		put_panel(c, drawn[i], &range[drawn[i]], i % columns * panel_width,
			  head_height + i / columns * TSR_PLOT_HEIGHT, panel_width, svg);
	tsr_text_puts(svg, "</svg>\n");
}
