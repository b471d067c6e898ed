/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables: a command fills one, and text, JSON, CSV and HTML are made of it.  A column says once what its
 * figures are called and how they are shown; a view says which columns and rows a format shows.
 */
#ifndef TSR_REPORT_TABLE_H
#define TSR_REPORT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/format.h"
#include "text/text.h"

/* Columns leave out what they do not need. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct tsr_table;

/* How people see a column; programs get every digit. */
enum tsr_shown_as {
	TSR_PLAIN, /* words; integers as digits; other numbers with @digits significant ones */
	TSR_FIXED, /* @digits behind the point */
	TSR_ERROR, /* 1.2e-05, with @digits behind the point; an exact 0 as "0" */
	TSR_COUNT, /* 1,234,567 */
	TSR_BYTES, /* 1.23 MB */
	TSR_ULP, /* tsr_format_ulp() */
	TSR_SHARE, /* a percentage of tsr_share(): 100 and 0 only if exact */
	TSR_NAME, /* from a file: escaped, and shortened to what room there is */
};

struct tsr_column {
	const char *key; /* in JSON and CSV, and in views; "object.key" is a member of an object */
	const char *label,
		*unit; /* above the figures; no label: not for people.  Of lists: a word for each */
	enum tsr_shown_as as;
	unsigned char digits;
	unsigned char width; /* of text; 0: what its figures take */
	bool people; /* no member of JSON */
};

/* A cell: made by the functions below. */
struct tsr_field {
	enum {
		TSR_FIELD_NONE,
		TSR_FIELD_STRING,
		TSR_FIELD_U64,
		TSR_FIELD_NUMBER,
		TSR_FIELD_BOOL,
		TSR_FIELD_LIST,
		TSR_FIELD_ROWS
	} type;
	bool marked; /* stands out in its column */
	union {
		const char *string;
		uint64_t u64;
		double number;
		bool flag;
		const struct tsr_table *rows;
		struct {
			const double *number;
			size_t n;
		} list;
	};
};

/* No such figure: no member in JSON, an empty field in CSV, a dash for people. */
static inline struct tsr_field tsr_none(void)
{
	return (struct tsr_field){ TSR_FIELD_NONE };
}

/* Borrowed until the table is freed; tsr_table_keep() copies.  NULL: null in JSON, nothing elsewhere. */
static inline struct tsr_field tsr_str(const char *string)
{
	return (struct tsr_field){ TSR_FIELD_STRING, .string = string };
}

static inline struct tsr_field tsr_u64(uint64_t n)
{
	return (struct tsr_field){ TSR_FIELD_U64, .u64 = n };
}

static inline struct tsr_field tsr_num(double number)
{
	return (struct tsr_field){ TSR_FIELD_NUMBER, .number = number };
}

static inline struct tsr_field tsr_bool(bool flag)
{
	return (struct tsr_field){ TSR_FIELD_BOOL, .flag = flag };
}

/* @n numbers, borrowed. */
static inline struct tsr_field tsr_list(const double *number, size_t n)
{
	return (struct tsr_field){ TSR_FIELD_LIST, .list = { number, n } };
}

/* For JSON: the rows of another table, which lives as long. */
static inline struct tsr_field tsr_rows(const struct tsr_table *table)
{
	return (struct tsr_field){ TSR_FIELD_ROWS, .rows = table };
}

static inline struct tsr_field tsr_marked(struct tsr_field value, bool marked)
{
	value.marked = marked;
	return value;
}

/* What @part is of @whole, in percent; NaN of nothing. */
double tsr_share(uint64_t part, uint64_t whole);

/* Begins as TSR_TABLE(columns).  If memory runs out it has failed, and so has all that is made of it. */
struct tsr_table {
	const struct tsr_column *columns;
	unsigned ncolumns;
	size_t nrows, room;
	struct tsr_field *values; /* row by row */
	bool *aside; /* by row */
	struct tsr_arena *kept;
	bool failed;
};

#define TSR_TABLE(columns) ((struct tsr_table){ columns, sizeof(columns) / sizeof(*(columns)) })

/* Add a row with the first @n cells; the others are tsr_none(). */
void tsr_table_add(struct tsr_table *t, const struct tsr_field *values, size_t n);

#define TSR_ROW(table, ...) \
	tsr_table_add(table, (const struct tsr_field[]){ __VA_ARGS__ }, \
		      sizeof((const struct tsr_field[]){ __VA_ARGS__ }) / \
			      sizeof(struct tsr_field))

/* A copy of a text or of numbers that lives as long as the table. */
struct tsr_field tsr_table_keep(struct tsr_table *t, const char *text);
struct tsr_field tsr_table_keep_list(struct tsr_table *t, const double *numbers, size_t n);

/* The last row is not in short views. */
void tsr_table_put_aside(struct tsr_table *t);

void tsr_table_free(struct tsr_table *t);

/* The cell of a row in a column. */
static inline const struct tsr_field *tsr_table_field(const struct tsr_table *t, size_t row,
						      unsigned column)
{
	return &t->values[row * t->ncolumns + column];
}

/* What to show of a table. */
struct tsr_view {
	const char *columns; /* keys separated by commas; NULL: all with a label */
	bool brief; /* without the rows that were put aside */
	size_t most; /* rows; 0: all */
};

/* A place of a view: a column, or one number of a column of lists. */
struct tsr_slot {
	const struct tsr_column *column;
	unsigned index; /* of the column */
	unsigned i; /* in its lists */
	bool words; /* not numbers */
	char label[32];
};

#define TSR_SLOTS_MAX 64

/* The places of a view in their order; returns how many. */
unsigned tsr_view_slots(const struct tsr_table *t, const struct tsr_view *view,
			struct tsr_slot ret[TSR_SLOTS_MAX]);

/* The rows of a view: the next from @row on, SIZE_MAX behind the last.  @shown counts them from 0 on. */
size_t tsr_view_next(const struct tsr_table *t, const struct tsr_view *view, size_t row,
		     size_t *shown);

/* --- Renderers ------------------------------------------------------------------------------- */

/* What people see of a cell; of a list of its @i-th number.  @room: of a name. */
struct tsr_cell tsr_cell_of(const struct tsr_column *c, const struct tsr_field *v, size_t i,
			    unsigned room);

/* Lines of at most TSR_COLUMNS if a name can give way.  A line says how many rows a view leaves out. */
void tsr_table_put_text(const struct tsr_table *t, const struct tsr_view *view,
			struct tsr_text *out);

/* A member @key: an array of objects; the second: the members of the first row alone. */
void tsr_table_put_json(const struct tsr_table *t, const char *key, struct tsr_text *json);
void tsr_table_put_members(const struct tsr_table *t, struct tsr_text *json);

/* Rows with these columns, separated by commas; those that the table lacks are empty. */
void tsr_table_put_csv(const struct tsr_table *t, const char *columns, struct tsr_text *csv);

/* A table element that scrolls. */
void tsr_table_put_html(const struct tsr_table *t, const struct tsr_view *view,
			struct tsr_text *html);

#endif
