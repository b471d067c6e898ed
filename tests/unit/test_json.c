/* SPDX-License-Identifier: Apache-2.0 */
/* The strict JSON of src/text/json.h: what is accepted, what it then means, and what is written. */
#include <math.h>

#include "text/json.h"
#include "unit.h"

static const struct tsr_json_rules open_rules = {
	.file = "FILE",
	.part = "text",
	.max_depth = 20,
	.max_values = 1000000,
};
static const struct tsr_json_rules header_rules = {
	.file = "FILE",
	.part = "header",
	.member = "tensor",
	.max_depth = 4,
	.max_values = 1000000,
	.integers_only = true,
};

/* Parses a copy that ends with its last byte, so that a sanitizer sees whoever reads on. */
static enum tsr_status parse(const char *text, size_t nbytes, const struct tsr_json_rules *rules,
			     struct tsr_json **ret, struct tsr_err *err)
{
	char *copy = malloc(nbytes ? nbytes : 1);
	enum tsr_status status;

	assert_non_null(copy);
	memcpy(copy, text, nbytes);
	status = tsr_json_parse(copy, nbytes, rules, ret, err);
	free(copy);
	return status;
}

/* The root, to be freed. */
static struct tsr_json *parse_ok(const char *text, size_t nbytes,
				 const struct tsr_json_rules *rules)
{
	struct tsr_json *root = NULL;
	struct tsr_err err = { .msg = "untouched" };
	const enum tsr_status status = parse(text, nbytes, rules, &root, &err);

	if (status != TSR_OK)
		fail_msg("refused %.200s: %s", text, err.msg);
	assert_non_null(root);
	assert_string_equal(err.msg, "untouched");
	return root;
}

static void expect_refused(const char *text, size_t nbytes, const struct tsr_json_rules *rules,
			   enum tsr_status want)
{
	struct tsr_json *const untouched = (struct tsr_json *)(void *)&nbytes;
	struct tsr_json *root = untouched;
	struct tsr_err err = { 0 };
	const enum tsr_status status = parse(text, nbytes, rules, &root, &err);

	if (status != want)
		fail_msg("status %d, want %d: %.200s: %s", (int)status, (int)want, text, err.msg);
	assert_ptr_equal(root, untouched);
	assert_int_equal(err.code, want);
	assert_memory_equal(err.msg, "FILE", 4);
	assert_int_equal(parse(text, nbytes, rules, &root, NULL), want);
}

/* --- Grammar -------------------------------------------------------------------------------- */

/* clang-format off */
static const char *const accepted[] = {
	"{}", "[]", "null", "true", "false", "0", "-0", "\"\"", "\"a\"", " \t\r\n{}\n\r\t ",
	"[ ]", "{ }", "[1,2]", "[ 1 , 2 ]", "[[],{},[]]", "{\"a\":1}",
	"{ \"a\" : 1 , \"b\" : [ ] }", "{\"\":1}", "{\"a\":{\"a\":{\"a\":1}}}",
	"[{\"a\":1},{\"a\":1}]", "{\"a\":1,\"A\":2}", "{\"a\":1,\"a \":2}",
	"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\"", "\"\x7f\"", "\"/\"", "\"\\u007f\"", "1", "-1",
	"10", "1.5", "-1.5", "0.0", "0.10", "1e5", "1E5", "1e+5", "1E-5", "0e0", "-0.0e-0",
	"1.25e10", "123456789012345678901234567890", "1e400", "1e-400",
	"[null,true,false,\"\",0,[],{}]",
};

