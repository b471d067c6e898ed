/* SPDX-License-Identifier: Apache-2.0 */
/* That no pickle costs much, whatever it is a program for. */
#include "pickles.h"

/* Reads with an arena of @room bytes, and tells how much the values took; frees the program. */
static enum tsr_status run_program(struct tsr_text *t, size_t room, struct tsr_err *err,
				   size_t *used_ret)
{
	struct tsr_arena *a = tsr_arena_new(room);
	struct tsr_value *v;
	enum tsr_status status;

	assert_non_null(a);
	assert_false(t->failed);
	status = tsr_pickle_read(t->bytes, t->nbytes, WHERE, a, &v, err);
	*used_ret = tsr_arena_used(a);
	assert_int_equal(tsr_arena_limit(a, 0), room); /* as it was before */
	tsr_arena_free(a);
	tsr_text_free(t);
	return status;
}

static void expect_limit_in(struct tsr_text *t, size_t room, const char *words)
{
	struct tsr_err err = { 0 };
	const size_t nbytes = t->nbytes;
	size_t used;

	if (run_program(t, room, &err, &used) != TSR_E_LIMIT || !strstr(err.msg, words) ||
	    !strstr(err.msg, "limit"))
		fail_msg("%s, expected \"%s\"", err.msg, words);
	assert_true(used <= room);
	assert_true(used <= TSR_PICKLE_MEMORY_MAX - nbytes);
}

static void expect_limit(struct tsr_text *t, const char *words)
{
	expect_limit_in(t, SIZE_MAX, words);
}

static void expect_within(struct tsr_text *t)
{
	struct tsr_err err = { 0 };
	size_t used;

	if (run_program(t, SIZE_MAX, &err, &used) != TSR_OK)
		fail_msg("%s", err.msg);
}

static void test_marks_are_limited(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	PUT(&t, "\200\002");
	PUT_TIMES(&t, "(", 1000);
	PUT_TIMES(&t, "t", 50); /* tuples in tuples would be too deep otherwise */
	PUT_TIMES(&t, "1", 949);
	PUT(&t, "t.");
	expect_within(&t);
	PUT(&t, "\200\002");
	PUT_TIMES(&t, "(", 1000000);
	expect_limit(&t, "byte 1002: MARK: more marks than the limit of 1000");
}

static void test_the_stack_is_limited(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	PUT(&t, "\200\002(");
	PUT_TIMES(&t, "N", 1000000);
	PUT(&t, "t.");
	expect_within(&t);
	PUT(&t, "\200\002(");
	PUT_TIMES(&t, "N", 1000001);
	PUT(&t, "t.");
	expect_limit(&t, "NONE: more values on the stack than the limit of 1000000");
}

static void test_nesting_is_limited(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	PUT(&t, "\200\002N");
	PUT_TIMES(&t, "\205", 199);
	PUT(&t, ".");
	expect_within(&t);
	PUT(&t, "\200\002N");
	PUT_TIMES(&t, "\205", 200);
	PUT(&t, ".");
	expect_limit(&t, "nested deeper than the limit of 200");
	PUT(&t, "\200\002N");
	PUT_TIMES(&t, "\205", 1000000);
	PUT(&t, ".");
	expect_limit(&t, "nested deeper than the limit of 200");
}

/* Twenty-nine lists, each of the one before twice: 2^29 leaves in less than 300 bytes. */
static void test_shared_values_do_not_explode(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	PUT(&t, "\200\002]");
	for (char id = 0; id < 29; id++) {
		const char list[] = { 'q', id, '0', ']', '(', 'h', id, 'h', id, 'e' };

		tsr_text_put(&t, list, sizeof(list));
	}
	PUT(&t, ".");
	assert_true(t.nbytes < 300);
	expect_limit(&t, "more values than the limit of 16000000");
}

static void test_texts_are_limited(void **state)
{
	const size_t most = 16 << 20;
	struct tsr_text t = { 0 };

	(void)state;
	PUT(&t, "\200\002X\000\000\000\001");
	PUT_TIMES(&t, "a", most);
	PUT(&t, ".");
	expect_within(&t);
	PUT(&t, "\200\002X\001\000\000\001");
	PUT_TIMES(&t, "a", most + 1);
	PUT(&t, ".");
	expect_limit(&t, "BINUNICODE: 16777217 bytes are over the limit of 16777216");
	PUT(&t, "\200\002B\001\000\000\001");
	PUT_TIMES(&t, "a", most + 1);
	PUT(&t, ".");
	expect_limit(&t, "BINBYTES: 16777217 bytes are over the limit");
	PUT(&t, "\200\002\213\000\004\000\000");
	PUT_TIMES(&t, "\001", 1024);
	PUT(&t, ".");
	expect_within(&t);
	PUT(&t, "\200\002\213\001\004\000\000");
	PUT_TIMES(&t, "\001", 1025);
	PUT(&t, ".");
	expect_limit(&t, "LONG4: 1025 bytes are over the limit of 1024");
}

