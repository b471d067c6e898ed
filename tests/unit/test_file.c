/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs that must not change; outputs that appear whole or not at all. */
#include <dirent.h>
#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "unit.h"

static char dir[] = "/tmp/tersor-file-XXXXXX";
static unsigned fds_at_start;

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int enter_dir(void **state)
{
	(void)state;
	umask(022);
	return !mkdtemp(dir) || chdir(dir) != 0;
}

static int start_test(void **state)
{
	(void)state;
	fds_at_start = count_fds();
	return 0;
}

/* Every test finds an empty directory and leaves no descriptor open. */
static int end_test(void **state)
{
	DIR *d = opendir(".");
	const struct dirent *e;

	(void)state;
	assert_non_null(d);
	while ((e = readdir(d))) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    unlink(e->d_name) != 0)
			assert_int_equal(rmdir(e->d_name), 0);
	}
	closedir(d);
	assert_int_equal(count_fds(), fds_at_start);
	return 0;
}

static int leave_dir(void **state)
{
	(void)state;
	return chdir("/") != 0 || rmdir(dir) != 0;
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
	assert_int_equal(fclose(f), 0);
}

static void expect_text(const char *path, const char *want)
{
	char got[200] = "";
	FILE *f = fopen(path, "rb");

	assert_non_null(f);
	got[fread(got, 1, sizeof(got) - 1, f)] = '\0';
	fclose(f);
	assert_string_equal(got, want);
}