static const char *const refused[] = {
	"", " ", "\xef\xbb\xbf{}", "{", "}", "[", "]", "{]", "[}", "[1", "{\"a\"", "{\"a\":",
	"{\"a\":1", "{}}", "[]]", "{}{}", "[] []", "[,]", "[1,]", "[,1]", "[1,,2]", "[1 2]",
	"[1;2]", "{,}", "{\"a\":1,}", "{,\"a\":1}", "{\"a\":1 \"b\":2}", "{\"a\":1,,\"b\":2}",
	"{\"a\"}", "{\"a\",1}", "{\"a\"=1}", "{\"a\"::1}", "{a:1}", "{1:1}", "{null:1}",
	"{'a':1}", "{[]:1}", "{\"a\":}", "{:1}", "'a'", "`a`", "nul", "nulll", "Null", "NULL",
	"tru", "True", "fals", "FALSE", "truefalse", "undefined", "none", "NaN", "nan",
	"Infinity", "-Infinity", "inf", "-inf", "-nan", "-", "+", "+1", "--1", "- 1", "00", "01",
	"-01", "-00", "1.", "1.e5", ".5", "-.5", ".", "1e", "1e+", "1e-", "1e5.5", "1ee5", "e5",
	"0x10", "0b1", "0o7", "1_000", "1,000", "1f", "1L", "1.5.5", "\xd9\xa1", "// c\n{}",
	"/* c */{}", "{}//", "# c\n1", "[1,/**/2]", "[1]\f", "\v[1]", "[\xc2\xa0]",
	"[\xe2\x80\xa8]", "\"", "\"a", "\"\\", "\"\\\"", "\"a\nb\"", "\"a\tb\"", "\"\x01\"",
	"\"\x1f\"", "\"\\a\"", "\"\\v\"", "\"\\'\"", "\"\\0\"", "\"\\x41\"", "\"\\U0041\"",
	"\"\\ \"", "\"\\\n\"", "\"\\u\"", "\"\\u1\"", "\"\\u12\"", "\"\\u123\"", "\"\\u123",
	"\"\\u123g\"", "\"\\u 123\"", "\"\\u+123\"", "\"\\u-123\"", "\"\\u0x41\"", "\"\\u{41}\"",
	"\"\\u0000\"", "\"a\\u0000b\"", "{\"\\u0000\":1}", "{\"a\\u0000\":1}", "\"\\ud800\"",
	"\"\\udbff\"", "\"\\udc00\"", "\"\\udfff\"", "\"\\ud800a\"", "\"\\ud800\\n\"",
	"\"\\ud800\\u0041\"", "\"\\ud800\\ud800\"", "\"\\udc00\\ud800\"", "\"\\ud800\\u\"",
	"\"\\ud800\\udc0\"", "\"\\ud800\\ue000\"", "\"\\ud800\\udbff\"", "\"\\ud800",
	"\"\\ud800\\", "\"\\ud800\\u", "\"\\ud83d \\ude00\"", "\"\x80\"", "\"\xbf\"",
	"\"\xc0\x80\"", "\"\xc1\xbf\"", "\"\xc2\"", "\"\xc2", "\"\xe0\x80\x80\"",
	"\"\xe0\x9f\xbf\"", "\"\xed\xa0\x80\"", "\"\xed\xbf\xbf\"", "\"\xef\xbf\"",
	"\"\xf0\x80\x80\x80\"", "\"\xf0\x8f\xbf\xbf\"", "\"\xf4\x90\x80\x80\"",
	"\"\xf5\x80\x80\x80\"", "\"\xfe\"", "\"\xff\"", "{\"\xff\":1}", "\"\xe2\x28\xa1\"",
	"\xff", "{}\xff", "[\x80]", "{\"a\":1,\"a\":1}", "{\"a\":1,\"b\":2,\"a\":3}",
	"{\"a\":1,\"\\u0061\":2}", "{\"\\u00e9\":1,\"\xc3\xa9\":2}", "{\"\":1,\"\":2}",
	"{\"/\":1,\"\\/\":2}", "{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}",
	"{\"x\":{\"a\":1,\"a\":2}}", "[{\"a\":1,\"a\":2}]", "{\"a\":{\"a\":1},\"a\":2}",
};

/* clang-format on */

static void test_accepted_texts(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(accepted); i++)
		tsr_json_free(parse_ok(accepted[i], strlen(accepted[i]), &open_rules));
}

static void test_refused_texts(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(refused); i++) {
		expect_refused(refused[i], strlen(refused[i]), &open_rules, TSR_E_FORMAT);
		expect_refused(refused[i], strlen(refused[i]), &header_rules, TSR_E_FORMAT);
	}
}

