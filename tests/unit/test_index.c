/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a sharded checkpoint: what is accepted, what it means, and what is written. */
#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "format/shard_index.h"
#include "unit.h"

/* A file without a name, which starts with these bytes and has @nbytes in all. */
static struct tsr_file *file_of(const char *bytes, size_t n, uint64_t nbytes)
{
	const int fd = memfd_create("index", MFD_CLOEXEC);
	struct tsr_file *f = NULL;
	struct tsr_err err;
	char path[40];

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, 0), n);
	assert_int_equal(ftruncate(fd, (off_t)nbytes), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(tsr_file_open(path, &f, &err), TSR_OK);
	close(fd);
	return f;
}

static struct tsr_index *read_ok(const char *text)
{
	struct tsr_file *f = file_of(text, strlen(text), strlen(text));
	struct tsr_index *x = NULL;
	struct tsr_err err = { .msg = "untouched" };

	if (tsr_index_read(f, &x, &err) != TSR_OK)
		fail_msg("refused %.300s: %s", text, err.msg);
	assert_string_equal(err.msg, "untouched");
	tsr_file_close(f);
	return x;
}

static void expect_file_refused(struct tsr_file *f, enum tsr_status want, const char *word)
{
	struct tsr_index *const untouched = (struct tsr_index *)(void *)&f;
	struct tsr_index *x = untouched;
	struct tsr_err err = { 0 };
	const enum tsr_status status = tsr_index_read(f, &x, &err);

	if (status != want || !strstr(err.msg, word))
		fail_msg("status %d, want %d and \"%s\": %s", (int)status, (int)want, word,
			 err.msg);
	assert_ptr_equal(x, untouched);
	assert_int_equal(err.code, want);
	assert_memory_equal(err.msg, "/proc/self/fd/", 14);
	assert_int_equal(tsr_index_read(f, &x, NULL), want);
	tsr_file_close(f);
}

static void expect_refused(const char *text, enum tsr_status want, const char *word)
{
	expect_file_refused(file_of(text, strlen(text), strlen(text)), want, word);
}

#define MAP(members) "{\"weight_map\":{" members "}}"

/* --- What an index means -------------------------------------------------------------------- */

static void test_tensors_and_shards_come_sorted(void **state)
{
	static const struct {
		const char *tensor, *shard;
	} want[] = {
		{ "", "a.safetensors" },	 { "A", "b.safetensors" },
		{ "a", "b.safetensors" },	 { "a.b", "c.safetensors" },
		{ "b", "a.safetensors" },	 { "\x7f", "c.safetensors" },
		{ "\xc3\xa9", "c.safetensors" }, { "\xf0\x9f\x98\x80", "a.safetensors" },
	};
	struct tsr_index *x = read_ok(
		"{\"metadata\":{\"total_size\":7},\"weight_map\":{\"b\":\"a.safetensors\","
		"\"\\u00e9\":\"c.safetensors\",\"a.b\":\"c.safetensors\",\"A\":\"b.safetensors\","
		"\"a\":\"b.safetensors\",\"\":\"a.safetensors\",\"\\ud83d\\ude00\":"
		"\"\\u0061.safetensors\",\"\\u007f\":\"c.safetensors\"}}");

	(void)state;
	assert_int_equal(x->nshards, 3);
	assert_string_equal(x->shards[0], "a.safetensors");
	assert_string_equal(x->shards[1], "b.safetensors");
	assert_string_equal(x->shards[2], "c.safetensors");
	assert_int_equal(x->nentries, COUNT_OF(want));
	for (size_t i = 0; i < COUNT_OF(want); i++) {
		assert_string_equal(x->entries[i].name, want[i].tensor);
		assert_string_equal(x->shards[x->entries[i].index], want[i].shard);
		assert_ptr_equal(tsr_named_find(x->entries, x->nentries, want[i].tensor),
				 &x->entries[i]);
	}
	assert_null(tsr_named_find(x->entries, x->nentries, "B"));
	assert_null(tsr_named_find(x->entries, x->nentries, "a."));
	assert_null(tsr_named_find(x->entries, x->nentries, "zz"));
	tsr_index_free(x);
	tsr_index_free(NULL);
}

