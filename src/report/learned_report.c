/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of what was learned: blocks and a codebook. */
#include "report/reports.h"

static void add_tensor(struct tsr_table *t, const struct tsr_learned_tensor *x)
{
	tsr_row(t);
	TSR_CELL(t, "name", "parameter:n", x->name);
	TSR_CELL(t, "elements", "elements:,", x->numel);
	TSR_CELL(t, "period", "period", x->period);
	TSR_CELL(t, "block", "block", x->block);
	TSR_CELL(t, "counted", "counted", x->counted);
}

static void report_people(const struct tsr_learned *l, struct tsr_report *r)
{
	double bytes = 0, elements = 0;
	struct tsr_table t = { 0 };
	uint64_t values = 0;

	for (size_t i = 0; i < l->ntensors; i++) {
		const struct tsr_learned_tensor *x = &l->tensors[i];

		add_tensor(&t, x);
		/* Of both moments. */
		bytes += (1 + 4.0 / x->block + 4.0 / x->period) * (double)x->numel;
		elements += (double)x->numel;
	}
	for (unsigned i = 0; i < TSR_LEARNED_BINS; i++)
		values += l->count[i];
	tsr_report_table(r, t, "", NULL);
	tsr_report_gap(r);
	tsr_report_say(r, TSR_TO_TEXT,
		       "%d entries learned from %s values in %u of %d bins, NMSE %.4e",
		       TSR_CODEBOOK_ENTRIES, tsr_format_count(values).text, l->nonempty,
		       TSR_LEARNED_BINS, l->nmse);
	tsr_report_say(r, TSR_TO_TEXT, "%.4g bytes per parameter for both moments",
		       bytes / elements);
	for (unsigned i = 0; r->verbose && i < TSR_CODEBOOK_ENTRIES; i++)
		tsr_text_printf(&r->text, "%s%13.9g%s", i == 0 ? "\n" : "", (double)l->codebook[i],
				i % 6 == 5 || i == TSR_CODEBOOK_ENTRIES - 1 ? "\n" : "");
}

static void put_json(const struct tsr_learned *l, struct tsr_text *json)
{
	double entries[TSR_CODEBOOK_ENTRIES];

	for (unsigned i = 0; i < TSR_CODEBOOK_ENTRIES; i++)
		entries[i] = (double)l->codebook[i];
	tsr_json_open(json, "tensors", '[');
	for (size_t i = 0; i < l->ntensors; i++) {
		const struct tsr_learned_tensor *x = &l->tensors[i];
		struct tsr_table t = { 0 }, candidates = { 0 };

		add_tensor(&t, x);
		for (size_t k = 0; k < x->ncandidates; k++) {
			tsr_row(&candidates);
			TSR_CELL(&candidates, "length", NULL, x->candidates[k].length);
			TSR_CELL(&candidates, "score", NULL, x->candidates[k].score);
		}
		tsr_json_open(json, NULL, '{');
		tsr_table_end_members(t, json);
		tsr_table_end_json(candidates, "candidates", json);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_put_u64s(json, "counts", l->count, TSR_LEARNED_BINS);
	tsr_json_put_u64(json, "nonempty", l->nonempty);
	tsr_json_put_doubles(json, "codebook", entries, TSR_CODEBOOK_ENTRIES);
	tsr_json_put_double(json, "nmse", l->nmse);
}

void tsr_learned_report(const struct tsr_learned *l, struct tsr_report *r)
{
	report_people(l, r);
	tsr_report_svg(r, "codebook", tsr_codebook_put, l);
	if (r->wants_json)
		put_json(l, &r->json);
}
