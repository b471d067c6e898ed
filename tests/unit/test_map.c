/* SPDX-License-Identifier: Apache-2.0 */
/* The hash table and the lists that are sorted by name. */
#include <stdio.h>
#include <string.h>

#include "unit.h"

#include "text/map.h"
#include "text/named.h"

struct item {
	uint64_t key, value;
};

static bool has_key(const void *item, const void *key)
{
	return ((const struct item *)item)->key == *(const uint64_t *)key;
}

#define N 5000u

/* Put keys 0 to N - 1 with a hash that collides for @per of them at a time. */
static void fill(struct tsr_map *m, uint64_t per)
{
	for (uint64_t key = 0; key < N; key++) {
		bool is_new = false;
		struct item *item = tsr_map_put(m, key / per, &key, &is_new);

		assert_non_null(item);
		assert_true(is_new);
		*item = (struct item){ key, 3 * key };
	}
	assert_int_equal(m->n, N);
}

static void test_items_are_found_by_their_keys(void **state)
{
	static const uint64_t per[] = { 1, 2, 50 };

	(void)state;
	for (size_t i = 0; i < sizeof(per) / sizeof(*per); i++) {
		struct tsr_map m = { .item_nbytes = sizeof(struct item), .same = has_key };

		fill(&m, per[i]);
		for (uint64_t key = N; key--;) {
			bool is_new = true;
			const struct item *item = tsr_map_put(&m, key / per[i], &key, &is_new);

			assert_false(is_new);
			assert_int_equal(item->key, key);
			assert_int_equal(item->value, 3 * key);
		}
		assert_int_equal(m.n, N);
		tsr_map_free(&m);
		assert_int_equal(m.n, 0);
	}
}

static void test_a_map_without_items_goes_by_the_hash(void **state)
{
	struct tsr_map m = { .item_nbytes = 0 };
	bool is_new;

	(void)state;
	for (uint64_t pass = 0; pass < 2; pass++) {
		for (uint64_t hash = 0; hash < N; hash++) {
			/* A hash of 0 is taken for one of 1. */
			assert_non_null(tsr_map_put(&m, hash, NULL, &is_new));
			assert_int_equal(is_new, pass == 0 && hash != 1);
		}
	}
	assert_int_equal(m.n, N - 1);
	tsr_map_free(&m);
}

static void test_hashes_differ_by_map_and_scope(void **state)
{
	struct tsr_map a = { .item_nbytes = 0 }, b = { .item_nbytes = 0 };
	const uint64_t hash = tsr_map_hash(&a, "key", 3, 0);

	(void)state;
	assert_true(hash == tsr_map_hash(&a, "key", 3, 0));
	assert_true(hash != tsr_map_hash(&a, "key", 3, 1));
	assert_true(hash != tsr_map_hash(&b, "key", 3, 0));
}

static void test_names_are_found_whole_and_joined(void **state)
{
	static const char *const names[] = { "b", "a.x", "a", "", "b", "a.xy", "ab" };
	enum { COUNT = sizeof(names) / sizeof(*names) };
	struct tsr_named list[COUNT];

	(void)state;
	for (size_t i = 0; i < COUNT; i++)
		list[i] = (struct tsr_named){ names[i], i };
	tsr_named_sort(list, COUNT);
	for (size_t i = 0; i < COUNT; i++) {
		const struct tsr_named *found = tsr_named_find(list, COUNT, names[i]);

		assert_non_null(found);
		assert_int_equal(found->index, i == 4 ? 0 : i); /* the first of two */
	}
	assert_null(tsr_named_find(list, COUNT, "aa"));
	assert_null(tsr_named_find(list, COUNT, "c"));
	assert_null(tsr_named_find(list, 0, "a"));
	assert_int_equal(tsr_named_find_joined(list, COUNT, "a.quantized", 1, ".x")->index, 1);
	assert_int_equal(tsr_named_find_joined(list, COUNT, "ab.quantized", 2, "")->index, 6);
	assert_null(tsr_named_find_joined(list, COUNT, "a.quantized", 1, ".z"));
	assert_null(tsr_named_find_joined(list, COUNT, "a.quantized", 3, ".x"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_items_are_found_by_their_keys),
		cmocka_unit_test(test_a_map_without_items_goes_by_the_hash),
		cmocka_unit_test(test_hashes_differ_by_map_and_scope),
		cmocka_unit_test(test_names_are_found_whole_and_joined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
