/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit floats by granularity as a table, as JSON and as comma-separated values. */
#include "report/audit/granularity_report.h"

#include <inttypes.h>
#include <stdlib.h>

#include "report/format.h"
#include "text/json.h"

/* Tensors in the table unless verbose. */
#define TENSORS_SHOWN 10

/* Granularities of the table of tensors: those that COAT compares. */
static const unsigned shown[] = { 0, 1, 4, 8 };

#define NSHOWN (sizeof(shown) / sizeof(*shown))

/* --- Table ------------------------------------------------------------------------------------- */

static void put_over_tensors(const struct tsr_granularity_figures *f, struct tsr_text *out)
{
	tsr_text_printf(out, "\n%-11s %9s  %-27s  %s\n", "", "bytes per", "E4M3: NMSE over tensors",
			"E5M2: NMSE over tensors");
	tsr_text_printf(out, "%-11s %9s", "one scale", "element");
	for (int i = 0; i < TSR_FP8_COUNT; i++)
		tsr_text_printf(out, "  %8s %9s %8s", "median", "largest", "zeroed %");
	tsr_text_puts(out, "\n");
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++) {
		tsr_text_printf(out, "per %-7s %9.4f", tsr_granularity_get(i)->name,
				tsr_granularity_cost(f, TSR_FP8_E4M3, i));
		for (int format = 0; format < TSR_FP8_COUNT; format++) {
			const struct tsr_granularity_row *row = &f->row[format][i];

			tsr_text_printf(out, "  %8.2e %9.2e %8s", row->median, row->worst,
					tsr_format_percent(row->zeroed, f->elements).text);
		}
		tsr_text_puts(out, "\n");
	}
}

static void put_tensor(const struct tsr_granularity_tensor *t, struct tsr_text *out)
{
	tsr_text_printf(out, "%-34s %8.1e", tsr_format_name(t->tensor->name, 34).text, t->max);
	for (size_t i = 0; i < NSHOWN; i++)
		tsr_text_printf(out, " %8.2e", t->error[TSR_FP8_E4M3][shown[i]].nmse);
	tsr_text_puts(out, "\n");
}

/* Of two tensors: by the error with one scale, the larger first, then by place. */
static int compare(const void *a, const void *b)
{
	const struct tsr_granularity_tensor *x = *(const struct tsr_granularity_tensor *const *)a;
	const struct tsr_granularity_tensor *y = *(const struct tsr_granularity_tensor *const *)b;
	const double p = x->error[TSR_FP8_E4M3][0].nmse, q = y->error[TSR_FP8_E4M3][0].nmse;

	return p != q ? (p < q) - (p > q) : (x > y) - (x < y);
}

static void put_tensors(const struct tsr_granularities *g, const struct tsr_granularity_figures *f,
			bool verbose, struct tsr_text *out)
{
	const struct tsr_granularity_tensor **counted = calloc(f->ntensors + 1, sizeof(*counted));
	size_t n = 0;

	if (!counted) {
		out->failed = true;
		return;
	}
	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++) {
		if (tsr_granularity_counts(tsr_granularities_tensor(g, i)))
			counted[n++] = tsr_granularities_tensor(g, i);
	}
	qsort(counted, n, sizeof(*counted), compare);
	tsr_text_printf(out, "\n%-34s %8s %s\n", "", "", "E4M3: NMSE with one scale per");
	tsr_text_printf(out, "%-34s %8s", "tensor", "max |x|");
	for (size_t i = 0; i < NSHOWN; i++)
		tsr_text_printf(out, " %8s", tsr_granularity_get(shown[i])->name);
	tsr_text_puts(out, "\n");
	for (size_t i = 0; i < n && (verbose || i < TENSORS_SHOWN); i++)
		put_tensor(counted[i], out);
	if (!verbose && n > TENSORS_SHOWN)
		tsr_text_printf(out, "and %s more, which lose less with one scale (-v)\n",
				tsr_format_count(n - TENSORS_SHOWN).text);
	free(counted);
}

