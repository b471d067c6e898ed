/* SPDX-License-Identifier: Apache-2.0 */
/* A replay as JSON and as comma-separated values. */
#include "report/replay_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "replay/replay_result.h"
#include "step/hyperparameters.h"
#include "text/json.h"
#include "report/format.h"
#include "report/replay_figures.h"
#include "report/replay_findings.h"
#include "report/charts/replay_chart.h"

/* --- JSON ------------------------------------------------------------------------------------- */

/* A figure that does not exist is left out; an infinite one is null, as in every report. */
static void put_figures(const struct tsr_replay_figures *f, struct tsr_text *json)
{
	for (unsigned i = 0; i < TSR_FIGURE_COUNT; i++) {
		if (!isnan(f->value[i]))
			tsr_json_put_double(json, tsr_figure_name((enum tsr_figure_name)i),
					    f->value[i]);
	}
}

static void put_state(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "state", '{');
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_coding *c = &r->coding[p];

		if (!c->codec)
			continue;
		tsr_json_open(json, tsr_kind_name(tsr_part_kind((enum tsr_part)p)), '{');
		/* Blocks differ from tensor to tensor. */
		if (c->codec->learned)
			tsr_json_put_string(json, "codec", c->codec->name);
		else
			tsr_coding_put_json(c, json);
		if (r->widened[p])
			tsr_json_put_string(json, "scale_instead_of",
					    tsr_scale_name(TSR_SCALE_E8M8));
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, '}');
}

