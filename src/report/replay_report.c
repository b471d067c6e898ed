/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of a replay for people. */
#include "report/reports.h"

#include "ckpt/checkpoint_model.h"
#include "replay/findings/replay_figures.h"
#include "replay/replay_result.h"
#include "tersor/version.h"

TSR_EMBED(tsr_replay_html, "src/report/notes/replay.html");

/* Unless verbose: lines of lists; rows of a page. */
#define LINES_SHOWN 8
#define ROWS_SHOWN 200

/* --- Tables ----------------------------------------------------------------------------------- */

/* The largest of each tensor over the steps. */
static struct tsr_table tensors_of(const struct tsr_replay *r, const struct tsr_curves *c)
{
	struct tsr_table t = { .most_page = 5 * ROWS_SHOWN };

	for (size_t p = 0; p < r->nparams; p++) {
		tsr_row(&t);
		TSR_CELL(&t, "tensor", "tensor:n", r->params[p]);
		for (unsigned k = 0; k < c->n; k++) {
			const size_t step = tsr_first_largest(c->curve[k].worst, r->nsteps);

			TSR_CELL(&t, c->curve[k].kind->key, c->curve[k].kind->shown,
				 tsr_curve_largest(&c->curve[k], r, p));
			tsr_mark(&t, step != SIZE_MAX && c->curve[k].tensor[step] == p);
		}
	}
	return t;
}

/* The figures whose worst tensors are named. */
static const enum tsr_figure_name named[] = {
	TSR_FIGURE_MOMENTUM_NMSE,  TSR_FIGURE_VARIANCE_NMSE, TSR_FIGURE_MOMENTUM_QUANT,
	TSR_FIGURE_VARIANCE_QUANT, TSR_FIGURE_WEIGHT_NMSE,   TSR_FIGURE_UPDATE_NMSE,
	TSR_FIGURE_UPDATE_QUANT,   TSR_FIGURE_STALLED,	     TSR_FIGURE_UNDERFLOW,
	TSR_FIGURE_VARIANCE_LOST,
};

static struct tsr_table worst_of(const struct tsr_replay *r)
{
	struct tsr_table t = { 0 };
	char value[40];

	for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++) {
		const struct tsr_replay_worst w = tsr_replay_worst(r, named[i]);

		if (!w.any || w.value == 0)
			continue;
		/* Counts are shown as such. */
		snprintf(value, sizeof(value),
			 w.value < 1e10 && w.value == floor(w.value) ? "%.0f" : "%.2e", w.value);
		tsr_row(&t);
		TSR_CELL(&t, "figure", "worst tensor", tsr_figure_name(named[i]));
		TSR_CELL(&t, "value", "value", tsr_keep(&t, value));
		TSR_CELL(&t, "step", "step", r->steps[w.step].step);
		TSR_CELL(&t, "tensor", " :n", r->params[w.param]);
	}
	return t;
}

/* The tensors whose scales underflow, in their order. */
static struct tsr_table lost_of(const struct tsr_replay *r)
{
	struct tsr_table t = { .most_text = LINES_SHOWN };

	for (size_t p = 0; p < r->nparams; p++) {
		const uint64_t lost = (uint64_t)fmax(
			0, tsr_replay_largest(r, p, TSR_FIGURE_UNDERFLOW));
		const uint64_t all = tsr_replay_ngroups(r, p);

		if (!lost)
			continue;
		tsr_row(&t);
		TSR_CELL(&t, "lost", "groups lost", lost);
		TSR_CELL(&t, "of", "of", all);
		TSR_CELL(&t, "share", "%:.2%", tsr_share(lost, all));
		TSR_CELL(&t, "tensor", " :n", r->params[p]);
	}
	return t;
}

/* --- Values for the script of the page -------------------------------------------------------- */

/* JSON has no infinity, but readers take a number that is too large for one. */
static void put_values(struct tsr_text *json, const char *key, const double *values, size_t n)
{
	tsr_json_open(json, key, '[');
	for (size_t i = 0; i < n; i++) {
		const double v = values[i];

		tsr_text_puts(json, i ? "," : "");
		if (isfinite(v))
			tsr_text_printf(json, "%.*g", v >= 1e4 && v < 1e10 ? 10 : 4, v);
		else
			tsr_text_puts(json, isnan(v) ? "null" : "1e999");
	}
	tsr_json_close(json, ']');
}

