/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for programs: JSON, and comma-separated values. */

#include "render/table.h"

/* --- JSON ------------------------------------------------------------------------------------ */

static void put_member(const char *key, const struct tsr_field *f, struct tsr_text *json)
{
	switch (f->type) {
	case TSR_FIELD_STRING:
		tsr_json_put_string(json, key, f->string);
		break;
	case TSR_FIELD_U64:
		tsr_json_put_u64(json, key, f->u64);
		break;
	case TSR_FIELD_NUMBER:
		tsr_json_put_double(json, key, f->number);
		break;
	case TSR_FIELD_BOOL:
		tsr_json_put_bool(json, key, f->flag);
		break;
	case TSR_FIELD_LIST:
		tsr_json_put_doubles(json, key, f->list.number, f->list.n);
		break;
	case TSR_FIELD_SHAPE:
		tsr_json_put_u64s(json, key, f->shape.size, f->shape.rank);
		break;
	case TSR_FIELD_STRINGS:
		tsr_json_put_strings(json, key, f->strings.string, f->strings.n);
		break;
	}
}

static void put_row(const struct tsr_table *t, size_t row, struct tsr_text *json)
{
	const struct tsr_field *f = &t->fields[t->rows[row].first];
	const char *open = "";
	size_t len = 0; /* of the object's name in @open */

	for (size_t n = t->rows[row].n; n; n--, f++) {
		const char *key = t->columns[f->column].key;
		/* How long the name of the object is that a member "object.key" is in; 0: in none. */
		const char *point = strchr(key, '.');
		const size_t in = point ? (size_t)(point - key) : 0;
		char name[40];

		if (*key == '-')
			continue;
		if (len && (in != len || memcmp(key, open, len) != 0)) {
			tsr_json_close(json, '}');
			len = 0;
		}
		if (in && !len) {
			snprintf(name, sizeof(name), "%.*s", (int)in, key);
			tsr_json_open(json, name, '{');
			open = key;
			len = in;
		}
		put_member(key + (in ? in + 1 : 0), f, json);
	}
	if (len)
		tsr_json_close(json, '}');
}

void tsr_table_end_members(struct tsr_table t, struct tsr_text *json)
{
	json->failed = json->failed || t.failed;
	if (!json->failed && t.nrows)
		put_row(&t, 0, json);
	tsr_table_free(&t);
}

void tsr_table_put_json(const struct tsr_table *t, const char *key, struct tsr_text *json)
{
	json->failed = json->failed || t->failed;
	tsr_json_open(json, key, '[');
	for (size_t row = 0; row < t->nrows && !json->failed; row++) {
		tsr_json_open(json, NULL, '{');
		put_row(t, row, json);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

void tsr_table_end_json(struct tsr_table t, const char *key, struct tsr_text *json)
{
	tsr_table_put_json(&t, key, json);
	tsr_table_free(&t);
}

/* --- Comma-separated values ------------------------------------------------------------------ */

static void put_field(const struct tsr_field *f, struct tsr_text *csv)
{
	char number[40] = "";

	if (f->type == TSR_FIELD_STRING && f->string)
		tsr_csv_put_name(f->string, csv);
	else if (f->type == TSR_FIELD_U64)
		snprintf(number, sizeof(number), "%" PRIu64, f->u64);
	else if (f->type == TSR_FIELD_NUMBER && isinf(f->number))
		memcpy(number, "inf", 4);
	else if (f->type == TSR_FIELD_NUMBER && !isnan(f->number))
		tsr_json_format_double(number, sizeof(number), f->number);
	tsr_text_puts(csv, number);
}

void tsr_table_end_csv(struct tsr_table t, const char *columns, struct tsr_text *csv)
{
	struct tsr_table_slot slots[TSR_TABLE_SLOTS_MAX]; /* of the columns that the table has */
	const unsigned n = tsr_table_slots(&t, columns, slots);

	csv->failed = csv->failed || t.failed;
	for (size_t row = 0; row < t.nrows && !csv->failed; row++) {
		unsigned k = 0;

		for (const char *at = columns; at; at = *at ? at + 1 : NULL) {
			const size_t len = strcspn(at, ",");
			const char *key = k < n ? slots[k].column->key : "";
			const struct tsr_field *f = NULL;

			if (len && strlen(key) == len && memcmp(key, at, len) == 0)
				f = tsr_field_at(&t, row, slots[k++].index);
			if (f)
				put_field(f, csv);
			at += len;
			tsr_text_puts(csv, *at ? "," : "\n");
		}
	}
	tsr_table_free(&t);
}
