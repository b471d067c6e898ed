/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check that every JSON text passes before it is parsed.  cJSON accepts much that is not JSON, keeps
 * duplicate keys, cuts strings at NUL and rounds large integers.
 */
#include "text/json.h"

#include <stdio.h>

#include "base/fail.h"
#include "base/utf8.h"
#include "text/json_space.h"
#include "text/map.h"

struct scan {
	const char *text;
	size_t nbytes;
	size_t at;
	const struct tsr_json_rules *rules;
	size_t nvalues;
	struct tsr_map keys; /* of large objects, hashed with the object they stand in */
	struct tsr_text string; /* the last key, without its escapes */
	bool keeps; /* the string that is scanned is a key: values may be as long as the text */
	/* the member of the root that the scan is in; "" before the first */
	struct tsr_text member;
	struct tsr_err *err;
};

/* Whether the scan is inside __metadata__, where values must be strings anyway. */
static bool in_metadata(const struct scan *s)
{
	return s->rules->member && s->member.nbytes && strcmp(s->member.bytes, "__metadata__") == 0;
}

/* Where in the file byte @at is: "FILE: tensor NAME: header byte 12". */
static const char *locate(const struct scan *s, size_t at, char *out, size_t room)
{
	const bool named = s->rules->member && s->member.nbytes;

	if (in_metadata(s))
		snprintf(out, room, "%.300s: __metadata__: %.100s: %s byte %zu", s->rules->file,
			 s->string.nbytes ? s->string.bytes : "", s->rules->part, at);
	else if (named)
		snprintf(out, room, "%.300s: %s %.200s: %s byte %zu", s->rules->file,
			 s->rules->member, s->member.bytes, s->rules->part, at);
	else
		snprintf(out, room, "%.300s: %s byte %zu", s->rules->file, s->rules->part, at);
	return out;
}

#define PLACE_MAX 640

static enum tsr_status malformed(struct scan *s, const char *found)
{
	char place[PLACE_MAX];

	return tsr_fail(s->err, TSR_E_FORMAT, "%s: %s", locate(s, s->at, place, sizeof(place)),
			found);
}

/* So many keys of an object are compared one by one: nearly all objects have no more. */
#define NEAR_KEYS 16u

struct object {
	uint64_t start; /* where in the text */
	size_t nkeys;
	uint64_t near
		[NEAR_KEYS]; /* the hashes of its first keys; when there are more, all are in scan.keys */
};

static bool has_near(const struct object *o, uint64_t hash)
{
	for (size_t i = 0; i < o->nkeys; i++) {
		if (o->near[i] == hash)
			return true;
	}
	return false;
}

static bool put_hash(struct scan *s, struct object *o, uint64_t hash, bool *is_new)
{
	bool ok = true;

	if (o->nkeys < NEAR_KEYS) {
		*is_new = !has_near(o, hash);
		o->near[o->nkeys++] = hash;
		return true;
	}
	for (size_t i = 0; o->nkeys == NEAR_KEYS && i < NEAR_KEYS; i++)
		ok = ok && tsr_map_put(&s->keys, o->near[i], NULL, is_new);
	o->nkeys++;
	return ok && tsr_map_put(&s->keys, hash, NULL, is_new);
}

/* Two keys with one 64-bit hash are taken for duplicates: a refusal, never a wrong acceptance. */
static enum tsr_status add_key(struct scan *s, struct object *o)
{
	const uint64_t hash = tsr_map_hash(&s->keys, s->string.bytes, s->string.nbytes, o->start);
	char place[PLACE_MAX];
	bool is_new;

	if (!put_hash(s, o, hash, &is_new))
		return tsr_fail_nomem(s->err, s->rules->file);
	if (is_new)
		return TSR_OK;
	return tsr_fail(s->err, TSR_E_FORMAT, "%s: duplicate key \"%.200s\"",
			locate(s, s->at, place, sizeof(place)), s->string.bytes);
}

static void skip_space(struct scan *s)
{
	s->at = tsr_json_after_space(s->text, s->nbytes, s->at);
}

static int peek(const struct scan *s)
{
	return s->at < s->nbytes ? (unsigned char)s->text[s->at] : -1;
}

