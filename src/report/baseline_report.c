/* SPDX-License-Identifier: Apache-2.0 */
/* How a report differs from an earlier one. */
#include "report/reports.h"

/* Changes that are shown unless verbose, and that are kept. */
#define CHANGES_SHOWN 40
#define CHANGES_MAX 10000u

struct moved {
	const struct tsr_baseline *baseline;
	struct tsr_table rows;
};

static void add_change(void *ctx, const struct tsr_baseline_change *c)
{
	struct moved *m = ctx;
	struct tsr_table *t = &m->rows;
	const char *const *keys = m->baseline->names;

	if (t->nrows == CHANGES_MAX)
		return;
	tsr_row(t);
	if (c->name[0])
		TSR_CELL(t, keys[0], "moved:13", tsr_keep(t, c->name[0]));
	if (c->name[1])
		TSR_CELL(t, keys[1], keys[1], (uint64_t)strtoull(c->name[1], NULL, 10));
	TSR_CELL(t, "figure", "figure:n", tsr_keep(t, c->figure));
	TSR_CELL(t, "was", "baseline:22", tsr_keep(t, c->was));
	TSR_CELL(t, "now", "now:22", tsr_keep(t, c->now));
}

void tsr_baseline_report(const struct tsr_baseline *b, const struct tsr_json *was,
			 struct tsr_report *r)
{
	struct moved m = { .baseline = b, .rows = { .most_text = CHANGES_SHOWN } };
	struct tsr_text now = { 0 };
	size_t n = 0;

	tsr_text_put(&now, r->json.bytes, r->json.nbytes);
	tsr_json_close(&now, '}');
	r->text.failed |= r->json.failed || now.failed ||
			  !tsr_baseline_compare(b, was, &now, add_change, &m, &n) || m.rows.failed;
	tsr_text_free(&now);
	if (r->wants_json)
		tsr_table_put_json(&m.rows, "moved", &r->json);
	r->differs = r->differs || n;
	tsr_report_gap(r);
	if (n)
		tsr_report_say(r, TSR_TO_TEXT, "%s %s from the baseline", tsr_format_count(n).text,
			       n == 1 ? "figure differs" : "figures differ");
	else
		tsr_report_say(r, TSR_TO_TEXT, "every figure is as in the baseline");
	tsr_report_table(r, m.rows, "", NULL);
}