/* A text cut short is no text, and nobody reads past the cut. */
static void test_every_truncation_is_refused(void **state)
{
	static const char text[] =
		"{\"a\\u00e9\\ud83d\\ude00\":[1.5e-3,true,false,null,\"\xf0\x9f\x98\x80\"],"
		"\"b\":{\"c\":-0}}";

	(void)state;
	for (size_t n = 0; n < sizeof(text) - 1; n++)
		expect_refused(text, n, &open_rules, TSR_E_FORMAT);
	tsr_json_free(parse_ok(text, sizeof(text) - 1, &open_rules));
}

static void test_nul_is_refused_anywhere(void **state)
{
	static const char text[] = "{\"ab\":[1,true,\"c\"]}";

	(void)state;
	for (size_t at = 0; at <= sizeof(text) - 1; at++) {
		char with[sizeof(text)];

		memcpy(with, text, at);
		with[at] = '\0';
		memcpy(with + at + 1, text + at, sizeof(text) - 1 - at);
		expect_refused(with, sizeof(text), &open_rules, TSR_E_FORMAT);
	}
}

static void test_control_bytes_in_strings(void **state)
{
	(void)state;
	for (int c = 0; c < 0x20; c++) {
		const char text[3] = { '"', (char)c, '"' };

		expect_refused(text, 3, &open_rules, TSR_E_FORMAT);
	}
}

/* --- Strings -------------------------------------------------------------------------------- */

/* UTF-8 from its definition. */
static size_t encode(char *out, uint32_t cp)
{
	const int more = cp < 0x80 ? 0 : cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;
	static const unsigned lead[4] = { 0, 0xc0, 0xe0, 0xf0 };

	for (int i = more; i > 0; i--) {
		out[i] = (char)(0x80 | (cp & 0x3f));
		cp >>= 6;
	}
	out[0] = (char)(lead[more] | cp);
	return (size_t)more + 1;
}

/* Code points [first, last) as escapes, or as they are; all of them in one string. */
static void check_codepoints(uint32_t first, uint32_t last, bool escaped, bool capital)
{
	static char text[4096 * 12 + 3], want[4096 * 4 + 1];
	size_t n = 0, nwant = 0;
	struct tsr_json *root;

	text[n++] = '"';
	for (uint32_t cp = first; cp < last; cp++) {
		const char *one = capital ? "\\u%04X" : "\\u%04x";
		const char *two = capital ? "\\u%04X\\u%04X" : "\\u%04x\\u%04x";

		if (cp == 0 || (cp >= 0xd800 && cp < 0xe000))
			continue;
		nwant += encode(want + nwant, cp);
		if (!escaped)
			n += encode(text + n, cp);
		else if (cp < 0x10000)
			n += (size_t)sprintf(text + n, one, cp);
		else
			n += (size_t)sprintf(text + n, two, 0xd800 + ((cp - 0x10000) >> 10),
					     0xdc00 + ((cp - 0x10000) & 0x3ff));
	}
	text[n++] = '"';
	want[nwant] = '\0';
	root = parse_ok(text, n, &open_rules);
	if (strcmp(tsr_json_string(root), want) != 0)
		fail_msg("a code point from %x to %x came out as another", first, last);
	tsr_json_free(root);
}

static void test_every_codepoint_escaped_and_raw(void **state)
{
	(void)state;
	for (uint32_t first = 0; first < 0x110000; first += 4096) {
		check_codepoints(first, first + 4096, true, false);
		check_codepoints(first, first + 4096, true, true);
	}
	check_codepoints(0x20, '"', false, false);
	check_codepoints('"' + 1, '\\', false, false);
	check_codepoints('\\' + 1, 4096, false, false);
	for (uint32_t first = 4096; first < 0x110000; first += 4096)
		check_codepoints(first, first + 4096, false, false);
}

static void test_every_lone_surrogate_is_refused(void **state)
{
	(void)state;
	for (unsigned unit = 0xd800; unit < 0xe000; unit++) {
		char texts[3][40];

		sprintf(texts[0], "\"\\u%04x\"", unit);
		sprintf(texts[1], "\"\\u%04x\\u0041\"", unit);
		sprintf(texts[2], "\"\\ud800\\u%04x\"", unit < 0xdc00 ? unit : 0xe000);
		for (int i = 0; i < 3; i++)
			expect_refused(texts[i], strlen(texts[i]), &open_rules, TSR_E_FORMAT);
	}
}

