/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a replay, and the same for programs: JSON and comma-separated values. */
#include "report/reports.h"

#include "ckpt/checkpoint_model.h"
#include "replay/findings/replay_figures.h"
#include "replay/replay_result.h"

/* Unless verbose: steps in the text besides the worst, and lines of lists; rows of a page. */
#define STEPS_SHOWN 20
#define LINES_SHOWN 8
#define ROWS_SHOWN 200

/* --- Tables ----------------------------------------------------------------------------------- */

/* A figure that does not exist is left out; an infinite one is null, as in every report. */
static void add_figures(struct tsr_table *t, const char *const keys[TSR_FIGURE_COUNT],
			const struct tsr_replay_figures *f)
{
	for (unsigned i = 0; i < TSR_FIGURE_COUNT; i++) {
		if (!isnan(f->value[i]))
			TSR_CELL(t, keys ? keys[i] : tsr_figure_name((enum tsr_figure_name)i), NULL,
				 f->value[i]);
	}
}

/* Totals by step: figures as they are, and curves as people see them. */
struct tsr_table tsr_replay_steps_table(const struct tsr_replay *r, const struct tsr_curves *c)
{
	const char *keys[TSR_FIGURE_COUNT];
	size_t largest[TSR_CURVES_MAX]; /* the step of each curve's largest value */
	struct tsr_table t = { 0 };

	for (unsigned f = 0; f < TSR_FIGURE_COUNT; f++)
		keys[f] = tsr_keepf(&t, "total.%s", tsr_figure_name((enum tsr_figure_name)f));
	for (unsigned k = 0; k < c->n; k++)
		largest[k] = tsr_first_largest(c->curve[k].total, r->nsteps);
	for (size_t i = 0; i < r->nsteps; i++) {
		const struct tsr_replay_step *s = &r->steps[i];
		bool worst = false;

		tsr_row(&t);
		TSR_CELL(&t, "step", "step", s->step);
		tsr_cell_list(&t, "lr", NULL, s->lr, s->lr ? r->ngroups : 0);
		TSR_CELL(&t, "skipped", NULL, s->skipped);
		TSR_CELL(&t, "missing", NULL, s->nmissing);
		if (tsr_replay_has_figures(r, i))
			add_figures(&t, keys, &s->total);
		TSR_CELL(&t, "-lr", "lr:.2e", s->lr ? s->lr[0] : NAN);
		for (unsigned k = 0; k < c->n; k++) {
			const struct tsr_curve *x = &c->curve[k];

			TSR_CELL(&t, x->kind->key, x->kind->shown, x->total[i]);
			tsr_mark(&t, largest[k] == i);
			worst |= largest[k] == i;
		}
		if (r->nskipped)
			TSR_CELL(&t, "-skipped", " ", s->skipped ? "(skipped)" : "");
		tsr_put_aside(&t,
			      (worst || tsr_replay_in_sample(r, i, STEPS_SHOWN) ? 0 : TSR_TO_TEXT) |
				      (worst || tsr_replay_in_sample(r, i, ROWS_SHOWN)
					       ? 0
					       : TSR_TO_PAGE));
	}
	return t;
}

struct tsr_table tsr_replay_warnings(const struct tsr_replay *r)
{
	struct tsr_table t = { .most_text = LINES_SHOWN, .most_page = ROWS_SHOWN };

	for (size_t i = 0; i < r->nwarnings; i++) {
		const struct tsr_numerics_warning *w = &r->warnings[i];

		tsr_row(&t);
		TSR_CELL(&t, "step", "from step", w->step);
		TSR_CELL(&t, "tensor", "tensor:n", r->params[w->param]);
		TSR_CELL(&t, "largest", "largest |w|:.3g", w->largest);
		TSR_CELL(&t, "lr", "lr:.3g", w->lr);
	}
	return t;
}

struct tsr_table tsr_replay_missing_table(const struct tsr_replay *r)
{
	struct tsr_table t = { .most_text = LINES_SHOWN, .most_page = ROWS_SHOWN };

	for (size_t i = 0; i < r->nmissing; i++) {
		tsr_row(&t);
		TSR_CELL(&t, "tensor", "name:n", r->missing[i].name);
		TSR_CELL(&t, "first", "first", r->missing[i].first);
		TSR_CELL(&t, "steps", "no gradient", r->missing[i].nsteps);
		TSR_CELL(&t, "-of", "of steps", r->nsteps);
	}
	return t;
}

