/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of a zip archive.  Readers of zip files differ in what they make of an archive with
 * two ends, bytes between members or headers that contradict each other; here that is refused.
 */
#include "format/zip.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/order.h"
#include "format/zip_format.h"

/* The last two say which effort the deflater made. */
#define FLAGS_KNOWN (TSR_ZIP_FLAG_DESCRIPTOR | TSR_ZIP_FLAG_UTF8 | 0x0006u)

/* Where a member lies.  Offsets here count from the start of the archive. */
struct extent {
	uint64_t header; /* of its local header */
	uint32_t member;
	uint16_t flags;
};

/* Bytes of the file that are in memory. */
struct buffer {
	unsigned char *bytes;
	uint64_t at;
	size_t nbytes;
};

/* A local header with the longest name, with room to spare for those that follow short ones. */
#define BUFFER_NBYTES (128u << 10)

/* An archive being read. */
struct reading {
	struct tsr_zip_part part;
	struct tsr_zip_directory directory;
	unsigned char *entries;
	uint64_t inflated_nbytes; /* of the members so far */
	size_t names_nbytes;
	struct extent *extents;
	struct buffer buffer;
	struct tsr_arena *arena; /* while it is read */
	struct tsr_zip *z;
};

#define FAIL(r, code, name, ...) \
	tsr_fail_in((r)->part.err, code, (r)->part.where, "member", name, __VA_ARGS__)

/* --- The central directory ------------------------------------------------------------------ */

static enum tsr_status check_name(const struct reading *r, const char *name, size_t n)
{
	const char *flaw = tsr_zip_name_flaw(name, n);

	if (flaw && n > 1 && name[n - 1] == '/' && name[n - 2] != '/')
		return tsr_fail(r->part.err, TSR_E_UNSUPPORTED,
				"%s: member \"%.200s\": found a directory, expected files only",
				r->part.where, name);
	if (!flaw)
		return TSR_OK;
	return tsr_fail(
		r->part.err, TSR_E_FORMAT,
		"%s: member \"%.200s\": found %s in its name, expected a plain relative path",
		r->part.where, name, flaw);
}

/* The body of the zip64 extra field, of which there may be one. */
static enum tsr_status find_extra64(const struct reading *r, const struct tsr_zip_member *m,
				    const unsigned char *extra, size_t n,
				    const unsigned char **body_ret, size_t *nbytes_ret)
{
	*body_ret = NULL;
	*nbytes_ret = 0;
	while (n) {
		const size_t len = n >= 4 ? tsr_zip_get16(extra + 2) : 0;

		if (n < 4 || len > n - 4)
			return FAIL(r, TSR_E_FORMAT, m->name,
				    "extra fields do not fill their room");
		if (tsr_zip_get16(extra) == TSR_ZIP_EXTRA64 && *body_ret)
			return FAIL(r, TSR_E_FORMAT, m->name, "found two zip64 extra fields");
		if (tsr_zip_get16(extra) == TSR_ZIP_EXTRA64) {
			*body_ret = extra + 4;
			*nbytes_ret = len;
		}
		extra += 4 + len;
		n -= 4 + len;
	}
	return TSR_OK;
}

/* The sizes and the offset of an entry whose fixed part is @p and whose extra fields @extra. */
static enum tsr_status read_extent(const struct reading *r, const unsigned char *p,
				   const unsigned char *extra, struct tsr_zip_member *m,
				   uint64_t *header_ret)
{
	uint64_t *const fields[] = { &m->nbytes, &m->stored_nbytes, header_ret };
	const unsigned char *body;
	size_t left;

	if (tsr_zip_get16(p + 34) != 0) /* the disk that it starts on */
		return tsr_zip_fail_split(&r->part);
	m->nbytes = tsr_zip_get32(p + 24);
	m->stored_nbytes = tsr_zip_get32(p + 20);
	*header_ret = tsr_zip_get32(p + 42);
	TSR_TRY(find_extra64(r, m, extra, tsr_zip_get16(p + 30), &body, &left));
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		if (*fields[i] != TSR_ZIP_U32_ESCAPE)
			continue;
		if (left < 8)
			return FAIL(r, TSR_E_FORMAT, m->name,
				    "its zip64 extra field lacks a value");
		*fields[i] = tsr_zip_get64(body);
		body += 8;
		left -= 8;
	}
	if (left)
		return FAIL(r, TSR_E_FORMAT, m->name,
			    "its zip64 extra field has %zu bytes too many", left);
	return TSR_OK;
}

