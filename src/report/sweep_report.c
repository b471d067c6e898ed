/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of sweeps. */
#include "report/reports.h"

TSR_EMBED(tsr_sweep_html, "src/report/notes/sweep.html");
TSR_EMBED(tsr_sweep_totals_html, "src/report/notes/sweep_totals.html");

/* --- Tables ----------------------------------------------------------------------------------- */

/* @next: the exponent behind those that have these figures; 0: they are of all finite values. */
static void add_row(struct tsr_table *t, const struct tsr_codec *codec,
		    const struct tsr_sweep_row *row, unsigned e, unsigned next)
{
	const struct tsr_coding coding = tsr_coding_default(codec);

	tsr_row(t);
	TSR_CELL(t, "-codec", "codec:13", codec->name);
	if (next)
		TSR_CELL(t, "exponent", NULL, e);
	TSR_CELL(t, "count", NULL, row->count);
	TSR_CELL(t, "exact", NULL, row->exact);
	TSR_CELL(t, "overflow", NULL, row->overflow);
	TSR_CELL(t, "nan_in", NULL, row->nan_in);
	TSR_CELL(t, "nan_out", NULL, row->nan_out);
	TSR_CELL(t, "compared", NULL, row->compared);
	/* In hexadecimal, without leading zeros. */
	TSR_CELL(t, "rel_sum", NULL,
		 row->rel_sum[1]
			 ? tsr_keepf(t, "%" PRIx64 "%016" PRIx64, row->rel_sum[1], row->rel_sum[0])
			 : tsr_keepf(t, "%" PRIx64, row->rel_sum[0]));
	TSR_CELL(t, "mean_rel", "mean rel:.3e", tsr_sweep_row_mean(row));
	TSR_CELL(t, "max_rel", "max rel:.3e", row->max_rel);
	TSR_CELL(t, "max_ulp", "max ULP:,", row->max_ulp);
	tsr_cell_exponents(t, "exponent:13", e, next);
	TSR_CELL(t, "-bytes", "bytes:.5g", tsr_coding_bytes_per_element(&coding));
	TSR_CELL(t, "-exact", "exact, %:.4%", tsr_share(row->exact, row->count));
	TSR_CELL(t, "-over", "over, %:.4%", tsr_share(row->overflow, row->count));
}

static void add_total(struct tsr_table *t, const struct tsr_sweep_result *r)
{
	const struct tsr_sweep_row finite = tsr_sweep_finite(r);

	add_row(t, r->codec, &finite, 0, 0);
}

/* How far the figures of an exponent go on unchanged, which fill their row: the next exponent. */
static unsigned end_of_level(const struct tsr_sweep_result *r, unsigned e)
{
	unsigned next = e + 1;

	while (next + 1 < TSR_SWEEP_ROWS &&
	       memcmp(&r->rows[e], &r->rows[next], sizeof(*r->rows)) == 0)
		next++;
	return next;
}

/* @together: neighbours with the same figures share a row. */
static struct tsr_table exponents_of(const struct tsr_sweep_result *r, bool together)
{
	struct tsr_table t = { 0 };

	for (unsigned e = 0, next; e < TSR_SWEEP_ROWS; e = next) {
		next = together && e ? end_of_level(r, e) : e + 1;
		if (r->rows[e].count)
			add_row(&t, r->codec, &r->rows[e], e, next);
	}
	return t;
}

/* --- For programs ----------------------------------------------------------------------------- */

static void put_json(const struct tsr_sweep *s, struct tsr_text *json)
{
	tsr_json_put_u64(json, "first", s->first);
	tsr_json_put_u64(json, "last", s->last);
	tsr_json_open(json, "codecs", '[');
	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_sweep_result *r = &s->results[i];
		struct tsr_table total = { 0 };

		add_total(&total, r);
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "codec", r->codec->name);
		tsr_json_open(json, "finite", '{');
		tsr_table_end_members(total, json);
		tsr_json_close(json, '}');
		tsr_table_end_json(exponents_of(r, false), "exponents", json);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

