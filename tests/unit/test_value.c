/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas, the values of src/format/value.h that lie in them, and what the check of a graph finds. */
#include "values.h"

/* --- Arenas --------------------------------------------------------------------------------- */

static void test_allocations_are_zeroed_aligned_and_apart(void **state)
{
	struct tsr_arena *a = *state;
	unsigned char *blocks[600];
	size_t sizes[COUNT_OF(blocks)];
	uint64_t seed = 1;

	for (size_t i = 0; i < COUNT_OF(blocks); i++) {
		sizes[i] = random_u32(&seed) % (i % 20 ? 3000 : 100000);
		blocks[i] = tsr_arena_alloc(a, sizes[i]);
		assert_non_null(blocks[i]);
		assert_int_equal((uintptr_t)blocks[i] % _Alignof(max_align_t), 0);
		for (size_t k = 0; k < sizes[i]; k++)
			assert_int_equal(blocks[i][k], 0);
		memset(blocks[i], (int)(i % 251), sizes[i]);
		if (i % 7 == 0)
			assert_string_equal(tsr_arena_copy(a, "odd size", 3), "odd");
	}
	for (size_t i = 0; i < COUNT_OF(blocks); i++) {
		for (size_t k = 0; k < sizes[i]; k++)
			assert_int_equal(blocks[i][k], i % 251);
	}
}

static void test_growing_keeps_what_there_was(void **state)
{
	struct tsr_arena *a = *state;
	unsigned char *grown[4] = { NULL };
	size_t nbytes[4] = { 0 };
	uint64_t seed = 2;

	for (int round = 0; round < 300; round++) {
		const size_t i = random_u32(&seed) % (round % 3 ? 1 : 4); /* often the same twice */
		const size_t more = random_u32(&seed) % 2000;

		grown[i] = tsr_arena_grow(a, grown[i], nbytes[i], nbytes[i] + more);
		assert_non_null(grown[i]);
		memset(grown[i] + nbytes[i], (int)i + 1, more);
		nbytes[i] += more;
	}
	for (size_t i = 0; i < 4; i++) {
		for (size_t k = 0; k < nbytes[i]; k++)
			assert_int_equal(grown[i][k], i + 1);
	}
	assert_true(nbytes[0] > 100000); /* both small and large ones were grown */
}

/* A list of many items costs what they take, and not what smaller arrays took before. */
static void test_growing_a_large_allocation_leaves_nothing_behind(void **state)
{
	struct tsr_arena *a = *state;
	char *p = NULL;

	for (size_t n = 0; n < 64 << 20; n += 1 << 20)
		p = tsr_arena_grow(a, p, n, n + (1 << 20));
	assert_non_null(p);
	assert_int_equal(tsr_arena_used(a), 64 << 20);
}

static void test_the_limit_holds(void **state)
{
	struct tsr_arena *a = tsr_arena_new(1000);
	char *p;

	(void)state;
	assert_non_null(a);
	assert_non_null(tsr_arena_alloc(a, 600));
	assert_false(tsr_arena_full(a));
	assert_null(tsr_arena_alloc(a, 500));
	assert_true(tsr_arena_full(a));
	assert_null(tsr_arena_alloc(a, SIZE_MAX));
	assert_null(tsr_arena_copy(a, "", SIZE_MAX));
	p = tsr_arena_alloc(a, 100);
	assert_non_null(p);
	assert_null(tsr_arena_grow(a, p, 100, 1000));
	assert_null(tsr_arena_grow(a, p, 100, SIZE_MAX));
	assert_true(tsr_arena_used(a) >= 700 && tsr_arena_used(a) <= 1000);
	assert_int_equal(tsr_arena_limit(a, 100), 1000); /* below what is used */
	assert_null(tsr_arena_alloc(a, 1));
	assert_int_equal(tsr_arena_limit(a, 100000), 100);
	p = tsr_arena_alloc(a, 50000);
	assert_non_null(p);
	assert_null(tsr_arena_grow(a, p, 50000, 100000));
	tsr_arena_free(a);
	tsr_arena_free(NULL);
}

