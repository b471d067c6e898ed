/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of torch.save, or nearly: what is refused, with which words, and what is just fine. */
#include "torch_make.h"

static void test_tensors_that_do_not_fit_their_storage_are_refused(void **state)
{
	static const struct {
		struct spec spec;
		enum tsr_status status;
		const char *word;
	} cases[] = {
		{ VIEW(.rank = 1, .shape = { 65 }, .stride = { 1 }), TSR_E_FORMAT,
		  "the 64 elements" },
		{ VIEW(.rank = 1, .shape = { 1 }, .stride = { 1 }, .offset = 64), TSR_E_FORMAT,
		  "64" },
		{ VIEW(.rank = 1, .shape = { 2 }, .stride = { 64 }), TSR_E_FORMAT, "last element" },
		{ VIEW(.rank = 1, .shape = { 3 }, .stride = { INT64_MAX }), TSR_E_FORMAT, "last" },
		{ VIEW(.rank = 1, .shape = { -1 }, .stride = { 1 }), TSR_E_FORMAT, "size, dim" },
		{ VIEW(.rank = 1, .shape = { 2 }, .stride = { -1 }), TSR_E_FORMAT, "stride, dim" },
		{ VIEW(.rank = 1, .shape = { 1 }, .stride = { 1 }, .offset = -1), TSR_E_FORMAT,
		  "offset" },
		{ VIEW(.rank = 2, .shape = { 0, 1ll << 48 }, .stride = { 1, 1 }), TSR_E_FORMAT,
		  "2^48-1" },
		{ VIEW(.rank = 1, .shape = { 1 << 20 }, .stride = { 0 }), TSR_E_LIMIT, "limit" },
		{ VIEW(.rank = 2, .shape = { 1ll << 40, 1ll << 40 }, .stride = { 0, 0 }),
		  TSR_E_LIMIT, "limit" },
		{ { .numel = 63, .rank = 1, .shape = { 1 }, .stride = { 1 } },
		  TSR_E_FORMAT,
		  "256 bytes" },
		{ { .numel = 65, .rank = 1, .shape = { 1 }, .stride = { 1 } }, TSR_E_FORMAT, "65" },
		{ { .numel = (1ll << 62) + FLOATS, .rank = 0 }, TSR_E_FORMAT, "data/0" },
		{ { .numel = -1, .rank = 0 }, TSR_E_FORMAT, "-1" },
		{ { .class = "DoubleStorage", .numel = FLOATS }, TSR_E_FORMAT, "float64" },
		{ { .class = "ComplexDoubleStorage", .numel = 16 },
		  TSR_E_UNSUPPORTED,
		  "ComplexDouble" },
		{ { .class = "QInt8Storage", .numel = 256 }, TSR_E_UNSUPPORTED, "QInt8Storage" },
		{ { .class = "FloatStorage", .module = "numpy", .numel = 64 },
		  TSR_E_UNSUPPORTED,
		  "numpy" },
		{ { .class = "UntypedStorage", .module = "torch.storage", .numel = 256 },
		  TSR_E_UNSUPPORTED,
		  "UntypedStorage" },
		{ { .class = "UntypedStorage",
		    .module = "torch.storage",
		    .numel = 256,
		    .dtype = "complex128" },
		  TSR_E_UNSUPPORTED,
		  "complex128" },
		{ { .numel = FLOATS, .dtype = "float32" }, TSR_E_UNSUPPORTED, "FloatStorage" },
		{ { .numel = FLOATS, .key = "../../x" }, TSR_E_FORMAT, "../../x" },
		{ { .numel = FLOATS, .key = "" }, TSR_E_FORMAT, "digits" },
		{ { .numel = FLOATS, .key = "00000000000" }, TSR_E_FORMAT, "digits" },
		{ { .numel = FLOATS, .key = "7" }, TSR_E_FORMAT, "data/7" },
		{ { .numel = FLOATS, .hooks = "N" }, TSR_E_FORMAT, "hooks" },
		{ { .numel = FLOATS, .hooks = "ccollections\nOrderedDict\n)R(NNu" },
		  TSR_E_FORMAT,
		  "hooks" },
		{ { .numel = FLOATS, .requires_grad = "N" }, TSR_E_FORMAT, "requires_grad" },
		{ { .numel = FLOATS, .metadata = "}(U\4conj\210u" }, TSR_E_UNSUPPORTED, "conj" },
		{ { .numel = FLOATS, .metadata = "}(U\3neg\210u" }, TSR_E_UNSUPPORTED, "neg" },
		{ { .numel = FLOATS, .metadata = "}(U\5other\211u" }, TSR_E_UNSUPPORTED, "other" },
		{ { .numel = FLOATS, .metadata = "](Ne" }, TSR_E_FORMAT, "metadata" },
		{ { .numel = FLOATS, .metadata = "}N" }, TSR_E_FORMAT, "arguments" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct saved s = one_tensor(&cases[i].spec);

		expect_not_read(&s, cases[i].status, cases[i].word);
	}
}

static void test_one_record_has_one_type_and_length(void **state)
{
	static const struct spec other[] = {
		{ .class = "IntStorage", .numel = FLOATS },
		{ .class = "UntypedStorage",
		  .module = "torch.storage",
		  .numel = 256,
		  .dtype = "uint16" },
		{ .numel = 32 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(other); i++) {
		const struct spec first = { .numel = FLOATS };
		struct saved s = { .ops = { 0 } };

		OP(&s.ops, "(");
		op_tensor(&s.ops, &first);
		op_tensor(&s.ops, &other[i]);
		OP(&s.ops, "t");
		add_storage(&s, "r/data/0", floats, sizeof(floats));
		expect_not_read(&s, TSR_E_FORMAT, "as another tensor has it");
	}
}

/* Each by itself is within the limit; together they are not. */
static void test_tensors_together_have_a_limit_too(void **state)
{
	struct saved s = { .ops = { 0 } };

	(void)state;
	OP(&s.ops, "](");
	for (int64_t i = 0; i < 70; i++) {
		const struct spec spec = {
			.numel = FLOATS, .rank = 1, .shape = { (1 << 18) - i }, .stride = { 0 }
		};

		op_tensor(&s.ops, &spec);
	}
	OP(&s.ops, "e");
	add_storage(&s, "r/data/0", floats, sizeof(floats));
	expect_not_read(&s, TSR_E_LIMIT, "limit");
}

static void test_parameters_with_more_to_them_are_refused(void **state)
{
	static const struct {
		const char *name, *rest; /* opcodes behind the tensor */
		enum tsr_status status;
		const char *word;
	} cases[] = {
		{ "_rebuild_parameter_with_state", "\210ccollections\nOrderedDict\n)RN}\206tR",
		  TSR_E_UNSUPPORTED, "slots" },
		{ "_rebuild_parameter", "\210NtR", TSR_E_FORMAT, "parameter" },
		{ "_rebuild_parameter", "NtR", TSR_E_FORMAT, "parameter" },
		{ "_rebuild_parameter", "\210ccollections\nOrderedDict\n)RtR}b", TSR_E_FORMAT,
		  "parameter" },
	};
	const struct spec spec = { .numel = FLOATS };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct saved s = { .ops = { 0 } };

		op_global(&s.ops, "torch._utils", cases[i].name);
		OP(&s.ops, "(");
		op_tensor(&s.ops, &spec);
		tsr_text_puts(&s.ops, cases[i].rest);
		add_storage(&s, "r/data/0", floats, sizeof(floats));
		expect_not_read(&s, cases[i].status, cases[i].word);
	}
}

static void test_everything_else_is_refused_by_name(void **state)
{
	static const struct {
		const char *value; /* opcodes */
		const char *word;
	} cases[] = {
		{ "cposix\nsystem\n", "key: found posix.system" },
		{ "cposix\nsystem\nU\2ls\205R", "key: found a call of posix.system" },
		{ "c__builtin__\neval\nU\1x\205R", "builtins.eval" },
		{ "cbuiltins\ngetattr\nctorch\nSize\nU\1x\206R", "found torch.Size.x" },
		{ "cposix\nsystem\nU\2ls\205R)R", "posix.system" },
		{ "ctorch\nSize\n)R)R", "torch.Size" },
		{ "ctorch\nSize\ncposix\nsystem\n)R\205R", "posix.system" },
		{ "ccollections\nOrderedDict\n)Rcposix\nsystem\n)Rb", "posix.system" },
		{ "}(cposix\nsystem\n)RNu", "posix.system" },
		{ "](((cposix\nsystem\n)Rtte", "key.0.0.0: found a call of posix.system" },
		{ "ctorch\nload\nU\1x\205R", "torch.load" },
		{ "ctorch\nFloatStorage\n", "torch.FloatStorage" },
		{ "ctorch\nfloat7\n", "torch.float7" },
		{ "cmy.models\nNet\n)\201}(U\13_parametersNub", "state_dict()" },
		{ "ctorch.nn.modules.linear\nLinear\n)\201}b", "state_dict()" },
		{ "ctorch._utils\n_rebuild_sparse_tensor\n)R", "a sparse tensor" },
		{ "ctorch._utils\n_rebuild_qtensor\n)R", "a quantized tensor" },
		{ "ctorch._tensor\n_rebuild_from_type_v2\n)R", "subclass" },
		{ "ctorch.distributed.tensor\nDTensor\n)\201}b", "DTensor" },
		{ "ctorch.distributed._tensor.api\nDTensor\n)\201}b", "DTensor" },
		{ "(U\7storagectorch\nFloatStorage\nU\1"
		  "0U\3cpuK\100tQ",
		  "a storage" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct saved s = { .ops = { 0 } };

		OP(&s.ops, "}(U\3key");
		tsr_text_puts(&s.ops, cases[i].value);
		OP(&s.ops, "u");
		expect_not_read(&s, TSR_E_UNSUPPORTED, cases[i].word);
	}
}

static void test_tensors_stand_where_they_can_be_found(void **state)
{
	static const struct {
		const char *before, *after;
		bool fine;
	} cases[] = {
		{ "}(U\1a", "u", true },
		{ "ccollections\nOrderedDict\n)R(U\1a", "u", true },
		{ "ccollections\nCounter\n}(U\1a", "u\205R", true },
		{ "cargparse\nNamespace\n)\201}(U\1a", "ub", true },
		{ "cnumpy\ndtype\n(", "tR", false },
		{ "ctorch\nSize\n](", "e\205R", false },
		{ "}(", "Nu", false },
		{ "}((", "tNu", false },
	};
	const struct spec spec = { .numel = FLOATS };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct saved s = { .ops = { 0 } };
		struct tsr_value *root;

		tsr_text_puts(&s.ops, cases[i].before);
		op_tensor(&s.ops, &spec);
		tsr_text_puts(&s.ops, cases[i].after);
		add_storage(&s, "r/data/0", floats, sizeof(floats));
		if (cases[i].fine)
			tsr_checkpoint_close(read_saved(&s, &root));
		else
			expect_not_read(&s, TSR_E_UNSUPPORTED, "found a tensor");
	}
}

static void test_a_key_that_comes_twice_is_refused(void **state)
{
	static const struct {
		const char *items;
		bool fine;
	} cases[] = {
		{ "U\1aNU\1aN", false },
		{ "K\7NK\7N", false },
		{ "U\1aNU\1bNU\2abNU\1bN", false },
		{ "C\1aNC\1aN", false },
		{ "K\1N\210N", false }, /* True is 1 to Python */
		{ "K\2N\210NU\1\1N", true },
		{ "U\1aNC\1aN", true },
		{ "K\1NU\0011N", true },
		{ "NNNN", true },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct saved s = { .ops = { 0 } };
		struct tsr_value *root;

		OP(&s.ops, "}(U\3key}(");
		tsr_text_puts(&s.ops, cases[i].items);
		OP(&s.ops, "uu");
		if (cases[i].fine)
			tsr_checkpoint_close(read_saved(&s, &root));
		else
			expect_not_read(&s, TSR_E_FORMAT, "twice");
	}
}

/* Every key is told from every other, however many there are. */
static void test_many_keys_are_no_twins(void **state)
{
	(void)state;
	for (unsigned n = 2; n < 3000; n = 3 * n / 2 + 1) {
		struct saved s = { .ops = { 0 } };
		struct tsr_value *root;

		OP(&s.ops, "}(");
		for (unsigned i = 0; i < n; i++) {
			op_int(&s.ops, i * 1000003ll);
			OP(&s.ops, "N");
		}
		OP(&s.ops, "u");
		tsr_checkpoint_close(read_saved(&s, &root));
	}
}

static void test_versions_and_byte_orders(void **state)
{
	static const struct {
		const char *version, *byteorder, *word; /* word NULL: fine */
	} cases[] = {
		{ "1", NULL, NULL },
		{ "10\n", "little", NULL },
		{ "3\n", "big", NULL },
		{ "11\n", NULL, "version" },
		{ "0\n", NULL, "version" },
		{ "\n", NULL, "version" },
		{ "3.0\n", NULL, "version" },
		{ "3\n3\n", NULL, "version" },
		{ "3\n", "middle", "byteorder" },
		{ "3\n", "Little", "byteorder" },
		{ "3\n", "little\n", "byteorder" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct saved s = { .version = cases[i].version, .byteorder = cases[i].byteorder };
		struct tsr_value *root;

		OP(&s.ops, "}");
		if (cases[i].word)
			expect_not_read(&s, TSR_E_UNSUPPORTED, cases[i].word);
		else
			tsr_checkpoint_close(read_saved(&s, &root));
	}
}

static void test_archives_that_are_something_else(void **state)
{
	static const struct {
		const char *names[3];
		enum tsr_status status;
		const char *word;
	} cases[] = {
		{ { "r/data.pkl", "r/version", "s/x" }, TSR_E_FORMAT, "s/x" },
		{ { "data.pkl", "version" }, TSR_E_FORMAT, "data.pkl" },
		{ { "r/data.pkl", "r/x" }, TSR_E_FORMAT, "version" },
		{ { "r/version", "r/x" }, TSR_E_FORMAT, "data.pkl" },
		{ { "r/data.pkl", "r/version", "r/constants.pkl" },
		  TSR_E_UNSUPPORTED,
		  "TorchScript" },
		{ { "r/data.pkl", "r/version", "r/code/a.py" }, TSR_E_UNSUPPORTED, "TorchScript" },
		{ { "r/archive_format", "r/version" }, TSR_E_UNSUPPORTED, "ExecuTorch" },
		{ { "r/models/model.json", "r/version" }, TSR_E_UNSUPPORTED, "torch.export" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct tsr_checkpoint *c = new_checkpoint();
		struct item items[3] = { { 0 } };
		struct tsr_value *root = NULL;
		struct tsr_err err = { 0 };
		size_t n = 0;

		for (; n < 3 && cases[i].names[n]; n++)
			items[n] = (struct item){ .name = cases[i].names[n],
						  .data = "3\n",
						  .nbytes = 2 };
		build(&archive, items, n, false);
		expect_status(read_at(c, 0, &root, &err), cases[i].status, &err, cases[i].word);
		tsr_checkpoint_close(c);
	}
}

static void test_older_files_get_advice(void **state)
{
	static const unsigned char legacy[] =
		"\200\002\212\012\154\374\234\106\371\040\152\250\120\031.";
	static const unsigned char legacy_4[] =
		"\200\004\225\015\0\0\0\0\0\0\0\212\012\154\374\234\106\371\040\152\250\120\031.";
	unsigned char tar[512] = { 0 };

	(void)state;
	memcpy(tar + 257, "ustar", 5);
	assert_non_null(strstr(tsr_torch_old_kind(legacy, sizeof(legacy) - 1), "save it again"));
	assert_non_null(strstr(tsr_torch_old_kind(legacy_4, sizeof(legacy_4) - 1), "legacy"));
	assert_non_null(strstr(tsr_torch_old_kind(tar, sizeof(tar)), "tar"));
	assert_null(tsr_torch_old_kind(tar, 261));
	assert_non_null(tsr_torch_old_kind((const unsigned char *)"PYTORCH1", 8));
	assert_null(tsr_torch_old_kind((const unsigned char *)"PYTORCH1", 7));
	assert_non_null(
		strstr(tsr_torch_old_kind((const unsigned char *)"\200\002}.", 4), "pickle"));
	assert_null(tsr_torch_old_kind((const unsigned char *)"", 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tensors_that_do_not_fit_their_storage_are_refused),
		cmocka_unit_test(test_one_record_has_one_type_and_length),
		cmocka_unit_test(test_tensors_together_have_a_limit_too),
		cmocka_unit_test(test_parameters_with_more_to_them_are_refused),
		cmocka_unit_test(test_everything_else_is_refused_by_name),
		cmocka_unit_test(test_tensors_stand_where_they_can_be_found),
		cmocka_unit_test(test_a_key_that_comes_twice_is_refused),
		cmocka_unit_test(test_many_keys_are_no_twins),
		cmocka_unit_test(test_versions_and_byte_orders),
		cmocka_unit_test(test_archives_that_are_something_else),
		cmocka_unit_test(test_older_files_get_advice),
	};

	return cmocka_run_group_tests(tests, fill, NULL);
}
