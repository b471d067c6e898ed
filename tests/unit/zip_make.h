/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_ZIP_MAKE_H
#define TSR_TESTS_ZIP_MAKE_H

/* What the tests of zip archives share: a writer that also writes bad ones, and files in memory. */
#include <sys/mman.h>
#include <unistd.h>

#include <zlib.h>

#include "io/file.h"
#include "format/zip.h"
#include "unit.h"

#define ITEMS_MAX 8

/* What a member shall be.  All but the name may be left out. */
struct item {
	const char *name;
	size_t name_nbytes; /* 0: up to the NUL */
	const char *data;
	size_t nbytes;
	bool deflated;
	unsigned flags;
	unsigned descriptor; /* its length; 0: sizes and CRC are in the local header */
	unsigned pad; /* length of an extra field in the local header; 0, or at least 4 */
	const unsigned char *extra; /* extra fields of the central header */
	size_t extra_nbytes;
};

/* An archive, and where its records are. */
struct archive {
	unsigned char bytes[3 << 20];
	size_t nbytes;
	size_t local[ITEMS_MAX], data[ITEMS_MAX], central[ITEMS_MAX];
	size_t end64, locator, end;
};

static inline UNUSED void set_le(unsigned char *at, uint64_t value, unsigned width)
{
	for (unsigned i = 0; i < width; i++, value >>= 8)
		at[i] = (unsigned char)value;
}

static inline UNUSED uint64_t get_le(const unsigned char *at, unsigned width)
{
	uint64_t value = 0;

	for (unsigned i = width; i-- > 0;)
		value = value << 8 | at[i];
	return value;
}

static inline UNUSED void put_le(struct archive *a, uint64_t value, unsigned width)
{
	assert_true(a->nbytes + width <= sizeof(a->bytes));
	set_le(a->bytes + a->nbytes, value, width);
	a->nbytes += width;
}

static inline UNUSED void put_bytes(struct archive *a, const void *bytes, size_t n)
{
	assert_true(n <= sizeof(a->bytes) - a->nbytes);
	if (n)
		memcpy(a->bytes + a->nbytes, bytes, n);
	a->nbytes += n;
}

/* Deflated data without a header of zlib; returns its length. */
static inline UNUSED size_t deflate_raw(const void *in, size_t nbytes, void *out, size_t room)
{
	z_stream z = { 0 };
	size_t n;

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (unsigned char *)(uintptr_t)in;
	z.avail_in = (uInt)nbytes;
	z.next_out = out;
	z.avail_out = (uInt)room;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	n = z.total_out;
	assert_int_equal(deflateEnd(&z), Z_OK);
	return n;
}

static inline UNUSED uint32_t zlib_crc(const void *bytes, size_t n)
{
	return n ? (uint32_t)crc32(0, bytes, (uInt)n) : 0;
}

static inline UNUSED size_t name_length(const struct item *it)
{
	return it->name_nbytes ? it->name_nbytes : strlen(it->name);
}

/* From the flags to the length of the name. */
static inline UNUSED void put_middle(struct archive *a, const struct item *it, size_t stored,
				     bool sizes)
{
	put_le(a, it->flags | (it->descriptor ? 8 : 0), 2);
	put_le(a, it->deflated ? 8 : 0, 2);
	put_le(a, 0x00210000, 4);
	put_le(a, sizes ? zlib_crc(it->data, it->nbytes) : 0, 4);
	put_le(a, sizes ? stored : 0, 4);
	put_le(a, sizes ? it->nbytes : 0, 4);
	put_le(a, name_length(it), 2);
}

static inline UNUSED void put_descriptor(struct archive *a, const struct item *it, size_t stored)
{
	const unsigned width = it->descriptor >= 20 ? 8 : 4;

	if (!it->descriptor)
		return;
	if (it->descriptor % 8 == 0)
		put_le(a, 0x08074b50, 4);
	put_le(a, zlib_crc(it->data, it->nbytes), 4);
	put_le(a, stored, width);
	put_le(a, it->nbytes, width);
}

static inline UNUSED size_t put_local(struct archive *a, const struct item *it)
{
	static unsigned char deflated[3 << 20];
	const size_t stored = it->deflated ? deflate_raw(it->data ? it->data : "", it->nbytes,
							 deflated, sizeof(deflated))
					   : it->nbytes;

	put_le(a, 0x04034b50, 4);
	put_le(a, 0, 2);
	put_middle(a, it, stored, !it->descriptor);
	put_le(a, it->pad, 2);
	put_bytes(a, it->name, name_length(it));
	if (it->pad) {
		put_le(a, 0x4246, 2);
		put_le(a, it->pad - 4, 2);
		for (unsigned i = 4; i < it->pad; i++)
			put_le(a, 'Z', 1);
	}
	put_bytes(a, it->deflated ? (const void *)deflated : it->data, stored);
	put_descriptor(a, it, stored);
	return stored;
}

