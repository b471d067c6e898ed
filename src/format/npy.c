/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of an .npy file: a Python literal, of which only the form that numpy writes is
 * understood.  Nothing in that form nests, so nothing here recurses.
 */
#include "format/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/utf8.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_NBYTES 6u

/* numpy's names of types, which follow a byte order. */
static const struct {
	const char *code;
	enum tsr_dtype dtype;
} types[] = {
	{ "b1", TSR_BOOL }, { "i1", TSR_I8 },  { "u1", TSR_U8 },  { "i2", TSR_I16 },
	{ "u2", TSR_U16 },  { "i4", TSR_I32 }, { "u4", TSR_U32 }, { "i8", TSR_I64 },
	{ "u8", TSR_U64 },  { "f2", TSR_F16 }, { "f4", TSR_F32 }, { "f8", TSR_F64 },
	{ "c8", TSR_C64 },
};
#define TYPE_COUNT (sizeof(types) / sizeof(*types))

/* --- Reading -------------------------------------------------------------------------------- */

/* A header under examination. */
struct reading {
	const char *where;
	const char *text; /* the literal */
	size_t nbytes, at;
	size_t start; /* of the text in the file */
	unsigned major; /* version */
	enum tsr_dtype as;
	struct tsr_npy_header h;
	struct tsr_err *err;
};

/* A run of bytes between quotes. */
struct span {
	const char *bytes;
	size_t nbytes;
};

static bool span_is(struct span s, const char *word)
{
	return s.nbytes == strlen(word) && memcmp(s.bytes, word, s.nbytes) == 0;
}

static int peek(const struct reading *r)
{
	return r->at < r->nbytes ? (unsigned char)r->text[r->at] : -1;
}

static void skip_space(struct reading *r)
{
	while (r->at < r->nbytes && memchr(" \t\n\r", r->text[r->at], 4))
		r->at++;
}

/* The text at hand is not what a header has there. */
static enum tsr_status malformed(struct reading *r, const char *expected)
{
	char found[] = "'?'";

	if (r->at < r->nbytes)
		found[1] = r->text[r->at];
	return tsr_fail(r->err, TSR_E_FORMAT, "%s: npy header byte %zu: found %s, expected %s",
			r->where, r->start + r->at, r->at < r->nbytes ? found : "its end",
			expected);
}

static enum tsr_status take(struct reading *r, char c)
{
	const char expected[] = { '\'', c, '\'', '\0' };

	skip_space(r);
	if (peek(r) != c)
		return malformed(r, expected);
	r->at++;
	return TSR_OK;
}

/* A string without escapes: no key or type needs one. */
static enum tsr_status read_string(struct reading *r, struct span *ret)
{
	int quote;

	skip_space(r);
	quote = peek(r);
	if (quote != '\'' && quote != '"')
		return malformed(r, "a string");
	ret->bytes = r->text + ++r->at;
	while (peek(r) >= ' ' && peek(r) != quote && peek(r) != '\\')
		r->at++;
	ret->nbytes = (size_t)(r->text + r->at - ret->bytes);
	if (peek(r) != quote)
		return malformed(r, "the end of a plain string");
	r->at++;
	return TSR_OK;
}

static enum tsr_status read_fortran_order(struct reading *r)
{
	static const char *const words[] = { "False", "True" };

	skip_space(r);
	for (unsigned i = 0; i < 2; i++) {
		const size_t len = strlen(words[i]);

		if (r->nbytes - r->at < len || memcmp(r->text + r->at, words[i], len) != 0)
			continue;
		r->at += len;
		r->h.fortran_order = i;
		return TSR_OK;
	}
	return malformed(r, "True or False");
}

/* Decimal digits as Python writes them; Python 2 put an L behind what it held as a long. */
static enum tsr_status read_dimension(struct reading *r)
{
	const size_t start = r->at;
	uint64_t value = 0;