/* --- The chart of the page -------------------------------------------------------------------- */

/* Checkboxes of the lines that a panel shows at first, or of the others; returns how many. */
static unsigned put_boxes(const struct tsr_sweep *s, unsigned panel, bool shown,
			  struct tsr_text *html)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_codec *c = s->results[i].codec;

		if (tsr_sweep_panel_of(c) != panel || tsr_sweep_chart_shows(s, c) != shown)
			continue;
		n++;
		if (!html)
			continue;
		tsr_text_printf(html,
				"<label><input type=\"checkbox\" data-codec=\"%s\" "
				"autocomplete=\"off\"%s>",
				c->name, shown ? " checked" : "");
		tsr_sweep_chart_put_sample(s, i, html);
		tsr_text_printf(html, "%s</label>\n", c->name);
	}
	return n;
}

static void put_keys(const struct tsr_sweep *s, enum tsr_sweep_panel panel, struct tsr_text *html)
{
	const unsigned shown = put_boxes(s, panel, true, NULL);
	const unsigned more = put_boxes(s, panel, false, NULL);

	if (!shown && !more)
		return;
	tsr_text_printf(html, "<fieldset><legend>%s lines</legend>\n<div class=\"keys\">\n",
			tsr_sweep_panel_name(panel));
	put_boxes(s, panel, true, html);
	tsr_text_puts(html, "</div>\n");
	if (more) {
		tsr_text_printf(html, "<details><summary>%u more</summary>\n<div class=\"keys\">\n",
				more);
		put_boxes(s, panel, false, html);
		tsr_text_puts(html, "</div></details>\n");
	}
	tsr_text_puts(html, "</fieldset>\n");
}

/* The powers of two around 1, or from the first of the range on, with at most twice the error there. */
static void say_range(const struct tsr_sweep_result *x, struct tsr_report *r)
{
	unsigned first = 127, last;
	float most;

	if (!x->rows[first].count) {
		for (first = 1; first < 255 && !x->rows[first].count; first++)
			;
	}
	most = x->rows[first].max_rel;
	for (last = first; last < 254 && x->rows[last + 1].count && !x->rows[last + 1].overflow &&
			   x->rows[last + 1].max_rel <= 2 * most;)
		last++;
	while (first > 1 && x->rows[first - 1].count && x->rows[first - 1].max_rel <= 2 * most)
		first--;
	for (unsigned e = first; e <= last; e++)
		most = x->rows[e].max_rel > most ? x->rows[e].max_rel : most;
	if (x->rows[first].count)
		tsr_report_say(r, TSR_TO_PAGE,
			       "%s: weights from 2^%d to 2^%d come back within %.2g of themselves.",
			       x->codec->name, (int)first - 127, (int)last - 126, (double)most);
}

/* What the script of the page shows. */
static void put_values(const struct tsr_sweep *s, struct tsr_text *json)
{
	tsr_json_open(json, NULL, '[');
	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_sweep_result *r = &s->results[i];

		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "codec", r->codec->name);
		tsr_json_put_string(json, "panel",
				    tsr_sweep_panel_name(tsr_sweep_panel_of(r->codec)));
		tsr_json_open(json, "rows", '[');
		for (unsigned e = 0, next; e + 1 < TSR_SWEEP_ROWS; e = next) {
			const struct tsr_sweep_row *row = &r->rows[e];

			next = end_of_level(r, e);
			if (!row->count)
				continue;
			tsr_json_open(json, NULL, '[');
			tsr_text_printf(json, "%d,%d", (int)e - 127, (int)next - 128);
			tsr_json_put_u64(json, NULL, row->count);
			tsr_json_put_u64(json, NULL, row->exact);
			tsr_json_put_double(json, NULL, tsr_sweep_row_mean(row));
			tsr_json_put_double(json, NULL, (double)row->max_rel);
			tsr_json_put_u64(json, NULL, row->max_ulp);
			tsr_json_put_u64(json, NULL, row->overflow);
			tsr_json_close(json, ']');
		}
		tsr_json_close(json, ']');
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

