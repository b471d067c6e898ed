/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as elements of a page. */

#include "render/plot.h"
#include "render/table.h"

static void put_cell(const struct tsr_table *t, size_t row, const struct tsr_table_slot *s,
		     struct tsr_text *html)
{
	const struct tsr_field *f = tsr_field_at(t, row, s->index);
	const char *name = f && s->column->as == 'n' ? f->string : NULL;
	const struct tsr_cell cell = tsr_cell_at(t, row, s, TSR_COLUMNS, 1);

	tsr_text_puts(html, f && f->marked ? "<td class=\"worst\"" : "<td");
	if (name) {
		tsr_text_puts(html, " title=\"");
		tsr_html_put_text(html, name);
		tsr_text_puts(html, "\"");
	}
	tsr_text_puts(html, ">");
	if (strcmp(cell.text, "-") == 0)
		tsr_text_puts(html, "\xe2\x80\x93");
	else if (strcmp(cell.text, "inf") == 0)
		tsr_text_puts(html, "\xe2\x88\x9e");
	else
		tsr_html_put_text(html, name ? name : cell.text);
	tsr_text_puts(html, "</td>");
}

void tsr_table_put_html(const struct tsr_table *t, const char *columns, struct tsr_text *html)
{
	struct tsr_table_slot slots[TSR_TABLE_SLOTS_MAX];
	const unsigned n = tsr_table_slots(t, columns, slots);
	size_t shown = 0;

	html->failed = html->failed || t->failed;
	if (html->failed)
		return;
	tsr_text_puts(html, "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>");
	for (unsigned k = 0; k < n; k++) {
		tsr_text_puts(html, "<th>");
		tsr_html_put_text(html, slots[k].label);
		if (*slots[k].column->unit)
			tsr_text_printf(html, "<small>%s</small>", slots[k].column->unit);
		tsr_text_puts(html, "</th>");
	}
	tsr_text_puts(html, "</tr></thead>\n<tbody>\n");
	for (size_t row = 0;
	     (row = tsr_table_next(t, TSR_TO_PAGE, t->most_page, row, &shown)) != SIZE_MAX; row++) {
		tsr_text_puts(html, "<tr>");
		for (unsigned k = 0; k < n; k++)
			put_cell(t, row, &slots[k], html);
		tsr_text_puts(html, "</tr>\n");
	}
	tsr_text_puts(html, "</tbody></table></div>\n");
}