static void test_escapes_mean_their_characters(void **state)
{
	static const char text[] =
		"{\"k\\n\\\"\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\"}";
	struct tsr_json *root = parse_ok(text, sizeof(text) - 1, &open_rules);

	(void)state;
	assert_string_equal(tsr_json_key(tsr_json_first(root)), "k\n\"");
	assert_string_equal(tsr_json_string(tsr_json_first(root)),
			    "\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80");
	tsr_json_free(root);
}

/* --- Keys ----------------------------------------------------------------------------------- */

static void test_a_duplicate_among_many_keys(void **state)
{
	enum { N = 20000 };
	char *text = malloc(N * 16 + 64);
	size_t n = 0;

	(void)state;
	assert_non_null(text);
	text[n++] = '{';
	for (int i = 0; i < N; i++)
		n += (size_t)sprintf(text + n, "\"k%d\":%d,", i, i);
	n += (size_t)sprintf(text + n, "\"last\":[0]}");
	tsr_json_free(parse_ok(text, n, &open_rules));
	n -= strlen("last\":[0]}");
	for (int i = 0; i < N; i += 4999) {
		const size_t end = n + (size_t)sprintf(text + n, "k%d\":0}", i);

		expect_refused(text, end, &open_rules, TSR_E_FORMAT);
	}
	free(text);
}

/* The same key in other objects, before, inside and after, is none of an object's business. */
static void test_keys_of_other_objects(void **state)
{
	static const char text[] = "{\"a\":{\"b\":1,\"a\":{}},\"b\":{\"b\":1,"
				   "\"a\":[{\"a\":1},{\"a\":2}]},\"c\":{\"b\":1}}";

	(void)state;
	tsr_json_free(parse_ok(text, sizeof(text) - 1, &open_rules));
}

/* Keys that differ in one bit, in objects whose places differ in that bit. */
/* Keys of small objects and those of large ones are looked up in different ways. */
static void test_a_duplicate_of_any_key_in_objects_of_any_size(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= 40; n++) {
		for (unsigned again = 0; again <= n; again++) {
			struct tsr_text t = { 0 };

			tsr_json_open(&t, NULL, '{');
			for (unsigned i = 0; i < n + (again < n); i++) {
				char key[16];

				snprintf(key, sizeof(key), "k%u", i < n ? i : again);
				tsr_json_open(&t, key, '{'); /* an object between two keys of another */
				tsr_json_put_u64(&t, "k0", i);
				tsr_json_close(&t, '}');
			}
			tsr_json_close(&t, '}');
			if (again < n)
				expect_refused(t.bytes, t.nbytes, &open_rules, TSR_E_FORMAT);
			else
				tsr_json_free(parse_ok(t.bytes, t.nbytes, &open_rules));
			tsr_text_free(&t);
		}
	}
}

static void test_keys_that_differ_as_their_objects_do(void **state)
{
	static const char *const keys[2][2] = { { "aaA", "aaQ" }, { "aaA", "aaa" } };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const int apart = 'A' ^ keys[i][1][2];
		char text[4096] = "[";
		size_t n = 1;

		for (unsigned k = 0; k < 32; k++)
			n += (size_t)sprintf(text + n, "{\"%s\":1}%-*s", keys[i][k % 2], apart - 9,
					     k < 31 ? "," : "]");
		tsr_json_free(parse_ok(text, n, &open_rules));
	}
}

/* Members one by one are those of the whole, and so are their values. */
static void test_members_one_by_one(void **state)
{
	static const char *const texts[] = {
		"{}",
		" \n{ \t} ",
		"{\"a\":1}",
		"{\"a\":{\"b\":[1,{\"c\":\"}\"}]},\"\\u00e9\\\"\":[],\"\":\"x\"}",
		" { \"a\" : 1 ,\n\"b\" : { } , \"c\":[ 1 , 2 ] } ",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		const size_t n = strlen(texts[i]);
		struct tsr_json *root = parse_ok(texts[i], n, &open_rules), *v;
		const struct tsr_json *want = tsr_json_first(root);
		char *copy = malloc(n);
		size_t at = 0;

		assert_non_null(copy);
		memcpy(copy, texts[i], n);
		for (;; want = tsr_json_next(want)) {
			assert_int_equal(tsr_json_take_member(copy, n, &at, &open_rules, &v, NULL),
					 TSR_OK);
			if (!v || !want)
				break;
			assert_string_equal(tsr_json_key(v), tsr_json_key(want));
			assert_int_equal(tsr_json_type(v), tsr_json_type(want));
			assert_int_equal(tsr_json_first(v) != NULL, tsr_json_first(want) != NULL);
			if (tsr_json_string(v))
				assert_string_equal(tsr_json_string(v), tsr_json_string(want));
			tsr_json_free(v);
		}
		assert_null(v);
		assert_null(want);
		free(copy);
		tsr_json_free(root);
	}
}

