/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of .npy files: what is accepted, what it means, and what is written. */
#include <inttypes.h>

#include "format/npy.h"
#include "unit.h"

#define DIM_MAX UINT64_C(281474976710655)

/* Parses a copy that ends with its last byte, so that a sanitizer sees whoever reads on. */
static enum tsr_status parse(const void *bytes, size_t nbytes, uint64_t file_nbytes,
			     enum tsr_dtype as, struct tsr_npy_header *ret, struct tsr_err *err)
{
	char *copy = malloc(nbytes ? nbytes : 1);
	enum tsr_status status;

	assert_non_null(copy);
	memcpy(copy, bytes, nbytes);
	status = tsr_npy_parse(copy, nbytes, file_nbytes, as, "FILE", ret, err);
	free(copy);
	return status;
}

/* A header of version @major around a text; returns its length. */
static size_t frame(unsigned char *out, size_t room, unsigned major, const char *text,
		    size_t nbytes)
{
	const unsigned width = major == 1 ? 2 : 4;

	assert_true(nbytes + 12 <= room);
	memcpy(out, "\x93NUMPY", 6);
	out[6] = (unsigned char)major;
	out[7] = 0;
	for (unsigned i = 0; i < width; i++)
		out[8 + i] = (unsigned char)(nbytes >> 8 * i);
	memcpy(out + 8 + width, text, nbytes);
	return 8 + width + nbytes;
}

/* Of a text in version @major before @data_nbytes bytes of data. */
static enum tsr_status parse_text(unsigned major, const char *text, uint64_t data_nbytes,
				  enum tsr_dtype as, struct tsr_npy_header *ret,
				  struct tsr_err *err)
{
	unsigned char bytes[4096];
	const size_t n = frame(bytes, sizeof(bytes), major, text, strlen(text));

	return parse(bytes, n, n + data_nbytes, as, ret, err);
}

static struct tsr_npy_header read_ok(unsigned major, const char *text, uint64_t data_nbytes,
				     enum tsr_dtype as)
{
	struct tsr_npy_header h;
	struct tsr_err err = { .msg = "untouched" };

	memset(&h, 0x55, sizeof(h));
	if (parse_text(major, text, data_nbytes, as, &h, &err) != TSR_OK)
		fail_msg("version %u: refused %s: %s", major, text, err.msg);
	assert_string_equal(err.msg, "untouched");
	assert_int_equal(h.nbytes, data_nbytes);
	assert_int_equal(h.data_offset, (major == 1 ? 10 : 12) + strlen(text));
	return h;
}

static void expect_failure(enum tsr_status got, const struct tsr_err *err, enum tsr_status want,
			   const char *word, const char *what)
{
	if (got != want)
		fail_msg("status %d, want %d: %s: %s", (int)got, (int)want, what, err->msg);
	assert_int_equal(err->code, want);
	assert_memory_equal(err->msg, "FILE: ", 6);
	if (word && !strstr(err->msg, word))
		fail_msg("no \"%s\" in: %s", word, err->msg);
}

static void expect_refused(unsigned major, const char *text, uint64_t data_nbytes,
			   enum tsr_dtype as, enum tsr_status want, const char *word)
{
	struct tsr_npy_header h, before;
	struct tsr_err err = { 0 };

	memset(&h, 0x55, sizeof(h));
	before = h;
	expect_failure(parse_text(major, text, data_nbytes, as, &h, &err), &err, want, word, text);
	assert_memory_equal(&h, &before, sizeof(h));
	assert_int_equal(parse_text(major, text, data_nbytes, as, &h, NULL), want);
}

/* --- Writing -------------------------------------------------------------------------------- */

/*
 * From numpy 2.4:
 *   f = io.BytesIO()
 *   np.lib.format.write_array_header_1_0(f, {"descr": descr, "fortran_order": False,
 *                                            "shape": shape})
 * its length, the spaces before its newline, and the text before those.  BF16 and 8-bit floats have
 * the descr of np.dtype(ml_dtypes.bfloat16) and np.dtype(ml_dtypes.float8_e4m3fn).
 */
#define WRITTEN(descr, shape) "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }"