/* What malloc does not have is not the arena's limit. */
static void test_no_memory_is_told_from_the_limit(void **state)
{
	struct tsr_arena *a = *state;
	const size_t used = tsr_arena_used(a);

	assert_null(tsr_arena_alloc(a, SIZE_MAX - 8));
	assert_false(tsr_arena_full(a));
	assert_int_equal(tsr_arena_used(a), used);
}

/* --- Ints ----------------------------------------------------------------------------------- */

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

/* What becomes of a value, by the compiler's 128-bit arithmetic. */
static void expect_int_of(struct tsr_arena *a, int128 value)
{
	unsigned char bytes[16];
	struct tsr_value *v;
	int64_t i64 = 77;
	uint64_t u64 = 77;
	size_t n;

	for (size_t i = 0; i < 16; i++)
		bytes[i] = (unsigned char)((uint128)value >> 8 * i);
	v = tsr_value_long(a, bytes, 16);
	assert_non_null(v);
	/* The shortest form: the fewest bytes whose range has the value. */
	for (n = 0; n < 16; n++) {
		const int128 half = n ? (int128)1 << (8 * n - 1) : 0;

		if ((n == 0 && value == 0) || (n && value >= -half && value < half))
			break;
	}
	assert_int_equal(v->text.nbytes, n);
	assert_memory_equal(v->text.bytes, bytes, n);
	assert_int_equal(tsr_value_get_i64(v, &i64), value >= INT64_MIN && value <= INT64_MAX);
	assert_int_equal(tsr_value_get_u64(v, &u64), value >= 0 && value <= UINT64_MAX);
	if (value >= INT64_MIN && value <= INT64_MAX) {
		const struct tsr_value *same = tsr_value_int(a, (int64_t)value);

		assert_true(i64 == (int64_t)value);
		assert_int_equal(same->text.nbytes, n);
		assert_memory_equal(same->text.bytes, bytes, n);
	}
	if (value >= 0 && value <= UINT64_MAX)
		assert_true(u64 == (uint64_t)value);
}

static void test_ints_are_short_and_exact(void **state)
{
	for (int bit = 0; bit < 126; bit++) {
		for (int offset = -2; offset <= 2; offset++) {
			const int128 value = ((int128)1 << bit) + offset;

			expect_int_of(*state, value);
			expect_int_of(*state, -value);
		}
	}
}

/* --- Questions ------------------------------------------------------------------------------ */

static void test_questions_about_other_types_are_no(void **state)
{
	struct tsr_arena *a = *state;
	int64_t i64;
	uint64_t u64;

	for (unsigned type = TSR_VALUE_NONE; type <= TSR_VALUE_TENSOR; type++) {
		const struct tsr_value *v = tsr_value_new(a, (enum tsr_value_type)type);

		if (type != TSR_VALUE_INT) {
			assert_false(tsr_value_get_i64(v, &i64));
			assert_false(tsr_value_get_u64(v, &u64));
		}
		if (type != TSR_VALUE_STRING)
			assert_false(tsr_value_is_string(v, ""));
		if (type != TSR_VALUE_GLOBAL)
			assert_false(tsr_value_is_global(v, "", ""));
		if (type != TSR_VALUE_DICT)
			assert_null(tsr_value_mapping(v));
		assert_false(tsr_value_is_call(v, "a", "b"));
		assert_null(tsr_value_at(v, "a"));
	}
	assert_false(tsr_value_is_string(NULL, ""));
	assert_false(tsr_value_is_global(NULL, "", ""));
	assert_false(tsr_value_is_call(NULL, "", ""));
	assert_false(tsr_value_is_list(NULL));
	assert_false(tsr_value_get_i64(NULL, &i64));
	assert_false(tsr_value_get_u64(NULL, &u64));
	assert_null(tsr_value_mapping(NULL));
	assert_null(tsr_value_at(NULL, "a"));
	assert_true(tsr_value_real(NULL) == 0);
}

static void test_strings_are_compared_with_their_nuls(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *v = tsr_value_text(a, TSR_VALUE_STRING, "a\0b", 3);

	assert_false(tsr_value_is_string(v, "a"));
	assert_true(tsr_value_is_string(tsr_value_string(a, "a"), "a"));
	assert_false(tsr_value_is_string(tsr_value_string(a, "ab"), "a"));
	assert_false(tsr_value_is_string(tsr_value_text(a, TSR_VALUE_BYTES, "a", 1), "a"));
}

