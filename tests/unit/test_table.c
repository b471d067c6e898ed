/* SPDX-License-Identifier: Apache-2.0 */
/* Tables in the four formats: what is put into cells is what text, JSON, CSV and HTML show. */
#include <math.h>

#include "render/document.h"
#include "render/table.h"
#include "text/json.h"
#include "unit.h"

/* Two rows of every type; the second has no scale and its error is infinite. */
static struct tsr_table make_table(void)
{
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < 2; i++) {
		tsr_row(&t);
		TSR_CELL(&t, "name", "tensor:n", i ? "=b<i>" : "a,\"x\"\x1b");
		TSR_CELL(&t, "-kind", NULL, "weight");
		TSR_CELL(&t, "n", "elements:,", (uint64_t)(i ? 7 : 1234567));
		TSR_CELL(&t, "error.nmse", "worst\nNMSE:.1e", i ? INFINITY : 1.25e-5);
		tsr_mark(&t, i == 1);
		TSR_CELL(&t, "error.zeroed", NULL, (bool)(i == 0));
		if (i == 0)
			TSR_CELL(&t, "scale", "scale", "e8m8");
		tsr_cell_list(&t, "q", "0% 50%:.2f", (const double[]){ i, 0.5 }, 2);
		TSR_CELL(&t, "bytes", "size:B", 1500.0);
		TSR_CELL(&t, "-share", "of all\n%:.2%",
			 tsr_share(i ? 3 : 9999999, i ? 3 : 10000000));
	}
	return t;
}

static void expect_text(const struct tsr_text *text, const char *want)
{
	assert_false(text->failed);
	assert_string_equal(text->bytes, want);
}

static void test_json_has_keys_objects_and_what_is_there(void **state)
{
	struct tsr_table t = make_table();
	struct tsr_text json = { 0 };

	(void)state;
	tsr_json_open(&json, NULL, '{');
	tsr_table_put_json(&t, "rows", &json);
	tsr_json_close(&json, '}');
	expect_text(&json, "{\"rows\":[{\"name\":\"a,\\\"x\\\"\\u001b\",\"n\":1234567,\"error\":{"
			   "\"nmse\":1.25e-05,\"zeroed\":true},\"scale\":\"e8m8\",\"q\":[0,0.5],"
			   "\"bytes\":1500},{\"name\":\"=b<i>\",\"n\":7,\"error\":{\"nmse\":null,"
			   "\"zeroed\":false},\"q\":[1,0.5],\"bytes\":1500}]}");
	tsr_text_free(&json);
	tsr_table_free(&t);
}

static void test_csv_has_the_columns_that_are_asked_for(void **state)
{
	struct tsr_table t = make_table();
	struct tsr_text csv = { 0 };

	(void)state;
	tsr_table_end_csv(t, "-kind,name,,error.nmse,scale,none,", &csv);
	expect_text(&csv, "weight,\"a,\"\"x\"\"\\x1b\",,1.25e-05,e8m8,,\n"
			  "weight,'=b<i>,,inf,,,\n");
	tsr_text_free(&csv);
}

static void test_text_is_as_wide_as_its_figures(void **state)
{
	struct tsr_table t = make_table();
	struct tsr_text text = { 0 };

	(void)state;
	tsr_table_put_text(&t, "", false, &text);
	expect_text(&text, "tensor     elements   worst  scale   0%  50%    size of all\n"
			   "                       NMSE                               %\n"
			   "a,\"x\"\\x1b 1,234,567 1.3e-05  e8m8  0.00 0.50 1.50 kB  99.99\n"
			   "=b<i>             7     inf* -     1.00 0.50 1.50 kB    100\n");
	tsr_text_free(&text);
	tsr_table_put_text(&t, "n,name", false, &text);
	expect_text(&text, " elements tensor\n1,234,567 a,\"x\"\\x1b\n        7 =b<i>\n");
	tsr_text_free(&text);
	tsr_table_free(&t);
}

static void test_rows_are_left_out_unless_verbose(void **state)
{
	struct tsr_table t = { .most_text = 2 };
	struct tsr_text text = { 0 };

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		tsr_row(&t);
		TSR_CELL(&t, "i", "i", i);
		tsr_put_aside(&t, i == 0 ? TSR_TO_TEXT : 0);
	}
	tsr_table_put_text(&t, "", false, &text);
	expect_text(&text, "i\n1\n2\nand 3 more, which -v shows\n");
	tsr_text_free(&text);
	tsr_table_put_text(&t, "", true, &text);
	expect_text(&text, "i\n0\n1\n2\n3\n4\n");
	tsr_text_free(&text);
	tsr_table_free(&t);
}