static void put_json(struct tsr_text *json, const struct tsr_curves *c)
{
	const struct tsr_replay *r = c->replay;

	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "first", r->nsteps ? r->steps[0].step : 0);
	tsr_json_put_u64(json, "n", r->nsteps);
	tsr_json_put_strings(json, "names", r->params, r->nparams);
	tsr_json_open(json, "panels", '[');
	for (unsigned k = 0; k < c->n; k++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "title", c->curve[k].kind->title);
		tsr_json_put_string(json, "unit", c->curve[k].kind->unit);
		put_values(json, "total", c->curve[k].total, r->nsteps);
		put_values(json, "worst", c->curve[k].worst, r->nsteps);
		tsr_json_open(json, "tensor", '[');
		for (size_t i = 0; i < r->nsteps; i++)
			tsr_json_put_u64(json, NULL, c->curve[k].tensor[i]);
		tsr_json_close(json, ']');
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

/* --- For people: what was replayed ------------------------------------------------------------ */

static void report_state(const struct tsr_replay *replay, struct tsr_report *r)
{
	char line[256] = "";

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_coding *c = &replay->coding[p];
		const size_t at = strlen(line);

		/* Learned blocks differ from tensor to tensor. */
		if (c->codec)
			snprintf(line + at, sizeof(line) - at, "%s%s %s", at ? ", " : "",
				 tsr_slot_name((enum tsr_slot)p),
				 c->codec->learned ? c->codec->name : tsr_format_coding(c).text);
	}
	tsr_report_fact(r, TSR_TO_BOTH, "state", "%s", line);
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		if (replay->widened[p])
			tsr_report_fact(
				r, TSR_TO_BOTH, "",
				"%s scales are f32: with %s = %.7g it changes too little in "
				"a step for e8m8",
				tsr_slot_name((enum tsr_slot)p), tsr_hyper_name(replay->decay[p]),
				replay->decays[p]);
	}
}

static void report_hyper(const struct tsr_replay *replay, struct tsr_report *r)
{
	for (size_t g = 0; g < replay->ngroups && replay->hyper; g++) {
		char line[512] = "", group[48] = "hyperparameters";

		if (replay->ngroups > 1)
			snprintf(group, sizeof(group), "hyperparameters %zu", g + 1);
		for (unsigned h = 0; h < TSR_HYPER_COUNT; h++) {
			const enum tsr_hyper_name name = (enum tsr_hyper_name)h;
			const size_t at = strlen(line);

			if (tsr_replay_has_hyper(replay, g, name))
				snprintf(line + at, sizeof(line) - at, "%s%s %.6g", at ? ", " : "",
					 tsr_hyper_name(name), replay->hyper[g].value[name]);
		}
		tsr_report_fact(r, TSR_TO_PAGE, group, "%s", line);
	}
}

/* The order, and who says so. */
static void report_order(const struct tsr_replay *replay, struct tsr_report *r)
{
	const struct tsr_recorded_run *run = &replay->recorded;
	const char *order = tsr_order_name(replay->order);
	const bool asked = replay->order_from == TSR_ORDER_FROM_OPTION;

	if (replay->order_from == TSR_ORDER_FROM_RECORDING)
		tsr_report_fact(r, TSR_TO_BOTH, "order", "%s, as recorded%s%s%s%s", order,
				*run->pytorch ? ": PyTorch " : "",
				tsr_format_name(run->pytorch, 40).text, *run->device ? ", " : "",
				tsr_format_name(run->device, 60).text);
	else if (*run->order)
		tsr_report_fact(r, TSR_TO_BOTH, "order", "%s%s; the recording says %s", order,
				asked ? ", as asked" : "", tsr_format_name(run->order, 40).text);
	else
		tsr_report_fact(r, TSR_TO_BOTH, "order", "%s%s; the recording does not say", order,
				asked ? ", as asked" : "");
}