static void put_count(size_t n, const char *what, struct tsr_text *out)
{
	if (n)
		tsr_text_printf(out, "%s tensor%s %s\n", tsr_format_count(n).text,
				n == 1 ? "" : "s", what);
}

static void put_left_out(const struct tsr_granularities *g, const struct tsr_granularity_figures *f,
			 struct tsr_text *out)
{
	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++) {
		const struct tsr_granularity_tensor *t = tsr_granularities_tensor(g, i);

		if (t->floating && t->nonfinite)
			tsr_text_printf(out,
					"%s: %s NaN or infinite elements as FP32: not measured\n",
					tsr_format_name(t->tensor->name, 30).text,
					tsr_format_count(t->nonfinite).text);
	}
	put_count(f->nzero, "of zeros alone: not in these figures", out);
	put_count(f->nempty, "without elements: not in these figures", out);
	put_count(f->nother, "of other types: not measured", out);
}

void tsr_granularity_put_table(const struct tsr_granularities *g,
			       const struct tsr_granularity_figures *f,
			       enum tsr_granularity_scale scale, bool verbose, struct tsr_text *out)
{
	static const char *const rules[TSR_GRANULARITY_SCALE_COUNT] = {
		[TSR_GRANULARITY_BF16] = "scales rounded up to BF16",
		[TSR_GRANULARITY_F32] = "scales in FP32",
		[TSR_GRANULARITY_COAT] = "scales as in COAT's program: FP32 divides, BF16 decodes",
	};
	struct tsr_text verdict = { 0 };

	tsr_granularity_put_verdict(f, &verdict);
	if (verdict.nbytes)
		tsr_put_wrapped(out, verdict.bytes, 0, 0);
	out->failed |= verdict.failed;
	tsr_text_free(&verdict);
	if (f->ntensors) {
		tsr_text_printf(out, "\n%s tensor%s, %s elements, %s\n",
				tsr_format_count(f->ntensors).text, f->ntensors == 1 ? "" : "s",
				tsr_format_count(f->elements).text, rules[scale]);
		put_over_tensors(f, out);
		put_tensors(g, f, verbose, out);
	}
	put_left_out(g, f, out);
}

/* --- JSON -------------------------------------------------------------------------------------- */

/* Opens an object about a format and a granularity. */
static void open_error(const char *key, enum tsr_fp8 format, unsigned index, struct tsr_text *json)
{
	tsr_json_open(json, key, '{');
	tsr_json_put_string(json, "format", tsr_fp8_name(format));
	tsr_json_put_string(json, "granularity", tsr_granularity_get(index)->name);
}