/* clang-format off */
static const struct {
	enum tsr_dtype dtype;
	unsigned rank;
	uint64_t shape[16];
	unsigned nbytes, nspaces;
	const char *text;
} goldens[] = {
	{ TSR_F32, 0, { 0 }, 128, 62, WRITTEN("<f4", "()") },
	{ TSR_F32, 1, { 3 }, 128, 60, WRITTEN("<f4", "(3,)") },
	{ TSR_F32, 2, { 3, 4 }, 128, 58, WRITTEN("<f4", "(3, 4)") },
	{ TSR_BOOL, 1, { 0 }, 128, 60, WRITTEN("|b1", "(0,)") },
	{ TSR_I8, 3, { 2, 0, 3 }, 128, 55, WRITTEN("|i1", "(2, 0, 3)") },
	{ TSR_U8, 1, { 1 }, 128, 60, WRITTEN("|u1", "(1,)") },
	{ TSR_I16, 1, { 10 }, 128, 59, WRITTEN("<i2", "(10,)") },
	{ TSR_U16, 2, { 99, 100 }, 128, 55, WRITTEN("<u2", "(99, 100)") },
	{ TSR_I32, 2, { 1000, 1 }, 128, 55, WRITTEN("<i4", "(1000, 1)") },
	{ TSR_U32, 3, { 7, 7, 7 }, 128, 55, WRITTEN("<u4", "(7, 7, 7)") },
	{ TSR_I64, 1, { DIM_MAX }, 128, 46, WRITTEN("<i8", "(281474976710655,)") },
	{ TSR_U64, 2, { 1, DIM_MAX }, 128, 44, WRITTEN("<u8", "(1, 281474976710655)") },
	{ TSR_F16, 1, { 5 }, 128, 60, WRITTEN("<f2", "(5,)") },
	{ TSR_F64, 2, { 12345678, 2 }, 128, 51, WRITTEN("<f8", "(12345678, 2)") },
	{ TSR_C64, 1, { 6 }, 128, 60, WRITTEN("<c8", "(6,)") },
	{ TSR_BF16, 2, { 50257, 768 }, 128, 52, WRITTEN("<V2", "(50257, 768)") },
	{ TSR_F8_E4M3, 2, { 16, 16 }, 128, 56, WRITTEN("<V1", "(16, 16)") },
	{ TSR_F8_E5M2, 1, { 16 }, 128, 59, WRITTEN("<V1", "(16,)") },
	/* The least and the most that is padded: 1 and 64 spaces besides the 20 to grow into. */
	{ TSR_F32, 12, { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 10000000 }, 128, 21,
	  WRITTEN("<f4", "(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 10000000)") },
	{ TSR_F32, 13, { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 100000 }, 192, 84,
	  WRITTEN("<f4", "(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 100000)") },
};
/* clang-format on */

static void test_header_is_written_as_numpy_writes_it(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(goldens); i++) {
		const unsigned nbytes = goldens[i].nbytes;
		char spaced[512], want[512];
		struct tsr_text got = { 0 };
		struct tsr_err err;

		snprintf(spaced, sizeof(spaced), "%s%*s\n", goldens[i].text,
			 (int)goldens[i].nspaces, "");
		assert_int_equal(
			frame((unsigned char *)want, sizeof(want), 1, spaced, strlen(spaced)),
			nbytes);
		assert_int_equal(tsr_npy_compose(goldens[i].dtype, goldens[i].rank,
						 goldens[i].shape, "FILE", &got, &err),
				 TSR_OK);
		assert_int_equal(got.nbytes, nbytes);
		assert_memory_equal(got.bytes, want, nbytes);
		tsr_text_free(&got);
	}
}

static void test_header_is_appended(void **state)
{
	struct tsr_text alone = { 0 }, both = { 0 };
	const uint64_t shape[] = { 3, 4 };

	(void)state;
	tsr_text_puts(&both, "odd");
	assert_int_equal(tsr_npy_compose(TSR_F32, 2, shape, "FILE", &alone, NULL), TSR_OK);
	assert_int_equal(tsr_npy_compose(TSR_F32, 2, shape, "FILE", &both, NULL), TSR_OK);
	assert_int_equal(both.nbytes, alone.nbytes + 3);
	assert_memory_equal(both.bytes, "odd", 3);
	assert_memory_equal(both.bytes + 3, alone.bytes, alone.nbytes);
	tsr_text_free(&alone);
	tsr_text_free(&both);
}

/* Whether a file of this type says which type it is. */
static bool says_type(enum tsr_dtype dtype)
{
	return tsr_dtype_bits(dtype) > 16 || dtype == TSR_BOOL || dtype == TSR_I8 ||
	       dtype == TSR_U8 || dtype == TSR_I16 || dtype == TSR_U16 || dtype == TSR_F16;
}