void tsr_replay_report_facts(const struct tsr_replay *replay, bool state, struct tsr_report *r)
{
	const size_t n = replay->nsteps;
	double least, most;
	char range[64], groups[64] = "";

	if (replay->source)
		tsr_report_fact(r, TSR_TO_PAGE, "checkpoint", "%s", replay->source->path);
	if (replay->recording)
		tsr_report_fact(r, TSR_TO_PAGE, "recording", "%s", replay->recording);
	tsr_report_fact(r, TSR_TO_BOTH, "optimizer", "%s", tsr_optimizer_name(replay->optimizer));
	report_order(replay, r);
	report_hyper(replay, r);
	if (n)
		tsr_report_fact(r, TSR_TO_BOTH, "steps", "%s, %" PRIu64 " to %" PRIu64,
				tsr_format_number(n, "step").text, replay->steps[0].step,
				replay->steps[n - 1].step);
	else
		tsr_report_fact(r, TSR_TO_BOTH, "steps", "no steps");
	tsr_report_fact(r, TSR_TO_BOTH, "parameters", "%s in %s",
			tsr_format_count(tsr_replay_numel(replay, SIZE_MAX)).text,
			tsr_format_number(replay->nparams, "tensor").text);
	if (state)
		report_state(replay, r);
	if (!tsr_replay_lr_range(replay, &least, &most))
		return;
	snprintf(range, sizeof(range), most > least ? "%.6g to %.6g" : "%.6g", least, most);
	if (replay->ngroups > 1)
		snprintf(groups, sizeof(groups), " in %zu groups of parameters", replay->ngroups);
	tsr_report_fact(r, TSR_TO_BOTH, "lr", "%s%s", range, groups);
}

/* --- For people: figures ---------------------------------------------------------------------- */

static void report_steps(const struct tsr_replay *replay, const struct tsr_curves *c,
			 struct tsr_report *r)
{
	struct tsr_table t = tsr_replay_steps_table(replay, c);
	size_t shown = 0;

	for (size_t i = 0; i < t.nrows; i++)
		shown += r->verbose || !(t.rows[i].aside & TSR_TO_TEXT);
	tsr_report_heading(r, TSR_TO_PAGE, "Steps");
	tsr_report_heading(r, TSR_TO_TEXT,
			   "Against a replay in FP32 of the same gradients, over all tensors:");
	tsr_report_gap(r);
	tsr_report_say(
		r, TSR_TO_PAGE,
		"Over all tensors; the largest of each column is bold. Of more than %d steps "
		"evenly spaced ones, with the largest among them.%s",
		ROWS_SHOWN, replay->ngroups > 1 ? " The lr is that of the first group." : "");
	tsr_report_table(r, t, "step,-lr,-momentum,-variance,-weight,-update,-stalled,-skipped",
			 "");
	tsr_report_gap(r);
	if (shown < replay->nsteps)
		tsr_report_say(r, TSR_TO_TEXT,
			       "%zu of %s steps; -v shows all. * is the largest of its "
			       "column.",
			       shown, tsr_format_count(replay->nsteps).text);
	else
		tsr_report_say(r, TSR_TO_TEXT, "* is the largest of its column.%s",
			       replay->ngroups > 1 ? " The lr is that of the first group." : "");
}

/* A table with an empty line of text before it, if it has any rows. */
static void report_any(struct tsr_report *r, struct tsr_table t, const char *text, const char *page)
{
	if (t.nrows && text)
		tsr_report_gap(r);
	tsr_report_table(r, t, text, page);
}

static void report_findings(const struct tsr_replay *replay, enum tsr_to to, struct tsr_report *r)
{
	struct tsr_findings f;

	tsr_replay_find(replay, &f);
	if (f.n && to == TSR_TO_TEXT)
		tsr_report_gap(r);
	for (unsigned i = 0; i < f.n; i++)
		tsr_report_find(r, to, tsr_finding_level_name(f.item[i].level), "", f.item[i].text);
}

static void report_skipped(const struct tsr_replay *replay, struct tsr_report *r)
{
	struct tsr_text steps = { 0 };
	size_t shown = 0;

	for (size_t i = 0; i < replay->nsteps && (r->verbose || shown < LINES_SHOWN); i++) {
		if (replay->steps[i].skipped)
			tsr_text_printf(&steps, "%s %" PRIu64, shown++ ? "," : "",
					replay->steps[i].step);
	}
	if (replay->nskipped)
		tsr_report_heading(r, TSR_TO_BOTH,
				   "%zu of %zu steps skipped, whose gradients are not finite:%s%s",
				   replay->nskipped, replay->nsteps, steps.bytes ? steps.bytes : "",
				   shown < replay->nskipped ? ", ..." : "");
	r->text.failed |= steps.failed;
	tsr_text_free(&steps);
}

void tsr_replay_report_gate(const struct tsr_replay *replay, const char *state,
			    struct tsr_report *r)
{
	const struct tsr_replay_step *s;

