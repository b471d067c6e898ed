/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zip archives of stored members, as torch and Python's zipfile read them.  The bytes depend on
 * names, sizes and contents alone: every date is the first that the format has.
 */
#include "base/fail.h"
#include "base/little_endian.h"
#include "format/zip.h"
#include "format/zip_format.h"

#define DOS_DATE 0x0021u /* 1980-01-01; the time is 00:00 */
#define VERSION_PLAIN 10u
#define VERSION_ZIP64 45u

/* The padding of torch: an extra field "FB" filled with Z. */
#define EXTRA_PAD 0x4246u
#define PAD_BYTE 'Z'

#define EXTRA_HEADER_NBYTES 4u
#define LOCAL_EXTRA64_NBYTES (EXTRA_HEADER_NBYTES + 16u)
#define ALIGN_MAX 64u

/* Of a local header; that of a central one is shorter but for 8 bytes. */
#define HEADER_MAX \
	(TSR_ZIP_LOCAL_NBYTES + TSR_ZIP_NAME_MAX + LOCAL_EXTRA64_NBYTES + EXTRA_HEADER_NBYTES + \
	 ALIGN_MAX)

/* --- Layout --------------------------------------------------------------------------------- */

static bool is_large(uint64_t value)
{
	return value >= TSR_ZIP_U32_ESCAPE;
}

/* What a header field of 32 bits says about a value that may need 64. */
static uint32_t field32(uint64_t value)
{
	return is_large(value) ? TSR_ZIP_U32_ESCAPE : (uint32_t)value;
}

static uint64_t local_extra64_nbytes(const struct tsr_zip_entry *e)
{
	return is_large(e->nbytes) ? LOCAL_EXTRA64_NBYTES : 0;
}

static uint64_t central_extra64_nbytes(const struct tsr_zip_entry *e)
{
	const unsigned body = (is_large(e->nbytes) ? 16u : 0) +
			      (is_large(e->header_offset) ? 8u : 0);

	return body ? EXTRA_HEADER_NBYTES + body : 0;
}

/* The central directory of laid-out members and what ends the archive. */
struct tail {
	uint64_t offset, nbytes; /* of the central directory */
	uint64_t count;
	bool zip64;
};

static struct tail tail_of(const struct tsr_zip_entry *entries, size_t n)
{
	struct tail t = { .count = n };

	if (n)
		t.offset = entries[n - 1].offset + entries[n - 1].nbytes;
	for (size_t i = 0; i < n; i++)
		t.nbytes += TSR_ZIP_CENTRAL_NBYTES + strlen(entries[i].name) +
			    central_extra64_nbytes(&entries[i]);
	t.zip64 = n >= TSR_ZIP_U16_ESCAPE || is_large(t.offset) || is_large(t.nbytes);
	return t;
}

uint64_t tsr_zip_layout(struct tsr_zip_entry *entries, size_t n)
{
	struct tail t;
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++) {
		struct tsr_zip_entry *e = &entries[i];

		e->header_offset = at;
		at += TSR_ZIP_LOCAL_NBYTES + strlen(e->name) + local_extra64_nbytes(e);
		if (e->align > 1) {
			at += EXTRA_HEADER_NBYTES;
			at = (at + e->align - 1) & ~(uint64_t)(e->align - 1);
		}
		e->offset = at;
		at += e->nbytes;
	}
	t = tail_of(entries, n);
	return t.offset + t.nbytes + TSR_ZIP_END_NBYTES +
	       (t.zip64 ? TSR_ZIP_END64_NBYTES + TSR_ZIP_LOCATOR_NBYTES : 0);
}

/* --- Writing -------------------------------------------------------------------------------- */

/* Bytes on their way to the file. */
struct output {
	struct tsr_outfile *f;
	struct tsr_err *err;
	uint64_t base; /* where the archive begins */
	uint64_t at; /* where the next byte goes in it */
	size_t nbytes; /* of those that wait, which go before @at */
	unsigned char buf[2 * HEADER_MAX];
};

static void put(struct output *o, uint64_t value, size_t nbytes)
{
	tsr_put_le(o->buf + o->nbytes, value, nbytes);
	o->nbytes += nbytes;
	o->at += nbytes;
}

static void put_name(struct output *o, const char *name)
{
	const size_t n = strlen(name);

	memcpy(o->buf + o->nbytes, name, n);
	o->nbytes += n;
	o->at += n;
}

static enum tsr_status flush(struct output *o)
{
	const size_t n = o->nbytes;

	o->nbytes = 0;
	return tsr_outfile_write(o->f, o->buf, n, o->base + o->at - n, o->err);
}

/* Make room for one more header. */
static enum tsr_status make_room(struct output *o)
{
	return sizeof(o->buf) - o->nbytes < HEADER_MAX ? flush(o) : TSR_OK;
}

/* What local and central headers have in common, from the version to the length of the name. */
static void put_common(struct output *o, const struct tsr_zip_entry *e, uint64_t extra64_nbytes)
{
	put(o, extra64_nbytes ? VERSION_ZIP64 : VERSION_PLAIN, 2);
	put(o, TSR_ZIP_FLAG_UTF8, 2);
	put(o, TSR_ZIP_STORED, 2);
	put(o, 0, 2);
	put(o, DOS_DATE, 2);
	put(o, e->crc, 4);
	put(o, field32(e->nbytes), 4);
	put(o, field32(e->nbytes), 4);
	put(o, (uint32_t)strlen(e->name), 2);
}