static void expect_round_trip(enum tsr_dtype dtype, unsigned rank, const uint64_t *shape)
{
	const enum tsr_dtype as = says_type(dtype) ? TSR_DTYPE_COUNT : dtype;
	uint64_t nbytes = tsr_dtype_bits(dtype) / 8;
	struct tsr_npy_header h;
	struct tsr_text t = { 0 };
	struct tsr_err err;

	for (unsigned d = 0; d < rank; d++)
		nbytes *= shape[d];
	assert_int_equal(tsr_npy_compose(dtype, rank, shape, "FILE", &t, &err), TSR_OK);
	assert_int_equal(t.nbytes % 64, 0);
	if (parse(t.bytes, t.nbytes, t.nbytes + nbytes, as, &h, &err) != TSR_OK)
		fail_msg("refused %s: %s", t.bytes + 10, err.msg);
	assert_int_equal(h.dtype, dtype);
	assert_false(h.swapped || h.fortran_order);
	assert_int_equal(h.data_offset, t.nbytes);
	assert_int_equal(h.nbytes, nbytes);
	assert_int_equal(h.rank, rank);
	if (rank)
		assert_memory_equal(h.shape, shape, rank * sizeof(*shape));
	tsr_text_free(&t);
}

static void test_written_headers_are_read_back(void **state)
{
	uint64_t shape[TSR_RANK_MAX], seed = 1;

	(void)state;
	for (unsigned rank = 0; rank <= TSR_RANK_MAX; rank++) {
		for (unsigned i = 0; i < TSR_DTYPE_COUNT; i++) {
			const enum tsr_dtype dtype = (enum tsr_dtype)i;

			for (unsigned d = 0; d < rank; d++)
				shape[d] = d < 5 ? random_u64(&seed) % 1000 : 1;
			if (tsr_dtype_bits(dtype) % 8 == 0)
				expect_round_trip(dtype, rank, shape);
		}
	}
	shape[0] = DIM_MAX;
	expect_round_trip(TSR_F64, 1, shape);
}

static void test_types_below_a_byte_are_not_written(void **state)
{
	static const enum tsr_dtype small[] = { TSR_F4, TSR_F6_E2M3, TSR_F6_E3M2 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(small); i++) {
		const uint64_t shape[] = { 8 };
		struct tsr_text t = { 0 };
		struct tsr_err err;

		expect_failure(tsr_npy_compose(small[i], 1, shape, "FILE", &t, &err), &err,
			       TSR_E_UNSUPPORTED, tsr_dtype_name(small[i]), "compose");
		assert_int_equal(t.nbytes, 0);
		tsr_text_free(&t);
	}
}

/* --- What a header means -------------------------------------------------------------------- */

