/* SPDX-License-Identifier: Apache-2.0 */
/* Writing pickles: which bytes, that they mean the same, and what is not written. */
#include <pthread.h>

#include "pickles.h"

static void expect_written(const struct tsr_value *v, const struct tsr_pickle_tensor *tensors,
			   const char *bytes, size_t nbytes)
{
	struct tsr_text out = { 0 };
	struct tsr_err err = { .msg = "untouched" };

	if (tsr_pickle_write(v, tensors, WHERE, &out, &err) != TSR_OK)
		fail_msg("not written: %s", err.msg);
	assert_string_equal(err.msg, "untouched");
	assert_false(out.failed);
	assert_int_equal(out.nbytes, nbytes);
	assert_memory_equal(out.bytes, bytes, nbytes);
	tsr_text_free(&out);
}

#define EXPECT_WRITTEN(v, literal) expect_written(v, NULL, literal, sizeof(literal) - 1)

static void expect_not_written(const struct tsr_value *v, enum tsr_status want, const char *words)
{
	struct tsr_text out = { 0 };
	struct tsr_err err = { 0 };

	if (tsr_pickle_write(v, NULL, WHERE, &out, &err) != want || !strstr(err.msg, words))
		fail_msg("%s, expected %s", err.msg, words);
	assert_memory_equal(err.msg, WHERE ": ", strlen(WHERE ": "));
	assert_int_equal(tsr_pickle_write(v, NULL, WHERE, &out, NULL), want);
	tsr_text_free(&out);
}

/* Writes, reads and writes again: the same value and the same bytes. */
static void expect_survives(struct tsr_arena *a, const struct tsr_value *v)
{
	struct tsr_text first = { 0 }, shown = { 0 };
	struct tsr_value *again;

	assert_int_equal(tsr_pickle_write(v, NULL, WHERE, &first, NULL), TSR_OK);
	again = read_ok(a, first.bytes, first.nbytes);
	show(&shown, v);
	expect_shown(again, shown.bytes);
	expect_written(again, NULL, first.bytes, first.nbytes);
	tsr_text_free(&first);
	tsr_text_free(&shown);
}

/* --- Scalars and texts ---------------------------------------------------------------------- */

/* Byte for byte what pickle.dumps(..., 2) writes. */
static void test_ints_as_python_writes_them(void **state)
{
	for (size_t i = 0; i < COUNT_OF(pickled_ints); i++) {
		const struct pickle *p = &pickled_ints[i].pickle;

		expect_written(read_ok(*state, p->bytes, p->nbytes), NULL, p->bytes, p->nbytes);
	}
}

static void test_ints_of_every_length(void **state)
{
	struct tsr_arena *a = *state;
	uint64_t seed = 3;

	for (size_t n = 1; n <= TSR_PICKLE_LONG_MAX; n += n < 300 ? 1 : 181) {
		unsigned char bytes[TSR_PICKLE_LONG_MAX];

		for (size_t i = 0; i < n; i++)
			bytes[i] = (unsigned char)random_u32(&seed);
		expect_survives(a, tsr_value_long(a, bytes, n));
	}
}

static void test_floats_keep_their_bits(void **state)
{
	struct tsr_value *list = tsr_value_new(*state, TSR_VALUE_LIST);

	for (size_t i = 0; i < COUNT_OF(float_bits); i++) {
		struct tsr_value *v = tsr_value_new(*state, TSR_VALUE_FLOAT);

		v->real = float_bits[i];
		tsr_value_add(*state, list, v);
	}
	expect_survives(*state, list);
	/* pickle.dumps(1.5, 2) */
	EXPECT_WRITTEN(list->list.items[0], "\200\002G\077\370\000\000\000\000\000\000.");
}

