/* SPDX-License-Identifier: Apache-2.0 */
/* Option structs of callers that were compiled with older and newer headers. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "base/option_size.h"
#include "tersor.h"

struct newer {
	struct tsr_write_options now;
	unsigned char later[16];
};

static enum tsr_status take(const void *given, struct tsr_write_options *o)
{
	struct tsr_err err = { .msg = "untouched" };
	enum tsr_status status;

	*o = tsr_write_defaults();
	status = tsr_options_take(o, given, &err);
	assert_int_equal(o->size, sizeof(*o));
	if (status == TSR_OK)
		assert_string_equal(err.msg, "untouched");
	else
		assert_non_null(strstr(err.msg, "options: "));
	return status;
}

static void test_without_options_the_defaults_hold(void **state)
{
	struct tsr_write_options o;

	(void)state;
	assert_int_equal(take(NULL, &o), TSR_OK);
	assert_int_equal(o.container, TSR_CONTAINER_COUNT);
	assert_false(o.force);
}

static void test_what_an_older_caller_lacks_is_the_default(void **state)
{
	struct tsr_write_options given = tsr_write_defaults(), o;

	(void)state;
	memset((unsigned char *)&given + sizeof(given.size), 0xff,
	       sizeof(given) - sizeof(given.size));
	given.size = offsetof(struct tsr_write_options, container);
	assert_int_equal(take(&given, &o), TSR_OK);
	assert_int_equal(o.container, TSR_CONTAINER_COUNT);
	given.container = TSR_CONTAINER_NPZ;
	given.flashoptim = true;
	given.size = offsetof(struct tsr_write_options, max_shard_nbytes);
	assert_int_equal(take(&given, &o), TSR_OK);
	assert_int_equal(o.container, TSR_CONTAINER_NPZ);
	assert_true(o.flashoptim);
	assert_int_equal(o.max_shard_nbytes, 0);
	assert_false(o.force);
}

static void test_what_a_newer_caller_sets_is_refused(void **state)
{
	struct newer given = { .now = tsr_write_defaults() };
	struct tsr_write_options o;

	(void)state;
	given.now.size = sizeof(given);
	given.now.force = true;
	assert_int_equal(take(&given, &o), TSR_OK);
	assert_true(o.force);
	for (size_t i = 0; i < sizeof(given.later); i++) {
		given.later[i] = 1;
		assert_int_equal(take(&given, &o), TSR_E_USAGE);
		assert_false(o.force);
		given.later[i] = 0;
	}
}

static void test_sizes_that_no_version_has_are_refused(void **state)
{
	static const size_t sizes[] = { 0, 1, sizeof(size_t) - 1, 8193, SIZE_MAX };
	struct tsr_write_options o, given = tsr_write_defaults();

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		given.size = sizes[i];
		assert_int_equal(take(&given, &o), TSR_E_USAGE);
	}
}

/* Every entry point looks at the size before anything else: there is no such file. */
static void test_every_entry_point_looks_at_the_size(void **state)
{
	const char *const path = "/dev/null/none", *const out = "/dev/null/out";
	struct tsr_open_options open = { .size = 1 };
	struct tsr_pack_options pack = { .size = 1 };
	struct tsr_write_options write = { .size = 1 };
	struct tsr_verify_options verify = { .size = 1 };
	struct tsr_diff_options diff = { .size = 1 };
	struct tsr_replay_options replay = { .size = 1 };
	struct tsr_checkpoint *c = NULL;
	struct tsr_recording *r = NULL;
	struct tsr_packing *p = NULL;
	struct tsr_unpacking *u = NULL;
	struct tsr_verification *v = NULL;
	struct tsr_comparison *d = NULL;
	struct tsr_replay *s = NULL;
	struct tsr_err err = { 0 };

	(void)state;
	for (int set = 0; set < 2; set++) {
		const enum tsr_status want = set ? TSR_E_IO : TSR_E_USAGE;

		assert_int_equal(tsr_checkpoint_open(&path, 1, &open, &c, &err), want);
		assert_int_equal(tsr_recording_open(path, &open, &r, &err), want);
		assert_int_equal(tsr_pack(&path, 1, out, &pack, NULL, &p, &err), want);
		assert_int_equal(tsr_unpack(path, out, &write, NULL, &u, &err), want);
		assert_int_equal(tsr_convert(&path, 1, out, &write, NULL, &u, &err), want);
		assert_int_equal(tsr_verify(path, &verify, NULL, &v, &err), want);
		assert_int_equal(tsr_diff(&path, 1, &path, 1, &diff, NULL, &d, &err), want);
		assert_int_equal(tsr_replay(&path, 1, path, NULL, &replay, NULL, &s, &err), want);
		assert_true(!c && !r && !p && !u && !v && !d && !s);
		open = tsr_open_defaults();
		pack = tsr_pack_defaults();
		write = tsr_write_defaults();
		verify = tsr_verify_defaults();
		diff = tsr_diff_defaults();
		replay = tsr_replay_defaults();
	}
	/* Those that have options of their own for opening hand them on. */
	open.size = 1;
	pack.open = write.open = verify.open = diff.open = replay.open = &open;
	assert_int_equal(tsr_pack(&path, 1, out, &pack, NULL, &p, &err), TSR_E_USAGE);
	assert_int_equal(tsr_unpack(path, out, &write, NULL, &u, &err), TSR_E_USAGE);
	assert_int_equal(tsr_convert(&path, 1, out, &write, NULL, &u, &err), TSR_E_USAGE);
	assert_int_equal(tsr_verify(path, &verify, NULL, &v, &err), TSR_E_USAGE);
	assert_int_equal(tsr_diff(&path, 1, &path, 1, &diff, NULL, &d, &err), TSR_E_USAGE);
	assert_int_equal(tsr_replay(&path, 1, path, NULL, &replay, NULL, &s, &err), TSR_E_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_options_the_defaults_hold),
		cmocka_unit_test(test_what_an_older_caller_lacks_is_the_default),
		cmocka_unit_test(test_what_a_newer_caller_sets_is_refused),
		cmocka_unit_test(test_sizes_that_no_version_has_are_refused),
		cmocka_unit_test(test_every_entry_point_looks_at_the_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