/* Whatever it is, it is no reason to refuse. */
static void test_total_size_is_advice(void **state)
{
	static const struct {
		const char *metadata;
		bool has_total;
		double total;
	} cases[] = {
		{ "{\"total_size\":123}", true, 123 },
		{ "{\"total_size\":0}", true, 0 },
		{ "{\"total_size\":281474976710655}", true, 281474976710655.0 },
		{ "{\"total_size\":18446744073709551615}", true, 18446744073709551616.0 },
		{ "{\"total_size\":1.3e10}", true, 1.3e10 },
		{ "{\"total_size\":24.0}", true, 24 },
		{ "{\"total_size\":-1}", true, -1 },
		{ "{\"total_size\":1e400}", true, (double)INFINITY },
		{ "{\"total_size\":\"24\"}", false, 0 },
		{ "{\"total_size\":null}", false, 0 },
		{ "{\"total_size\":[24]}", false, 0 },
		{ "{\"Total_size\":24}", false, 0 },
		{ "{}", false, 0 },
		{ "{\"total_parameters\":12,\"total_size\":24}", true, 24 },
		{ "{\"a\":[[[[[[[[[[[[[[]]]]]]]]]]]]]],\"b\":true,\"total_size\":2}", true, 2 },
	};
	struct tsr_index *x;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char text[200];

		snprintf(text, sizeof(text), "{\"metadata\":%s,\"weight_map\":{\"a\":\"s\"}}",
			 cases[i].metadata);
		x = read_ok(text);
		assert_int_equal(x->has_total, cases[i].has_total);
		if (x->has_total)
			assert_true(x->total == cases[i].total);
		tsr_index_free(x);
	}
	x = read_ok(MAP("\"a\":\"s\""));
	assert_false(x->has_total);
	tsr_index_free(x);
}

static void test_other_members_are_ignored(void **state)
{
	struct tsr_index *x = read_ok("{\"x\":1.5,\"weight_map\":{\"a\":\"s\"},\"Weight_map\":0}");

	(void)state;
	assert_int_equal(x->nentries, 1);
	tsr_index_free(x);
}

/* --- What is refused ------------------------------------------------------------------------ */

static void test_paths_are_refused(void **state)
{
	static const char *const refused[] = {
		"",
		".",
		"..",
		"/",
		"../x",
		"/etc/passwd",
		"a/b",
		"a/",
		"./a",
		"a/../b",
		"..\\\\x",
		"a\\\\b",
		"C:\\\\x",
		"\\\\\\\\h\\\\s",
		"\\u002fx",
		"\\u002e.",
		"\\u002e\\u002e/x",
	};
	static const char *const accepted[] = { "a",	  "...", "..a",
						"a..",	  ".a",	 "a b",
						"-",	  "~",	 "model-00001-of-00002.safetensors",
						"\\u00e9" };
	char text[400];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(refused); i++) {
		snprintf(text, sizeof(text), MAP("\"the.tensor\":\"%s\""), refused[i]);
		expect_refused(text, TSR_E_FORMAT, "tensor the.tensor: found file '");
	}
	for (size_t i = 0; i < COUNT_OF(accepted); i++) {
		snprintf(text, sizeof(text), MAP("\"a\":\"%s\""), accepted[i]);
		tsr_index_free(read_ok(text));
	}
	expect_refused(MAP("\"a\":\"x\\u0000\""), TSR_E_FORMAT, "NUL");
	expect_refused(MAP("\"a\":\"ok\",\"b\":\"..\""), TSR_E_FORMAT, "tensor b");
}

static void test_names_of_255_bytes_are_the_longest(void **state)
{
	char text[400];

	(void)state;
	for (int n = 254; n <= 256; n++) {
		snprintf(text, sizeof(text), MAP("\"a\":\"%0*d\""), n, 0);
		if (n <= 255)
			tsr_index_free(read_ok(text));
		else
			expect_refused(text, TSR_E_FORMAT, "255");
	}
}