	if (!replay->gate_failed)
		return;
	s = &replay->steps[replay->gate_step];
	tsr_report_heading(r, TSR_TO_TEXT,
			   "Gate failed%s%s: %s of %s at step %" PRIu64
			   " is %.6g, the limit %.6g. Nothing was written.",
			   state ? " for " : "", state ? state : "",
			   tsr_figure_name(replay->failed.figure),
			   tsr_format_name(replay->params[replay->gate_param], 120).text, s->step,
			   s->tensors ? tsr_figure_error(&s->tensors[replay->gate_param],
							 replay->failed.figure)
				      : NAN,
			   replay->failed.limit);
}

/* --- All of it -------------------------------------------------------------------------------- */

static void report_figures(const struct tsr_replay *replay, const struct tsr_curves *c,
			   struct tsr_report *r)
{
	const size_t last = tsr_replay_last_compared(replay);
	size_t first = 0;

	tsr_report_charts(r, tsr_curves_put, c);
	while (first < replay->nsteps && !tsr_replay_has_figures(replay, first))
		first++;
	/* Whether errors build up. */
	for (unsigned i = 0; i < c->n && last != SIZE_MAX; i++) {
		if (c->curve[i].kind->figure == TSR_FIGURE_UPDATE_NMSE)
			tsr_report_say(r, TSR_TO_PAGE,
				       "The update error of all tensors went from %.2g at step "
				       "%" PRIu64 " to %.2g at step %" PRIu64 ".",
				       c->curve[i].total[first], replay->steps[first].step,
				       c->curve[i].total[last], replay->steps[last].step);
	}
	report_steps(replay, c, r);
	report_any(r, worst_of(replay), "", NULL);
	report_any(r, lost_of(replay), "lost,of,share,tensor", NULL);
	tsr_report_heading(r, TSR_TO_PAGE, "Tensors");
	tsr_report_say(r, TSR_TO_PAGE,
		       "The largest value of each over the steps; the largest of each "
		       "column is bold. At most %d tensors.",
		       5 * ROWS_SHOWN);
	report_any(r, tensors_of(replay, c), NULL, "");
}

static void report_people(const struct tsr_replay *replay, const struct tsr_curves *c,
			  struct tsr_report *r)
{
	const bool drawn = replay->compared && replay->nsteps;
	struct tsr_text json = { 0 };
	char out[80] = "";

	tsr_report_open(r, "tersor replay", "Replay");
	tsr_replay_report_facts(replay, true, r);
	if (replay->out_nbytes)
		snprintf(out, sizeof(out), ", %.30s %s",
			 tsr_format_bytes((double)replay->out_nbytes).text,
			 replay->dry_run ? "to be written" : "written");
	tsr_report_fact(r, TSR_TO_BOTH, "bytes", "%s of state, %s of gradients read%s",
			tsr_format_bytes((double)replay->state_nbytes).text,
			tsr_format_bytes((double)replay->grad_nbytes).text, out);
	tsr_report_fact(r, TSR_TO_PAGE, "made by", "tersor " TSR_VERSION);
	report_findings(replay, TSR_TO_PAGE, r);
	if (drawn)
		report_figures(replay, c, r);
	report_findings(replay, TSR_TO_TEXT, r);
	if (replay->nwarnings)
		tsr_report_heading(r, TSR_TO_BOTH,
				   "The lr is too small to move the largest weights of %zu of %zu "
				   "tensors:",
				   replay->nwarnings, replay->nparams);
	report_any(r, tsr_replay_warnings(replay), "", "");
	if (replay->nmissing)
		tsr_report_heading(r, TSR_TO_BOTH,
				   "Steps without a gradient for a parameter did not step it:");
	report_any(r, tsr_replay_missing_table(replay), "steps,-of,first,tensor",
		   "steps,-of,first,tensor");
	report_skipped(replay, r);
	tsr_replay_report_gate(replay, NULL, r);
	if (drawn) {
		tsr_report_markup(r, tsr_replay_html);
		put_json(&json, c);
	}
	tsr_report_close(r, drawn ? &json : NULL);
}

void tsr_replay_report(const struct tsr_replay *replay, struct tsr_report *r)
{
	struct tsr_curves c;

	if (!tsr_curves_find(&c, replay)) {
		r->text.failed = r->csv.failed = r->svg.failed = r->html.failed = true;
		return;
	}
	report_people(replay, &c, r);
	if (r->wants_csv) {
		tsr_replay_put_csv_names("", &r->csv);
		tsr_replay_put_csv(replay, NULL, &r->csv);
	}
	tsr_report_svg(r, "replay", tsr_curves_put, &c);
	if (r->wants_json)
		tsr_replay_put_json(replay, &r->json);
	tsr_curves_free(&c);
}