	if (r->h.rank == TSR_RANK_MAX)
		return tsr_fail(r->err, TSR_E_LIMIT,
				"%s: npy header byte %zu: more dimensions than the limit of %u",
				r->where, r->start + r->at, TSR_RANK_MAX);
	while (peek(r) >= '0' && peek(r) <= '9') {
		if (value <= TSR_NPY_DIM_MAX)
			value = 10 * value + (uint64_t)(r->text[r->at] - '0');
		r->at++;
	}
	if (r->at == start)
		return malformed(r, "a dimension");
	if (r->at - start > 1 && r->text[start] == '0') {
		r->at = start;
		return malformed(r, "a dimension without leading zeros");
	}
	if (value > TSR_NPY_DIM_MAX)
		return tsr_fail(
			r->err, TSR_E_LIMIT,
			"%s: npy header byte %zu: found dimension %.*s, over the limit of 2^48-1",
			r->where, r->start + start, (int)(r->at - start < 40 ? r->at - start : 40),
			r->text + start);
	if (r->major < 3 && peek(r) == 'L')
		r->at++;
	r->h.shape[r->h.rank++] = value;
	return TSR_OK;
}

static enum tsr_status read_shape(struct reading *r)
{
	TSR_TRY(take(r, '('));
	for (;;) {
		skip_space(r);
		if (peek(r) == ')')
			break;
		TSR_TRY(read_dimension(r));
		skip_space(r);
		if (peek(r) == ',')
			r->at++;
		else if (r->h.rank == 1) /* (3) is a number, (3,) a tuple */
			return malformed(r, "','");
		else if (peek(r) != ')')
			return malformed(r, "',' or ')'");
	}
	r->at++;
	return TSR_OK;
}

/* What the types that are refused are, by numpy's letter for their kind. */
static const char *kind_of(struct span descr)
{
	switch (descr.nbytes > 1 ? descr.bytes[1] : '\0') {
	case 'O':
		return "Python objects";
	case 'S':
	case 'U':
	case 'a':
		return "text";
	case 'M':
	case 'm':
		return "dates or times";
	case 'V':
		return "opaque bytes";
	case 'i':
	case 'u':
	case 'f':
	case 'c':
		return "another size";
	default:
		return "unknown";
	}
}

static enum tsr_status read_opaque(struct reading *r, struct span descr, unsigned nbytes)
{
	if (r->as == TSR_DTYPE_COUNT)
		return tsr_fail_hint(r->err, TSR_E_UNSUPPORTED, TSR_HINT_DTYPE,
				     "%s: npy header: found type %.*s, opaque bytes, and nothing "
				     "that says what they hold",
				     r->where, (int)descr.nbytes, descr.bytes);
	if (tsr_dtype_bits(r->as) != 8 * nbytes)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: npy header: found type %.*s, which cannot hold %s of %u bits",
				r->where, (int)descr.nbytes, descr.bytes, tsr_dtype_name(r->as),
				tsr_dtype_bits(r->as));
	r->h.dtype = r->as;
	return TSR_OK;
}

static enum tsr_status read_type(struct reading *r, struct span descr)
{
	const struct span code = { descr.bytes + 1, descr.nbytes - 1 };

	if (descr.nbytes == 3 && memchr("<>|=", *descr.bytes, 4)) {
		r->h.swapped = *descr.bytes == '>' && code.bytes[1] != '1';
		if (span_is(code, "V1") || span_is(code, "V2"))
			return read_opaque(r, descr, code.bytes[1] == '1' ? 1 : 2);
		for (size_t i = 0; i < TYPE_COUNT; i++) {
			if (!span_is(code, types[i].code))
				continue;
			r->h.dtype = types[i].dtype;
			return TSR_OK;
		}
		if (span_is(code, "f1")) {
			r->h.dtype = TSR_F8_E5M2;
			return TSR_OK;
		}
	}
	return tsr_fail(r->err, TSR_E_UNSUPPORTED,
			"%s: npy header: found type '%.*s' (%s), expected one of b1, i1 to i8, u1 "
			"to u8, f2 to f8 or c8 behind its byte order",
			r->where, (int)(descr.nbytes < 40 ? descr.nbytes : 40), descr.bytes,
			kind_of(descr));
}

static enum tsr_status read_descr(struct reading *r)
{
	struct span descr;

	skip_space(r);
	if (peek(r) == '[' || peek(r) == '(')
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: npy header: found a structured type, expected a plain one",
				r->where);
	TSR_TRY(read_string(r, &descr));
	return read_type(r, descr);
}

static const struct {
	const char *name;
	enum tsr_status (*read)(struct reading *r);
} members[] = {
	{ "descr", read_descr },
	{ "fortran_order", read_fortran_order },
	{ "shape", read_shape },
};
#define MEMBER_COUNT (sizeof(members) / sizeof(*members))

