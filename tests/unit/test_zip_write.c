/* SPDX-License-Identifier: Apache-2.0 */
/* Zip archives that are written, and large ones of any writer, which are mostly holes here. */
#include <fcntl.h>
#include <sys/stat.h>

#include "zip_make.h"

static char dir[] = "/tmp/tersor-zip-XXXXXX";

static int enter_dir(void **state)
{
	(void)state;
	return !mkdtemp(dir) || chdir(dir) != 0;
}

static int leave_dir(void **state)
{
	(void)state;
	return chdir("/") != 0 || rmdir(dir) != 0;
}

/* Lay out, write the headers and what data there is, and open the result, whose name is removed. */
static struct tsr_file *write_archive(struct tsr_zip_entry *entries, size_t n,
				      const char *const *data, uint64_t *nbytes_ret)
{
	struct tsr_outfile *out = NULL;
	struct tsr_file *f = NULL;
	struct tsr_err err = { 0 };

	*nbytes_ret = tsr_zip_layout(entries, n);
	assert_int_equal(tsr_outfile_create("out.zip", true, 0, &out, &err), TSR_OK);
	for (size_t i = 0; data && i < n; i++) {
		const size_t nbytes = (size_t)entries[i].nbytes;

		if (!data[i])
			continue;
		entries[i].crc = zlib_crc(data[i], nbytes);
		assert_int_equal(tsr_outfile_write(out, data[i], nbytes, entries[i].offset, &err),
				 TSR_OK);
	}
	if (tsr_zip_write_headers(out, 0, entries, n, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	assert_int_equal(tsr_outfile_publish(&out, &err), TSR_OK);
	assert_int_equal(tsr_file_open("out.zip", &f, &err), TSR_OK);
	assert_int_equal(unlink("out.zip"), 0);
	assert_true(tsr_file_size(f) == *nbytes_ret);
	return f;
}

static void expect_entries(const struct tsr_file *f, const struct tsr_zip_entry *entries, size_t n)
{
	struct tsr_zip *z = read_ok(f);

	assert_int_equal(z->nmembers, n);
	for (size_t i = 0; i < n; i++) {
		const struct tsr_zip_member *m = &z->members[i];

		assert_string_equal(m->name, entries[i].name);
		assert_true(m->offset == entries[i].offset);
		assert_true(m->nbytes == entries[i].nbytes);
		assert_true(m->stored_nbytes == entries[i].nbytes);
		assert_int_equal(m->crc, entries[i].crc);
		assert_false(m->deflated);
		assert_true(m->offset % entries[i].align == 0);
		assert_ptr_equal(tsr_zip_find(z, entries[i].name), m);
	}
	tsr_zip_free(z);
}

/* Byte for byte, as the specification of the format says. */
static void test_the_bytes_of_an_archive(void **state)
{
	static const unsigned char want[] =
		/* Local header: version 1.0, UTF-8, stored, 1980-01-01. */
		"PK\3\4\x0a\0\0\x08\0\0\0\0\x21\0\x3d\x45\x42\xf1\5\0\0\0\5\0\0\0\x0b\0\x17\0"
		"sd/data.pkl"
		"FB\x13\0ZZZZZZZZZZZZZZZZZZZ"
		"pickl"
		/* Central header. */
		"PK\1\2\x2d\0\x0a\0\0\x08\0\0\0\0\x21\0\x3d\x45\x42\xf1\5\0\0\0\5\0\0\0\x0b\0\0\0"
		"\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
		"sd/data.pkl"
		/* End. */
		"PK\5\6\0\0\0\0\1\0\1\0\x39\0\0\0\x45\0\0\0\0";
	static const char *const data[] = { "pickl" };
	struct tsr_zip_entry entry = { .name = "sd/data.pkl", .nbytes = 5, .align = 64 };
	unsigned char got[sizeof(want)];
	struct tsr_file *f;
	uint64_t nbytes;

	(void)state;
	f = write_archive(&entry, 1, data, &nbytes);
	assert_true(nbytes == sizeof(want));
	assert_int_equal(tsr_file_read(f, got, sizeof(got), 0, NULL), TSR_OK);
	assert_memory_equal(got, want, sizeof(want));
	assert_true(entry.header_offset == 0 && entry.offset == 64);
	tsr_file_close(f);
}

/* Names of every length from 1 on, and members of a few bytes. */
static void test_every_alignment_and_name_length(void **state)
{
	static const unsigned aligns[] = { 1, 2, 4, 8, 16, 32, 64 };
	static const char *const contents[] = { "", "1", "12" };
	static char names[100][101];
	const char *data[COUNT_OF(names)];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		memset(names[i], 'a', i + 1);
		data[i] = contents[i % 3];
	}
	memcpy(names[2], "\xe2\x82\xac", 3);
	for (size_t i = 0; i < COUNT_OF(aligns); i++) {
		struct tsr_zip_entry entries[COUNT_OF(names)] = { 0 };
		struct tsr_file *f;
		uint64_t nbytes;

		for (size_t k = 0; k < COUNT_OF(names); k++) {
			entries[k].name = names[k];
			entries[k].nbytes = k % 3;
			entries[k].align = aligns[i];
		}
		f = write_archive(entries, COUNT_OF(names), data, &nbytes);
		expect_entries(f, entries, COUNT_OF(names));
		for (size_t k = 0; k < COUNT_OF(names); k++) {
			const uint64_t least = entries[k].header_offset + 30 + k + 1;

			/* No field for padding where there is none. */
			if (aligns[i] == 1)
				assert_true(entries[k].offset == least);
			else
				assert_true(entries[k].offset - least - 4 < aligns[i]);
		}
		tsr_file_close(f);
	}
}

static void test_an_archive_of_nothing(void **state)
{
	uint64_t nbytes;
	struct tsr_file *f = write_archive(NULL, 0, NULL, &nbytes);

	(void)state;
	assert_true(nbytes == 22);
	expect_entries(f, NULL, 0);
	tsr_file_close(f);
}

static void test_a_name_that_is_too_long(void **state)
{
	char *name = malloc(65537);
	struct tsr_zip_entry entry = { .name = name, .align = 64 };
	struct tsr_outfile *out = NULL;
	struct tsr_err err = { 0 };
	struct tsr_file *f;
	uint64_t nbytes;

	(void)state;
	memset(name, 'a', 65536);
	name[65536] = '\0';
	tsr_zip_layout(&entry, 1);
	assert_int_equal(tsr_outfile_create("out.zip", false, 0, &out, NULL), TSR_OK);
	assert_int_equal(tsr_zip_write_headers(out, 0, &entry, 1, &err), TSR_E_LIMIT);
	assert_non_null(strstr(err.msg, "limit of 65535"));
	tsr_outfile_discard(out);
	name[65535] = '\0';
	f = write_archive(&entry, 1, NULL, &nbytes);
	expect_entries(f, &entry, 1);
	tsr_file_close(f);
	free(name);
}

/* --- zip64 ---------------------------------------------------------------------------------- */

static bool has_end64(const struct tsr_file *f)
{
	unsigned char b[4];

	if (tsr_file_size(f) < 42)
		return false;
	assert_int_equal(tsr_file_read(f, b, 4, tsr_file_size(f) - 42, NULL), TSR_OK);
	return get_le(b, 4) == 0x07064b50;
}

static void test_counts_around_65535(void **state)
{
	static const struct {
		size_t count;
		bool zip64;
	} rows[] = { { 65534, false }, { 65535, true }, { 65536, true }, { 70000, true } };
	static struct tsr_zip_entry entries[70000];
	static char names[70000][8];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(entries); i++) {
		snprintf(names[i], sizeof(names[i]), "%zu", i);
		entries[i] = (struct tsr_zip_entry){ .name = names[i], .align = 1 };
	}
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		uint64_t nbytes;
		struct tsr_file *f = write_archive(entries, rows[i].count, NULL, &nbytes);

		expect_entries(f, entries, rows[i].count);
		assert_int_equal(has_end64(f), rows[i].zip64);
		tsr_file_close(f);
	}
}

