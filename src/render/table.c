/* SPDX-License-Identifier: Apache-2.0 */
/* Tables are filled, and cells are shown to people. */
#include "render/table.h"

#include "base/arena.h"
#include "base/grow.h"
#include "base/order.h"

/* --- Filling --------------------------------------------------------------------------------- */

/* "worst\nNMSE:11.1e" */
static void parse_shown(const char *shown, struct tsr_column *c)
{
	const char *colon = strrchr(shown, ':'), *end = colon ? colon : shown + strlen(shown);
	const char *line = memchr(shown, '\n', (size_t)(end - shown)),
		   *spec = colon ? colon + 1 : end;
	char *rest;

	snprintf(c->label, sizeof(c->label), "%.*s", (int)((line ? line : end) - shown), shown);
	if (line)
		snprintf(c->unit, sizeof(c->unit), "%.*s", (int)(end - line - 1), line + 1);
	c->width = (unsigned)strtoul(spec, &rest, 10);
	c->digits = *rest == '.' ? (unsigned)strtoul(rest + 1, &rest, 10) : 0;
	c->as = *rest;
}

/* Rows have the same columns in the same order mostly: the search begins at @guess. */
static unsigned column_of(struct tsr_table *t, const char *key, const char *shown, unsigned guess)
{
	struct tsr_column *c;

	for (unsigned k = 0; k < t->ncolumns; k++) {
		const unsigned i = (guess + k) % t->ncolumns;

		if (t->columns[i].key == key || strcmp(t->columns[i].key, key) == 0)
			return i;
	}
	if (!t->columns)
		t->columns = calloc(TSR_COLUMNS_MAX, sizeof(*t->columns));
	t->failed = t->failed || !t->columns || t->ncolumns == TSR_COLUMNS_MAX;
	if (t->failed)
		return 0;
	c = &t->columns[t->ncolumns];
	c->key = key;
	if (shown)
		parse_shown(shown, c);
	return t->ncolumns++;
}

/* The field is valid until the next one; a spare one if the table has failed. */
static struct tsr_field *add(struct tsr_table *t, const char *key, const char *shown,
			     enum tsr_field_type type)
{
	static _Thread_local struct tsr_field spare;
	const size_t n = t->nfields;
	unsigned column;

	t->failed = t->failed || !tsr_grow(&t->fields, n, sizeof(*t->fields));
	if (t->failed)
		return &spare;
	column = column_of(t, key, shown,
			   n > t->rows[t->nrows - 1].first ? t->fields[n - 1].column + 1 : 0);
	if (t->failed)
		return &spare;
	t->fields[n] = (struct tsr_field){ .column = column, .type = type };
	t->nfields++;
	t->rows[t->nrows - 1].n++;
	return &t->fields[n];
}

void tsr_row(struct tsr_table *t)
{
	t->failed = t->failed || !tsr_grow(&t->rows, t->nrows, sizeof(*t->rows));
	if (!t->failed)
		t->rows[t->nrows++] = (struct tsr_row){ .first = t->nfields };
}

void tsr_cell_str(struct tsr_table *t, const char *key, const char *shown, const char *value)
{
	struct tsr_field *f = add(t, key, shown, TSR_FIELD_STRING);

	f->string = value;
	if (!t->failed && value && *value)
		t->columns[f->column].words = true;
}

void tsr_cell_u64(struct tsr_table *t, const char *key, const char *shown, uint64_t value)
{
	add(t, key, shown, TSR_FIELD_U64)->u64 = value;
}

void tsr_cell_num(struct tsr_table *t, const char *key, const char *shown, double value)
{
	add(t, key, shown, TSR_FIELD_NUMBER)->number = value;
}

void tsr_cell_bool(struct tsr_table *t, const char *key, const char *shown, bool value)
{
	add(t, key, shown, TSR_FIELD_BOOL)->flag = value;
}

static void *keep(struct tsr_table *t, const void *bytes, size_t nbytes)
{
	void *copy;

	if (!t->kept)
		t->kept = tsr_arena_new(SIZE_MAX);
	copy = t->kept ? tsr_arena_alloc(t->kept, nbytes) : NULL;
	if (copy)
		memcpy(copy, bytes, nbytes);
	t->failed = t->failed || !copy;
	return copy;
}