/* One "KEY: VALUE"; sets its bit in *seen. */
static enum tsr_status read_member(struct reading *r, unsigned *seen)
{
	struct span key;
	size_t i = 0;

	TSR_TRY(read_string(r, &key));
	while (i < MEMBER_COUNT && !span_is(key, members[i].name))
		i++;
	if (i == MEMBER_COUNT || *seen & 1u << i)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: npy header byte %zu: found %s key '%.*s', expected descr, "
				"fortran_order and shape once each",
				r->where, r->start + (size_t)(key.bytes - r->text),
				i == MEMBER_COUNT ? "unknown" : "duplicate",
				(int)(key.nbytes < 40 ? key.nbytes : 40), key.bytes);
	*seen |= 1u << i;
	TSR_TRY(take(r, ':'));
	return members[i].read(r);
}

static enum tsr_status read_members(struct reading *r)
{
	unsigned seen = 0;

	TSR_TRY(take(r, '{'));
	for (;;) {
		skip_space(r);
		if (peek(r) == '}')
			break;
		TSR_TRY(read_member(r, &seen));
		skip_space(r);
		if (peek(r) == ',')
			r->at++;
		else if (peek(r) != '}')
			return malformed(r, "',' or '}'");
	}
	r->at++;
	for (size_t i = 0; i < MEMBER_COUNT; i++) {
		if (!(seen & 1u << i))
			return tsr_fail(r->err, TSR_E_FORMAT, "%s: npy header: no key '%s'",
					r->where, members[i].name);
	}
	skip_space(r);
	return r->at == r->nbytes ? TSR_OK : malformed(r, "spaces and a newline");
}

/* Version 3.0 is UTF-8; in Latin-1, which the others are, everything is text. */
static enum tsr_status check_encoding(struct reading *r)
{
	uint32_t codepoint;

	for (size_t at = 0, len; r->major >= 3 && at < r->nbytes; at += len) {
		len = tsr_utf8_next(r->text + at, r->nbytes - at, &codepoint);
		if (!len)
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: npy header byte %zu: bytes that are not UTF-8",
					r->where, r->start + at);
	}
	return TSR_OK;
}

static enum tsr_status read_text(struct reading *r)
{
	TSR_TRY(check_encoding(r));
	if (!r->nbytes || r->text[r->nbytes - 1] != '\n')
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: npy header of %zu bytes does not end with a newline", r->where,
				r->nbytes);
	return read_members(r);
}

/* Set numel and nbytes; what stands behind the header must be just that. */
static enum tsr_status check_size(struct reading *r, uint64_t data_nbytes)
{
	struct tsr_npy_header *h = &r->h;

	h->numel = 1;
	for (unsigned d = 0; d < h->rank; d++) {
		if (__builtin_mul_overflow(h->numel, h->shape[d], &h->numel))
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: npy header: shape overflows 64 bits", r->where);
	}
	if (__builtin_mul_overflow(h->numel, (uint64_t)tsr_dtype_bits(h->dtype) / 8, &h->nbytes))
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: npy header: shape overflows 64 bits of size", r->where);
	if (h->nbytes != data_nbytes)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: found %" PRIu64
				" bytes behind the npy header, expected %" PRIu64 " for its shape",
				r->where, data_nbytes, h->nbytes);
	return TSR_OK;
}