static void test_scalars_and_texts(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *v = tsr_value_new(a, TSR_VALUE_BOOL);

	EXPECT_WRITTEN(v, "\200\002\211.");
	v->boolean = true;
	EXPECT_WRITTEN(v, "\200\002\210.");
	EXPECT_WRITTEN(tsr_value_new(a, TSR_VALUE_NONE), "\200\002N.");
	EXPECT_WRITTEN(tsr_value_string(a, ""), "\200\002X\000\000\000\000.");
	EXPECT_WRITTEN(tsr_value_text(a, TSR_VALUE_STRING, "a\0\355\240\200", 5),
		       "\200\002X\005\000\000\000a\000\355\240\200.");
	EXPECT_WRITTEN(tsr_value_text(a, TSR_VALUE_BYTES, "\0a\377", 3),
		       "\200\002c_codecs\nencode\nq\000X\004\000\000\000\000a\303\277"
		       "X\006\000\000\000latin1q\001\206R.");
	EXPECT_WRITTEN(tsr_value_global(a, "torch", "float32"), "\200\002ctorch\nfloat32\nq\000.");
}

static void test_bytes_of_every_value(void **state)
{
	unsigned char bytes[256];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	expect_survives(*state, tsr_value_text(*state, TSR_VALUE_BYTES, bytes, sizeof(bytes)));
}

/* --- Containers ----------------------------------------------------------------------------- */

static void test_containers(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *const one = tsr_value_int(a, 1), *const two = tsr_value_int(a, 2);

	EXPECT_WRITTEN(list_of(a, TSR_VALUE_LIST, NULL), "\200\002].");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_LIST, one, NULL), "\200\002]K\001a.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_LIST, one, two, NULL), "\200\002](K\001K\002e.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_TUPLE, NULL), "\200\002).");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_TUPLE, one, NULL), "\200\002K\001\205.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_TUPLE, one, two, NULL), "\200\002K\001K\002\206.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_TUPLE, one, two, one, NULL),
		       "\200\002K\001K\002K\001\207.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_TUPLE, one, two, one, two, NULL),
		       "\200\002(K\001K\002K\001K\002t.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_DICT, NULL), "\200\002}.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_DICT, one, two, NULL), "\200\002}K\001K\002s.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_DICT, one, two, one, one, NULL),
		       "\200\002}(K\001K\002K\001K\001u.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_SET, one, two, NULL),
		       "\200\002c__builtin__\nset\nq\000](K\001K\002e\205R.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_SET, NULL), "\200\002c__builtin__\nset\nq\000]\205R.");
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_FROZENSET, one, NULL),
		       "\200\002c__builtin__\nfrozenset\nq\000]K\001a\205R.");
}

static void test_objects(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *const one = tsr_value_int(a, 1), *const two = tsr_value_int(a, 2);
	struct tsr_value *v = call_of(a, "collections", "OrderedDict",
				      list_of(a, TSR_VALUE_TUPLE, NULL));

	EXPECT_WRITTEN(v, "\200\002ccollections\nOrderedDict\nq\000)R.");
	v->call.items = list_of(a, TSR_VALUE_DICT, one, two, NULL);
	v->call.state = list_of(a, TSR_VALUE_DICT, NULL);
	EXPECT_WRITTEN(v, "\200\002ccollections\nOrderedDict\nq\000)RK\001K\002s}b.");
	v = call_of(a, "m.a", "C", list_of(a, TSR_VALUE_TUPLE, one, NULL));
	v->call.is_new = true;
	v->call.items = list_of(a, TSR_VALUE_LIST, one, two, NULL);
	EXPECT_WRITTEN(v, "\200\002cm.a\nC\nq\000K\001\205\201(K\001K\002e.");
}

/* CPython reads at most 1000 items at a time, and so does this writer. */
static void test_long_containers_come_in_batches(void **state)
{
	static const struct {
		size_t n, nbatches;
	} lengths[] = { { 999, 1 }, { 1000, 1 }, { 1001, 2 }, { 2000, 2 }, { 2500, 3 } };

	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		struct tsr_value *list = list_of(*state, TSR_VALUE_LIST, NULL);
		struct tsr_value *dict = list_of(*state, TSR_VALUE_DICT, NULL);
		struct tsr_text out = { 0 };
		size_t nbatches = 0;

		for (size_t k = 0; k < lengths[i].n; k++) {
			struct tsr_value *item = tsr_value_new(*state, TSR_VALUE_NONE);

			tsr_value_add(*state, list, item);
			tsr_value_add(*state, dict, item);
			tsr_value_add(*state, dict, item);
		}
		expect_survives(*state, list);
		expect_survives(*state, dict);
		assert_int_equal(tsr_pickle_write(dict, NULL, WHERE, &out, NULL), TSR_OK);
		for (size_t k = 0; k < out.nbytes; k++) /* SETITEMS or SETITEM */
			nbatches += out.bytes[k] == 'u' || out.bytes[k] == 's';
		assert_int_equal(nbatches, lengths[i].nbatches);
		tsr_text_free(&out);
	}
}

