/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of torch.save: which tensors they hold, and where those stand. */
#include "ckpt/checkpoint_model.h"
#include "ckpt/layout.h"
#include "format/value.h"
#include "torch_make.h"

/* --- Where tensors stand -------------------------------------------------------------------- */

static void test_a_whole_tensor_is_read_in_place_with_the_checksum_of_its_record(void **state)
{
	const struct spec spec = {
		.numel = FLOATS, .rank = 2, .shape = { 4, 16 }, .stride = { 16, 1 }
	};

	(void)state;
	for (size_t base = 0; base < 200; base += 77) {
		struct tsr_checkpoint *c = new_checkpoint();
		struct saved s = one_tensor(&spec);
		struct tsr_value *root = NULL;

		build_saved(&archive, &s);
		assert_int_equal(read_at(c, base, &root, NULL), TSR_OK);
		assert_int_equal(root->type, TSR_VALUE_TENSOR);
		assert_int_equal(c->narrays, 1);
		assert_null(c->arrays[0].layout);
		assert_true(c->arrays[0].offset == base + archive.data[1]);
		assert_int_equal(c->arrays[0].dtype, TSR_F32);
		assert_int_equal(c->arrays[0].rank, 2);
		assert_int_equal(c->arrays[0].shape[0], 4);
		assert_int_equal(c->arrays[0].shape[1], 16);
		assert_true(c->arrays[0].has_crc);
		assert_int_equal(c->arrays[0].crc, zlib_crc(floats, sizeof(floats)));
		assert_int_equal(c->nunchecked, 0);
		tsr_checkpoint_close(c);
	}
}

/* What a strided view shows, element by element. */
static void expect_view(const struct tsr_checkpoint *c, const struct tsr_array *a,
			const struct spec *s, uint64_t piece)
{
	unsigned char *found = elements_of(c, a, piece);
	int64_t index[DIMS_MAX] = { 0 };

	for (uint64_t i = 0; i < a->numel; i++) {
		int64_t at = s->offset;
		float value;

		for (size_t d = 0; d < s->rank; d++)
			at += index[d] * s->stride[d];
		memcpy(&value, found + 4 * i, 4);
		assert_int_equal(bits_of(value), bits_of(floats[at]));
		for (size_t d = s->rank; d-- > 0;) {
			if (++index[d] < s->shape[d])
				break;
			index[d] = 0;
		}
	}
	free(found);
}

/* A view that stays in the storage; strides of 0 and sizes of 0 and 1 come up too. */
static struct spec random_view(uint64_t *seed)
{
	struct spec s = { .numel = FLOATS, .rank = random_u32(seed) % (DIMS_MAX + 1) };
	int64_t last;

	do {
		s.offset = random_u32(seed) % FLOATS;
		last = s.offset;
		for (size_t d = 0; d < s.rank; d++) {
			s.shape[d] = random_u32(seed) % 5;
			s.stride[d] = random_u32(seed) % 17;
			last += s.shape[d] ? (s.shape[d] - 1) * s.stride[d] : 0;
		}
	} while (last >= FLOATS);
	return s;
}

static void test_views_show_the_elements_that_strides_lead_to(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (unsigned i = 0; i < 500; i++) {
		const struct spec spec = random_view(&seed);
		struct saved s = one_tensor(&spec);
		struct tsr_value *root;
		struct tsr_checkpoint *c = read_saved(&s, &root);
		const struct tsr_array *a = &c->arrays[root->tensor.array];

		expect_view(c, a, &spec, 1 + random_u32(&seed) % 7);
		if (a->layout) {
			const struct tsr_chunk *chunk = a->layout->chunks;

			assert_int_equal(a->layout->nchunks, 1);
			assert_false(a->has_crc);
			assert_true(chunk->has_crc && chunk->crc_nbytes == sizeof(floats));
			assert_true(chunk->crc_offset == archive.data[1]);
			assert_int_equal(chunk->crc, zlib_crc(floats, sizeof(floats)));
		} else {
			assert_true(a->numel == 0 || a->numel == FLOATS);
		}
		tsr_checkpoint_close(c);
	}
}