static void put_errors_json(const struct tsr_granularity_tensor *t, struct tsr_text *json)
{
	tsr_json_open(json, "errors", '[');
	for (unsigned i = 0; i < TSR_FP8_COUNT * TSR_GRANULARITY_COUNT; i++) {
		const enum tsr_fp8 format = (enum tsr_fp8)(i / TSR_GRANULARITY_COUNT);
		const struct tsr_granularity_error *e =
			&t->error[format][i % TSR_GRANULARITY_COUNT];

		open_error(NULL, format, i % TSR_GRANULARITY_COUNT, json);
		tsr_json_put_double(json, "nmse", e->nmse);
		tsr_json_put_double(json, "max_abs", e->max_abs);
		tsr_json_put_u64(json, "zeroed", e->zeroed);
		tsr_json_put_u64(json, "nbytes", e->nbytes);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

static void put_tensor_json(const struct tsr_granularity_tensor *t, struct tsr_text *json)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", t->tensor->name);
	tsr_json_put_string(json, "dtype", tsr_dtype_name(t->tensor->dtype));
	tsr_json_put_u64s(json, "shape", t->tensor->shape, t->tensor->rank);
	tsr_json_put_bool(json, "measured", t->floating && !t->nonfinite);
	if (t->floating) {
		tsr_json_put_u64(json, "rows", t->rows);
		tsr_json_put_u64(json, "columns", t->columns);
		tsr_json_put_u64(json, "nonfinite", t->nonfinite);
		tsr_json_put_double(json, "max", t->max);
	}
	if (t->floating && !t->nonfinite)
		put_errors_json(t, json);
	tsr_json_close(json, '}');
}

static void put_row_json(const struct tsr_granularity_figures *f, enum tsr_fp8 format,
			 unsigned index, struct tsr_text *json)
{
	const struct tsr_granularity_row *row = &f->row[format][index];

	open_error(NULL, format, index, json);
	tsr_json_put_double(json, "bytes_per_element", tsr_granularity_cost(f, format, index));
	tsr_json_put_double(json, "median_nmse", row->median);
	tsr_json_put_double(json, "largest_nmse", row->worst);
	tsr_json_put_string(json, "largest_of",
			    row->worst_tensor ? row->worst_tensor->tensor->name : NULL);
	tsr_json_put_u64(json, "zeroed", row->zeroed);
	tsr_json_put_u64(json, "far", row->nfar);
	tsr_json_close(json, '}');
}

void tsr_granularity_put_json(const struct tsr_granularities *g,
			      const struct tsr_granularity_figures *f,
			      enum tsr_granularity_scale scale, struct tsr_text *json)
{
	tsr_json_put_string(json, "scale", tsr_granularity_scale_name(scale));
	tsr_json_put_u64(json, "counted", f->ntensors);
	tsr_json_put_u64(json, "elements", f->elements);
	if (f->ntensors) {
		open_error("verdict", f->format, f->enough, json);
		tsr_json_close(json, '}');
	}
	tsr_json_open(json, "over_tensors", '[');
	for (unsigned i = 0; i < TSR_FP8_COUNT * TSR_GRANULARITY_COUNT; i++)
		put_row_json(f, (enum tsr_fp8)(i / TSR_GRANULARITY_COUNT),
			     i % TSR_GRANULARITY_COUNT, json);
	tsr_json_close(json, ']');
	tsr_json_open(json, "tensors", '[');
	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++)
		put_tensor_json(tsr_granularities_tensor(g, i), json);
	tsr_json_close(json, ']');
}

/* --- Comma-separated values -------------------------------------------------------------------- */

void tsr_granularity_put_csv(const struct tsr_granularities *g, struct tsr_text *csv)
{
	char nmse[40], max_abs[40];

	tsr_text_puts(csv,
		      "tensor,dtype,rows,columns,format,granularity,nmse,max_abs,zeroed,nbytes\n");
	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++) {
		const struct tsr_granularity_tensor *t = tsr_granularities_tensor(g, i);

		for (int c = 0;
		     t->floating && !t->nonfinite && c < TSR_FP8_COUNT * TSR_GRANULARITY_COUNT;
		     c++) {
			const int format = c / TSR_GRANULARITY_COUNT;
			const unsigned at = (unsigned)(c % TSR_GRANULARITY_COUNT);
			const struct tsr_granularity_error *e = &t->error[format][at];

			tsr_csv_put_name(t->tensor->name, csv);
			tsr_json_format_double(nmse, sizeof(nmse), e->nmse);
			tsr_json_format_double(max_abs, sizeof(max_abs), e->max_abs);
			tsr_text_printf(
				csv,
				",%s,%" PRIu64 ",%" PRIu64 ",%s,%s,%s,%s,%" PRIu64 ",%" PRIu64 "\n",
				tsr_dtype_name(t->tensor->dtype), t->rows, t->columns,
				tsr_fp8_name((enum tsr_fp8)format), tsr_granularity_get(at)->name,
				nmse, max_abs, e->zeroed, e->nbytes);
		}
	}
}
