/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: the elements of joined ranks, questions, and schedules of learning rates. */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/checkpoint_model.h"
#include "recording/recording_summary.h"
#include "recording/schedule.h"
#include "tersor/recording.h"
#include "unit.h"

#define RANKS "tests/data/recording-fsdp2"
#define TINY "tests/data/tiny-gpt/recording"

/* --- A directory of files that are written here --------------------------------------------- */

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/tersor-recording-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	DIR *d = opendir(folder);
	const struct dirent *entry;
	char path[512];

	(void)state;
	while (d && (entry = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (entry->d_name[0] != '.')
			unlink(path);
	}
	if (d)
		closedir(d);
	return rmdir(folder);
}

static const char *path_of(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
	FILE *f = fopen(path_of(name), "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* A safetensors file with this header and these FP32 values. */
static void write_tensors(const char *name, const char *header, const float *values, size_t n)
{
	char bytes[4096];
	const size_t len = strlen(header);

	assert_true(8 + len + 4 * n <= sizeof(bytes));
	for (size_t i = 0; i < 8; i++)
		bytes[i] = (char)(len >> 8 * i & 0xff);
	memcpy(bytes + 8, header, len);
	memcpy(bytes + 8 + len, values, 4 * n);
	write_file(name, bytes, 8 + len + 4 * n);
}

static struct tsr_recording *open_ok(const char *path)
{
	struct tsr_recording *r = NULL;
	struct tsr_err err = { .msg = "untouched" };

	if (tsr_recording_open(path, NULL, &r, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	assert_string_equal(err.msg, "untouched");
	return r;
}

static struct tsr_checkpoint *open_step_ok(const struct tsr_recording *r, size_t index)
{
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { .msg = "untouched" };

	if (tsr_recording_open_step(r, index, &c, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	assert_string_equal(err.msg, "untouched");
	return c;
}

/* Every run of whole elements of @a is what @want has. */
static void expect_elements(const struct tsr_checkpoint *c, const struct tsr_array *a,
			    const void *want, size_t item)
{
	unsigned char *got = malloc(a->nbytes + 1);
	struct tsr_err err;

	assert_non_null(got);
	for (uint64_t from = 0; from <= a->numel; from++) {
		for (uint64_t n = 0; n <= a->numel - from; n++) {
			memset(got, 0xa5, a->nbytes + 1);
			assert_int_equal(tsr_array_read(c, a, from * item, n * item, got, &err),
					 TSR_OK);
			assert_memory_equal(got, (const char *)want + from * item, n * item);
			assert_int_equal(got[n * item], 0xa5);
		}
	}
	free(got);
}

/* --- Ranks ----------------------------------------------------------------------------------- */

/* Against what PyTorch put together of the same gradients. */
static void test_ranks_of_fsdp2(void **state)
{
	const char *const path = RANKS "/whole.safetensors";
	struct tsr_recording *r = open_ok(RANKS);
	struct tsr_checkpoint *whole = NULL;

	(void)state;
	assert_int_equal(tsr_checkpoint_open(&path, 1, NULL, &whole, NULL), TSR_OK);
	assert_int_equal(r->nsteps, 2);
	assert_int_equal(whole->ntensors, 8);
	for (size_t i = 0; i < r->nsteps; i++) {
		struct tsr_checkpoint *c = open_step_ok(r, i);

		assert_int_equal(r->steps[i].nfiles, 3);
		assert_int_equal(c->ntensors, 4);
		for (size_t k = 0; k < c->ntensors; k++) {
			const struct tsr_tensor *t = &c->tensors[k], *want;
			unsigned char bytes[256];
			char name[64];

			assert_ptr_equal(tsr_checkpoint_find(c, t->name), t);
			assert_ptr_equal(tsr_recording_group_of(r, t->name), &r->groups[0]);
			snprintf(name, sizeof(name), "%zu.%s", i + 1, t->name);
			want = tsr_checkpoint_find(whole, name);
			assert_non_null(want);
			assert_int_equal(t->dtype, TSR_BF16);
			assert_true(tsr_tensor_same_shape(t, want));
			assert_true(tsr_tensor_nbytes(t) <= sizeof(bytes));
			assert_int_equal(tsr_array_read(whole, &whole->arrays[want->plane[0]], 0,
							tsr_tensor_nbytes(t), bytes, NULL),
					 TSR_OK);
			expect_elements(c, &c->arrays[t->plane[0]], bytes, 2);
		}
		assert_int_equal(tsr_checkpoint_check_unchanged(c, NULL), TSR_OK);
		tsr_checkpoint_close(c);
	}
	tsr_checkpoint_close(whole);
	tsr_recording_close(r);
}

/* A 5 x 4 tensor in slices of 2, 0, 2 and 1 of the 5, along either dimension. */
static void test_slices_along_either_dimension(void **state)
{
	static const char manifest[] =
		"{\"format\":\"tersor-recording\",\"version\":1,\"steps\":[{\"step\":9,"
		"\"files\":[\"r2\",\"r0\",\"r3\",\"r1\"]}]}";
	static const unsigned sizes[] = { 2, 0, 2, 1 };
	float whole[20], part[20];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(whole); i++)
		whole[i] = (float)i + 0.5f;
	for (unsigned cut = 0; cut < 2; cut++) {
		const unsigned rows = cut ? 4 : 5, columns = cut ? 5 : 4;
		struct tsr_recording *r;
		struct tsr_checkpoint *c;
		unsigned at = 0;

		for (unsigned p = 0; p < COUNT_OF(sizes); p++) {
			const unsigned h = cut ? rows : sizes[p], w = cut ? sizes[p] : columns;
			char name[16], header[512];
			size_t n = 0;

			for (unsigned i = 0; i < h; i++) {
				for (unsigned k = 0; k < w; k++)
					part[n++] = whole[(i + (cut ? 0 : at)) * columns + k +
							  (cut ? at : 0)];
			}
			snprintf(header, sizeof(header),
				 "{\"__metadata__\":{\"DCP_SHARDING_INFO\":"
				 "\"{\\\"w\\\":{\\\"saved_offsets\\\":[%u,%u]}}\"},\"w\":{"
				 "\"dtype\":\"F32\",\"shape\":[%u,%u],\"data_offsets\":[0,%zu]}}",
				 cut ? 0 : at, cut ? at : 0, h, w, 4 * n);
			snprintf(name, sizeof(name), "r%u", p);
			write_tensors(name, header, part, n);
			at += sizes[p];
		}
		write_file("manifest.json", manifest, strlen(manifest));
		r = open_ok(folder);
		c = open_step_ok(r, 0);
		assert_int_equal(c->ntensors, 1);
		assert_int_equal(c->tensors[0].shape[0], rows);
		assert_int_equal(c->tensors[0].shape[1], columns);
		expect_elements(c, &c->arrays[c->tensors[0].plane[0]], whole, 4);
		tsr_checkpoint_close(c);
		tsr_recording_close(r);
	}
}

/* --- Questions -------------------------------------------------------------------------------- */

static void test_groups_of_parameters(void **state)
{
	struct tsr_recording *r = open_ok(TINY);

	(void)state;
	assert_true(r->has_manifest);
	assert_int_equal(r->ngroups, 2);
	for (size_t g = 0; g < r->ngroups; g++) {
		for (size_t i = 0; i < r->groups[g].nparams; i++)
			assert_ptr_equal(tsr_recording_group_of(r, r->groups[g].params[i]),
					 &r->groups[g]);
	}
	assert_null(tsr_recording_group_of(r, ""));
	assert_null(tsr_recording_group_of(r, "h.0.c_attn.weigh"));
	assert_null(tsr_recording_group_of(r, "h.0.c_attn.weight2"));
	assert_null(tsr_recording_group_of(r, "zzz"));
	tsr_recording_close(r);
}

static void test_values_of_a_manifest(void **state)
{
	struct tsr_recording *r = open_ok(TINY);

	(void)state;
	assert_string_equal(r->path, TINY);
	assert_int_equal(r->optimizer, TSR_OPTIMIZER_ADAMW);
	assert_int_equal(r->steps[0].step, 401);
	/* All digits of the manifest count. */
	assert_true(r->steps[0].lr[1] == 0.00021005225639738435);
	assert_true(r->steps[15].loss == 2.266831159591675);
	assert_true(r->groups[0].hyper.value[TSR_HYPER_EPS] == 1e-08);
	assert_true(r->groups[1].hyper.value[TSR_HYPER_BETA2] == 0.95);
	assert_false(tsr_hyper_is_set(&r->groups[0].hyper, TSR_HYPER_LR));
	assert_false(tsr_hyper_is_set(&r->groups[0].hyper, TSR_HYPER_MOMENTUM));
	tsr_recording_close(r);
}

static void test_what_is_a_recording(void **state)
{
	(void)state;
	assert_true(tsr_recording_probe(TINY));
	assert_true(tsr_recording_probe(TINY "/"));
	assert_true(tsr_recording_probe(RANKS));
	assert_false(tsr_recording_probe(TINY "/manifest.json"));
	assert_false(tsr_recording_probe(TINY "/nowhere"));
	assert_false(tsr_recording_probe("tests/data/tiny-gpt/hf"));
	assert_false(tsr_recording_probe("tests/data/tiny-gpt/dcp"));
	assert_false(tsr_recording_probe("tests/data/torch/dcp-2rank"));
	assert_false(tsr_recording_probe("tests/data/tiny-gpt/checkpoint.safetensors"));
	assert_false(tsr_recording_probe(folder));
	write_file("g1.pt", "", 0);
	assert_true(tsr_recording_probe(folder));
	write_file("model.safetensors.index.json", "{}", 2);
	assert_false(tsr_recording_probe(folder));
	write_file("manifest.json", "{\"format\": \"tersor-recording\"", 29);
	assert_true(tsr_recording_probe(folder));
}

static void test_failures_leave_the_outputs_alone(void **state)
{
	struct tsr_recording *const untouched = (struct tsr_recording *)(void *)&state;
	struct tsr_recording *r = untouched;
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };

	assert_int_equal(tsr_recording_open(folder, NULL, &r, &err), TSR_E_UNSUPPORTED);
	assert_ptr_equal(r, untouched);
	assert_int_equal(tsr_recording_open(folder, NULL, &r, NULL), TSR_E_UNSUPPORTED);
	assert_int_equal(tsr_recording_open("/nowhere/at/all", NULL, &r, &err), TSR_E_IO);
	write_file("g1.pt", "", 0);
	r = open_ok(folder);
	assert_int_equal(tsr_recording_open_step(r, 0, &c, NULL), TSR_E_FORMAT);
	assert_int_equal(tsr_recording_open_step(r, 0, &c, &err), TSR_E_FORMAT);
	assert_non_null(strstr(err.msg, "/g1.pt: step 1: "));
	assert_null(c);
	tsr_recording_close(r);
	tsr_recording_close(NULL);
}

/* --- Schedules -------------------------------------------------------------------------------- */

static double *schedule_ok(const char *text, uint64_t first, size_t nsteps, size_t ngroups)
{
	struct tsr_err err = { .msg = "untouched" };
	double *lr = NULL;

	write_file("lr", text, strlen(text));
	if (tsr_schedule_load(path_of("lr"), first, nsteps, ngroups, &lr, &err) != TSR_OK)
		fail_msg("%s: %s", text, err.msg);
	assert_string_equal(err.msg, "untouched");
	return lr;
}

static void expect_rates(const char *text, const double *want, size_t nsteps, size_t ngroups)
{
	double *lr = schedule_ok(text, 3, nsteps, ngroups);

	for (size_t i = 0; i < nsteps * ngroups; i++)
		assert_true(lr[i] == want[i]);
	free(lr);
}

static void test_schedules(void **state)
{
	const double one[] = { 0.5, 0.25 }, two[] = { 0.5, 0.125, 0.25, 0.0 };
	const double same[] = { 0.5, 0.5, 0.25, 0.25 };

	(void)state;
	expect_rates("3 0.5\n4 0.25\n", one, 2, 1);
	expect_rates("4,0.25\n3,0.5", one, 2, 1);
	expect_rates("# step lr\n\n  3\t5e-1  # warm\r\n2 9\n4 .25E0\r\n5 1\n999999 1\n", one, 2,
		     1);
	expect_rates("003 +0.5\n4 0.25\n", one, 2, 1);
	expect_rates("3 0.5 0.125\n4 0.25 0\n", two, 2, 2);
	expect_rates("3, 0.5, 0.125,\n4, 0.25, 0", two, 2, 2);
	expect_rates("3 0.5\n4 0.25\n", same, 2, 2);
	expect_rates("3 0.5\n", one, 1, 1);
	expect_rates("", one, 0, 1);
}

static void expect_schedule_refused(const char *bytes, size_t n, const char *word)
{
	double *const untouched = (double *)(void *)&word;
	double *lr = untouched;
	struct tsr_err err = { 0 };
	enum tsr_status status;

	write_file("lr", bytes, n);
	status = tsr_schedule_load(path_of("lr"), 3, 2, 2, &lr, &err);
	if (status != TSR_E_FORMAT || !strstr(err.msg, word) || lr != untouched)
		fail_msg("%s: status %d, want \"%s\": %s", bytes, (int)status, word, err.msg);
	assert_int_equal(tsr_schedule_load(path_of("lr"), 3, 2, 2, &lr, NULL), TSR_E_FORMAT);
}

static void test_schedules_that_are_refused(void **state)
{
	static const struct {
		const char *text, *word;
	} cases[] = {
		{ "", "step 3" },
		{ "3 1\n", "step 4" },
		{ "4 1\n5 1\n", "step 3" },
		{ "3 1\n4 1\n3 1\n", "line 3: found step 3 again" },
		{ "3 1\n4\n", "line 2: found a list of 0" },
		{ "3 1\n4 1 2 3\n", "line 2: found a list of 3, expected 1 learning rate or 2" },
		{ "1 1 2 3\n3 1\n4 1\n", "line 1: found a list of 3" },
		{ "3 1\n4 -1\n", "line 2: found \"-1\"" },
		{ "3 nan\n4 1\n", "\"nan\"" },
		{ "3 inf\n4 1\n", "\"inf\"" },
		{ "3 1e999\n4 1\n", "\"1e999\"" },
		{ "3 0x1p-3\n4 1\n", "\"0x1p-3\"" },
		{ "3 1e\n4 1\n", "\"1e\"" },
		{ "3 1 e\n4 1\n", "\"e\"" },
		{ "3 1.2.3\n4 1\n", "\"1.2.3\"" },
		{ "3 1;4 1\n", "\"1;4\"" },
		{ "step lr\n3 1\n4 1\n", "line 1: found \"step\"" },
		{ "-3 1\n4 1\n", "\"-3\"" },
		{ "0 1\n3 1\n4 1\n", "\"0\"" },
		{ "3.0 1\n4 1\n", "\"3.0\"" },
		{ "18446744073709551619 1\n3 1\n4 1\n", "line 1" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		expect_schedule_refused(cases[i].text, strlen(cases[i].text), cases[i].word);
	expect_schedule_refused("3 1\n4 1\0\n", 9, "NUL");
}

static void test_schedules_that_cannot_be_read(void **state)
{
	double *lr = NULL;
	struct tsr_err err = { 0 };

	(void)state;
	assert_int_equal(tsr_schedule_load(path_of("none"), 3, 2, 2, &lr, &err), TSR_E_IO);
	assert_int_equal(tsr_schedule_load(folder, 3, 2, 2, &lr, &err), TSR_E_IO);
	write_file("lr", "", 0);
	assert_int_equal(truncate(path_of("lr"), (64 << 20) + 1), 0);
	assert_int_equal(tsr_schedule_load(path_of("lr"), 3, 2, 2, &lr, &err), TSR_E_LIMIT);
	assert_null(lr);
}

static void test_what_a_recording_has_in_all(void **state)
{
	struct tsr_recording *r = open_ok(TINY);
	struct tsr_recording_summary *s = NULL;
	struct tsr_err err = { 0 };

	(void)state;
	assert_int_equal(tsr_recording_summarize(r, &s, &err), TSR_OK);
	assert_ptr_equal(s->recording, r);
	assert_int_equal(s->ngradients, 29);
	assert_string_equal(s->gradients[0].name, "h.0.c_attn.bias");
	assert_ptr_equal(s->gradients[0].group, &r->groups[1]);
	assert_int_equal(s->gradients[0].dtype, TSR_BF16);
	assert_int_equal(s->gradients[0].rank, 1);
	assert_int_equal(s->gradients[0].shape[0], 144);
	assert_int_equal(s->gradients[0].nsteps, 16);
	for (size_t i = 1; i < s->ngradients; i++)
		assert_true(strcmp(s->gradients[i - 1].name, s->gradients[i].name) < 0);
	assert_int_equal(s->steps[15].ntensors, 29);
	assert_int_equal(s->steps[15].nbytes, 168576);
	assert_int_equal(s->steps[15].dtypes, 1u << TSR_BF16);
	assert_int_equal(s->groups[0].nparams, 11);
	assert_int_equal(s->groups[0].numel, 82944);
	assert_int_equal(s->groups[1].nparams, 18);
	assert_int_equal(s->groups[1].numel, 1344);
	assert_int_equal(s->groups[1].lr.n, 16);
	assert_true(s->groups[1].lr.low < s->groups[1].lr.high);
	assert_true(s->groups[1].lr.high == r->steps[0].lr[1]);
	assert_int_equal(s->loss.n, 16);
	assert_int_equal(s->nfiles, 16);
	assert_int_equal(s->nbytes, 16 * 168576);
	assert_int_equal(s->nmissing, 0);
	tsr_recording_summary_free(s);
	tsr_recording_summary_free(NULL);
	tsr_recording_close(r);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks_of_fsdp2),
		IN_FOLDER(test_slices_along_either_dimension),
		cmocka_unit_test(test_groups_of_parameters),
		cmocka_unit_test(test_values_of_a_manifest),
		cmocka_unit_test(test_what_a_recording_has_in_all),
		IN_FOLDER(test_what_is_a_recording),
		IN_FOLDER(test_failures_leave_the_outputs_alone),
		IN_FOLDER(test_schedules),
		IN_FOLDER(test_schedules_that_are_refused),
		IN_FOLDER(test_schedules_that_cannot_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
