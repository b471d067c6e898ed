/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that sweep shows. */
#include "cli/sweep_table.h"

#include <stdio.h>

#include "cli/output.h"

/* Lines of a table of changes without -v. */
#define CHANGES_SHOWN 40

/* A share in percent; 100 and 0 only where it is all and none. */
static void format_share(char out[16], uint64_t part, uint64_t whole)
{
	const double percent = whole ? 100.0 * (double)part / (double)whole : 0;

	if (!whole)
		snprintf(out, 16, "-");
	else if (part == whole || part == 0)
		snprintf(out, 16, "%s", part ? "100" : "0");
	else
		snprintf(out, 16, "%.4f",
			 percent > 99.9999  ? 99.9999
			 : percent < 0.0001 ? 0.0001
					    : percent);
}

static void format_error(char out[16], double value)
{
	snprintf(out, 16, value > 0 ? "%.3e" : "0", value);
}

/* The columns that totals and exponents have in common. */
static void print_figures(const struct tsr_sweep_row *row)
{
	char exact[16], mean[16], max[16], ulp[32], overflow[16];

	format_share(exact, row->exact, row->count);
	format_share(overflow, row->overflow, row->count);
	format_error(mean, tsr_sweep_row_mean(row));
	format_error(max, (double)row->max_rel);
	cli_format_count(ulp, sizeof(ulp), row->max_ulp);
	printf("%9s  %10s %10s %13s %9s\n", exact, mean, max, ulp, overflow);
}

static void print_head(const char *first, const char *second)
{
	printf("%-13s %8s %9s  %10s %10s %13s %9s\n", first, second, "exact, %", "mean rel",
	       "max rel", "max ULP", "over, %");
}

static void print_totals(const struct tsr_sweep *s)
{
	print_head("codec", "bytes");
	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_sweep_result *r = &s->results[i];
		const struct tsr_coding coding = tsr_coding_default(r->codec);
		const struct tsr_sweep_row finite = tsr_sweep_finite(r);

		printf("%-13s %8.5g ", r->codec->name, tsr_coding_bytes_per_element(&coding));
		print_figures(&finite);
	}
}

/* Rows of exponents with the same figures are one line. */
static void print_exponents(const struct tsr_sweep_result *r)
{
	char field[24], power[24];

	printf("\n%s\n", r->codec->name);
	print_head("exponent", "2^");
	for (unsigned e = 0, next; e < TSR_SWEEP_ROWS; e = next) {
		next = e + 1;
		if (!r->rows[e].count)
			continue;
		while (next + 1 < TSR_SWEEP_ROWS && e &&
		       tsr_sweep_row_equal(&r->rows[e], &r->rows[next]))
			next++;
		if (next == e + 1) {
			snprintf(field, sizeof(field), "%u", e);
			snprintf(power, sizeof(power), "%d", (int)e - 127);
		} else {
			snprintf(field, sizeof(field), "%u to %u", e, next - 1);
			snprintf(power, sizeof(power), "%d..%d", (int)e - 127, (int)next - 128);
		}
		printf("%-13s %8s ", field, e == 0 ? "subnorm." : e == 255 ? "Inf, NaN" : power);
		print_figures(&r->rows[e]);
	}
}

/* Losses that no codec should have: they are not in the table. */
static void print_oddities(const struct tsr_sweep_result *r)
{
	const struct tsr_sweep_row finite = tsr_sweep_finite(r);
	const struct tsr_sweep_row *special = &r->rows[TSR_SWEEP_ROWS - 1];

	if (finite.nan_out)
		printf("%s: %llu finite values come back as NaN\n", r->codec->name,
		       (unsigned long long)finite.nan_out);
	if (special->nan_in != special->nan_out)
		printf("%s: %llu NaN go in, %llu come back\n", r->codec->name,
		       (unsigned long long)special->nan_in, (unsigned long long)special->nan_out);
}

void cli_sweep_print(const struct tsr_sweep *s, bool verbose)
{
	char patterns[32];

	cli_format_count(patterns, sizeof(patterns), (uint64_t)s->last - s->first + 1);
	printf("%s bit patterns, 0x%08x to 0x%08x; shares are of the finite ones\n\n", patterns,
	       s->first, s->last);
	print_totals(s);
	for (unsigned i = 0; i < s->ncodecs; i++)
		print_oddities(&s->results[i]);
	for (unsigned i = 0; i < s->ncodecs && verbose; i++)
		print_exponents(&s->results[i]);
}

void cli_sweep_print_moved(const struct tsr_sweep_change *changes, size_t n, bool verbose)
{
	const size_t shown = verbose || n <= CHANGES_SHOWN ? n : CHANGES_SHOWN;

	if (!n) {
		printf("\nevery figure is as in the baseline\n");
		return;
	}
	printf("\n%-13s %8s  %-9s %22s %22s\n", "moved", "exponent", "figure", "baseline", "now");
	for (size_t i = 0; i < shown; i++)
		printf("%-13s %8u  %-9s %22s %22s\n", changes[i].codec, changes[i].exponent,
		       changes[i].member, changes[i].was, changes[i].now);
	if (shown < n)
		printf("... and %zu more, which -v shows\n", n - shown);
}