static enum tsr_status check_coding(struct reading *r, const struct tsr_zip_member *m,
				    unsigned flags, unsigned method)
{
	if (flags & TSR_ZIP_FLAG_ENCRYPTED)
		return FAIL(r, TSR_E_UNSUPPORTED, m->name, "it is encrypted");
	if (flags & ~FLAGS_KNOWN)
		return FAIL(r, TSR_E_UNSUPPORTED, m->name,
			    "found flags 0x%04x, expected none but 0x%04x", flags, FLAGS_KNOWN);
	if (method != TSR_ZIP_STORED && method != TSR_ZIP_DEFLATED)
		return FAIL(r, TSR_E_UNSUPPORTED, m->name,
			    "found compression method %u, expected 0 (stored) or 8 (deflated)",
			    method);
	return TSR_OK;
}

/* The limits of what a member, and all members up to it, inflate to. */
static enum tsr_status check_sizes(struct reading *r, const struct tsr_zip_member *m)
{
	uint64_t most, total;

	if (!m->deflated && m->nbytes != m->stored_nbytes)
		return FAIL(r, TSR_E_FORMAT, m->name,
			    "stored, but found sizes %" PRIu64 " and %" PRIu64, m->stored_nbytes,
			    m->nbytes);
	if (!m->deflated)
		return TSR_OK;
	if (__builtin_mul_overflow(m->stored_nbytes, (uint64_t)TSR_ZIP_RATIO_MAX, &most) ||
	    __builtin_add_overflow(most, (uint64_t)64, &most))
		most = UINT64_MAX;
	if (m->nbytes > most)
		return FAIL(r, TSR_E_LIMIT, m->name,
			    "%" PRIu64 " bytes in %" PRIu64
			    " are over the limit of %u:1 for deflated data",
			    m->nbytes, m->stored_nbytes, TSR_ZIP_RATIO_MAX);
	if (__builtin_mul_overflow(r->part.nbytes, (uint64_t)4, &most) ||
	    most < TSR_ZIP_INFLATED_MAX)
		most = TSR_ZIP_INFLATED_MAX;
	if (__builtin_add_overflow(r->inflated_nbytes, m->nbytes, &total) || total > most)
		return FAIL(r, TSR_E_LIMIT, m->name,
			    "deflated members up to here inflate to more than the limit of %" PRIu64
			    " bytes",
			    most);
	r->inflated_nbytes = total;
	return TSR_OK;
}

/*
 * The fixed part of an entry is there, and @spare bytes for the variable parts of it and of those
 * behind it; the length of its own goes to *variable_ret.
 */
static enum tsr_status read_entry(struct reading *r, size_t i, const unsigned char *p, size_t spare,
				  size_t *variable_ret)
{
	struct tsr_zip_member *m = &r->z->members[i];
	struct extent *x = &r->extents[i];
	char *name = r->z->names + r->names_nbytes;
	size_t name_nbytes, variable;

	if (tsr_zip_get32(p) != TSR_ZIP_CENTRAL)
		return tsr_fail(r->part.err, TSR_E_FORMAT,
				"%s: central directory: entry %zu: no signature", r->part.where, i);
	name_nbytes = tsr_zip_get16(p + 28);
	variable = name_nbytes + tsr_zip_get16(p + 30) + tsr_zip_get16(p + 32);
	if (variable > spare)
		return tsr_fail(r->part.err, TSR_E_FORMAT,
				"%s: central directory: entry %zu: does not fit into it",
				r->part.where, i);
	memcpy(name, p + TSR_ZIP_CENTRAL_NBYTES, name_nbytes);
	name[name_nbytes] = '\0';
	r->names_nbytes += name_nbytes + 1;
	TSR_TRY(check_name(r, name, name_nbytes));
	m->name = name;
	m->crc = tsr_zip_get32(p + 16);
	m->deflated = tsr_zip_get16(p + 10) == TSR_ZIP_DEFLATED;
	x->member = (uint32_t)i;
	x->flags = tsr_zip_get16(p + 8);
	TSR_TRY(check_coding(r, m, x->flags, tsr_zip_get16(p + 10)));
	TSR_TRY(read_extent(r, p, p + TSR_ZIP_CENTRAL_NBYTES + name_nbytes, m, &x->header));
	m->has_crc = m->crc != 0 || m->nbytes == 0;
	*variable_ret = variable;
	return check_sizes(r, m);
}

static enum tsr_status read_directory(struct reading *r)
{
	const size_t n = (size_t)r->directory.count, nbytes = (size_t)r->directory.nbytes;
	size_t spare = nbytes - n * TSR_ZIP_CENTRAL_NBYTES;
	const unsigned char *p;

