/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a member, a buffer at a time.  The only file that inflates. */
#include <zlib.h>

#include "io/crc.h"
#include "base/fail.h"
#include "format/zip.h"

#define INPUT_ROOM (256u << 10)
#define BUFFER_NBYTES (1u << 20)

/* Reads a member from its start. */
struct stream {
	const struct tsr_file *f;
	const struct tsr_zip_member *m;
	const char *where;
	struct tsr_err *err;
	uint64_t at; /* stored bytes taken from the file so far */
	uint32_t crc; /* of the contents so far */
	unsigned char *input; /* NULL if not deflated */
	bool ended; /* the deflated data said so */
	z_stream z;
};

#define FAIL(s, code, name, ...) \
	tsr_fail_in((s)->err, code, (s)->where, "member", name, __VA_ARGS__)

static enum tsr_status stream_start(struct stream *s)
{
	s->crc = 0;
	if (!s->m->deflated)
		return TSR_OK;
	s->input = malloc(s->m->stored_nbytes < INPUT_ROOM ? (size_t)s->m->stored_nbytes + 1
							   : INPUT_ROOM);
	if (!s->input)
		return tsr_fail_nomem(s->err, s->where);
	/* Negative: deflated data without the header of zlib. */
	if (inflateInit2(&s->z, -MAX_WBITS) == Z_OK)
		return TSR_OK;
	free(s->input);
	s->input = NULL;
	return tsr_fail_nomem(s->err, s->where);
}

static void stream_free(struct stream *s)
{
	if (!s->input)
		return;
	inflateEnd(&s->z);
	free(s->input);
}

static enum tsr_status damaged(const struct stream *s, const char *found)
{
	return FAIL(s, TSR_E_FORMAT, s->m->name, "deflated data: %s", found);
}

static enum tsr_status refill(struct stream *s)
{
	const uint64_t left = s->m->stored_nbytes - s->at;
	const size_t n = left < INPUT_ROOM ? (size_t)left : INPUT_ROOM;

	TSR_TRY(tsr_file_read(s->f, s->input, n, s->m->offset + s->at, s->err));
	s->at += n;
	s->z.next_in = s->input;
	s->z.avail_in = (uInt)n;
	return TSR_OK;
}

/* Up to @n bytes, at most BUFFER_NBYTES; fewer only at the end of the data. */
static enum tsr_status inflate_some(struct stream *s, void *buf, size_t n, size_t *got_ret)
{
	s->z.next_out = buf;
	s->z.avail_out = (uInt)n;
	while (s->z.avail_out && !s->ended) {
		int code;

		/* Without input left zlib may still hold output. */
		if (!s->z.avail_in && s->at < s->m->stored_nbytes)
			TSR_TRY(refill(s));
		code = inflate(&s->z, Z_NO_FLUSH);
		if (code == Z_MEM_ERROR)
			return tsr_fail_nomem(s->err, s->where);
		if (code == Z_BUF_ERROR)
			return damaged(s, "found its end too early");
		if (code != Z_OK && code != Z_STREAM_END)
			return damaged(s, s->z.msg ? s->z.msg : "invalid");
		s->ended = code == Z_STREAM_END;
	}
	*got_ret = n - s->z.avail_out;
	return TSR_OK;
}

/* Exactly the next @n bytes, at most BUFFER_NBYTES. */
static enum tsr_status stream_read(struct stream *s, void *buf, size_t n)
{
	size_t got;

	if (!s->m->deflated) {
		TSR_TRY(tsr_file_read(s->f, buf, n, s->m->offset + s->at, s->err));
		s->at += n;
		return TSR_OK;
	}
	TSR_TRY(inflate_some(s, buf, n, &got));
	if (got == n)
		return TSR_OK;
	return FAIL(s, TSR_E_FORMAT, s->m->name,
		    "found %" PRIu64 " bytes after inflating, expected %" PRIu64, s->z.total_out,
		    s->m->nbytes);
}

/* All contents were read: that must be all there is. */
static enum tsr_status stream_finish(struct stream *s)
{
	unsigned char more;
	size_t got = 0;

