/* SPDX-License-Identifier: Apache-2.0 */
/* The records that end a zip archive: classic, and zip64, which torch always writes. */
#include "base/fail.h"
#include "format/zip.h"
#include "format/zip_format.h"

/*
 * The record whose comment ends the archive.  A second signature behind it makes two ends of the
 * archive: readers that search from the back take the other one.
 */
static enum tsr_status search_end(const struct tsr_zip_part *a, const unsigned char *tail, size_t n,
				  size_t *at_ret)
{
	bool found = false;

	for (size_t at = 0; at + 4 <= n; at++) {
		const unsigned char *first = memchr(tail + at, TSR_ZIP_END & 0xff, n - 3 - at);

		if (!first)
			break;
		at = (size_t)(first - tail);
		if (tsr_zip_get32(first) != TSR_ZIP_END)
			continue;
		if (found)
			return tsr_fail(a->err, TSR_E_FORMAT,
					"%s: found two ends of a zip archive, one in the other's "
					"comment, expected one",
					a->where);
		if (n - at < TSR_ZIP_END_NBYTES ||
		    tsr_zip_get16(tail + at + 20) != n - at - TSR_ZIP_END_NBYTES)
			continue;
		*at_ret = at;
		found = true;
	}
	if (found)
		return TSR_OK;
	return tsr_fail(a->err, TSR_E_FORMAT,
			"%s: found no end of a zip archive, expected it in the last bytes "
			"(truncated, or bytes behind it?)",
			a->where);
}

enum tsr_status tsr_zip_fail_split(const struct tsr_zip_part *a)
{
	return tsr_fail(a->err, TSR_E_UNSUPPORTED,
			"%s: found a zip archive split over disks, expected it in one part",
			a->where);
}

static bool agree(uint64_t classic, uint64_t escape, uint64_t value)
{
	return classic == escape || classic == value;
}

/* Take the zip64 records' values instead of those of the classic @end, which must agree. */
static enum tsr_status read_end64(const struct tsr_zip_part *a, struct tsr_zip_directory *d,
				  const unsigned char *end, const unsigned char *locator,
				  uint64_t locator_at, uint64_t *end_at)
{
	unsigned char b[TSR_ZIP_END64_NBYTES];
	const uint64_t at = tsr_zip_get64(locator + 8);

	if (tsr_zip_get32(locator + 4) != 0 || tsr_zip_get32(locator + 16) != 1)
		return tsr_zip_fail_split(a);
	if (at > locator_at || locator_at - at != sizeof(b))
		return tsr_fail(a->err, TSR_E_FORMAT,
				"%s: zip64 locator: found offset %" PRIu64
				", expected %zu bytes before its own, %" PRIu64,
				a->where, at, sizeof(b), locator_at);
	TSR_TRY(tsr_zip_read_part(a, b, sizeof(b), at));
	if (tsr_zip_get32(b) != TSR_ZIP_END64 || tsr_zip_get64(b + 4) != locator_at - at - 12)
		return tsr_fail(a->err, TSR_E_FORMAT,
				"%s: zip64 end at offset %" PRIu64 ": wrong signature or length",
				a->where, at);
	if (tsr_zip_get32(b + 16) != 0 || tsr_zip_get32(b + 20) != 0 ||
	    tsr_zip_get64(b + 24) != tsr_zip_get64(b + 32))
		return tsr_zip_fail_split(a);
	d->count = tsr_zip_get64(b + 32);
	d->nbytes = tsr_zip_get64(b + 40);
	d->offset = tsr_zip_get64(b + 48);
	if (!agree(tsr_zip_get16(end + 10), TSR_ZIP_U16_ESCAPE, d->count) ||
	    !agree(tsr_zip_get32(end + 12), TSR_ZIP_U32_ESCAPE, d->nbytes) ||
	    !agree(tsr_zip_get32(end + 16), TSR_ZIP_U32_ESCAPE, d->offset))
		return tsr_fail(a->err, TSR_E_FORMAT,
				"%s: end of the zip archive: its zip64 form says otherwise",
				a->where);
	*end_at = at;
	return TSR_OK;
}

/* @end_at: where the end records start, which is where the central directory must end. */
static enum tsr_status read_end(const struct tsr_zip_part *a, struct tsr_zip_directory *d,
				const unsigned char *end, uint64_t *end_at)
{
	unsigned char locator[TSR_ZIP_LOCATOR_NBYTES];

	if (tsr_zip_get16(end + 4) != 0 || tsr_zip_get16(end + 6) != 0 ||
	    tsr_zip_get16(end + 8) != tsr_zip_get16(end + 10))
		return tsr_zip_fail_split(a);
	d->count = tsr_zip_get16(end + 10);
	d->nbytes = tsr_zip_get32(end + 12);
	d->offset = tsr_zip_get32(end + 16);
	if (*end_at < sizeof(locator))
		return TSR_OK;
	TSR_TRY(tsr_zip_read_part(a, locator, sizeof(locator), *end_at - sizeof(locator)));
	if (tsr_zip_get32(locator) != TSR_ZIP_LOCATOR)
		return TSR_OK;
	return read_end64(a, d, end, locator, *end_at - sizeof(locator), end_at);
}

static enum tsr_status check_directory(const struct tsr_zip_part *a,
				       const struct tsr_zip_directory *d, uint64_t end_at)
{
	if (d->offset > end_at || d->nbytes != end_at - d->offset)
		return tsr_fail(a->err, TSR_E_FORMAT,
				"%s: central directory: found %" PRIu64 " bytes at offset %" PRIu64
				", expected it to end at %" PRIu64,
				a->where, d->nbytes, d->offset, end_at);
	if (d->count > TSR_ZIP_MEMBERS_MAX)
		return tsr_fail(a->err, TSR_E_LIMIT,
				"%s: central directory: %" PRIu64
				" members are over the limit of %u",
				a->where, d->count, TSR_ZIP_MEMBERS_MAX);
	if (d->nbytes > TSR_ZIP_DIRECTORY_MAX)
		return tsr_fail(a->err, TSR_E_LIMIT,
				"%s: central directory: %" PRIu64
				" bytes are over the limit of %" PRIu64,
				a->where, d->nbytes, TSR_ZIP_DIRECTORY_MAX);
	if (d->count > d->nbytes / TSR_ZIP_CENTRAL_NBYTES)
		return tsr_fail(a->err, TSR_E_FORMAT,
				"%s: central directory: found %" PRIu64 " bytes, expected %" PRIu64
				" members in them",
				a->where, d->nbytes, d->count);
	return TSR_OK;
}

enum tsr_status tsr_zip_find_directory(const struct tsr_zip_part *a, struct tsr_zip_directory *d)
{
	const uint64_t most = TSR_ZIP_END_NBYTES + 0xffff;
	const size_t n = (size_t)(a->nbytes < most ? a->nbytes : most);
	TSR_OWNED(free) unsigned char *tail = NULL;
	uint64_t end_at;
	size_t at = 0;

	TSR_TRY(TSR_NEW(&tail, n + 1, a->err, a->where));
	TSR_TRY(tsr_zip_read_part(a, tail, n, a->nbytes - n));
	TSR_TRY(search_end(a, tail, n, &at));
	end_at = a->nbytes - n + at;
	TSR_TRY(read_end(a, d, tail + at, &end_at));
	return check_directory(a, d, end_at);
}
