/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of sweeps of a function of somebody else's library. */
#include "report/reports.h"

#include "codec/math.h"
#include "codec/narrow.h"

/* Figures of a row; @next: the exponent behind those that have them, 0: they are of all exponents. */
static void add_row(struct tsr_table *t, const struct tsr_results_row *row, unsigned e,
		    unsigned next)
{
	tsr_row(t);
	if (next)
		TSR_CELL(t, "exponent", NULL, e);
	tsr_cell_exponents(t, "exponent", e, next);
	TSR_CELL(t, "count", NULL, row->count);
	TSR_CELL(t, "different", "different:,", row->different);
	TSR_CELL(t, "nan", "one is NaN:,", row->nan);
	TSR_CELL(t, "max_ulp", "max ULP:,", row->max_ulp);
	TSR_CELL(t, "worst", "worst input",
		 row->different > row->nan ? tsr_keepf(t, "0x%08" PRIx32, row->worst) : NULL);
}

/* @together: those without a difference are left out, and neighbours with the same figures share a row. */
static struct tsr_table exponents_of(const struct tsr_results *f, bool together)
{
	struct tsr_table t = { 0 };

	for (unsigned e = 0, next; e < TSR_SWEEP_ROWS; e = next) {
		const struct tsr_results_row *row = &f->rows[e], *other;

		for (next = e + 1; together && e && next + 1 < TSR_SWEEP_ROWS; next++) {
			other = &f->rows[next];
			if (row->different != other->different || row->nan != other->nan ||
			    row->max_ulp != other->max_ulp)
				break;
		}
		if (together ? row->different : row->count)
			add_row(&t, row, e, next);
	}
	return t;
}

/* What the bits of a result mean. */
static double value_of(enum tsr_dtype out, uint32_t bits)
{
	const uint16_t half = (uint16_t)bits;
	float x;

	if (out == TSR_U8)
		return bits;
	if (out == TSR_F32)
		return (double)tsr_f32_from_bits(bits);
	tsr_widen(out, &half, 1, &x);
	return (double)x;
}

static void put_result(struct tsr_table *t, enum tsr_dtype out, const char *key, const char *value,
		       uint32_t bits)
{
	const int digits = (int)tsr_dtype_bits(out) / 4;

	TSR_CELL(t, key, NULL, tsr_keepf(t, "0x%0*" PRIx32, digits, bits));
	TSR_CELL(t, value, NULL, value_of(out, bits));
	TSR_CELL(t, tsr_keepf(t, "-%s", key), key,
		 tsr_keepf(t, "0x%0*" PRIx32 " %.9g", digits, bits, value_of(out, bits)));
}

static struct tsr_table first_of(const struct tsr_results *f, enum tsr_dtype out)
{
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < f->nfirst; i++) {
		const struct tsr_different *r = &f->first[i];

		tsr_row(&t);
		put_result(&t, TSR_F32, "input", "input_value", r->input);
		put_result(&t, out, "found", "found_value", r->found);
		put_result(&t, out, "expected", "expected_value", r->expected);
		if (r->nan)
			TSR_CELL(&t, "ulp", NULL, (const char *)NULL);
		else
			TSR_CELL(&t, "ulp", "ULP:,", r->ulp);
	}
	return t;
}

static const char *against_of(const struct tsr_results_plan *a)
{
	return a->against ? a->against : a->codec->name;
}

static void put_json(const struct tsr_results_plan *a, const struct tsr_results *f,
		     struct tsr_text *json)
{
	const struct tsr_results_row total = tsr_results_total(f);
	struct tsr_table all = { 0 };

	tsr_json_put_string(json, "file", a->library);
	tsr_json_put_string(json, "symbol", a->symbol);
	tsr_json_put_string(json, "out", a->out_name);
	tsr_json_put_string(json, "against", against_of(a));
	tsr_json_put_u64(json, "first", a->first);
	tsr_json_put_u64(json, "last", a->last);
	add_row(&all, &total, 0, 0);
	tsr_table_end_members(all, json);
	tsr_table_end_json(exponents_of(f, false), "exponents", json);
	tsr_table_end_json(first_of(f, a->out), "first_different", json);
}

void tsr_results_report(const struct tsr_results_plan *a, const struct tsr_results *f,
			struct tsr_report *r)
{
	const struct tsr_results_row total = tsr_results_total(f);
	const struct tsr_cell patterns = tsr_format_count(total.count);

	tsr_report_open(r, "tersor sweep", "A function of FP32 numbers");
	tsr_report_say(r, TSR_TO_BOTH,
		       "%s of %s against %s: %s bit patterns, 0x%08" PRIx32 " to 0x%08" PRIx32,
		       a->symbol, tsr_format_name(a->library, 40).text, against_of(a),
		       patterns.text, a->first, a->last);
	if (!total.different)
		tsr_report_say(r, TSR_TO_BOTH, "every result is the same");
	else
		tsr_report_say(r, TSR_TO_BOTH,
			       "%s results differ, %s of them as one is NaN; the others by up to "
			       "%s ULP",
			       tsr_format_count(total.different).text,
			       tsr_format_count(total.nan).text,
			       tsr_format_count(total.max_ulp).text);
	if (total.different) {
		tsr_report_heading(r, TSR_TO_BOTH, "First differing results");
		tsr_report_table(r, first_of(f, a->out), "-input,-found,-expected,ulp",
				 "-input,-found,-expected,ulp");
		tsr_report_heading(r, TSR_TO_BOTH, "By exponent of the input");
		tsr_report_table(r, exponents_of(f, true), "", "");
	}
	tsr_report_close(r, NULL);
	if (r->wants_csv) {
		tsr_text_puts(&r->csv, "exponent,count,different,nan,max_ulp,worst\n");
		tsr_table_end_csv(exponents_of(f, false),
				  "exponent,count,different,nan,max_ulp,worst", &r->csv);
	}
	if (r->wants_json)
		put_json(a, f, &r->json);
}
