/* SPDX-License-Identifier: Apache-2.0 */
/* Zip archives that lie, that ask for too much, or that hold what is not handled. */
#include "zip_make.h"

#define DATA(text) .data = (text), .nbytes = sizeof(text) - 1
#define LONG_TEXT "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc"

/* --- One record changed --------------------------------------------------------------------- */

enum record { NOTHING, LOCAL, CENTRAL, DESCRIPTOR, END64, LOCATOR, END };

struct change {
	enum record record;
	size_t member;
	size_t field; /* offset in the record */
	unsigned width;
	uint64_t value;
};

static const struct item base[] = {
	{ .name = "first", DATA("1234"), .descriptor = 16, .pad = 10 },
	{ .name = "other", DATA("5678") },
	{ .name = "third", DATA(LONG_TEXT), .deflated = true },
};

static void apply(struct archive *a, const struct change *c)
{
	const size_t at[] = {
		[NOTHING] = 0,
		[LOCAL] = a->local[c->member],
		[CENTRAL] = a->central[c->member],
		[DESCRIPTOR] = a->data[c->member] + base[c->member].nbytes,
		[END64] = a->end64,
		[LOCATOR] = a->locator,
		[END] = a->end,
	};

	set_le(a->bytes + at[c->record] + c->field, c->value, c->width);
}

#define LARGE UINT64_MAX

