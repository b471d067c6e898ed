/* SPDX-License-Identifier: Apache-2.0 */
/* The table by kind that pack and inspect show. */
#include "cli/summary.h"

#include <stdio.h>
#include <string.h>

#include "text/json.h"
#include "cli/coding.h"
#include "cli/output.h"

static struct cli_summary_row *row_for(struct cli_summary *s, const struct tsr_tensor *t)
{
	unsigned i = 0;

	while (i < s->nrows &&
	       (s->rows[i].kind != t->kind || s->rows[i].coding.codec != t->coding.codec ||
		s->rows[i].coding.scale != t->coding.scale ||
		s->rows[i].coding.group != t->coding.group))
		i++;
	if (i == s->nrows && s->nrows < CLI_SUMMARY_ROWS_MAX)
		s->rows[s->nrows++] = (struct cli_summary_row){ .kind = t->kind,
								.coding = t->coding };
	return &s->rows[i < CLI_SUMMARY_ROWS_MAX ? i : CLI_SUMMARY_ROWS_MAX - 1];
}

static void add(struct cli_summary_row *r, const struct tsr_tensor *t, uint64_t stored_nbytes,
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

void cli_summary_add(struct cli_summary *s, const struct tsr_tensor *t, uint64_t stored_nbytes,
		     double nmse)
{
	add(row_for(s, t), t, stored_nbytes, nmse);
	add(&s->total, t, stored_nbytes, nmse);
}

static uint64_t count_kind(const struct cli_summary *s, enum tsr_kind kind)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < s->nrows; i++)
		n += s->rows[i].kind == kind ? s->rows[i].nelements : 0;
	return n;
}

static uint64_t parameters(const struct cli_summary *s)
{
	const uint64_t weights = count_kind(s, TSR_KIND_WEIGHT);

	return weights ? weights : count_kind(s, TSR_KIND_MOMENTUM);
}

double cli_summary_bytes_per_parameter(const struct cli_summary *s)
{
	const uint64_t n = parameters(s);

	return n ? (double)s->total.stored_nbytes / (double)n : 0;
}

/* Weights first, other last. */
static int kind_order(enum tsr_kind kind)
{
	return kind == TSR_KIND_OTHER ? 8 : (int)kind;
}

static void sort_rows(struct cli_summary *s)
{
	for (unsigned i = 1; i < s->nrows; i++) {
		for (unsigned j = i;
		     j && kind_order(s->rows[j].kind) < kind_order(s->rows[j - 1].kind); j--) {
			const struct cli_summary_row moved = s->rows[j];

			s->rows[j] = s->rows[j - 1];
			s->rows[j - 1] = moved;
		}
	}
}

static void print_row(const char *name, const struct cli_summary_row *r, const char *codec,
		      bool errors)
{
	char count[32], before[16], after[16], per[16] = "-", worst[32] = "";

	cli_format_count(count, sizeof(count), r->nelements);
	cli_format_bytes(before, sizeof(before), (double)r->nbytes);
	cli_format_bytes(after, sizeof(after), (double)r->stored_nbytes);
	if (r->nelements)
		snprintf(per, sizeof(per), "%.3f", (double)r->stored_nbytes / (double)r->nelements);
	if (errors && r->worst)
		snprintf(worst, sizeof(worst), "%.1e", r->worst_nmse);
	else if (errors)
		snprintf(worst, sizeof(worst), "      -");
	printf("%-9s %-18s%7llu %15s %8s %8s %6s%s%s\n", name, codec,
	       (unsigned long long)r->ntensors, count, before, after, per, *worst ? " " : "",
	       worst);
}

void cli_summary_print(struct cli_summary *s)
{
	char codec[64];

	sort_rows(s);
	printf("%-9s %-18s%7s %15s %8s %8s %6s%s\n", "kind", "codec", "tensors", "elements",
	       "input", "stored", "B/elem", s->total.worst ? "    NMSE" : "");
	for (unsigned i = 0; i < s->nrows; i++) {
		cli_format_coding(codec, sizeof(codec), &s->rows[i].coding);
		print_row(tsr_kind_name(s->rows[i].kind), &s->rows[i], codec, s->total.worst);
	}
	print_row("total", &s->total, "", false);
}

static void row_json(struct tsr_text *json, const struct cli_summary_row *r)
{
	tsr_json_put_u64(json, "tensors", r->ntensors);
	tsr_json_put_u64(json, "elements", r->nelements);
	tsr_json_put_u64(json, "nbytes", r->nbytes);
	tsr_json_put_u64(json, "stored_nbytes", r->stored_nbytes);
}

void cli_summary_json(struct cli_summary *s, struct tsr_text *json)
{
	sort_rows(s);
	tsr_json_open(json, "totals", '{');
	row_json(json, &s->total);
	tsr_json_put_u64(json, "parameters", parameters(s));
	tsr_json_put_double(json, "bytes_per_parameter", cli_summary_bytes_per_parameter(s));
	tsr_json_close(json, '}');
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
