/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of a checkpoint by kind and codec, as a table and as JSON. */
#include "report/remarks.h"

/* Whether it has the largest error so far. */
static bool add(struct tsr_summary_row *r, const struct tsr_tensor *t, uint64_t stored_nbytes,
		double nmse)
{
	r->ntensors++;
	r->nelements += t->numel;
	r->nbytes += tsr_tensor_nbytes(t);
	r->stored_nbytes += stored_nbytes;
	if (!(nmse >= 0) || (r->measured && nmse <= r->worst_nmse))
		return false;
	r->measured = true;
	r->worst_nmse = nmse;
	return true;
}

void tsr_summary_add(struct tsr_summary *s, const struct tsr_tensor *t, uint64_t stored_nbytes,
		     double nmse)
{
	/* A codec with a table of its own ends with its checkpoint. */
	const struct tsr_codec *codec = t->coding.codec ? tsr_codec_find(t->coding.codec->name)
							: NULL;
	unsigned i = 0;

	while (i < s->nrows && (s->rows[i].kind != t->kind || s->rows[i].coding.codec != codec ||
				s->rows[i].coding.scale != t->coding.scale ||
				s->rows[i].coding.group != t->coding.group))
		i++;
	if (i == s->nrows && s->nrows < TSR_SUMMARY_ROWS_MAX) {
		s->rows[s->nrows] = (struct tsr_summary_row){ .kind = t->kind,
							      .coding = t->coding };
		s->rows[s->nrows++].coding.codec = codec;
	}
	add(&s->rows[i < TSR_SUMMARY_ROWS_MAX ? i : TSR_SUMMARY_ROWS_MAX - 1], t, stored_nbytes,
	    nmse);
	if (add(&s->total, t, stored_nbytes, nmse)) {
		snprintf(s->worst, sizeof(s->worst), "%s", t->name);
		snprintf(s->worst_file, sizeof(s->worst_file), "%s", s->file ? s->file : "");
	}
	if (t->quantized)
		add(&s->quantized, t, stored_nbytes, nmse);
}

void tsr_summary_add_all(struct tsr_summary *s, const struct tsr_checkpoint *c)
{
	const struct tsr_tensor *t;

	for (size_t i = 0; (t = tsr_checkpoint_tensor(c, i)); i++)
		tsr_summary_add(s, t, tsr_tensor_stored_nbytes(c, t),
				t->error ? t->error->value[TSR_METRIC_NMSE] : -1);
}

static uint64_t count_kind(const struct tsr_summary *s, enum tsr_kind kind)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < s->nrows; i++)
		n += s->rows[i].kind == kind ? s->rows[i].nelements : 0;
	return n;
}

static uint64_t parameters(const struct tsr_summary *s)
{
	const uint64_t weights = count_kind(s, TSR_KIND_WEIGHT) - s->copies.nelements;

	return weights ? weights : count_kind(s, TSR_KIND_MOMENTUM);
}

double tsr_summary_bytes_per_parameter(const struct tsr_summary *s)
{
	const uint64_t n = parameters(s);

	return n ? (double)s->total.stored_nbytes / (double)n : 0;
}

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
	tsr_json_put_u64(json, "parameters", parameters(s));
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