static void test_every_type_in_every_byte_order(void **state)
{
	static const struct {
		const char *code;
		enum tsr_dtype dtype;
	} types[] = {
		{ "b1", TSR_BOOL }, { "i1", TSR_I8 },	   { "u1", TSR_U8 },  { "i2", TSR_I16 },
		{ "u2", TSR_U16 },  { "f2", TSR_F16 },	   { "i4", TSR_I32 }, { "u4", TSR_U32 },
		{ "f4", TSR_F32 },  { "i8", TSR_I64 },	   { "u8", TSR_U64 }, { "f8", TSR_F64 },
		{ "c8", TSR_C64 },  { "f1", TSR_F8_E5M2 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(types); i++) {
		const unsigned nbytes = tsr_dtype_bits(types[i].dtype) / 8;

		for (const char *order = "<>|="; *order; order++) {
			struct tsr_npy_header h;
			char text[100];

			snprintf(text, sizeof(text),
				 "{'descr': '%c%s', 'fortran_order': False, 'shape': (5,), }\n",
				 *order, types[i].code);
			h = read_ok(1, text, 5 * nbytes, TSR_DTYPE_COUNT);
			assert_int_equal(h.dtype, types[i].dtype);
			assert_int_equal(h.swapped, *order == '>' && nbytes > 1);
			assert_int_equal(h.rank, 1);
			assert_int_equal(h.shape[0], 5);
			assert_int_equal(h.numel, 5);
		}
	}
}

#define WITH_DESCR(descr) "{'descr': " descr ", 'fortran_order': False, 'shape': (5,), }\n"

static void test_opaque_bytes_are_what_the_caller_says(void **state)
{
	static const char *const ones[] = { WITH_DESCR("'|V1'"), WITH_DESCR("'<V1'") };
	static const char *const twos[] = { WITH_DESCR("'|V2'"), WITH_DESCR("'<V2'"),
					    WITH_DESCR("'=V2'"), WITH_DESCR("'>V2'") };

	(void)state;
	for (unsigned d = 0; d < TSR_DTYPE_COUNT; d++) {
		const enum tsr_dtype as = (enum tsr_dtype)d;

		for (size_t i = 0; i < COUNT_OF(ones); i++) {
			if (tsr_dtype_bits(as) == 8)
				assert_int_equal(read_ok(1, ones[i], 5, as).dtype, as);
			else
				expect_refused(1, ones[i], 5, as, TSR_E_UNSUPPORTED,
					       tsr_dtype_name(as));
		}
		for (size_t i = 0; i < COUNT_OF(twos); i++) {
			if (tsr_dtype_bits(as) == 16)
				assert_int_equal(read_ok(1, twos[i], 10, as).dtype, as);
			else
				expect_refused(1, twos[i], 10, as, TSR_E_UNSUPPORTED,
					       tsr_dtype_name(as));
		}
	}
	assert_true(read_ok(1, twos[3], 10, TSR_BF16).swapped);
	assert_false(read_ok(1, twos[0], 10, TSR_BF16).swapped);
	for (size_t i = 0; i < COUNT_OF(ones); i++)
		expect_refused(1, ones[i], 5, TSR_DTYPE_COUNT, TSR_E_UNSUPPORTED, "opaque");
	for (size_t i = 0; i < COUNT_OF(twos); i++)
		expect_refused(1, twos[i], 10, TSR_DTYPE_COUNT, TSR_E_UNSUPPORTED, "opaque");
	/* What has a type of its own keeps it. */
	assert_int_equal(read_ok(1, WITH_DESCR("'<f2'"), 10, TSR_BF16).dtype, TSR_F16);
}

static void test_other_types_are_refused_by_kind(void **state)
{
	/* clang-format off */
	static const struct {
		const char *text, *word;
	} refused[] = {
		{ WITH_DESCR("'|O'"), "objects" }, { WITH_DESCR("'|O8'"), "objects" },
		{ WITH_DESCR("[('a', '<f4'), ('b', '<i8')]"), "structured" },
		{ WITH_DESCR("('<f4', (2,))"), "structured" }, { WITH_DESCR("'|S4'"), "text" },
		{ WITH_DESCR("'<U4'"), "text" }, { WITH_DESCR("'|S1'"), "text" },
		{ WITH_DESCR("'<M8'"), "dates" }, { WITH_DESCR("'<M8[ns]'"), "dates" },
		{ WITH_DESCR("'<m8'"), "dates" }, { WITH_DESCR("'<f16'"), "f16" },
		{ WITH_DESCR("'<c16'"), "c16" }, { WITH_DESCR("'<g'"), "type" },
		{ WITH_DESCR("'|V3'"), "opaque" }, { WITH_DESCR("'|V0'"), "opaque" },
		{ WITH_DESCR("'|V16'"), "opaque" }, { WITH_DESCR("'<f3'"), "size" },
		{ WITH_DESCR("'<i3'"), "size" }, { WITH_DESCR("'<b2'"), "type" },
		{ WITH_DESCR("'<F4'"), "type" }, { WITH_DESCR("'f4'"), "byte order" },
		{ WITH_DESCR("'4f<'"), "type" }, { WITH_DESCR("'<f4 '"), "type" },
		{ WITH_DESCR("' <f4'"), "type" }, { WITH_DESCR("''"), "type" },
		{ WITH_DESCR("'<'"), "type" }, { WITH_DESCR("'float32'"), "type" },
	};
	/* clang-format on */

	(void)state;
	for (size_t i = 0; i < COUNT_OF(refused); i++)
		expect_refused(1, refused[i].text, 20, TSR_BF16, TSR_E_UNSUPPORTED,
			       refused[i].word);
}

static void test_any_spelling_that_numpy_could_have_written(void **state)
{
	static const char *const texts[] = {
		"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }      \n",
		"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4)}\n",
		"{\"descr\":\"<f4\",\"fortran_order\":True,\"shape\":(3,4)}\n",
		"{'shape': (3, 4,), 'fortran_order': True, 'descr': '<f4'}\n",
		"{'fortran_order': True, 'shape': ( 3 , 4 , ), 'descr': '<f4' , }\n",
		" {\t'fortran_order' :\rTrue,\n'shape':(3\n,4), 'descr':'<f4'\n}\n\n",
	};
	static const char longs[] =
		"{'descr': '<f4', 'fortran_order': True, 'shape': (3L, 4L), }\n";

	(void)state;
	for (unsigned major = 1; major <= 3; major++) {
		for (size_t i = 0; i < COUNT_OF(texts); i++) {
			const struct tsr_npy_header h = read_ok(major, texts[i], 48,
								TSR_DTYPE_COUNT);

			assert_true(h.fortran_order);
			assert_int_equal(h.dtype, TSR_F32);
			assert_int_equal(h.rank, 2);
			assert_int_equal(h.shape[0], 3);
			assert_int_equal(h.shape[1], 4);
			assert_int_equal(h.numel, 12);
		}
	}
	/* Python 2 wrote longs; version 3.0 came after it. */
	assert_int_equal(read_ok(1, longs, 48, TSR_DTYPE_COUNT).shape[1], 4);
	assert_int_equal(read_ok(2, longs, 48, TSR_DTYPE_COUNT).shape[1], 4);
	expect_refused(3, longs, 48, TSR_DTYPE_COUNT, TSR_E_FORMAT, "'L'");
}

static void test_scalars_and_empty_arrays(void **state)
{
	struct tsr_npy_header h = read_ok(
		1, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n", 8, TSR_DTYPE_COUNT);

	(void)state;
	assert_int_equal(h.rank, 0);
	assert_int_equal(h.numel, 1);
	h = read_ok(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 0, 3), }\n", 0,
		    TSR_DTYPE_COUNT);
	assert_int_equal(h.rank, 3);
	assert_int_equal(h.numel, 0);
}