#define GIB (UINT64_C(1) << 30)
#define U32_MAX UINT64_C(0xffffffff)

static void expect_text_at(const struct tsr_file *f, const struct tsr_zip_entry *e,
			   const char *text, size_t n)
{
	char got[100];

	assert_true(n <= sizeof(got));
	assert_int_equal(tsr_file_read(f, got, n, e->offset, NULL), TSR_OK);
	assert_memory_equal(got, text, n);
}

/* The CRC of zeros is not computed here: the directory is what is looked at. */
static void expect_large_members(uint64_t large, unsigned align)
{
	static const char *const data[] = { "before", NULL, "between", NULL, NULL, "behind" };
	static const char zeros[100];
	struct tsr_zip_entry entries[] = {
		{ .name = "a", .nbytes = 6, .align = align },
		{ .name = "b", .nbytes = large, .align = align, .crc = 1 },
		{ .name = "c", .nbytes = 7, .align = align },
		{ .name = "d", .nbytes = large + 1, .align = align, .crc = 2 },
		{ .name = "e", .nbytes = 0, .align = align },
		{ .name = "f", .nbytes = 6, .align = align },
	};
	struct tsr_err err = { 0 };
	struct tsr_zip *z;
	struct tsr_file *f;
	uint64_t nbytes;
	void *bytes = NULL;

	f = write_archive(entries, 6, data, &nbytes);
	expect_entries(f, entries, 6);
	assert_true(has_end64(f));
	expect_text_at(f, &entries[0], "before", 6);
	expect_text_at(f, &entries[1], zeros, sizeof(zeros));
	expect_text_at(f, &entries[2], "between", 7);
	expect_text_at(f, &entries[3], zeros, sizeof(zeros));
	z = read_ok(f);
	assert_int_equal(tsr_zip_load(f, &z->members[5], 6, WHERE, &bytes, &err), TSR_OK);
	assert_memory_equal(bytes, "behind", 6);
	free(bytes);
	expect_status(tsr_zip_load(f, &z->members[3], GIB, WHERE, &bytes, &err), TSR_E_LIMIT, &err,
		      "limit");
	tsr_zip_free(z);
	tsr_file_close(f);
}