static void test_mappings(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *const one = tsr_value_int(a, 1), *const two = tsr_value_int(a, 2);
	struct tsr_value *const dict = list_of(a, TSR_VALUE_DICT, tsr_value_string(a, "k"), one,
					       two, two, tsr_value_string(a, "k"), two,
					       tsr_value_string(a, "l"), one, NULL);
	struct tsr_value *const none = list_of(a, TSR_VALUE_TUPLE, NULL);
	struct tsr_value *const given = list_of(a, TSR_VALUE_TUPLE, dict, NULL);
	struct tsr_value *const factory = list_of(a, TSR_VALUE_TUPLE,
						  tsr_value_global(a, "__builtin__", "list"), NULL);
	struct tsr_value *const pairs = list_of(a, TSR_VALUE_TUPLE,
						list_of(a, TSR_VALUE_LIST, NULL), NULL);
	struct tsr_value *v;

	assert_ptr_equal(tsr_value_mapping(dict), dict);
	assert_ptr_equal(tsr_value_at(dict, "k"), two); /* the last of them */
	assert_ptr_equal(tsr_value_at(dict, "l"), one);
	assert_null(tsr_value_at(dict, "m"));

	v = call_of(a, "collections", "OrderedDict", none);
	expect_shown(tsr_value_mapping(v), "{}");
	v->call.items = dict;
	assert_ptr_equal(tsr_value_mapping(v), dict);
	assert_ptr_equal(tsr_value_at(v, "k"), two);
	v->call.items = list_of(a, TSR_VALUE_LIST, one, NULL);
	assert_null(tsr_value_mapping(v));

	v = call_of(a, "collections", "defaultdict", factory);
	expect_shown(tsr_value_mapping(v), "{}");
	v->call.items = dict;
	assert_ptr_equal(tsr_value_mapping(v), dict);

	v = call_of(a, "collections", "Counter", given);
	assert_ptr_equal(tsr_value_mapping(v), dict);
	v->call.items = dict;
	assert_null(tsr_value_mapping(v)); /* which of the two */
	assert_null(tsr_value_mapping(call_of(a, "collections", "OrderedDict", pairs)));
	assert_null(tsr_value_mapping(call_of(a, "collections", "defaultdict", dict)));
	assert_null(tsr_value_mapping(call_of(a, "collections", "deque", none)));
	assert_null(tsr_value_mapping(call_of(a, "other", "OrderedDict", none)));
}

/* --- Texts ---------------------------------------------------------------------------------- */

/* What Python's bytes.decode("utf-8", "surrogatepass") takes, at every place in a word of 8. */
static void test_texts_are_utf8_or_surrogates(void **state)
{
	static const char *const good[] = { "",
					    "a",
					    "\xc2\x80",
					    "\xdf\xbf",
					    "\xe0\xa0\x80",
					    "\xed\x9f\xbf",
					    "\xed\xa0\x80",
					    "\xed\xbf\xbf",
					    "\xee\x80\x80",
					    "\xf0\x90\x80\x80",
					    "\xf4\x8f\xbf\xbf" };
	static const char *const bad[] = { "\x80",
					   "\xff",
					   "\xc0\x80",
					   "\xc1\xbf",
					   "\xc3",
					   "\xe0\x9f\xbf",
					   "\xe2\x82",
					   "\xed\xa0",
					   "\xed\xa0\xc0",
					   "\xf0\x8f\x80\x80",
					   "\xf4\x90\x80\x80",
					   "\xf5\x80\x80\x80" };
	char text[64];

	(void)state;
	for (int before = 0; before < 17; before++) {
		for (int after = 0; after < 9; after++) {
			for (size_t i = 0; i < COUNT_OF(good); i++) {
				const int n = snprintf(text, sizeof(text), "%.*s%s%.*s", before,
						       "aaaaaaaaaaaaaaaaa", good[i], after,
						       "bbbbbbbbb");

				assert_true(tsr_value_is_text(text, (size_t)n));
			}
			for (size_t i = 0; i < COUNT_OF(bad); i++) {
				const int n = snprintf(text, sizeof(text), "%.*s%s%.*s", before,
						       "aaaaaaaaaaaaaaaaa", bad[i], after,
						       "bbbbbbbbb");

				assert_false(tsr_value_is_text(text, (size_t)n));
			}
		}
	}
	assert_true(tsr_value_is_text("a\0b", 3));
}

