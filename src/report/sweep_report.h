/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_SWEEP_REPORT_H
#define TSR_SWEEP_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "text/text.h"
#include "tersor/sweep.h"

/* "tersor.sweep.v1": what a report says it is. */
#define TSR_SWEEP_SCHEMA "tersor.sweep.v1"

/* Whether all members are equal. */
bool tsr_sweep_row_equal(const struct tsr_sweep_row *a, const struct tsr_sweep_row *b);

/* The members "first", "last" and "codecs" of a JSON report. */
void tsr_sweep_put_json(const struct tsr_sweep *s, struct tsr_text *json);

/* The report as comma-separated values: a line per codec and exponent field that has patterns. */
void tsr_sweep_put_csv(const struct tsr_sweep *s, struct tsr_text *csv);

/**
 * tsr_sweep_load() - Read a JSON report back
 * @ret: out: to be freed with tsr_sweep_free(); without codecs that this build does not have
 *
 * Return: TSR_OK; TSR_E_FORMAT for a file that is no report, or whose figures cannot be those of
 * its range or do not add up; TSR_E_UNSUPPORTED for another schema; TSR_E_LIMIT; TSR_E_IO.
 */
enum tsr_status tsr_sweep_load(const char *path, struct tsr_sweep **ret, struct tsr_err *err);

/* A figure that is not what it was. */
struct tsr_sweep_change {
	const char *codec;
	unsigned exponent;
	const char *member;
	char was[40], now[40];
};

/*
 * Every figure of @now that differs in @before, which has all its codecs and its range.
 * *@ret: out: @n_ret changes by codec and exponent, to be freed; NULL when there are none.
 */
enum tsr_status tsr_sweep_compare(const struct tsr_sweep *now, const struct tsr_sweep *before,
				  struct tsr_sweep_change **ret, size_t *n_ret,
				  struct tsr_err *err);

/* The result of the codec with this name, or NULL. */
const struct tsr_sweep_result *tsr_sweep_find(const struct tsr_sweep *s, const char *codec);

#endif
