/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as elements of a page. */
#include <stdlib.h>
#include <string.h>

#include "report/charts/page.h"
#include "report/table.h"

static void put_cell(const struct tsr_slot *p, const struct tsr_field *v, struct tsr_text *html)
{
	const bool name = p->column->as == TSR_NAME && v->type == TSR_FIELD_STRING && v->string;
	const struct tsr_cell cell = tsr_cell_of(p->column, v, p->i, TSR_COLUMNS);

	tsr_text_puts(html, v->marked ? "<td class=\"worst\"" : "<td");
	if (name) {
		tsr_text_puts(html, " title=\"");
		tsr_html_put_text(html, v->string);
		tsr_text_puts(html, "\"");
	}
	tsr_text_puts(html, ">");
	if (strcmp(cell.text, "-") == 0)
		tsr_text_puts(html, "\xe2\x80\x93");
	else if (strcmp(cell.text, "inf") == 0)
		tsr_text_puts(html, "\xe2\x88\x9e");
	else
		tsr_html_put_text(html, name ? v->string : cell.text);
	tsr_text_puts(html, "</td>");
}

static void put_head(const struct tsr_slot *places, unsigned n, struct tsr_text *html)
{
	bool units = false;

	for (unsigned k = 0; k < n; k++)
		units = units || places[k].column->unit;
	for (unsigned k = 0; k < n; k++) {
		tsr_text_puts(html, "<th>");
		tsr_html_put_text(html, places[k].label);
		if (units)
			tsr_text_printf(html, "<small>%s</small>",
					places[k].column->unit && *places[k].column->unit
						? places[k].column->unit
						: "&nbsp;");
		tsr_text_puts(html, "</th>");
	}
}

void tsr_table_put_html(const struct tsr_table *t, const struct tsr_view *view,
			struct tsr_text *html)
{
	struct tsr_slot places[TSR_SLOTS_MAX];
	const unsigned n = tsr_view_slots(t, view, places);
	size_t shown = 0;

	html->failed = html->failed || t->failed;
	if (html->failed)
		return;
	tsr_text_puts(html, "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>");
	put_head(places, n, html);
	tsr_text_puts(html, "</tr></thead>\n<tbody>\n");
	for (size_t row = 0; (row = tsr_view_next(t, view, row, &shown)) != SIZE_MAX; row++) {
		tsr_text_puts(html, "<tr>");
		for (unsigned k = 0; k < n; k++)
			put_cell(&places[k], tsr_table_field(t, row, places[k].index), html);
		tsr_text_puts(html, "</tr>\n");
	}
	tsr_text_puts(html, "</tbody></table></div>\n");
}