static void test_names_are_dotted_identifiers(void **state)
{
	static const char *const good[] = {
		"a", "_", "A9_z", "a.b", "__builtin__", "torch._utils"
	};
	static const char *const bad[] = { "",	       ".",   "a.",  ".a",  "a..b",	   "9a",
					   "a.9",      "a b", "a-b", "a\n", "caf\xc3\xa9", "a/b",
					   "<lambda>", "@",   "[",   "`{" };
	char longest[258];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(good); i++)
		assert_true(tsr_value_is_name(good[i], strlen(good[i])));
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_false(tsr_value_is_name(bad[i], strlen(bad[i])));
	assert_false(tsr_value_is_name("a\0b", 3));
	memset(longest, 'x', sizeof(longest));
	assert_true(tsr_value_is_name(longest, 256));
	assert_false(tsr_value_is_name(longest, 257));
}

/* --- The check ------------------------------------------------------------------------------ */

static void expect_answer(const struct tsr_value *root, enum tsr_status want, const char *message)
{
	struct tsr_err err = { .msg = "untouched" };

	assert_int_equal(tsr_value_check(root, "FILE: part", &err), want);
	if (want == TSR_OK)
		assert_string_equal(err.msg, "untouched");
	else if (strncmp(err.msg, "FILE: part: ", 12) != 0 || !strstr(err.msg, message))
		fail_msg("%s, expected %s", err.msg, message);
	/* The answer is the same again: nothing is left in the values. */
	assert_int_equal(tsr_value_check(root, "FILE", NULL), want);
	assert_int_equal(root->scratch, 0);
}

/* @depth tuples around a leaf. */
static struct tsr_value *nest(struct tsr_arena *a, struct tsr_value *v, unsigned depth)
{
	while (depth--)
		v = list_of(a, TSR_VALUE_TUPLE, v, NULL);
	return v;
}

static void test_depth_is_limited(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *leaf = tsr_value_int(a, 1);
	struct tsr_value *deep = nest(a, leaf, 199), *v;

	expect_answer(leaf, TSR_OK, "");
	expect_answer(deep, TSR_OK, "");
	expect_answer(nest(a, deep, 1), TSR_E_LIMIT, "limit of 200");
	expect_answer(nest(a, deep, 100000), TSR_E_LIMIT, "limit of 200");
	/* A shared part counts where it is deepest, not where it came first. */
	v = list_of(a, TSR_VALUE_LIST, nest(a, leaf, 100), NULL);
	tsr_value_add(a, v, nest(a, v->list.items[0], 98));
	expect_answer(v, TSR_OK, "");
	v->list.items[1] = nest(a, v->list.items[0], 99);
	expect_answer(v, TSR_E_LIMIT, "limit of 200");
}

/* An object is as deep as the deepest of what it is made of; so is what a PERSISTENT wraps. */
static void test_every_child_counts_for_depth(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *deep = nest(a, tsr_value_int(a, 1), 199);
	struct tsr_value *args = list_of(a, TSR_VALUE_TUPLE, NULL), *v;

	v = call_of(a, "m", "n", args);
	expect_answer(v, TSR_OK, "");
	v->call.args = deep;
	expect_answer(v, TSR_E_LIMIT, "deeper");
	v->call.args = args;
	v->call.state = deep;
	expect_answer(v, TSR_E_LIMIT, "deeper");
	v->call.state = NULL;
	v->call.items = deep;
	expect_answer(v, TSR_E_LIMIT, "deeper");
	v->call.items = NULL;
	v->call.callee = deep;
	expect_answer(v, TSR_E_LIMIT, "deeper");
	v = tsr_value_new(a, TSR_VALUE_PERSISTENT);
	v->inner = deep;
	expect_answer(v, TSR_E_LIMIT, "deeper");
	v->inner = args;
	expect_answer(v, TSR_OK, "");
}

