/* SPDX-License-Identifier: Apache-2.0 */
/* Zip archives: what other writers make is read, and what can be read in two ways is refused. */
#include "zip_make.h"
#include "zip_samples.h"

/* --- What is in an archive ------------------------------------------------------------------ */

static void *load_ok(const struct tsr_file *f, const struct tsr_zip_member *m)
{
	struct tsr_err err = { 0 };
	void *bytes = NULL;

	if (tsr_zip_load(f, m, UINT64_MAX, WHERE, &bytes, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return bytes;
}

/* By each of the three ways. */
static void expect_contents(const struct tsr_file *f, const struct tsr_zip_member *m,
			    const void *want, size_t n)
{
	struct tsr_file *scratch = NULL;
	unsigned char *bytes = load_ok(f, m), *peeked = malloc(n + 1), *inflated = malloc(n + 1);
	size_t got = 0;

	assert_true(m->nbytes == n);
	assert_memory_equal(bytes, want, n);
	assert_int_equal(tsr_zip_peek(f, m, peeked, n + 1, &got, WHERE, NULL), TSR_OK);
	assert_int_equal(got, n);
	assert_memory_equal(peeked, want, n);
	for (size_t some = 0; some < n && some < 3; some++) {
		assert_int_equal(tsr_zip_peek(f, m, peeked, some, &got, WHERE, NULL), TSR_OK);
		assert_int_equal(got, some);
		assert_memory_equal(peeked, want, some);
	}
	assert_int_equal(tsr_zip_inflated(f, m, WHERE, &scratch, NULL), TSR_OK);
	assert_true(tsr_file_size(scratch) == n);
	assert_int_equal(tsr_file_read(scratch, inflated, n, 0, NULL), TSR_OK);
	assert_memory_equal(inflated, want, n);
	tsr_file_close(scratch);
	free(inflated);
	free(peeked);
	free(bytes);
}

static void expect_items(const struct tsr_file *f, const struct item *items, size_t n)
{
	struct tsr_zip *z = read_ok(f);

	assert_int_equal(z->nmembers, n);
	for (size_t i = 0; i < n; i++) {
		const struct tsr_zip_member *m = &z->members[i];

		assert_string_equal(m->name, items[i].name);
		assert_ptr_equal(tsr_zip_find(z, items[i].name), m);
		assert_int_equal(m->deflated, items[i].deflated);
		assert_true(m->has_crc);
		assert_int_equal(m->crc, zlib_crc(items[i].data, items[i].nbytes));
		expect_contents(f, m, items[i].data ? items[i].data : "", items[i].nbytes);
	}
	for (size_t i = 1; i < n; i++)
		assert_true(strcmp(z->by_name[i - 1].name, z->by_name[i].name) < 0);
	assert_null(tsr_zip_find(z, "no such member"));
	assert_null(tsr_zip_find(z, ""));
	tsr_zip_free(z);
}

#define DATA(text) .data = (text), .nbytes = sizeof(text) - 1
#define LONG_TEXT "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc"

/* As torch writes. */
static const struct item torch_like[] = {
	{ .name = "a/data.pkl", DATA("pickle"), .flags = 0x800, .descriptor = 16, .pad = 24 },
	{ .name = "a/data/0", .flags = 0x800, .pad = 30 },
	{ .name = "a/data/1", DATA("12345"), .flags = 0x800, .descriptor = 16, .pad = 4 },
	{ .name = "a/version", DATA("3\n"), .flags = 0x800, .descriptor = 24, .pad = 63 },
};

/* As others may. */
static const struct item others[] = {
	{ .name = "z", DATA(LONG_TEXT), .deflated = true },
	{ .name = "dir/\xc3\xa9", DATA("utf-8"), .flags = 0x800 },
	{ .name = "y", .deflated = true, .flags = 0x2, .descriptor = 20 },
	{ .name = "x", DATA("no signature"), .descriptor = 12 },
};

static void test_members_of_every_kind(void **state)
{
	static const struct {
		const struct item *items;
		size_t n;
	} rows[] = { { torch_like, 4 }, { others, 4 }, { torch_like, 1 }, { NULL, 0 } };

	(void)state;
	for (size_t i = 0; i < 2 * COUNT_OF(rows); i++) {
		static struct archive a;
		struct tsr_file *f;
		int fd;

		build(&a, rows[i / 2].items, rows[i / 2].n, i % 2);
		fd = memory_file(a.bytes, a.nbytes);
		f = open_fd(fd);
		expect_items(f, rows[i / 2].items, rows[i / 2].n);
		tsr_file_close(f);
		close(fd);
	}
}

/* Offsets count from where the archive starts; what is around it is not looked at. */
static void test_an_archive_inside_a_file(void **state)
{
	static unsigned char bytes[65536];
	static struct archive a;
	struct tsr_err err = { 0 };
	struct tsr_zip *z = NULL;
	struct tsr_file *f;
	void *data;
	int fd;

	(void)state;
	build(&a, torch_like, 4, true);
	memset(bytes, 'P', sizeof(bytes));
	memcpy(bytes + 12345, a.bytes, a.nbytes);
	memcpy(bytes + 12345 + a.nbytes, a.bytes, a.nbytes);
	fd = memory_file(bytes, sizeof(bytes));
	f = open_fd(fd);
	assert_int_equal(tsr_zip_read(f, 12345, a.nbytes, WHERE, &z, &err), TSR_OK);
	assert_true(tsr_zip_find(z, "a/data/1")->offset == 12345 + a.data[2]);
	data = load_ok(f, tsr_zip_find(z, "a/data/1"));
	assert_memory_equal(data, "12345", 5);
	free(data);
	tsr_zip_free(z);
	z = NULL;
	assert_int_equal(tsr_zip_read(f, 12344, a.nbytes + 1, WHERE, &z, NULL), TSR_E_FORMAT);
	assert_int_equal(tsr_zip_read(f, 12345, a.nbytes + 1, WHERE, &z, NULL), TSR_E_FORMAT);
	assert_int_equal(tsr_zip_read(f, 12345, 2 * a.nbytes, WHERE, &z, NULL), TSR_E_FORMAT);
	expect_status(tsr_zip_read(f, 0, sizeof(bytes) + 1, WHERE, &z, &err), TSR_E_FORMAT, &err,
		      "expected a zip archive of");
	expect_status(tsr_zip_read(f, 12345, sizeof(bytes) - 12345 + 1, WHERE, &z, &err),
		      TSR_E_FORMAT, &err, "expected a zip archive of");
	expect_status(tsr_zip_read(f, UINT64_MAX, 2, WHERE, &z, &err), TSR_E_FORMAT, &err,
		      "expected a zip archive of");
	assert_null(z);
	tsr_file_close(f);
	close(fd);
}

/* More than is read or inflated at a time. */
static void test_large_members(void **state)
{
	static char data[(5 << 19) + 1];
	static struct archive a;
	uint64_t random = 1;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(random_u32(&random) & 127);
	for (int deflated = 0; deflated < 2; deflated++) {
		const struct item items[] = {
			{ .name = "before", DATA("12") },
			{ .name = "m", .data = data, .nbytes = sizeof(data), .deflated = deflated },
		};
		struct tsr_file *f;
		int fd;

		build(&a, items, 2, false);
		fd = memory_file(a.bytes, a.nbytes);
		f = open_fd(fd);
		expect_items(f, items, 2);
		tsr_file_close(f);
		close(fd);
	}
}

/* Of no bytes, but with the flag of a descriptor. */
static void test_an_empty_member_needs_no_descriptor(void **state)
{
	static const struct item items[] = { { .name = "a", .flags = 8 },
					     { .name = "b", DATA("1") } };
	static const struct item full[] = { { .name = "a", DATA("1"), .flags = 8 },
					    { .name = "b", DATA("1") } };
	static struct archive a;
	struct tsr_file *f;
	int fd;

	(void)state;
	build(&a, items, 2, false);
	fd = memory_file(a.bytes, a.nbytes);
	f = open_fd(fd);
	expect_items(f, items, 2);
	tsr_file_close(f);
	close(fd);
	build(&a, full, 2, false);
	expect_refused(a.bytes, a.nbytes, TSR_E_FORMAT, "expected a data descriptor");
}

static void test_the_order_of_the_directory_is_kept(void **state)
{
	static const struct item items[] = { { .name = "b", DATA("1") },
					     { .name = "a", DATA("2") } };
	static const struct item turned[] = { { .name = "a", DATA("2") },
					      { .name = "b", DATA("1") } };
	static struct archive a;
	unsigned char entry[47];
	struct tsr_file *f;
	int fd;

	(void)state;
	build(&a, items, 2, false);
	memcpy(entry, a.bytes + a.central[0], sizeof(entry));
	memcpy(a.bytes + a.central[0], a.bytes + a.central[1], sizeof(entry));
	memcpy(a.bytes + a.central[1], entry, sizeof(entry));
	fd = memory_file(a.bytes, a.nbytes);
	f = open_fd(fd);
	expect_items(f, turned, 2);
	tsr_file_close(f);
	close(fd);
}

/* --- Archives of other writers -------------------------------------------------------------- */

static void test_samples(void **state)
{
	static const struct item torch[] = {
		{ .name = "archive/data.pkl" },
		{ .name = "archive/data/0" },
		{ .name = "archive/data/1", DATA("\a") },
		{ .name = "archive/version", DATA("3\n") },
	};
	static const struct item stream[] = {
		{ .name = "stored", DATA("hello") },
		{ .name = "d/\xc3\xa9",
		  DATA("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
		  .deflated = true },
	};
	const int fds[] = { memory_file(torch_sample, sizeof(torch_sample)),
			    memory_file(numpy_sample, sizeof(numpy_sample)),
			    memory_file(stream_sample, sizeof(stream_sample)) };
	struct tsr_file *f = open_fd(fds[0]);
	struct tsr_zip *z = read_ok(f);
	char *bytes = load_ok(f, &z->members[0]);

	(void)state;
	assert_int_equal(z->nmembers, 4);
	assert_memory_equal(bytes, "\x80\x02]q", 4);
	for (size_t i = 0; i < COUNT_OF(torch); i++) {
		assert_string_equal(z->members[i].name, torch[i].name);
		assert_int_equal(z->members[i].offset % 64, 0);
		if (i)
			expect_contents(f, &z->members[i], torch[i].data ? torch[i].data : "",
					torch[i].nbytes);
	}
	free(bytes);
	tsr_zip_free(z);
	tsr_file_close(f);

	f = open_fd(fds[1]);
	z = read_ok(f);
	bytes = load_ok(f, tsr_zip_find(z, "a.npy"));
	assert_int_equal(z->members[0].nbytes, 228);
	assert_memory_equal(bytes, "\x93NUMPY\x01", 7);
	for (size_t i = 128; i < 228; i++)
		assert_int_equal(bytes[i], 0);
	free(bytes);
	tsr_zip_free(z);
	tsr_file_close(f);

	f = open_fd(fds[2]);
	expect_items(f, stream, COUNT_OF(stream));
	tsr_file_close(f);
	for (size_t i = 0; i < COUNT_OF(fds); i++)
		close(fds[i]);
}

/* --- Damage --------------------------------------------------------------------------------- */

/* What a change of one bit may lead to. */
enum fate {
	REFUSED, /* by tsr_zip_read() or tsr_zip_load() */
	HARMLESS, /* the byte means nothing to us */
	EITHER, /* deflated data, whose last bits can be idle */
};

static void mark(enum fate *fates, size_t at, size_t n, enum fate fate)
{
	for (size_t i = 0; i < n; i++)
		fates[at + i] = fate;
}

/* Versions, times, attributes, the local copies of sizes and CRC, local extra fields, a comment. */
static void mark_fates(const unsigned char *b, size_t n, enum fate *fates)
{
	size_t end = n - 22, at;

	while (get_le(b + end, 4) != 0x06054b50)
		end--;
	mark(fates, 0, n, REFUSED);
	mark(fates, end + 22, n - end - 22, HARMLESS);
	if (get_le(b + end - 20, 4) == 0x07064b50)
		mark(fates, end - 20 - 56 + 12, 4, HARMLESS);
	at = get_le(b + end + 16, 4);
	for (uint64_t left = get_le(b + end + 10, 2); left; left--) {
		const size_t local = get_le(b + at + 42, 4), name = get_le(b + local + 26, 2),
			     extra = get_le(b + local + 28, 2);

		mark(fates, at + 4, 4, HARMLESS);
		mark(fates, at + 12, 4, HARMLESS);
		mark(fates, at + 36, 6, HARMLESS);
		mark(fates, local + 4, 2, HARMLESS);
		mark(fates, local + 10, 16, HARMLESS);
		mark(fates, local + 30 + name, extra, HARMLESS);
		if (b[at + 10] == 8)
			mark(fates, local + 30 + name + extra, get_le(b + at + 20, 4), EITHER);
		at += 46 + name + get_le(b + at + 30, 2) + get_le(b + at + 32, 2);
	}
}

/* Whether everything can be had; it must then be what it was. */
static bool is_accepted(const struct tsr_file *f, const struct tsr_zip *was, void *const *contents)
{
	struct tsr_zip *z = NULL;
	bool ok = tsr_zip_read(f, 0, tsr_file_size(f), WHERE, &z, NULL) == TSR_OK;

	if (!ok)
		return false;
	assert_int_equal(z->nmembers, was->nmembers);
	for (size_t i = 0; i < z->nmembers && ok; i++) {
		const struct tsr_zip_member *m = &z->members[i];
		void *bytes = NULL;

		assert_string_equal(m->name, was->members[i].name);
		ok = tsr_zip_load(f, m, 1 << 20, WHERE, &bytes, NULL) == TSR_OK;
		if (ok) {
			assert_true(m->nbytes == was->members[i].nbytes);
			assert_memory_equal(bytes, contents[i], m->nbytes);
		}
		free(bytes);
	}
	tsr_zip_free(z);
	return ok;
}

static void flip_bits(int fd, const unsigned char *bytes, size_t n)
{
	static enum fate fates[32768];
	struct tsr_file *f = open_fd(fd);
	struct tsr_zip *was = read_ok(f);
	void *contents[ITEMS_MAX] = { 0 };

	for (size_t i = 0; i < was->nmembers; i++)
		contents[i] = load_ok(f, &was->members[i]);
	mark_fates(bytes, n, fates);
	for (size_t bit = 0; bit < 8 * n; bit++) {
		const unsigned char flipped = (unsigned char)(bytes[bit / 8] ^ 1 << bit % 8);
		bool accepted;

		assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
		accepted = is_accepted(f, was, contents);
		if (fates[bit / 8] != EITHER && accepted != (fates[bit / 8] == HARMLESS))
			fail_msg("byte %zu, bit %zu: %s", bit / 8, bit % 8,
				 accepted ? "accepted" : "refused");
		assert_int_equal(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
	}
	assert_true(is_accepted(f, was, contents));
	for (size_t i = 0; i < was->nmembers; i++)
		free(contents[i]);
	tsr_zip_free(was);
	tsr_file_close(f);
}

static void damage(const unsigned char *bytes, size_t n)
{
	int fd = memory_file(bytes, n);

	flip_bits(fd, bytes, n);
	close(fd);
	for (size_t cut = 0; cut < n; cut++)
		expect_refused(bytes, cut, TSR_E_FORMAT, "");
}

static void test_every_bit_flip_and_truncation(void **state)
{
	static struct archive a;

	(void)state;
	build(&a, torch_like, 4, true);
	damage(a.bytes, a.nbytes);
	build(&a, others, 4, false);
	damage(a.bytes, a.nbytes);
	damage(torch_sample, sizeof(torch_sample));
	damage(numpy_sample, sizeof(numpy_sample));
	damage(stream_sample, sizeof(stream_sample));
}

static void test_bytes_before_and_behind(void **state)
{
	static unsigned char bytes[33000];
	static struct archive a;

	(void)state;
	for (int zip64 = 0; zip64 < 2; zip64++) {
		build(&a, torch_like, 4, zip64);
		for (size_t n = 1; n < 40; n++) {
			memset(bytes, 0, sizeof(bytes));
			memcpy(bytes + n, a.bytes, a.nbytes);
			expect_refused(bytes, n + a.nbytes, TSR_E_FORMAT, "");
			expect_refused(bytes + n, n + a.nbytes, TSR_E_FORMAT, "no end");
		}
	}
	/* The same with offsets that know of what is before. */
	build(&a, torch_like, 1, false);
	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes + 10, a.bytes, a.nbytes);
	set_le(bytes + 10 + a.end + 16, get_le(a.bytes + a.end + 16, 4) + 10, 4);
	set_le(bytes + 10 + a.central[0] + 42, 10, 4);
	expect_refused(bytes, 10 + a.nbytes, TSR_E_FORMAT, "found 10 bytes before the first");
}

/* An archive hidden in a comment: a reader that searches from the back finds that one. */
static void test_two_ends(void **state)
{
	static const struct item other[] = { { .name = "evil", DATA("evil") } };
	static struct archive a, b;
	size_t end;

	(void)state;
	build(&a, torch_like, 4, false);
	build(&b, other, 1, false);
	end = a.nbytes;
	set_le(a.bytes + a.end + 20, b.nbytes, 2);
	put_bytes(&a, b.bytes, b.nbytes);
	expect_refused(a.bytes, a.nbytes, TSR_E_FORMAT, "two ends");
	/* All offsets of the second right. */
	set_le(a.bytes + end + b.central[0] + 42, end, 4);
	set_le(a.bytes + end + b.end + 16, end + b.central[0], 4);
	expect_refused(a.bytes, a.nbytes, TSR_E_FORMAT, "two ends");
	/* The first is but data to the second. */
	set_le(a.bytes + a.end + 20, b.nbytes - 1, 2);
	expect_refused(a.bytes, a.nbytes, TSR_E_FORMAT, "bytes before the first");
	/* The signature alone, which breaks readers that do not look at the length. */
	for (size_t behind = 0; behind < 30; behind++) {
		build(&a, torch_like, 4, false);
		set_le(a.bytes + a.end + 20, 4 + behind, 2);
		put_le(&a, 0x06054b50, 4);
		for (size_t i = 0; i < behind; i++)
			put_le(&a, 0, 1);
		expect_refused(a.bytes, a.nbytes, TSR_E_FORMAT, "two ends");
	}
}

static void test_the_signature_of_the_end_in_data(void **state)
{
	static const struct item items[] = {
		{ .name = "a", DATA("PK\5\6, and more than the 22 bytes of an end record") },
	};
	static struct archive a;
	struct tsr_file *f;
	int fd;

	(void)state;
	build(&a, items, 1, false);
	fd = memory_file(a.bytes, a.nbytes);
	f = open_fd(fd);
	expect_items(f, items, 1);
	tsr_file_close(f);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members_of_every_kind),
		cmocka_unit_test(test_an_archive_inside_a_file),
		cmocka_unit_test(test_large_members),
		cmocka_unit_test(test_an_empty_member_needs_no_descriptor),
		cmocka_unit_test(test_the_order_of_the_directory_is_kept),
		cmocka_unit_test(test_samples),
		cmocka_unit_test(test_every_bit_flip_and_truncation),
		cmocka_unit_test(test_bytes_before_and_behind),
		cmocka_unit_test(test_two_ends),
		cmocka_unit_test(test_the_signature_of_the_end_in_data),
	};

	return cmocka_run_group_tests_name("zip", tests, NULL, NULL);
}
