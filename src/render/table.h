/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables: a command fills one; text, JSON, CSV and HTML are made of it.  A cell brings its column with it:
 *
 *	tsr_row(&t);
 *	TSR_CELL(&t, "codec", "codec", codec->name);
 *	TSR_CELL(&t, "nmse", "worst\nNMSE:.1e", nmse);
 *	TSR_CELL(&t, "groups", NULL, ngroups);
 *
 * The key is the name in JSON and CSV, and what views choose by; "object.key" is a member of an object, and a
 * key that begins with "-" is not in JSON.  The next string is what people see above the figures, with a unit
 * below it, and behind a colon how: a least width, then one of
 *	.3f .1e .4g	a number, as printf(); .1e of 0 is "0"
 *	,		1,234,567
 *	B U		1.23 MB; tsr_format_ulp()
 *	.4%		a percentage of tsr_share(): 100 and 0 only if exact
 *	n		a name from a file: escaped, and shortened to what room there is
 *	N		the same, but one without room has a line of its own before the row
 *	|		a remark: lines of its own below the row, indented by the width
 * NULL: it is not for people.  Strings are borrowed until the table is freed; tsr_keep() copies one.
 */
#ifndef TSR_RENDER_TABLE_H
#define TSR_RENDER_TABLE_H

#include "render/format.h"

struct tsr_column {
	const char *key;
	char label[96], unit[32]; /* no label: not for people.  Of lists: a word for each number */
	char as; /* one of "feg,BU%nN|", or 0 for words and digits */
	unsigned digits, width;
	bool words; /* not numbers */
	bool marks; /* some cells stand out */
	unsigned listed; /* the most numbers of a list; 0: they are no lists */
};

enum tsr_field_type {
	TSR_FIELD_STRING,
	TSR_FIELD_U64,
	TSR_FIELD_NUMBER,
	TSR_FIELD_BOOL,
	TSR_FIELD_LIST,
	TSR_FIELD_SHAPE,
	TSR_FIELD_STRINGS
};

struct tsr_field {
	unsigned column;
	enum tsr_field_type type;
	bool marked;
	union {
		const char *string;
		uint64_t u64;
		double number;
		bool flag;
		struct {
			const double *number;
			size_t n;
		} list;
		struct {
			const uint64_t *size;
			unsigned rank;
		} shape;
		struct {
			const char *const *string;
			size_t n;
		} strings;
	};
};

#define TSR_COLUMNS_MAX 64

/* Begins as all zeros.  If memory runs out it has failed, and so has all that is made of it. */
struct tsr_table {
	struct tsr_column *columns;
	unsigned ncolumns;
	struct tsr_field *fields; /* of all rows, in the order in which they were put */
	size_t nfields;
	struct tsr_row {
		size_t first, n; /* its fields */
		double rank;
		unsigned aside; /* enum tsr_to: left out of these */
	} * rows;
	size_t nrows;
	struct tsr_arena *kept;
	bool failed;
	size_t most_text,
		most_page; /* the first rows that these show, but a verbose text; 0: all */
};

void tsr_table_free(struct tsr_table *t);

/* Begin the next row. */
void tsr_row(struct tsr_table *t);

/* A string that is NULL is null in JSON.  Lists are copied. */
void tsr_cell_str(struct tsr_table *t, const char *key, const char *shown, const char *value);
void tsr_cell_u64(struct tsr_table *t, const char *key, const char *shown, uint64_t value);
void tsr_cell_num(struct tsr_table *t, const char *key, const char *shown, double value);
void tsr_cell_bool(struct tsr_table *t, const char *key, const char *shown, bool value);
void tsr_cell_list(struct tsr_table *t, const char *key, const char *shown, const double *values,
		   size_t n);
void tsr_cell_shape(struct tsr_table *t, const char *key, const char *shown, unsigned rank,
		    const uint64_t *shape); /* borrowed */
void tsr_cell_strings(struct tsr_table *t, const char *key, const char *const *values, size_t n);