static void test_equal_views_are_one_array(void **state)
{
	static const struct spec views[] = {
		{ .numel = FLOATS, .rank = 2, .shape = { 4, 16 }, .stride = { 16, 1 } },
		{ .numel = FLOATS, .rank = 2, .shape = { 4, 16 }, .stride = { 16, 1 } },
		{ .numel = FLOATS, .rank = 2, .shape = { 1, 4 }, .stride = { 4, 1 } },
		{ .numel = FLOATS, .rank = 2, .shape = { 1, 4 }, .stride = { 9, 1 } },
		{ .numel = FLOATS, .rank = 2, .shape = { 16, 4 }, .stride = { 1, 16 } },
		{ .numel = FLOATS, .rank = 2, .shape = { 16, 4 }, .stride = { 4, 1 } },
		{ .numel = FLOATS, .rank = 2, .shape = { 16, 4 }, .stride = { 1, 16 } },
		{ .numel = FLOATS, .rank = 1, .shape = { 4 }, .stride = { 1 } },
		{ .numel = FLOATS, .rank = 1, .shape = { 4 }, .stride = { 1 }, .offset = 1 },
	};
	static const size_t want[] = { 0, 0, 1, 1, 2, 3, 2, 4, 5 };
	struct saved s = { .ops = { 0 } };
	struct tsr_checkpoint *c;
	struct tsr_value *root;

	(void)state;
	OP(&s.ops, "](");
	for (size_t i = 0; i < COUNT_OF(views); i++)
		op_tensor(&s.ops, &views[i]);
	OP(&s.ops, "e");
	add_storage(&s, "r/data/0", floats, sizeof(floats));
	c = read_saved(&s, &root);
	assert_int_equal(c->narrays, 6);
	for (size_t i = 0; i < COUNT_OF(views); i++)
		assert_int_equal(root->list.items[i]->tensor.array, want[i]);
	tsr_checkpoint_close(c);
}

/* Enough of them that the table of views grows, each with another offset. */
static void test_many_views_are_told_apart(void **state)
{
	struct saved s = { .ops = { 0 } };
	struct tsr_checkpoint *c;
	struct tsr_value *root;

	(void)state;
	OP(&s.ops, "](");
	for (int64_t i = 0; i < 3000; i++) {
		const struct spec spec = { .numel = FLOATS,
					   .rank = 3,
					   .offset = i % 10,
					   .shape = { 1 + i / 10 % 10, 2, 2 },
					   .stride = { 1 + i / 100 % 5, 2, 3 } };

		op_tensor(&s.ops, &spec);
	}
	OP(&s.ops, "e");
	add_storage(&s, "r/data/0", floats, sizeof(floats));
	c = read_saved(&s, &root);
	/* Where the first dimension is 1 its stride does not matter. */
	assert_int_equal(c->narrays, 10 * (9 * 5 + 1));
	for (size_t i = 0; i < 2500; i++)
		assert_int_equal(root->list.items[i]->tensor.array,
				 root->list.items[i % 500]->tensor.array);
	tsr_checkpoint_close(c);
}

static void test_big_endian_elements_are_swapped(void **state)
{
	const struct spec spec = {
		.numel = FLOATS, .rank = 1, .shape = { FLOATS }, .stride = { 1 }
	};
	struct saved s = one_tensor(&spec);
	struct tsr_checkpoint *c;
	struct tsr_value *root;
	unsigned char *found;

	(void)state;
	s.byteorder = "big";
	c = read_saved(&s, &root);
	found = elements_of(c, &c->arrays[0], 5);
	for (size_t i = 0; i < sizeof(floats); i++)
		assert_int_equal(found[i], ((const unsigned char *)floats)[i ^ 3]);
	assert_true(c->arrays[0].layout->chunks[0].has_crc);
	free(found);
	tsr_checkpoint_close(c);
}

static void test_a_deflated_record_is_inflated_and_checked(void **state)
{
	const struct spec spec = {
		.numel = FLOATS, .rank = 2, .shape = { 2, 3 }, .stride = { 1, 7 }
	};
	struct saved s = one_tensor(&spec);
	struct tsr_checkpoint *c;
	struct tsr_value *root;

	(void)state;
	s.storages[0].deflated = true;
	c = read_saved(&s, &root);
	expect_view(c, &c->arrays[0], &spec, 2);
	assert_int_equal(c->nfiles, 2);
	assert_false(c->arrays[0].layout->chunks[0].has_crc);
	tsr_checkpoint_close(c);
}

/* --- What tensors and values may be --------------------------------------------------------- */

