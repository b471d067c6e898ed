/* SPDX-License-Identifier: Apache-2.0 */
/* What large files leave in the cache of pages; where the file system has none, nothing is to be seen. */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "io/file.h"
#include "io/page_cache.h"
#include "unit.h"

#define CHUNK ((size_t)1 << 20)
#define CHUNKS 48u
#define MIB (UINT64_C(1) << 20)

static char dir[] = "/var/tmp/tersor-cache-XXXXXX";
static unsigned char buf[CHUNK];

static int enter_dir(void **state)
{
	(void)state;
	memset(buf, 0x5a, sizeof(buf));
	return !mkdtemp(dir) || chdir(dir) != 0;
}

static int leave_dir(void **state)
{
	(void)state;
	unlink("a");
	unlink("b");
	return chdir("/") != 0 || rmdir(dir) != 0;
}

/* MiB of a file that are in memory. */
static double cached(const char *path)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t resident = 0, n;
	unsigned char *pages;
	struct stat st;
	void *map;

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	n = ((size_t)st.st_size + page - 1) / page;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	pages = calloc(n, 1);
	assert_true(map != MAP_FAILED && pages);
	assert_int_equal(mincore(map, (size_t)st.st_size, pages), 0);
	for (size_t i = 0; i < n; i++)
		resident += pages[i] & 1;
	munmap(map, (size_t)st.st_size);
	free(pages);
	close(fd);
	return (double)(resident * page) / (double)MIB;
}

/* Whether advice does something here: tmpfs keeps all of its pages, for it has no other place. */
static bool drops(void)
{
	struct statfs fs;

	return statfs(".", &fs) == 0 && fs.f_type != TMPFS_MAGIC &&
	       fs.f_type != OVERLAYFS_SUPER_MAGIC;
}

/* Chunks in the order in which two threads have them, in two regions of the file. */
static uint64_t place(unsigned i)
{
	const unsigned half = i % 2 * CHUNKS / 2, at = i / 2;

	return (half + (at ^ 1)) * CHUNK;
}

static void write_file(const char *path)
{
	struct tsr_outfile *f = NULL;

	assert_int_equal(tsr_outfile_create(path, true, CHUNKS * CHUNK, &f, NULL), TSR_OK);
	for (unsigned i = 0; i < CHUNKS; i++)
		assert_int_equal(tsr_outfile_write(f, buf, CHUNK, place(i), NULL), TSR_OK);
	assert_int_equal(tsr_outfile_publish(&f, NULL), TSR_OK);
}

static void read_file(const char *path)
{
	struct tsr_file *f = NULL;

	assert_int_equal(tsr_file_open(path, &f, NULL), TSR_OK);
	for (unsigned i = 0; i < CHUNKS; i++)
		assert_int_equal(tsr_file_read(f, buf, CHUNK, place(i), NULL), TSR_OK);
	tsr_file_close(f);
}

/* What should stay is tried a few times: a system short of memory drops pages of its own accord. */
#define TRIES 5u

static void test_little_stays_cached(void **state)
{
	bool stays = false;

	(void)state;
	for (unsigned tries = 0; tries < TRIES && !stays; tries++) {
		tsr_trail_set_limit(1000 * MIB);
		write_file("a");
		read_file("a");
		stays = cached("a") > CHUNKS - 1;
	}
	assert_true(stays);
}

static void test_what_was_written_beyond_the_limit_is_dropped(void **state)
{
	(void)state;
	if (!drops())
		skip();
	tsr_trail_set_limit(8 * MIB);
	write_file("b");
	assert_true(cached("b") < 10);
}

static void test_what_was_read_beyond_the_limit_is_dropped_and_others_stay(void **state)
{
	bool stays = false;

	(void)state;
	if (!drops())
		skip();
	for (unsigned tries = 0; tries < TRIES && !stays; tries++) {
		tsr_trail_set_limit(1000 * MIB);
		write_file("a");
		write_file("b");
		tsr_trail_set_limit(8 * MIB);
		read_file("b");
		assert_true(cached("b") < 10);
		stays = cached("a") > CHUNKS - 1;
	}
	assert_true(stays);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_little_stays_cached),
		cmocka_unit_test(test_what_was_written_beyond_the_limit_is_dropped),
		cmocka_unit_test(test_what_was_read_beyond_the_limit_is_dropped_and_others_stay),
	};

	return cmocka_run_group_tests(tests, enter_dir, leave_dir);
}