/* --- Rules ---------------------------------------------------------------------------------- */

/* A value inside n brackets is at depth n + 1. */
static void test_depth_limit(void **state)
{
	(void)state;
	for (unsigned limit = 1; limit <= 40; limit++) {
		struct tsr_json_rules rules = open_rules;

		rules.max_depth = limit;
		for (unsigned depth = 1; depth <= limit + 1; depth++) {
			char arrays[100], objects[400] = "";

			memset(arrays, '[', depth - 1);
			arrays[depth - 1] = '7';
			memset(arrays + depth, ']', depth - 1);
			for (unsigned i = 1; i < depth; i++)
				strcat(objects, "{\"a\":");
			strcat(objects, "{}");
			memset(objects + 5 * (depth - 1) + 2, '}', depth - 1);
			if (depth <= limit) {
				tsr_json_free(parse_ok(arrays, 2 * depth - 1, &rules));
				tsr_json_free(parse_ok(objects, 6 * depth - 4, &rules));
			} else {
				expect_refused(arrays, 2 * depth - 1, &rules, TSR_E_LIMIT);
				expect_refused(objects, 6 * depth - 4, &rules, TSR_E_LIMIT);
			}
		}
	}
}

/* Far more brackets than the stack could bear. */
static void test_depth_limit_holds_against_a_flood(void **state)
{
	const size_t n = 10000000;
	char *text = malloc(n);

	(void)state;
	assert_non_null(text);
	memset(text, '[', n);
	expect_refused(text, n, &open_rules, TSR_E_LIMIT);
	for (size_t i = 0; i + 5 <= n; i += 5)
		memcpy(text + i, "{\"\":", 5);
	expect_refused(text, n, &header_rules, TSR_E_FORMAT);
	free(text);
}

static void test_value_limit(void **state)
{
	struct tsr_json_rules rules = open_rules;

	(void)state;
	rules.max_values = 5;
	tsr_json_free(parse_ok("[1,2,3,4]", 9, &rules));
	tsr_json_free(parse_ok("{\"a\":[1,{\"b\":2}]}", 17, &rules));
	expect_refused("[1,2,3,4,5]", 11, &rules, TSR_E_LIMIT);
	expect_refused("{\"a\":[1,{\"b\":2}],\"c\":3}", 23, &rules, TSR_E_LIMIT);
	rules.max_values = 0;
	expect_refused("1", 1, &rules, TSR_E_LIMIT);
}

static void test_integers_only(void **state)
{
	static const struct {
		const char *text;
		uint64_t value;
	} good[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "4294967296", UINT64_C(1) << 32 },
		{ "281474976710655", (UINT64_C(1) << 48) - 1 },
	};
	static const char *const bad[] = {
		"-0",
		"-1",
		"0.0",
		"1.0",
		"1e0",
		"1E2",
		"1e400",
		"1.5",
		"281474976710656",
		"281474976710655.0",
		"2814749767106550",
		"9007199254740993",
		"18446744073709551615",
		"18446744073709551616",
		"18446744073709551617",
		"100000000000000000000000000000000000000000000000000000000000000000000",
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(good); i++) {
		struct tsr_json *root = parse_ok(good[i].text, strlen(good[i].text), &header_rules);
		uint64_t value;

		assert_true(tsr_json_u64(root, &value));
		assert_true(value == good[i].value);
		tsr_json_free(root);
	}
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		char inside[200];

		expect_refused(bad[i], strlen(bad[i]), &header_rules, TSR_E_FORMAT);
		snprintf(inside, sizeof(inside), "{\"a\":[%s]}", bad[i]);
		expect_refused(inside, strlen(inside), &header_rules, TSR_E_FORMAT);
	}
}