	TSR_TRY(TSR_TAKE(&r->entries, nbytes + 1, r->arena, r->part.err, r->part.where));
	TSR_TRY(TSR_TAKE(&r->extents, n + 1, r->arena, r->part.err, r->part.where));
	TSR_TRY(TSR_NEW(&r->z->members, n + 1, r->part.err, r->part.where));
	TSR_TRY(TSR_NEW(&r->z->by_name, n + 1, r->part.err, r->part.where));
	TSR_TRY(TSR_NEW(&r->z->names, spare + n + 1, r->part.err, r->part.where));
	TSR_TRY(tsr_zip_read_part(&r->part, r->entries, nbytes, r->directory.offset));
	p = r->entries;
	for (size_t i = 0; i < n; i++) {
		size_t variable = 0;

		TSR_TRY(read_entry(r, i, p, spare, &variable));
		p += TSR_ZIP_CENTRAL_NBYTES + variable;
		spare -= variable;
		r->z->nmembers++;
	}
	if (spare)
		return tsr_fail(r->part.err, TSR_E_FORMAT,
				"%s: central directory: found %zu bytes behind the last of %zu "
				"members, expected none",
				r->part.where, spare, n);
	return TSR_OK;
}

/* --- The members ---------------------------------------------------------------------------- */

/* @nbytes at @at; when they are not in memory, about @ahead are read. */
static enum tsr_status view(struct reading *r, uint64_t at, size_t nbytes, size_t ahead,
			    const unsigned char **ret)
{
	struct buffer *w = &r->buffer;
	const uint64_t left = r->directory.offset - at;

	if (at < w->at || at - w->at > w->nbytes || nbytes > w->nbytes - (at - w->at)) {
		w->nbytes = nbytes > ahead ? nbytes : ahead;
		if (w->nbytes > left)
			w->nbytes = (size_t)left;
		w->at = at;
		TSR_TRY(tsr_zip_read_part(&r->part, w->bytes, w->nbytes, at));
	}
	*ret = w->bytes + (at - w->at);
	return TSR_OK;
}

static enum tsr_status overlaps(const struct reading *r, const struct tsr_zip_member *m)
{
	return FAIL(r, TSR_E_FORMAT, m->name, "overlaps what follows it, expected no shared bytes");
}

/*
 * What follows the data: nothing, or a data descriptor, which has a signature or not and sizes of
 * 32 or 64 bits, in whatever combination the writer chose.
 */
static enum tsr_status check_rest(struct reading *r, const struct tsr_zip_member *m,
				  const struct extent *x, uint64_t at, uint64_t nbytes)
{
	const unsigned char *p;
	bool same;

	if (nbytes == 0 && (!(x->flags & TSR_ZIP_FLAG_DESCRIPTOR) || m->nbytes == 0))
		return TSR_OK;
	if (!(x->flags & TSR_ZIP_FLAG_DESCRIPTOR) ||
	    (nbytes != 12 && nbytes != 16 && nbytes != 20 && nbytes != 24))
		return FAIL(r, TSR_E_FORMAT, m->name,
			    "found %" PRIu64 " bytes between it and what follows, expected %s",
			    nbytes,
			    x->flags & TSR_ZIP_FLAG_DESCRIPTOR ? "a data descriptor" : "none");
	TSR_TRY(view(r, at, (size_t)nbytes, 4096, &p));
	same = nbytes % 8 != 0 || tsr_zip_get32(p) == TSR_ZIP_DESCRIPTOR;
	if (nbytes % 8 == 0)
		p += 4;
	same = same && tsr_zip_get32(p) == m->crc;
	if (nbytes >= 20)
		same = same && tsr_zip_get64(p + 4) == m->stored_nbytes &&
		       tsr_zip_get64(p + 12) == m->nbytes;
	else
		same = same && tsr_zip_get32(p + 4) == m->stored_nbytes &&
		       tsr_zip_get32(p + 8) == m->nbytes;
	if (!same)
		return FAIL(r, TSR_E_FORMAT, m->name,
			    "its data descriptor and the central directory disagree");
	return TSR_OK;
}

/*
 * Check a local header, from which only the length of the extra fields is taken: writers leave all
 * sorts of values in its sizes and zip64 fields.  @end: where the next header or the central
 * directory starts, not before this one.
 */
static enum tsr_status check_local(struct reading *r, const struct extent *x, uint64_t end)
{
	struct tsr_zip_member *m = &r->z->members[x->member];
	const size_t name_nbytes = strlen(m->name), fixed = TSR_ZIP_LOCAL_NBYTES + name_nbytes;
	const uint64_t room = end - x->header;
	const unsigned char *p;
	uint64_t data;