/* --- Sharing -------------------------------------------------------------------------------- */

static void test_shared_values_are_written_once(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *s = tsr_value_string(a, "s"), *l = list_of(a, TSR_VALUE_LIST, s, NULL);
	struct tsr_value *t = list_of(a, TSR_VALUE_TUPLE, s, NULL), *none;

	EXPECT_WRITTEN(list_of(a, TSR_VALUE_LIST, l, l, t, t, NULL),
		       "\200\002](]X\001\000\000\000sq\000aq\001h\001h\000\205q\002h\002e.");
	/* Equal ones stay apart; what has no identity is not worth a place in the memo. */
	none = list_of(a, TSR_VALUE_TUPLE, NULL);
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_LIST, none, none, tsr_value_string(a, "s"),
			       tsr_value_string(a, "s"), NULL),
		       "\200\002]())X\001\000\000\000sX\001\000\000\000se.");
	/* Globals are one each, whoever made them. */
	EXPECT_WRITTEN(list_of(a, TSR_VALUE_LIST, tsr_value_global(a, "m", "n"),
			       tsr_value_global(a, "m", "n"), tsr_value_global(a, "m", "o"), NULL),
		       "\200\002](cm\nn\nq\000h\000cm\no\nq\001e.");
}

/* Past 255, memo ids need four bytes. */
static void test_many_shared_values(void **state)
{
	struct tsr_value *all = list_of(*state, TSR_VALUE_LIST, NULL);

	for (int i = 0; i < 700; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		tsr_value_add(*state, all, tsr_value_global(*state, "m", name));
		tsr_value_add(*state, all, list_of(*state, TSR_VALUE_LIST, NULL));
	}
	for (size_t i = 0; i < 1400; i++)
		tsr_value_add(*state, all, all->list.items[i]);
	expect_survives(*state, all);
}

/* What a walk leaves behind would show in the next one. */
static void test_writing_again_gives_the_same(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *shared = list_of(a, TSR_VALUE_LIST, tsr_value_string(a, "s"), NULL);
	struct tsr_value *id = tsr_value_new(a, TSR_VALUE_PERSISTENT);
	struct tsr_value *v = list_of(a, TSR_VALUE_LIST, shared, shared, id, shared, NULL);

	id->inner = shared;
	expect_not_written(v, TSR_E_UNSUPPORTED, "found a persistent object");
	v->list.items[2] = tsr_value_int(a, 1);
	EXPECT_WRITTEN(v, "\200\002](]X\001\000\000\000saq\000h\000K\001h\000e.");
	EXPECT_WRITTEN(v, "\200\002](]X\001\000\000\000saq\000h\000K\001h\000e.");
	EXPECT_WRITTEN(shared, "\200\002]X\001\000\000\000sa.");
	expect_shown(v, "[['s'], ['s'], 1, ['s']]");
}

/* --- Tensors -------------------------------------------------------------------------------- */

static struct tsr_value *tensor(struct tsr_arena *a, size_t array)
{
	struct tsr_value *v = tsr_value_new(a, TSR_VALUE_TENSOR);

	v->tensor.array = array;
	return v;
}

static const uint64_t shape_2_3[] = { 2, 3 }, shape_5_0_2_1[] = { 5, 0, 2, 1 },
		      shape_70000[] = { 70000 };