/* Strict JSON without a limit on digits: what passes the scan must also come out. */
static void test_long_numbers(void **state)
{
	char text[400];

	(void)state;
	for (size_t digits = 10; digits <= 300; digits += 13) {
		struct tsr_json *root;
		double value;

		text[0] = '1';
		memset(text + 1, '0', digits);
		root = parse_ok(text, digits + 1, &open_rules);
		assert_true(tsr_json_double(root, &value));
		assert_true(fabs(value / pow(10, (double)digits) - 1) < 1e-12);
		tsr_json_free(root);
		memcpy(text, "1.", 2);
		root = parse_ok(text, digits + 1, &open_rules);
		assert_true(tsr_json_double(root, &value));
		assert_true(value == 1);
		tsr_json_free(root);
	}
}

static void test_messages_tell_the_place(void **state)
{
	static const struct {
		const char *text, *place, *reason;
	} rows[] = {
		{ "{\"a\":1,}", "FILE: tensor a: header byte 7: ", "expected a key" },
		{ "[1,2", "FILE: header byte 4: ", "','" },
		{ "{\"w\":{\"s\":[1.5]}}", "FILE: tensor w: header byte 11: ", "1.5" },
		{ "{\"w\":1,\"w\":2}", "header byte 10: ", "duplicate key \"w\"" },
		{ "{} x", "FILE: header byte 3: ", "after the end" },
		{ "[[[[[", "FILE: header byte 4: ", "deeper than the limit of 4" },
		{ "{\"a\x1b[2J\":[tru]}", "FILE: ", "control" },
		{ "{\"\\u001b[2J\":[tru]}",
		  "FILE: tensor \\x1b[2J: header byte 14: ", "not a JSON value" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct tsr_json *root = NULL;
		struct tsr_err err = { 0 };

		assert_true(parse(rows[i].text, strlen(rows[i].text), &header_rules, &root, &err) !=
			    TSR_OK);
		if (!strstr(err.msg, rows[i].place) || !strstr(err.msg, rows[i].reason))
			fail_msg("%s: got \"%s\", want \"%s\" and \"%s\"", rows[i].text, err.msg,
				 rows[i].place, rows[i].reason);
		assert_null(strchr(err.msg, '\x1b'));
		assert_null(strchr(err.msg, '\n'));
	}
}

/* --- Parsed values -------------------------------------------------------------------------- */

static void test_types_and_children(void **state)
{
	static const char text[] = "{\"n\":null,\"t\":true,\"f\":false,\"i\":7,\"s\":\"x\",\"a\":["
				   "1,[2]],\"o\":{\"n\":5}}";
	static const enum tsr_json_type types[] = {
		TSR_JSON_NULL,	 TSR_JSON_BOOL,	 TSR_JSON_BOOL,	  TSR_JSON_NUMBER,
		TSR_JSON_STRING, TSR_JSON_ARRAY, TSR_JSON_OBJECT,
	};
	static const char keys[] = "ntfisao";
	struct tsr_json *root = parse_ok(text, sizeof(text) - 1, &open_rules);
	const struct tsr_json *v = tsr_json_first(root);
	uint64_t u;
	double d;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(types); i++) {
		const char key[2] = { keys[i], '\0' };

		assert_non_null(v);
		assert_int_equal(tsr_json_type(v), types[i]);
		assert_string_equal(tsr_json_key(v), key);
		assert_ptr_equal(tsr_json_get(root, key), v);
		assert_int_equal(tsr_json_u64(v, &u), types[i] == TSR_JSON_NUMBER);
		assert_int_equal(tsr_json_double(v, &d), types[i] == TSR_JSON_NUMBER);
		assert_int_equal(tsr_json_string(v) != NULL, types[i] == TSR_JSON_STRING);
		v = tsr_json_next(v);
	}
	assert_null(v);
	assert_true(tsr_json_u64(tsr_json_get(tsr_json_get(root, "o"), "n"), &u) && u == 5);
	assert_null(tsr_json_get(root, "N"));
	assert_null(tsr_json_get(root, ""));
	assert_null(tsr_json_get(root, "x"));
	assert_null(tsr_json_get(tsr_json_get(root, "a"), "n"));
	assert_null(tsr_json_get(tsr_json_get(root, "s"), "n"));
	assert_null(tsr_json_get(NULL, "n"));
	assert_null(tsr_json_string(NULL));
	assert_false(tsr_json_u64(NULL, &u));
	assert_false(tsr_json_double(NULL, &d));
	tsr_json_free(root);
}