static void test_what_is_just_allowed_is_read(void **state)
{
	static const struct spec cases[] = {
		VIEW(.rank = 0, .offset = 63),
		VIEW(.rank = 2, .shape = { 0, 1 }, .stride = { 1, 1 }, .offset = 1000),
		VIEW(.rank = 1, .shape = { 64 }, .stride = { 1 },
		     .metadata = "}(U\4conj\211U\3neg\211u"),
		VIEW(.rank = 1, .shape = { 64 }, .stride = { 1 }, .metadata = "N"),
		VIEW(.rank = 1, .shape = { 1 << 18 }, .stride = { 0 }),
		{ .class = "UntypedStorage",
		  .module = "torch.storage",
		  .numel = 256,
		  .dtype = "uint16",
		  .rank = 1,
		  .shape = { 128 },
		  .stride = { 1 } },
		{ .class = "UntypedStorage",
		  .module = "torch",
		  .numel = 256,
		  .dtype = "float8_e4m3fn",
		  .rank = 1,
		  .shape = { 256 },
		  .stride = { 1 },
		  .key = "0" },
		{ .class = "ComplexFloatStorage",
		  .numel = 32,
		  .rank = 1,
		  .shape = { 32 },
		  .stride = { 1 } },
	};
	static const enum tsr_dtype dtypes[] = { TSR_F32, TSR_F32, TSR_F32,	TSR_F32,
						 TSR_F32, TSR_U16, TSR_F8_E4M3, TSR_C64 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct saved s = one_tensor(&cases[i]);
		struct tsr_value *root;
		struct tsr_checkpoint *c = read_saved(&s, &root);

		assert_int_equal(c->arrays[0].dtype, dtypes[i]);
		tsr_checkpoint_close(c);
	}
}

static void test_parameters_are_marked(void **state)
{
	const struct spec spec = { .numel = FLOATS };
	struct saved s = { .ops = { 0 } };
	struct tsr_checkpoint *c;
	struct tsr_value *root;

	(void)state;
	OP(&s.ops, "(");
	for (int stateful = 0; stateful < 2; stateful++) {
		op_global(&s.ops, "torch._utils",
			  stateful ? "_rebuild_parameter_with_state" : "_rebuild_parameter");
		OP(&s.ops, "(");
		op_tensor(&s.ops, &spec);
		OP(&s.ops, "\210ccollections\nOrderedDict\n)R");
		tsr_text_puts(&s.ops, stateful ? "}tR" : "tR");
	}
	op_tensor(&s.ops, &spec);
	OP(&s.ops, "t");
	add_storage(&s, "r/data/0", floats, sizeof(floats));
	c = read_saved(&s, &root);
	assert_int_equal(c->narrays, 1);
	for (size_t i = 0; i < 3; i++) {
		const struct tsr_value *v = root->list.items[i];

		assert_int_equal(v->type, TSR_VALUE_TENSOR);
		assert_int_equal(v->tensor.parameter, i < 2);
		assert_int_equal(v->tensor.requires_grad, i < 2);
	}
	tsr_checkpoint_close(c);
}

static void test_plain_values_are_kept_as_they_are(void **state)
{
	static const char *const cases[] = {
		"ccollections\nOrderedDict\n)R",
		"ccollections\ndefaultdict\nc__builtin__\nlist\n\205R",
		"ccollections\nCounter\n}\205R",
		"ctorch\nfloat32\n",
		"ctorch\ncomplex128\n",
		"ctorch\nSize\n)\205R",
		"ctorch\ndevice\nU\3cpu\205R",
		"c__builtin__\ncomplex\nNN\206R",
		"c__builtin__\nset\n](Ne\205R",
		"cdatetime\ndatetime\nC\1a\205R",
		"cpathlib\nPosixPath\nU\1a\205R",
		"cpathlib._local\nPosixPath\nU\1a\205R",
		"cargparse\nNamespace\n)\201}(U\2lrG\0\0\0\0\0\0\0\0ub",
		"cdecimal\nDecimal\nU\1"
		"1\205R",
		"cfractions\nFraction\nU\1"
		"1\205R",
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct saved s = { .ops = { 0 } };
		struct tsr_checkpoint *c;
		struct tsr_value *root;

		/* The float of Namespace has NULs. */
		if (strstr(cases[i], "Namespace"))
			tsr_text_put(
				&s.ops, cases[i],
				sizeof("cargparse\nNamespace\n)\201}(U\2lrG\0\0\0\0\0\0\0\0ub") -
					1);
		else
			tsr_text_puts(&s.ops, cases[i]);
		c = read_saved(&s, &root);
		assert_int_equal(c->narrays, 0);
		assert_int_equal(c->nnotes, 0);
		tsr_checkpoint_close(c);
	}
}