/* --- For people ------------------------------------------------------------------------------- */

/* Losses that no codec should have; the table does not show them. */
static void say_oddities(const struct tsr_sweep_result *x, struct tsr_report *r)
{
	const struct tsr_sweep_row finite = tsr_sweep_finite(x);
	const struct tsr_sweep_row *special = &x->rows[TSR_SWEEP_ROWS - 1];

	if (finite.nan_out)
		tsr_report_say(r, TSR_TO_BOTH, "%s: %" PRIu64 " finite values come back as NaN",
			       x->codec->name, finite.nan_out);
	if (special->nan_in != special->nan_out)
		tsr_report_say(r, TSR_TO_BOTH, "%s: %" PRIu64 " NaN go in, %" PRIu64 " come back",
			       x->codec->name, special->nan_in, special->nan_out);
}

static void report_people(const struct tsr_sweep *s, struct tsr_report *r)
{
	static const char columns[] = "-codec,-bytes,-exact,mean_rel,max_rel,max_ulp,-over";
	const struct tsr_cell patterns = tsr_format_count((uint64_t)s->last - s->first + 1);
	struct tsr_table totals = { 0 };
	struct tsr_text json = { 0 };

	tsr_report_open(r, "tersor sweep", "What comes back of FP32 weights");
	tsr_report_say(r, TSR_TO_BOTH,
		       "%s bit patterns, 0x%08" PRIx32 " to 0x%08" PRIx32
		       "; shares are of the finite ones",
		       patterns.text, s->first, s->last);
	tsr_report_gap(r);
	tsr_report_charts(r, tsr_sweep_chart_put, s);
	for (unsigned i = 0; i < s->ncodecs; i++) {
		if (tsr_sweep_chart_shows(s, s->results[i].codec))
			say_range(&s->results[i], r);
	}
	for (unsigned p = 0; p < TSR_PANEL_COUNT && r->wants_html; p++)
		put_keys(s, (enum tsr_sweep_panel)p, &r->html);
	tsr_report_markup(r, "<button id=\"reset\" type=\"button\">As at first</button>"
			     "<button id=\"all\" type=\"button\">All</button>"
			     "<button id=\"none\" type=\"button\">None</button>\n");
	tsr_report_markup(r, tsr_sweep_html);
	for (unsigned i = 0; i < s->ncodecs; i++)
		add_total(&totals, &s->results[i]);
	tsr_report_heading(r, TSR_TO_PAGE, "Totals");
	tsr_report_markup(r, tsr_sweep_totals_html);
	tsr_report_table(r, totals, columns, columns);
	for (unsigned i = 0; i < s->ncodecs; i++)
		say_oddities(&s->results[i], r);
	for (unsigned i = 0; i < s->ncodecs && r->verbose; i++) {
		tsr_report_heading(r, TSR_TO_TEXT, "%s", s->results[i].codec->name);
		tsr_report_table(r, exponents_of(&s->results[i], true),
				 "-fields,-power,-exact,mean_rel,max_rel,max_ulp,-over", NULL);
	}
	if (r->wants_html)
		put_values(s, &json);
	tsr_report_close(r, &json);
}

void tsr_sweep_report(const struct tsr_sweep *s, struct tsr_report *r)
{
	static const char names[] = "-codec,exponent,count,exact,overflow,nan_in,nan_out,compared,"
				    "rel_sum,mean_rel,max_rel,max_ulp";

	report_people(s, r);
	if (r->wants_csv)
		tsr_text_printf(&r->csv, "%s\n", names + 1);
	for (unsigned i = 0; i < s->ncodecs && r->wants_csv; i++)
		tsr_table_end_csv(exponents_of(&s->results[i], false), names, &r->csv);
	tsr_report_svg(r, "sweep", tsr_sweep_chart_put, s);
	if (r->wants_json)
		put_json(s, &r->json);
}