/* Find the text: sets text, nbytes, start and major. */
static enum tsr_status find_text(struct reading *r, const unsigned char *bytes, size_t nbytes,
				 uint64_t file_nbytes)
{
	uint64_t text_nbytes = 0;
	unsigned width;

	if (nbytes < MAGIC_NBYTES + 2 || memcmp(bytes, MAGIC, MAGIC_NBYTES) != 0)
		return tsr_fail(
			r->err, TSR_E_FORMAT,
			"%s: not an .npy file: does not begin with \\x93NUMPY and a version",
			r->where);
	r->major = bytes[MAGIC_NBYTES];
	if (r->major < 1 || r->major > 3 || bytes[MAGIC_NBYTES + 1] != 0)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: found npy version %u.%u, expected 1.0, 2.0 or 3.0", r->where,
				r->major, bytes[MAGIC_NBYTES + 1]);
	width = r->major == 1 ? 2 : 4;
	r->start = MAGIC_NBYTES + 2 + width;
	if (nbytes < r->start)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: truncated npy header: found %zu bytes, expected at least %zu",
				r->where, nbytes, r->start);
	while (width--)
		text_nbytes = text_nbytes << 8 | bytes[MAGIC_NBYTES + 2 + width];
	if (text_nbytes > file_nbytes - r->start)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: truncated npy header: found %" PRIu64
				" bytes behind its length, expected at least %" PRIu64,
				r->where, file_nbytes - r->start, text_nbytes);
	if (text_nbytes > TSR_NPY_HEADER_MAX - r->start || text_nbytes > nbytes - r->start)
		return tsr_fail(r->err, TSR_E_LIMIT,
				"%s: npy header of %" PRIu64 " bytes is over the limit of %u",
				r->where, text_nbytes + r->start, TSR_NPY_HEADER_MAX);
	r->text = (const char *)bytes + r->start;
	r->nbytes = (size_t)text_nbytes;
	return TSR_OK;
}

enum tsr_status tsr_npy_parse(const void *bytes, size_t nbytes, uint64_t file_nbytes,
			      enum tsr_dtype as, const char *where, struct tsr_npy_header *ret,
			      struct tsr_err *err)
{
	struct reading r = { .where = where, .as = as, .err = err };

	TSR_TRY(find_text(&r, bytes, nbytes, file_nbytes));
	TSR_TRY(read_text(&r));
	r.h.data_offset = r.start + r.nbytes;
	TSR_TRY(check_size(&r, file_nbytes - r.h.data_offset));
	*ret = r.h;
	return TSR_OK;
}

/* --- Writing -------------------------------------------------------------------------------- */

/* numpy aligns the data, and leaves the first dimension room to grow to this many digits. */
#define ALIGNMENT 64u
#define GROWTH_DIGITS 21

/* The type's name with its byte order, or NULL. */
static const char *descr_of(enum tsr_dtype dtype, char out[4])
{
	const unsigned bits = tsr_dtype_bits(dtype);

	for (size_t i = 0; i < TYPE_COUNT; i++) {
		if (types[i].dtype != dtype)
			continue;
		snprintf(out, 4, "%c%s", bits == 8 ? '|' : '<', types[i].code);
		return out;
	}
	return bits == 8 ? "<V1" : bits == 16 ? "<V2" : NULL;
}

/* Append the shape's text and return the number of digits of the first dimension. */
static int put_shape(struct tsr_text *out, unsigned rank, const uint64_t *shape)
{
	tsr_text_puts(out, "(");
	for (unsigned d = 0; d < rank; d++)
		tsr_text_printf(out, d ? ", %" PRIu64 : "%" PRIu64, shape[d]);
	tsr_text_puts(out, rank == 1 ? ",)" : ")");
	return rank ? snprintf(NULL, 0, "%" PRIu64, shape[0]) : GROWTH_DIGITS;
}

enum tsr_status tsr_npy_compose(enum tsr_dtype dtype, unsigned rank, const uint64_t *shape,
				const char *where, struct tsr_text *out, struct tsr_err *err)
{
	static const char prefix[MAGIC_NBYTES + 4] = MAGIC "\x01\0\0"; /* the length comes later */
	const size_t start = out->nbytes;
	char code[4];
	const char *descr = descr_of(dtype, code);
	size_t text_nbytes;
	int digits;

	if (!descr)
		return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: an .npy file cannot hold %s", where,
				tsr_dtype_name(dtype));
	tsr_text_put(out, prefix, sizeof(prefix));
	tsr_text_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': ", descr);
	digits = put_shape(out, rank, shape);
	tsr_text_printf(out, ", }%*s", GROWTH_DIGITS - digits, "");
	/* At least one space and the newline, as numpy does it. */
	text_nbytes = (out->nbytes - start + 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
	tsr_text_printf(out, "%*s\n", (int)(text_nbytes - (out->nbytes - start) - 1), "");
	if (out->failed)
		return tsr_fail_nomem(err, where);
	text_nbytes -= sizeof(prefix);
	out->bytes[start + 8] = (char)(text_nbytes & 0xff);
	out->bytes[start + 9] = (char)(text_nbytes >> 8);
	return TSR_OK;
}
