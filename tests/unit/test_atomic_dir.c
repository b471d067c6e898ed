/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that appear whole or not at all. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/dir.h"
#include "io/atomic_dir.h"
#include "unit.h"

#define MARKER "index"

/* What directories of this kind have: every name without an 'x'. */
static bool owns(const void *ctx, const char *path)
{
	(void)ctx;
	return !strchr(path, 'x') || strcmp(path, MARKER) == 0;
}

static const struct tsr_outdir_rule rules[] = { { false, owns, NULL }, { true, owns, NULL } };

static char root[] = "/tmp/tersor-outdir-XXXXXX";

static int enter(void **state)
{
	(void)state;
	umask(022);
	return !mkdtemp(root) || chdir(root) != 0;
}

static int leave(void **state)
{
	(void)state;
	return system("rm -rf ./* ./.[!.]*") != 0 || chdir("/") != 0 || rmdir(root) != 0;
}

static int clean(void **state)
{
	(void)state;
	return system("rm -rf ./* ./.[!.]*");
}

static unsigned count(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void put(struct tsr_outdir *d, const char *name, const char *text)
{
	struct tsr_outfile *f = NULL;
	struct tsr_err err;

	assert_int_equal(tsr_outdir_file(d, name, strlen(text), &f, &err), TSR_OK);
	assert_int_equal(tsr_outfile_write(f, text, strlen(text), 0, &err), TSR_OK);
	assert_int_equal(tsr_outfile_publish(&f, &err), TSR_OK);
}

static struct tsr_outdir *start(const char *path, bool force)
{
	struct tsr_outdir *d = NULL;
	struct tsr_err err;

	assert_int_equal(tsr_outdir_create(path, &rules[force], &d, &err), TSR_OK);
	return d;
}

static void make(const char *path, bool force, const char *name)
{
	struct tsr_outdir *d = start(path, force);
	struct tsr_err err;

	put(d, MARKER, "m");
	put(d, name, "text");
	assert_int_equal(tsr_outdir_publish(d, &rules[1], &err), TSR_OK);
}

static void appears_as_a_whole(void **state)
{
	struct tsr_outdir *d = start("out///", false);
	struct tsr_err err;

	(void)state;
	put(d, "a", "1");
	put(d, "sub/deeper/b", "2");
	assert_false(tsr_dir_has("out"));
	assert_int_equal(tsr_outdir_publish(d, &rules[1], &err), TSR_OK);
	assert_true(tsr_dir_has("out/a"));
	assert_true(tsr_dir_has("out/sub/deeper/b"));
	assert_int_equal(count("."), 1);
}

static void discarding_leaves_nothing(void **state)
{
	struct tsr_outdir *d = start("out", false);

	(void)state;
	put(d, "sub/deeper/b", "2");
	tsr_outdir_discard(d);
	assert_int_equal(count("."), 0);
	tsr_outdir_discard(NULL);
}

static void an_empty_directory_is_taken(void **state)
{
	(void)state;
	assert_int_equal(mkdir("out", 0750), 0);
	make("out/", false, "a");
	assert_int_equal(count("."), 1);
	assert_int_equal(count("out"), 2);
}

static void only_force_replaces(void **state)
{
	struct tsr_outdir *d = NULL;
	struct tsr_err err;

	(void)state;
	make("out", false, "old/file");
	assert_int_equal(tsr_outdir_create("out", &rules[0], &d, &err), TSR_E_IO);
	assert_string_equal(err.msg, "out: output exists");
	assert_int_equal(err.hint, TSR_HINT_FORCE);
	make("out", true, "new");
	assert_true(tsr_dir_has("out/new"));
	assert_false(tsr_dir_has("out/old"));
	assert_int_equal(count("."), 1);
}

/* What is in a directory of another kind must not be lost, force or not. */
static void other_directories_are_never_replaced(void **state)
{
	struct tsr_outdir *d = NULL;
	struct tsr_err err;

	(void)state;
	assert_int_equal(mkdir("home", 0777), 0);
	assert_int_equal(mkdir("home/x", 0777), 0);
	assert_int_equal(tsr_outdir_create("home", &rules[1], &d, &err), TSR_E_IO);
	assert_string_equal(err.msg, "home: output exists and is a directory of other things, "
				     "which is not replaced: found x in it");
	assert_int_equal(symlink("home", "link"), 0);
	assert_int_equal(tsr_outdir_create("link", &rules[1], &d, &err), TSR_E_IO);
	assert_int_equal(tsr_outdir_check_target("home", &rules[1], 0, &err), TSR_E_IO);
	assert_int_equal(tsr_outdir_check_target("./", &rules[1], 0, &err), TSR_E_IO);
	assert_int_equal(tsr_outdir_check_target("..", &rules[1], 0, &err), TSR_E_IO);
	assert_int_equal(tsr_outdir_check_target("/", &rules[1], 0, &err), TSR_E_IO);
	assert_int_equal(tsr_outdir_check_target("absent/out", &rules[1], 0, &err), TSR_E_IO);
	assert_int_equal(tsr_outdir_check_target("home/out", &rules[1], 0, &err), TSR_OK);
}

static void one_that_came_up_meanwhile_stays(void **state)
{
	struct tsr_outdir *d = start("out", false);
	struct tsr_err err;

	(void)state;
	put(d, "a", "1");
	assert_int_equal(mkdir("out", 0777), 0);
	assert_int_equal(mkdir("out/x", 0777), 0);
	assert_int_equal(tsr_outdir_publish(d, &rules[1], &err), TSR_E_IO);
	assert_int_equal(count("."), 1);
	assert_true(tsr_dir_has("out/x"));
}

static void names_stay_below(void **state)
{
	static const char *const names[] = { "",     "/a",  "../a", "a/../b", "a//b",
					     "a/..", "a/.", "./a",  "a/" };
	struct tsr_outdir *d = start("out", false);
	struct tsr_outfile *f = NULL;
	struct tsr_err err;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(tsr_outdir_file(d, names[i], 0, &f, &err), TSR_E_IO);
	put(d, "..a/.b", "1");
	tsr_outdir_discard(d);
	assert_int_equal(count("."), 0);
}

static void inputs_inside_are_noticed(void **state)
{
	struct tsr_err err;

	(void)state;
	make("out", false, "sub/input");
	assert_int_equal(tsr_outdir_check_outside("out/", "out/sub/input", &err), TSR_E_IO);
	assert_int_equal(tsr_outdir_check_outside("out", "./out", &err), TSR_E_IO);
	assert_int_equal(tsr_outdir_check_outside("out/sub", "out/index", &err), TSR_OK);
	assert_int_equal(tsr_outdir_check_outside("absent", "out/index", &err), TSR_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(appears_as_a_whole, clean),
		cmocka_unit_test_teardown(discarding_leaves_nothing, clean),
		cmocka_unit_test_teardown(an_empty_directory_is_taken, clean),
		cmocka_unit_test_teardown(only_force_replaces, clean),
		cmocka_unit_test_teardown(other_directories_are_never_replaced, clean),
		cmocka_unit_test_teardown(one_that_came_up_meanwhile_stays, clean),
		cmocka_unit_test_teardown(names_stay_below, clean),
		cmocka_unit_test_teardown(inputs_inside_are_noticed, clean),
	};

	return cmocka_run_group_tests(tests, enter, leave);
}