static void test_numbers_as_integers(void **state)
{
	static const struct {
		const char *text;
		bool integer;
		uint64_t value;
		double number;
	} rows[] = {
		{ "0", true, 0, 0 },
		{ "-0", true, 0, 0 },
		{ "5.0", true, 5, 5 },
		{ "1e3", true, 1000, 1000 },
		{ "281474976710655", true, (UINT64_C(1) << 48) - 1, 281474976710655.0 },
		{ "281474976710656", false, 0, 281474976710656.0 },
		{ "1e400", false, 0, INFINITY },
		{ "-1", false, 0, -1 },
		{ "0.5", false, 0, 0.5 },
		{ "-1e400", false, 0, -INFINITY },
		{ "1e-400", true, 0, 0 },
		{ "0.1", false, 0, 0.1 },
		{ "1.7976931348623157e308", false, 0, 1.7976931348623157e308 },
		{ "4.9406564584124654e-324", false, 0, 4.9406564584124654e-324 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct tsr_json *root = parse_ok(rows[i].text, strlen(rows[i].text), &open_rules);
		uint64_t value = 0;
		double number;

		assert_int_equal(tsr_json_u64(root, &value), rows[i].integer);
		assert_true(value == rows[i].value);
		assert_true(tsr_json_double(root, &number));
		assert_true(number == rows[i].number);
		tsr_json_free(root);
	}
}

/* --- Writing -------------------------------------------------------------------------------- */

static void expect_text(struct tsr_text *t, const char *want)
{
	assert_false(t->failed);
	assert_string_equal(t->bytes, want);
	assert_int_equal(t->nbytes, strlen(want));
	tsr_text_free(t);
}

static void test_writer_puts_commas(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	tsr_json_open(&t, NULL, '{');
	tsr_json_put_string(&t, "s", "[");
	tsr_json_put_u64(&t, "u", 1);
	tsr_json_open(&t, "a", '[');
	tsr_json_put_u64(&t, NULL, 2);
	tsr_json_put_string(&t, NULL, "{");
	tsr_json_put_null(&t, NULL);
	tsr_json_open(&t, NULL, '[');
	tsr_json_close(&t, ']');
	tsr_json_open(&t, NULL, '{');
	tsr_json_close(&t, '}');
	tsr_json_close(&t, ']');
	tsr_json_open(&t, "o", '{');
	tsr_json_put_bool(&t, "t", true);
	tsr_json_put_bool(&t, "f", false);
	tsr_json_close(&t, '}');
	tsr_json_put_double(&t, "d", 0.5);
	tsr_json_close(&t, '}');
	expect_text(
		&t,
		"{\"s\":\"[\",\"u\":1,\"a\":[2,\"{\",null,[],{}],\"o\":{\"t\":true,\"f\":false},"
		"\"d\":0.5}");
}

static void test_writer_escapes(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	tsr_json_open(&t, NULL, '{');
	tsr_json_put_string(&t, "\"\n",
			    "\x01\x02\x07\b\t\n\v\f\r\x0e\x1f \"\\/\x7f\xc3\xa9\xf0\x9f\x98\x80");
	tsr_json_close(&t, '}');
	expect_text(
		&t,
		"{\"\\\"\\n\":\"\\u0001\\u0002\\u0007\\b\\t\\n\\u000b\\f\\r\\u000e\\u001f \\\"\\\\/"
		"\x7f\xc3\xa9\xf0\x9f\x98\x80\"}");
}

static void test_writer_numbers(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	tsr_json_open(&t, NULL, '[');
	tsr_json_put_u64(&t, NULL, 0);
	tsr_json_put_u64(&t, NULL, TSR_JSON_INT_MAX);
	tsr_json_put_u64(&t, NULL, UINT64_MAX);
	tsr_json_put_double(&t, NULL, 0);
	tsr_json_put_double(&t, NULL, -0.0);
	tsr_json_put_double(&t, NULL, 1e-300);
	tsr_json_put_double(&t, NULL, 1.0 / 3);
	tsr_json_put_double(&t, NULL, 12345678901.5);
	tsr_json_put_double(&t, NULL, 999999999999999.0);
	tsr_json_put_double(&t, NULL, -123456789012.0);
	tsr_json_put_double(&t, NULL, 1e15);
	tsr_json_put_double(&t, NULL, INFINITY);
	tsr_json_put_double(&t, NULL, -INFINITY);
	tsr_json_put_double(&t, NULL, NAN);
	tsr_json_close(&t, ']');
	expect_text(
		&t,
		"[0,281474976710655,18446744073709551615,0,-0,1e-300,0.333333333,1.23456789e+10,"
		"999999999999999,-123456789012,1e+15,null,null,null]");
}

/* Whatever is put, our own parser takes it and gives it back. */
static void test_written_texts_are_read_back(void **state)
{
	uint64_t seed = 11;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		char key[400], value[300];
		struct tsr_text t = { 0 };
		struct tsr_json *root;
		size_t n = 0;

		while (n < random_u32(&seed) % 200) {
			const uint32_t r = random_u32(&seed);
			const uint32_t cp = r % 3 == 0	 ? r >> 8 & 0x7f
					    : r % 3 == 1 ? r >> 8 & 0xffff
							 : (r >> 8) % 0x110000;

			if (cp && (cp < 0xd800 || cp >= 0xe000))
				n += encode(value + n, cp);
		}
		value[n] = '\0';
		snprintf(key, sizeof(key), "k%s", value);
		tsr_json_open(&t, NULL, '{');
		tsr_json_put_string(&t, key, value);
		tsr_json_close(&t, '}');
		root = parse_ok(t.bytes, t.nbytes, &open_rules);
		assert_string_equal(tsr_json_key(tsr_json_first(root)), key);
		assert_string_equal(tsr_json_string(tsr_json_first(root)), value);
		tsr_json_free(root);
		tsr_text_free(&t);
	}
}