void tsr_cell_list(struct tsr_table *t, const char *key, const char *shown, const double *values,
		   size_t n)
{
	const double *copy = keep(t, values, n * sizeof(*values));
	struct tsr_field *f = add(t, key, shown, TSR_FIELD_LIST);

	f->list.number = copy;
	f->list.n = copy ? n : 0;
	if (!t->failed && n > t->columns[f->column].listed)
		t->columns[f->column].listed = (unsigned)n;
}

void tsr_cell_shape(struct tsr_table *t, const char *key, const char *shown, unsigned rank,
		    const uint64_t *shape)
{
	struct tsr_field *f = add(t, key, shown, TSR_FIELD_SHAPE);

	f->shape.size = shape;
	f->shape.rank = rank;
	if (!t->failed)
		t->columns[f->column].words = true;
}

void tsr_cell_strings(struct tsr_table *t, const char *key, const char *const *values, size_t n)
{
	const char *const *copy = keep(t, values, n * sizeof(*values));
	struct tsr_field *f = add(t, key, NULL, TSR_FIELD_STRINGS);

	f->strings.string = copy;
	f->strings.n = copy ? n : 0;
}

const char *tsr_keep(struct tsr_table *t, const char *text)
{
	const char *copy = keep(t, text, strlen(text) + 1);

	return copy ? copy : "";
}

const char *tsr_keepf(struct tsr_table *t, const char *fmt, ...)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };
	va_list ap;

	va_start(ap, fmt);
	tsr_text_vprintf(&text, fmt, ap);
	va_end(ap);
	t->failed = t->failed || text.failed;
	return tsr_keep(t, text.bytes ? text.bytes : "");
}

void tsr_cell_exponents(struct tsr_table *t, const char *shown, unsigned e, unsigned next)
{
	const bool one = next == e + 1;
	const int first = (int)e - 127, last = (int)next - 128;

	TSR_CELL(t, "-fields", shown,
		 one ? tsr_keepf(t, "%u", e) : tsr_keepf(t, "%u to %u", e, next - 1));
	TSR_CELL(t, "-power", "2^",
		 e == 0	    ? "subnorm."
		 : e == 255 ? "Inf, NaN"
		 : one	    ? tsr_keepf(t, "%d", first)
			    : tsr_keepf(t, "%d..%d", first, last));
}

void tsr_cell_coding(struct tsr_table *t, const struct tsr_coding *coding)
{
	const struct tsr_codec *codec = coding->codec;

	TSR_CELL(t, "codec", NULL, codec ? codec->name : "raw");
	if (codec && codec->grouped) {
		TSR_CELL(t, "scale", NULL, tsr_scale_name(coding->scale));
		TSR_CELL(t, "group", NULL, coding->group);
	}
	if (codec && codec->stochastic)
		TSR_CELL(t, "seed", NULL, coding->seed);
}

void tsr_mark(struct tsr_table *t, bool marked)
{
	if (t->failed || !marked)
		return;
	t->fields[t->nfields - 1].marked = true;
	t->columns[t->fields[t->nfields - 1].column].marks = true;
}

void tsr_put_aside(struct tsr_table *t, unsigned aside)
{
	if (!t->failed)
		t->rows[t->nrows - 1].aside = aside;
}

void tsr_rank(struct tsr_table *t, double value)
{
	if (!t->failed)
		t->rows[t->nrows - 1].rank = value;
}

TSR_COMPARE_BY(compare_rows, struct tsr_row, TSR_ORDER(b->rank, a->rank),
	       TSR_ORDER(a->first, b->first))

void tsr_table_sort(struct tsr_table *t)
{
	if (t->nrows)
		qsort(t->rows, t->nrows, sizeof(*t->rows), compare_rows);
}

void tsr_table_free(struct tsr_table *t)
{
	free(t->columns);
	free(t->fields);
	free(t->rows);
	tsr_arena_free(t->kept);
	*t = (struct tsr_table){ 0 };
}

double tsr_share(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : (double)NAN;
}

/* --- Views ----------------------------------------------------------------------------------- */

/* The @i-th word of a label of lists. */
static void put_word(const char *words, unsigned i, char out[96])
{
	for (; i && *words; i--)
		words += strcspn(words, " ") + (words[strcspn(words, " ")] == ' ');
	snprintf(out, 96, "%.*s", (int)strcspn(words, " "), words);
}

static void add_slots(const struct tsr_table *t, unsigned column, struct tsr_table_slot *ret,
		      unsigned *n)
{
	const struct tsr_column *c = &t->columns[column];

	for (unsigned i = 0; i < (c->listed ? c->listed : 1) && *n < TSR_TABLE_SLOTS_MAX; i++) {
		struct tsr_table_slot *slot = &ret[(*n)++];

		*slot = (struct tsr_table_slot){ .column = c, .index = column, .i = i };
		if (c->listed)
			put_word(c->label, i, slot->label);
		else
			memcpy(slot->label, c->label, sizeof(slot->label));
	}
}