static const struct tsr_pickle_tensor tensors[] = {
	{ .key = "0",
	  .storage = "FloatStorage",
	  .storage_numel = 6,
	  .rank = 2,
	  .shape = shape_2_3 },
	{ .key = "1", .storage = "LongStorage", .storage_numel = 1 },
	{ .key = "2", .storage = "HalfStorage", .rank = 4, .shape = shape_5_0_2_1 },
	{ .key = "3",
	  .dtype = "float8_e4m3fn",
	  .storage_numel = 70000,
	  .rank = 1,
	  .shape = shape_70000 },
	{ .key = "4",
	  .storage = "ByteStorage",
	  .storage_numel = UINT64_C(1) << 63,
	  .rank = 1,
	  .shape = &(const uint64_t){ UINT64_C(1) << 40 } },
};

/* The opcodes of PyTorch, less its memo; torch.load of 1.13.1 took these bytes. */
static void test_a_tensor(void **state)
{
	static const char want[] =
		"\200\002ctorch._utils\n_rebuild_tensor_v2\nq\000((X\007\000\000\000storageq\001"
		"ctorch\nFloatStorage\nq\002X\001\000\000\0000X\003\000\000\000cpuq\003K\006tQK\000"
		"K\002K\003\206K\003K\001\206\211ccollections\nOrderedDict\nq\004)RtR.";

	expect_written(tensor(*state, 0), tensors, want, sizeof(want) - 1);
}

static void expect_tensor(struct tsr_arena *a, struct tsr_value *v, const char *want)
{
	struct tsr_text out = { 0 };

	assert_int_equal(tsr_pickle_write(v, tensors, WHERE, &out, NULL), TSR_OK);
	expect_shown(read_ok(a, out.bytes, out.nbytes), want);
	tsr_text_free(&out);
}

static void test_tensors_of_every_form(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *v = tensor(a, 1);

	v->tensor.requires_grad = true;
	expect_tensor(a, v,
		      "torch._utils._rebuild_tensor_v2(persistent ('storage', torch.LongStorage, "
		      "'1', 'cpu', 1), 0, (), (), True, collections.OrderedDict())");
	v->tensor.parameter = true;
	expect_tensor(a, v,
		      "torch._utils._rebuild_parameter(torch._utils._rebuild_tensor_v2("
		      "persistent ('storage', torch.LongStorage, '1', 'cpu', 1), 0, (), (), "
		      "False, collections.OrderedDict()), True, collections.OrderedDict())");
	/* torch.empty(5, 0, 2, 1).stride() == (2, 2, 1, 1) */
	expect_tensor(a, tensor(a, 2),
		      "torch._utils._rebuild_tensor_v2(persistent ('storage', torch.HalfStorage, "
		      "'2', 'cpu', 0), 0, (5, 0, 2, 1), (2, 2, 1, 1), False, "
		      "collections.OrderedDict())");
	expect_tensor(a, tensor(a, 3),
		      "torch._utils._rebuild_tensor_v3(persistent ('storage', "
		      "torch.storage.UntypedStorage, '3', 'cpu', 70000), 0, (70000,), (1,), False, "
		      "collections.OrderedDict(), torch.float8_e4m3fn)");
	expect_tensor(a, tensor(a, 4),
		      "torch._utils._rebuild_tensor_v2(persistent ('storage', torch.ByteStorage, "
		      "'4', 'cpu', 0x008000000000000000), 0, (1099511627776,), (1,), False, "
		      "collections.OrderedDict())");
}

/* A second tensor costs little more than its own numbers; a tied one, a reference. */
static void test_tensors_share_what_is_constant(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *tied = tensor(a, 0);
	static const char want[] =
		"\200\002](ctorch._utils\n_rebuild_tensor_v2\nq\000((X\007\000\000\000storageq\001"
		"ctorch\nFloatStorage\nq\002X\001\000\000\0000X\003\000\000\000cpuq\003K\006tQK\000"
		"K\002K\003\206K\003K\001\206\211ccollections\nOrderedDict\nq\004)RtRq\005h\005"
		"h\000((h\001ctorch\nLongStorage\nq\006X\001\000\000\0001h\003K\001tQK\000))\211"
		"h\004)RtRe.";

	expect_written(list_of(a, TSR_VALUE_LIST, tied, tied, tensor(a, 1), NULL), tensors, want,
		       sizeof(want) - 1);
}

