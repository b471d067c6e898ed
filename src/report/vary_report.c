/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of replays of the same gradients with varied hyperparameters. */
#include "report/reports.h"

#include "replay/findings/replay_figures.h"
#include "replay/replaying.h"

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
	const size_t last = tsr_states_last(r);

	tsr_row(t);
	TSR_CELL(t, "name", "variant:n", s->form[i].name);
	for (unsigned k = 0; k < TSR_HYPER_COUNT; k++) {
		char key[40];

		snprintf(key, sizeof(key), "changed.%s", tsr_hyper_name((enum tsr_hyper_name)k));
		if (tsr_hyper_is_set(h, (enum tsr_hyper_name)k))
			TSR_CELL(t, tsr_keep(t, key), NULL, h->value[k]);
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

static void report_people(const struct tsr_replay_states *s, const struct tsr_states_curves *c,
			  struct tsr_report *r)
{
	const struct tsr_replay *first = s->replay[0];
	struct tsr_table t = { 0 };

	tsr_report_open(r, "tersor replay", "What other hyperparameters would have done");
	tsr_replay_report_facts(first, false, r);
	if (first->compared && tsr_states_last(first) != SIZE_MAX) {
		for (unsigned i = 0; i < s->n; i++)
			add_variant(&t, s, i);
		tsr_report_heading(r, TSR_TO_BOTH,
				   "After step %" PRIu64 ", against the replay as recorded",
				   first->steps[tsr_states_last(first)].step);
		tsr_report_table(r, t,
				 "name,update_rms,update_rms_last,weights,momentum,variance,update",
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
	for (unsigned i = 0; i < s->n; i++)
		tsr_replay_report_gate(s->replay[i], s->form[i].name, r);
	tsr_report_close(r, NULL);
}

void tsr_vary_report(const struct tsr_replay_states *s, struct tsr_report *r)
{
	const struct tsr_replay *first = s->replay[0];
	struct tsr_states_curves c;

	if (!tsr_states_curves_find(&c, s)) {
		r->text.failed = r->csv.failed = r->svg.failed = r->html.failed = true;
		return;
	}
	report_people(s, &c, r);
	if (r->wants_csv)
		tsr_replay_put_csv_names("variant,", &r->csv);
	for (unsigned i = 0; i < s->n && r->wants_csv; i++)
		tsr_replay_put_csv(s->replay[i], s->form[i].name, &r->csv);
	tsr_report_svg(r, "replay", tsr_states_curves_put, &c);
	tsr_json_open(&r->json, "variants", '[');
	for (unsigned i = 0; i < s->n && tsr_states_last(first) != SIZE_MAX; i++) {
		struct tsr_table t = { 0 };

		tsr_json_open(&r->json, NULL, '{');
		add_variant(&t, s, i);
		tsr_table_end_members(t, &r->json);
		put_steps(s->replay[i], &r->json);
		tsr_json_close(&r->json, '}');
	}
	tsr_json_close(&r->json, ']');
	tsr_states_curves_free(&c);
}
