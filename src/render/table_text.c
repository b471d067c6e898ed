/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as text. */

#include "render/table.h"

/* Names are at least so wide, even if lines become too long. */
#define NAME_LEAST 10

struct layout {
	struct tsr_table_slot slot[TSR_TABLE_SLOTS_MAX];
	unsigned width[TSR_TABLE_SLOTS_MAX];
	unsigned n;
	struct tsr_table_slot remark[TSR_TABLE_SLOTS_MAX];
	unsigned nremarks;
	unsigned to;
	size_t most;
};

static unsigned larger(unsigned a, size_t b)
{
	return b > a ? (unsigned)b : a;
}

/* A mark takes a place behind the figure. */
static struct tsr_cell cell_of(const struct tsr_table *t, size_t row,
			       const struct tsr_table_slot *s, unsigned room)
{
	const struct tsr_field *f = tsr_field_at(t, row, s->index);
	struct tsr_cell cell = tsr_cell_at(t, row, s, room, 0);
	const size_t len = strlen(cell.text);

	if (s->column->marks && len + 2 < sizeof(cell.text))
		memcpy(cell.text + len, f && f->marked ? "*" : " ", 2);
	return cell;
}

static void measure(const struct tsr_table *t, struct layout *l)
{
	unsigned total = 0;

	for (unsigned k = 0; k < l->n; k++) {
		const struct tsr_table_slot *s = &l->slot[k];
		size_t shown = 0;

		l->width[k] = larger(s->column->width, strlen(s->label) + s->column->marks);
		l->width[k] = larger(l->width[k], strlen(s->column->unit) + s->column->marks);
		for (size_t row = 0;
		     (row = tsr_table_next(t, l->to, l->most, row, &shown)) != SIZE_MAX; row++)
			l->width[k] = larger(l->width[k],
					     strlen(cell_of(t, row, s, TSR_COLUMNS).text));
		total += l->width[k] + 1;
	}
	for (unsigned k = 0; k < l->n && total - 1 > TSR_COLUMNS; k++) {
		const unsigned much = total - 1 - TSR_COLUMNS, was = l->width[k];

		if (l->slot[k].column->as != 'n' && l->slot[k].column->as != 'N')
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
		tsr_text_printf(out, l->slot[k].column->words ? "%s%-*s" : "%s%*s", k ? " " : "",
				(int)l->width[k], cells[k].text);
	while (!out->failed && out->nbytes > start && out->bytes[out->nbytes - 1] == ' ')
		out->nbytes--;
	tsr_text_puts(out, "\n");
}

static void put_row(const struct tsr_table *t, size_t row, const struct layout *l,
		    struct tsr_text *out)
{
	struct tsr_cell cells[TSR_TABLE_SLOTS_MAX];

	for (unsigned k = 0; k < l->n; k++)
		cells[k] = cell_of(t, row, &l->slot[k], l->width[k]);
	if (l->slot[0].column->as == 'N') {
		const struct tsr_cell whole = cell_of(t, row, &l->slot[0], TSR_COLUMNS - 1);

		if (strlen(whole.text) > l->width[0]) {
			tsr_text_printf(out, "%s\n", whole.text);
			*cells[0].text = '\0';
		}
	}
	put_line(l, cells, out);
	for (unsigned k = 0; k < l->nremarks; k++) {
		const struct tsr_field *f = tsr_field_at(t, row, l->remark[k].index);
		const unsigned indent = l->remark[k].column->width;

		if (!f || !f->string)
			continue;
		tsr_text_printf(out, "%*s", (int)indent, "");
		tsr_put_wrapped(out, f->string, indent, indent);
	}
}

void tsr_table_put_text(const struct tsr_table *t, const char *columns, bool verbose,
			struct tsr_text *out)
{
	struct layout l = { .to = verbose ? TSR_TO_VERBOSE : TSR_TO_TEXT,
			    .most = verbose ? 0 : t->most_text };
	struct tsr_table_slot all[TSR_TABLE_SLOTS_MAX];
	struct tsr_cell labels[TSR_TABLE_SLOTS_MAX], units[TSR_TABLE_SLOTS_MAX];
	size_t shown = 0;
	bool any = false;
	unsigned n;

	out->failed = out->failed || t->failed;
	if (out->failed)
		return;
	/* Which columns are shown, and which are remarks. */
	n = tsr_table_slots(t, columns, all);
	for (unsigned k = 0; k < n; k++) {
		if (all[k].column->as == '|')
			l.remark[l.nremarks++] = all[k];
		else
			l.slot[l.n++] = all[k];
	}
	measure(t, &l);
	for (unsigned k = 0; k < l.n; k++) {
		const struct tsr_column *c = l.slot[k].column;
		const char *blank = c->marks && !c->words ? " " : "";

		snprintf(labels[k].text, sizeof(labels[k].text), "%s%s", l.slot[k].label, blank);
		snprintf(units[k].text, sizeof(units[k].text), "%s%s", c->unit, blank);
		any = any || *c->unit;
	}
	if (l.n && *l.slot[0].label) {
		put_line(&l, labels, out);
		if (any)
			put_line(&l, units, out);
	}
	for (size_t row = 0; (row = tsr_table_next(t, l.to, l.most, row, &shown)) != SIZE_MAX;
	     row++)
		put_row(t, row, &l, out);
	if (l.most && shown == l.most && shown < t->nrows)
		tsr_text_printf(out, "and %s more, which -v shows\n",
				tsr_format_count(t->nrows - shown).text);
}
