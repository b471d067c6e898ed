/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of replays of the same steps in several states, or with varied hyperparameters, side by side. */
#include "report/reports.h"

#include "replay/findings/replay_figures.h"
#include "replay/replay_result.h"

TSR_EMBED(tsr_states_html, "src/report/notes/states.html");

/* Rows of a page. */
#define STEPS_SHOWN 200

/* --- States ----------------------------------------------------------------------------------- */

/* The columns behind the bytes: what all tensors have after the last step. */
static const struct {
	enum tsr_figure_name figure;
	const char *key, *shown;
} columns[] = {
	{ TSR_FIGURE_MOMENTUM_NMSE, "momentum", "momentum\nNMSE:.2e" },
	{ TSR_FIGURE_VARIANCE_NMSE, "variance", "variance\nNMSE:.2e" },
	{ TSR_FIGURE_WEIGHT_NMSE, "weight", "weight\nNMSE:.2e" },
	{ TSR_FIGURE_UPDATE_NMSE, "update", "update\nNMSE:.2e" },
};

#define NCOLUMNS (sizeof(columns) / sizeof(*columns))

static double last_of(const struct tsr_replay *r, size_t column)
{
	return r->steps[tsr_replay_last_compared(r)].total.value[columns[column].figure];
}

/* The largest error of an update of any tensor at any step; NaN if there is none. */
static double worst_of(const struct tsr_replay *r)
{
	const struct tsr_replay_worst w = tsr_replay_worst(r, TSR_FIGURE_UPDATE_NMSE);

	return w.any ? w.value : NAN;
}

/* The smallest of a column, NCOLUMNS: of the worst updates.  0 is FP32's own. */
static double least_of(const struct tsr_replay_states *s, size_t column)
{
	double least = INFINITY;

	for (unsigned i = 0; i < s->n; i++) {
		const double value = column < NCOLUMNS ? last_of(s->replay[i], column)
						       : worst_of(s->replay[i]);

		least = value > 0 && value < least ? value : least;
	}
	return least;
}

static void add_state(struct tsr_table *t, const struct tsr_replay_states *s, unsigned i)
{
	const struct tsr_replay *r = s->replay[i];
	const struct tsr_replay_worst w = tsr_replay_worst(r, TSR_FIGURE_UPDATE_NMSE);
	char codecs[256] = "";

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const size_t at = strlen(codecs);

		if (r->coding[p].codec)
			snprintf(codecs + at, sizeof(codecs) - at, "%s%s", at ? ", " : "",
				 r->coding[p].codec->name);
	}
	tsr_row(t);
	TSR_CELL(t, "state", "state", s->form[i].name);
	TSR_CELL(t, "codecs", "codecs", tsr_keep(t, codecs));
	TSR_CELL(t, "bytes", "bytes/\nparam:.3f", tsr_replay_state_bytes(r));
	for (size_t c = 0; c < NCOLUMNS; c++) {
		TSR_CELL(t, columns[c].key, columns[c].shown, last_of(r, c));
		tsr_mark(t, last_of(r, c) == least_of(s, c));
	}
	TSR_CELL(t, "worst", "worst\nupdate:.2e", worst_of(r));
	tsr_mark(t, worst_of(r) == least_of(s, NCOLUMNS));
	TSR_CELL(t, "tensor", " \nof tensor:n", w.any && w.value > 0 ? r->params[w.param] : "");
	if (w.any && w.value > 0)
		TSR_CELL(t, "step", "at step", r->steps[w.step].step);
}

/* The update error over steps, a column for each state. */
static struct tsr_table steps_of(const struct tsr_replay_states *s)
{
	const struct tsr_replay *first = s->replay[0];
	struct tsr_table t = { 0 };
	char head[80];

	for (size_t step = 0; step < first->nsteps; step++) {
		if (!tsr_replay_has_figures(first, step) ||
		    !tsr_replay_in_sample(first, step, STEPS_SHOWN))
			continue;
		tsr_row(&t);
		TSR_CELL(&t, "step", "Step", first->steps[step].step);
		for (unsigned i = 0; i < s->n; i++) {
			snprintf(head, sizeof(head), "%s:.2e", s->form[i].name);
			TSR_CELL(&t, s->form[i].name, head,
				 s->replay[i]->steps[step].total.value[TSR_FIGURE_UPDATE_NMSE]);
		}
	}
	return t;
}