/* What numpy 1.x wrote before it aligned to 64: 80 bytes, with a length that no one may assume. */
static void test_old_alignment(void **state)
{
	char text[71];

	(void)state;
	snprintf(text, sizeof(text), "%-69s\n",
		 "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }");
	assert_int_equal(read_ok(1, text, 12, TSR_DTYPE_COUNT).data_offset, 80);
}

/* --- What is refused ------------------------------------------------------------------------ */

#define HEAD "{'descr': '<f4', 'fortran_order': False, "
#define SHAPE "'shape': (3,)"
#define GOOD HEAD SHAPE "}\n"
#define WITH_SHAPE(shape) HEAD "'shape': " shape "}\n"
#define WITH_ORDER(order) "{'descr': '<f4', 'fortran_order': " order ", " SHAPE "}\n"

/* clang-format off */
static void test_malformed_texts_are_refused(void **state)
{
	static const char *const refused[] = {
		"", "\n", " ", "{}\n", HEAD SHAPE "}", HEAD SHAPE "} ", HEAD SHAPE "\n",
		HEAD SHAPE "}}\n", HEAD SHAPE "} x\n", HEAD SHAPE "}#\n", HEAD SHAPE ",,}\n",
		"{'descr': '<f4', 'fortran_order': False,, " SHAPE "}\n",
		"{,'descr': '<f4', 'fortran_order': False, " SHAPE "}\n",
		"{'descr': '<f4' 'fortran_order': False, " SHAPE "}\n",
		"{'descr' '<f4', 'fortran_order': False, " SHAPE "}\n",
		"{'descr'= '<f4', 'fortran_order': False, " SHAPE "}\n",
		"{descr: '<f4', 'fortran_order': False, " SHAPE "}\n",
		"{u'descr': '<f4', 'fortran_order': False, " SHAPE "}\n",
		"{'descr\": '<f4', 'fortran_order': False, " SHAPE "}\n",
		"{'de' 'scr': '<f4', 'fortran_order': False, " SHAPE "}\n",
		/* types */
		WITH_DESCR("\"<f4'"), WITH_DESCR("'<f\\x34'"), WITH_DESCR("'<f\n4'"),
		WITH_DESCR("<f4"), WITH_DESCR("None"), WITH_DESCR("4"), WITH_DESCR("{'a': 1}"),
		WITH_DESCR("'\x1b[2J'"),
		/* orders */
		WITH_ORDER("false"), WITH_ORDER("0"), WITH_ORDER("'False'"),
		WITH_ORDER("Falsehood"), WITH_ORDER("None"), WITH_ORDER("not True"),
		/* A key is missing, there twice, or another one. */
		"{'fortran_order': False, " SHAPE "}\n", "{'descr': '<f4', " SHAPE "}\n",
		"{'descr': '<f4', 'fortran_order': False}\n",
		"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, " SHAPE "}\n",
		HEAD SHAPE ", " SHAPE "}\n", HEAD "\"fortran_order\": False, " SHAPE "}\n",
		HEAD SHAPE ", 'more': 1}\n",
		"{'Descr': '<f4', 'fortran_order': False, " SHAPE "}\n",
		"{'descr ': '<f4', 'fortran_order': False, " SHAPE "}\n",
		"{'descr\xe9': '<f4', 'fortran_order': False, " SHAPE "}\n",
		/* shapes */
		WITH_SHAPE("3"), WITH_SHAPE("(3)"), WITH_SHAPE("[3]"), WITH_SHAPE("3,"),
		WITH_SHAPE("(,)"), WITH_SHAPE("(,3)"), WITH_SHAPE("(3,,)"), WITH_SHAPE("(3 1)"),
		WITH_SHAPE("(3,1"), WITH_SHAPE("(3,1]"), WITH_SHAPE("(3,(1,))"),
		WITH_SHAPE("((3,),)"), WITH_SHAPE("(-3,)"), WITH_SHAPE("(+3,)"),
		WITH_SHAPE("(03,)"), WITH_SHAPE("(00,)"), WITH_SHAPE("(3.0,)"),
		WITH_SHAPE("(3e0,)"), WITH_SHAPE("(0x3,)"), WITH_SHAPE("(1_0,)"),
		WITH_SHAPE("('3',)"), WITH_SHAPE("(True,)"), WITH_SHAPE("(None,)"),
		WITH_SHAPE("(3LL,)"), WITH_SHAPE("(3l,)"), WITH_SHAPE("(L,)"),
		WITH_SHAPE("(3 L,)"), WITH_SHAPE("()()"),
		/* What eval would run. */
		"__import__('os').system('true')\n", WITH_DESCR("__import__('os').system('true')"),
		WITH_SHAPE("tuple([3])"), WITH_SHAPE("(1+2,)"), "\xef\xbb\xbf" GOOD,
	};

	(void)state;
	read_ok(1, GOOD, 12, TSR_DTYPE_COUNT);
	for (unsigned major = 1; major <= 3; major++) {
		for (size_t i = 0; i < COUNT_OF(refused); i++)
			expect_refused(major, refused[i], 12, TSR_BF16, TSR_E_FORMAT, "npy header");
	}
}
/* clang-format on */