/* --- What is not written -------------------------------------------------------------------- */

static void test_values_that_no_pickle_holds(void **state)
{
	struct tsr_arena *a = *state;
	struct tsr_value *list = list_of(a, TSR_VALUE_LIST, NULL), *v = tsr_value_int(a, 1);
	char *longest = tsr_arena_alloc(a, TSR_PICKLE_STRING_MAX + 2);

	tsr_value_add(a, list, list);
	expect_not_written(list, TSR_E_FORMAT, "contains itself");
	for (int i = 0; i < 200; i++)
		v = list_of(a, TSR_VALUE_TUPLE, v, NULL);
	expect_not_written(v, TSR_E_LIMIT, "deeper than the limit");
	expect_not_written(tsr_value_string(a, "\xff"), TSR_E_FORMAT, "not UTF-8");
	memset(longest, 'a', TSR_PICKLE_STRING_MAX + 1);
	expect_not_written(tsr_value_string(a, longest), TSR_E_LIMIT, "over the limit");
	longest[TSR_PICKLE_STRING_MAX - 1] = '\xff'; /* two bytes as a string */
	expect_not_written(tsr_value_text(a, TSR_VALUE_BYTES, longest, TSR_PICKLE_STRING_MAX),
			   TSR_E_LIMIT, "over the limit");
	memset(longest, 1, 1025);
	expect_not_written(tsr_value_long(a, longest, 1025), TSR_E_LIMIT, "over the limit");
}

/* Opcodes in a name would be carried out by whoever loads the file. */
static void test_names_cannot_smuggle_opcodes(void **state)
{
	static const char *const names[] = { "a\nb", "a\n", "", "a b", ".", "a.", "\xc3\xa9" };

	for (size_t i = 0; i < COUNT_OF(names); i++) {
		expect_not_written(tsr_value_global(*state, names[i], "n"), TSR_E_FORMAT,
				   "expected ASCII identifiers");
		expect_not_written(tsr_value_global(*state, "m", names[i]), TSR_E_FORMAT,
				   "expected ASCII identifiers");
	}
}

/* --- Any value ------------------------------------------------------------------------------ */

struct growing {
	struct tsr_arena *a;
	uint64_t seed;
	struct tsr_value *made[64]; /* to be shared */
	size_t n;
};

static struct tsr_value *random_value(struct growing *g, unsigned depth);

static struct tsr_value *random_leaf(struct growing *g)
{
	static const char *const texts[] = { "", "a", "\xc3\xa9", "\xed\xa0\x80", "latin1" };
	const uint32_t r = random_u32(&g->seed);
	struct tsr_value *v;

	switch (r % 7) {
	case 0:
		return tsr_value_new(g->a, TSR_VALUE_NONE);
	case 1:
		return tsr_value_string(g->a, texts[r / 7 % COUNT_OF(texts)]);
	case 2:
		return tsr_value_text(g->a, TSR_VALUE_BYTES, &g->seed, r / 7 % 9);
	case 3:
		v = tsr_value_new(g->a, TSR_VALUE_FLOAT);
		v->real = random_u64(&g->seed);
		return v;
	case 4:
		v = tsr_value_new(g->a, TSR_VALUE_BOOL);
		v->boolean = r / 7 % 2;
		return v;
	case 5:
		return tsr_value_global(g->a, "m", texts[1]);
	default:
		return tsr_value_long(g->a, &g->seed, r / 7 % 9);
	}
}

static struct tsr_value *random_list(struct growing *g, enum tsr_value_type type, unsigned depth)
{
	struct tsr_value *list = tsr_value_new(g->a, type);
	size_t n = random_u32(&g->seed) % 6;

	if (type == TSR_VALUE_DICT)
		n *= 2;
	while (n--)
		tsr_value_add(g->a, list, random_value(g, depth));
	return list;
}