static void keep(struct scan *s, const char *bytes, size_t nbytes)
{
	if (s->keeps)
		tsr_text_put(&s->string, bytes, nbytes);
}

static bool scan_hex4(struct scan *s, uint32_t *ret)
{
	uint32_t value = 0;

	if (s->nbytes - s->at < 4)
		return false;
	for (int i = 0; i < 4; i++) {
		const char c = s->text[s->at + (size_t)i];
		const char *digits = "0123456789abcdef";
		const char lower = c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c;
		const char *digit = lower ? strchr(digits, lower) : NULL;

		if (!digit)
			return false;
		value = value << 4 | (uint32_t)(digit - digits);
	}
	s->at += 4;
	*ret = value;
	return true;
}

/* After "\u". */
static enum tsr_status scan_unicode_escape(struct scan *s)
{
	uint32_t high, low;
	char utf8[4];

	if (!scan_hex4(s, &high))
		return malformed(s, "\\u without four hexadecimal digits");
	if (high == 0)
		return malformed(s, "a NUL character in a string");
	if (high >= 0xdc00 && high < 0xe000)
		return malformed(s, "a lone surrogate escape");
	if (high >= 0xd800 && high < 0xdc00) {
		if (s->nbytes - s->at < 2 || memcmp(s->text + s->at, "\\u", 2) != 0)
			return malformed(s, "a lone surrogate escape");
		s->at += 2;
		if (!scan_hex4(s, &low) || low < 0xdc00 || low >= 0xe000)
			return malformed(s, "a lone surrogate escape");
		high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
	}
	keep(s, utf8, tsr_utf8_put(utf8, high));
	return TSR_OK;
}

static enum tsr_status scan_escape(struct scan *s)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	const int c = peek(s);
	const char *name = c > 0 ? strchr(names, c) : NULL;

	if (name) {
		keep(s, &values[name - names], 1);
		s->at++;
		return TSR_OK;
	}
	if (c != 'u')
		return malformed(s, "an unknown escape in a string");
	s->at++;
	return scan_unicode_escape(s);
}

/* Copy printable ASCII up to the next byte that needs attention. */
static void copy_plain(struct scan *s)
{
	const size_t start = s->at;

	while (s->at < s->nbytes && s->text[s->at] >= 0x20 && s->text[s->at] < 0x7f &&
	       s->text[s->at] != '"' && s->text[s->at] != '\\')
		s->at++;
	keep(s, s->text + start, s->at - start);
}

/* At the opening quote of a key or value. */
static enum tsr_status scan_string(struct scan *s)
{
	s->at++;
	for (;;) {
		uint32_t codepoint;
		size_t len;
		int c;

		copy_plain(s);
		c = peek(s);
		if (c < 0)
			return malformed(s, "a string without end");
		if (c == '"')
			break;
		if (c == '\\') {
			s->at++;
			TSR_TRY(scan_escape(s));
			continue;
		}
		if (c < 0x20)
			return malformed(s, "a raw control byte in a string");
		len = tsr_utf8_next(s->text + s->at, s->nbytes - s->at, &codepoint);
		if (!len)
			return malformed(s, "bytes that are not UTF-8");
		keep(s, s->text + s->at, len);
		s->at += len;
	}
	s->at++;
	return s->string.failed ? tsr_fail_nomem(s->err, s->rules->file) : TSR_OK;
}

static size_t scan_digits(struct scan *s)
{
	const size_t start = s->at;

	while (peek(s) >= '0' && peek(s) <= '9')
		s->at++;
	return s->at - start;
}

/* The grammar of RFC 8259; then what the rules add. */
static enum tsr_status scan_number(struct scan *s)
{
	const size_t start = s->at;
	bool negative = false, integer = true;
	uint64_t value = 0;
	char place[PLACE_MAX];
	size_t ndigits;