static void test_records_that_do_not_hold(void **state)
{
	static const struct {
		struct change change[2];
		enum tsr_status status;
		const char *word;
	} rows[] = {
		/* What is not handled. */
		{ { { CENTRAL, 0, 8, 2, 9 }, { LOCAL, 0, 6, 2, 9 } },
		  TSR_E_UNSUPPORTED,
		  "member first: it is encrypted" },
		{ { { CENTRAL, 1, 8, 2, 0x41 } }, TSR_E_UNSUPPORTED, "other: it is encrypted" },
		{ { { CENTRAL, 1, 8, 2, 0x20 } }, TSR_E_UNSUPPORTED, "flags 0x0020" },
		{ { { CENTRAL, 1, 8, 2, 0x2000 } }, TSR_E_UNSUPPORTED, "flags 0x2000" },
		{ { { CENTRAL, 1, 10, 2, 12 }, { LOCAL, 1, 8, 2, 12 } },
		  TSR_E_UNSUPPORTED,
		  "method 12" },
		{ { { CENTRAL, 1, 10, 2, 93 }, { LOCAL, 1, 8, 2, 93 } },
		  TSR_E_UNSUPPORTED,
		  "method 93" },
		{ { { CENTRAL, 1, 10, 2, 9 } }, TSR_E_UNSUPPORTED, "method 9" },
		{ { { CENTRAL, 1, 34, 2, 1 } }, TSR_E_UNSUPPORTED, "disks" },
		{ { { CENTRAL, 1, 34, 2, 0xffff } }, TSR_E_UNSUPPORTED, "disks" },
		{ { { END, 0, 4, 2, 1 } }, TSR_E_UNSUPPORTED, "disks" },
		{ { { END, 0, 6, 2, 1 } }, TSR_E_UNSUPPORTED, "disks" },
		{ { { END, 0, 8, 2, 2 } }, TSR_E_UNSUPPORTED, "disks" },
		{ { { END64, 0, 16, 4, 1 } }, TSR_E_UNSUPPORTED, "disks" },
		{ { { END64, 0, 20, 4, 1 } }, TSR_E_UNSUPPORTED, "disks" },
		{ { { END64, 0, 24, 8, 2 } }, TSR_E_UNSUPPORTED, "disks" },
		{ { { LOCATOR, 0, 4, 4, 1 } }, TSR_E_UNSUPPORTED, "disks" },
		{ { { LOCATOR, 0, 16, 4, 2 } }, TSR_E_UNSUPPORTED, "disks" },
		/* Local headers that say otherwise. */
		{ { { LOCAL, 1, 0, 4, 0 } }, TSR_E_FORMAT, "no local header" },
		{ { { LOCAL, 1, 6, 2, 0x800 } }, TSR_E_FORMAT, "other flags" },
		{ { { LOCAL, 1, 8, 2, 8 } }, TSR_E_FORMAT, "another method" },
		{ { { LOCAL, 1, 30, 1, 'O' } }, TSR_E_FORMAT, "member other: its local header" },
		{ { { LOCAL, 1, 26, 2, 4 } }, TSR_E_FORMAT, "another name" },
		{ { { LOCAL, 1, 28, 2, 0xffff } }, TSR_E_FORMAT, "overlaps" },
		{ { { CENTRAL, 1, 46, 1, 'O' } }, TSR_E_FORMAT, "another name" },
		{ { { DESCRIPTOR, 0, 0, 4, 0 } }, TSR_E_FORMAT, "descriptor" },
		{ { { DESCRIPTOR, 0, 4, 4, 1 } }, TSR_E_FORMAT, "descriptor" },
		{ { { DESCRIPTOR, 0, 8, 4, 5 } }, TSR_E_FORMAT, "descriptor" },
		{ { { DESCRIPTOR, 0, 12, 4, 5 } }, TSR_E_FORMAT, "descriptor" },
		/* Members that share bytes, and bytes of no member. */
		{ { { CENTRAL, 1, 42, 4, 0 } }, TSR_E_FORMAT, "overlaps" },
		{ { { CENTRAL, 1, 42, 4, 1 } }, TSR_E_FORMAT, "overlaps" },
		{ { { CENTRAL, 1, 42, 4, 48 } }, TSR_E_FORMAT, "overlaps" },
		{ { { CENTRAL, 0, 42, 4, 1 } }, TSR_E_FORMAT, "1 bytes before the first" },
		{ { { CENTRAL, 2, 42, 4, 0xfffffffe } }, TSR_E_FORMAT, "offset 4294967294" },
		{ { { CENTRAL, 0, 20, 4, 8 }, { CENTRAL, 0, 24, 4, 8 } },
		  TSR_E_FORMAT,
		  "descriptor" },
		{ { { CENTRAL, 1, 20, 4, 5 }, { CENTRAL, 1, 24, 4, 5 } },
		  TSR_E_FORMAT,
		  "overlaps" },
		{ { { CENTRAL, 1, 20, 4, 3 }, { CENTRAL, 1, 24, 4, 3 } },
		  TSR_E_FORMAT,
		  "found 1 bytes between" },
		{ { { CENTRAL, 1, 20, 4, 0xfffffffe }, { CENTRAL, 1, 24, 4, 0xfffffffe } },
		  TSR_E_FORMAT,
		  "overlaps" },
		{ { { CENTRAL, 1, 24, 4, 5 } }, TSR_E_FORMAT, "stored, but found sizes 4 and 5" },
		/* Values that are elsewhere, and are not there. */
		{ { { CENTRAL, 1, 20, 4, 0xffffffff } }, TSR_E_FORMAT, "zip64 extra field lacks" },
		{ { { CENTRAL, 1, 24, 4, 0xffffffff } }, TSR_E_FORMAT, "zip64 extra field lacks" },
		{ { { CENTRAL, 1, 42, 4, 0xffffffff } }, TSR_E_FORMAT, "zip64 extra field lacks" },
		/* The directory. */
		{ { { CENTRAL, 1, 0, 4, 0 } }, TSR_E_FORMAT, "entry 1: no signature" },
		{ { { CENTRAL, 2, 28, 2, 6 } }, TSR_E_FORMAT, "entry 2: does not fit" },
		{ { { CENTRAL, 2, 32, 2, 1 } }, TSR_E_FORMAT, "entry 2: does not fit" },
		{ { { CENTRAL, 0, 28, 2, 5 + 51 } }, TSR_E_FORMAT, "entry 0: does not fit" },
		{ { { CENTRAL, 2, 28, 2, 4 } }, TSR_E_FORMAT, "1 bytes behind the last" },
		{ { { CENTRAL, 1, 30, 2, 1 } }, TSR_E_FORMAT, "" },
		{ { { END, 0, 16, 4, 1 } }, TSR_E_FORMAT, "says otherwise" },
		{ { { END, 0, 12, 4, 1 } }, TSR_E_FORMAT, "says otherwise" },
		{ { { END, 0, 10, 2, 2 }, { END, 0, 8, 2, 2 } }, TSR_E_FORMAT, "says otherwise" },
		{ { { END64, 0, 0, 4, 0 } }, TSR_E_FORMAT, "wrong signature" },
		{ { { END64, 0, 4, 8, 45 } }, TSR_E_FORMAT, "length" },
		{ { { END64, 0, 4, 8, LARGE } }, TSR_E_FORMAT, "length" },
		{ { { LOCATOR, 0, 8, 8, LARGE } }, TSR_E_FORMAT, "18446744073709551615" },
		{ { { LOCATOR, 0, 8, 8, 0 } }, TSR_E_FORMAT, "locator" },
		{ { { END64, 0, 48, 8, LARGE }, { END, 0, 16, 4, 0xffffffff } },
		  TSR_E_FORMAT,
		  "18446744073709551615" },
		{ { { END64, 0, 40, 8, LARGE }, { END, 0, 12, 4, 0xffffffff } },
		  TSR_E_FORMAT,
		  "18446744073709551615" },
		{ { { END64, 0, 40, 8, 0 }, { END, 0, 12, 4, 0 } }, TSR_E_FORMAT, "to end at" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		static struct archive a;

		build(&a, base, COUNT_OF(base), true);
		apply(&a, &rows[i].change[0]);
		if (rows[i].change[1].record)
			apply(&a, &rows[i].change[1]);
		expect_refused(a.bytes, a.nbytes, rows[i].status, rows[i].word);
	}
}

static void test_counts_that_do_not_hold(void **state)
{
	static const struct {
		uint64_t count;
		enum tsr_status status;
		const char *word;
	} rows[] = {
		{ 0, TSR_E_FORMAT, "behind the last of 0" },
		{ 2, TSR_E_FORMAT, "behind the last of 2" },
		{ 4, TSR_E_FORMAT, "expected 4 members" },
		{ TSR_ZIP_MEMBERS_MAX, TSR_E_FORMAT, "expected 1000000 members" },
		{ TSR_ZIP_MEMBERS_MAX + 1, TSR_E_LIMIT, "limit of 1000000" },
		{ LARGE, TSR_E_LIMIT, "limit of 1000000" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		static struct archive a;

		build(&a, base, COUNT_OF(base), true);
		set_le(a.bytes + a.end64 + 24, rows[i].count, 8);
		set_le(a.bytes + a.end64 + 32, rows[i].count, 8);
		set_le(a.bytes + a.end + 8, 0xffffffff, 4);
		expect_refused(a.bytes, a.nbytes, rows[i].status, rows[i].word);
	}
}

/* --- Names ---------------------------------------------------------------------------------- */

static void test_names(void **state)
{
	static const struct {
		const char *name;
		size_t nbytes;
		enum tsr_status status;
		const char *word;
	} rows[] = {
		{ "../x", 0, TSR_E_FORMAT, "\".\" or \"..\"" },
		{ "a/../x", 0, TSR_E_FORMAT, "\".\" or \"..\"" },
		{ "a/..", 0, TSR_E_FORMAT, "\".\" or \"..\"" },
		{ "..", 0, TSR_E_FORMAT, "\".\" or \"..\"" },
		{ ".", 0, TSR_E_FORMAT, "\".\" or \"..\"" },
		{ "./x", 0, TSR_E_FORMAT, "\".\" or \"..\"" },
		{ "a/./x", 0, TSR_E_FORMAT, "\".\" or \"..\"" },
		{ "/x", 0, TSR_E_FORMAT, "empty component" },
		{ "a//x", 0, TSR_E_FORMAT, "empty component" },
		{ "/", 0, TSR_E_FORMAT, "empty component" },
		{ "a//", 0, TSR_E_FORMAT, "empty component" },
		{ "a/", 0, TSR_E_UNSUPPORTED, "directory" },
		{ "a\\x", 0, TSR_E_FORMAT, "backslash" },
		{ "..\\x", 0, TSR_E_FORMAT, "backslash" },
		{ "a\0x", 3, TSR_E_FORMAT, "NUL" },
		{ "a\0", 2, TSR_E_FORMAT, "NUL" },
		{ "\0", 1, TSR_E_FORMAT, "NUL" },
		{ "\xff", 0, TSR_E_FORMAT, "UTF-8" },
		{ "a\xc3", 0, TSR_E_FORMAT, "UTF-8" },
		{ "\xc0\xae\xc0\xae/x", 0, TSR_E_FORMAT, "UTF-8" }, /* ".." in too many bytes */
		{ "\xed\xa0\x80", 0, TSR_E_FORMAT, "UTF-8" },
		{ "", 0, TSR_E_FORMAT, "empty component" },
		{ "...", 0, TSR_OK, "" },
		{ "..a/.b", 0, TSR_OK, "" },
		{ "a/b c/\xe2\x82\xac", 0, TSR_OK, "" },
		{ "\x1b[31m", 0, TSR_OK, "" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct item item = { .name = rows[i].name, .name_nbytes = rows[i].nbytes };
		static struct archive a;
		struct tsr_zip *z = NULL;
		struct tsr_err err = { 0 };
		struct tsr_file *f;
		int fd;

		build(&a, &item, 1, false);
		fd = memory_file(a.bytes, a.nbytes);
		f = open_fd(fd);
		expect_status(tsr_zip_read(f, 0, a.nbytes, WHERE, &z, &err), rows[i].status, &err,
			      rows[i].word);
		if (z)
			assert_string_equal(z->members[0].name, rows[i].name);
		tsr_zip_free(z);
		tsr_file_close(f);
		close(fd);
	}
}

static void test_duplicate_names(void **state)
{
	static const struct item items[] = { { .name = "b", DATA("1") },
					     { .name = "a", DATA("2") },
					     { .name = "c", DATA("3") },
					     { .name = "a", DATA("2") } };
	static struct archive a;

	(void)state;
	build(&a, items, 4, false);
	expect_refused(a.bytes, a.nbytes, TSR_E_FORMAT, "member a: found twice");
	/* Both entries for the same bytes. */
	set_le(a.bytes + a.central[3] + 42, a.local[1], 4);
	expect_refused(a.bytes, a.nbytes, TSR_E_FORMAT, "member a: found twice");
}

/* Two entries of different names for the same bytes, by a local header in the other's data. */
static void test_a_quoted_overlap(void **state)
{
	static const struct item inner[] = { { .name = "b", DATA("5678") } };
	static struct archive a, b;
	struct item items[] = { { .name = "a" }, { .name = "b", DATA("5678") } };

	(void)state;
	build(&b, inner, 1, false);
	items[0].data = (const char *)b.bytes;
	items[0].nbytes = b.central[0]; /* the local header and data of "b" */
	build(&a, items, 2, false);
	set_le(a.bytes + a.central[1] + 42, a.data[0], 4);
	expect_refused(a.bytes, a.nbytes, TSR_E_FORMAT, "member a: overlaps");
}

/* --- zip64 extra fields --------------------------------------------------------------------- */

/* Escaped values and what stands for them. */
struct extra {
	bool size, stored, offset;
	unsigned char bytes[40];
	size_t nbytes;
};

#define U64(x) \
	(x) & 0xff, (x) >> 8 & 0xff, (x) >> 16 & 0xff, (x) >> 24 & 0xff, (x) >> 32 & 0xff, \
		(x) >> 40 & 0xff, (x) >> 48 & 0xff, (x) >> 56 & 0xff

static void test_zip64_extra_fields(void **state)
{
	static const struct {
		struct extra extra;
		enum tsr_status status;
		const char *word;
	} rows[] = {
		{ { 1, 1, 1, { 1, 0, 24, 0, U64(4ull), U64(4ull), U64(0ull) }, 28 }, TSR_OK, "" },
		{ { 1, 1, 0, { 1, 0, 16, 0, U64(4ull), U64(4ull) }, 20 }, TSR_OK, "" },
		{ { 0, 1, 0, { 1, 0, 8, 0, U64(4ull) }, 12 }, TSR_OK, "" },
		{ { 0, 0, 1, { 1, 0, 8, 0, U64(0ull) }, 12 }, TSR_OK, "" },
		{ { 0, 0, 1, { 'x', 'y', 1, 0, 9, 1, 0, 8, 0, U64(0ull) }, 17 }, TSR_OK, "" },
		{ { 0, 0, 0, { 1, 0, 0, 0 }, 4 }, TSR_OK, "" },
		{ { 0, 0, 1, { 1, 0, 8, 0, U64(LARGE) }, 12 },
		  TSR_E_FORMAT,
		  "offset 18446744073709551615" },
		{ { 0, 0, 1, { 1, 0, 8, 0, U64(LARGE - 29) }, 12 }, TSR_E_FORMAT, "offset" },
		{ { 1, 1, 0, { 1, 0, 16, 0, U64(LARGE), U64(LARGE) }, 20 },
		  TSR_E_FORMAT,
		  "overlaps" },
		{ { 1, 1, 0, { 1, 0, 16, 0, U64(LARGE - 30), U64(LARGE - 30) }, 20 },
		  TSR_E_FORMAT,
		  "overlaps" },
		{ { 1, 1, 0, { 1, 0, 16, 0, U64(1ull << 63), U64(1ull << 63) }, 20 },
		  TSR_E_FORMAT,
		  "overlaps" },
		{ { 1, 1, 1, { 1, 0, 16, 0, U64(4ull), U64(4ull) }, 20 }, TSR_E_FORMAT, "lacks" },
		{ { 1, 1, 0, { 1, 0, 12, 0, U64(4ull), 4, 0, 0, 0 }, 16 }, TSR_E_FORMAT, "lacks" },
		{ { 0, 0, 0, { 1, 0, 8, 0, U64(4ull) }, 12 }, TSR_E_FORMAT, "8 bytes too many" },
		{ { 1, 1, 0, { 1, 0, 20, 0, U64(4ull), U64(4ull) }, 24 },
		  TSR_E_FORMAT,
		  "4 bytes too many" },
		{ { 0, 0, 1, { 1, 0, 8, 0, U64(0ull), 1, 0, 8, 0, U64(9ull) }, 24 },
		  TSR_E_FORMAT,
		  "two zip64" },
		{ { 0, 0, 1, { 1, 0, 9, 0, U64(0ull) }, 12 }, TSR_E_FORMAT, "extra fields" },
		{ { 0, 0, 0, { 'x', 'y', 0 }, 3 }, TSR_E_FORMAT, "extra fields" },
		{ { 0, 0, 0, { 'x', 'y', 0xff, 0xff }, 4 }, TSR_E_FORMAT, "extra fields" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct extra *x = &rows[i].extra;
		const struct item item = {
			.name = "m", DATA("1234"), .extra = x->bytes, .extra_nbytes = x->nbytes
		};
		static struct archive a;
		struct tsr_zip *z = NULL;
		struct tsr_err err = { 0 };
		struct tsr_file *f;
		int fd;

		build(&a, &item, 1, true);
		if (x->stored)
			set_le(a.bytes + a.central[0] + 20, 0xffffffff, 4);
		if (x->size)
			set_le(a.bytes + a.central[0] + 24, 0xffffffff, 4);
		if (x->offset)
			set_le(a.bytes + a.central[0] + 42, 0xffffffff, 4);
		fd = memory_file(a.bytes, a.nbytes);
		f = open_fd(fd);
		expect_status(tsr_zip_read(f, 0, a.nbytes, WHERE, &z, &err), rows[i].status, &err,
			      rows[i].word);
		if (z)
			assert_true(z->members[0].nbytes == 4 && z->members[0].offset == 31);
		tsr_zip_free(z);
		tsr_file_close(f);
		close(fd);
	}
}

/* --- Limits --------------------------------------------------------------------------------- */

/* What deflated members are said to inflate to: each a pair of stored and full size. */
static void expect_sizes(const uint64_t (*sizes)[2], size_t n, const char *word)
{
	unsigned char extra[4][20];
	struct item items[4];
	static struct archive a;

	for (size_t i = 0; i < n; i++) {
		static const char *const names[] = { "a", "b", "c", "d" };

		set_le(extra[i], 0x00100001, 4);
		set_le(extra[i] + 4, sizes[i][1], 8);
		set_le(extra[i] + 12, sizes[i][0], 8);
		items[i] = (struct item){ .name = names[i],
					  DATA(LONG_TEXT),
					  .deflated = true,
					  .extra = extra[i],
					  .extra_nbytes = sizeof(extra[i]) };
	}
	build(&a, items, n, false);
	for (size_t i = 0; i < n; i++) {
		set_le(a.bytes + a.central[i] + 20, 0xffffffff, 4);
		set_le(a.bytes + a.central[i] + 24, 0xffffffff, 4);
	}
	/* What is within the limits goes wrong later: the file is not that large. */
	expect_refused(a.bytes, a.nbytes, *word ? TSR_E_LIMIT : TSR_E_FORMAT,
		       *word ? word : "overlaps");
}

static void test_limits_on_inflating(void **state)
{
	static const uint64_t gib = UINT64_C(1) << 30;
	const uint64_t rows[][3][2] = {
		{ { 1000, 1032 * 1000 + 64 } },
		{ { 1000, 1032 * 1000 + 65 } },
		{ { 0, 65 } },
		{ { UINT64_MAX / 1032 + 1, UINT64_MAX } },
		{ { UINT64_MAX, UINT64_MAX } },
		{ { gib, 64 * gib } },
		{ { gib, 64 * gib + 1 } },
		{ { gib, 32 * gib }, { gib, 32 * gib } },
		{ { gib, 32 * gib }, { gib, 32 * gib }, { 100, 1 } },
	};
	static const char *const words[] = {
		"", "1032:1",	   "1032:1", "68719476736", "68719476736",
		"", "68719476736", "",	     "68719476736",
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		expect_sizes(rows[i], rows[i][2][1] ? 3 : rows[i][1][1] ? 2 : 1, words[i]);
}

static void test_a_directory_that_is_too_large(void **state)
{
	const uint64_t sizes[] = { TSR_ZIP_DIRECTORY_MAX, TSR_ZIP_DIRECTORY_MAX + 1 };
	struct item none = { 0 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		const int fd = memory_file("", 0);
		static struct archive a;
		struct tsr_zip *z = NULL;
		struct tsr_err err = { 0 };
		struct tsr_file *f;

		build(&a, &none, 0, false);
		set_le(a.bytes + a.end + 12, sizes[i], 4);
		assert_int_equal(pwrite(fd, a.bytes, a.nbytes, (off_t)sizes[i]), a.nbytes);
		f = open_fd(fd);
		expect_status(tsr_zip_read(f, 0, tsr_file_size(f), WHERE, &z, &err),
			      i ? TSR_E_LIMIT : TSR_E_FORMAT, &err,
			      i ? "limit of 268435456" : "behind the last of 0");
		tsr_file_close(f);
		close(fd);
	}
}

/* --- Contents ------------------------------------------------------------------------------- */

/* @spoil: what is wrong with the archive's bytes. */
static void expect_no_contents(const struct archive *a, enum tsr_status want, const char *word)
{
	const int fd = memory_file(a->bytes, a->nbytes);
	struct tsr_file *f = open_fd(fd), *scratch = NULL;
	struct tsr_zip *z = read_ok(f);
	struct tsr_err err = { 0 };
	void *bytes = NULL;
	char byte;

	expect_status(tsr_zip_load(f, &z->members[0], 1 << 20, WHERE, &bytes, &err), want, &err,
		      word);
	assert_null(bytes);
	if (want != TSR_E_LIMIT) {
		assert_int_equal(tsr_zip_inflated(f, &z->members[0], WHERE, &scratch, NULL), TSR_OK);
		expect_status(tsr_file_read(scratch, &byte, 1, 0, &err), want, &err, word);
		tsr_file_close(scratch);
	}
	tsr_zip_free(z);
	tsr_file_close(f);
	close(fd);
}

static void test_contents_that_do_not_hold(void **state)
{
	static const struct item stored = { .name = "m", DATA("1234") };
	static const struct item deflated = { .name = "m", DATA(LONG_TEXT), .deflated = true };
	static struct archive a;
	const size_t n = sizeof(LONG_TEXT) - 1;

	(void)state;
	build(&a, &stored, 1, false);
	a.bytes[a.data[0]]++;
	expect_no_contents(&a, TSR_E_FORMAT, "member m: found CRC-32");
	build(&a, &deflated, 1, false);
	set_le(a.bytes + a.central[0] + 16, 1, 4);
	expect_no_contents(&a, TSR_E_FORMAT, "expected 00000001");
	build(&a, &deflated, 1, false);
	set_le(a.bytes + a.central[0] + 24, n - 1, 4);
	expect_no_contents(&a, TSR_E_FORMAT, "found more than 71 bytes");
	set_le(a.bytes + a.central[0] + 24, 0, 4);
	expect_no_contents(&a, TSR_E_FORMAT, "found more than 0 bytes");
	set_le(a.bytes + a.central[0] + 24, n + 1, 4);
	expect_no_contents(&a, TSR_E_FORMAT, "found 72 bytes after inflating, expected 73");
	build(&a, &deflated, 1, false);
	a.bytes[a.data[0]] |= 6; /* a block of the reserved type */
	expect_no_contents(&a, TSR_E_FORMAT, "invalid block type");
}

/* The deflated data is a part of what the member holds, or the other way round. */
static void test_deflated_data_of_another_length(void **state)
{
	static struct archive a;
	unsigned char data[200];
	const size_t n = deflate_raw(LONG_TEXT, sizeof(LONG_TEXT) - 1, data, sizeof(data));

	(void)state;
	for (int more = -1; more <= 1; more += 2) {
		struct item item = { .name = "m", .data = (char *)data };

		item.nbytes = n + (size_t)more;
		build(&a, &item, 1, false);
		set_le(a.bytes + a.local[0] + 8, 8, 2);
		set_le(a.bytes + a.central[0] + 10, 8, 2);
		set_le(a.bytes + a.central[0] + 16, zlib_crc(LONG_TEXT, sizeof(LONG_TEXT) - 1), 4);
		set_le(a.bytes + a.central[0] + 24, sizeof(LONG_TEXT) - 1, 4);
		expect_no_contents(&a, TSR_E_FORMAT,
				   more < 0 ? "end too early" : "bytes behind its end");
	}
}

static void test_a_bomb(void **state)
{
	static char zeros[4 << 20];
	static struct archive a;
	struct item item = {
		.name = "m", .data = zeros, .nbytes = sizeof(zeros), .deflated = true
	};

	(void)state;
	build(&a, &item, 1, false);
	expect_no_contents(&a, TSR_E_LIMIT, "4194304 bytes are over the limit of 1048576");
	/* Said to be smaller than it is: nothing past what was said is kept. */
	set_le(a.bytes + a.central[0] + 24, 1000, 4);
	expect_no_contents(&a, TSR_E_FORMAT, "found more than 1000 bytes");
}

/* The writer left it out: the contents are what they are. */
static void test_no_crc(void **state)
{
	static const struct item item = { .name = "m", DATA("1234") };
	static struct archive a;
	struct tsr_file *f;
	struct tsr_zip *z;
	void *bytes = NULL;
	int fd;

	(void)state;
	build(&a, &item, 1, false);
	set_le(a.bytes + a.central[0] + 16, 0, 4);
	fd = memory_file(a.bytes, a.nbytes);
	f = open_fd(fd);
	z = read_ok(f);
	assert_false(z->members[0].has_crc);
	assert_int_equal(tsr_zip_load(f, &z->members[0], 4, WHERE, &bytes, NULL), TSR_OK);
	assert_memory_equal(bytes, "1234", 4);
	free(bytes);
	tsr_zip_free(z);
	tsr_file_close(f);
	close(fd);
}

/* The file shrinks after its directory was read. */
static void test_a_file_that_is_cut_meanwhile(void **state)
{
	static const struct item items[] = {
		{ .name = "d", DATA(LONG_TEXT), .deflated = true },
		{ .name = "s", DATA("1234") },
	};
	static struct archive a;
	struct tsr_file *f, *scratch = NULL;
	struct tsr_zip *z;
	void *bytes = NULL;
	size_t got;
	int fd;

	(void)state;
	build(&a, items, 2, false);
	fd = memory_file(a.bytes, a.nbytes);
	f = open_fd(fd);
	z = read_ok(f);
	assert_int_equal(ftruncate(fd, (off_t)a.data[0] + 2), 0);
	for (size_t i = 0; i < 2; i++) {
		const struct tsr_zip_member *m = &z->members[i];
		char buf[4];

		assert_int_equal(tsr_zip_load(f, m, 100, WHERE, &bytes, NULL), TSR_E_IO);
		assert_int_equal(tsr_zip_peek(f, m, buf, 4, &got, WHERE, NULL), TSR_E_IO);
		assert_int_equal(tsr_zip_inflated(f, m, WHERE, &scratch, NULL), TSR_OK);
		assert_int_equal(tsr_file_read(scratch, buf, 4, 0, NULL), TSR_E_IO);
		tsr_file_close(scratch);
	}
	tsr_zip_free(z);
	tsr_file_close(f);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records_that_do_not_hold),
		cmocka_unit_test(test_counts_that_do_not_hold),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_duplicate_names),
		cmocka_unit_test(test_a_quoted_overlap),
		cmocka_unit_test(test_zip64_extra_fields),
		cmocka_unit_test(test_limits_on_inflating),
		cmocka_unit_test(test_a_directory_that_is_too_large),
		cmocka_unit_test(test_contents_that_do_not_hold),
		cmocka_unit_test(test_deflated_data_of_another_length),
		cmocka_unit_test(test_a_bomb),
		cmocka_unit_test(test_no_crc),
		cmocka_unit_test(test_a_file_that_is_cut_meanwhile),
	};

	return cmocka_run_group_tests_name("zip refused", tests, NULL, NULL);
}
