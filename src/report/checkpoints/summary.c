/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of a checkpoint by kind and codec, as a table and as JSON. */
#include "report/checkpoints/remarks.h"

void tsr_summary_put_per_parameter(const struct tsr_summary *s, const char *before,
				   const char *after, struct tsr_text *out)
{
	if (tsr_summary_bytes_per_parameter(s) > 0)
		tsr_text_printf(out, "%s%.3f bytes per parameter%s", before,
				tsr_summary_bytes_per_parameter(s), after);
}

static void put_sizes(struct tsr_table *t, const struct tsr_summary_row *r)
{
	TSR_CELL(t, "tensors", "tensors:7", r->ntensors);
	TSR_CELL(t, "elements", "elements:11,", r->nelements);
	TSR_CELL(t, "nbytes", "input:8B", r->nbytes);
	TSR_CELL(t, "stored_nbytes", "stored:8B", r->stored_nbytes);
	TSR_CELL(t, "-per", "B/elem:6.3f",
		 r->nelements ? (double)r->stored_nbytes / (double)r->nelements : (double)NAN);
}

/* An object that begins with these. */
static void open_object(const char *key, const struct tsr_summary_row *r, struct tsr_text *json)
{
	struct tsr_table t = { 0 };

	tsr_row(&t);
	put_sizes(&t, r);
	tsr_json_open(json, key, '{');
	tsr_table_end_members(t, json);
}

/* Weights first, other last. */
static struct tsr_table by_kind(const struct tsr_summary *s)
{
	static const enum tsr_kind kinds[] = { TSR_KIND_WEIGHT, TSR_KIND_MOMENTUM,
					       TSR_KIND_VARIANCE, TSR_KIND_OTHER };
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < 4 * s->nrows; i++) {
		const struct tsr_summary_row *row = &s->rows[i % s->nrows];
		const struct tsr_codec *codec = row->coding.codec;

		if (row->kind != kinds[i / s->nrows])
			continue;
		tsr_row(&t);
		TSR_CELL(&t, "kind", "kind:9", tsr_kind_name(row->kind));
		TSR_CELL(&t, "codec", NULL, codec ? codec->name : "raw");
		TSR_CELL(&t, "-codec", "codec:17",
			 tsr_keep(&t, tsr_format_coding(&row->coding).text));
		put_sizes(&t, row);
		if (row->measured)
			TSR_CELL(&t, "-nmse", "NMSE:7.1e", row->worst_nmse);
	}
	return t;
}

void tsr_summary_put_table(const struct tsr_summary *s, struct tsr_report *r)
{
	struct tsr_table t = by_kind(s);

	tsr_row(&t);
	TSR_CELL(&t, "kind", "kind:9", "total");
	TSR_CELL(&t, "-codec", "codec:17", "");
	put_sizes(&t, &s->total);
	TSR_CELL(&t, "-nmse", NULL, "");
	tsr_report_rows(r, t, NULL,
			s->total.measured
				? "kind,-codec,tensors,elements,nbytes,stored_nbytes,-per,-nmse"
				: "kind,-codec,tensors,elements,nbytes,stored_nbytes,-per");
}

void tsr_summary_put_json(const struct tsr_summary *s, struct tsr_text *json)
{
	struct tsr_table copies = { 0 };

	open_object("totals", &s->total, json);
	tsr_json_put_u64(json, "parameters", tsr_summary_parameters(s));
	tsr_json_put_double(json, "bytes_per_parameter", tsr_summary_bytes_per_parameter(s));
	for (unsigned i = 0; i < s->copies.nplaces; i++) {
		tsr_row(&copies);
		TSR_CELL(&copies, "under", NULL, s->copies.places[i].name);
		TSR_CELL(&copies, "elements", NULL, s->copies.places[i].nelements);
	}
	tsr_table_end_json(copies, "copies", json);
	tsr_json_close(json, '}');
	if (s->quantized.ntensors) {
		open_object("quantized", &s->quantized, json);
		tsr_json_close(json, '}');
	}
	tsr_table_end_json(by_kind(s), "by_kind", json);
}

void tsr_summary_put_worst(const struct tsr_summary *s, const char *lead, struct tsr_text *out)
{
	if (!(s->total.worst_nmse > 0))
		return;
	tsr_text_printf(out, "%s: NMSE %.2e in %s\n", lead, s->total.worst_nmse,
			tsr_format_name(s->worst, *s->worst_file ? 45 : 50).text);
	if (*s->worst_file)
		tsr_text_printf(out, "  of %s\n", tsr_format_name(s->worst_file, 70).text);
}

void tsr_summary_put_remarks(const struct tsr_summary *s, struct tsr_text *out)
{
	const struct tsr_summary_row *quantized = &s->quantized;

	if (quantized->ntensors)
		tsr_text_printf(out, "raw, as part of quantized weights: %s, %s\n",
				tsr_format_number(quantized->ntensors, "tensor").text,
				tsr_format_bytes((double)quantized->nbytes).text);
	for (unsigned i = 0; i < s->copies.nplaces; i++) {
		tsr_text_printf(out, "%s%s elements under %s", i ? ", " : "copies of parameters: ",
				tsr_format_count(s->copies.places[i].nelements).text,
				tsr_format_name(s->copies.places[i].name, 60).text);
	}
	tsr_text_puts(out, s->copies.nplaces == TSR_COPIES_MAX ? ", ...\n"
			   : s->copies.nplaces		       ? "\n"
							       : "");
}
