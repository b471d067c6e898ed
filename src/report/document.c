/* SPDX-License-Identifier: Apache-2.0 */
/* Reports that people read: what is said once becomes lines of text and a part of a page. */
#include "report/document.h"

#include <stdarg.h>
#include <stdio.h>

#include "report/charts/page.h"

/* Columns of the names of facts. */
#define FACT_COLUMNS 10

static bool to_text(const struct tsr_report *r, enum tsr_to to)
{
	return r->wants_text && (to & TSR_TO_TEXT);
}

static bool to_page(const struct tsr_report *r, enum tsr_to to)
{
	return r->wants_html && (to & TSR_TO_PAGE);
}

/* Open a list of the page, and close the one that was open. */
static void enter(struct tsr_report *r, int in)
{
	static const char *const ends[] = { "", "</dl>\n", "</ul>\n" };
	static const char *const starts[] = { "", "<dl class=\"what\">\n",
					      "<ul class=\"findings\">\n" };

	if ((int)r->in == in)
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

static char *compose(struct tsr_text *words, const char *fmt, va_list ap)
{
	tsr_text_vprintf(words, fmt, ap);
	return words->bytes ? words->bytes : "";
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

void tsr_report_heading(struct tsr_report *r, enum tsr_to to, const char *fmt, ...)
{
	struct tsr_text words = { 0 };
	const char *text;
	va_list ap;

	va_start(ap, fmt);
	text = compose(&words, fmt, ap);
	va_end(ap);
	if (to_text(r, to)) {
		tsr_text_puts(&r->text, "\n");
		tsr_put_wrapped(&r->text, text, 0, 2);
	}
	if (to_page(r, to)) {
		enter(r, TSR_IN_NOTHING);
		put_element(r, "<h2>", text, "</h2>\n");
	}
	settle(r, &words);
}

void tsr_report_say(struct tsr_report *r, enum tsr_to to, const char *fmt, ...)
{
	struct tsr_text words = { 0 };
	const char *text;
	va_list ap;

	va_start(ap, fmt);
	text = compose(&words, fmt, ap);
	va_end(ap);
	if (to_text(r, to))
		tsr_put_wrapped(&r->text, text, 0, 2);
	if (to_page(r, to)) {
		enter(r, TSR_IN_NOTHING);
		put_element(r, "<p>", text, "</p>\n");
	}
	settle(r, &words);
}

void tsr_report_gap(struct tsr_report *r)
{
	if (r->wants_text)
		tsr_text_puts(&r->text, "\n");
}

void tsr_report_find(struct tsr_report *r, const char *level, const char *lead, const char *words)
{
	struct tsr_text line = { 0 };

	tsr_text_printf(&line, "%s%s", lead, words);
	if (r->wants_text && line.bytes)
		tsr_put_wrapped(&r->text, line.bytes, 0, *lead ? 6 : 2);
	if (r->wants_html) {
		enter(r, TSR_IN_FINDINGS);
		tsr_text_printf(&r->html, "<li class=\"%s\">", level);
		put_element(r, "<b>", *lead ? lead : "", "</b> ");
		put_element(r, "", words, "</li>\n");
	}
	settle(r, &line);
}

void tsr_report_fact(struct tsr_report *r, enum tsr_to to, const char *name, const char *fmt, ...)
{
	struct tsr_text words = { 0 };
	const char *text;
	va_list ap;

	va_start(ap, fmt);
	text = compose(&words, fmt, ap);
	va_end(ap);
	if (to_text(r, to)) {
		tsr_text_printf(&r->text, "%-*s", FACT_COLUMNS, name);
		tsr_put_wrapped(&r->text, text, FACT_COLUMNS, FACT_COLUMNS);
	}
	if (to_page(r, to)) {
		enter(r, TSR_IN_FACTS);
		put_element(r, "<dt>", name, "</dt>");
		put_element(r, "<dd>", text, "</dd>\n");
	}
	settle(r, &words);
}

void tsr_report_table(struct tsr_report *r, const struct tsr_table *t, const struct tsr_view *text,
		      const struct tsr_view *page)
{
	if (r->wants_text && text)
		tsr_table_put_text(t, text, &r->text);
	if (!r->wants_html || !page)
		return;
	enter(r, TSR_IN_NOTHING);
	tsr_table_put_html(t, page, &r->html);
}

void tsr_report_charts(struct tsr_report *r,
		       void (*put)(const void *ctx, bool wide, struct tsr_text *svg),
		       const void *ctx)
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
