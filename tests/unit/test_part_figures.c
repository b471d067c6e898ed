/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of parts, in memory: what all shares of a sweep found adds up to the whole.
 */
#include "parts/part.h"
#include "sweep/sweep_parts.h"
#include "unit.h"

#define COUNT_MAX 64

static char words[] = "--codec=all";

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
						  .words = { .bytes = words,
							     .nbytes = sizeof(words) },
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
	enum tsr_status status = tsr_part_join("r.json", texts, count, &run.parts, &err);

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares_of_a_sweep_add_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