static void test_sizes_and_offsets_around_4_gib(void **state)
{
	(void)state;
	expect_large_members(U32_MAX - 1, 64);
	expect_large_members(U32_MAX, 64);
	expect_large_members(U32_MAX, 1);
	expect_large_members(U32_MAX + 1, 64);
	expect_large_members(6 * GIB, 1);
}

/* The offset of a local header, and that of the central directory, just at the escape value. */
static void test_offsets_at_the_escape_value(void **state)
{
	(void)state;
	for (uint64_t at = U32_MAX - 2; at <= U32_MAX + 2; at++) {
		struct tsr_zip_entry entries[] = {
			{ .name = "a", .nbytes = 1000, .align = 1, .crc = 1 },
			{ .name = "b", .nbytes = at - 31 - 1000 - 31, .align = 1, .crc = 1 },
			{ .name = "c", .nbytes = 5, .align = 1, .crc = 1 },
		};
		uint64_t nbytes;
		struct tsr_file *f = write_archive(entries, 3, NULL, &nbytes);

		assert_true(entries[2].header_offset == at);
		expect_entries(f, entries, 3);
		assert_true(has_end64(f));
		tsr_file_close(f);
		f = write_archive(entries, 2, NULL, &nbytes);
		expect_entries(f, entries, 2);
		assert_int_equal(has_end64(f), at >= U32_MAX);
		tsr_file_close(f);
	}
}

/* --- What torch writes past 4 GiB ----------------------------------------------------------- */

/*
 * A member of 4 GiB or more has sizes of 0 in its local header beside a zip64 field of zeros; one
 * behind 4 GiB has a local zip64 field with its offset.  Both have descriptors of 24 bytes.
 */
static size_t torch_local(unsigned char *b, char name, uint64_t at, uint64_t nbytes)
{
	const size_t body = nbytes >= U32_MAX ? 16 : at >= U32_MAX ? 8 : 0;
	const size_t used = 30 + 1 + (body ? 4 + body : 0) + 4;
	const size_t pad = (size_t)(-(at + used) % 64);

	memset(b, 0, 200);
	set_le(b, 0x04034b50, 4);
	set_le(b + 6, 0x0808, 2);
	set_le(b + 26, 1, 2);
	set_le(b + 28, used + pad - 31, 2);
	b[30] = (unsigned char)name;
	if (body)
		set_le(b + 31, 1 | body << 16, 4);
	if (body == 8)
		set_le(b + 35, at, 8);
	set_le(b + used - 4, 0x4246 | pad << 16, 4);
	return used + pad;
}

static size_t torch_descriptor(unsigned char *b, uint64_t at, uint64_t nbytes)
{
	const unsigned width = at >= U32_MAX || nbytes >= U32_MAX ? 8 : 4;

	set_le(b, 0x08074b50, 4);
	set_le(b + 4, 0, 4);
	set_le(b + 8, nbytes, width);
	set_le(b + 8 + width, nbytes, width);
	return 8 + 2 * width;
}