/* --- JSON: what was replayed ------------------------------------------------------------------ */

static void put_state(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "state", '{');
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_coding *c = &r->coding[p];
		struct tsr_table t = { 0 };

		if (!c->codec)
			continue;
		tsr_row(&t);
		/* Blocks differ from tensor to tensor. */
		if (c->codec->learned)
			TSR_CELL(&t, "codec", NULL, c->codec->name);
		else
			tsr_cell_coding(&t, c);
		if (r->widened[p])
			TSR_CELL(&t, "scale_instead_of", NULL, tsr_scale_name(TSR_SCALE_E8M8));
		tsr_json_open(json, tsr_slot_name((enum tsr_slot)p), '{');
		tsr_table_end_members(t, json);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, '}');
}

/* --- JSON: figures ---------------------------------------------------------------------------- */

static double figure_at(const struct tsr_replay *r, size_t step, size_t param, unsigned figure)
{
	return tsr_replay_has_figures(r, step) ? r->steps[step].tensors[param].value[figure]
					       : (double)NAN;
}

/* Of each figure that a parameter has at any step, an array with a value per step, null for a skipped one. */
static void put_tensors(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "tensors", '[');
	for (size_t p = 0; p < r->nparams; p++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "name", r->params[p]);
		tsr_json_put_u64(json, "elements", tsr_replay_numel(r, p));
		tsr_json_put_u64(json, "scales", tsr_replay_ngroups(r, p));
		for (unsigned f = 0; f < TSR_FIGURE_COUNT; f++) {
			bool any = false;

			for (size_t i = 0; i < r->nsteps && !any; i++)
				any = !isnan(figure_at(r, i, p, f));
			if (!any)
				continue;
			tsr_json_open(json, tsr_figure_name((enum tsr_figure_name)f), '[');
			for (size_t i = 0; i < r->nsteps; i++)
				tsr_json_put_double(json, NULL, figure_at(r, i, p, f));
			tsr_json_close(json, ']');
		}
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

static void put_worst(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "worst", '{');
	for (unsigned f = 0; f < TSR_FIGURE_COUNT; f++) {
		const struct tsr_replay_worst w = tsr_replay_worst(r, (enum tsr_figure_name)f);

		if (!w.any)
			continue;
		tsr_json_open(json, tsr_figure_name((enum tsr_figure_name)f), '{');
		tsr_json_put_double(json, "value", w.value);
		tsr_json_put_u64(json, "step", r->steps[w.step].step);
		tsr_json_put_string(json, "tensor", r->params[w.param]);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, '}');
}

static void put_gate(const struct tsr_replay *r, struct tsr_text *json)
{
	const struct tsr_replay_step *s = &r->steps[r->gate_step];

	if (!r->gate_failed) {
		tsr_json_put_null(json, "gate_failed");
		return;
	}
	tsr_json_open(json, "gate_failed", '{');
	tsr_json_put_string(json, "figure", tsr_figure_name(r->failed.figure));
	tsr_json_put_double(json, "limit", r->failed.limit);
	if (s->tensors)
		tsr_json_put_double(json, "error",
				    tsr_figure_error(&s->tensors[r->gate_param], r->failed.figure));
	tsr_json_put_u64(json, "step", s->step);
	tsr_json_put_string(json, "tensor", r->params[r->gate_param]);
	tsr_json_close(json, '}');
}

static void put_switch(struct tsr_text *json, const char *key, signed char on)
{
	if (on < 0)
		tsr_json_put_null(json, key);
	else
		tsr_json_put_bool(json, key, on);
}

void tsr_recorded_run_put_json(const struct tsr_recorded_run *run, struct tsr_text *json)
{
	tsr_json_put_string(json, "order", *run->order ? run->order : NULL);
	tsr_json_put_string(json, "pytorch", *run->pytorch ? run->pytorch : NULL);
	tsr_json_put_string(json, "device", *run->device ? run->device : NULL);
	put_switch(json, "fused", run->fused);
	put_switch(json, "foreach", run->foreach);
	put_switch(json, "capturable", run->capturable);
}

