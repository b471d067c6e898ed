/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of the same steps in several states, side by side. */
#include "report/replay_states.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "replay/replay_result.h"
#include "replay/replaying.h"
#include "report/format.h"
#include "report/replay_figures.h"
#include "report/replay_findings.h"
#include "report/replay_report.h"
#include "report/charts/states_chart.h"
#include "text/json.h"

double tsr_state_bytes(const struct tsr_replay *r)
{
	const double numel = (double)tsr_replay_numel(r, SIZE_MAX);
	uint64_t nbytes = 0;

	for (size_t i = 0; i < r->nparams; i++) {
		for (unsigned part = 0; part < TSR_PARTS; part++) {
			const struct tsr_coding *coding = &r->state[i].coding[part];

			for (unsigned k = 0; coding->codec && k < coding->codec->nplanes; k++)
				nbytes += tsr_plane_nbytes(coding, k, r->state[i].numel);
		}
	}
	return numel > 0 ? (double)nbytes / numel : 0;
}

size_t tsr_states_last(const struct tsr_replay *r)
{
	for (size_t i = r->nsteps; i--;) {
		if (tsr_replay_has_figures(r, i))
			return i;
	}
	return SIZE_MAX;
}

/* --- The table -------------------------------------------------------------------------------- */

/* The columns behind the bytes: what all tensors have after the last step. */
static const struct column {
	enum tsr_figure_name figure;
	const char *head, *unit;
} columns[] = {
	{ TSR_FIGURE_MOMENTUM_NMSE, "momentum", "NMSE" },
	{ TSR_FIGURE_VARIANCE_NMSE, "variance", "NMSE" },
	{ TSR_FIGURE_WEIGHT_NMSE, "weight", "NMSE" },
	{ TSR_FIGURE_UPDATE_NMSE, "update", "NMSE" },
};

#define NCOLUMNS (sizeof(columns) / sizeof(*columns))

static double last_of(const struct tsr_replay *r, enum tsr_figure_name figure)
{
	const size_t last = tsr_states_last(r);

	return last == SIZE_MAX ? NAN : r->steps[last].total.value[figure];
}

static void put_cell(struct tsr_text *out, double value, bool least)
{
	char cell[24];

	tsr_replay_format(cell, TSR_FIGURE_UPDATE_NMSE, value, 0);
	tsr_text_printf(out, " %8s%s", cell, least ? "*" : " ");
}

/* The smaller error; 0 is FP32's own. */
static double lesser(double a, double b)
{
	return b > 0 && b < a ? b : a;
}

/* The smallest of a column. */
static double least_of(const struct tsr_replay_states *s, enum tsr_figure_name figure)
{
	double least = INFINITY;

	for (unsigned i = 0; i < s->n; i++)
		least = lesser(least, last_of(s->replay[i], figure));
	return least;
}

static void put_line(struct tsr_text *out, const struct tsr_replay_states *s, unsigned i,
		     double least_worst)
{
	const struct tsr_replay *r = s->replay[i];
	const struct tsr_replay_worst worst = tsr_replay_worst(r, TSR_FIGURE_UPDATE_NMSE);

	tsr_text_printf(out, "%-12s %6.3f", s->form[i].name, tsr_state_bytes(r));
	for (size_t c = 0; c < NCOLUMNS; c++) {
		const double value = last_of(r, columns[c].figure);

		put_cell(out, value, value == least_of(s, columns[c].figure));
	}
	if (worst.any) {
		put_cell(out, worst.value, worst.value == least_worst);
		tsr_text_printf(out, " %s",
				worst.value > 0 ? tsr_format_name(r->params[worst.param], 10).text
						: "");
	}
	tsr_text_puts(out, "\n");
}

static void put_states(struct tsr_text *out, const struct tsr_replay_states *s)
{
	const struct tsr_replay *first = s->replay[0];
	double least_worst = INFINITY;

	for (unsigned i = 0; i < s->n; i++) {
		const struct tsr_replay_worst w = tsr_replay_worst(s->replay[i],
								   TSR_FIGURE_UPDATE_NMSE);

		least_worst = w.any ? lesser(least_worst, w.value) : least_worst;
	}
	tsr_text_printf(
		out, "\nAgainst replays in FP32 of the same gradients, after step %" PRIu64 ":\n\n",
		first->steps[tsr_states_last(first)].step);
	tsr_text_printf(out, "%-12s %6s", "state", "bytes/");
	for (size_t c = 0; c < NCOLUMNS; c++)
		tsr_text_printf(out, " %8s ", columns[c].head);
	tsr_text_printf(out, " %8s\n%-12s %6s", "worst", "", "param");
	for (size_t c = 0; c < NCOLUMNS; c++)
		tsr_text_printf(out, " %8s ", columns[c].unit);
	tsr_text_printf(out, " %8s  %s\n", "update", "of tensor");
	for (unsigned i = 0; i < s->n; i++)
		put_line(out, s, i, least_worst);
	tsr_text_puts(
		out, "\n* is the smallest of its column. The worst update is that of any tensor at "
		     "any\nstep.\n");
}

/* The gravest finding of each. */
static void put_findings(struct tsr_text *out, const struct tsr_replay_states *s)
{
	struct tsr_findings f;
	char line[sizeof(f.item[0].text) + 40];

	tsr_text_puts(out, "\n");
	for (unsigned i = 0; i < s->n; i++) {
		const struct tsr_finding *item = tsr_gravest_finding(s->replay[i], &f);

		if (!item)
			continue;
		snprintf(line, sizeof(line), "%-5s %s: %s", tsr_finding_level_name(item->level),
			 s->form[i].name, item->text);
		tsr_put_wrapped(out, line, 0, 6);
	}
}

void tsr_states_put_table(const struct tsr_replay_states *s, struct tsr_text *out)
{
	const struct tsr_replay *first = s->replay[0];

	tsr_replay_put_head(first, out);
	if (first->compared && tsr_states_last(first) != SIZE_MAX) {
		put_states(out, s);
		put_findings(out, s);
	}
	for (unsigned i = 0; i < s->n; i++)
		tsr_replay_put_gate(s->replay[i], s->form[i].name, out);
}

/* --- For programs ------------------------------------------------------------------------------- */

void tsr_states_put_json(const struct tsr_replay_states *s, struct tsr_text *json)
{
	tsr_json_open(json, "states", '[');
	for (unsigned i = 0; i < s->n; i++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "name", s->form[i].name);
		tsr_json_put_double(json, "bytes_per_parameter", tsr_state_bytes(s->replay[i]));
		tsr_replay_put_json(s->replay[i], json);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

void tsr_states_put_csv(const struct tsr_replay_states *s, struct tsr_text *csv)
{
	tsr_text_puts(csv, "state,");
	tsr_replay_put_csv_head(csv);
	for (unsigned i = 0; i < s->n; i++)
		tsr_replay_put_csv_lines(s->replay[i], s->form[i].name, csv);
}

void tsr_states_report(const struct tsr_replay_states *s, struct tsr_report *r)
{
	tsr_states_put_table(s, &r->text);
	if (r->wants_csv)
		tsr_states_put_csv(s, &r->csv);
	if (r->wants_svg)
		tsr_states_put_svg(s, &r->svg);
	if (r->wants_html)
		tsr_states_put_html(s, &r->html);
	if (r->wants_json)
		tsr_states_put_json(s, &r->json);
}
