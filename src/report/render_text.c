/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as text. */
#include <stdio.h>
#include <string.h>

#include "report/table.h"

/* Names are at least so wide, even if lines become too long. */
#define NAME_LEAST 10

struct layout {
	struct tsr_slot place[TSR_SLOTS_MAX];
	unsigned width[TSR_SLOTS_MAX];
	unsigned n;
};

static unsigned larger(unsigned a, size_t b)
{
	return b > a ? (unsigned)b : a;
}

/* A mark takes a column behind the figure. */
static bool has_marks(const struct tsr_table *t, const struct tsr_slot *p)
{
	for (size_t row = 0; row < t->nrows; row++) {
		if (tsr_table_field(t, row, p->index)->marked)
			return true;
	}
	return false;
}

static struct tsr_cell cell_of(const struct tsr_table *t, size_t row, const struct tsr_slot *p,
			       unsigned room, bool marks)
{
	const struct tsr_field *v = tsr_table_field(t, row, p->index);
	struct tsr_cell cell = tsr_cell_of(p->column, v, p->i, room);
	const size_t len = strlen(cell.text);

	if (marks && len + 2 < sizeof(cell.text))
		memcpy(cell.text + len, v->marked ? "*" : " ", 2);
	return cell;
}

static void measure(const struct tsr_table *t, const struct tsr_view *view, struct layout *l)
{
	unsigned total = 0;

	for (unsigned k = 0; k < l->n; k++) {
		const struct tsr_slot *p = &l->place[k];
		const bool marks = has_marks(t, p);
		size_t shown = 0;

		l->width[k] = larger(p->column->width, strlen(p->label) + marks);
		if (p->column->unit)
			l->width[k] = larger(l->width[k], strlen(p->column->unit) + marks);
		for (size_t row = 0; (row = tsr_view_next(t, view, row, &shown)) != SIZE_MAX; row++)
			l->width[k] = larger(l->width[k],
					     strlen(cell_of(t, row, p, TSR_COLUMNS, marks).text));
		total += l->width[k] + 1;
	}
	for (unsigned k = 0; k < l->n && total - 1 > TSR_COLUMNS; k++) {
		const unsigned much = total - 1 - TSR_COLUMNS, was = l->width[k];

		if (l->place[k].column->as != TSR_NAME)
			continue;
		l->width[k] = was > much + NAME_LEAST ? was - much : NAME_LEAST;
		total -= was > l->width[k] ? was - l->width[k] : 0;
	}
}

/* Words are on the left of their column, figures on the right; lines do not end in blanks. */
static void put_line(const struct layout *l, const struct tsr_cell *cells, struct tsr_text *out)
{
	const size_t start = out->nbytes;

	for (unsigned k = 0; k < l->n; k++)
		tsr_text_printf(out, l->place[k].words ? "%s%-*s" : "%s%*s", k ? " " : "",
				(int)l->width[k], cells[k].text);
	while (!out->failed && out->nbytes > start && out->bytes[out->nbytes - 1] == ' ')
		out->nbytes--;
	tsr_text_puts(out, "\n");
}

static void put_head(const struct tsr_table *t, const struct layout *l, struct tsr_text *out)
{
	struct tsr_cell labels[TSR_SLOTS_MAX], units[TSR_SLOTS_MAX];
	bool any = false;

	for (unsigned k = 0; k < l->n; k++) {
		const struct tsr_slot *p = &l->place[k];
		const char *blank = !p->words && has_marks(t, p) ? " " : "";

		snprintf(labels[k].text, sizeof(labels[k].text), "%s%s", p->label, blank);
		snprintf(units[k].text, sizeof(units[k].text), "%s%s",
			 p->column->unit ? p->column->unit : "", blank);
		any = any || p->column->unit;
	}
	put_line(l, labels, out);
	if (any)
		put_line(l, units, out);
}

void tsr_table_put_text(const struct tsr_table *t, const struct tsr_view *view,
			struct tsr_text *out)
{
	struct tsr_cell cells[TSR_SLOTS_MAX];
	struct layout l;
	size_t shown = 0;

	out->failed = out->failed || t->failed;
	if (out->failed)
		return;
	l.n = tsr_view_slots(t, view, l.place);
	measure(t, view, &l);
	put_head(t, &l, out);
	for (size_t row = 0; (row = tsr_view_next(t, view, row, &shown)) != SIZE_MAX; row++) {
		for (unsigned k = 0; k < l.n; k++)
			cells[k] = cell_of(t, row, &l.place[k], l.width[k],
					   has_marks(t, &l.place[k]));
		put_line(&l, cells, out);
	}
	if (shown < t->nrows)
		tsr_text_printf(out, "and %s more, which -v shows\n",
				tsr_format_count(t->nrows - shown).text);
}