/* Leaves count as often as a walk of the tree meets them; time goes with the graph only. */
static void test_leaves_are_limited(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *v = tsr_value_int(a, 1), *wide;

	for (int i = 0; i < 60; i++)
		v = list_of(a, TSR_VALUE_LIST, v, v, NULL);
	expect_answer(v, TSR_E_LIMIT, "limit of 16000000");

	wide = list_of(a, TSR_VALUE_LIST, NULL); /* 1000 * 1000 * 16 leaves */
	v = tsr_value_int(a, 1);
	for (int level = 0; level < 2; level++) {
		wide = list_of(a, TSR_VALUE_LIST, NULL);
		for (int i = 0; i < 1000; i++)
			tsr_value_add(a, wide, v);
		v = wide;
	}
	wide = list_of(a, TSR_VALUE_LIST, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, NULL);
	expect_answer(wide, TSR_OK, "");
	tsr_value_add(a, wide, tsr_value_new(a, TSR_VALUE_DICT)); /* an empty one is a leaf */
	expect_answer(wide, TSR_E_LIMIT, "limit of 16000000");
}

static void test_a_value_that_contains_itself_is_refused(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *list = list_of(a, TSR_VALUE_LIST, NULL), *v;

	tsr_value_add(a, list, list);
	expect_answer(list, TSR_E_FORMAT, "contains itself");
	v = call_of(a, "m", "n", list_of(a, TSR_VALUE_TUPLE, NULL));
	v->call.state = list_of(a, TSR_VALUE_DICT, tsr_value_int(a, 1), v, NULL);
	expect_answer(v, TSR_E_FORMAT, "contains itself");
	expect_answer(list_of(a, TSR_VALUE_LIST, tsr_value_int(a, 1), v, NULL), TSR_E_FORMAT,
		      "contains itself");
	/* Far down, with much that is in order beside it. */
	list = list_of(a, TSR_VALUE_LIST, nest(a, tsr_value_int(a, 1), 150), NULL);
	v = nest(a, list, 190);
	tsr_value_add(a, list, v);
	v = list_of(a, TSR_VALUE_LIST, nest(a, tsr_value_int(a, 2), 190), v, NULL);
	assert_int_equal(tsr_value_check(v, "FILE", NULL), TSR_E_LIMIT); /* 190 + 150 is too deep */
	list->list.items[0] = tsr_value_int(a, 1);
	expect_answer(v, TSR_E_FORMAT, "contains itself");
	list->list.n = 1;
	expect_answer(v, TSR_OK, "");
}

/* The walk leaves no trace, whether it ended or not. */
static void test_the_check_leaves_no_trace(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *shared = nest(a, tsr_value_int(a, 1), 5);
	struct tsr_value *good = list_of(a, TSR_VALUE_LIST, shared, shared, NULL);
	struct tsr_value *v = list_of(a, TSR_VALUE_LIST, good, shared, NULL);
	const char *want = "[[(((((1,),),),),), (((((1,),),),),)], (((((1,),),),),)]";

	expect_answer(v, TSR_OK, "");
	expect_shown(v, want); /* which looks at `scratch` of every value */
	tsr_value_add(a, v, nest(a, good, 300));
	expect_answer(v, TSR_E_LIMIT, "deeper");
	for (const struct tsr_value *w = v->list.items[2]; w != good; w = w->list.items[0])
		assert_int_equal(w->scratch, 0);
	v->list.n = 2;
	expect_shown(v, want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		arena_test(test_allocations_are_zeroed_aligned_and_apart),
		arena_test(test_growing_keeps_what_there_was),
		arena_test(test_growing_a_large_allocation_leaves_nothing_behind),
		cmocka_unit_test(test_the_limit_holds),
		arena_test(test_no_memory_is_told_from_the_limit),
		arena_test(test_ints_are_short_and_exact),
		arena_test(test_questions_about_other_types_are_no),
		arena_test(test_strings_are_compared_with_their_nuls),
		arena_test(test_mappings),
		cmocka_unit_test(test_texts_are_utf8_or_surrogates),
		cmocka_unit_test(test_names_are_dotted_identifiers),
		arena_test(test_depth_is_limited),
		arena_test(test_every_child_counts_for_depth),
		arena_test(test_leaves_are_limited),
		arena_test(test_a_value_that_contains_itself_is_refused),
		arena_test(test_the_check_leaves_no_trace),
	};

	return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
