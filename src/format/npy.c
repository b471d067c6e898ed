/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of an .npy file: a Python literal, of which only the form that numpy writes is
 * understood.  Nothing in that form nests, so nothing here recurses.
 */
#include "format/npy.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "base/utf8.h"
#include "text/shape.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_NBYTES 6u

/* numpy's names of types, which follow a byte order. */
static const struct {
	const char *code;
	enum tsr_dtype dtype;
} types[] = {
	{ "b1", TSR_BOOL }, { "i1", TSR_I8 },	   { "u1", TSR_U8 },  { "i2", TSR_I16 },
	{ "u2", TSR_U16 },  { "i4", TSR_I32 },	   { "u4", TSR_U32 }, { "i8", TSR_I64 },
	{ "u8", TSR_U64 },  { "f2", TSR_F16 },	   { "f4", TSR_F32 }, { "f8", TSR_F64 },
	{ "c8", TSR_C64 },  { "f1", TSR_F8_E5M2 },
};

/* numpy does not load what ml_dtypes calls f1, so that is only read. */
#define NREAD (sizeof(types) / sizeof(*types))
#define NWRITTEN (NREAD - 1)

/* --- Reading -------------------------------------------------------------------------------- */

/* A header being read. */
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

/* Bytes between quotes. */
struct span {
	const char *bytes;
	size_t nbytes;
};

static bool span_is(struct span s, const char *word)
{
	return s.nbytes == strlen(word) && memcmp(s.bytes, word, s.nbytes) == 0;
}

/* For "%.*s": a span cut to what a message shows. */
static int shown(size_t nbytes)
{
	return (int)(nbytes < 40 ? nbytes : 40);
}

static int peek(const struct reading *r)
{
	return r->at < r->nbytes ? (unsigned char)r->text[r->at] : -1;
}

/* The next byte that is not a space. */
static int peek_token(struct reading *r)
{
	while (r->at < r->nbytes && memchr(" \t\n\r", r->text[r->at], 4))
		r->at++;
	return peek(r);
}

#define NOWHERE SIZE_MAX

/* Fail with "WHERE: npy header byte 12: " before the message, or without byte. */
__attribute__((format(printf, 4, 5))) static enum tsr_status fail(const struct reading *r,
								  enum tsr_status code, size_t at,
								  const char *fmt, ...)
{
	char found[TSR_ERR_MAX], byte[32] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(found, sizeof(found), fmt, ap);
	va_end(ap);
	if (at != NOWHERE)
		snprintf(byte, sizeof(byte), " byte %zu", r->start + at);
	return tsr_fail(r->err, code, "%s: npy header%s: %s", r->where, byte, found);
}

/* The next byte is not what a header has there. */
static enum tsr_status malformed(const struct reading *r, const char *expected)
{
	char found[] = "'?'";

	if (r->at < r->nbytes)
		found[1] = r->text[r->at];
	return fail(r, TSR_E_FORMAT, r->at, "found %s, expected %s",
		    r->at < r->nbytes ? found : "its end", expected);
}

static enum tsr_status take(struct reading *r, char c)
{
	const char expected[] = { '\'', c, '\'', '\0' };

	if (peek_token(r) != c)
		return malformed(r, expected);
	r->at++;
	return TSR_OK;
}

/* After an item of a list that @end ends: its comma, if it is there. */
static enum tsr_status take_comma(struct reading *r, char end, const char *expected)
{
	const int c = peek_token(r);

	if (c != ',' && c != end)
		return malformed(r, expected);
	r->at += c == ',';
	return TSR_OK;
}

/* A string without escapes: no key or type needs one. */
static enum tsr_status read_string(struct reading *r, struct span *ret)
{
	const int quote = peek_token(r);

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
	const bool order = peek_token(r) == 'T';
	const char *word = order ? "True" : "False";
	const size_t len = strlen(word);

	if (r->nbytes - r->at < len || memcmp(r->text + r->at, word, len) != 0)
		return malformed(r, "True or False");
	r->at += len;
	r->h.fortran_order = order;
	return TSR_OK;
}

/* Decimal digits as Python writes them; Python 2 put an L behind what it held as a long. */
static enum tsr_status read_dimension(struct reading *r)
{
	const size_t start = r->at;
	uint64_t value = 0;

	if (r->h.rank == TSR_RANK_MAX)
		return fail(r, TSR_E_LIMIT, r->at, "more dimensions than the limit of %u",
			    TSR_RANK_MAX);
	for (; peek(r) >= '0' && peek(r) <= '9'; r->at++) {
		if (value <= TSR_NPY_DIM_MAX)
			value = 10 * value + (uint64_t)(r->text[r->at] - '0');
	}
	if (r->at == start)
		return malformed(r, "a dimension");
	if (r->at - start > 1 && r->text[start] == '0') {
		r->at = start;
		return malformed(r, "a dimension without leading zeros");
	}
	if (value > TSR_NPY_DIM_MAX)
		return fail(r, TSR_E_LIMIT, start, "found dimension %.*s, over the limit of 2^48-1",
			    shown(r->at - start), r->text + start);
	if (r->major < 3 && peek(r) == 'L')
		r->at++;
	r->h.shape[r->h.rank++] = value;
	return TSR_OK;
}

