/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a replay: what was replayed and how far it is from FP32. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/replay_result.h"
#include "report/format.h"
#include "report/replay_figures.h"
#include "report/replay_findings.h"
#include "report/replay_report.h"

/* Unless verbose: steps in the table besides the worst, and lines of lists. */
#define STEPS_SHOWN 20
#define LINES_SHOWN 8

/* --- What was replayed ------------------------------------------------------------------------ */

static void put_range(struct tsr_text *out, const struct tsr_replay *r)
{
	tsr_text_printf(out, "%s, ", tsr_optimizer_name(r->optimizer));
	if (r->nsteps)
		tsr_text_printf(out, "%zu step%s, %" PRIu64 " to %" PRIu64 "; ", r->nsteps,
				r->nsteps == 1 ? "" : "s", r->steps[0].step,
				r->steps[r->nsteps - 1].step);
	else
		tsr_text_printf(out, "no steps; ");
	tsr_text_printf(out, "%s parameters in %zu tensor%s\n",
			tsr_format_count(tsr_replay_numel(r, SIZE_MAX)).text, r->nparams,
			r->nparams == 1 ? "" : "s");
}

static void put_state(struct tsr_text *out, const struct tsr_replay *r)
{
	static const char *const parts[TSR_PARTS] = { "weight", "momentum", "variance" };
	char line[256] = "state    ";
	size_t at = strlen(line);

	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_codec *codec = r->coding[p].codec;

		if (!codec)
			continue;
		/* Learned blocks differ from tensor to tensor. */
		at += (size_t)snprintf(
			line + at, sizeof(line) - at, "%s %s %s", at > 9 ? "," : "", parts[p],
			codec->learned ? codec->name : tsr_format_coding(&r->coding[p]).text);
	}
	tsr_put_wrapped(out, line, 0, 10);
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		if (!r->widened[p])
			continue;
		snprintf(line, sizeof(line),
			 "%s scales are f32: with %s = %.7g it changes too little in a step for "
			 "e8m8",
			 parts[p], tsr_hyper_name(r->decay[p]), r->decays[p]);
		tsr_text_puts(out, "          ");
		tsr_put_wrapped(out, line, 10, 10);
	}
}

static void put_lr(struct tsr_text *out, const struct tsr_replay *r)
{
	double least, most;

	if (!tsr_replay_lr_range(r, &least, &most))
		return;
	tsr_text_printf(out, "lr        %.6g", least);
	if (most > least)
		tsr_text_printf(out, " to %.6g", most);
	if (r->ngroups > 1)
		tsr_text_printf(out, " in %zu groups of parameters", r->ngroups);
	tsr_text_puts(out, "\n");
}

static void put_bytes(struct tsr_text *out, const struct tsr_replay *r)
{
	tsr_text_printf(out, "bytes     %s of state, %s of gradients read",
			tsr_format_bytes((double)r->state_nbytes).text,
			tsr_format_bytes((double)r->grad_nbytes).text);
	if (r->out_nbytes)
		tsr_text_printf(out, ", %s %s", tsr_format_bytes((double)r->out_nbytes).text,
				r->dry_run ? "to be written" : "written");
	tsr_text_puts(out, "\n");
}

/* --- Steps ------------------------------------------------------------------------------------ */

/* The columns besides step and lr. */
static const struct column {
	enum tsr_figure_name figure;
	int width;
	const char *head, *unit;
} columns[] = {
	{ TSR_FIGURE_MOMENTUM_NMSE, 8, "momentum", "NMSE" },
	{ TSR_FIGURE_VARIANCE_NMSE, 8, "variance", "NMSE" },
	{ TSR_FIGURE_WEIGHT_NMSE, 8, "weight", "NMSE" },
	{ TSR_FIGURE_WEIGHT_ULP, 10, "weight", "max ULP" },
	{ TSR_FIGURE_UPDATE_NMSE, 8, "update", "NMSE" },
	{ TSR_FIGURE_STALLED, 8, "stalled", "%" },
};

