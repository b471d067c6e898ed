/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a sweep: the chart, its values, the table and how to read it, in one file. */
#include <inttypes.h>
#include <string.h>

#include "text/json.h"
#include "report/format.h"
#include "charts/page.h"
#include "charts/sweep_chart.h"
#include "report/sweep_figures.h"

TSR_EMBED(tsr_sweep_page_css, "src/charts/sweep_page.css");
TSR_EMBED(tsr_sweep_page_js, "src/charts/sweep_page.js");

/* --- Values ----------------------------------------------------------------------------------- */

/* Consecutive exponents with the same figures share a row. */
static void put_rows(const struct tsr_sweep_result *r, struct tsr_text *json)
{
	for (unsigned e = 0, next; e + 1 < TSR_SWEEP_ROWS; e = next) {
		const struct tsr_sweep_row *row = &r->rows[e];

		next = e + 1;
		while (next + 1 < TSR_SWEEP_ROWS && tsr_sweep_row_equal(row, &r->rows[next]))
			next++;
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
}

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
		put_rows(r, json);
		tsr_json_close(json, ']');
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

/* --- The table -------------------------------------------------------------------------------- */

static void put_error(struct tsr_text *html, double value)
{
	tsr_text_printf(html, value > 0 ? "<td>%.3e</td>" : "<td>0</td>", value);
}

/* A percentage as in other tables, with a longer dash. */
static void put_share(struct tsr_text *html, uint64_t part, uint64_t whole)
{
	tsr_text_printf(html, "<td>%s</td>",
			whole ? tsr_format_percent(part, whole).text : "\xe2\x80\x93");
}

static void put_table(const struct tsr_sweep *s, struct tsr_text *html)
{
	tsr_text_puts(html,
		      "<div class=\"scroll\"><table class=\"totals\">\n<thead><tr><th>codec</th>"
		      "<th>bytes</th><th>exact, %</th><th>mean error</th><th>max error</th>"
		      "<th>max ULP</th><th>overflow, %</th></tr></thead>\n<tbody>\n");
	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_sweep_result *r = &s->results[i];
		const struct tsr_coding coding = tsr_coding_default(r->codec);
		const struct tsr_sweep_row row = tsr_sweep_finite(r);

		tsr_text_printf(html, "<tr><td>%s</td><td>%.5g</td>", r->codec->name,
				tsr_coding_bytes_per_element(&coding));
		put_share(html, row.exact, row.count);
		put_error(html, tsr_sweep_row_mean(&row));
		put_error(html, (double)row.max_rel);
		tsr_html_put_count(html, "td", row.max_ulp);
		put_share(html, row.overflow, row.count);
		tsr_text_puts(html, "</tr>\n");
	}
	tsr_text_puts(html, "</tbody></table></div>\n");
}

/* --- The chart -------------------------------------------------------------------------------- */

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

static void draw(const void *ctx, bool wide, struct tsr_text *svg)
{
	const struct tsr_sweep_chart f = { .sweep = ctx,
					   .id = wide ? "wide" : "narrow",
					   .width = wide ? 1040 : 366,
					   .panel_height = wide ? 380 : 330,
					   .all = true };

	tsr_sweep_chart_put(&f, svg);
}

static void put_chart(const struct tsr_sweep *s, struct tsr_text *html)
{
	tsr_page_put_charts(html, draw, s);
	for (unsigned p = 0; p < TSR_PANEL_COUNT; p++)
		put_keys(s, (enum tsr_sweep_panel)p, html);
	tsr_text_puts(html, "<button id=\"reset\" type=\"button\">As at first</button>"
			    "<button id=\"all\" type=\"button\">All</button>"
			    "<button id=\"none\" type=\"button\">None</button>\n");
}

/* --- The page --------------------------------------------------------------------------------- */

static const char how_to_read[] =
	"<h2>How to read it</h2>\n<ul>\n"
	"<li>Every FP32 bit pattern of the range went through each codec: encoded, decoded, "
	"compared. "
	"Nothing is sampled.</li>\n"
	"<li>A line shows, for each power of two, the mean of |x \xe2\x88\x92 y| / |x| over all "
	"weights x from it to the next, y being what came back. Both axes are logarithmic; "
	"further down is better, and on the line marked 0 every weight comes back bit for "
	"bit.</li>\n"
	"<li>Grey bands between dotted lines are the ranges in which the narrow format has only "
	"subnormal numbers, with fewer bits the smaller they are. The leftmost point of the BF16 "
	"panel stands for all FP32 subnormals.</li>\n"
	"<li>An error of 1 means that weights come back as zero. Where FP16 overflows there is no "
	"line: infinite values have no relative error and are counted in the table.</li>\n"
	"<li>With stochastic rounding (<code>sr</code>) the rounding is undone, so its lines are "
	"those of the truncated split (<code>trunc</code>) with as many bits.</li>\n"
	"<li>Point at a panel, or move through it with the arrow keys, for the values of one "
	"power of two: mean and largest relative error, and the share that comes back bit for "
	"bit.</li>\n</ul>\n";

static const char table_note[] =
	"<p>Of all finite patterns of the range. <em>exact</em>: come back bit for bit; "
	"<em>error</em>: |x \xe2\x88\x92 y| / |x| over all that are not zero and come back finite; "
	"<em>ULP</em>: distance in FP32 bit patterns; <em>overflow</em>: come back infinite; "
	"<em>bytes</em> are per weight.</p>\n";

void tsr_sweep_put_html(const struct tsr_sweep *s, struct tsr_text *html)
{
	struct tsr_text json = { 0 };

	tsr_page_open(html, "tersor sweep", tsr_sweep_page_css);
	tsr_text_puts(html, "<h1>What comes back of FP32 weights</h1>\n<p>All ");
	tsr_html_put_count(html, "span", (uint64_t)s->last - s->first + 1);
	tsr_text_printf(
		html,
		" bit patterns from <code>0x%08" PRIx32 "</code> to <code>0x%08" PRIx32
		"</code>, encoded and decoded by %u codec%s of <code>tersor sweep</code>.</p>\n",
		s->first, s->last, s->ncodecs, s->ncodecs == 1 ? "" : "s");
	put_chart(s, html);
	tsr_text_puts(html, how_to_read);
	tsr_text_puts(html, "<h2>Totals</h2>\n");
	tsr_text_puts(html, table_note);
	put_table(s, html);
	tsr_text_puts(html, "</main>\n");
	put_values(s, &json);
	tsr_page_put_script(html, &json, tsr_sweep_page_js);
	tsr_page_close(html);
}