static inline UNUSED void put_central(struct archive *a, const struct item *it, size_t stored,
				      size_t header)
{
	put_le(a, 0x02014b50, 4);
	put_le(a, 0, 4);
	put_middle(a, it, stored, true);
	put_le(a, it->extra_nbytes, 2);
	put_le(a, 0, 10);
	put_le(a, header, 4);
	put_bytes(a, it->name, name_length(it));
	put_bytes(a, it->extra, it->extra_nbytes);
}

static inline UNUSED void put_end64(struct archive *a, size_t n, size_t directory)
{
	const size_t end = a->nbytes;

	a->end64 = end;
	put_le(a, 0x06064b50, 4);
	put_le(a, 44, 8);
	put_le(a, 0, 12);
	put_le(a, n, 8);
	put_le(a, n, 8);
	put_le(a, end - directory, 8);
	put_le(a, directory, 8);
	a->locator = a->nbytes;
	put_le(a, 0x07064b50, 4);
	put_le(a, 0, 4);
	put_le(a, end, 8);
	put_le(a, 1, 4);
}

static inline UNUSED void build(struct archive *a, const struct item *items, size_t n, bool zip64)
{
	size_t stored[ITEMS_MAX] = { 0 }, directory, directory_nbytes;

	memset(a->bytes, 0, a->nbytes);
	a->nbytes = a->end64 = a->locator = 0;
	for (size_t i = 0; i < n; i++) {
		a->local[i] = a->nbytes;
		a->data[i] = a->nbytes + 30 + name_length(&items[i]) + items[i].pad;
		stored[i] = put_local(a, &items[i]);
	}
	directory = a->nbytes;
	for (size_t i = 0; i < n; i++) {
		a->central[i] = a->nbytes;
		put_central(a, &items[i], stored[i], a->local[i]);
	}
	directory_nbytes = a->nbytes - directory;
	if (zip64)
		put_end64(a, n, directory);
	a->end = a->nbytes;
	put_le(a, 0x06054b50, 4);
	put_le(a, 0, 4);
	put_le(a, n, 2);
	put_le(a, n, 2);
	put_le(a, directory_nbytes, 4);
	put_le(a, directory, 4);
	put_le(a, 0, 2);
}

/* A file of memory, gone with its descriptor. */
static inline UNUSED int memory_file(const void *bytes, size_t n)
{
	const int fd = memfd_create("zip", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, 0), n);
	return fd;
}

static inline UNUSED struct tsr_file *open_fd(int fd)
{
	struct tsr_file *f = NULL;
	struct tsr_err err = { 0 };
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (tsr_file_open(path, &f, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return f;
}

/* Messages start with this. */
#define WHERE "FILE"

static inline UNUSED struct tsr_zip *read_ok(const struct tsr_file *f)
{
	struct tsr_zip *z = NULL;
	struct tsr_err err = { 0 };

	if (tsr_zip_read(f, 0, tsr_file_size(f), WHERE, &z, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return z;
}

static inline UNUSED void expect_status(enum tsr_status got, enum tsr_status want,
					const struct tsr_err *err, const char *word)
{
	if (got != want)
		fail_msg("status %d, want %d: %s", (int)got, (int)want, err->msg);
	if (want == TSR_OK)
		return;
	assert_int_equal(err->code, want);
	assert_memory_equal(err->msg, WHERE ": ", strlen(WHERE ": "));
	if (!strstr(err->msg, word))
		fail_msg("no \"%s\" in \"%s\"", word, err->msg);
}

/* Read an archive of which nothing is to be had. */
static inline UNUSED void expect_refused(const void *bytes, size_t n, enum tsr_status want,
					 const char *word)
{
	const int fd = memory_file(bytes, n);
	struct tsr_file *f = open_fd(fd);
	struct tsr_zip *z = NULL;
	struct tsr_err err = { 0 };

	expect_status(tsr_zip_read(f, 0, n, WHERE, &z, &err), want, &err, word);
	assert_null(z);
	assert_int_equal(tsr_zip_read(f, 0, n, WHERE, &z, NULL), want);
	tsr_file_close(f);
	close(fd);
}

#endif