#define NCOLUMNS (sizeof(columns) / sizeof(*columns))

/* @n: the number of weights, for percentages. */
void tsr_replay_format(char out[24], enum tsr_figure_name figure, double value, double n)
{
	if (isnan(value))
		snprintf(out, 24, "-");
	else if (isinf(value))
		snprintf(out, 24, "inf");
	else if (figure == TSR_FIGURE_WEIGHT_ULP)
		snprintf(out, 24, "%.23s", tsr_format_ulp(value).text);
	else if (figure == TSR_FIGURE_STALLED && n > 0)
		tsr_figure_format(out, 100 * value / n, true);
	else
		tsr_figure_format(out, value, false);
}

struct table {
	const struct tsr_replay *r;
	bool verbose;
	double n; /* weights */
	size_t worst[NCOLUMNS]; /* steps with the largest totals; SIZE_MAX if all are 0 */
};

static void put_step(struct tsr_text *out, const struct table *t, size_t i)
{
	const struct tsr_replay_step *s = &t->r->steps[i];
	char cell[24];

	tsr_text_printf(out, "%8" PRIu64, s->step);
	if (s->lr)
		tsr_text_printf(out, " %8.2e", s->lr[0]);
	else
		tsr_text_printf(out, " %8s", "-");
	if (s->skipped)
		tsr_text_printf(out, "  skipped: its gradients are not finite");
	for (size_t c = 0; c < NCOLUMNS && tsr_replay_has_figures(t->r, i); c++) {
		tsr_replay_format(cell, columns[c].figure, s->total.value[columns[c].figure], t->n);
		tsr_text_printf(out, " %*s", columns[c].width, cell);
		/* Lines do not end in blanks. */
		if (t->worst[c] == i || c + 1 < NCOLUMNS)
			tsr_text_printf(out, "%c", t->worst[c] == i ? '*' : ' ');
	}
	tsr_text_puts(out, "\n");
}

static bool is_shown(const struct table *t, size_t i)
{
	for (size_t c = 0; c < NCOLUMNS; c++) {
		if (t->worst[c] == i)
			return true;
	}
	return t->verbose || tsr_replay_in_sample(t->r, i, STEPS_SHOWN);
}

static void put_head(struct tsr_text *out)
{
	tsr_text_printf(out, "\n%8s %8s", "step", "lr");
	for (size_t c = 0; c < NCOLUMNS; c++)
		tsr_text_printf(out, " %*s%s", columns[c].width, columns[c].head,
				c + 1 < NCOLUMNS ? " " : "");
	tsr_text_printf(out, "\n%17s", "");
	for (size_t c = 0; c < NCOLUMNS; c++)
		tsr_text_printf(out, " %*s%s", columns[c].width, columns[c].unit,
				c + 1 < NCOLUMNS ? " " : "");
	tsr_text_puts(out, "\n");
}

static void put_steps(struct tsr_text *out, const struct tsr_replay *r, bool verbose)
{
	struct table t = { .r = r, .verbose = verbose };
	size_t shown = 0;

	t.n = (double)tsr_replay_numel(r, SIZE_MAX);
	for (size_t c = 0; c < NCOLUMNS; c++)
		t.worst[c] = tsr_replay_worst_step(r, columns[c].figure);
	tsr_text_printf(out,
			"\nAgainst a replay in FP32 of the same gradients, over all tensors:\n");
	put_head(out);
	for (size_t i = 0; i < r->nsteps; i++) {
		if (!is_shown(&t, i))
			continue;
		put_step(out, &t, i);
		shown++;
	}
	tsr_text_puts(out, "\n");
	if (shown < r->nsteps)
		tsr_text_printf(out, "%zu of %s steps; -v shows all. ", shown,
				tsr_format_count(r->nsteps).text);
	tsr_text_printf(out, "* is the largest of its column.%s\n",
			r->ngroups > 1 ? " The lr is that of the first group." : "");
}