/* A file name is any bytes; a report that names it must still be JSON. */
static void test_written_texts_are_json_whatever_the_bytes(void **state)
{
	static const char *const values[] = {
		"\xff",	    "a\x80z",		"\xc3",		"\xe2\x82", "\xed\xa0\x80",
		"\xc0\xaf", "\xf4\x90\x80\x80", "\xc3\xa9\xc3",
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(values); i++) {
		struct tsr_text t = { 0 };

		tsr_json_open(&t, NULL, '{');
		tsr_json_put_string(&t, "file", values[i]);
		tsr_json_close(&t, '}');
		tsr_json_free(parse_ok(t.bytes, t.nbytes, &open_rules));
		tsr_text_free(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepted_texts),
		cmocka_unit_test(test_refused_texts),
		cmocka_unit_test(test_every_truncation_is_refused),
		cmocka_unit_test(test_nul_is_refused_anywhere),
		cmocka_unit_test(test_control_bytes_in_strings),
		cmocka_unit_test(test_every_codepoint_escaped_and_raw),
		cmocka_unit_test(test_every_lone_surrogate_is_refused),
		cmocka_unit_test(test_escapes_mean_their_characters),
		cmocka_unit_test(test_a_duplicate_among_many_keys),
		cmocka_unit_test(test_a_duplicate_of_any_key_in_objects_of_any_size),
		cmocka_unit_test(test_keys_that_differ_as_their_objects_do),
		cmocka_unit_test(test_members_one_by_one),
		cmocka_unit_test(test_keys_of_other_objects),
		cmocka_unit_test(test_depth_limit),
		cmocka_unit_test(test_depth_limit_holds_against_a_flood),
		cmocka_unit_test(test_value_limit),
		cmocka_unit_test(test_integers_only),
		cmocka_unit_test(test_long_numbers),
		cmocka_unit_test(test_messages_tell_the_place),
		cmocka_unit_test(test_types_and_children),
		cmocka_unit_test(test_numbers_as_integers),
		cmocka_unit_test(test_writer_puts_commas),
		cmocka_unit_test(test_writer_escapes),
		cmocka_unit_test(test_writer_numbers),
		cmocka_unit_test(test_written_texts_are_read_back),
		cmocka_unit_test(test_written_texts_are_json_whatever_the_bytes),
	};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