/* Shapes and lists of names; remarks below a row; no head where the first column has no label. */
static void test_lists_of_files_and_tensors(void **state)
{
	const uint64_t shape[] = { 2, 3 };
	const char *const files[] = { "a", "b" };
	struct tsr_table t = { 0 };
	struct tsr_text text = { 0 };

	(void)state;
	tsr_row(&t);
	TSR_CELL(&t, "-state", ":7", "FAULT");
	TSR_CELL(&t, "name", "tensor:N", "w");
	tsr_cell_shape(&t, "shape", "shape", 2, shape);
	tsr_cell_strings(&t, "files", files, 2);
	TSR_CELL(&t, "fault", ":8|", "is missing");
	tsr_row(&t);
	TSR_CELL(&t, "-state", ":7", "ok");
	TSR_CELL(&t, "fault", ":8|", (const char *)NULL);
	tsr_put_aside(&t, TSR_TO_TEXT | TSR_TO_VERBOSE);
	tsr_table_put_text(&t, "-state,name,fault", true, &text);
	expect_text(&text, "FAULT   w\n        is missing\n");
	tsr_text_free(&text);
	tsr_table_put_text(&t, "name,shape", false, &text);
	expect_text(&text, "tensor shape\nw      [2, 3]\n");
	tsr_text_free(&text);
	tsr_table_end_members(t, &text);
	expect_text(&text, "\"name\":\"w\",\"shape\":[2,3],\"files\":[\"a\",\"b\"],"
			   "\"fault\":\"is missing\"");
	tsr_text_free(&text);
}

/* A name that is told whole has a line of its own where its column is too narrow. */
static void test_whole_names_have_lines_of_their_own(void **state)
{
	struct tsr_table t = { 0 };
	struct tsr_text text = { 0 };
	char name[71], want[300];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	tsr_row(&t);
	TSR_CELL(&t, "name", "file:N", name);
	TSR_CELL(&t, "n", "elements:20,", 1000);
	tsr_table_put_text(&t, "", false, &text);
	snprintf(want, sizeof(want), "%-59s %20s\n%s\n%59s %20s\n", "file", "elements", name, "",
		 "1,000");
	expect_text(&text, want);
	tsr_text_free(&text);
	tsr_table_free(&t);
}

/* A name of any length leaves room for the figures behind it. */
static void test_names_give_way_to_80_columns(void **state)
{
	struct tsr_table t = { 0 };
	struct tsr_text text = { 0 };
	char name[201];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	tsr_row(&t);
	TSR_CELL(&t, "name", "name:n", name);
	TSR_CELL(&t, "n", "elements:20,", 1000);
	tsr_table_put_text(&t, "", false, &text);
	assert_false(text.failed);
	for (const char *line = text.bytes; *line; line = strchr(line, '\n') + 1)
		assert_int_equal(strcspn(line, "\n"), 80);
	assert_non_null(strstr(text.bytes, "xx..xx"));
	tsr_text_free(&text);
	tsr_table_free(&t);
}

static void test_nothing_in_a_page_is_markup(void **state)
{
	struct tsr_report r = { .wants_html = true, .wants_text = true };
	struct tsr_table t = make_table();

	(void)state;
	tsr_report_open(&r, "tersor", "<title>");
	tsr_report_fact(&r, TSR_TO_BOTH, "file", "%s", "<fact>");
	tsr_report_find(&r, TSR_TO_BOTH, "bad", "", "<finding>");
	tsr_report_say(&r, TSR_TO_PAGE, "%s", "<words>");
	tsr_report_table(&r, t, NULL, "");
	tsr_report_close(&r, NULL);
	expect_text(&r.text, "file        <fact>\nbad   <finding>\n");
	for (const char *const *s = (const char *const[]){ "<title>", "<fact>", "<finding>",
							   "<words>", "<i>", "\x1b", NULL };
	     *s; s++)
		assert_true(strcmp(*s, "<title>") == 0 || !strstr(r.html.bytes, *s));
	assert_non_null(strstr(r.html.bytes, "<dt>file</dt><dd>&#60;fact&#62;</dd>\n</dl>\n<ul"));
	assert_non_null(strstr(r.html.bytes, "<th>worst<small>NMSE</small></th>"));
	/* Pages show a digit more of an error, infinity, and what stands out. */
	assert_non_null(strstr(r.html.bytes, "<td>1.25e-05</td>"));
	assert_non_null(strstr(r.html.bytes, "<td class=\"worst\">\xe2\x88\x9e</td>"));
	tsr_text_free(&r.text);
	tsr_text_free(&r.html);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json_has_keys_objects_and_what_is_there),
		cmocka_unit_test(test_csv_has_the_columns_that_are_asked_for),
		cmocka_unit_test(test_text_is_as_wide_as_its_figures),
		cmocka_unit_test(test_rows_are_left_out_unless_verbose),
		cmocka_unit_test(test_lists_of_files_and_tensors),
		cmocka_unit_test(test_whole_names_have_lines_of_their_own),
		cmocka_unit_test(test_names_give_way_to_80_columns),
		cmocka_unit_test(test_nothing_in_a_page_is_markup),
	};

	return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