/* --- Tensors ---------------------------------------------------------------------------------- */

/* The figures whose worst tensors are named. */
static const enum tsr_figure_name named[] = {
	TSR_FIGURE_MOMENTUM_NMSE,  TSR_FIGURE_VARIANCE_NMSE, TSR_FIGURE_MOMENTUM_QUANT,
	TSR_FIGURE_VARIANCE_QUANT, TSR_FIGURE_WEIGHT_NMSE,   TSR_FIGURE_WEIGHT_ULP,
	TSR_FIGURE_UPDATE_NMSE,	   TSR_FIGURE_UPDATE_QUANT,  TSR_FIGURE_STALLED,
	TSR_FIGURE_UNDERFLOW,	   TSR_FIGURE_VARIANCE_LOST,
};

static void put_worst_tensors(struct tsr_text *out, const struct tsr_replay *r)
{
	char value[24];

	tsr_text_printf(out, "\n%-14s %10s %8s  %s\n", "worst tensor", "value", "step", "name");
	for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++) {
		const struct tsr_replay_worst w = tsr_replay_worst(r, named[i]);

		if (!w.any || w.value == 0)
			continue;
		if (named[i] == TSR_FIGURE_WEIGHT_ULP)
			tsr_replay_format(value, named[i], w.value, 0);
		else if (w.value < 1e10 && w.value == floor(w.value))
			snprintf(value, sizeof(value), "%.0f", w.value);
		else
			tsr_replay_format(value, TSR_FIGURE_UPDATE_NMSE, w.value, 0);
		tsr_text_printf(out, "%-14s %10s %8" PRIu64 "  %s\n", tsr_figure_name(named[i]),
				value, r->steps[w.step].step,
				tsr_format_name(r->params[w.param], TSR_COLUMNS - 36).text);
	}
}

/* The tensors whose scales underflow, in their order. */
static void put_lost_groups(struct tsr_text *out, const struct tsr_replay *r, bool verbose)
{
	size_t n = 0;

	for (size_t p = 0; p < r->nparams; p++) {
		const uint64_t lost = (uint64_t)fmax(
			0, tsr_replay_largest(r, p, TSR_FIGURE_UNDERFLOW));
		const uint64_t all = tsr_replay_ngroups(r, p);

		if (!lost || (n++ >= LINES_SHOWN && !verbose))
			continue;
		if (n == 1)
			tsr_text_printf(out, "\n%-12s %12s %6s  %s\n", "groups lost", "of", "%",
					"name");
		tsr_text_printf(out, "%-12" PRIu64 " %12" PRIu64 " %6.2f  %s\n", lost, all,
				all ? 100.0 * (double)lost / (double)all : 0,
				tsr_format_name(r->params[p], TSR_COLUMNS - 34).text);
	}
	if (n > LINES_SHOWN && !verbose)
		tsr_text_printf(out, "... and %zu more, which -v shows\n", n - LINES_SHOWN);
}

/* --- Words ------------------------------------------------------------------------------------ */

static void put_findings(struct tsr_text *out, const struct tsr_replay *r)
{
	struct tsr_findings f;
	char line[sizeof(f.item[0].text) + 8];

	tsr_replay_find(r, &f);
	if (f.n)
		tsr_text_puts(out, "\n");
	for (unsigned i = 0; i < f.n; i++) {
		snprintf(line, sizeof(line), "%-5s %s", tsr_finding_level_name(f.item[i].level),
			 f.item[i].text);
		tsr_put_wrapped(out, line, 0, 6);
	}
}

