/* SPDX-License-Identifier: Apache-2.0 */
/* The charts of replays in several states: figures over steps, with a line per state. */
#include "report/charts/charts.h"

#include <stdio.h>

#include "replay/findings/replay_figures.h"
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

/* The same of varied hyperparameters, which make no errors. */
static const struct panel varied[NPANELS] = {
	{ { TSR_FIGURE_UPDATE_NORM, "Length of the update", "", .wide_log = true }, false },
	{ { TSR_FIGURE_WEIGHT_NMSE, "Weights, from those as recorded", "NMSE", .wide_log = true },
	  false },
	{ { TSR_FIGURE_UPDATE_NMSE, "Updates, from those as recorded", "NMSE", .wide_log = true },
	  false },
	{ { TSR_FIGURE_UPDATE_NMSE, "Updates, worst tensor", "NMSE", .wide_log = true }, true },
	{ { TSR_FIGURE_MOMENTUM_NMSE, "Momenta, from those as recorded", "NMSE", .wide_log = true },
	  false },
	{ { TSR_FIGURE_VARIANCE_NMSE, "Variances, from those as recorded", "NMSE",
	    .wide_log = true },
	  false },
};

static const struct panel *panel_of(const struct tsr_states_curves *c, unsigned i)
{
	return c->states->varied ? &varied[i] : &panels[i];
}

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

/* --- The whole -------------------------------------------------------------------------------- */

/* Markers tell states apart without colours. */
enum { STYLES = 8, KEY_WIDTH = 1950, KEY_HEIGHT = 220, PADDING = 180 };

static const char *class_of(unsigned state)
{
	static const char *const classes[STYLES] = {
		"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"
	};

	return classes[state % STYLES];
}

/* "flash = tight" where one line covers another. */
static void name_equal(const struct tsr_states_curves *c, const struct panel *panel,
		       const struct tsr_chart_area *area, struct tsr_text *svg)
{
	bool any = false;

	for (unsigned s = 0; s < c->states->n; s++) {
		const double *values = values_of(c, s, panel);
		const size_t n = c->states->replay[s]->nsteps;
		unsigned first = 0;

		/* The first state whose line is that of this one, which hides it. */
		for (; first < s && values; first++) {
			const double *other = values_of(c, first, panel);
			size_t i = 0;

			while (other && i < n && other[i] == values[i])
				i++;
			if (other && i == n)
				break;
		}
		if (first == s || !values)
			continue;
		if (!any)
			tsr_chart_open_label(svg, "tick end", area->right, area->top - 60);
		tsr_text_printf(svg, "%s%.20s = %.20s", any ? ", " : "",
				c->states->form[first].name, c->states->form[s].name);
		any = true;
	}
	if (any)
		tsr_text_puts(svg, "</text>\n");
}

static void put_panel(const struct tsr_states_curves *c, unsigned i, const struct tsr_axis *y,
		      int left, int top, int width, struct tsr_text *svg)
{
	const struct panel *panel = panel_of(c, i);
	const char name[] = { (char)('0' + i), '\0' };
	struct tsr_lines l = tsr_curve_lines(c->states->replay[0], &panel->kind, y, name);

	tsr_lines_open(svg, &l, left, top, width);
	for (unsigned s = 0; s < c->states->n; s++) {
		const double *values = values_of(c, s, panel);

		if (values)
			tsr_lines_put(svg, &l, class_of(s), values, s);
	}
	if (!c->states->varied) {
		tsr_curve_put_limits(svg, &l, panel->kind.figure);
		name_equal(c, panel, &l.area, svg);
	}
	tsr_text_puts(svg, "</g>\n");
}

void tsr_states_curves_put(const void *ctx, const struct tsr_chart_frame *f, struct tsr_text *svg)
{
	const struct tsr_states_curves *c = ctx;
	const int width = f->width, columns = f->columns;
	const int per_row = width * 10 / KEY_WIDTH > 1 ? width * 10 / KEY_WIDTH : 1;
	const int rows = ((int)c->states->n + per_row - 1) / per_row;
	const int head_height = PADDING + rows * KEY_HEIGHT, panel_width = 10 * width / columns;
	const int height = tsr_lines_height(&(struct tsr_lines){ .head = 0 });
	struct tsr_axis range[NPANELS];
	unsigned drawn[NPANELS];
	char label[80];
	int n = 0;

	for (unsigned i = 0; i < NPANELS; i++) {
		bool any = false;

		/* The range of all states. */
		range[i] = TSR_AXIS;
		for (unsigned s = 0; s < c->states->n; s++) {
			const double *values = values_of(c, s, panel_of(c, i));

			for (size_t k = 0; values && k < c->states->replay[s]->nsteps; k++)
				tsr_axis_note(&range[i], values[k]);
			any = any || values;
		}
		if (any)
			drawn[n++] = i;
	}
	tsr_chart_open(svg, f, " few",
		       (head_height + (n + columns - 1) / columns * height + 60) / 10,
		       "Figures of the states over steps");
	for (unsigned i = 0; i < c->states->n; i++) {
		snprintf(label, sizeof(label), c->states->varied ? "%.28s" : "%.20s, %.3f B",
			 c->states->form[i].name, tsr_replay_state_bytes(c->states->replay[i]));
		tsr_chart_put_key(svg, 60 + (int)i % per_row * KEY_WIDTH,
				  200 + (int)i / per_row * KEY_HEIGHT, class_of(i), i, label);
	}
	for (int i = 0; i < n; i++)
		put_panel(c, drawn[i], &range[drawn[i]], i % columns * panel_width,
			  head_height + i / columns * height, panel_width, svg);
	tsr_text_puts(svg, "</svg>\n");
}