#define TSR_CELL(t, key, shown, value) \
	_Generic((value), const char *: tsr_cell_str, char *: tsr_cell_str, \
		 double: tsr_cell_num, float: tsr_cell_num, bool: tsr_cell_bool, \
		 default: tsr_cell_u64)(t, key, shown, value)

/* How a tensor is stored: codec, scale, group, seed, as far as its codec has them. */
void tsr_cell_coding(struct tsr_table *t, const struct tsr_coding *coding);

/* The last cell stands out in its column; the last row is left out of text, page (enum tsr_to). */
void tsr_mark(struct tsr_table *t, bool marked);
void tsr_put_aside(struct tsr_table *t, unsigned aside);

/* Put rows with larger values first, those with equal ones in their order; the value is of the last row. */
void tsr_rank(struct tsr_table *t, double value);
void tsr_table_sort(struct tsr_table *t);

/* A copy that lives as long as the table; and a text that is composed for it. */
const char *tsr_keep(struct tsr_table *t, const char *text);
const char *tsr_keepf(struct tsr_table *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The cells -fields and -power of the exponents of FP32 from @e to the one before @next. */
void tsr_cell_exponents(struct tsr_table *t, const char *shown, unsigned e, unsigned next);

/* What @part is of @whole, in percent; NaN of nothing. */
double tsr_share(uint64_t part, uint64_t whole);

/* Which of text and page something goes to; of what is put aside also a verbose text. */
enum tsr_to { TSR_TO_TEXT = 1, TSR_TO_PAGE = 2, TSR_TO_BOTH = 3, TSR_TO_VERBOSE = 4 };

/* --- Renderers ------------------------------------------------------------------------------- */

/*
 * What people see: @columns are the keys of those that are shown, separated by commas; "": all with a
 * label.  Text has no head if the first of these has no label, has lines of at most TSR_COLUMNS if a name
 * can give way, and says how many rows are left out; HTML is a table element that scrolls, in which there
 * is room for one digit more of an error.
 */
void tsr_table_put_text(const struct tsr_table *t, const char *columns, bool verbose,
			struct tsr_text *out);
void tsr_table_put_html(const struct tsr_table *t, const char *columns, struct tsr_text *html);

/* A member @key: an array of objects. */
void tsr_table_put_json(const struct tsr_table *t, const char *key, struct tsr_text *json);

/*
 * The same of a table that is freed; the members of its first row alone; and rows with these columns,
 * separated by commas, of which those that the table lacks are empty.
 */
void tsr_table_end_json(struct tsr_table t, const char *key, struct tsr_text *json);
void tsr_table_end_members(struct tsr_table t, struct tsr_text *json);
void tsr_table_end_csv(struct tsr_table t, const char *columns, struct tsr_text *csv);

/* --- For renderers --------------------------------------------------------------------------- */

/* A place of a view: a column, or one number of a column of lists. */
struct tsr_table_slot {
	const struct tsr_column *column;
	unsigned index; /* of the column */
	unsigned i; /* in its lists */
	char label[96];
};

#define TSR_TABLE_SLOTS_MAX 64

/* The places of these columns in their order; returns how many. */
unsigned tsr_table_slots(const struct tsr_table *t, const char *columns,
			 struct tsr_table_slot ret[TSR_TABLE_SLOTS_MAX]);

/* The next row to show from @row on, SIZE_MAX behind the last.  *@shown counts them, up to @most. */
size_t tsr_table_next(const struct tsr_table *t, unsigned to, size_t most, size_t row,
		      size_t *shown);

/* The one in a column, or NULL. */
const struct tsr_field *tsr_field_at(const struct tsr_table *t, size_t row, unsigned column);

/* What people see there; "-" of nothing.  @room: of a name. */
struct tsr_cell tsr_cell_at(const struct tsr_table *t, size_t row,
			    const struct tsr_table_slot *slot, unsigned room, unsigned more_digits);

#endif