void tsr_replay_put_json(const struct tsr_replay *r, struct tsr_text *json)
{
	static const char *const from[] = { "option", "recording", "default" };
	struct tsr_table findings = { 0 };
	struct tsr_findings found;

	if (r->source)
		tsr_json_put_string(json, "checkpoint", r->source->path);
	tsr_json_put_string(json, "optimizer", tsr_optimizer_name(r->optimizer));
	tsr_json_put_string(json, "order", tsr_order_name(r->order));
	tsr_json_put_string(json, "order_from", from[r->order_from]);
	tsr_json_open(json, "recorded", '{');
	tsr_recorded_run_put_json(&r->recorded, json);
	tsr_json_close(json, '}');
	put_state(r, json);
	tsr_json_open(json, "groups", '[');
	for (size_t g = 0; g < r->ngroups && r->hyper; g++) {
		tsr_json_open(json, NULL, '{');
		for (unsigned h = 0; h < TSR_HYPER_COUNT; h++) {
			if (tsr_replay_has_hyper(r, g, (enum tsr_hyper_name)h))
				tsr_json_put_double(json, tsr_hyper_name((enum tsr_hyper_name)h),
						    r->hyper[g].value[h]);
		}
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_put_u64(json, "parameters", tsr_replay_numel(r, SIZE_MAX));
	tsr_json_put_u64(json, "steps_before", r->first_count);
	tsr_json_put_u64(json, "skipped", r->nskipped);
	tsr_json_put_u64(json, "nonfinite", r->nonfinite);
	tsr_json_put_u64(json, "state_nbytes", r->state_nbytes);
	tsr_json_put_u64(json, "gradient_nbytes", r->grad_nbytes);
	tsr_json_put_u64(json, "output_nbytes", r->out_nbytes);
	tsr_json_put_bool(json, "compared", r->compared);
	put_gate(r, json);
	if (r->source)
		tsr_json_put_strings(json, "notes", (const char *const *)r->source->notes,
				     r->source->nnotes);
	tsr_table_end_json(tsr_replay_warnings(r), "warnings", json);
	tsr_table_end_json(tsr_replay_missing_table(r), "missing", json);
	tsr_table_end_json(tsr_replay_steps_table(r, &(struct tsr_curves){ .n = 0 }), "steps",
			   json);
	if (!r->compared)
		return;
	tsr_replay_find(r, &found);
	for (unsigned i = 0; i < found.n; i++) {
		tsr_row(&findings);
		TSR_CELL(&findings, "level", NULL, tsr_finding_level_name(found.item[i].level));
		TSR_CELL(&findings, "text", NULL, found.item[i].text);
	}
	tsr_table_end_json(findings, "findings", json);
	put_worst(r, json);
	put_tensors(r, json);
}

/* --- CSV -------------------------------------------------------------------------------------- */

void tsr_replay_put_csv_names(const char *before, struct tsr_text *csv)
{
	tsr_text_printf(csv, "%sstep,tensor", before);
	for (unsigned i = 0; i < TSR_FIGURE_COUNT; i++)
		tsr_text_printf(csv, ",%s", tsr_figure_name((enum tsr_figure_name)i));
	tsr_text_puts(csv, "\n");
}

static void add_line(struct tsr_table *t, const char *state, const struct tsr_replay_step *s,
		     const char *name, const struct tsr_replay_figures *f)
{
	tsr_row(t);
	if (state)
		TSR_CELL(t, "state", NULL, state);
	TSR_CELL(t, "step", NULL, s->step);
	TSR_CELL(t, "tensor", NULL, name);
	add_figures(t, NULL, f);
}

void tsr_replay_put_csv(const struct tsr_replay *r, const char *state, struct tsr_text *csv)
{
	struct tsr_text names = { 0 };

	tsr_replay_put_csv_names(state ? "state," : "", &names);
	csv->failed |= names.failed;
	for (size_t i = 0; i < r->nsteps && !csv->failed; i++) {
		const struct tsr_replay_step *s = &r->steps[i];
		struct tsr_table t = { 0 };

		if (!tsr_replay_has_figures(r, i))
			continue;
		for (size_t p = 0; p < r->nparams; p++)
			add_line(&t, state, s, r->params[p], &s->tensors[p]);
		add_line(&t, state, s, "*", &s->total);
		names.bytes[names.nbytes - 1] = '\0';
		tsr_table_end_csv(t, names.bytes, csv);
	}
	tsr_text_free(&names);
}
