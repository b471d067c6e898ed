/* SPDX-License-Identifier: Apache-2.0 */
/* Reports that people read: what is said once becomes lines of text and a part of a page. */
#include "render/document.h"

/* Columns of the names of facts. */
#define FACT_COLUMNS 12

/* Open a list of the page, and close the one that was open. */
static void enter(struct tsr_report *r, enum tsr_open_list in)
{
	static const char *const ends[] = { "", "</dl>\n", "</ul>\n" };
	static const char *const starts[] = { "", "<dl class=\"what\">\n",
					      "<ul class=\"findings\">\n" };

	if (r->in == in)
		return;
	tsr_text_puts(&r->html, ends[r->in]);
	tsr_text_puts(&r->html, starts[in]);
	r->in = in;
}

/* Words between two tags. */
static void put_element(struct tsr_report *r, const char *open, const char *words,
			const char *close)
{
	tsr_text_puts(&r->html, open);
	tsr_html_put_text(&r->html, words);
	tsr_text_puts(&r->html, close);
}

/* What was composed is freed; if that failed, all reports have. */
static void settle(struct tsr_report *r, struct tsr_text *words)
{
	r->text.failed = r->text.failed || words->failed;
	r->html.failed = r->html.failed || words->failed;
	tsr_text_free(words);
}

void tsr_report_open(struct tsr_report *r, const char *name, const char *title)
{
	if (!r->wants_html)
		return;
	tsr_page_open(&r->html, name);
	put_element(r, "<h1>", title, "</h1>\n");
}

void tsr_report_close(struct tsr_report *r, struct tsr_text *json)
{
	if (r->wants_html) {
		enter(r, TSR_IN_NOTHING);
		tsr_page_close(&r->html, json);
	}
	if (json)
		tsr_text_free(json);
}

void tsr_report_put(struct tsr_report *r, enum tsr_to to, enum tsr_block block, const char *name,
		    const char *fmt, ...)
{
	static const char *const open[] = { "<h2>", "<p>", "<dd>" };
	static const char *const close[] = { "</h2>\n", "</p>\n", "</dd>\n" };
	const bool fact = block == TSR_FACT;
	struct tsr_text words = { 0 };
	const char *text;
	va_list ap;

	va_start(ap, fmt);
	tsr_text_vprintf(&words, fmt, ap);
	va_end(ap);
	text = words.bytes ? words.bytes : "";
	if (r->wants_text && (to & TSR_TO_TEXT)) {
		if (block == TSR_HEADING)
			tsr_text_puts(&r->text, "\n");
		if (fact)
			tsr_text_printf(&r->text, "%-*s", FACT_COLUMNS, name);
		tsr_put_wrapped(&r->text, text, fact ? FACT_COLUMNS : 0, fact ? FACT_COLUMNS : 2);
	}
	if (r->wants_html && (to & TSR_TO_PAGE)) {
		enter(r, fact ? TSR_IN_FACTS : TSR_IN_NOTHING);
		if (fact)
			put_element(r, "<dt>", name, "</dt>");
		put_element(r, open[block], text, close[block]);
	}
	settle(r, &words);
}

void tsr_report_gap(struct tsr_report *r)
{
	if (r->wants_text)
		tsr_text_puts(&r->text, "\n");
}

struct tsr_cell tsr_report_output(const struct tsr_report *r, unsigned width)
{
	return tsr_format_name(r->output ? r->output : "dry run", width);
}

void tsr_report_put_output(struct tsr_report *r)
{
	tsr_json_put_string(&r->json, "output", r->output);
	tsr_json_put_bool(&r->json, "dry_run", r->dry_run);
}

void tsr_report_find(struct tsr_report *r, enum tsr_to to, const char *level, const char *name,
		     const char *words)
{
	struct tsr_text line = { 0 };
	char lead[64] = "";

	if (name)
		snprintf(lead, sizeof(lead), "%-5s %s%s", level, name, *name ? ": " : "");

	tsr_text_printf(&line, "%s%s", lead, words);
	if (r->wants_text && (to & TSR_TO_TEXT) && line.bytes)
		tsr_put_wrapped(&r->text, line.bytes, 0, *lead ? 6 : 2);
	if (r->wants_html && (to & TSR_TO_PAGE)) {
		enter(r, TSR_IN_FINDINGS);
		tsr_text_printf(&r->html, "<li class=\"%s\">", level);
		put_element(r, "<b>", lead, "</b> ");
		put_element(r, "", words, "</li>\n");
	}
	settle(r, &line);
}

void tsr_report_table(struct tsr_report *r, struct tsr_table t, const char *text, const char *page)
{
	const bool shown = t.nrows || t.failed;

	if (r->wants_text && text && shown)
		tsr_table_put_text(&t, text, r->verbose, &r->text);
	if (r->wants_html && page && shown) {
		enter(r, TSR_IN_NOTHING);
		tsr_table_put_html(&t, page, &r->html);
	}
	tsr_table_free(&t);
}

void tsr_report_lines(struct tsr_report *r, struct tsr_table *t, const char *columns)
{
	size_t shown = 0;

	if (r->wants_text &&
	    tsr_table_next(t, r->verbose ? TSR_TO_VERBOSE : TSR_TO_TEXT, 0, 0, &shown) != SIZE_MAX)
		tsr_table_put_text(t, columns, r->verbose, &r->text);
	r->text.failed = r->text.failed || t->failed;
}

void tsr_report_rows(struct tsr_report *r, struct tsr_table t, const char *key, const char *text)
{
	if (r->wants_json && key)
		tsr_table_put_json(&t, key, &r->json);
	if (text)
		tsr_report_lines(r, &t, text);
	tsr_table_free(&t);
}

void tsr_report_svg(struct tsr_report *r, const char *id, tsr_chart_put *put, const void *ctx)
{
	if (r->wants_svg)
		put(ctx, &(struct tsr_chart_frame){ id, 960, 2, false }, &r->svg);
}

void tsr_report_charts(struct tsr_report *r, tsr_chart_put *put, const void *ctx)
{
	if (!r->wants_html)
		return;
	enter(r, TSR_IN_NOTHING);
	tsr_page_put_charts(&r->html, put, ctx);
}

void tsr_report_markup(struct tsr_report *r, const char *html)
{
	if (!r->wants_html)
		return;
	enter(r, TSR_IN_NOTHING);
	tsr_text_puts(&r->html, html);
}
