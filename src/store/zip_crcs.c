/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CRC-32s of zip members that hold tensors: they change with the elements.  Files of PyTorch are such
 * archives, and those of torch.distributed.checkpoint have many, one behind the other.  Headers are found by
 * their signatures in what tensors leave of a file; one counts only where all that it says fits.
 */
#include "base/grow.h"
#include "format/zip_format.h"
#include "store/ranges.h"

/* A local header. */
struct local {
	uint64_t offset, data; /* in the file: of the header, of the member */
	const uint8_t *at, *name;
	size_t name_nbytes;
};

struct scanning {
	struct tsr_stored_path *p;
	const uint8_t *bytes; /* the rest of the file */
	size_t nbytes;
	struct local *locals;
	size_t nlocals, ncrcs;
};

/* Where a byte of the rest is in the file. */
static enum tsr_status note_offset(void *ctx, uint64_t offset, size_t at, size_t nbytes,
				   struct tsr_err *err)
{
	(void)at;
	(void)nbytes;
	(void)err;
	*(uint64_t *)ctx = offset;
	return TSR_OK;
}

static uint64_t offset_of(const struct scanning *s, size_t at)
{
	uint64_t offset = 0;

	(void)tsr_rest_each(s->p, at, 1, note_offset, &offset, NULL);
	return offset;
}

/* Where a byte of the file is in the rest; SIZE_MAX: it belongs to a tensor, or is not there. */
static size_t rest_of(const struct scanning *s, uint64_t offset)
{
	const size_t n = tsr_ranges_before(s->p, offset + 1);
	const struct tsr_stored_range *before = n ? &s->p->ranges[n - 1] : NULL;

	if (offset >= s->p->nbytes || (before && offset < before->offset + before->nbytes))
		return SIZE_MAX;
	return (size_t)(before ? offset - before->offset - before->nbytes + before->rest : offset);
}

/* Whether any tensor begins within these bytes of the file. */
static bool has_tensor(const struct scanning *s, uint64_t offset, uint64_t nbytes)
{
	return tsr_ranges_before(s->p, offset) < tsr_ranges_before(s->p, offset + nbytes);
}

static bool add_local(struct scanning *s, size_t at)
{
	const uint8_t *b = s->bytes + at;
	const size_t name = (size_t)tsr_zip_get16(b + 26), extra = (size_t)tsr_zip_get16(b + 28);

	if (s->nbytes - at < TSR_ZIP_LOCAL_NBYTES + name + extra)
		return true;
	if (!tsr_grow(&s->locals, s->nlocals, sizeof(*s->locals)))
		return false;
	s->locals[s->nlocals] = (struct local){ .offset = offset_of(s, at),
						.at = b,
						.name = b + TSR_ZIP_LOCAL_NBYTES,
						.name_nbytes = name };
	s->locals[s->nlocals].data = s->locals[s->nlocals].offset + TSR_ZIP_LOCAL_NBYTES + name +
				     extra;
	s->nlocals++;
	return true;
}

/* The size of a member: of 64 bits in the extra field of zip64, if it does not fit. */
static uint64_t member_nbytes(const uint8_t *central, size_t name, size_t extra)
{
	const uint64_t size = tsr_zip_get32(central + 24);
	const uint8_t *at = central + TSR_ZIP_CENTRAL_NBYTES + name, *end = at + extra;

	if (size != TSR_ZIP_U32_ESCAPE)
		return size;
	while (end - at >= 12) {
		const size_t n = (size_t)tsr_zip_get16(at + 2);

		if (tsr_zip_get16(at) == TSR_ZIP_EXTRA64)
			return tsr_zip_get64(at + 4);
		if (n + 4 > (size_t)(end - at))
			break;
		at += n + 4;
	}
	return 0;
}

/* The last one of this name: archives follow each other, and names in one differ. */
static const struct local *find_local(const struct scanning *s, const uint8_t *name, size_t nbytes)
{
	for (size_t i = s->nlocals; i-- > 0;)
		if (s->locals[i].name_nbytes == nbytes &&
		    memcmp(s->locals[i].name, name, nbytes) == 0)
			return &s->locals[i];
	return NULL;
}

static void put_crc(struct scanning *s, uint64_t at, const struct local *local, uint64_t nbytes)
{
	if (s->p->crcs)
		s->p->crcs[s->ncrcs] = (struct tsr_stored_crc){ at, local->data, nbytes };
	s->ncrcs++;
}

static void add_central(struct scanning *s, size_t at)
{
	const uint8_t *b = s->bytes + at;
	const size_t name = (size_t)tsr_zip_get16(b + 28), extra = (size_t)tsr_zip_get16(b + 30);
	const uint64_t crc = tsr_zip_get32(b + 16);
	const struct local *local;
	uint64_t nbytes;
	size_t behind;

	if (s->nbytes - at < TSR_ZIP_CENTRAL_NBYTES + name + extra ||
	    tsr_zip_get16(b + 10) != TSR_ZIP_STORED || !crc)
		return;
	nbytes = member_nbytes(b, name, extra);
	local = find_local(s, b + TSR_ZIP_CENTRAL_NBYTES, name);
	if (!local || !nbytes || nbytes > s->p->nbytes || !has_tensor(s, local->data, nbytes))
		return;
	put_crc(s, offset_of(s, at) + 16, local, nbytes);
	if (tsr_zip_get32(local->at + 14) == crc)
		put_crc(s, local->offset + 14, local, nbytes);
	behind = rest_of(s, local->data + nbytes);
	if (behind != SIZE_MAX && s->nbytes - behind >= 8 &&
	    tsr_zip_get32(s->bytes + behind) == TSR_ZIP_DESCRIPTOR &&
	    tsr_zip_get32(s->bytes + behind + 4) == crc)
		put_crc(s, local->data + nbytes + 4, local, nbytes);
}

static bool scan(struct scanning *s)
{
	s->nlocals = s->ncrcs = 0;
	for (size_t at = 0; at + TSR_ZIP_LOCAL_NBYTES <= s->nbytes; at++) {
		const uint8_t *b = s->bytes + at;

		if (b[0] != 'P')
			continue;
		if (tsr_zip_get32(b) == TSR_ZIP_LOCAL && !add_local(s, at))
			return false;
		if (tsr_zip_get32(b) == TSR_ZIP_CENTRAL && s->nbytes - at >= TSR_ZIP_CENTRAL_NBYTES)
			add_central(s, at);
	}
	return true;
}

enum tsr_status tsr_find_crcs(struct tsr_arena *arena, struct tsr_stored_path *p,
			      const uint8_t *bytes, struct tsr_err *err)
{
	struct scanning s = { .p = p, .bytes = bytes, .nbytes = (size_t)p->rest_nbytes };
	bool done = scan(&s);

	if (done) {
		p->ncrcs = s.ncrcs;
		p->crcs = tsr_arena_alloc(arena, s.ncrcs * sizeof(*p->crcs));
		done = p->crcs && scan(&s);
	}
	free(s.locals);
	return done ? TSR_OK : tsr_fail_nomem(err, p->path);
}
