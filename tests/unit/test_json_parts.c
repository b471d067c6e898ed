/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of src/text/json.h that is never in memory as a whole: taken piece by piece. */
#include "text/json.h"
#include "unit.h"

static const struct tsr_json_rules rules = {
	.file = "FILE",
	.part = "text",
	.max_depth = 4,
	.max_values = 5,
};

/* What a text has as its member @key; "" if it has none. */
static const char *find(const char *text, const char *key)
{
	static char found[64];
	size_t first, end;

	assert_int_equal(tsr_json_find_member(text, strlen(text), key, &rules, &first, &end, NULL),
			 TSR_OK);
	assert_true(end - first < sizeof(found));
	snprintf(found, sizeof(found), "%.*s", (int)(end - first), text + first);
	return found;
}

static void test_members_are_found_without_a_tree(void **state)
{
	static const char text[] =
		" {\"a\" : [\"]\", {\"b\": 2}] , \"b\":\"x\\\"},\", \"\\u0063\": -1e5}";

	(void)state;
	assert_string_equal(find(text, "a"), "[\"]\", {\"b\": 2}] ");
	assert_string_equal(find(text, "b"), "\"x\\\"},\"");
	assert_string_equal(find(text, "c"), "-1e5");
	assert_string_equal(find(text, "d"), "");
	assert_string_equal(find("{}", "a"), "");
	assert_string_equal(find("[\"a\", 1]", "a"), "");
	assert_string_equal(find("\"a\"", "a"), "");
}

static void test_elements_are_counted(void **state)
{
	static const struct {
		const char *text;
		size_t n;
	} rows[] = {
		{ "[]", 0 },
		{ "[ ]", 0 },
		{ "{}", 0 },
		{ "[0]", 1 },
		{ "[[1, 2], [3, 4]]", 2 },
		{ "[ \"a,b\" , \"]\", {\"c\": [5, 6]} ]", 3 },
		{ "{\"a\": 1, \"b\": {\"c\": 2, \"d\": 3}}", 2 },
		{ "[\"\\\",\\\\\", 1]", 2 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal(tsr_json_count_elements(rows[i].text, strlen(rows[i].text)),
				 rows[i].n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members_are_found_without_a_tree),
		cmocka_unit_test(test_elements_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
