/* SPDX-License-Identifier: Apache-2.0 */
/* Tables are filled, and cells are shown to people. */
#include "report/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* --- Filling --------------------------------------------------------------------------------- */

double tsr_share(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : (double)NAN;
}

static bool grow(struct tsr_table *t)
{
	const size_t room = 2 * t->room + 16;
	struct tsr_field *values = realloc(t->values, room * t->ncolumns * sizeof(*values));
	bool *aside = values ? realloc(t->aside, room * sizeof(*aside)) : NULL;

	t->values = values ? values : t->values;
	t->aside = aside ? aside : t->aside;
	t->room = aside ? room : t->room;
	t->failed = !aside;
	return aside;
}

void tsr_table_add(struct tsr_table *t, const struct tsr_field *values, size_t n)
{
	struct tsr_field *row;

	if (t->failed || (t->nrows == t->room && !grow(t)))
		return;
	row = t->values + t->nrows * t->ncolumns;
	for (unsigned i = 0; i < t->ncolumns; i++)
		row[i] = i < n ? values[i] : tsr_none();
	t->aside[t->nrows++] = false;
}

static const void *keep(struct tsr_table *t, const void *bytes, size_t nbytes)
{
	char *copy;

	if (!t->kept)
		t->kept = tsr_arena_new(SIZE_MAX);
	copy = t->kept ? tsr_arena_alloc(t->kept, nbytes) : NULL;
	if (copy)
		memcpy(copy, bytes, nbytes);
	t->failed = t->failed || !copy;
	return copy;
}

struct tsr_field tsr_table_keep(struct tsr_table *t, const char *text)
{
	return tsr_str(text ? keep(t, text, strlen(text) + 1) : NULL);
}

struct tsr_field tsr_table_keep_list(struct tsr_table *t, const double *numbers, size_t n)
{
	const double *copy = keep(t, numbers, n * sizeof(*numbers));

	return tsr_list(copy, copy ? n : 0);
}

void tsr_table_put_aside(struct tsr_table *t)
{
	if (!t->failed)
		t->aside[t->nrows - 1] = true;
}

void tsr_table_free(struct tsr_table *t)
{
	free(t->values);
	free(t->aside);
	tsr_arena_free(t->kept);
	*t = (struct tsr_table){ t->columns, t->ncolumns };
}

/* --- Views ----------------------------------------------------------------------------------- */

/* The @i-th word of a label of lists; false: there are fewer. */
static bool put_word(const char *words, unsigned i, char out[32])
{
	for (; i && words; i--)
		words = strchr(words, ' ') ? strchr(words, ' ') + 1 : NULL;
	if (words)
		snprintf(out, 32, "%.*s", (int)strcspn(words, " "), words);
	return words;
}

static void add_places(const struct tsr_table *t, unsigned column, struct tsr_slot *ret,
		       unsigned *n)
{
	const struct tsr_column *c = &t->columns[column];
	const struct tsr_field *first = t->nrows ? tsr_table_field(t, 0, column) : NULL;
	const bool list = first && first->type == TSR_FIELD_LIST;
	struct tsr_slot place = { .column = c, .index = column };

	for (size_t row = 0; row < t->nrows && !place.words; row++)
		place.words = tsr_table_field(t, row, column)->type == TSR_FIELD_STRING;
	snprintf(place.label, sizeof(place.label), "%s", c->label);
	for (; *n < TSR_SLOTS_MAX && (!list || put_word(c->label, place.i, place.label));
	     place.i++) {
		ret[(*n)++] = place;
		if (!list)
			break;
	}
}

unsigned tsr_view_slots(const struct tsr_table *t, const struct tsr_view *view,
			struct tsr_slot ret[TSR_SLOTS_MAX])
{
	const char *keys = view->columns;
	unsigned n = 0;

	for (unsigned i = 0; !keys && i < t->ncolumns; i++) {
		if (t->columns[i].label)
			add_places(t, i, ret, &n);
	}
	for (size_t len; keys && *keys; keys += len + (keys[len] == ',')) {
		len = strcspn(keys, ",");
		for (unsigned i = 0; i < t->ncolumns; i++) {
			const char *key = t->columns[i].key;

			if (strlen(key) == len && memcmp(key, keys, len) == 0)
				add_places(t, i, ret, &n);
		}
	}
	return n;
}

size_t tsr_view_next(const struct tsr_table *t, const struct tsr_view *view, size_t row,
		     size_t *shown)
{
	while (row < t->nrows && view->brief && t->aside[row])
		row++;
	if (row >= t->nrows || (view->most && *shown >= view->most))
		return SIZE_MAX;
	++*shown;
	return row;
}

/* --- Cells ----------------------------------------------------------------------------------- */

static struct tsr_cell share_cell(double percent, int digits)
{
	const double least = pow(10, -digits);
	struct tsr_cell out;

	if (percent <= 0 || percent >= 100)
		snprintf(out.text, sizeof(out.text), "%s", percent > 0 ? "100" : "0");
	else
		snprintf(out.text, sizeof(out.text), "%.*f", digits,
			 fmin(fmax(percent, least), 100 - least));
	return out;
}

static struct tsr_cell number_cell(const struct tsr_column *c, double value)
{
	struct tsr_cell out = { "-" };
	const size_t room = sizeof(out.text);
	const int digits = c->digits < 20 ? c->digits : 20;

	if (isinf(value))
		snprintf(out.text, room, "inf");
	else if (isnan(value))
		return out;
	else if (c->as == TSR_BYTES)
		return tsr_format_bytes(value);
	else if (c->as == TSR_ULP)
		return tsr_format_ulp(value);
	else if (c->as == TSR_COUNT)
		return tsr_format_count((uint64_t)value);
	else if (c->as == TSR_SHARE)
		return share_cell(value, c->digits);
	else if (c->as == TSR_FIXED)
		snprintf(out.text, room, "%.*f", digits, value);
	else if (c->as == TSR_ERROR && (value > 0 || value < 0))
		snprintf(out.text, room, "%.*e", digits, value);
	else
		snprintf(out.text, room, "%.*g", digits ? digits : 6, value);
	return out;
}

struct tsr_cell tsr_cell_of(const struct tsr_column *c, const struct tsr_field *v, size_t i,
			    unsigned room)
{
	struct tsr_cell out = { "" };

	switch (v->type) {
	case TSR_FIELD_STRING:
		if (c->as == TSR_NAME && v->string)
			return tsr_format_name(v->string, room);
		snprintf(out.text, sizeof(out.text), "%s", v->string ? v->string : "");
		return out;
	case TSR_FIELD_U64:
		if (c->as == TSR_PLAIN)
			snprintf(out.text, sizeof(out.text), "%" PRIu64, v->u64);
		else
			return number_cell(c, (double)v->u64);
		return out;
	case TSR_FIELD_NUMBER:
		return number_cell(c, v->number);
	case TSR_FIELD_LIST:
		return number_cell(c, i < v->list.n ? v->list.number[i] : (double)NAN);
	case TSR_FIELD_BOOL:
		snprintf(out.text, sizeof(out.text), "%s", v->flag ? "yes" : "no");
		return out;
	default:
		snprintf(out.text, sizeof(out.text), "-");
		return out;
	}
}