static void put_groups(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "groups", '[');
	for (size_t g = 0; g < r->ngroups && r->hyper; g++) {
		tsr_json_open(json, NULL, '{');
		for (unsigned h = 0; h < TSR_HYPER_COUNT; h++) {
			const enum tsr_hyper_name name = (enum tsr_hyper_name)h;

			if (tsr_replay_has_hyper(r, g, name))
				tsr_json_put_double(json, tsr_hyper_name(name),
						    r->hyper[g].value[name]);
		}
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

static void put_steps(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "steps", '[');
	for (size_t i = 0; i < r->nsteps; i++) {
		const struct tsr_replay_step *s = &r->steps[i];

		tsr_json_open(json, NULL, '{');
		tsr_json_put_u64(json, "step", s->step);
		tsr_json_put_doubles(json, "lr", s->lr, s->lr ? r->ngroups : 0);
		tsr_json_put_bool(json, "skipped", s->skipped);
		tsr_json_put_u64(json, "missing", s->nmissing);
		if (tsr_replay_has_figures(r, i)) {
			tsr_json_open(json, "total", '{');
			put_figures(&s->total, json);
			tsr_json_close(json, '}');
		}
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

/* Whether a parameter has a figure at any step. */
static bool has_figure(const struct tsr_replay *r, size_t param, enum tsr_figure_name name)
{
	for (size_t i = 0; i < r->nsteps; i++) {
		if (tsr_replay_has_figures(r, i) && !isnan(r->steps[i].tensors[param].value[name]))
			return true;
	}
	return false;
}

/* One array per figure with a value per step, null for a skipped one. */
static void put_series(const struct tsr_replay *r, size_t param, struct tsr_text *json)
{
	for (unsigned f = 0; f < TSR_FIGURE_COUNT; f++) {
		const enum tsr_figure_name name = (enum tsr_figure_name)f;

		if (!has_figure(r, param, name))
			continue;
		tsr_json_open(json, tsr_figure_name(name), '[');
		for (size_t i = 0; i < r->nsteps; i++)
			tsr_json_put_double(json, NULL,
					    tsr_replay_has_figures(r, i)
						    ? r->steps[i].tensors[param].value[f]
						    : NAN);
		tsr_json_close(json, ']');
	}
}

static void put_tensors(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "tensors", '[');
	for (size_t p = 0; p < r->nparams; p++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "name", r->params[p]);
		tsr_json_put_u64(json, "elements", tsr_replay_numel(r, p));
		tsr_json_put_u64(json, "scales", tsr_replay_ngroups(r, p));
		put_series(r, p, json);
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

static void put_findings(const struct tsr_replay *r, struct tsr_text *json)
{
	struct tsr_findings f;

	tsr_replay_find(r, &f);
	tsr_json_open(json, "findings", '[');
	for (unsigned i = 0; i < f.n; i++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "level", tsr_finding_level_name(f.item[i].level));
		tsr_json_put_string(json, "text", f.item[i].text);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

static void put_warnings(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "warnings", '[');
	for (size_t i = 0; i < r->nwarnings; i++) {
		const struct tsr_numerics_warning *w = &r->warnings[i];

		tsr_json_open(json, NULL, '{');
		tsr_json_put_u64(json, "step", w->step);
		tsr_json_put_string(json, "tensor", r->params[w->param]);
		tsr_json_put_double(json, "largest", w->largest);
		tsr_json_put_double(json, "lr", w->lr);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

static void put_missing(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, "missing", '[');
	for (size_t i = 0; i < r->nmissing; i++) {
		const struct tsr_replay_missing *m = &r->missing[i];

		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "tensor", m->name);
		tsr_json_put_u64(json, "first", m->first);
		tsr_json_put_u64(json, "steps", m->nsteps);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

static void put_gate(const struct tsr_replay *r, struct tsr_text *json)
{
	const struct tsr_replay_step *s;

	if (!r->gate_failed) {
		tsr_json_put_null(json, "gate_failed");
		return;
	}
	s = &r->steps[r->gate_step];
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

void tsr_replay_put_json(const struct tsr_replay *r, struct tsr_text *json)
{
	if (r->source)
		tsr_json_put_string(json, "checkpoint", r->source->path);
	tsr_json_put_string(json, "optimizer", tsr_optimizer_name(r->optimizer));
	put_state(r, json);
	put_groups(r, json);
	tsr_json_put_u64(json, "parameters", tsr_replay_numel(r, SIZE_MAX));
	tsr_json_put_u64(json, "steps_before", r->first_count);
	tsr_json_put_u64(json, "skipped", r->nskipped);
	tsr_json_put_u64(json, "nonfinite", r->nonfinite);
	tsr_json_put_u64(json, "state_nbytes", r->state_nbytes);
	tsr_json_put_u64(json, "gradient_nbytes", r->grad_nbytes);
	tsr_json_put_u64(json, "output_nbytes", r->out_nbytes);
	tsr_json_put_bool(json, "compared", r->compared);
	put_gate(r, json);
	put_warnings(r, json);
	put_missing(r, json);
	put_steps(r, json);
	if (r->compared) {
		put_findings(r, json);
		put_worst(r, json);
		put_tensors(r, json);
	}
}

/* --- Comma-separated values ------------------------------------------------------------------- */

/* Figures that do not exist are empty. */
static void put_line(const char *state, const struct tsr_replay_step *s, const char *name,
		     const struct tsr_replay_figures *f, struct tsr_text *csv)
{
	char value[40];

	if (state)
		tsr_text_printf(csv, "%s,", state);
	tsr_text_printf(csv, "%" PRIu64 ",", s->step);
	tsr_csv_put_name(name, csv);
	for (unsigned i = 0; i < TSR_FIGURE_COUNT; i++) {
		if (isnan(f->value[i]))
			value[0] = '\0';
		else if (isinf(f->value[i]))
			memcpy(value, "inf", 4);
		else
			tsr_json_format_double(value, sizeof(value), f->value[i]);
		tsr_text_printf(csv, ",%s", value);
	}
	tsr_text_puts(csv, "\n");
}

void tsr_replay_put_csv_head(struct tsr_text *csv)
{
	tsr_text_puts(csv, "step,tensor");
	for (unsigned i = 0; i < TSR_FIGURE_COUNT; i++)
		tsr_text_printf(csv, ",%s", tsr_figure_name((enum tsr_figure_name)i));
	tsr_text_puts(csv, "\n");
}

void tsr_replay_put_csv_lines(const struct tsr_replay *r, const char *state, struct tsr_text *csv)
{
	for (size_t i = 0; i < r->nsteps; i++) {
		if (!tsr_replay_has_figures(r, i))
			continue;
		for (size_t p = 0; p < r->nparams; p++)
			put_line(state, &r->steps[i], r->params[p], &r->steps[i].tensors[p], csv);
		put_line(state, &r->steps[i], "*", &r->steps[i].total, csv);
	}
}

void tsr_replay_put_csv(const struct tsr_replay *r, struct tsr_text *csv)
{
	tsr_replay_put_csv_head(csv);
	tsr_replay_put_csv_lines(r, NULL, csv);
}

void tsr_replay_report(const struct tsr_replay *replay, struct tsr_report *r)
{
	tsr_replay_put_table(replay, r->verbose, &r->text);
	if (r->wants_csv)
		tsr_replay_put_csv(replay, &r->csv);
	if (r->wants_svg)
		tsr_replay_put_svg(replay, &r->svg);
	if (r->wants_html)
		tsr_replay_put_html(replay, &r->html);
	if (r->wants_json)
		tsr_replay_put_json(replay, &r->json);
}
