/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep as JSON and as comma-separated values. */
#include "report/sweep_report.h"

#include <inttypes.h>

#include "report/sweep_figures.h"
#include "text/json.h"

static void put_row(const struct tsr_sweep_row *row, struct tsr_text *json)
{
	char sum[40];

	for (unsigned i = 0; i < TSR_SWEEP_COUNTS; i++)
		tsr_json_put_u64(json, tsr_sweep_count_name(i), tsr_sweep_get_count(row, i));
	tsr_sweep_format_sum(sum, row->rel_sum);
	tsr_json_put_string(json, "rel_sum", sum);
	tsr_json_put_double(json, "mean_rel", tsr_sweep_row_mean(row));
	tsr_json_put_double(json, "max_rel", (double)row->max_rel);
	tsr_json_put_u64(json, "max_ulp", row->max_ulp);
}

void tsr_sweep_put_json(const struct tsr_sweep *s, struct tsr_text *json)
{
	tsr_json_put_u64(json, "first", s->first);
	tsr_json_put_u64(json, "last", s->last);
	tsr_json_open(json, "codecs", '[');
	for (unsigned c = 0; c < s->ncodecs; c++) {
		const struct tsr_sweep_result *r = &s->results[c];
		const struct tsr_sweep_row finite = tsr_sweep_finite(r);

		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "codec", r->codec->name);
		tsr_json_open(json, "finite", '{');
		put_row(&finite, json);
		tsr_json_close(json, '}');
		tsr_json_open(json, "exponents", '[');
		for (unsigned i = 0; i < TSR_SWEEP_ROWS; i++) {
			if (!r->rows[i].count)
				continue;
			tsr_json_open(json, NULL, '{');
			tsr_json_put_u64(json, "exponent", i);
			put_row(&r->rows[i], json);
			tsr_json_close(json, '}');
		}
		tsr_json_close(json, ']');
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

void tsr_sweep_put_csv(const struct tsr_sweep *s, struct tsr_text *csv)
{
	char sum[40], mean[40], max[40];

	tsr_text_puts(csv, "codec,exponent");
	for (unsigned i = 0; i < TSR_SWEEP_COUNTS; i++)
		tsr_text_printf(csv, ",%s", tsr_sweep_count_name(i));
	tsr_text_puts(csv, ",rel_sum,mean_rel,max_rel,max_ulp\n");
	for (unsigned c = 0; c < s->ncodecs; c++) {
		for (unsigned e = 0; e < TSR_SWEEP_ROWS; e++) {
			const struct tsr_sweep_row *row = &s->results[c].rows[e];

			if (!row->count)
				continue;
			tsr_text_printf(csv, "%s,%u", s->results[c].codec->name, e);
			for (unsigned i = 0; i < TSR_SWEEP_COUNTS; i++)
				tsr_text_printf(csv, ",%" PRIu64, tsr_sweep_get_count(row, i));
			tsr_sweep_format_sum(sum, row->rel_sum);
			tsr_json_format_double(mean, sizeof(mean), tsr_sweep_row_mean(row));
			tsr_json_format_double(max, sizeof(max), (double)row->max_rel);
			tsr_text_printf(csv, ",%s,%s,%s,%" PRIu32 "\n", sum, mean, max,
					row->max_ulp);
		}
	}
}
