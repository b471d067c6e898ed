/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of parts, in memory: what all shares of a sweep found adds up to the whole; what a comparison found
 * comes back from its outcome bit for bit; reports that say something else are refused.
 */
#include "parts/part.h"
#include "replay/replay_parts.h"
#include "sweep/sweep_parts.h"
#include "unit.h"

#define COUNT_MAX 64

static const char *const no_args[] = { "--codec=all" };

static const struct tsr_codec *codecs[256];

/* Both signs, infinities and NaN, with ends in the middle of batches. */
static struct tsr_sweep_plan plan_all(uint32_t first, uint32_t last)
{
	struct tsr_sweep_plan plan = { .codecs = codecs, .first = first, .last = last };

	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (!(*c)->grouped)
			codecs[plan.ncodecs++] = *c;
	}
	return plan;
}

/* A part of a sweep; its report is to be freed. */
static struct tsr_text sweep_part(const struct tsr_sweep_plan *plan, unsigned number,
				  unsigned count)
{
	const struct tsr_part_request request = { .number = number,
						  .count = count,
						  .path = "r.json",
						  .command = "sweep",
						  .args = no_args,
						  .nargs = 1,
						  .in_memory = true };
	struct tsr_run run = { .threads = 1 };
	struct tsr_text text = { 0 };
	struct tsr_sweep *s = NULL;
	struct tsr_err err;

	assert_int_equal(tsr_part_new(&request, &run.parts, &err), TSR_OK);
	assert_int_equal(tsr_sweep_in_parts(plan, &run, &s, &err), TSR_PART_DONE);
	assert_null(s);
	tsr_text_put(&text, tsr_part_text(run.parts)->bytes, tsr_part_text(run.parts)->nbytes);
	tsr_part_free(run.parts);
	return text;
}

static enum tsr_status join(const struct tsr_sweep_plan *plan, const struct tsr_text *texts,
			    unsigned count, struct tsr_sweep **ret)
{
	struct tsr_run run = { .threads = 1 };
	struct tsr_err err;
	enum tsr_status status = tsr_part_join_texts("r.json", texts, count, &run.parts, &err);

	if (status != TSR_OK)
		return status;
	status = tsr_sweep_in_parts(plan, &run, ret, &err);
	tsr_part_free(run.parts);
	return status;
}

static void expect_parts_add_up(const struct tsr_sweep_plan *plan, const struct tsr_sweep *whole,
				unsigned count)
{
	struct tsr_text texts[COUNT_MAX];
	struct tsr_sweep *s = NULL;

	for (unsigned i = 0; i < count; i++)
		texts[i] = sweep_part(plan, i + 1, count);
	assert_int_equal(join(plan, texts, count, &s), TSR_OK);
	assert_int_equal(s->ncodecs, plan->ncodecs);
	for (unsigned i = 0; i < s->ncodecs; i++)
		assert_memory_equal(s->results[i].rows, whole->results[i].rows,
				    sizeof(s->results[i].rows));
	tsr_sweep_free(s);
	for (unsigned i = 0; i < count; i++)
		tsr_text_free(&texts[i]);
}

static void test_shares_of_a_sweep_add_up(void **state)
{
	static const uint32_t ranges[][2] = { { 0x3f7ffff1, 0x3f802123 },
					      { 0x7f7ffc0f, 0x7f8003ff },
					      { 0x7fffff00, 0x800013ff },
					      { 0xfffffff0, 0xffffffff },
					      { 0x3f800000, 0x3f800000 } };
	static const unsigned counts[] = { 1, 2, 3, 5, 7, COUNT_MAX };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(ranges); i++) {
		const struct tsr_sweep_plan plan = plan_all(ranges[i][0], ranges[i][1]);
		const struct tsr_run run = { .threads = 1 };
		struct tsr_sweep *whole = NULL;
		struct tsr_err err;

		assert_int_equal(tsr_sweep_in_parts(&plan, &run, &whole, &err), TSR_OK);
		for (size_t j = 0; j < COUNT_OF(counts); j++)
			expect_parts_add_up(&plan, whole, counts[j]);
		tsr_sweep_free(whole);
	}
}

/* Replace each run of hexadecimal digits of what was found by others, or cut it short. */
static void test_other_findings_are_refused_or_added(void **state)
{
	static const char *const others[] = { "",    "0", "100", "ffffffff", "ffffffffffffffff",
					      "1 1", "x" };
	const struct tsr_codec *const one = tsr_codec_find("bf16");
	const struct tsr_sweep_plan plan = {
		.codecs = &one, .ncodecs = 1, .first = 0x3f7ffff0, .last = 0x3f80000f
	};
	struct tsr_text texts[2] = { sweep_part(&plan, 1, 2), sweep_part(&plan, 2, 2) };
	const struct tsr_text good = texts[1];
	const char *found = strstr(good.bytes, "\"found\"");
	unsigned refused = 0;

	(void)state;
	assert_non_null(found);
	for (const char *at = strchr(found, '['); (at = strpbrk(at, "\" ")) != NULL; at++) {
		const size_t n = strspn(at + 1, "0123456789abcdef");

		for (size_t i = 0; n && i < COUNT_OF(others); i++) {
			struct tsr_sweep *s = NULL;

			texts[1] = (struct tsr_text){ 0 };
			tsr_text_put(&texts[1], good.bytes, (size_t)(at + 1 - good.bytes));
			tsr_text_printf(&texts[1], "%s%s", others[i], at + 1 + n);
			refused += join(&plan, texts, 2, &s) == TSR_E_FORMAT;
			tsr_sweep_free(s);
			tsr_text_free(&texts[1]);
		}
	}
	assert_true(refused > 30);
	tsr_text_free(&texts[0]);
	texts[1] = good;
	tsr_text_free(&texts[1]);
}

/* Every bit of a comparison, and nothing of states that are not kept. */
static void test_a_comparison_comes_back(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		struct tsr_compare before, after = { .stalled = 1 };
		struct tsr_text text = { 0 };
		struct tsr_outcome out = { .into = &text }, in;
		uint64_t words[sizeof(before) / 8];

		for (size_t j = 0; j < COUNT_OF(words); j++)
			words[j] = random_u64(&seed);
		memcpy(&before, words, sizeof(before));
		for (unsigned part = 0; part < TSR_PARTS; part++) {
			if (i & 1u << part)
				memset(&before.state[part], 0, sizeof(before.state[part]));
		}
		tsr_compare_outcome(&before, &out);
		in = (struct tsr_outcome){ .from = text.bytes };
		tsr_compare_outcome(&after, &in);
		assert_true(tsr_outcome_is_complete(&in));
		assert_memory_equal(&before, &after, sizeof(before));
		tsr_text_free(&text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares_of_a_sweep_add_up),
		cmocka_unit_test(test_other_findings_are_refused_or_added),
		cmocka_unit_test(test_a_comparison_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
