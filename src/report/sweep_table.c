/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a sweep. */

#include <inttypes.h>
#include <stdio.h>

#include "report/format.h"
#include "report/sweep_figures.h"
#include "report/sweep_report.h"

/* The most changes shown unless verbose. */
#define CHANGES_SHOWN 40

static struct tsr_cell format_error(double value)
{
	struct tsr_cell out;

	snprintf(out.text, sizeof(out.text), value > 0 ? "%.3e" : "0", value);
	return out;
}

/* The columns that totals and exponents have in common. */
static void put_figures(struct tsr_text *out, const struct tsr_sweep_row *row)
{
	tsr_text_printf(
		out, "%9s  %10s %10s %13s %9s\n", tsr_format_percent(row->exact, row->count).text,
		format_error(tsr_sweep_row_mean(row)).text, format_error((double)row->max_rel).text,
		tsr_format_count(row->max_ulp).text,
		tsr_format_percent(row->overflow, row->count).text);
}

static void put_head(struct tsr_text *out, const char *first, const char *second)
{
	tsr_text_printf(out, "%-13s %8s %9s  %10s %10s %13s %9s\n", first, second, "exact, %",
			"mean rel", "max rel", "max ULP", "over, %");
}

static void put_totals(struct tsr_text *out, const struct tsr_sweep *s)
{
	put_head(out, "codec", "bytes");
	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_sweep_result *r = &s->results[i];
		const struct tsr_coding coding = tsr_coding_default(r->codec);
		const struct tsr_sweep_row finite = tsr_sweep_finite(r);

		tsr_text_printf(out, "%-13s %8.5g ", r->codec->name,
				tsr_coding_bytes_per_element(&coding));
		put_figures(out, &finite);
	}
}

/* Consecutive exponents with the same figures share a line. */
static void put_exponents(struct tsr_text *out, const struct tsr_sweep_result *r)
{
	char field[24], power[24];

	tsr_text_printf(out, "\n%s\n", r->codec->name);
	put_head(out, "exponent", "2^");
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
		tsr_text_printf(out, "%-13s %8s ", field,
				e == 0	   ? "subnorm."
				: e == 255 ? "Inf, NaN"
					   : power);
		put_figures(out, &r->rows[e]);
	}
}

/* Losses that no codec should have; the table does not show them. */
static void put_oddities(struct tsr_text *out, const struct tsr_sweep_result *r)
{
	const struct tsr_sweep_row finite = tsr_sweep_finite(r);
	const struct tsr_sweep_row *special = &r->rows[TSR_SWEEP_ROWS - 1];

	if (finite.nan_out)
		tsr_text_printf(out, "%s: %" PRIu64 " finite values come back as NaN\n",
				r->codec->name, finite.nan_out);
	if (special->nan_in != special->nan_out)
		tsr_text_printf(out, "%s: %" PRIu64 " NaN go in, %" PRIu64 " come back\n",
				r->codec->name, special->nan_in, special->nan_out);
}

void tsr_sweep_put_table(const struct tsr_sweep *s, bool verbose, struct tsr_text *out)
{
	tsr_text_printf(out, "%s bit patterns, 0x%08x to 0x%08x; shares are of the finite ones\n\n",
			tsr_format_count((uint64_t)s->last - s->first + 1).text, s->first, s->last);
	put_totals(out, s);
	for (unsigned i = 0; i < s->ncodecs; i++)
		put_oddities(out, &s->results[i]);
	for (unsigned i = 0; i < s->ncodecs && verbose; i++)
		put_exponents(out, &s->results[i]);
}

void tsr_sweep_put_changes(const struct tsr_sweep_change *changes, size_t n, bool verbose,
			   struct tsr_text *out)
{
	const size_t shown = verbose || n <= CHANGES_SHOWN ? n : CHANGES_SHOWN;

	if (!n) {
		tsr_text_printf(out, "\nevery figure is as in the baseline\n");
		return;
	}
	tsr_text_printf(out, "\n%-13s %8s  %-9s %22s %22s\n", "moved", "exponent", "figure",
			"baseline", "now");
	for (size_t i = 0; i < shown; i++)
		tsr_text_printf(out, "%-13s %8u  %-9s %22s %22s\n", changes[i].codec,
				changes[i].exponent, changes[i].member, changes[i].was,
				changes[i].now);
	if (shown < n)
		tsr_text_printf(out, "... and %zu more, which -v shows\n", n - shown);
}
