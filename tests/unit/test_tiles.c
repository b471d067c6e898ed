/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles cover every unit of every tensor once, in order; progress adds up and cancels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/progress.h"
#include "base/tiles.h"

static const uint64_t units[] = { 0, 1, 7, 8, 9, 0, 0, 64, 17 };
static const uint64_t per_tile[] = { 4, 8, 8, 8, 8, 1, 5, 16, 1 };
#define N (sizeof(units) / sizeof(*units))

static void test_tiles_cover_every_unit_once_and_in_order(void **state)
{
	struct tsr_tiles tiles;
	struct tsr_err err;
	uint64_t job = 0;

	(void)state;
	assert_int_equal(tsr_tiles_init(&tiles, N, "tiles", &err), TSR_OK);
	for (size_t i = 0; i < N; i++)
		tsr_tiles_add(&tiles, units[i], per_tile[i]);
	for (size_t i = 0; i < N; i++) {
		uint64_t next = 0;
		bool last = false;

		while (!last) {
			const struct tsr_tile tile = tsr_tiles_get(&tiles, job++);

			assert_int_equal(tile.tensor, i);
			assert_int_equal(tile.first, next);
			assert_true(tile.n <= per_tile[i]);
			assert_true(tile.n > 0 || units[i] == 0);
			next += tile.n;
			last = tile.last;
		}
		assert_int_equal(next, units[i]);
	}
	assert_int_equal(job, tiles.njobs);
	tsr_tiles_free(&tiles);
	assert_null(tiles.spans);
	tsr_tiles_free(&tiles);
}

static void test_sizes_past_32_bits(void **state)
{
	const uint64_t many = (UINT64_C(1) << 40) + 3;
	struct tsr_tiles tiles;
	struct tsr_tile tile;
	struct tsr_err err;

	(void)state;
	assert_int_equal(tsr_tiles_init(&tiles, 2, "tiles", &err), TSR_OK);
	tsr_tiles_add(&tiles, many, UINT64_C(1) << 20);
	tsr_tiles_add(&tiles, 1, 1);
	assert_int_equal(tiles.njobs, (UINT64_C(1) << 20) + 2);
	tile = tsr_tiles_get(&tiles, UINT64_C(1) << 20);
	assert_int_equal(tile.tensor, 0);
	assert_int_equal(tile.first, UINT64_C(1) << 40);
	assert_int_equal(tile.n, 3);
	assert_true(tile.last);
	assert_int_equal(tsr_tiles_get(&tiles, tiles.njobs - 1).tensor, 1);
	tsr_tiles_free(&tiles);
}

static bool stop_at_half(void *ctx, uint64_t done, uint64_t total)
{
	uint64_t *seen = ctx;

	*seen = done;
	return 2 * done < total;
}

static void test_progress_adds_up_and_cancels(void **state)
{
	uint64_t seen = 0;
	const struct tsr_run run = { .progress = stop_at_half, .ctx = &seen };
	struct tsr_progress p = { .run = &run, .what = "file", .total_nbytes = 100 };
	struct tsr_progress silent = { .run = NULL, .what = "file", .total_nbytes = 1 };
	struct tsr_err err = { 0 };

	(void)state;
	assert_int_equal(tsr_progress_add(&p, 30, &err), TSR_OK);
	assert_int_equal(tsr_progress_add(&p, 19, &err), TSR_OK);
	assert_int_equal(seen, 49);
	assert_int_equal(tsr_progress_add(&p, 1, &err), TSR_E_CANCELLED);
	assert_string_equal(err.msg, "file: cancelled");
	assert_int_equal(tsr_progress_add(&silent, 5, &err), TSR_OK);
	assert_int_equal(silent.done_nbytes, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tiles_cover_every_unit_once_and_in_order),
		cmocka_unit_test(test_sizes_past_32_bits),
		cmocka_unit_test(test_progress_adds_up_and_cancels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
