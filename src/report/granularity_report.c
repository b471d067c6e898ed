/* SPDX-License-Identifier: Apache-2.0 */
/* Reports on 8-bit floats by granularity. */
#include "report/reports.h"

#include "tersor/version.h"

/* Tensors in the text unless it is verbose, and in a page. */
#define TENSORS_SHOWN 10
#define TENSORS_IN_PAGE 1000

/* --- What to use ------------------------------------------------------------------------------ */

static void put_verdict(const struct tsr_granularity_figures *f, struct tsr_text *out)
{
	const struct tsr_granularity_row *used = &f->row[f->enough];
	const struct tsr_granularity_row *whole = &f->row[tsr_granularity_whole(f->enough)];

	if (!f->ntensors)
		return;
	tsr_text_printf(
		out,
		"Use %s with one scale per %s (%.3f bytes per element): the largest NMSE of "
		"a tensor is %.1e. ",
		tsr_fp8_title(f->enough), used->granularity->name, used->bytes, used->worst);
	if (whole->nfar)
		tsr_text_printf(out,
				"With one scale per %s %s of %s tensors lose much more than with ",
				whole->granularity->name, tsr_format_count(whole->nfar).text,
				tsr_format_count(f->ntensors).text);
	else
		tsr_text_puts(out, "No tensor loses much more than with ");
	tsr_text_printf(out,
			"one scale per %s: twice the NMSE, or 1%% more of its elements are zeroed.",
			tsr_granularity_get(tsr_granularity_reference(0))->name);
}

/* --- Tables ----------------------------------------------------------------------------------- */

/* A row for each granularity from @first on. */
static struct tsr_table rows_of(const struct tsr_granularity_figures *f, unsigned first, unsigned n)
{
	struct tsr_table t = { 0 };

	for (unsigned i = first; i < first + n; i++) {
		const struct tsr_granularity_row *row = &f->row[i];
		const struct tsr_granularity_tensor *worst = row->worst_tensor;

		tsr_row(&t);
		TSR_CELL(&t, "format", NULL, row->granularity->format);
		TSR_CELL(&t, "granularity", "one scale per", row->granularity->name);
		TSR_CELL(&t, "bytes_per_element", "bytes\nper element:.4f", row->bytes);
		TSR_CELL(&t, "median_nmse", "median\nNMSE:.2e", row->median);
		TSR_CELL(&t, "largest_nmse", "largest\nNMSE:.2e", row->worst);
		TSR_CELL(&t, "largest_of", NULL, worst ? worst->tensor->name : NULL);
		TSR_CELL(&t, "zeroed", NULL, row->zeroed);
		TSR_CELL(&t, "far", NULL, row->nfar);
		TSR_CELL(&t, "-zeroed", "zeroed\n%:.4%", tsr_share(row->zeroed, f->elements));
	}
	return t;
}

static struct tsr_table errors_of(const struct tsr_granularity_tensor *x)
{
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT && x->floating && !x->nonfinite; i++) {
		const struct tsr_granularity *g = tsr_granularity_get(i);
		const struct tsr_granularity_error *e = &x->error[i];

		tsr_row(&t);
		TSR_CELL(&t, "-tensor", NULL, x->tensor->name);
		TSR_CELL(&t, "-dtype", NULL, tsr_dtype_name(x->tensor->dtype));
		TSR_CELL(&t, "-rows", NULL, x->rows);
		TSR_CELL(&t, "-columns", NULL, x->columns);
		TSR_CELL(&t, "format", NULL, g->format);
		TSR_CELL(&t, "granularity", NULL, g->name);
		TSR_CELL(&t, "nmse", NULL, e->nmse);
		TSR_CELL(&t, "max_abs", NULL, e->max_abs);
		TSR_CELL(&t, "zeroed", NULL, e->zeroed);
		TSR_CELL(&t, "nbytes", NULL, e->nbytes);
	}
	return t;
}

/* The tensors that count, those first that lose most with one scale, in E4M3 by granularity. */
static void report_tensors(struct tsr_report *r, const struct tsr_granularities *g)
{
	struct tsr_table t = { .most_text = TENSORS_SHOWN, .most_page = TENSORS_IN_PAGE };
	char head[32];

	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++) {
		const struct tsr_granularity_tensor *x = tsr_granularities_tensor(g, i);

		if (!tsr_granularity_counts(x))
			continue;
		tsr_row(&t);
		tsr_rank(&t, x->error[0].nmse);
		TSR_CELL(&t, "name", "tensor:n", x->tensor->name);
		TSR_CELL(&t, "max", "max |x|:.1e", x->max);
		for (unsigned c = 0; c < TSR_GRANULARITY_SIZES; c++) {
			const char *name = tsr_granularity_get(c)->name;

			snprintf(head, sizeof(head), "%s:.2e", name);
			TSR_CELL(&t, name, head, x->error[c].nmse);
		}
	}
	tsr_table_sort(&t);
	tsr_report_heading(r, TSR_TO_BOTH,
			   "E4M3: NMSE of tensors by granularity, the largest first");
	tsr_report_table(r, t, "name,max,tensor,1x128,1x16,4x4", "");
}

/* --- For people ------------------------------------------------------------------------------- */

