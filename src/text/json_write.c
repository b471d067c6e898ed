/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, written; text/json.c reads it. */
#include "text/json.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* UTF-16, as JSON escapes have it. */
static void put_escape(struct tsr_text *t, uint32_t codepoint)
{
	if (codepoint >= 0x10000) {
		codepoint -= 0x10000;
		tsr_text_printf(t, "\\u%04x", 0xd800 + (codepoint >> 10));
		codepoint = 0xdc00 + (codepoint & 0x3ff);
	}
	tsr_text_printf(t, "\\u%04x", codepoint);
}

/* How many bytes from the start stand for themselves in any text. */
static size_t plain_run(const char *s)
{
	size_t n = 0;

	while (s[n] >= 0x20 && s[n] < 0x7f && s[n] != '"' && s[n] != '\\')
		n++;
	return n;
}

/* What stands between the quotes of a string. */
static void put_inside(struct tsr_text *t, const char *s, bool ascii)
{
	static const char special[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
	size_t left = strlen(s);

	while (left) {
		const size_t plain = plain_run(s);
		const char *escape = plain ? NULL : strchr(special, *s);
		uint32_t codepoint = 0xfffd; /* if it is not UTF-8 */
		size_t len = plain ? plain : tsr_utf8_next(s, left, &codepoint);

		if (plain)
			tsr_text_put(t, s, plain);
		else if (escape)
			tsr_text_put(t, (const char[]){ '\\', names[escape - special] }, 2);
		else if (codepoint < 0x20 || (ascii && codepoint >= 0x7f))
			put_escape(t, codepoint);
		else if (len)
			tsr_text_put(t, s, len);
		else
			tsr_text_puts(t, "\xef\xbf\xbd");
		len = len ? len : 1;
		s += len;
		left -= len;
	}
}

static void put_quoted(struct tsr_text *t, const char *s, bool ascii)
{
	tsr_text_putc(t, '"');
	put_inside(t, s, ascii);
	tsr_text_putc(t, '"');
}

void tsr_json_quote_ascii(struct tsr_text *t, const char *s)
{
	put_quoted(t, s, true);
}

static void put_key(struct tsr_text *t, const char *key)
{
	const char last = t->nbytes ? t->bytes[t->nbytes - 1] : '{';

	if (last != '{' && last != '[')
		tsr_text_putc(t, ',');
	if (key) {
		put_quoted(t, key, false);
		tsr_text_putc(t, ':');
	}
}

void tsr_json_open(struct tsr_text *t, const char *key, char bracket)
{
	put_key(t, key);
	tsr_text_putc(t, bracket);
}

void tsr_json_close(struct tsr_text *t, char bracket)
{
	tsr_text_putc(t, bracket);
}

void tsr_json_put_string(struct tsr_text *t, const char *key, const char *value)
{
	if (!value) {
		tsr_json_put_null(t, key);
		return;
	}
	put_key(t, key);
	put_quoted(t, value, false);
}

void tsr_json_open_string(struct tsr_text *t, const char *key)
{
	put_key(t, key);
	tsr_text_putc(t, '"');
}

void tsr_json_put_piece(struct tsr_text *t, const char *piece)
{
	put_inside(t, piece, false);
}

void tsr_json_close_string(struct tsr_text *t)
{
	tsr_text_putc(t, '"');
}

/* The decimal digits of a number, which end where @digits ends: their start. */
static char *put_digits(char (*digits)[20], uint64_t value)
{
	char *first = *digits + sizeof(*digits);

	do {
		*--first = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	return first;
}

void tsr_json_put_u64(struct tsr_text *t, const char *key, uint64_t value)
{
	char digits[20];
	const char *first = put_digits(&digits, value);

	put_key(t, key);
	tsr_text_put(t, first, (size_t)(digits + sizeof(digits) - first));
}

/* The calling program may have set a locale with another decimal point. */
static locale_t enter_c_locale(locale_t *c)
{
	*c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	return *c ? uselocale(*c) : (locale_t)0;
}

static void leave_c_locale(locale_t c, locale_t before)
{
	if (!c)
		return;
	uselocale(before);
	freelocale(c);
}

/* Whether a value is written as digits alone, which figures of small tensors mostly are. */
static bool is_count(double value)
{
	return value >= 0 && value < 1e15 && value == (double)(uint64_t)value && !signbit(value);
}

void tsr_json_format_double(char *out, size_t room, double value)
{
	locale_t c, before;

	if (!isfinite(value)) {
		snprintf(out, room, "null");
		return;
	}
	if (is_count(value)) {
		char digits[20];
		const char *first = put_digits(&digits, (uint64_t)value);

		snprintf(out, room, "%.*s", (int)(digits + sizeof(digits) - first), first);
		return;
	}
	before = enter_c_locale(&c);
	snprintf(out, room, fabs(value) < 1e15 && value == floor(value) ? "%.0f" : "%.9g", value);
	leave_c_locale(c, before);
}

void tsr_json_put_double(struct tsr_text *t, const char *key, double value)
{
	char text[40];

	tsr_json_format_double(text, sizeof(text), value);
	put_key(t, key);
	tsr_text_puts(t, text);
}

void tsr_json_put_exact(struct tsr_text *t, const char *key, double value)
{
	char text[40] = "null";
	locale_t c, before;

	before = enter_c_locale(&c);
	if (isfinite(value))
		snprintf(text, sizeof(text), "%.9g", value);
	if (isfinite(value) && strtod(text, NULL) != value)
		snprintf(text, sizeof(text), "%.17g", value);
	leave_c_locale(c, before);
	put_key(t, key);
	tsr_text_puts(t, text);
}

void tsr_json_put_bool(struct tsr_text *t, const char *key, bool value)
{
	put_key(t, key);
	tsr_text_puts(t, value ? "true" : "false");
}

void tsr_json_put_null(struct tsr_text *t, const char *key)
{
	put_key(t, key);
	tsr_text_puts(t, "null");
}

void tsr_json_put_strings(struct tsr_text *t, const char *key, const char *const *values, size_t n)
{
	tsr_json_open(t, key, '[');
	for (size_t i = 0; i < n; i++)
		tsr_json_put_string(t, NULL, values[i]);
	tsr_json_close(t, ']');
}

void tsr_json_put_u64s(struct tsr_text *t, const char *key, const uint64_t *values, size_t n)
{
	tsr_json_open(t, key, '[');
	for (size_t i = 0; i < n; i++)
		tsr_json_put_u64(t, NULL, values[i]);
	tsr_json_close(t, ']');
}

void tsr_json_put_doubles(struct tsr_text *t, const char *key, const double *values, size_t n)
{
	tsr_json_open(t, key, '[');
	for (size_t i = 0; i < n; i++)
		tsr_json_put_double(t, NULL, values[i]);
	tsr_json_close(t, ']');
}