unsigned tsr_table_slots(const struct tsr_table *t, const char *columns,
			 struct tsr_table_slot ret[TSR_TABLE_SLOTS_MAX])
{
	unsigned n = 0;

	for (unsigned i = 0; !*columns && i < t->ncolumns; i++) {
		if (*t->columns[i].label)
			add_slots(t, i, ret, &n);
	}
	for (size_t len; *columns; columns += len + (columns[len] == ',')) {
		len = strcspn(columns, ",");
		for (unsigned i = 0; i < t->ncolumns; i++) {
			const char *key = t->columns[i].key;

			if (strlen(key) == len && memcmp(key, columns, len) == 0)
				add_slots(t, i, ret, &n);
		}
	}
	return n;
}

size_t tsr_table_next(const struct tsr_table *t, unsigned to, size_t most, size_t row,
		      size_t *shown)
{
	while (row < t->nrows && (t->rows[row].aside & to))
		row++;
	if (row >= t->nrows || (most && *shown >= most))
		return SIZE_MAX;
	++*shown;
	return row;
}

/* --- Cells ----------------------------------------------------------------------------------- */

const struct tsr_field *tsr_field_at(const struct tsr_table *t, size_t row, unsigned column)
{
	const struct tsr_field *f = &t->fields[t->rows[row].first];

	for (size_t n = t->rows[row].n; n; n--, f++) {
		if (f->column == column)
			return f;
	}
	return NULL;
}

static struct tsr_cell number_cell(const struct tsr_column *c, double value, unsigned more_digits)
{
	const int digits = (int)(c->digits + (c->as == 'e' ? more_digits : 0)) % 20;
	const double least = pow(10, -digits);
	struct tsr_cell out = { "-" };
	const size_t room = sizeof(out.text);

	if (isinf(value))
		snprintf(out.text, room, "inf");
	else if (isnan(value))
		return out;
	else if (c->as == 'B')
		return tsr_format_bytes(value);
	else if (c->as == 'U')
		return tsr_format_ulp(value);
	else if (c->as == ',')
		return tsr_format_count((uint64_t)value);
	else if (c->as == '%')
		/* 100 and 0 only if exact. */
		snprintf(out.text, room, "%.*f", value > 0 && value < 100 ? digits : 0,
			 value <= 0	? 0
			 : value >= 100 ? 100
					: fmin(fmax(value, least), 100 - least));
	else if (c->as == 'f')
		snprintf(out.text, room, "%.*f", digits, value);
	else if (c->as == 'e' && (value > 0 || value < 0))
		snprintf(out.text, room, "%.*e", digits, value);
	else
		snprintf(out.text, room, "%.*g", digits ? digits : 6, value);
	return out;
}

struct tsr_cell tsr_cell_at(const struct tsr_table *t, size_t row,
			    const struct tsr_table_slot *slot, unsigned room, unsigned more_digits)
{
	const struct tsr_field *f = tsr_field_at(t, row, slot->index);
	const struct tsr_column *c = slot->column;
	struct tsr_cell out = { "-" };

	if (!f)
		return out;
	if (f->type == TSR_FIELD_STRING && (c->as == 'n' || c->as == 'N') && f->string)
		return tsr_format_name(f->string, room);
	if (f->type == TSR_FIELD_SHAPE)
		return tsr_format_shape(f->shape.rank, f->shape.size);
	if (f->type == TSR_FIELD_STRING)
		snprintf(out.text, sizeof(out.text), "%s", f->string ? f->string : "");
	else if (f->type == TSR_FIELD_BOOL)
		snprintf(out.text, sizeof(out.text), "%s", f->flag ? "yes" : "no");
	else if (f->type == TSR_FIELD_U64 && !c->as)
		snprintf(out.text, sizeof(out.text), "%" PRIu64, f->u64);
	else if (f->type == TSR_FIELD_LIST && slot->i < f->list.n)
		return number_cell(c, f->list.number[slot->i], more_digits);
	else if (f->type == TSR_FIELD_U64 || f->type == TSR_FIELD_NUMBER)
		return number_cell(c, f->type == TSR_FIELD_U64 ? (double)f->u64 : f->number,
				   more_digits);
	return out;
}