	if (s->m->deflated) {
		TSR_TRY(inflate_some(s, &more, 1, &got));
		if (got)
			return FAIL(s, TSR_E_FORMAT, s->m->name,
				    "found more than %" PRIu64
				    " bytes after inflating, expected no more",
				    s->m->nbytes);
		if (s->z.avail_in || s->at != s->m->stored_nbytes)
			return damaged(s, "found bytes behind its end");
	}
	if (s->m->has_crc && s->crc != s->m->crc)
		return FAIL(s, TSR_E_FORMAT, s->m->name, "found CRC-32 %08x, expected %08x", s->crc,
			    s->m->crc);
	return TSR_OK;
}

/* All contents: to @out, or to the start of a scratch file with @out as the buffer. */
static enum tsr_status copy_all(struct stream *s, unsigned char *out, struct tsr_file *into)
{
	for (uint64_t at = 0; at < s->m->nbytes;) {
		const uint64_t left = s->m->nbytes - at;
		const size_t n = left < BUFFER_NBYTES ? (size_t)left : BUFFER_NBYTES;

		TSR_TRY(stream_read(s, out, n));
		s->crc = tsr_crc32(s->crc, out, n);
		if (into)
			TSR_TRY(tsr_file_scratch_write(into, out, n, at, s->err));
		else
			out += n;
		at += n;
	}
	return stream_finish(s);
}

enum tsr_status tsr_zip_load(const struct tsr_file *f, const struct tsr_zip_member *m,
			     uint64_t max_nbytes, const char *where, void **ret,
			     struct tsr_err *err)
{
	TSR_SCOPED(stream_free) struct stream s = { .f = f, .m = m, .where = where, .err = err };
	TSR_OWNED(free) unsigned char *out = NULL;

	if (m->nbytes > max_nbytes)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: member %.200s: %" PRIu64
				" bytes are over the limit of %" PRIu64,
				where, m->name, m->nbytes, max_nbytes);
	out = malloc(m->nbytes ? (size_t)m->nbytes : 1);
	if (!out)
		return tsr_fail_nomem(err, where);
	TSR_TRY(stream_start(&s));
	TSR_TRY(copy_all(&s, out, NULL));
	return TSR_GIVE(ret, out);
}

enum tsr_status tsr_zip_peek(const struct tsr_file *f, const struct tsr_zip_member *m, void *buf,
			     size_t nbytes, size_t *got_ret, const char *where, struct tsr_err *err)
{
	TSR_SCOPED(stream_free) struct stream s = { .f = f, .m = m, .where = where, .err = err };
	const size_t want = m->nbytes < nbytes ? (size_t)m->nbytes : nbytes;
	unsigned char *out = buf;

	TSR_TRY(stream_start(&s));
	for (size_t at = 0; at < want;) {
		const size_t n = want - at < BUFFER_NBYTES ? want - at : BUFFER_NBYTES;

		TSR_TRY(stream_read(&s, out + at, n));
		at += n;
	}
	*got_ret = want;
	return TSR_OK;
}

/* What is inflated when it is wanted. */
struct later {
	const struct tsr_file *f;
	struct tsr_zip_member m;
	const char *where; /* behind the name */
	char name[]; /* of the member */
};

static enum tsr_status inflate_all(void *ctx, struct tsr_file *into, struct tsr_err *err)
{
	const struct later *later = ctx;
	TSR_SCOPED(stream_free)
	struct stream s = { .f = later->f, .m = &later->m, .where = later->where, .err = err };
	const uint64_t nbytes = later->m.nbytes;
	TSR_OWNED(free)
	unsigned char *buffer = malloc(nbytes < BUFFER_NBYTES ? (size_t)nbytes + 1 : BUFFER_NBYTES);

	if (!buffer)
		return tsr_fail_nomem(err, later->where);
	TSR_TRY(stream_start(&s));
	return copy_all(&s, buffer, into);
}

enum tsr_status tsr_zip_inflated(const struct tsr_file *f, const struct tsr_zip_member *m,
				 const char *where, struct tsr_file **ret, struct tsr_err *err)
{
	const size_t n = strlen(m->name) + 1, nwhere = strlen(where) + 1;
	struct later *later = malloc(sizeof(*later) + n + nwhere);

	if (!later)
		return tsr_fail_nomem(err, where);
	later->f = f;
	later->m = *m;
	later->m.name = memcpy(later->name, m->name, n);
	later->where = memcpy(later->name + n, where, nwhere);
	return tsr_file_scratch_later(where, m->nbytes, inflate_all, later, free, ret, err);
}
