/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_PICKLES_H
#define TSR_TESTS_PICKLES_H

/* Pickles as strings of bytes, and programs that are put together. */
#include "format/pickle.h"
#include "values.h"

struct pickle {
	const char *bytes;
	size_t nbytes;
};

#define BYTES(literal) \
	{ \
		literal, sizeof(literal) - 1 \
	}
#define WHERE "FILE: data.pkl"

/* Reads a copy that ends with its last byte and is gone when the value is looked at. */
static inline UNUSED enum tsr_status read_pickle(struct tsr_arena *a, const char *bytes,
						 size_t nbytes, struct tsr_value **ret,
						 struct tsr_err *err)
{
	char *copy = malloc(nbytes ? nbytes : 1);
	enum tsr_status status;

	assert_non_null(copy);
	memcpy(copy, bytes, nbytes);
	status = tsr_pickle_read(copy, nbytes, WHERE, a, ret, err);
	memset(copy, 0xee, nbytes);
	free(copy);
	return status;
}

static inline UNUSED struct tsr_value *read_ok(struct tsr_arena *a, const char *bytes,
					       size_t nbytes)
{
	struct tsr_value *v = NULL;
	struct tsr_err err = { .msg = "untouched" };

	if (read_pickle(a, bytes, nbytes, &v, &err) != TSR_OK)
		fail_msg("refused: %s", err.msg);
	assert_non_null(v);
	assert_string_equal(err.msg, "untouched");
	return v;
}

/* Refused with a status and a message that has these words after the place. */
static inline UNUSED void expect_refused(struct tsr_arena *a, const char *bytes, size_t nbytes,
					 enum tsr_status want, const char *words)
{
	struct tsr_value *const untouched = (struct tsr_value *)(void *)&nbytes;
	struct tsr_value *v = untouched;
	struct tsr_err err = { 0 };
	const enum tsr_status status = read_pickle(a, bytes, nbytes, &v, &err);

	if (status != want || !strstr(err.msg, words))
		fail_msg("status %d, expected %d with \"%s\": %s", (int)status, (int)want, words,
			 err.msg);
	assert_ptr_equal(v, untouched);
	assert_int_equal(err.code, want);
	assert_memory_equal(err.msg, WHERE ": ", strlen(WHERE ": "));
	if (want == TSR_E_LIMIT)
		assert_non_null(strstr(err.msg, "limit"));
}

/* The same bytes, again and again, at the end of a program. */
static inline UNUSED void put_times(struct tsr_text *t, const char *bytes, size_t nbytes, size_t n)
{
	while (n--)
		tsr_text_put(t, bytes, nbytes);
	assert_false(t->failed);
}

#define PUT(t, literal) put_times(t, literal, sizeof(literal) - 1, 1)
#define PUT_TIMES(t, literal, n) put_times(t, literal, sizeof(literal) - 1, n)

/* Ints of every width, as pickle.dumps(..., 2) writes them. */
static const struct {
	const char *shown;
	struct pickle pickle;
} pickled_ints[] = {
	{ "0", BYTES("\200\002K\000.") },
	{ "-1", BYTES("\200\002J\377\377\377\377.") },
	{ "255", BYTES("\200\002K\377.") },
	{ "256", BYTES("\200\002M\000\001.") },
	{ "65535", BYTES("\200\002M\377\377.") },
	{ "65536", BYTES("\200\002J\000\000\001\000.") },
	{ "2147483647", BYTES("\200\002J\377\377\377\177.") },
	{ "2147483648", BYTES("\200\002\212\005\000\000\000\200\000.") },
	{ "-2147483648", BYTES("\200\002J\000\000\000\200.") },
	{ "-2147483649", BYTES("\200\002\212\005\377\377\377\177\377.") },
	{ "1099511627776", BYTES("\200\002\212\006\000\000\000\000\000\001.") },
	{ "-9223372036854775808", BYTES("\200\002\212\010\000\000\000\000\000\000\000\200.") },
	{ "9223372036854775807", BYTES("\200\002\212\010\377\377\377\377\377\377\377\177.") },
	{ "0x008000000000000000", BYTES("\200\002\212\011\000\000\000\000\000\000\000\200\000.") },
	{ "0x00ffffffffffffffff", BYTES("\200\002\212\011\377\377\377\377\377\377\377\377\000.") },
	{ "0x80000000000000000000000000000000",
	  BYTES("\200\002\212\020\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\200.") },
	{ "0x0080000000000000000000000000000000",
	  BYTES("\200\002\212\021\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\200\000.") },
};

/* struct.pack(">d", x): 1.5, -0.0, the least subnormal, infinities, NaNs quiet and signalling. */
static const uint64_t float_bits[] = {
	0x3ff8000000000000, 0x8000000000000000, 0x0000000000000001, 0x7ff0000000000000,
	0xfff0000000000000, 0x7ff8000000000000, 0xfff8000000000123, 0x7ff0000000000001,
	0x7fefffffffffffff, 0x0000000000000000, 0x0123456789abcdef,
};

/* torch.save({"w": torch.arange(128.).reshape(16, 8)}), as PyTorch 2.11 has data.pkl. */
#define TORCH_PICKLE \
	"\200\002}q\000X\001\000\000\000wq\001ctorch._utils\n_rebuild_tensor_v2\nq\002((" \
	"X\007\000\000\000storageq\003ctorch\nFloatStorage\nq\004X\001\000\000\0000q\005" \
	"X\003\000\000\000cpuq\006K\200tq\007QK\000K\020K\010\206q\010K\010K\001\206q\011\211" \
	"ccollections\nOrderedDict\nq\012)Rq\013tq\014Rq\015s."

/* The same with pickle_protocol=4. */
#define TORCH_PICKLE_4 \
	"\200\004\225\226\0\0\0\0\0\0\0}\224\214\001w\224\214\014torch._utils\224" \
	"\214\022_rebuild_tensor_v2\224\223\224((\214\007storage\224\214\005torch\224" \
	"\214\014FloatStorage\224\223\224\214\0010\224\214\003cpu\224K\200t\224QK\000K\020K\010" \
	"\206" \
	"\224K\010K\001\206\224\211\214\013collections\224\214\013OrderedDict\224\223\224)R\224t" \
	"\224R\224s."

#endif