static void say_states(const struct tsr_replay_states *s, const struct tsr_states_curves *c,
		       struct tsr_report *r)
{
	const double least = least_of(s, NCOLUMNS);
	struct tsr_table t = { 0 };
	struct tsr_findings f;
	unsigned best = 0;

	for (unsigned i = 0; i < s->n; i++)
		add_state(&t, s, i);
	tsr_report_heading(r, TSR_TO_TEXT,
			   "Against replays in FP32 of the same gradients, after step %" PRIu64 ":",
			   s->replay[0]->steps[tsr_replay_last_compared(s->replay[0])].step);
	tsr_report_gap(r);
	tsr_report_heading(r, TSR_TO_PAGE, "States");
	tsr_report_say(r, TSR_TO_PAGE,
		       "Errors of all tensors after the last step, and the largest of any "
		       "tensor at any step.");
	tsr_report_table(r, t, "state,bytes,momentum,variance,weight,update,worst,tensor", "");
	tsr_report_gap(r);
	tsr_report_say(r, TSR_TO_TEXT,
		       "* is the smallest of its column. The worst update is that of any "
		       "tensor at any step.");
	tsr_report_gap(r);
	/* The gravest finding of each. */
	for (unsigned i = 0; i < s->n; i++) {
		tsr_replay_find(s->replay[i], &f);
		if (f.n)
			tsr_report_find(r, TSR_TO_BOTH, tsr_finding_level_name(f.item[0].level),
					s->form[i].name, f.item[0].text);
	}
	/* Whose worst update is nearest to FP32's, of those that are not FP32 themselves. */
	while (best < s->n && worst_of(s->replay[best]) != least)
		best++;
	if (best < s->n) {
		tsr_report_gap(r);
		tsr_report_say(r, TSR_TO_BOTH,
			       "So take %s: its updates stay nearest to FP32's, within "
			       "%.2g%% of their length, in %.4g bytes per parameter.",
			       s->form[best].name, 100 * sqrt(least),
			       tsr_replay_state_bytes(s->replay[best]));
	}
	tsr_report_charts(r, tsr_states_curves_put, c);
	tsr_report_heading(r, TSR_TO_PAGE, "Update error over steps");
	tsr_report_table(r, steps_of(s), NULL, "");
	tsr_report_markup(r, tsr_states_html);
}

/* --- Varied hyperparameters ------------------------------------------------------------------- */

/* Of all weights at a step: the root mean square of what it added to them. */
static double update_rms(const struct tsr_replay *r, size_t step)
{
	return r->steps[step].total.value[TSR_FIGURE_UPDATE_NORM] /
	       sqrt((double)tsr_replay_numel(r, SIZE_MAX));
}

/* That of all steps together. */
static double mean_rms(const struct tsr_replay *r)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < r->nsteps; i++) {
		if (!tsr_replay_has_figures(r, i))
			continue;
		sum += update_rms(r, i) * update_rms(r, i);
		n++;
	}
	return n ? sqrt(sum / (double)n) : 0;
}

/* How far a state is from that as recorded, as a share of its length. */
static double distance(const struct tsr_replay *r, size_t step, enum tsr_figure_name figure)
{
	return sqrt(r->steps[step].total.value[figure]);
}

static void add_variant(struct tsr_table *t, const struct tsr_replay_states *s, unsigned i)
{
	const struct tsr_replay *r = s->replay[i];
	const struct tsr_hyper *h = &s->form[i].hyper;
	const size_t last = tsr_replay_last_compared(r);

	tsr_row(t);
	TSR_CELL(t, "name", "variant:n", s->form[i].name);
	for (unsigned k = 0; k < TSR_HYPER_COUNT; k++) {
		const enum tsr_hyper_name name = (enum tsr_hyper_name)k;

		if (tsr_hyper_is_set(h, name))
			TSR_CELL(t, tsr_keepf(t, "changed.%s", tsr_hyper_name(name)), NULL,
				 h->value[k]);
	}
	TSR_CELL(t, "update_rms", "update rms\nall steps:.2e", mean_rms(r));
	TSR_CELL(t, "update_rms_last", " \nlast:.2e", update_rms(r, last));
	TSR_CELL(t, "weights", "distance of\nweights:.2e",
		 distance(r, last, TSR_FIGURE_WEIGHT_NMSE));
	TSR_CELL(t, "momentum", " \nmomenta:.1e", distance(r, last, TSR_FIGURE_MOMENTUM_NMSE));
	TSR_CELL(t, "variance", " \nvariances:.1e", distance(r, last, TSR_FIGURE_VARIANCE_NMSE));
	TSR_CELL(t, "update", " \nupdate:.1e", distance(r, last, TSR_FIGURE_UPDATE_NMSE));
}