static void test_malformed_indexes_are_refused(void **state)
{
	static const struct {
		const char *text, *word;
	} refused[] = {
		{ "", "index byte 0" },
		{ "[]", "not a JSON object" },
		{ "\"weight_map\"", "not a JSON object" },
		{ "null", "not a JSON object" },
		{ "{}", "weight_map" },
		{ "{\"Weight_map\":{\"a\":\"s\"}}", "weight_map" },
		{ "{\"weight_map\":null}", "weight_map" },
		{ "{\"weight_map\":[]}", "weight_map" },
		{ "{\"weight_map\":[\"a\",\"s\"]}", "weight_map" },
		{ "{\"weight_map\":\"a\"}", "weight_map" },
		{ "{\"weight_map\":{}}", "no tensors" },
		{ MAP("\"a\":1"), "tensor a: found no string" },
		{ MAP("\"a\":null"), "tensor a: found no string" },
		{ MAP("\"a\":[\"s\"]"), "tensor a: found no string" },
		{ MAP("\"a\":{\"s\":\"s\"}"), "tensor a: found no string" },
		{ MAP("\"a\":\"s\",\"a\":\"s\""), "duplicate key" },
		{ MAP("\"a\":\"s\",\"\\u0061\":\"t\""), "duplicate key" },
		{ "{\"weight_map\":{\"a\":\"s\"},\"weight_map\":{\"b\":\"s\"}}", "duplicate key" },
		{ "{\"metadata\":1,\"weight_map\":{\"a\":\"s\"}}", "metadata is not an object" },
		{ "{\"metadata\":null,\"weight_map\":{\"a\":\"s\"}}", "metadata is not an object" },
		{ "{\"metadata\":[],\"weight_map\":{\"a\":\"s\"}}", "metadata is not an object" },
		{ "{\"metadata\":{\"a\":NaN},\"weight_map\":{\"a\":\"s\"}}", "byte 17" },
		{ MAP("\"a\":\"s\",") "x", "index byte" },
		{ MAP("\"a\\u0000\":\"s\""), "NUL" },
		{ MAP("\"a\":\"\\ud800\""), "surrogate" },
		{ MAP("\"\xff\":\"s\""), "UTF-8" },
		{ "\xef\xbb\xbf" MAP("\"a\":\"s\""), "index byte 0" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(refused); i++)
		expect_refused(refused[i].text, TSR_E_FORMAT, refused[i].word);
}

static void test_messages_are_safe_to_print(void **state)
{
	(void)state;
	expect_refused(MAP("\"\\u001b[2J\":\"a/\\u001b]0;x\\u0007\""), TSR_E_FORMAT,
		       "tensor \\x1b[2J: found file 'a/\\x1b]0;x\\x07'");
}

static void test_every_truncation_is_refused(void **state)
{
	static const char text[] = "{\"metadata\":{\"total_size\":1.5e3},\"weight_map\":"
				   "{\"a\":\"s\",\"b\\u00e9\":\"t\"}}";

	(void)state;
	for (size_t n = 0; n < sizeof(text) - 1; n++)
		expect_file_refused(file_of(text, n, n), TSR_E_FORMAT, "index byte");
	tsr_index_free(read_ok(text));
}

static void put_n(struct tsr_text *t, size_t n, const char *s)
{
	while (n--)
		tsr_text_puts(t, s);
}

static void expect_limit(struct tsr_text *t)
{
	assert_false(t->failed);
	expect_refused(t->bytes, TSR_E_LIMIT, "limit");
	tsr_text_free(t);
}

static void test_limits(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	/* A hole: nothing of it is read. */
	expect_file_refused(file_of("{", 1, TSR_INDEX_NBYTES_MAX + 1), TSR_E_LIMIT, "limit");
	put_n(&t, 17, "[");
	put_n(&t, 17, "]");
	expect_limit(&t);
	put_n(&t, 1000000, "[");
	expect_limit(&t);
	tsr_text_puts(&t, "{\"metadata\":{\"a\":[0");
	put_n(&t, TSR_INDEX_VALUES_MAX, ",0");
	tsr_text_puts(&t, "]},\"weight_map\":{\"a\":\"s\"}}");
	expect_limit(&t);
	for (size_t over = 0; over <= 1; over++) {
		tsr_text_puts(&t, "{\"weight_map\":{\"");
		put_n(&t, 65535 + over, "n");
		tsr_text_puts(&t, "\":\"s\"}}");
		if (over)
			expect_limit(&t);
		else
			tsr_index_free(read_ok(t.bytes));
		tsr_text_free(&t);
	}
}

/* --- Writing -------------------------------------------------------------------------------- */

/*
 * From Python: json.dumps({"metadata": {"total_size": 2**48 - 1}, "weight_map": {"b": "s2",
 * "a": "s1", "Z": "s", "\xe9": "m", "\x7f": "d", 'q"\\/': "\b\f\n\r\t", "\x01\x1f": "", "": "e",
 * "\uffff": "bmp", "\U0001f600": "astral", "\u2028": "ls"}}, indent=2, sort_keys=True) + "\n"
 */
static void test_index_is_written_as_python_writes_it(void **state)
{
	static const char *const tensors[] = {
		"b",	       "a",	   "Z", "\xc3\xa9",	"\x7f",
		"q\"\\/",      "\x01\x1f", "",	"\xef\xbf\xbf", "\xf0\x9f\x98\x80",
		"\xe2\x80\xa8"
	};
	static const char *const shards[] = { "s2", "s1", "s",	 "m",	   "d", "\b\f\n\r\t",
					      "",   "e",  "bmp", "astral", "ls" };
	static const char want[] = "{\n"
				   "  \"metadata\": {\n"
				   "    \"total_size\": 281474976710655\n"
				   "  },\n"
				   "  \"weight_map\": {\n"
				   "    \"\": \"e\",\n"
				   "    \"\\u0001\\u001f\": \"\",\n"
				   "    \"Z\": \"s\",\n"
				   "    \"a\": \"s1\",\n"
				   "    \"b\": \"s2\",\n"
				   "    \"q\\\"\\\\/\": \"\\b\\f\\n\\r\\t\",\n"
				   "    \"\\u007f\": \"d\",\n"
				   "    \"\\u00e9\": \"m\",\n"
				   "    \"\\u2028\": \"ls\",\n"
				   "    \"\\uffff\": \"bmp\",\n"
				   "    \"\\ud83d\\ude00\": \"astral\"\n"
				   "  }\n"
				   "}\n";
	struct tsr_text got = { 0 };

	(void)state;
	assert_int_equal(COUNT_OF(tensors), COUNT_OF(shards));
	tsr_index_compose(tensors, shards, COUNT_OF(tensors), (UINT64_C(1) << 48) - 1, &got);
	assert_false(got.failed);
	assert_string_equal(got.bytes, want);
	tsr_text_free(&got);
}

static void test_index_without_tensors(void **state)
{
	struct tsr_text got = { 0 };

	(void)state;
	tsr_index_compose(NULL, NULL, 0, 0, &got);
	assert_string_equal(got.bytes, "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n"
				       "  \"weight_map\": {}\n}\n");
	tsr_text_free(&got);
}

static void test_bytes_that_are_not_utf8_are_replaced(void **state)
{
	static const char *const tensors[] = { "a\xff\xc3z\xed\xa0\x80" };
	static const char *const shards[] = { "s" };
	struct tsr_text got = { 0 };

	(void)state;
	tsr_index_compose(tensors, shards, 1, 1, &got);
	assert_non_null(strstr(got.bytes, "\"a\\ufffd\\ufffdz\\ufffd\\ufffd\\ufffd\": \"s\""));
	tsr_text_free(&got);
}

static void test_edges_of_surrogate_pairs(void **state)
{
	static const char *const tensors[] = { "\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80" };
	static const char *const shards[] = { "\xed\x9f\xbf", "\xee\x80\x80" };
	struct tsr_text got = { 0 };

	(void)state;
	tsr_index_compose(tensors, shards, 2, 1, &got);
	assert_non_null(strstr(got.bytes, "{\n    \"\\ud800\\udc00\": \"\\ue000\",\n"
					  "    \"\\udbff\\udfff\": \"\\ud7ff\"\n"));
	tsr_text_free(&got);
}

/* Written, read back, found: and nothing in it takes time in the square of the number. */
static void test_200000_tensors(void **state)
{
	enum { N = 200000, SHARDS = 977 };
	static char names[N][24], files[SHARDS][24];
	static const char *tensors[N], *shards[N];
	struct tsr_text t = { 0 };
	struct tsr_index *x;
	clock_t start;

	(void)state;
	for (unsigned i = 0; i < SHARDS; i++)
		snprintf(files[i], sizeof(files[i]), "shard-%05u", i);
	for (unsigned i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "layer.%06u", i * 7919u % N);
		tensors[i] = names[i];
		shards[i] = files[i * 31u % SHARDS];
	}
	start = clock();
	tsr_index_compose(tensors, shards, N, 1, &t);
	assert_false(t.failed);
	x = read_ok(t.bytes);
	assert_int_equal(x->nentries, N);
	assert_int_equal(x->nshards, SHARDS);
	for (unsigned i = 0; i < N; i++) {
		const struct tsr_named *e = tsr_named_find(x->entries, x->nentries, tensors[i]);

		assert_non_null(e);
		assert_string_equal(e->name, tensors[i]);
		assert_string_equal(x->shards[e->index], shards[i]);
	}
	/* A tenth of a second or so; a sanitizer on a busy machine needs more, a square minutes. */
	assert_true(clock() - start < 20 * CLOCKS_PER_SEC);
	tsr_index_free(x);
	tsr_text_free(&t);
}