static void put_warnings(struct tsr_text *out, const struct tsr_replay *r, bool verbose)
{
	const size_t shown = verbose || r->nwarnings <= LINES_SHOWN ? r->nwarnings : LINES_SHOWN;
	char line[512];

	if (!r->nwarnings)
		return;
	tsr_text_printf(
		out, "\nThe lr is too small to move the largest weights of %zu of %zu tensors:\n",
		r->nwarnings, r->nparams);
	for (size_t i = 0; i < shown; i++) {
		const struct tsr_numerics_warning *w = &r->warnings[i];

		snprintf(line, sizeof(line), "%s: lr %.3g at step %" PRIu64 ", |w| %.3g",
			 tsr_format_name(r->params[w->param], 60).text, w->lr, w->step, w->largest);
		tsr_text_puts(out, "  ");
		tsr_put_wrapped(out, line, 2, 4);
	}
	if (shown < r->nwarnings)
		tsr_text_printf(out, "  ... and %zu more, which -v shows\n", r->nwarnings - shown);
}

static void put_missing(struct tsr_text *out, const struct tsr_replay *r, bool verbose)
{
	const size_t shown = verbose || r->nmissing <= LINES_SHOWN ? r->nmissing : LINES_SHOWN;

	if (!r->nmissing)
		return;
	tsr_text_printf(out, "\nSteps without a gradient for a parameter did not step it:\n\n");
	tsr_text_printf(out, "%-12s %12s %12s  %s\n", "no gradient", "of steps", "first", "name");
	for (size_t i = 0; i < shown; i++) {
		tsr_text_printf(out, "%-12zu %12zu %12" PRIu64 "  %s\n", r->missing[i].nsteps,
				r->nsteps, r->missing[i].first,
				tsr_format_name(r->missing[i].name, TSR_COLUMNS - 40).text);
	}
	if (shown < r->nmissing)
		tsr_text_printf(out, "... and %zu more, which -v shows\n", r->nmissing - shown);
}

static void put_skipped(struct tsr_text *out, const struct tsr_replay *r, bool verbose)
{
	size_t shown = 0;

	if (!r->nskipped)
		return;
	tsr_text_printf(out,
			"\n%zu of %zu steps skipped, whose gradients are not finite:", r->nskipped,
			r->nsteps);
	for (size_t i = 0; i < r->nsteps && (verbose || shown < LINES_SHOWN); i++) {
		if (r->steps[i].skipped)
			tsr_text_printf(out, "%s %" PRIu64, shown++ ? "," : "", r->steps[i].step);
	}
	tsr_text_printf(out, shown < r->nskipped ? ", ...\n" : "\n");
}

void tsr_replay_put_gate(const struct tsr_replay *r, const char *state, struct tsr_text *out)
{
	const struct tsr_replay_step *s;
	char line[512];

	if (!r->gate_failed)
		return;
	s = &r->steps[r->gate_step];
	snprintf(line, sizeof(line),
		 "Gate failed%s%s: %s of %s at step %" PRIu64
		 " is %.6g, the limit %.6g. Nothing was written.",
		 state ? " for " : "", state ? state : "", tsr_figure_name(r->failed.figure),
		 tsr_format_name(r->params[r->gate_param], 120).text, s->step,
		 s->tensors ? tsr_figure_error(&s->tensors[r->gate_param], r->failed.figure) : NAN,
		 r->failed.limit);
	tsr_text_puts(out, "\n");
	tsr_put_wrapped(out, line, 0, 0);
}

void tsr_replay_put_head(const struct tsr_replay *r, struct tsr_text *out)
{
	put_range(out, r);
	put_lr(out, r);
}

void tsr_replay_put_table(const struct tsr_replay *r, bool verbose, struct tsr_text *out)
{
	put_range(out, r);
	put_state(out, r);
	put_lr(out, r);
	put_bytes(out, r);
	if (r->compared && r->nsteps) {
		put_steps(out, r, verbose);
		put_worst_tensors(out, r);
		put_lost_groups(out, r, verbose);
		put_findings(out, r);
	}
	put_warnings(out, r, verbose);
	put_missing(out, r, verbose);
	put_skipped(out, r, verbose);
	tsr_replay_put_gate(r, NULL, out);
}