static void put_steps(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "steps", '[');
	for (size_t i = 0; i < r->nsteps; i++) {
		if (!tsr_replay_has_figures(r, i))
			continue;
		tsr_json_open(json, NULL, '{');
		tsr_json_put_u64(json, "step", r->steps[i].step);
		tsr_json_put_double(json, "update_rms", update_rms(r, i));
		tsr_json_put_double(json, "weights", distance(r, i, TSR_FIGURE_WEIGHT_NMSE));
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

static void say_variants(const struct tsr_replay_states *s, const struct tsr_states_curves *c,
			 struct tsr_report *r)
{
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < s->n; i++)
		add_variant(&t, s, i);
	tsr_report_heading(r, TSR_TO_BOTH, "After step %" PRIu64 ", against the replay as recorded",
			   s->replay[0]->steps[tsr_replay_last_compared(s->replay[0])].step);
	tsr_report_table(r, t, "name,update_rms,update_rms_last,weights,momentum,variance,update",
			 "");
	tsr_report_gap(r);
	tsr_report_say(r, TSR_TO_BOTH,
		       "A distance is a share of the length of what it is from. The "
		       "gradients are those of the recorded run: with other "
		       "hyperparameters the weights would have moved elsewhere, and the "
		       "gradients after the first step would have been others. So the "
		       "figures say how an optimizer answers these gradients, not what "
		       "the loss would have been.");
	tsr_report_charts(r, tsr_states_curves_put, c);
}

/* --- For people ------------------------------------------------------------------------------- */

static void report_people(const struct tsr_replay_states *s, const struct tsr_states_curves *c,
			  struct tsr_report *r)
{
	const struct tsr_replay *first = s->replay[0];
	char title[40];

	snprintf(title, sizeof(title), "Replay in %u states", s->n);
	tsr_report_open(r, "tersor replay",
			s->varied ? "What other hyperparameters would have done" : title);
	tsr_replay_report_facts(first, false, r);
	if (first->compared && tsr_replay_last_compared(first) != SIZE_MAX)
		(s->varied ? say_variants : say_states)(s, c, r);
	for (unsigned i = 0; i < s->n; i++)
		tsr_replay_report_gate(s->replay[i], s->form[i].name, r);
	tsr_report_close(r, NULL);
}

/* --- For programs ----------------------------------------------------------------------------- */

static void put_variant(const struct tsr_replay_states *s, unsigned i, struct tsr_text *json)
{
	struct tsr_table t = { 0 };

	add_variant(&t, s, i);
	tsr_table_end_members(t, json);
	put_steps(s->replay[i], json);
}

static void put_state(const struct tsr_replay_states *s, unsigned i, struct tsr_text *json)
{
	tsr_json_put_string(json, "name", s->form[i].name);
	tsr_json_put_double(json, "bytes_per_parameter", tsr_replay_state_bytes(s->replay[i]));
	tsr_replay_put_json(s->replay[i], json);
}

void tsr_states_report(const struct tsr_replay_states *s, struct tsr_report *r)
{
	const bool any = !s->varied || tsr_replay_last_compared(s->replay[0]) != SIZE_MAX;
	struct tsr_states_curves c;

	if (!tsr_states_curves_find(&c, s)) {
		r->text.failed = r->csv.failed = r->svg.failed = r->html.failed = true;
		return;
	}
	report_people(s, &c, r);
	if (r->wants_csv)
		tsr_replay_put_csv_names(s->varied ? "variant," : "state,", &r->csv);
	for (unsigned i = 0; i < s->n && r->wants_csv; i++)
		tsr_replay_put_csv(s->replay[i], s->form[i].name, &r->csv);
	tsr_report_svg(r, "replay", tsr_states_curves_put, &c);
	tsr_json_open(&r->json, s->varied ? "variants" : "states", '[');
	for (unsigned i = 0; i < s->n && any && r->wants_json; i++) {
		tsr_json_open(&r->json, NULL, '{');
		(s->varied ? put_variant : put_state)(s, i, &r->json);
		tsr_json_close(&r->json, '}');
	}
	tsr_json_close(&r->json, ']');
	tsr_states_curves_free(&c);
}