static enum tsr_status write_local(struct output *o, const struct tsr_zip_entry *e)
{
	const uint64_t fixed = TSR_ZIP_LOCAL_NBYTES + strlen(e->name);
	const uint64_t extra = e->offset - e->header_offset - fixed;
	uint64_t pad = extra - local_extra64_nbytes(e);

	o->at = e->header_offset;
	put(o, TSR_ZIP_LOCAL, 4);
	put_common(o, e, local_extra64_nbytes(e));
	put(o, (uint32_t)extra, 2);
	put_name(o, e->name);
	if (is_large(e->nbytes)) {
		put(o, TSR_ZIP_EXTRA64, 2);
		put(o, 16, 2);
		put(o, e->nbytes, 8);
		put(o, e->nbytes, 8);
	}
	if (pad) {
		pad -= EXTRA_HEADER_NBYTES;
		put(o, EXTRA_PAD, 2);
		put(o, (uint32_t)pad, 2);
		memset(o->buf + o->nbytes, PAD_BYTE, (size_t)pad);
		o->nbytes += (size_t)pad;
		o->at += pad;
	}
	return flush(o);
}

static enum tsr_status write_central(struct output *o, const struct tsr_zip_entry *e)
{
	const uint32_t extra = (uint32_t)central_extra64_nbytes(e);

	TSR_TRY(make_room(o));
	put(o, TSR_ZIP_CENTRAL, 4);
	put(o, VERSION_ZIP64, 2); /* that made it; high byte 0: attributes as in MS-DOS, none */
	put_common(o, e, extra);
	put(o, extra, 2);
	put(o, 0, 2); /* comment */
	put(o, 0, 2); /* disk */
	put(o, 0, 2); /* attributes */
	put(o, 0, 4);
	put(o, field32(e->header_offset), 4);
	put_name(o, e->name);
	if (extra) {
		put(o, TSR_ZIP_EXTRA64, 2);
		put(o, extra - EXTRA_HEADER_NBYTES, 2);
	}
	if (is_large(e->nbytes)) {
		put(o, e->nbytes, 8);
		put(o, e->nbytes, 8);
	}
	if (is_large(e->header_offset))
		put(o, e->header_offset, 8);
	return TSR_OK;
}

static void put_end64(struct output *o, const struct tail *t)
{
	const uint64_t at = o->at;

	put(o, TSR_ZIP_END64, 4);
	put(o, TSR_ZIP_END64_NBYTES - 12, 8); /* of what follows */
	put(o, VERSION_ZIP64, 2);
	put(o, VERSION_ZIP64, 2);
	put(o, 0, 4); /* disks */
	put(o, 0, 4);
	put(o, t->count, 8);
	put(o, t->count, 8);
	put(o, t->nbytes, 8);
	put(o, t->offset, 8);
	put(o, TSR_ZIP_LOCATOR, 4);
	put(o, 0, 4);
	put(o, at, 8);
	put(o, 1, 4); /* disks in all */
}

static enum tsr_status write_end(struct output *o, const struct tail *t)
{
	const uint32_t count = t->count < TSR_ZIP_U16_ESCAPE ? (uint32_t)t->count
							     : TSR_ZIP_U16_ESCAPE;

	TSR_TRY(make_room(o));
	if (t->zip64)
		put_end64(o, t);
	put(o, TSR_ZIP_END, 4);
	put(o, 0, 2); /* disks */
	put(o, 0, 2);
	put(o, count, 2);
	put(o, count, 2);
	put(o, field32(t->nbytes), 4);
	put(o, field32(t->offset), 4);
	put(o, 0, 2); /* comment */
	return flush(o);
}

static enum tsr_status write_all(struct output *o, const struct tsr_zip_entry *entries, size_t n)
{
	const struct tail t = tail_of(entries, n);

	for (size_t i = 0; i < n; i++)
		TSR_TRY(write_local(o, &entries[i]));
	o->at = t.offset;
	for (size_t i = 0; i < n; i++)
		TSR_TRY(write_central(o, &entries[i]));
	return write_end(o, &t);
}

enum tsr_status tsr_zip_write_headers(struct tsr_outfile *f, uint64_t base,
				      const struct tsr_zip_entry *entries, size_t n,
				      struct tsr_err *err)
{
	TSR_OWNED(free) struct output *o = NULL;

	for (size_t i = 0; i < n; i++) {
		if (strlen(entries[i].name) > TSR_ZIP_NAME_MAX)
			return tsr_fail(err, TSR_E_LIMIT,
					"member %.40s...: name of %zu bytes is over the limit of "
					"%u of zip archives",
					entries[i].name, strlen(entries[i].name), TSR_ZIP_NAME_MAX);
	}
	TSR_TRY(TSR_NEW(&o, 1, err, "the headers of a zip archive"));
	o->f = f;
	o->base = base;
	o->err = err;
	return write_all(o, entries, n);
}