static enum tsr_status read_shape(struct reading *r)
{
	TSR_TRY(take(r, '('));
	while (peek_token(r) != ')') {
		TSR_TRY(read_dimension(r));
		/* (3) is a number, (3,) a tuple. */
		if (r->h.rank == 1)
			TSR_TRY(take_comma(r, ',', "','"));
		else
			TSR_TRY(take_comma(r, ')', "',' or ')'"));
	}
	r->at++;
	return TSR_OK;
}

/* What a type that is refused is, by numpy's letter for its kind. */
static const char *kind_of(struct span descr)
{
	static const struct {
		const char *letters, *kind;
	} kinds[] = {
		{ "O", "Python objects" }, { "SUa", "text" },	       { "Mm", "dates or times" },
		{ "V", "opaque bytes" },   { "iufc", "another size" },
	};

	for (size_t i = 0; descr.nbytes > 1 && i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strchr(kinds[i].letters, descr.bytes[1]))
			return kinds[i].kind;
	}
	return "unknown";
}

static enum tsr_status read_opaque(struct reading *r, struct span descr, unsigned nbits)
{
	if (r->as == TSR_DTYPE_COUNT)
		return tsr_fail_hint(r->err, TSR_E_UNSUPPORTED, TSR_HINT_DTYPE,
				     "%s: npy header: found type %.*s, opaque bytes, and nothing "
				     "that says what they hold",
				     r->where, (int)descr.nbytes, descr.bytes);
	if (tsr_dtype_bits(r->as) != nbits)
		return fail(r, TSR_E_UNSUPPORTED, NOWHERE,
			    "found type %.*s, which cannot hold %s of %u bits", (int)descr.nbytes,
			    descr.bytes, tsr_dtype_name(r->as), tsr_dtype_bits(r->as));
	r->h.dtype = r->as;
	return TSR_OK;
}

static enum tsr_status read_type(struct reading *r, struct span descr)
{
	const struct span code = { descr.bytes + 1, descr.nbytes - 1 };
	const bool plain = descr.nbytes == 3 && memchr("<>|=", *descr.bytes, 4);

	r->h.swapped = plain && *descr.bytes == '>' && code.bytes[1] != '1';
	if (plain && (span_is(code, "V1") || span_is(code, "V2")))
		return read_opaque(r, descr, code.bytes[1] == '1' ? 8 : 16);
	for (size_t i = 0; plain && i < NREAD; i++) {
		if (!span_is(code, types[i].code))
			continue;
		r->h.dtype = types[i].dtype;
		return TSR_OK;
	}
	return fail(
		r, TSR_E_UNSUPPORTED, NOWHERE,
		"found type '%.*s' (%s), expected one of b1, i1 to i8, u1 to u8, f2 to f8 or c8 "
		"behind its byte order",
		shown(descr.nbytes), descr.bytes, kind_of(descr));
}

static enum tsr_status read_descr(struct reading *r)
{
	const int c = peek_token(r);
	struct span descr;

	if (c == '[' || c == '(')
		return fail(r, TSR_E_UNSUPPORTED, NOWHERE,
			    "found a structured type, expected a plain one");
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
		return fail(
			r, TSR_E_FORMAT, (size_t)(key.bytes - r->text),
			"found %s key '%.*s', expected descr, fortran_order and shape once each",
			i == MEMBER_COUNT ? "unknown" : "duplicate", shown(key.nbytes), key.bytes);
	*seen |= 1u << i;
	TSR_TRY(take(r, ':'));
	return members[i].read(r);
}

static enum tsr_status read_members(struct reading *r)
{
	unsigned seen = 0;

	TSR_TRY(take(r, '{'));
	while (peek_token(r) != '}') {
		TSR_TRY(read_member(r, &seen));
		TSR_TRY(take_comma(r, '}', "',' or '}'"));
	}
	r->at++;
	for (size_t i = 0; i < MEMBER_COUNT; i++) {
		if (!(seen & 1u << i))
			return fail(r, TSR_E_FORMAT, NOWHERE, "no key '%s'", members[i].name);
	}
	return peek_token(r) < 0 ? TSR_OK : malformed(r, "spaces and a newline");
}

/* Version 3.0 is UTF-8; in Latin-1, which the others are, everything is text. */
static enum tsr_status read_text(struct reading *r)
{
	const size_t good = r->major >= 3 ? tsr_utf8_prefix(r->text, r->nbytes) : r->nbytes;

	if (good < r->nbytes)
		return fail(r, TSR_E_FORMAT, good, "bytes that are not UTF-8");
	if (!r->nbytes || r->text[r->nbytes - 1] != '\n')
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: npy header of %zu bytes does not end with a newline", r->where,
				r->nbytes);
	return read_members(r);
}

/* Set numel and nbytes, which must be just what follows the header. */
static enum tsr_status check_size(struct reading *r, uint64_t data_nbytes)
{
	struct tsr_npy_header *h = &r->h;

	if (!tsr_shape_numel(h->rank, h->shape, &h->numel) ||
	    __builtin_mul_overflow(h->numel, (uint64_t)tsr_dtype_bits(h->dtype) / 8, &h->nbytes))
		return fail(r, TSR_E_FORMAT, NOWHERE, "shape overflows 64 bits of size");
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
	uint64_t text_nbytes;
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
	text_nbytes = tsr_get_le(bytes + MAGIC_NBYTES + 2, width);
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

	for (size_t i = 0; i < NWRITTEN; i++) {
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
	tsr_put_le(out->bytes + start + MAGIC_NBYTES + 2, text_nbytes, 2);
	return TSR_OK;
}
