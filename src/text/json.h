/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, read strictly and written in one way. */
#ifndef TSR_TEXT_JSON_H
#define TSR_TEXT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scope.h"
#include "io/file.h"
#include "text/text.h"
#include "tersor/status.h"

/* --- Reading ------------------------------------------------------------------------------- */

/* The largest integer that a file may hold: the cap of the safetensors schema, exact in binary64. */
#define TSR_JSON_INT_MAX ((UINT64_C(1) << 48) - 1)

/* What to accept.  The text must be strict JSON in UTF-8 without NUL or duplicate keys anyway. */
struct tsr_json_rules {
	const char *file; /* the start of every message */
	const char *part; /* then what the byte offsets count in: "header" */
	const char *member; /* what a member of the root is, "tensor": named in messages; or NULL */
	unsigned max_depth;
	size_t max_values;
	bool integers_only; /* numbers are 0 to TSR_JSON_INT_MAX, without fraction or exponent */
};

/* A parsed value; lives until the root it came from is freed. */
struct tsr_json;

enum tsr_json_type {
	TSR_JSON_NULL,
	TSR_JSON_BOOL,
	TSR_JSON_NUMBER,
	TSR_JSON_STRING,
	TSR_JSON_ARRAY,
	TSR_JSON_OBJECT,
};

/**
 * tsr_json_parse() - Check a text against the rules, then parse it
 * @text:   @nbytes bytes; need not be NUL-terminated
 * @ret:    out: the root, to be freed with tsr_json_free(); untouched on failure
 *
 * Return: TSR_OK, TSR_E_FORMAT with the byte offset of the fault, TSR_E_LIMIT or TSR_E_NOMEM.
 */
enum tsr_status tsr_json_parse(const char *text, size_t nbytes, const struct tsr_json_rules *rules,
			       struct tsr_json **ret, struct tsr_err *err);
void tsr_json_free(struct tsr_json *root);
TSR_OWNED_BY(tsr_json_free, struct tsr_json)

/* The same for a whole file; also TSR_E_LIMIT above @nbytes_max bytes, and TSR_E_IO. */
enum tsr_status tsr_json_read_file(const struct tsr_file *f, uint64_t nbytes_max,
				   const struct tsr_json_rules *rules, struct tsr_json **ret,
				   struct tsr_err *err);

/* Only check whether a text would be parsed.  Writers use it to test that readers accept it. */
enum tsr_status tsr_json_check(const char *text, size_t nbytes, const struct tsr_json_rules *rules,
			       struct tsr_err *err);

/**
 * tsr_json_take_member() - Parse the next member of an object that is the whole text
 * @text: @nbytes bytes that passed tsr_json_check(), which is an object
 * @at:   where to go on: 0 at first
 * @ret:  out: the member's value with its key, to be freed with tsr_json_free(); NULL behind the
 *        last and on failure
 *
 * This takes memory for one member at a time; the tree of a whole object is many times its text.
 *
 * Return: TSR_OK or TSR_E_NOMEM.
 */
enum tsr_status tsr_json_take_member(const char *text, size_t nbytes, size_t *at,
				     const struct tsr_json_rules *rules, struct tsr_json **ret,
				     struct tsr_err *err);

/**
 * tsr_json_find_member() - Where an object has a member
 * @text: @nbytes bytes that passed tsr_json_check(), which are an object
 * @first_ret, @end_ret: out: the bytes of its value, with space behind it; equal if it has no such member
 *
 * Return: TSR_OK or TSR_E_NOMEM.
 */
enum tsr_status tsr_json_find_member(const char *text, size_t nbytes, const char *key,
				     const struct tsr_json_rules *rules, size_t *first_ret,
				     size_t *end_ret, struct tsr_err *err);

/* How many elements an array, or members an object, has that is the whole text. */
size_t tsr_json_count_elements(const char *text, size_t nbytes);

/* TSR_JSON_NULL of NULL, too. */
enum tsr_json_type tsr_json_type(const struct tsr_json *v);

/* Whether it is an array, which NULL is not; how many children an array or object has, 0 of others. */
bool tsr_json_is_list(const struct tsr_json *v);
size_t tsr_json_size(const struct tsr_json *v);

/* Children of an array or object in the order of the text; NULL at the end. */
const struct tsr_json *tsr_json_first(const struct tsr_json *v);
const struct tsr_json *tsr_json_next(const struct tsr_json *child);

/* The key of a child of an object. */
const char *tsr_json_key(const struct tsr_json *child);

/* The member of an object with this key (a linear search), or NULL; NULL if v is not an object. */
const struct tsr_json *tsr_json_get(const struct tsr_json *v, const char *key);

/* The text of a string, NULL for anything else (and for NULL). */
const char *tsr_json_string(const struct tsr_json *v);

/* False unless v is an integer from 0 to TSR_JSON_INT_MAX. */
bool tsr_json_u64(const struct tsr_json *v, uint64_t *ret);

/* False unless v is true or false. */
bool tsr_json_bool(const struct tsr_json *v, bool *ret);

/* False unless v is a number. */
bool tsr_json_double(const struct tsr_json *v, double *ret);

/*
 * --- Writing: compact JSON, the same bytes in every locale ----------------------------------
 *
 * Bytes of a string that are not UTF-8, which a path can have, become U+FFFD.
 */

/* Commas are put where they belong between the calls that open and close a container. */
void tsr_json_open(struct tsr_text *t, const char *key, char bracket);
void tsr_json_close(struct tsr_text *t, char bracket);

/*
 * `key` is NULL inside an array.  A string that is NULL becomes null.  A double is printed with 9
 * significant digits, an integer below 10^15 in full; null if it is not finite.
 */
void tsr_json_put_string(struct tsr_text *t, const char *key, const char *value);
void tsr_json_put_u64(struct tsr_text *t, const char *key, uint64_t value);

/* A string of pieces, none of which ends within a character. */
void tsr_json_open_string(struct tsr_text *t, const char *key);
void tsr_json_put_piece(struct tsr_text *t, const char *piece);
void tsr_json_close_string(struct tsr_text *t);
void tsr_json_format_double(char *out, size_t room, double value);

/* A string by itself, as Python's json writes it: printable ASCII and escapes. */
void tsr_json_quote_ascii(struct tsr_text *t, const char *s);

void tsr_json_put_double(struct tsr_text *t, const char *key, double value);

/* The same with as many digits as give back the number. */
void tsr_json_put_exact(struct tsr_text *t, const char *key, double value);
void tsr_json_put_bool(struct tsr_text *t, const char *key, bool value);
void tsr_json_put_null(struct tsr_text *t, const char *key);

/* Arrays. */
void tsr_json_put_strings(struct tsr_text *t, const char *key, const char *const *values, size_t n);
void tsr_json_put_u64s(struct tsr_text *t, const char *key, const uint64_t *values, size_t n);
void tsr_json_put_doubles(struct tsr_text *t, const char *key, const double *values, size_t n);

#endif
