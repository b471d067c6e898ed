/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of a checkpoint by kind and codec, as a table and as JSON. */
#include "report/summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text/json.h"
#include "report/render/format.h"

static struct tsr_summary_row *row_for(struct tsr_summary *s, const struct tsr_tensor *t)
{
	unsigned i = 0;

	while (i < s->nrows &&
	       (s->rows[i].kind != t->kind || s->rows[i].coding.codec != t->coding.codec ||
		s->rows[i].coding.scale != t->coding.scale ||
		s->rows[i].coding.group != t->coding.group))
		i++;
	if (i == s->nrows && s->nrows < TSR_SUMMARY_ROWS_MAX)
		s->rows[s->nrows++] = (struct tsr_summary_row){ .kind = t->kind,
								.coding = t->coding };
	return &s->rows[i < TSR_SUMMARY_ROWS_MAX ? i : TSR_SUMMARY_ROWS_MAX - 1];
}

static void add(struct tsr_summary_row *r, const struct tsr_tensor *t, uint64_t stored_nbytes,
		double nmse)
{
	r->ntensors++;
	r->nelements += t->numel;
	r->nbytes += tsr_tensor_nbytes(t);
	r->stored_nbytes += stored_nbytes;
	if (nmse >= 0 && (!r->worst || nmse > r->worst_nmse)) {
		r->worst = t;
		r->worst_nmse = nmse;
	}
}

void tsr_summary_add(struct tsr_summary *s, const struct tsr_tensor *t, uint64_t stored_nbytes,
		     double nmse)
{
	add(row_for(s, t), t, stored_nbytes, nmse);
	add(&s->total, t, stored_nbytes, nmse);
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

/* Weights first, other last. */
static int kind_order(enum tsr_kind kind)
{
	return kind == TSR_KIND_OTHER ? 8 : (int)kind;
}

static void sort_rows(struct tsr_summary *s)
{
	for (unsigned i = 1; i < s->nrows; i++) {
		for (unsigned j = i;
		     j && kind_order(s->rows[j].kind) < kind_order(s->rows[j - 1].kind); j--) {
			const struct tsr_summary_row moved = s->rows[j];

			s->rows[j] = s->rows[j - 1];
			s->rows[j - 1] = moved;
		}
	}
}

static void put_row(struct tsr_text *out, const char *name, const struct tsr_summary_row *r,
		    const char *codec, bool errors)
{
	char per[16] = "-", worst[32] = "";

	if (r->nelements)
		snprintf(per, sizeof(per), "%.3f", (double)r->stored_nbytes / (double)r->nelements);
	if (errors && r->worst)
		snprintf(worst, sizeof(worst), "%.1e", r->worst_nmse);
	else if (errors)
		snprintf(worst, sizeof(worst), "      -");
	tsr_text_printf(
		out, "%-9s %-17s%7" PRIu64 " %12s %8s %8s %6s%s%s\n", name, codec, r->ntensors,
		tsr_format_count(r->nelements).text, tsr_format_bytes((double)r->nbytes).text,
		tsr_format_bytes((double)r->stored_nbytes).text, per, *worst ? " " : "", worst);
}

void tsr_summary_put_table(struct tsr_summary *s, struct tsr_text *out)
{
	sort_rows(s);
	tsr_text_printf(out, "%-9s %-17s%7s %12s %8s %8s %6s%s\n", "kind", "codec", "tensors",
			"elements", "input", "stored", "B/elem", s->total.worst ? "    NMSE" : "");
	for (unsigned i = 0; i < s->nrows; i++) {
		put_row(out, tsr_kind_name(s->rows[i].kind), &s->rows[i],
			tsr_format_coding(&s->rows[i].coding).text, s->total.worst);
	}
	put_row(out, "total", &s->total, "", false);
}

void tsr_summary_put_remarks(const struct tsr_summary *s, struct tsr_text *out)
{
	const struct tsr_summary_row *quantized = &s->quantized;

	if (quantized->ntensors)
		tsr_text_printf(out,
				"raw, as part of quantized weights: %" PRIu64 " tensor%s, %s\n",
				quantized->ntensors, quantized->ntensors == 1 ? "" : "s",
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

static void row_json(struct tsr_text *json, const struct tsr_summary_row *r)
{
	tsr_json_put_u64(json, "tensors", r->ntensors);
	tsr_json_put_u64(json, "elements", r->nelements);
	tsr_json_put_u64(json, "nbytes", r->nbytes);
	tsr_json_put_u64(json, "stored_nbytes", r->stored_nbytes);
}

void tsr_summary_put_json(struct tsr_summary *s, struct tsr_text *json)
{
	sort_rows(s);
	tsr_json_open(json, "totals", '{');
	row_json(json, &s->total);
	tsr_json_put_u64(json, "parameters", parameters(s));
	tsr_json_put_double(json, "bytes_per_parameter", tsr_summary_bytes_per_parameter(s));
	tsr_json_open(json, "copies", '[');
	for (unsigned i = 0; i < s->copies.nplaces; i++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "under", s->copies.places[i].name);
		tsr_json_put_u64(json, "elements", s->copies.places[i].nelements);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
	if (s->quantized.ntensors) {
		tsr_json_open(json, "quantized", '{');
		row_json(json, &s->quantized);
		tsr_json_close(json, '}');
	}
	tsr_json_open(json, "by_kind", '[');
	for (unsigned i = 0; i < s->nrows; i++) {
		const struct tsr_coding *coding = &s->rows[i].coding;

		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "kind", tsr_kind_name(s->rows[i].kind));
		tsr_json_put_string(json, "codec", coding->codec ? coding->codec->name : "raw");
		row_json(json, &s->rows[i]);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}