	if (peek(s) == '-') {
		negative = true;
		s->at++;
	}
	ndigits = scan_digits(s);
	if (!ndigits || (ndigits > 1 && s->text[s->at - ndigits] == '0'))
		return malformed(s, "not a number");
	for (size_t i = s->at - ndigits; i < s->at && value <= TSR_JSON_INT_MAX; i++)
		value = 10 * value + (uint64_t)(s->text[i] - '0');
	if (peek(s) == '.') {
		integer = false;
		s->at++;
		if (!scan_digits(s))
			return malformed(s, "a number without digits after its point");
	}
	if (peek(s) == 'e' || peek(s) == 'E') {
		integer = false;
		s->at++;
		if (peek(s) == '+' || peek(s) == '-')
			s->at++;
		if (!scan_digits(s))
			return malformed(s, "a number without digits in its exponent");
	}
	if (!s->rules->integers_only || in_metadata(s))
		return TSR_OK;
	if (negative || !integer || value > TSR_JSON_INT_MAX)
		return tsr_fail(
			s->err, TSR_E_FORMAT,
			"%s: found number %.*s, expected an integer from 0 to the limit of 2^48-1",
			locate(s, start, place, sizeof(place)),
			(int)(s->at - start < 40 ? s->at - start : 40), s->text + start);
	return TSR_OK;
}

static enum tsr_status scan_word(struct scan *s, const char *word)
{
	const size_t len = strlen(word);

	if (s->nbytes - s->at < len || memcmp(s->text + s->at, word, len) != 0)
		return malformed(s, "not a JSON value");
	s->at += len;
	return TSR_OK;
}

static enum tsr_status scan_value(struct scan *s, unsigned depth);

/* At the opening quote.  Leaves the key, without escapes, in s->string. */
static enum tsr_status scan_key(struct scan *s)
{
	enum tsr_status status;

	s->string.nbytes = 0;
	s->keeps = true;
	keep(s, "", 0);
	status = scan_string(s);
	s->keeps = false;
	return status;
}

/* At the opening bracket of an object or array; the recursion is bounded by depth. */
static enum tsr_status scan_members(struct scan *s, unsigned depth, bool object)
{
	const int end = object ? '}' : ']';
	struct object o = { .start = s->at };

	s->at++;
	skip_space(s);
	if (peek(s) == end) {
		s->at++;
		return TSR_OK;
	}
	for (;;) {
		skip_space(s);
		if (object) {
			if (peek(s) != '"')
				return malformed(s, "expected a key");
			TSR_TRY(scan_key(s));
			TSR_TRY(add_key(s, &o));
			if (depth == 1) {
				s->member.nbytes = 0;
				tsr_text_put(&s->member, s->string.bytes, s->string.nbytes);
			}
			skip_space(s);
			if (peek(s) != ':')
				return malformed(s, "expected ':'");
			s->at++;
		}
		TSR_TRY(scan_value(s, depth + 1));
		skip_space(s);
		if (peek(s) == end)
			break;
		if (peek(s) != ',')
			return malformed(s, object ? "expected ',' or '}'" : "expected ',' or ']'");
		s->at++;
	}
	s->at++;
	return TSR_OK;
}

static enum tsr_status scan_value(struct scan *s, unsigned depth)
{
	char place[PLACE_MAX];

	skip_space(s);
	if (depth > s->rules->max_depth)
		return tsr_fail(s->err, TSR_E_LIMIT, "%s: nested deeper than the limit of %u",
				locate(s, s->at, place, sizeof(place)), s->rules->max_depth);
	if (s->nvalues++ >= s->rules->max_values)
		return tsr_fail(s->err, TSR_E_LIMIT, "%s: more values than the limit of %zu",
				locate(s, s->at, place, sizeof(place)), s->rules->max_values);
	switch (peek(s)) {
	case '{':
		return scan_members(s, depth, true);
	case '[':
		return scan_members(s, depth, false);
	case '"':
		return scan_string(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	default:
		return scan_number(s);
	}
}

enum tsr_status tsr_json_check(const char *text, size_t nbytes, const struct tsr_json_rules *rules,
			       struct tsr_err *err)
{
	struct scan s = { .text = text, .nbytes = nbytes, .rules = rules, .err = err };
	enum tsr_status status = scan_value(&s, 1);

	if (status == TSR_OK) {
		s.member.nbytes = 0;
		skip_space(&s);
		if (s.at != nbytes)
			status = malformed(&s, "something after the end of the value");
	}
	tsr_map_free(&s.keys);
	tsr_text_free(&s.string);
	tsr_text_free(&s.member);
	return status;
}