static void test_numpy_values_are_kept_with_a_note(void **state)
{
	struct saved s = { .ops = { 0 } };
	struct tsr_checkpoint *c;
	struct tsr_value *root;

	(void)state;
	OP(&s.ops, "}(U\3onecnumpy._core.multiarray\nscalar\n)RU\3twocnumpy.core.multiarray\n"
		   "_reconstruct\ncnumpy\nndarray\n\205Ru");
	c = read_saved(&s, &root);
	assert_int_equal(root->list.items[1]->type, TSR_VALUE_CALL);
	assert_int_equal(c->nnotes, 1);
	assert_non_null(strstr(c->notes[0], "one"));
	assert_non_null(strstr(c->notes[0], "2 in all"));
	tsr_checkpoint_close(c);
}

static void test_provisional_names_are_the_keys(void **state)
{
	const struct spec spec = { .numel = FLOATS };
	struct saved s = { .ops = { 0 } };
	struct tsr_checkpoint *c;
	struct tsr_value *root;

	(void)state;
	OP(&s.ops, "}(U\5model}(K\7](");
	op_tensor(&s.ops, &spec);
	OP(&s.ops, "euu");
	add_storage(&s, "r/data/0", floats, sizeof(floats));
	c = read_saved(&s, &root);
	assert_string_equal(c->arrays[0].name, "model.7.0");
	tsr_checkpoint_close(c);
}

/* --- Around the pickle ---------------------------------------------------------------------- */

static void test_members_that_are_part_of_nothing_are_noted(void **state)
{
	const struct spec spec = { .numel = FLOATS };
	struct saved s = one_tensor(&spec);
	struct tsr_checkpoint *c;
	struct tsr_value *root;

	(void)state;
	add_storage(&s, "r/data/1", "abc", 3);
	add_storage(&s, "r/other", "abc", 3);
	c = read_saved(&s, &root);
	assert_int_equal(c->nnotes, 1);
	assert_non_null(strstr(c->notes[0], "r/data/1"));
	assert_non_null(strstr(c->notes[0], "2 in all"));
	tsr_checkpoint_close(c);
}

static void test_records_without_a_checksum_are_counted(void **state)
{
	const struct spec spec = { .numel = FLOATS };
	struct saved s = one_tensor(&spec);
	struct tsr_checkpoint *c = new_checkpoint();
	struct tsr_value *root;

	(void)state;
	s.storages[0].descriptor = 0;
	build_saved(&archive, &s);
	set_le(archive.bytes + archive.local[1] + 14, 0, 4);
	set_le(archive.bytes + archive.central[1] + 16, 0, 4);
	assert_int_equal(read_at(c, 0, &root, NULL), TSR_OK);
	assert_int_equal(c->nunchecked, 1);
	assert_false(c->arrays[0].has_crc);
	tsr_checkpoint_close(c);
}

static void test_types_are_known_by_all_their_names(void **state)
{
	size_t n = 0;

	(void)state;
	for (enum tsr_dtype d = 0; d < TSR_DTYPE_COUNT; d++) {
		const struct tsr_torch_dtype *t = tsr_torch_dtype(d);

		if (!t)
			continue;
		n++;
		assert_ptr_equal(tsr_torch_dtype_by_name(t->name), t);
		assert_true(tsr_torch_is_dtype(t->name));
		if (t->storage)
			assert_ptr_equal(tsr_torch_dtype_by_storage(t->storage), t);
	}
	assert_int_equal(n, TSR_DTYPE_COUNT - 3); /* F4, F6_E2M3 and F6_E3M2 */
	assert_null(tsr_torch_dtype_by_name("complex128"));
	assert_true(tsr_torch_is_dtype("complex128"));
	assert_false(tsr_torch_is_dtype("float"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_a_whole_tensor_is_read_in_place_with_the_checksum_of_its_record),
		cmocka_unit_test(test_views_show_the_elements_that_strides_lead_to),
		cmocka_unit_test(test_equal_views_are_one_array),
		cmocka_unit_test(test_many_views_are_told_apart),
		cmocka_unit_test(test_big_endian_elements_are_swapped),
		cmocka_unit_test(test_a_deflated_record_is_inflated_and_checked),
		cmocka_unit_test(test_what_is_just_allowed_is_read),
		cmocka_unit_test(test_parameters_are_marked),
		cmocka_unit_test(test_plain_values_are_kept_as_they_are),
		cmocka_unit_test(test_numpy_values_are_kept_with_a_note),
		cmocka_unit_test(test_provisional_names_are_the_keys),
		cmocka_unit_test(test_members_that_are_part_of_nothing_are_noted),
		cmocka_unit_test(test_records_without_a_checksum_are_counted),
		cmocka_unit_test(test_types_are_known_by_all_their_names),
	};

	return cmocka_run_group_tests(tests, fill, NULL);
}