static void say_count(struct tsr_report *r, size_t n, const char *what)
{
	if (n)
		tsr_report_say(r, TSR_TO_BOTH, "%s tensor%s %s", tsr_format_count(n).text,
			       n == 1 ? "" : "s", what);
}

static void report_people(struct tsr_report *r, const struct tsr_granularities *g,
			  const struct tsr_granularity_figures *f, enum tsr_granularity_scale scale)
{
	static const char *const rules[TSR_GRANULARITY_SCALE_COUNT] = {
		[TSR_GRANULARITY_BF16] = "scales rounded up to BF16",
		[TSR_GRANULARITY_F32] = "scales in FP32",
		[TSR_GRANULARITY_COAT] = "scales as in COAT's program: FP32 divides, BF16 decodes",
	};
	static const char columns[] =
		"granularity,bytes_per_element,median_nmse,largest_nmse,-zeroed";
	struct tsr_text verdict = { 0 };

	tsr_report_open(r, "tersor audit", "8-bit floats by granularity");
	put_verdict(f, &verdict);
	r->text.failed |= verdict.failed;
	if (verdict.nbytes)
		tsr_report_find(r, TSR_TO_BOTH, "fine", NULL, verdict.bytes);
	tsr_text_free(&verdict);
	tsr_report_say(r, TSR_TO_PAGE, "%s; made by tersor " TSR_VERSION,
		       tsr_checkpoint_path(tsr_granularities_checkpoint(g)));
	if (f->ntensors) {
		tsr_report_gap(r);
		tsr_report_say(r, TSR_TO_BOTH, "%s tensor%s, %s elements, %s",
			       tsr_format_count(f->ntensors).text, f->ntensors == 1 ? "" : "s",
			       tsr_format_count(f->elements).text, rules[scale]);
		tsr_report_charts(r, tsr_granularity_chart_put, f);
		for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i += TSR_GRANULARITY_SIZES) {
			tsr_report_heading(r, TSR_TO_BOTH, "%s over tensors", tsr_fp8_title(i));
			tsr_report_table(r, rows_of(f, i, TSR_GRANULARITY_SIZES), columns, columns);
		}
		report_tensors(r, g);
	}
	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++) {
		const struct tsr_granularity_tensor *t = tsr_granularities_tensor(g, i);

		if (t->floating && t->nonfinite)
			tsr_report_say(r, TSR_TO_BOTH,
				       "%s: %s NaN or infinite elements as FP32: not measured",
				       tsr_format_name(t->tensor->name, 30).text,
				       tsr_format_count(t->nonfinite).text);
	}
	say_count(r, f->nzero, "of zeros alone: not in these figures");
	say_count(r, f->nempty, "without elements: not in these figures");
	say_count(r, f->nother, "of other types: not measured");
	tsr_report_close(r, NULL);
}

/* --- For programs ----------------------------------------------------------------------------- */

static void put_json(const struct tsr_granularities *g, const struct tsr_granularity_figures *f,
		     enum tsr_granularity_scale scale, struct tsr_text *json)
{
	tsr_json_put_string(json, "scale", tsr_granularity_scale_name(scale));
	tsr_json_put_u64(json, "counted", f->ntensors);
	tsr_json_put_u64(json, "elements", f->elements);
	if (f->ntensors) {
		tsr_json_open(json, "verdict", '{');
		tsr_json_put_string(json, "format", tsr_granularity_get(f->enough)->format);
		tsr_json_put_string(json, "granularity", tsr_granularity_get(f->enough)->name);
		tsr_json_close(json, '}');
	}
	tsr_table_end_json(rows_of(f, 0, TSR_GRANULARITY_COUNT), "over_tensors", json);
	tsr_json_open(json, "tensors", '[');
	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++) {
		const struct tsr_granularity_tensor *x = tsr_granularities_tensor(g, i);
		const bool measured = x->floating && !x->nonfinite;

		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "name", x->tensor->name);
		tsr_json_put_string(json, "dtype", tsr_dtype_name(x->tensor->dtype));
		tsr_json_put_u64s(json, "shape", x->tensor->shape, x->tensor->rank);
		tsr_json_put_bool(json, "measured", measured);
		if (x->floating) {
			tsr_json_put_u64(json, "rows", x->rows);
			tsr_json_put_u64(json, "columns", x->columns);
			tsr_json_put_u64(json, "nonfinite", x->nonfinite);
			tsr_json_put_double(json, "max", x->max);
		}
		if (measured)
			tsr_table_end_json(errors_of(x), "errors", json);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

void tsr_granularity_report(const struct tsr_granularities *g,
			    const struct tsr_granularity_figures *f,
			    enum tsr_granularity_scale scale, struct tsr_report *r)
{
	report_people(r, g, f, scale);
	if (r->wants_csv)
		tsr_text_puts(&r->csv, "tensor,dtype,rows,columns,format,granularity,nmse,max_abs,"
				       "zeroed,nbytes\n");
	for (size_t i = 0; i < tsr_granularities_ntensors(g) && r->wants_csv; i++)
		tsr_table_end_csv(errors_of(tsr_granularities_tensor(g, i)),
				  "-tensor,-dtype,-rows,-columns,format,granularity,nmse,max_abs,"
				  "zeroed,nbytes",
				  &r->csv);
	tsr_report_svg(r, "granularity", tsr_granularity_chart_put, f);
	if (r->wants_json)
		put_json(g, f, scale, &r->json);
}