	if (room < fixed)
		return overlaps(r, m);
	TSR_TRY(view(r, x->header, fixed, room < 16384 ? BUFFER_NBYTES : fixed, &p));
	if (tsr_zip_get32(p) != TSR_ZIP_LOCAL)
		return FAIL(r, TSR_E_FORMAT, m->name, "no local header at offset %" PRIu64,
			    x->header);
	if (tsr_zip_get16(p + 26) != name_nbytes ||
	    memcmp(p + TSR_ZIP_LOCAL_NBYTES, m->name, name_nbytes) != 0)
		return FAIL(r, TSR_E_FORMAT, m->name, "its local header has another name");
	if (tsr_zip_get16(p + 6) != x->flags ||
	    tsr_zip_get16(p + 8) != (m->deflated ? TSR_ZIP_DEFLATED : TSR_ZIP_STORED))
		return FAIL(r, TSR_E_FORMAT, m->name,
			    "its local header has other flags or another method");
	data = fixed + tsr_zip_get16(p + 28);
	if (data > room || m->stored_nbytes > room - data)
		return overlaps(r, m);
	m->offset = r->part.base + x->header + data;
	return check_rest(r, m, x, x->header + data + m->stored_nbytes,
			  room - data - m->stored_nbytes);
}

TSR_COMPARE(compare_headers, struct extent, TSR_ORDER(a->header, b->header))

static enum tsr_status check_members(struct reading *r)
{
	struct extent *x = r->extents;
	const size_t n = r->z->nmembers;
	const uint64_t first_expected = 0, end = r->directory.offset;

	TSR_TRY(TSR_TAKE(&r->buffer.bytes, end < BUFFER_NBYTES ? (size_t)end + 1 : BUFFER_NBYTES,
			 r->arena, r->part.err, r->part.where));
	qsort(x, n, sizeof(*x), compare_headers);
	if (n && x[n - 1].header > end)
		return FAIL(r, TSR_E_FORMAT, r->z->members[x[n - 1].member].name,
			    "found its header at offset %" PRIu64
			    ", expected it before the central directory at %" PRIu64,
			    x[n - 1].header, end);
	if ((n ? x[0].header : end) != first_expected)
		return tsr_fail(r->part.err, TSR_E_FORMAT,
				"%s: found %" PRIu64
				" bytes before the first member, expected none",
				r->part.where, n ? x[0].header : end);
	for (size_t i = 0; i < n; i++)
		TSR_TRY(check_local(r, &x[i], i + 1 < n ? x[i + 1].header : end));
	return TSR_OK;
}

/* --- Names ---------------------------------------------------------------------------------- */

static enum tsr_status sort_names(struct reading *r)
{
	struct tsr_zip *z = r->z;

	for (size_t i = 0; i < z->nmembers; i++)
		z->by_name[i] = (struct tsr_named){ z->members[i].name, i };
	tsr_named_sort(z->by_name, z->nmembers);
	for (size_t i = 1; i < z->nmembers; i++) {
		if (strcmp(z->by_name[i - 1].name, z->by_name[i].name) == 0)
			return FAIL(r, TSR_E_FORMAT, z->by_name[i].name,
				    "found twice, expected once");
	}
	return TSR_OK;
}

const struct tsr_zip_member *tsr_zip_find(const struct tsr_zip *z, const char *name)
{
	const struct tsr_named *found = tsr_named_find(z->by_name, z->nmembers, name);

	return found ? &z->members[found->index] : NULL;
}

/* --- The whole ------------------------------------------------------------------------------ */

static enum tsr_status read_all(struct reading *r)
{
	const uint64_t size = tsr_file_size(r->part.f);

	if (r->part.base > size || r->part.nbytes > size - r->part.base)
		return tsr_fail(r->part.err, TSR_E_FORMAT,
				"%s: found %" PRIu64
				" bytes in the file, expected a zip archive of %" PRIu64
				" at offset %" PRIu64,
				r->part.where, size, r->part.nbytes, r->part.base);
	TSR_TRY(tsr_zip_find_directory(&r->part, &r->directory));
	TSR_TRY(read_directory(r));
	TSR_TRY(sort_names(r));
	return check_members(r);
}

enum tsr_status tsr_zip_read(const struct tsr_file *f, uint64_t base, uint64_t nbytes,
			     const char *where, struct tsr_zip **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	TSR_OWNED(tsr_zip_free) struct tsr_zip *z = NULL;
	struct reading r = {
		.part = { .f = f, .base = base, .nbytes = nbytes, .where = where, .err = err },
		.arena = arena,
	};

	TSR_TRY(TSR_NEW(&z, 1, err, where));
	r.z = z;
	TSR_TRY(read_all(&r));
	return TSR_GIVE(ret, z);
}

void tsr_zip_free(struct tsr_zip *z)
{
	if (!z)
		return;
	free(z->members);
	free(z->by_name);
	free(z->names);
	free(z);
}