static struct tsr_value *random_call(struct growing *g, unsigned depth)
{
	const uint32_t r = random_u32(&g->seed);
	struct tsr_value *v = call_of(g->a, "m", "C", random_list(g, TSR_VALUE_TUPLE, depth));

	v->call.is_new = r % 2;
	if (r & 2)
		v->call.state = random_value(g, depth);
	if (r & 4)
		v->call.items = random_list(g, r & 8 ? TSR_VALUE_LIST : TSR_VALUE_DICT, depth);
	if (v->call.items && !v->call.items->list.n)
		v->call.items = NULL; /* to add nothing leaves no trace */
	return v;
}

static struct tsr_value *random_value(struct growing *g, unsigned depth)
{
	const uint32_t r = random_u32(&g->seed);
	struct tsr_value *v;

	if (g->n && r % 5 == 0)
		return g->made[r / 5 % g->n];
	if (!depth || r % 5 == 1)
		v = random_leaf(g);
	else if (r % 5 == 2)
		v = random_call(g, depth - 1);
	else
		v = random_list(g, TSR_VALUE_LIST + r / 5 % 5, depth - 1);
	if (g->n < COUNT_OF(g->made))
		g->made[g->n++] = v;
	return v;
}

static void test_any_value_survives(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 400; seed++) {
		struct growing g = { .a = tsr_arena_new(SIZE_MAX), .seed = seed };

		expect_survives(g.a, random_value(&g, 4));
		tsr_arena_free(g.a);
	}
}

/* --- A small stack -------------------------------------------------------------------------- */

/* As deep as is allowed, through every kind of value that holds others. */
static void *write_deep(void *arg)
{
	struct tsr_arena *a = arg;
	struct tsr_value *v = tsr_value_int(a, 1);
	struct tsr_text out = { 0 };

	for (unsigned i = 0; i + 2 < TSR_VALUE_DEPTH_MAX; i++) {
		struct tsr_value *call;

		switch (i % 4) {
		case 0:
			v = list_of(a, TSR_VALUE_TUPLE, v, NULL);
			break;
		case 1:
			v = list_of(a, TSR_VALUE_DICT, tsr_value_int(a, 1), v, NULL);
			break;
		case 2:
			call = call_of(a, "m", "C", list_of(a, TSR_VALUE_TUPLE, NULL));
			call->call.state = v;
			v = call;
			break;
		default:
			v = list_of(a, TSR_VALUE_SET, v, NULL);
		}
	}
	assert_int_equal(tsr_pickle_write(v, NULL, WHERE, &out, NULL), TSR_OK);
	read_ok(a, out.bytes, out.nbytes);
	tsr_text_free(&out);
	return NULL;
}

static void test_a_stack_of_256_kib_is_enough(void **state)
{
	pthread_attr_t attr;
	pthread_t thread;

	assert_int_equal(pthread_attr_init(&attr), 0);
	assert_int_equal(pthread_attr_setstacksize(&attr, 256 << 10), 0);
	assert_int_equal(pthread_create(&thread, &attr, write_deep, *state), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_attr_destroy(&attr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		arena_test(test_ints_as_python_writes_them),
		arena_test(test_ints_of_every_length),
		arena_test(test_floats_keep_their_bits),
		arena_test(test_scalars_and_texts),
		arena_test(test_bytes_of_every_value),
		arena_test(test_containers),
		arena_test(test_objects),
		arena_test(test_long_containers_come_in_batches),
		arena_test(test_shared_values_are_written_once),
		arena_test(test_many_shared_values),
		arena_test(test_writing_again_gives_the_same),
		arena_test(test_a_tensor),
		arena_test(test_tensors_of_every_form),
		arena_test(test_tensors_share_what_is_constant),
		arena_test(test_values_that_no_pickle_holds),
		arena_test(test_names_cannot_smuggle_opcodes),
		cmocka_unit_test(test_any_value_survives),
		arena_test(test_a_stack_of_256_kib_is_enough),
	};

	return cmocka_run_group_tests_name("pickle writing", tests, NULL, NULL);
}
