/* SPDX-License-Identifier: Apache-2.0 */
/* What pages of reports have in common: one HTML file that needs no network. */
#include "render/plot.h"

#include "render/format.h"

TSR_EMBED(tsr_page_css, "src/render/page.css");
TSR_EMBED(tsr_page_js, "src/render/page.js");
TSR_EMBED(tsr_tables_js, "src/render/tables.js");

void tsr_page_open(struct tsr_text *html, const char *title)
{
	tsr_text_printf(html,
			"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
			"<meta name=\"viewport\" content=\"width=device-width, "
			"initial-scale=1\">\n<title>%s</title>\n<style>\n",
			title);
	tsr_text_puts(html, tsr_page_css);
	tsr_text_puts(html, "</style>\n</head>\n<body>\n<main>\n");
}

void tsr_page_put_charts(struct tsr_text *html, tsr_chart_put *put, const void *ctx)
{
	tsr_text_puts(html, "<div class=\"chart wide\">\n");
	put(ctx, &(struct tsr_chart_frame){ "wide", 1040, 2, true }, html);
	tsr_text_puts(html, "</div>\n<div class=\"chart narrow\">\n");
	put(ctx, &(struct tsr_chart_frame){ "narrow", 366, 1, true }, html);
	tsr_text_puts(html, "</div>\n<div id=\"tip\" role=\"status\" hidden></div>\n");
}

void tsr_page_close(struct tsr_text *html, const struct tsr_text *json)
{
	tsr_text_puts(html, "</main>\n<script>\n");
	tsr_text_puts(html, tsr_tables_js);
	tsr_text_puts(html, "</script>\n");
	if (json) {
		html->failed = html->failed || json->failed;
		tsr_text_puts(html, "<script type=\"application/json\" id=\"data\">");
		/* Names are strings of JSON in which nothing may end the element. */
		for (const char *at = json->bytes, *end; at && *at; at = end + (*end == '<')) {
			end = at + strcspn(at, "<");
			tsr_text_put(html, at, (size_t)(end - at));
			tsr_text_puts(html, *end ? "\\u003c" : "");
		}
		tsr_text_puts(html, "</script>\n<script>\n");
		tsr_text_puts(html, tsr_page_js);
		tsr_text_puts(html, "</script>\n");
	}
	tsr_text_puts(html, "</body>\n</html>\n");
}

void tsr_html_put_text(struct tsr_text *html, const char *text)
{
	char *safe = tsr_escaped(html, text);

	for (const char *c = safe; c && *c; c++) {
		if (strchr("&<>\"'", *c))
			tsr_text_printf(html, "&#%d;", *c);
		else
			tsr_text_put(html, c, 1);
	}
	free(safe);
}
