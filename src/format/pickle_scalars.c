/* SPDX-License-Identifier: Apache-2.0 */
/* The opcodes of scalars and of the memo, as a pickle of protocol 2 has them. */
#include "format/pickle_writer.h"

#include "base/fail.h"
#include "base/little_endian.h"

void tsr_pickle_put_op(struct tsr_pickle_writer *w, unsigned char op)
{
	const char byte = (char)op;

	tsr_text_put(w->out, &byte, 1);
}

/* Little-endian. */
static void put_number(struct tsr_pickle_writer *w, uint64_t value, size_t nbytes)
{
	char bytes[8];

	tsr_put_le(bytes, value, nbytes);
	tsr_text_put(w->out, bytes, nbytes);
}

/* An opcode with an operand. */
void tsr_pickle_put_with(struct tsr_pickle_writer *w, unsigned char op, uint64_t value,
			 size_t nbytes)
{
	tsr_pickle_put_op(w, op);
	put_number(w, value, nbytes);
}

/* The value at the top of the stack goes into the memo; returns its id. */
uint32_t tsr_pickle_put_memo(struct tsr_pickle_writer *w)
{
	const uint32_t id = w->nmemo++;

	if (id < 256)
		tsr_pickle_put_with(w, 'q', id, 1); /* BINPUT */
	else
		tsr_pickle_put_with(w, 'r', id, 4); /* LONG_BINPUT */
	return id;
}

void tsr_pickle_put_from_memo(struct tsr_pickle_writer *w, uint32_t id)
{
	if (id < 256)
		tsr_pickle_put_with(w, 'h', id, 1); /* BINGET */
	else
		tsr_pickle_put_with(w, 'j', id, 4); /* LONG_BINGET */
}

void tsr_pickle_put_bool(struct tsr_pickle_writer *w, bool boolean)
{
	tsr_pickle_put_op(w, boolean ? 0x88 : 0x89); /* NEWTRUE, NEWFALSE */
}

/* LONG1, LONG4 */
static enum tsr_status write_long(struct tsr_pickle_writer *w, const char *bytes, size_t nbytes)
{
	if (nbytes > TSR_PICKLE_LONG_MAX)
		return tsr_fail(w->err, TSR_E_LIMIT,
				"%.400s: an int of %zu bytes is over the limit of %u", w->where,
				nbytes, TSR_PICKLE_LONG_MAX);
	if (nbytes < 256)
		tsr_pickle_put_with(w, 0x8a, nbytes, 1);
	else
		tsr_pickle_put_with(w, 0x8b, nbytes, 4);
	tsr_text_put(w->out, bytes, nbytes);
	return TSR_OK;
}

enum tsr_status tsr_pickle_put_int(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	int64_t value;

	if (!tsr_value_get_i64(v, &value) || value < INT32_MIN || value > INT32_MAX)
		return write_long(w, v->text.bytes, v->text.nbytes);
	if (value >= 0 && value < 256)
		tsr_pickle_put_with(w, 'K', (uint64_t)value, 1); /* BININT1 */
	else if (value >= 0 && value < 65536)
		tsr_pickle_put_with(w, 'M', (uint64_t)value, 2); /* BININT2 */
	else
		tsr_pickle_put_with(w, 'J', (uint64_t)value, 4); /* BININT */
	return TSR_OK;
}

enum tsr_status tsr_pickle_put_u64(struct tsr_pickle_writer *w, uint64_t value)
{
	char bytes[9] = { 0 }; /* the last is for the sign */
	struct tsr_value v = { .type = TSR_VALUE_INT, .text.bytes = bytes };

	tsr_put_le(bytes, value, 8);
	v.text.nbytes = 9;
	while (v.text.nbytes > 1 && !bytes[v.text.nbytes - 1] && !(bytes[v.text.nbytes - 2] & 0x80))
		v.text.nbytes--;
	return tsr_pickle_put_int(w, &v);
}

/* BINFLOAT is the one big-endian thing in a pickle. */
void tsr_pickle_put_float(struct tsr_pickle_writer *w, uint64_t real)
{
	tsr_pickle_put_op(w, 'G');
	for (int shift = 56; shift >= 0; shift -= 8)
		tsr_pickle_put_op(w, (unsigned char)(real >> shift));
}

/* The opcode and length of a string, whose bytes follow. */
enum tsr_status tsr_pickle_put_string_head(struct tsr_pickle_writer *w, size_t nbytes)
{
	if (nbytes > TSR_PICKLE_STRING_MAX)
		return tsr_fail(w->err, TSR_E_LIMIT,
				"%.400s: a string of %zu bytes is over the limit of %" PRIu64,
				w->where, nbytes, TSR_PICKLE_STRING_MAX);
	tsr_pickle_put_with(w, 'X', nbytes, 4); /* BINUNICODE */
	return TSR_OK;
}

enum tsr_status tsr_pickle_put_string(struct tsr_pickle_writer *w, const char *bytes, size_t nbytes)
{
	if (!tsr_value_is_text(bytes, nbytes))
		return tsr_fail(w->err, TSR_E_FORMAT, "%.400s: found a string that is not UTF-8",
				w->where);
	TSR_TRY(tsr_pickle_put_string_head(w, nbytes));
	tsr_text_put(w->out, bytes, nbytes);
	return TSR_OK;
}