static void test_names_are_limited(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	PUT(&t, "\200\002cm\n");
	PUT_TIMES(&t, "a", 256);
	PUT(&t, "\n.");
	expect_within(&t);
	PUT(&t, "\200\002cm\n");
	PUT_TIMES(&t, "a", 257);
	PUT(&t, "\n.");
	expect_limit(&t, "GLOBAL: found a name of 257 bytes, over the limit of 256");
	PUT(&t, "\200\004\214\001mX\001\001\000\000");
	PUT_TIMES(&t, "a", 257);
	PUT(&t, "\223.");
	expect_limit(&t, "STACK_GLOBAL: found a name of 257 bytes");
}

static void test_opcodes_are_limited(void **state)
{
	struct tsr_text t = { 0 };

	(void)state;
	if (!is_long_run())
		return;
	PUT(&t, "\200\002N");
	PUT_TIMES(&t, "20", 31999998);
	PUT(&t, "\205."); /* 64,000,000 in all */
	expect_within(&t);
	PUT(&t, "\200\002N");
	PUT_TIMES(&t, "20", 31999998);
	PUT(&t, "\205\205.");
	expect_limit(&t, "more opcodes than the limit of 64000000");
}

/* The size alone is looked at. */
static void test_the_size_is_limited(void **state)
{
	const size_t nbytes = (size_t)TSR_PICKLE_NBYTES_MAX + 1;
	struct tsr_err err;
	struct tsr_value *v;

	assert_int_equal(tsr_pickle_read("\200\002N.", nbytes, WHERE, *state, &v, &err),
			 TSR_E_LIMIT);
	assert_string_equal(err.msg,
			    WHERE ": pickle of 268435457 bytes is over the limit of 268435456");
}

/* Programs that would make gigabytes of a few megabytes; most runs give them less of both. */
static void test_memory_is_limited(void **state)
{
	const size_t part = is_long_run() ? 1 : 32;
	const size_t room = part == 1 ? SIZE_MAX : (size_t)TSR_PICKLE_MEMORY_MAX / part;
	struct tsr_text t = { 0 };

	(void)state;
	PUT(&t, "\200\002"); /* values that are dropped at once */
	PUT_TIMES(&t, "]0", 12000000 / part);
	PUT(&t, "N.");
	expect_limit_in(&t, room, "EMPTY_LIST: values take more memory than the limit of");
	PUT(&t, "\200\004N"); /* a memo of nothing but one value */
	PUT_TIMES(&t, "\224", 60000000 / part);
	PUT(&t, ".");
	expect_limit_in(&t, room, "MEMOIZE: the memo takes more memory than the limit of");
	PUT(&t, "\200\002]"); /* one list of nothing but one value */
	PUT_TIMES(&t, "(NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNe", 1100000 / part);
	PUT(&t, ".");
	expect_limit_in(&t, room, "APPENDS: values take more memory than the limit of");
	PUT(&t, "\200\002c__builtin__\nset\nq\000]("); /* copies of a long list */
	PUT_TIMES(&t, "N", 900000 / part);
	PUT(&t, "eq\001");
	PUT_TIMES(&t, "h\000h\001\205R0", 100);
	PUT(&t, ".");
	expect_limit_in(&t, room, "REDUCE: values take more memory than the limit of");
}

/* What the caller has room for holds as well, and is told from memory that is not there. */
static void test_the_room_of_the_arena_is_a_limit(void **state)
{
	struct tsr_err err = { 0 };
	size_t used, whole = 0;

	(void)state;
	for (size_t room = 0;; room += 16) {
		struct tsr_text t = { 0 };
		enum tsr_status status;

		PUT(&t, TORCH_PICKLE);
		status = run_program(&t, room, &err, &used);
		assert_true(used <= room);
		if (status == TSR_OK) {
			whole = room;
			break;
		}
		assert_int_equal(status, TSR_E_LIMIT);
		assert_non_null(strstr(err.msg, "memory than the limit of"));
	}
	assert_true(whole > 1000 && whole < 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_marks_are_limited),
		cmocka_unit_test(test_the_stack_is_limited),
		cmocka_unit_test(test_nesting_is_limited),
		cmocka_unit_test(test_shared_values_do_not_explode),
		cmocka_unit_test(test_texts_are_limited),
		cmocka_unit_test(test_names_are_limited),
		cmocka_unit_test(test_opcodes_are_limited),
		arena_test(test_the_size_is_limited),
		cmocka_unit_test(test_memory_is_limited),
		cmocka_unit_test(test_the_room_of_the_arena_is_a_limit),
	};

	return cmocka_run_group_tests_name("pickle limits", tests, NULL, NULL);
}
