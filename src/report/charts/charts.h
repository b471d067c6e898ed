/* SPDX-License-Identifier: Apache-2.0 */
/* The charts of reports, and what they draw. */
#ifndef TSR_REPORT_CHARTS_CHARTS_H
#define TSR_REPORT_CHARTS_CHARTS_H

#include "audit/audit_figures.h"
#include "audit/granularity_figures.h"
#include "render/plot.h"
#include "tersor/bisect.h"
#include "tersor/replay.h"
#include "tersor/sweep.h"

/* --- The curves of a replay: each figure over steps, of all tensors and of the worst --------- */

/* What a panel shows. */
struct tsr_curve_kind {
	enum tsr_figure_name figure;
	const char *title;
	const char *unit; /* of the axis: "NMSE", "ULP", "%" or "" */
	const char *key, *shown; /* in tables */
	bool percent; /* of elements or groups */
	bool wide_log; /* a logarithmic axis even for one decade */
	bool only_if_any; /* no panel if all values are 0 */
};

/* A figure over steps; arrays have a value per step, or NaN. */
struct tsr_curve {
	const struct tsr_curve_kind *kind;
	double *total; /* of all tensors */
	double *worst; /* the largest of a tensor */
	size_t *tensor; /* the index of that parameter */
	struct tsr_axis y; /* with all values noted */
};

#define TSR_CURVES_MAX 10

struct tsr_curves {
	const struct tsr_replay *replay;
	unsigned n;
	struct tsr_curve curve[TSR_CURVES_MAX];
	double *values; /* of all arrays */
	size_t *tensors;
};

/* The first of the largest values above 0; SIZE_MAX if there are none. */
size_t tsr_first_largest(const double *values, size_t n);

/* The largest value of a parameter over the steps; NaN if it has none. */
double tsr_curve_largest(const struct tsr_curve *c, const struct tsr_replay *r, size_t param);

/* Find the curves of a compared replay; false if out of memory.  To be freed. */
bool tsr_curves_find(struct tsr_curves *c, const struct tsr_replay *r);
void tsr_curves_free(struct tsr_curves *c);

/* --- The charts and the page of a replay ----------------------------------------------------- */

/* The svg element of struct tsr_curves; legible on light and on dark pages. */
tsr_chart_put tsr_curves_put;

/* A panel of a figure over the steps of a replay, and its thresholds. */
struct tsr_lines tsr_curve_lines(const struct tsr_replay *r, const struct tsr_curve_kind *kind,
				 const struct tsr_axis *y, const char *name);
void tsr_curve_put_limits(struct tsr_text *svg, const struct tsr_lines *l,
			  enum tsr_figure_name figure);

/* --- The charts and the page of replays in several states ------------------------------------ */

/* What tsr_replay_forms() gave for which forms. */
struct tsr_replay_states {
	unsigned n;
	const struct tsr_replay_form *form;
	struct tsr_replay *const *replay;
	bool varied; /* they differ in hyperparameters, and are compared with the first */
};

/* The curves of all states, to be freed; false if out of memory. */
struct tsr_states_curves {
	const struct tsr_replay_states *states;
	struct tsr_curves curves[TSR_REPLAY_FORMS_MAX];
};

bool tsr_states_curves_find(struct tsr_states_curves *c, const struct tsr_replay_states *s);
void tsr_states_curves_free(struct tsr_states_curves *c);

/* The svg element of struct tsr_states_curves. */
tsr_chart_put tsr_states_curves_put;

/* --- The charts and the page of an audit ----------------------------------------------------- */

/* @n checkpoints, such as those of one training run; charts are of the last, but for the curves. */
struct tsr_audits {
	struct tsr_audit *const *each;
	size_t n;
};

/*
 * Of struct tsr_audits: in a file all panels one below the other, in a page an svg element for each, with
 * a sentence on what it shows.
 */
tsr_chart_put tsr_audit_chart_put;

/*
 * The panels, in tenths of a pixel: their height, 0 if there is nothing to show; and their elements, from
 * @top on.  Boxes are of the codecs of a kind that hold at least one tensor, in the order in which they were
 * tried.
 */
int tsr_audit_boxes_height(const struct tsr_audit *a, enum tsr_kind kind);
void tsr_audit_boxes_put(const struct tsr_audit *a, enum tsr_kind kind, int top, int width,
			 struct tsr_text *svg);
int tsr_audit_curves_height(const struct tsr_audits *v);
void tsr_audit_curves_put(const struct tsr_audits *v, int top, int width, struct tsr_text *svg);
int tsr_audit_heat_height(const struct tsr_audit *a);
void tsr_audit_heat_put(const struct tsr_audit *a, int top, int width, struct tsr_text *svg);

/* --- The chart of a learned codebook --------------------------------------------------------- */

/* The histogram of what it was learned from, with its entries below, and the entries by index. */
tsr_chart_put tsr_codebook_put;

/* --- The chart and the page of 8-bit floats by granularity ----------------------------------- */

/* The svg element of struct tsr_granularity_figures. */
tsr_chart_put tsr_granularity_chart_put;

/* "E4M3", by the index of a granularity. */
const char *tsr_fp8_title(unsigned granularity);

/* The chart and the page of a sweep: mean relative error against exponent, BF16 above, FP16 below. */

/* The svg element of struct tsr_sweep: a file has a legend, a page the lines too that it shows on request. */
tsr_chart_put tsr_sweep_chart_put;

enum tsr_sweep_panel {
	TSR_PANEL_BF16,
	TSR_PANEL_FP16,
	TSR_PANEL_E5M2,
	TSR_PANEL_E4M3,
	TSR_PANEL_COUNT
};

/* The panel that shows this codec; TSR_PANEL_COUNT for none. */
enum tsr_sweep_panel tsr_sweep_panel_of(const struct tsr_codec *codec);

/* Its title; "" for TSR_PANEL_COUNT. */
const char *tsr_sweep_panel_name(enum tsr_sweep_panel panel);

/* Whether a codec's line is shown at first. */
bool tsr_sweep_chart_shows(const struct tsr_sweep *s, const struct tsr_codec *codec);

/* A short line in a codec's style, as an svg element: for the legend of a page. */
void tsr_sweep_chart_put_sample(const struct tsr_sweep *s, unsigned codec, struct tsr_text *svg);

/* --- The map of two runs ---------------------------------------------------------------------- */

/* The svg element of struct tsr_bisect: tensors by steps. */
tsr_chart_put tsr_bisect_chart_put;

#endif
