/* SPDX-License-Identifier: Apache-2.0 */
/* Text from files on its way to a terminal: UTF-8, escaping, messages, growing texts. */
#include <errno.h>

#include "base/fail.h"
#include "cli/cli.h"
#include "text/text.h"
#include "base/utf8.h"
#include "tersor/escape.h"
#include "unit.h"

/* --- UTF-8 ---------------------------------------------------------------------------------- */

/* Table 3-7 of the Unicode standard: the well-formed byte sequences. */
static const struct {
	unsigned char first_low, first_high, second_low, second_high;
	unsigned len;
} well_formed[] = {
	{ 0x00, 0x7f, 0x00, 0x00, 1 }, { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
	{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
	{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
};

/* Length of the well-formed sequence at the start of @nbytes bytes, or 0. */
static size_t expected_length(const unsigned char *b, size_t nbytes)
{
	for (size_t i = 0; i < COUNT_OF(well_formed) && nbytes; i++) {
		const unsigned len = well_formed[i].len;

		if (b[0] < well_formed[i].first_low || b[0] > well_formed[i].first_high)
			continue;
		if (nbytes < len)
			return 0;
		if (len > 1 &&
		    (b[1] < well_formed[i].second_low || b[1] > well_formed[i].second_high))
			return 0;
		for (unsigned j = 2; j < len; j++) {
			if (b[j] < 0x80 || b[j] > 0xbf)
				return 0;
		}
		return len;
	}
	return 0;
}

static void test_every_codepoint_goes_round(void **state)
{
	(void)state;
	for (uint32_t cp = 0; cp < 0x110000; cp++) {
		char bytes[4];
		uint32_t back = UINT32_MAX;
		size_t len;

		if (cp >= 0xd800 && cp < 0xe000)
			continue;
		len = tsr_utf8_put(bytes, cp);
		if (len != (cp < 0x80	   ? 1u
			    : cp < 0x800   ? 2u
			    : cp < 0x10000 ? 3u
					   : 4u) ||
		    expected_length((const unsigned char *)bytes, len) != len ||
		    tsr_utf8_next(bytes, len, &back) != len || back != cp)
			fail_msg("U+%04X: %zu bytes, back as U+%04X", cp, len, back);
		for (size_t shorter = 0; shorter < len; shorter++)
			assert_int_equal(tsr_utf8_next(bytes, shorter, &back), 0);
	}
}

/* Three bytes in all combinations; a fourth where one can follow. */
static void test_only_well_formed_sequences_decode(void **state)
{
	static const unsigned char fourths[] = { 0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff };
	uint32_t cp;

	(void)state;
	for (uint32_t v = 0; v < 0x1000000; v++) {
		unsigned char b[4] = { (unsigned char)(v >> 16), (unsigned char)(v >> 8),
				       (unsigned char)v, 0 };

		if (b[0] < 0x80 && v & 0xffff)
			continue;
		if (tsr_utf8_next((const char *)b, 3, &cp) != expected_length(b, 3))
			fail_msg("%02x %02x %02x", b[0], b[1], b[2]);
		for (size_t i = 0; i < COUNT_OF(fourths) && b[0] >= 0xf0; i++) {
			b[3] = fourths[i];
			if (tsr_utf8_next((const char *)b, 4, &cp) != expected_length(b, 4))
				fail_msg("%02x %02x %02x %02x", b[0], b[1], b[2], b[3]);
		}
	}
}

/* --- Escaping ------------------------------------------------------------------------------- */

static void expect_escaped(const char *src, const char *want)
{
	char out[1000];

	tsr_escape(out, sizeof(out), src);
	if (strcmp(out, want) != 0)
		fail_msg("got %s, want %s", out, want);
}

static void test_what_is_escaped(void **state)
{
	static const struct {
		const char *src, *want;
	} rows[] = {
		{ "", "" },
		{ "plain text, \\ and \"quotes\"", "plain text, \\ and \"quotes\"" },
		{ "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
		  "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80" },
		{ "a\nb\rc\td", "a\\x0ab\\x0dc\\x09d" },
		{ "\x1b[31mred\x1b[0m\x07", "\\x1b[31mred\\x1b[0m\\x07" },
		{ "\x7f", "\\x7f" },
		{ "\xc2\x80\xc2\x9b\xc2\x9f",
		  "\\xc2\\x80\\xc2\\x9b\\xc2\\x9f" }, /* C1, CSI among it */
		{ "\xc2\xa0", "\xc2\xa0" },
		{ "\xe2\x80\xa7\xe2\x80\xaa\xe2\x80\xae\xe2\x80\xaf", /* U+2027..202F */
		  "\xe2\x80\xa7\\xe2\\x80\\xaa\\xe2\\x80\\xae\xe2\x80\xaf" },
		{ "\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa", /* U+2065..206A */
		  "\xe2\x81\xa5\\xe2\\x81\\xa6\\xe2\\x81\\xa9\xe2\x81\xaa" },
		{ "\xe2\x80\xa8\xef\xbb\xbf", "\\xe2\\x80\\xa8\\xef\\xbb\\xbf" }, /* U+2028, U+FEFF */
		{ "\x80\xbf\xfe\xff", "\\x80\\xbf\\xfe\\xff" },
		{ "\xc0\xaf", "\\xc0\\xaf" }, /* overlong '/' */
		{ "\xed\xa0\x80", "\\xed\\xa0\\x80" }, /* a surrogate */
		{ "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" },
		{ "\xc3", "\\xc3" },
		{ "\xc3(", "\\xc3(" },
		{ "\xe2\x82", "\\xe2\\x82" },
		{ "\xe2\x82\x1b", "\\xe2\\x82\\x1b" },
		{ "\xe2\xc3\xa9", "\\xe2\xc3\xa9" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		expect_escaped(rows[i].src, rows[i].want);
}

static void test_every_control_character(void **state)
{
	(void)state;
	for (uint32_t cp = 1; cp < 0x3000; cp++) {
		const bool unsafe = cp < 0x20 || (cp >= 0x7f && cp < 0xa0) ||
				    (cp >= 0x2028 && cp <= 0x202e) || cp == 0xfeff ||
				    (cp >= 0x2066 && cp <= 0x2069);
		char src[5] = { 0 }, want[20] = "";
		const size_t len = tsr_utf8_put(src, cp);

		if (!unsafe)
			memcpy(want, src, len);
		for (size_t i = 0; unsafe && i < len; i++)
			sprintf(want + 4 * i, "\\x%02x", (unsigned)(unsigned char)src[i]);
		expect_escaped(src, want);
	}
}

/* Length of the first unit of an escaped text: an escape or a character. */
static size_t unit_length(const char *s)
{
	size_t len;

	if (s[0] == '\\' && s[1] == 'x')
		return 4;
	len = expected_length((const unsigned char *)s, strlen(s));
	assert_true(len > 0);
	return len;
}

/*
 * Whatever the room: what fits comes whole, and a cut shows as "..." after whole characters, each
 * with all of its escapes.  The buffer ends at an allocated byte, for the sanitizer.
 */
static void check_truncation(const char *src)
{
	char full[2000];
	size_t starts[500], nstarts = 0; /* where the text may be cut */
	const char *s = src;
	size_t at = 0;

	tsr_escape(full, sizeof(full), src);
	while (*s) {
		const size_t len = expected_length((const unsigned char *)s, strlen(s));
		const size_t units = len && full[at] == '\\' && full[at + 1] == 'x' && *s != '\\'
					     ? len
					     : 1;

		starts[nstarts++] = at;
		for (size_t i = 0; i < units; i++)
			at += unit_length(full + at);
		s += len ? len : 1;
	}
	for (size_t room = 1; room <= strlen(full) + 2; room++) {
		char *out = malloc(room);
		size_t len, kept;
		bool ok = false;

		assert_non_null(out);
		memset(out, 'X', room);
		tsr_escape(out, room, src);
		assert_non_null(memchr(out, '\0', room));
		len = strlen(out);
		if (room > strlen(full)) {
			assert_string_equal(out, full);
			free(out);
			continue;
		}
		assert_true(len <= 2 || memcmp(out + len - 3, "...", 3) == 0);
		kept = len < 3 ? 0 : len - 3;
		assert_memory_equal(out, full, kept);
		for (size_t i = 0; i < nstarts; i++)
			ok = ok || starts[i] == kept;
		/* As much as fits: the next unit would not have. */
		for (size_t i = 0; i < nstarts; i++)
			ok = ok && !(starts[i] > kept && starts[i] + 3 < room);
		if (!ok)
			fail_msg("room %zu: %s", room, out);
		free(out);
	}
}

static void test_truncation_splits_nothing(void **state)
{
	(void)state;
	check_truncation("plain text that is long enough");
	check_truncation("\x1b\x1b\x1b\x1b\x1b");
	check_truncation("caf\xc3\xa9\xc3\xa9\xc3\xa9 \xe2\x82\xac\xe2\x82\xac "
			 "\xf0\x9f\x98\x80\xf0\x9f\x98\x80");
	check_truncation("a\xc2\x9b"
			 "b\xe2\x80\xae"
			 "c\xff\xc3\x28\xe2\x82");
	check_truncation("\xe2\x80\xae\xe2\x80\xae");
	check_truncation("\xf0\x9f\x98\x80");
	check_truncation("a");
	check_truncation("ab");
	check_truncation("abc");
	check_truncation("abcd");
}

static void test_escaped_text_is_safe_whatever_the_bytes(void **state)
{
	uint64_t seed = 12;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		unsigned char src[64];
		char out[100];
		const size_t room = random_u32(&seed) % sizeof(out) + 1;
		const char *s = out;

		for (size_t i = 0; i < sizeof(src); i++) {
			static const unsigned char likely[] = { 0xc2, 0x9b, 0xe2, 0x80,
								0xae, 0xf0, 0x1b };
			const uint32_t r = random_u32(&seed);

			src[i] = r & 1 ? (unsigned char)(r >> 8)
				       : likely[(r >> 8) % sizeof(likely)];
		}
		src[random_u32(&seed) % sizeof(src)] = '\0';
		src[sizeof(src) - 1] = '\0';
		tsr_escape(out, room, (const char *)src);
		assert_non_null(memchr(out, '\0', room));
		while (*s) {
			uint32_t cp;
			const size_t len = tsr_utf8_next(s, strlen(s), &cp);

			assert_true(len > 0);
			assert_true(cp >= 0x20 && !(cp >= 0x7f && cp < 0xa0));
			assert_true(!(cp >= 0x2028 && cp <= 0x202e) && cp != 0xfeff &&
				    !(cp >= 0x2066 && cp <= 0x2069));
			s += len;
		}
	}
}

/* --- Messages ------------------------------------------------------------------------------- */

static void test_messages_are_escaped_and_cut(void **state)
{
	struct tsr_err err = { 0 };
	char *name = malloc(5000);

	(void)state;
	assert_non_null(name);
	assert_int_equal(
		tsr_fail(&err, TSR_E_FORMAT, "%s: tensor %s: found %d", "f\n", "\x1b[2J", 7),
		TSR_E_FORMAT);
	assert_int_equal(err.code, TSR_E_FORMAT);
	assert_string_equal(err.msg, "f\\x0a: tensor \\x1b[2J: found 7");
	assert_int_equal(tsr_fail(NULL, TSR_E_LIMIT, "%s", "unseen"), TSR_E_LIMIT);
	for (size_t fill = 0; fill < 3; fill++) {
		static const char *const pieces[] = { "a", "\xc3\xa9", "\x01" };
		const size_t len = strlen(pieces[fill]);

		for (size_t i = 0; i + len < 5000; i += len)
			memcpy(name + i, pieces[fill], len);
		name[4999 / len * len] = '\0';
		tsr_fail(&err, TSR_E_FORMAT, "%s", name);
		assert_non_null(memchr(err.msg, '\0', sizeof(err.msg)));
		assert_null(strchr(err.msg, '\x01'));
		for (const char *s = err.msg; *s; s += unit_length(s))
			;
	}
	free(name);
}

static void test_every_hint_is_worded_by_the_tool(void **state)
{
	struct tsr_err err = { 0 };

	(void)state;
#define X(name, number, text) \
	assert_int_equal(tsr_fail_hint(&err, TSR_E_USAGE, name, "%s", "m"), TSR_E_USAGE); \
	assert_int_equal(err.hint, number); \
	assert_string_equal(err.msg, "m"); \
	assert_string_equal(tsr_hint_text(err.hint), text); \
	assert_int_equal(cli_hint(&err)[0] != '\0', number != 0);
	TSR_HINT_LIST(X)
#undef X
	/* A failure without a hint forgets that of the last one. */
	tsr_fail(&err, TSR_E_USAGE, "%s", "m");
	assert_int_equal(err.hint, TSR_HINT_NONE);
}

static void test_errno_messages(void **state)
{
	struct tsr_err err = { 0 };
	char name[2000];

	(void)state;
	assert_int_equal(tsr_fail_errno(&err, ENOSPC, "%s: cannot write", "out"), TSR_E_IO);
	assert_int_equal(err.code, TSR_E_IO);
	assert_string_equal(err.msg, "out: cannot write: No space left on device");
	/* However long the name, the reason is told. */
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	tsr_fail_errno(&err, ENOSPC, "%s: cannot write", name);
	assert_non_null(strstr(err.msg, "No space left on device"));
	assert_int_equal(tsr_fail_errno(NULL, EIO, "x"), TSR_E_IO);
	assert_int_equal(tsr_fail_nomem(&err, "buffers"), TSR_E_NOMEM);
	assert_string_equal(err.msg, "out of memory for buffers");
}

static void test_every_status_has_its_text(void **state)
{
	(void)state;
#define X(name, number, text) \
	assert_int_equal(name, number); \
	assert_string_equal(tsr_status_text(name), text);
	TSR_STATUS_LIST(X)
#undef X
	assert_string_equal(tsr_status_text((enum tsr_status)1000), "unknown status");
}

/* --- Growing texts -------------------------------------------------------------------------- */

static void test_text_grows(void **state)
{
	struct tsr_text t = { 0 };
	char *want = calloc(1, 200001);
	size_t n = 0;

	(void)state;
	assert_non_null(want);
	for (size_t i = 0; i < 20000; i++) {
		const size_t len = (size_t)sprintf(want + n, "%zu,", i);

		if (i % 3 == 0)
			tsr_text_printf(&t, "%zu,", i);
		else if (i % 3 == 1)
			tsr_text_put(&t, want + n, len);
		else
			tsr_text_puts(&t, want + n);
		n += len;
		assert_int_equal(t.nbytes, n);
		assert_int_equal(t.bytes[n], '\0');
		assert_true(t.room > t.nbytes);
	}
	assert_false(t.failed);
	assert_string_equal(t.bytes, want);
	tsr_text_free(&t);
	assert_null(t.bytes);
	assert_int_equal(t.nbytes, 0);
	free(want);
}

/* Around the sizes at which memory is taken. */
static void test_text_of_every_length(void **state)
{
	static char bytes[1100];

	(void)state;
	memset(bytes, 'x', sizeof(bytes) - 1);
	for (size_t n = 0; n < sizeof(bytes) - 1; n++) {
		struct tsr_text put = { 0 }, printed = { 0 };

		tsr_text_put(&put, bytes, n);
		tsr_text_printf(&printed, "%.*s", (int)n, bytes);
		assert_int_equal(put.nbytes, n);
		assert_int_equal(printed.nbytes, n);
		assert_int_equal(put.bytes[n], '\0');
		assert_int_equal(strlen(printed.bytes), n);
		tsr_text_free(&put);
		tsr_text_free(&printed);
	}
}

static void test_text_with_nul_inside(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	tsr_text_put(&t, "a\0b", 3);
	tsr_text_put(&t, "", 0);
	assert_int_equal(t.nbytes, 3);
	assert_memory_equal(t.bytes, "a\0b", 4);
	tsr_text_free(&t);
}

static void test_a_failed_text_stays_as_it_is(void **state)
{
	struct tsr_text t = { .failed = true };

	(void)state;
	tsr_text_puts(&t, "more");
	tsr_text_printf(&t, "%d", 7);
	assert_true(t.failed);
	assert_int_equal(t.nbytes, 0);
	assert_null(t.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_codepoint_goes_round),
		cmocka_unit_test(test_only_well_formed_sequences_decode),
		cmocka_unit_test(test_what_is_escaped),
		cmocka_unit_test(test_every_control_character),
		cmocka_unit_test(test_truncation_splits_nothing),
		cmocka_unit_test(test_escaped_text_is_safe_whatever_the_bytes),
		cmocka_unit_test(test_messages_are_escaped_and_cut),
		cmocka_unit_test(test_every_hint_is_worded_by_the_tool),
		cmocka_unit_test(test_errno_messages),
		cmocka_unit_test(test_every_status_has_its_text),
		cmocka_unit_test(test_text_grows),
		cmocka_unit_test(test_text_of_every_length),
		cmocka_unit_test(test_text_with_nul_inside),
		cmocka_unit_test(test_a_failed_text_stays_as_it_is),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