static size_t torch_central(unsigned char *b, char name, uint64_t at, uint64_t nbytes)
{
	size_t n = 47;

	memset(b, 0, 100);
	set_le(b, 0x02014b50, 4);
	set_le(b + 8, 0x0808, 2);
	set_le(b + 20, nbytes >= U32_MAX ? U32_MAX : nbytes, 4);
	set_le(b + 24, nbytes >= U32_MAX ? U32_MAX : nbytes, 4);
	set_le(b + 28, 1, 2);
	set_le(b + 42, at >= U32_MAX ? U32_MAX : at, 4);
	b[46] = (unsigned char)name;
	if (nbytes < U32_MAX && at < U32_MAX)
		return n;
	set_le(b + n, 1, 2);
	n += 4;
	if (nbytes >= U32_MAX) {
		set_le(b + n, nbytes, 8);
		set_le(b + n + 8, nbytes, 8);
		n += 16;
	}
	if (at >= U32_MAX) {
		set_le(b + n, at, 8);
		n += 8;
	}
	set_le(b + 30, n - 47, 2);
	set_le(b + 49, n - 51, 2);
	return n;
}

static void put_at(int fd, const void *bytes, size_t n, uint64_t *at)
{
	assert_int_equal(pwrite(fd, bytes, n, (off_t)*at), n);
	*at += n;
}

static void torch_end(int fd, uint64_t directory, uint64_t at, size_t n)
{
	unsigned char b[98] = { 0 };

	set_le(b, 0x06064b50, 4);
	set_le(b + 4, 44, 8);
	set_le(b + 24, n, 8);
	set_le(b + 32, n, 8);
	set_le(b + 40, at - directory, 8);
	set_le(b + 48, directory, 8);
	set_le(b + 56, 0x07064b50, 4);
	set_le(b + 64, at, 8);
	set_le(b + 72, 1, 4);
	set_le(b + 76, 0x06054b50, 4);
	set_le(b + 84, n, 2);
	set_le(b + 86, n, 2);
	set_le(b + 88, at - directory, 4);
	set_le(b + 92, U32_MAX, 4);
	put_at(fd, b, sizeof(b), &at);
}

static void test_large_archives_of_torch(void **state)
{
	static const uint64_t sizes[] = { 100, 4 * GIB + 4, 7, U32_MAX, 9 };
	uint64_t headers[COUNT_OF(sizes)], data[COUNT_OF(sizes)], at = 0, directory;
	const int fd = memory_file("", 0);
	unsigned char b[200];
	struct tsr_file *f;
	struct tsr_zip *z;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		headers[i] = at;
		put_at(fd, b, torch_local(b, (char)('a' + i), at, sizes[i]), &at);
		data[i] = at;
		at += sizes[i];
		put_at(fd, b, torch_descriptor(b, headers[i], sizes[i]), &at);
	}
	directory = at;
	for (size_t i = 0; i < COUNT_OF(sizes); i++)
		put_at(fd, b, torch_central(b, (char)('a' + i), headers[i], sizes[i]), &at);
	torch_end(fd, directory, at, COUNT_OF(sizes));
	f = open_fd(fd);
	z = read_ok(f);
	assert_int_equal(z->nmembers, COUNT_OF(sizes));
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		assert_int_equal(z->members[i].name[0], 'a' + i);
		assert_true(z->members[i].offset == data[i] && data[i] % 64 == 0);
		assert_true(z->members[i].nbytes == sizes[i]);
		assert_false(z->members[i].has_crc);
	}
	tsr_zip_free(z);
	tsr_file_close(f);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_bytes_of_an_archive),
		cmocka_unit_test(test_every_alignment_and_name_length),
		cmocka_unit_test(test_an_archive_of_nothing),
		cmocka_unit_test(test_a_name_that_is_too_long),
		cmocka_unit_test(test_counts_around_65535),
		cmocka_unit_test(test_sizes_and_offsets_around_4_gib),
		cmocka_unit_test(test_offsets_at_the_escape_value),
		cmocka_unit_test(test_large_archives_of_torch),
	};

	return cmocka_run_group_tests_name("zip writing", tests, enter_dir, leave_dir);
}