static void test_names_of_shards(void **state)
{
	static const struct {
		const char *file;
		size_t shard, nshards;
		const char *want;
	} cases[] = {
		{ "model.safetensors", 0, 3, "model-00001-of-00003.safetensors" },
		{ "model.safetensors", 1, 3, "model-00002-of-00003.safetensors" },
		{ "model.fp16.safetensors", 1, 2, "model.fp16-00002-of-00002.safetensors" },
		{ "pytorch_model.bin", 0, 1, "pytorch_model-00001-of-00001.bin" },
		{ "m.safetensors", 99999, 123456, "m-100000-of-123456.safetensors" },
		{ "m", 0, 2, "m-00001-of-00002" },
		{ ".m", 0, 2, ".m-00001-of-00002" },
		{ "m.", 0, 2, "m-00001-of-00002." },
		{ "a.b/m", 0, 2, "a.b/m-00001-of-00002" },
		{ "a.b/m.st", 0, 2, "a.b/m-00001-of-00002.st" },
		{ "../.m", 0, 2, "../.m-00001-of-00002" },
		{ "100%s.st", 0, 2, "100%s-00001-of-00002.st" },
		{ "x.%n", 0, 2, "x-00001-of-00002.%n" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct tsr_text got = { 0 };

		tsr_shard_name(cases[i].file, cases[i].shard, cases[i].nshards, &got);
		assert_string_equal(got.bytes, cases[i].want);
		tsr_text_free(&got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tensors_and_shards_come_sorted),
		cmocka_unit_test(test_total_size_is_advice),
		cmocka_unit_test(test_other_members_are_ignored),
		cmocka_unit_test(test_paths_are_refused),
		cmocka_unit_test(test_names_of_255_bytes_are_the_longest),
		cmocka_unit_test(test_malformed_indexes_are_refused),
		cmocka_unit_test(test_messages_are_safe_to_print),
		cmocka_unit_test(test_every_truncation_is_refused),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_index_is_written_as_python_writes_it),
		cmocka_unit_test(test_index_without_tensors),
		cmocka_unit_test(test_bytes_that_are_not_utf8_are_replaced),
		cmocka_unit_test(test_edges_of_surrogate_pairs),
		cmocka_unit_test(test_200000_tensors),
		cmocka_unit_test(test_names_of_shards),
	};

	return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