static void test_messages_name_place_and_key(void **state)
{
	(void)state;
	expect_refused(1, WITH_SHAPE("(3;4)"), 12, TSR_BF16, TSR_E_FORMAT,
		       "npy header byte 62: found ';', expected ','");
	expect_refused(2, WITH_SHAPE("(3, x)"), 12, TSR_BF16, TSR_E_FORMAT,
		       "npy header byte 66: found 'x', expected a dimension");
	expect_refused(1, WITH_DESCR("'\x1b[2J'"), 12, TSR_BF16, TSR_E_FORMAT, "found '\\x1b'");
	expect_refused(1, "{'descr': '<f4', 'shape': (3,)}\n", 12, TSR_BF16, TSR_E_FORMAT,
		       "no key 'fortran_order'");
	expect_refused(1, "{'shape': (3,), 'shape': (3,)}\n", 12, TSR_BF16, TSR_E_FORMAT,
		       "duplicate key 'shape'");
	expect_refused(1, "{'shapes': (3,)}\n", 12, TSR_BF16, TSR_E_FORMAT, "unknown key 'shapes'");
}

static void test_only_version_3_must_be_utf8(void **state)
{
	static const char latin1[] = "{'\xe9': 1}\n", utf8[] = "{'\xc3\xa9': 1}\n";

	(void)state;
	expect_refused(1, latin1, 0, TSR_BF16, TSR_E_FORMAT, "unknown key '\\xe9'");
	expect_refused(2, latin1, 0, TSR_BF16, TSR_E_FORMAT, "unknown key '\\xe9'");
	expect_refused(3, latin1, 0, TSR_BF16, TSR_E_FORMAT, "not UTF-8");
	expect_refused(3, utf8, 0, TSR_BF16, TSR_E_FORMAT, "unknown key '\xc3\xa9'");
}

static void test_other_versions_are_refused(void **state)
{
	static const unsigned char versions[][2] = { { 0, 0 }, { 0, 1 }, { 1, 1 },   { 2, 1 },
						     { 3, 1 }, { 4, 0 }, { 255, 0 }, { 1, 255 } };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(versions); i++) {
		unsigned char bytes[100];
		const size_t n = frame(bytes, sizeof(bytes), 1, GOOD, strlen(GOOD));
		struct tsr_npy_header h;
		struct tsr_err err;

		memcpy(bytes + 6, versions[i], 2);
		expect_failure(parse(bytes, n, n + 12, TSR_BF16, &h, &err), &err, TSR_E_UNSUPPORTED,
			       "version", "version");
	}
}