static unsigned count_entries(void)
{
	DIR *d = opendir(".");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

static void expect_status(enum tsr_status got, enum tsr_status want, const struct tsr_err *err,
			  const char *const *words)
{
	if (got != want)
		fail_msg("status %d, want %d: %s", (int)got, (int)want, err->msg);
	assert_int_equal(err->code, want);
	for (; words && *words; words++) {
		if (!strstr(err->msg, *words))
			fail_msg("no \"%s\" in \"%s\"", *words, err->msg);
	}
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* --- Inputs --------------------------------------------------------------------------------- */

static struct tsr_file *open_ok(const char *path)
{
	struct tsr_file *f = NULL;
	struct tsr_err err = { 0 };

	if (tsr_file_open(path, &f, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return f;
}

static void expect_open_fails(const char *path, const char *why)
{
	struct tsr_file *f = NULL;
	struct tsr_err err = { 0 };

	expect_status(tsr_file_open(path, &f, &err), TSR_E_IO, &err, WORDS(path, why));
	assert_null(f);
	assert_int_equal(tsr_file_open(path, &f, NULL), TSR_E_IO);
}

static void test_reading(void **state)
{
	struct tsr_file *f;
	struct tsr_err err = { .msg = "untouched" };
	char buf[8] = "";

	(void)state;
	put("in", "0123456789");
	assert_int_equal(symlink("in", "link"), 0);
	f = open_ok("link");
	assert_string_equal(tsr_file_path(f), "link");
	assert_true(tsr_file_size(f) == 10);
	assert_int_equal(tsr_file_read(f, buf, 4, 3, &err), TSR_OK);
	assert_memory_equal(buf, "3456\0", 5);
	assert_int_equal(tsr_file_read(f, buf, 1, 9, &err), TSR_OK);
	assert_memory_equal(buf, "9456", 4);
	assert_int_equal(tsr_file_read(f, NULL, 0, 10, &err), TSR_OK);
	assert_int_equal(tsr_file_check_unchanged(f, &err), TSR_OK);
	assert_string_equal(err.msg, "untouched");
	tsr_file_close(f);
	tsr_file_close(NULL);
	put("empty", "");
	f = open_ok("empty");
	assert_true(tsr_file_size(f) == 0);
	tsr_file_close(f);
}

static void test_only_regular_files_open(void **state)
{
	(void)state;
	assert_int_equal(mkdir("dir", 0777), 0);
	assert_int_equal(mkfifo("fifo", 0666), 0);
	assert_int_equal(symlink("nowhere", "dangling"), 0);
	assert_int_equal(symlink("loop", "loop"), 0);
	put("file", "");
	expect_open_fails("missing", "No such file");
	expect_open_fails("dangling", "No such file");
	expect_open_fails("dir", "directory");
	expect_open_fails("fifo", "special file"); /* without waiting for a writer */
	expect_open_fails("/dev/null", "special file");
	expect_open_fails("loop", "symbolic links");
	expect_open_fails("file/x", "Not a directory");
	expect_open_fails("", "No such file");
}

static void test_a_file_that_ends_early(void **state)
{
	struct tsr_file *f;
	struct tsr_err err = { 0 };
	char buf[20];

	(void)state;
	put("in", "0123456789");
	f = open_ok("in");
	expect_status(tsr_file_read(f, buf, 11, 0, &err), TSR_E_IO, &err,
		      WORDS("in: ", "changed", "10"));
	assert_int_equal(truncate("in", 4), 0);
	assert_int_equal(tsr_file_read(f, buf, 4, 0, &err), TSR_OK);
	expect_status(tsr_file_read(f, buf, 10, 0, &err), TSR_E_IO, &err,
		      WORDS("changed while reading", "offset 4", "10 bytes"));
	assert_int_equal(tsr_file_read(f, buf, 10, 0, NULL), TSR_E_IO);
	tsr_file_close(f);
}

static void set_mtime(const char *path, time_t seconds)
{
	const struct timespec times[2] = { { .tv_sec = seconds }, { .tv_sec = seconds } };

	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void append(const char *path)
{
	FILE *f = fopen(path, "ab");

	assert_non_null(f);
	assert_int_not_equal(putc('x', f), EOF);
	assert_int_equal(fclose(f), 0);
	set_mtime(path, 1000);
}

static void touch(const char *path)
{
	set_mtime(path, 1001);
}

/* Same size, same time, another file. */
static void replace(const char *path)
{
	put("other", "0123456789");
	set_mtime("other", 1000);
	assert_int_equal(rename("other", path), 0);
}

static void remove_name(const char *path)
{
	assert_int_equal(unlink(path), 0);
}

static void test_a_file_that_changes(void **state)
{
	static const struct {
		void (*change)(const char *path);
		const char *what;
	} rows[] = {
		{ append, "modified" },
		{ touch, "modified" },
		{ replace, "replaced" },
		{ remove_name, "replaced" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct tsr_err err = { 0 };
		struct tsr_file *f;

		put("in", "0123456789");
		set_mtime("in", 1000);
		f = open_ok("in");
		assert_int_equal(tsr_file_check_unchanged(f, &err), TSR_OK);
		rows[i].change("in");
		expect_status(tsr_file_check_unchanged(f, &err), TSR_E_IO, &err,
			      WORDS("in: ", "changed while reading", rows[i].what));
		tsr_file_close(f);
	}
}

static void test_an_output_that_is_the_input(void **state)
{
	static const char *const same[] = { "in", "./in", "hard", "soft", "soft2" };
	static const char *const different[] = { "other", "missing", "dangling", "." };
	struct tsr_err err = { 0 };
	struct tsr_file *f;

	(void)state;
	put("in", "text");
	put("other", "text");
	assert_int_equal(link("in", "hard"), 0);
	assert_int_equal(symlink("in", "soft"), 0);
	assert_int_equal(symlink("soft", "soft2"), 0);
	assert_int_equal(symlink("nowhere", "dangling"), 0);
	f = open_ok("in");
	for (size_t i = 0; i < COUNT_OF(same); i++)
		expect_status(tsr_file_check_not(f, same[i], &err), TSR_E_IO, &err,
			      WORDS(same[i], "in"));
	for (size_t i = 0; i < COUNT_OF(different); i++)
		assert_int_equal(tsr_file_check_not(f, different[i], &err), TSR_OK);
	tsr_file_close(f);
}

/* --- Inputs in a directory, and scratch files ----------------------------------------------- */

static struct tsr_file *open_in_ok(const char *directory, const char *name, bool follow)
{
	struct tsr_file *f = NULL;
	struct tsr_err err = { 0 };

	if (tsr_file_open_in(directory, name, follow, &f, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return f;
}

static void test_files_of_a_directory(void **state)
{
	static const char *const spellings[][2] = {
		{ "sub", "sub/in" }, { "sub/", "sub/in" }, { "./sub", "./sub/in" }, { dir, NULL }
	};
	struct tsr_err err = { 0 };
	char buf[5] = "";

	(void)state;
	assert_int_equal(mkdir("sub", 0777), 0);
	put("sub/in", "text");
	put("in", "text");
	for (size_t i = 0; i < COUNT_OF(spellings); i++) {
		struct tsr_file *f = open_in_ok(spellings[i][0], "in", false);

		if (spellings[i][1])
			assert_string_equal(tsr_file_path(f), spellings[i][1]);
		assert_int_equal(tsr_file_read(f, buf, 4, 0, NULL), TSR_OK);
		assert_string_equal(buf, "text");
		assert_int_equal(tsr_file_check_unchanged(f, &err), TSR_OK);
		append(spellings[i][1] ? "sub/in" : "in");
		expect_status(tsr_file_check_unchanged(f, &err), TSR_E_IO, &err, WORDS("modified"));
		tsr_file_close(f);
		put("sub/in", "text");
	}
	tsr_file_close(open_in_ok("", "in", false)); /* not the root directory */
	assert_int_equal(unlink("sub/in"), 0);
}

static void test_links_in_a_directory_are_followed_on_request_only(void **state)
{
	static const char *const links[] = { "soft", "soft2" };
	struct tsr_err err = { 0 };

	(void)state;
	put("in", "text");
	assert_int_equal(symlink("in", "soft"), 0);
	assert_int_equal(symlink("soft", "soft2"), 0);
	assert_int_equal(symlink("nowhere", "dangling"), 0);
	for (size_t i = 0; i < COUNT_OF(links); i++) {
		struct tsr_file *f = NULL;

		expect_status(tsr_file_open_in(".", links[i], false, &f, &err), TSR_E_IO, &err,
			      WORDS("./", links[i], "symbolic link", "regular file"));
		assert_null(f);
		f = open_in_ok(".", links[i], true);
		assert_true(tsr_file_size(f) == 4);
		assert_int_equal(tsr_file_check_unchanged(f, &err), TSR_OK);
		tsr_file_close(f);
	}
}

static void test_what_in_a_directory_does_not_open(void **state)
{
	static const struct {
		const char *directory, *name, *word;
		enum tsr_status status;
	} rows[] = {
		{ ".", "missing", "./missing: ", TSR_E_IO },
		{ ".", "missing", "No such file", TSR_E_IO },
		{ ".", "fifo", "FIFO", TSR_E_IO }, /* without waiting for a writer */
		{ ".", "dir", "found a directory", TSR_E_IO },
		{ ".", "..", "found a directory", TSR_E_IO },
		{ ".", ".", "found a directory", TSR_E_IO },
		{ "/dev", "null", "device", TSR_E_IO },
		{ "missing", "in", "missing/in: ", TSR_E_IO },
		{ "in", "in", "Not a directory", TSR_E_IO },
		{ ".", "dangling", "symbolic link", TSR_E_IO },
		{ ".", "dir/in", "\"dir/in\"", TSR_E_FORMAT },
		{ ".", "/etc/passwd", "without directories", TSR_E_FORMAT },
		{ ".", "../in", "without directories", TSR_E_FORMAT },
		{ ".", "in/", "without directories", TSR_E_FORMAT },
		{ ".", "", "without directories", TSR_E_FORMAT },
	};

	(void)state;
	put("in", "text");
	assert_int_equal(mkdir("dir", 0777), 0);
	put("dir/in", "text");
	assert_int_equal(mkfifo("fifo", 0666), 0);
	assert_int_equal(symlink("nowhere", "dangling"), 0);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct tsr_err err = { 0 };
		struct tsr_file *f = NULL;

		expect_status(tsr_file_open_in(rows[i].directory, rows[i].name, false, &f, &err),
			      rows[i].status, &err, WORDS(rows[i].word));
		assert_null(f);
		assert_int_equal(tsr_file_open_in(rows[i].directory, rows[i].name, false, &f, NULL),
				 rows[i].status);
	}
	assert_int_equal(unlink("dir/in"), 0);
}

static void test_scratch_files(void **state)
{
	const uint64_t far = (UINT64_C(5) << 30) + 1;
	struct tsr_file *f = NULL;
	struct tsr_err err = { 0 };
	char buf[8];

	(void)state;
	assert_int_equal(setenv("TMPDIR", ".", 1), 0);
	assert_int_equal(tsr_file_scratch("name: member", &f, &err), TSR_OK);
	assert_int_equal(count_entries(), 0); /* it has no name */
	assert_string_equal(tsr_file_path(f), "name: member");
	assert_true(tsr_file_size(f) == 0);
	assert_int_equal(tsr_file_scratch_write(f, "56789", 5, 5, &err), TSR_OK);
	assert_true(tsr_file_size(f) == 10);
	assert_int_equal(tsr_file_scratch_write(f, "01234", 5, 0, &err), TSR_OK);
	assert_true(tsr_file_size(f) == 10);
	assert_int_equal(tsr_file_read(f, buf, 8, 1, &err), TSR_OK);
	assert_memory_equal(buf, "12345678", 8);
	assert_int_equal(tsr_file_check_unchanged(f, &err), TSR_OK);
	assert_int_equal(tsr_file_scratch_write(f, "far", 3, far, &err), TSR_OK);
	assert_true(tsr_file_size(f) == far + 3);
	assert_int_equal(tsr_file_read(f, buf, 3, far, &err), TSR_OK);
	assert_memory_equal(buf, "far", 3);
	expect_status(tsr_file_read(f, buf, 4, far, &err), TSR_E_IO, &err, WORDS("name: member"));
	assert_int_equal(count_entries(), 0);
	tsr_file_close(f);
	assert_int_equal(unsetenv("TMPDIR"), 0);
}

static void test_dropped_bytes_leave_the_others(void **state)
{
	enum { NBYTES = 1 << 20, FROM = 5000, TO = 900000 };
	static uint8_t bytes[NBYTES], back[NBYTES];
	struct tsr_file *f = NULL;
	struct tsr_err err = { 0 };

	(void)state;
	memset(bytes, 7, sizeof(bytes));
	assert_int_equal(tsr_file_scratch(".", &f, &err), TSR_OK);
	assert_int_equal(tsr_file_scratch_write(f, bytes, NBYTES, 0, &err), TSR_OK);
	tsr_file_scratch_drop(f, TO - FROM, FROM);
	assert_true(tsr_file_size(f) == NBYTES);
	assert_int_equal(tsr_file_read(f, back, NBYTES, 0, &err), TSR_OK);
	assert_memory_equal(back, bytes, FROM);
	assert_memory_equal(back + TO, bytes + TO, NBYTES - TO);
	tsr_file_close(f);
}

static void test_where_scratch_files_are_made(void **state)
{
	static const char *const standard[] = { NULL, "" };
	struct tsr_err err = { 0 };
	struct tsr_file *f = NULL;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(standard); i++) {
		if (standard[i])
			assert_int_equal(setenv("TMPDIR", standard[i], 1), 0);
		assert_int_equal(tsr_file_scratch("in", &f, &err), TSR_OK);
		tsr_file_close(f);
	}
	f = NULL;
	assert_int_equal(setenv("TMPDIR", "./missing", 1), 0);
	expect_status(tsr_file_scratch("in", &f, &err), TSR_E_IO, &err,
		      WORDS("in: ", "scratch file in ./missing", "No such file"));
	assert_null(f);
	put("file", "");
	assert_int_equal(setenv("TMPDIR", "file", 1), 0);
	expect_status(tsr_file_scratch("in", &f, &err), TSR_E_IO, &err,
		      WORDS("in: ", "Not a directory"));
	assert_int_equal(unsetenv("TMPDIR"), 0);
}

/* Where there are no nameless files; /proc is such a place, but takes no others either. */
static void test_a_scratch_file_where_none_can_be(void **state)
{
	struct tsr_err err = { 0 };
	struct tsr_file *f = NULL;

	(void)state;
	assert_int_equal(setenv("TMPDIR", "/proc", 1), 0);
	expect_status(tsr_file_scratch("in", &f, &err), TSR_E_IO, &err,
		      WORDS("in: ", "scratch file in /proc"));
	assert_null(f);
	assert_int_equal(unsetenv("TMPDIR"), 0);
}

static void test_a_scratch_file_that_is_full(void **state)
{
	struct rlimit limit, small;
	struct tsr_err err = { 0 };
	struct tsr_file *f = NULL;

	(void)state;
	assert_int_equal(tsr_file_scratch("in", &f, &err), TSR_OK);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){ .rlim_cur = 5000, .rlim_max = limit.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	expect_status(tsr_file_scratch_write(f, "text", 4, 5000, &err), TSR_E_IO, &err,
		      WORDS("in: ", "cannot write its scratch file", "File too large"));
	assert_true(tsr_file_size(f) == 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	tsr_file_close(f);
}

/* --- Outputs -------------------------------------------------------------------------------- */

static struct tsr_outfile *create_ok(const char *path, bool force, uint64_t nbytes)
{
	struct tsr_outfile *f = NULL;
	struct tsr_err err = { 0 };

	if (tsr_outfile_create(path, force, nbytes, &f, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return f;
}

static void write_ok(struct tsr_outfile *f, const char *text, uint64_t offset)
{
	struct tsr_err err = { 0 };

	if (tsr_outfile_write(f, text, strlen(text), offset, &err) != TSR_OK)
		fail_msg("%s", err.msg);
}

static void expect_create_fails(const char *path, bool force, const char *why)
{
	const unsigned entries = count_entries();
	struct tsr_outfile *f = NULL;
	struct tsr_err err = { 0 };

	expect_status(tsr_outfile_create(path, force, 4, &f, &err), TSR_E_IO, &err,
		      WORDS(path, why));
	assert_null(f);
	expect_status(tsr_outfile_check_target(path, force, &err), TSR_E_IO, &err,
		      WORDS(path, why));
	assert_int_equal(tsr_outfile_create(path, force, 4, &f, NULL), TSR_E_IO);
	assert_int_equal(count_entries(), entries);
}

static void test_publishing(void **state)
{
	struct tsr_outfile *f = create_ok("out", false, 10);

	(void)state;
	write_ok(f, "56789", 5);
	write_ok(f, "01234", 0);
	write_ok(f, "", 3);
	assert_false(exists("out"));
	assert_int_equal(tsr_outfile_publish(&f, NULL), TSR_OK);
	expect_text("out", "0123456789");
	assert_int_equal(mode_of("out"), 0644);
	assert_int_equal(count_entries(), 1);
}

static void test_new_files_obey_the_umask(void **state)
{
	struct tsr_outfile *f;

	(void)state;
	umask(077);
	f = create_ok("out", false, 0);
	umask(022);
	assert_int_equal(tsr_outfile_publish(&f, NULL), TSR_OK);
	assert_int_equal(mode_of("out"), 0600);
}

/* In another directory, in this one, with an absolute path: always beside the target. */
static void test_temporary_names(void **state)
{
	static const char *const paths[] = { "sub/out.safetensors", "out.safetensors",
					     "./out.safetensors", NULL };
	char absolute[100];
	regex_t pattern;

	(void)state;
	assert_int_equal(mkdir("sub", 0777), 0);
	snprintf(absolute, sizeof(absolute), "%s/sub/out.safetensors", dir);
	assert_int_equal(regcomp(&pattern, "^\\.out\\.safetensors\\.[0-9a-f]{16}\\.tmp$",
				 REG_EXTENDED | REG_NOSUB),
			 0);
	for (size_t i = 0; i < COUNT_OF(paths); i++) {
		const char *path = paths[i] ? paths[i] : absolute;
		struct tsr_outfile *f = create_ok(path, false, 100),
				   *g = create_ok(path, false, 100);
		DIR *d = opendir(strstr(path, "sub") ? "sub" : ".");
		unsigned matching = 0;
		const struct dirent *e;

		assert_non_null(d);
		while ((e = readdir(d)))
			matching += regexec(&pattern, e->d_name, 0, NULL, 0) == 0;
		closedir(d);
		assert_int_equal(matching, 2); /* two makings of one file do not meet */
		assert_false(exists(path));
		tsr_outfile_discard(f);
		tsr_outfile_discard(g);
		assert_false(exists(path));
	}
	regfree(&pattern);
	assert_int_equal(rmdir("sub"), 0); /* it is empty */
	assert_int_equal(count_entries(), 0);
}

static void test_discarding(void **state)
{
	struct tsr_outfile *f = create_ok("out", false, 1000);

	(void)state;
	write_ok(f, "text", 0);
	tsr_outfile_discard(f);
	assert_int_equal(count_entries(), 0);
	tsr_outfile_discard(NULL);
	put("out", "before");
	f = create_ok("out", true, 4);
	write_ok(f, "text", 0);
	tsr_outfile_discard(f);
	expect_text("out", "before");
	assert_int_equal(count_entries(), 1);
}

static void test_no_clobber(void **state)
{
	struct tsr_outfile *f;
	struct tsr_err err = { 0 };

	(void)state;
	put("out", "before");
	expect_create_fails("out", false, "output exists");
	expect_status(tsr_outfile_check_target("out", false, &err), TSR_E_IO, &err, NULL);
	assert_int_equal(err.hint, TSR_HINT_FORCE);
	expect_text("out", "before");
	assert_int_equal(unlink("out"), 0);
	/* It came while we were at work. */
	f = create_ok("out", false, 4);
	write_ok(f, "text", 0);
	put("out", "another's");
	expect_status(tsr_outfile_publish(&f, &err), TSR_E_IO, &err, WORDS("out: ", "exists"));
	expect_text("out", "another's");
	assert_int_equal(count_entries(), 1);
}

static void test_the_first_of_two_wins(void **state)
{
	struct tsr_outfile *f = create_ok("out", false, 0), *g = create_ok("out", false, 0);

	(void)state;
	write_ok(f, "first", 0);
	write_ok(g, "second", 0);
	assert_int_equal(tsr_outfile_publish(&f, NULL), TSR_OK);
	assert_int_equal(tsr_outfile_publish(&g, NULL), TSR_E_IO);
	expect_text("out", "first");
	assert_int_equal(count_entries(), 1);
}

static void test_force_replaces_and_keeps_the_mode(void **state)
{
	static const mode_t modes[] = { 0600, 0640, 0444, 0755, 0666 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(modes); i++) {
		struct tsr_outfile *f;
		struct stat before, after;

		put("out", "before, and longer");
		assert_int_equal(chmod("out", modes[i]), 0);
		assert_int_equal(stat("out", &before), 0);
		f = create_ok("out", true, 4);
		write_ok(f, "text", 0);
		expect_text("out", "before, and longer");
		assert_int_equal(tsr_outfile_publish(&f, NULL), TSR_OK);
		expect_text("out", "text");
		assert_int_equal(mode_of("out"), modes[i]);
		assert_int_equal(stat("out", &after), 0);
		assert_true(before.st_ino !=
			    after.st_ino); /* whoever reads the old one still can */
		assert_int_equal(unlink("out"), 0);
	}
	assert_int_equal(count_entries(), 0);
}

static void test_force_without_a_target(void **state)
{
	struct tsr_outfile *f = create_ok("out", true, 4);

	(void)state;
	write_ok(f, "text", 0);
	assert_int_equal(tsr_outfile_publish(&f, NULL), TSR_OK);
	expect_text("out", "text");
	assert_int_equal(mode_of("out"), 0644);
}

/* Another name of the file that is replaced keeps the old text. */
static void test_force_leaves_other_links_alone(void **state)
{
	struct tsr_outfile *f;

	(void)state;
	put("out", "before");
	assert_int_equal(link("out", "link"), 0);
	f = create_ok("out", true, 4);
	write_ok(f, "text", 0);
	assert_int_equal(tsr_outfile_publish(&f, NULL), TSR_OK);
	expect_text("out", "text");
	expect_text("link", "before");
}

static void test_targets_that_are_no_regular_files(void **state)
{
	(void)state;
	put("file", "before");
	assert_int_equal(mkdir("dir", 0777), 0);
	assert_int_equal(mkfifo("fifo", 0666), 0);
	assert_int_equal(symlink("file", "link"), 0);
	assert_int_equal(symlink("nowhere", "dangling"), 0);
	for (int force = 0; force < 2; force++) {
		expect_create_fails("dir", force, "directory");
		expect_create_fails("fifo", force, "special file");
		expect_create_fails("link", force, "symbolic link");
		expect_create_fails("dangling", force, "symbolic link");
		expect_create_fails("/dev/null", force, "special file");
		expect_create_fails("dir/", force, "no file name");
		expect_create_fails("", force, "");
		expect_create_fails("/", force, "");
		expect_create_fails("missing/out", force, "No such file");
		expect_create_fails("file/out", force, "Not a directory");
		expect_create_fails(".", force, "directory");
	}
	expect_text("file", "before");
	assert_false(exists("nowhere"));
}

/* A directory came instead of the file: it cannot be replaced, and nothing is left behind. */
static void test_a_target_that_becomes_a_directory(void **state)
{
	(void)state;
	for (int force = 0; force < 2; force++) {
		struct tsr_outfile *f = create_ok("out", force, 4);
		struct tsr_err err = { 0 };

		assert_int_equal(mkdir("out", 0777), 0);
		expect_status(tsr_outfile_publish(&f, &err), TSR_E_IO, &err, WORDS("out: "));
		assert_int_equal(count_entries(), 1);
		assert_int_equal(rmdir("out"), 0);
	}
}

/* The directory is held open: a file follows it when it is renamed. */
static void test_a_directory_that_moves(void **state)
{
	struct tsr_outfile *f;

	(void)state;
	assert_int_equal(mkdir("sub", 0777), 0);
	f = create_ok("sub/out", false, 4);
	write_ok(f, "text", 0);
	assert_int_equal(rename("sub", "moved"), 0);
	assert_int_equal(tsr_outfile_publish(&f, NULL), TSR_OK);
	expect_text("moved/out", "text");
	assert_int_equal(unlink("moved/out"), 0);
}

static void test_more_than_a_disk_holds(void **state)
{
	struct tsr_outfile *f = NULL;
	struct tsr_err err = { 0 };

	(void)state;
	expect_status(tsr_outfile_create("out", false, UINT64_C(1) << 62, &f, &err), TSR_E_IO, &err,
		      WORDS("out: ", "cannot reserve"));
	assert_int_equal(count_entries(), 0);
}

/* A limit on file sizes stands for a full disk. */
static void test_a_write_that_fails(void **state)
{
	static char text[10000];
	struct rlimit limit, small;
	struct tsr_outfile *f = create_ok("out", false, 0);
	struct tsr_err err = { 0 };

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){ .rlim_cur = 5000, .rlim_max = limit.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	expect_status(tsr_outfile_write(f, text, sizeof(text), 0, &err), TSR_E_IO, &err,
		      WORDS("out: ", "cannot write", "File too large"));
	assert_int_equal(tsr_outfile_write(f, text, 1, 6000, NULL), TSR_E_IO);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	tsr_outfile_discard(f);
	assert_int_equal(count_entries(), 0);
}

static void test_large_offsets(void **state)
{
	struct tsr_outfile *f = create_ok("out", false, 0);
	const uint64_t offset = (UINT64_C(5) << 30) + 3;
	struct tsr_file *in;
	char buf[5] = "";

	(void)state;
	write_ok(f, "text", offset);
	assert_int_equal(tsr_outfile_publish(&f, NULL), TSR_OK);
	in = open_ok("out");
	assert_true(tsr_file_size(in) == offset + 4);
	assert_int_equal(tsr_file_read(in, buf, 4, offset, NULL), TSR_OK);
	assert_string_equal(buf, "text");
	tsr_file_close(in);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_test, end_test)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_reading),
		TEST(test_only_regular_files_open),
		TEST(test_a_file_that_ends_early),
		TEST(test_a_file_that_changes),
		TEST(test_an_output_that_is_the_input),
		TEST(test_files_of_a_directory),
		TEST(test_links_in_a_directory_are_followed_on_request_only),
		TEST(test_what_in_a_directory_does_not_open),
		TEST(test_scratch_files),
		TEST(test_dropped_bytes_leave_the_others),
		TEST(test_where_scratch_files_are_made),
		TEST(test_a_scratch_file_where_none_can_be),
		TEST(test_a_scratch_file_that_is_full),
		TEST(test_publishing),
		TEST(test_new_files_obey_the_umask),
		TEST(test_temporary_names),
		TEST(test_discarding),
		TEST(test_no_clobber),
		TEST(test_the_first_of_two_wins),
		TEST(test_force_replaces_and_keeps_the_mode),
		TEST(test_force_without_a_target),
		TEST(test_force_leaves_other_links_alone),
		TEST(test_targets_that_are_no_regular_files),
		TEST(test_a_target_that_becomes_a_directory),
		TEST(test_a_directory_that_moves),
		TEST(test_more_than_a_disk_holds),
		TEST(test_a_write_that_fails),
		TEST(test_large_offsets),
	};

	return cmocka_run_group_tests_name("file", tests, enter_dir, leave_dir);
}