static void test_limits(void **state)
{
	char text[400];

	(void)state;
	read_ok(1, WITH_SHAPE("(0, 281474976710655)"), 0, TSR_DTYPE_COUNT);
	expect_refused(1, WITH_SHAPE("(0, 281474976710656)"), 0, TSR_BF16, TSR_E_LIMIT, "limit");
	expect_refused(1, WITH_SHAPE("(0, 18446744073709551616)"), 0, TSR_BF16, TSR_E_LIMIT,
		       "18446744073709551616");
	expect_refused(1, WITH_SHAPE("(0, 99999999999999999999999999999999999999999)"), 0, TSR_BF16,
		       TSR_E_LIMIT, "limit");
	for (unsigned rank = 64; rank <= 65; rank++) {
		strcpy(text, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
		for (unsigned d = 0; d < rank; d++)
			strcat(text, "1, ");
		strcat(text, ")}\n");
		if (rank == 64)
			assert_int_equal(read_ok(1, text, 4, TSR_DTYPE_COUNT).rank, 64);
		else
			expect_refused(1, text, 4, TSR_BF16, TSR_E_LIMIT, "limit");
	}
}

static void test_shapes_that_overflow_are_refused(void **state)
{
	static const char *const texts[] = {
		/* 2^64, which wraps to 0, and to 2^64 and 2^65 bytes */
		WITH_SHAPE("(4294967296, 4294967296)"),
		WITH_SHAPE("(4294967296, 4294967296, 0)"),
		WITH_SHAPE("(4611686018427, 1048576, 4)"),
		WITH_SHAPE("(65536, 65536, 1073741824)"),
		WITH_SHAPE("(281474976710655, 281474976710655, 281474976710655)"),
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(texts); i++)
		expect_refused(1, texts[i], 0, TSR_BF16, TSR_E_FORMAT, "overflows");
	read_ok(1, WITH_SHAPE("(0, 4294967296, 4294967296)"), 0, TSR_DTYPE_COUNT);
}

static void test_data_must_fill_the_file(void **state)
{
	static const uint64_t wrong[] = { 0, 1, 11, 13, 24, UINT64_MAX / 2 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(wrong); i++)
		expect_refused(1, GOOD, wrong[i], TSR_BF16, TSR_E_FORMAT, "expected 12");
}

static void test_length_of_the_header(void **state)
{
	static const struct {
		unsigned major;
		uint64_t length;
		uint64_t file_nbytes; /* 0: just as many as there are bytes */
		enum tsr_status want;
	} cases[] = {
		{ 1, 0, 0, TSR_E_FORMAT },	    { 2, 0, 0, TSR_E_FORMAT },
		{ 1, 65535, 0, TSR_E_FORMAT },	    { 2, 65535, 0, TSR_E_FORMAT },
		{ 2, UINT32_MAX, 0, TSR_E_FORMAT }, { 3, UINT32_MAX, 0, TSR_E_FORMAT },
		{ 1, 65535, 1 << 20, TSR_E_LIMIT }, { 3, UINT32_MAX, UINT64_MAX, TSR_E_LIMIT },
		{ 1, 55, 0, TSR_E_FORMAT },	    { 1, 57, 0, TSR_E_FORMAT },
	};

	(void)state;
	assert_int_equal(strlen(GOOD), 56);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		unsigned char bytes[100];
		const size_t n = frame(bytes, sizeof(bytes), cases[i].major, GOOD, strlen(GOOD));
		struct tsr_npy_header h;
		struct tsr_err err;

		for (unsigned b = 0; b < (cases[i].major == 1 ? 2 : 4); b++)
			bytes[8 + b] = (unsigned char)(cases[i].length >> 8 * b);
		expect_failure(parse(bytes, n, cases[i].file_nbytes ? cases[i].file_nbytes : n,
				     TSR_BF16, &h, &err),
			       &err, cases[i].want,
			       cases[i].want == TSR_E_LIMIT ? "limit" : "header", "length");
	}
}

/* The last bytes of a header that is longer than its text. */
static void test_padding_is_not_nul(void **state)
{
	static const char text[] = HEAD SHAPE "}\0\0\n", quoted[] = WITH_DESCR("'<f4\0'");
	unsigned char bytes[100];
	struct tsr_npy_header h;
	struct tsr_err err;
	size_t n = frame(bytes, sizeof(bytes), 1, text, sizeof(text) - 1);

	(void)state;
	expect_failure(parse(bytes, n, n + 12, TSR_BF16, &h, &err), &err, TSR_E_FORMAT, "byte 65",
		       "NUL behind");
	n = frame(bytes, sizeof(bytes), 1, quoted, sizeof(quoted) - 1);
	expect_failure(parse(bytes, n, n + 20, TSR_BF16, &h, &err), &err, TSR_E_FORMAT, "byte 24",
		       "NUL in a string");
}

/* The longest header is read from the bytes that the interface asks for; one byte more is not. */
static void test_longest_header(void **state)
{
	static char text[TSR_NPY_HEADER_MAX];
	static unsigned char bytes[TSR_NPY_HEADER_MAX + 1];
	struct tsr_npy_header h;
	struct tsr_err err;
	size_t n;

	(void)state;
	snprintf(text, sizeof(text), "%-*s\n", (int)TSR_NPY_HEADER_MAX - 13, HEAD SHAPE "}");
	n = frame(bytes, sizeof(bytes), 2, text, strlen(text));
	assert_int_equal(n, TSR_NPY_HEADER_MAX);
	assert_int_equal(parse(bytes, n, n + 12, TSR_BF16, &h, &err), TSR_OK);
	assert_int_equal(h.data_offset, n);
	bytes[8]++;
	bytes[n] = '\n';
	expect_failure(parse(bytes, n, n + 13, TSR_BF16, &h, &err), &err, TSR_E_LIMIT, "limit",
		       "one byte more");
}

/* A file cut short is no file, and nobody reads past the cut. */
static void test_every_truncation_is_refused(void **state)
{
	(void)state;
	for (unsigned major = 1; major <= 3; major++) {
		unsigned char bytes[200] = { 0 };
		const size_t header = frame(bytes, sizeof(bytes), major, GOOD, strlen(GOOD));
		const size_t n = header + 12;
		struct tsr_npy_header h;
		struct tsr_err err;

		for (size_t cut = 0; cut < n; cut++)
			expect_failure(parse(bytes, cut, cut, TSR_BF16, &h, &err), &err,
				       TSR_E_FORMAT, NULL, "truncated");
		assert_int_equal(parse(bytes, n, n, TSR_BF16, &h, &err), TSR_OK);
		assert_int_equal(parse(bytes, header, n, TSR_BF16, &h, &err), TSR_OK);
	}
}

/*
 * Any flipped bit is refused or read as something else.  But '<' is one bit away from '=' and from
 * '|', which say the same.
 */
static void test_no_flipped_bit_goes_unnoticed(void **state)
{
	unsigned char bytes[300];
	struct tsr_text t = { 0 };
	const uint64_t shape[] = { 16, 1, 5 };
	struct tsr_npy_header before, h;
	unsigned same = 0;

	(void)state;
	memset(&before, 0, sizeof(before));
	assert_int_equal(tsr_npy_compose(TSR_F32, 3, shape, "FILE", &t, NULL), TSR_OK);
	memcpy(bytes, t.bytes, t.nbytes);
	assert_int_equal(parse(bytes, t.nbytes, t.nbytes + 320, TSR_BF16, &before, NULL), TSR_OK);
	for (size_t bit = 0; bit < 8 * t.nbytes; bit++) {
		memset(&h, 0, sizeof(h));
		bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
		if (parse(bytes, t.nbytes, t.nbytes + 320, TSR_BF16, &h, NULL) == TSR_OK)
			same += memcmp(&h, &before, sizeof(h)) == 0;
		bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	assert_int_equal(same, 2);
	tsr_text_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header_is_written_as_numpy_writes_it),
		cmocka_unit_test(test_header_is_appended),
		cmocka_unit_test(test_written_headers_are_read_back),
		cmocka_unit_test(test_types_below_a_byte_are_not_written),
		cmocka_unit_test(test_every_type_in_every_byte_order),
		cmocka_unit_test(test_opaque_bytes_are_what_the_caller_says),
		cmocka_unit_test(test_other_types_are_refused_by_kind),
		cmocka_unit_test(test_any_spelling_that_numpy_could_have_written),
		cmocka_unit_test(test_scalars_and_empty_arrays),
		cmocka_unit_test(test_old_alignment),
		cmocka_unit_test(test_malformed_texts_are_refused),
		cmocka_unit_test(test_messages_name_place_and_key),
		cmocka_unit_test(test_only_version_3_must_be_utf8),
		cmocka_unit_test(test_other_versions_are_refused),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_shapes_that_overflow_are_refused),
		cmocka_unit_test(test_data_must_fill_the_file),
		cmocka_unit_test(test_length_of_the_header),
		cmocka_unit_test(test_padding_is_not_nul),
		cmocka_unit_test(test_longest_header),
		cmocka_unit_test(test_every_truncation_is_refused),
		cmocka_unit_test(test_no_flipped_bit_goes_unnoticed),
	};

	return cmocka_run_group_tests_name("npy", tests, NULL, NULL);
}
