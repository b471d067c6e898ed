/* SPDX-License-Identifier: Apache-2.0 */
/* An audit for people to read. */
#include "report/audit/audit_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/format.h"

#define LAST (TSR_AUDIT_QUANTILES - 1)
#define MEDIAN 3
#define NAME_COLUMNS 13

static const char *name_of(const struct tsr_coding *coding)
{
	return coding->codec->name;
}

static const char *momentum_name(const struct tsr_audit *a, const struct tsr_audit_cell *c)
{
	return name_of(&a->momenta.codings[c->m]);
}

static const char *variance_name(const struct tsr_audit *a, const struct tsr_audit_cell *c)
{
	return name_of(&a->variances.codings[c->v]);
}

/* --- The verdict -------------------------------------------------------------------------------- */

static void put_choice(const struct tsr_audit *a, const struct tsr_audit_cell *c,
		       struct tsr_text *out)
{
	tsr_text_printf(out, "%s + %s: worst update NMSE %.1e, median %.1e, %.4g B for both",
			momentum_name(a, c), variance_name(a, c), c->nmse[LAST], c->nmse[MEDIAN],
			c->bytes);
}

static void put_state_verdict(const struct tsr_audit *a, const struct tsr_audit_cell *cells,
			      size_t n, struct tsr_text *out)
{
	const struct tsr_audit_cell *best = tsr_audit_verdict(a, cells, n);
	const struct tsr_audit_cell *usual = tsr_audit_usual(a, cells, n);

	if (!best && n)
		tsr_text_printf(
			out,
			"use no codec for the states: none of at most %.4g B for both holds "
			"all of them",
			TSR_AUDIT_BYTES_MAX);
	if (!best)
		return;
	tsr_text_puts(out, "use ");
	put_choice(a, best, out);
	if (usual && usual != best && usual->n) {
		tsr_text_puts(out, "; ");
		put_choice(a, usual, out);
	}
}

void tsr_audit_put_verdict(const struct tsr_audit *a, const struct tsr_audit_cell *cells, size_t n,
			   struct tsr_text *out)
{
	struct tsr_audit_column weight;
	const size_t before = out->nbytes;

	if (a->npairs)
		put_state_verdict(a, cells, n, out);
	if (!tsr_audit_best_weight(a, &weight))
		return;
	tsr_text_printf(out, "%s%s for weights: worst NMSE %.1e, %.4g B",
			out->nbytes > before ? "; " : "use ", name_of(weight.coding),
			weight.quantile[TSR_AUDIT_NMSE][LAST], weight.bytes);
}

static void put_lines(const struct tsr_audit *a, const struct tsr_audit_cell *cells, size_t n,
		      struct tsr_text *out)
{
	struct tsr_text verdict = { 0 };

	tsr_audit_put_verdict(a, cells, n, &verdict);
	out->failed = out->failed || verdict.failed;
	if (verdict.nbytes)
		tsr_put_wrapped(out, verdict.bytes, 0, 2);
	tsr_text_free(&verdict);
}

void tsr_audit_put_verdict_lines(const struct tsr_audit *a, struct tsr_text *out)
{
	struct tsr_audit_cell *cells;
	const size_t n = tsr_audit_cells(a, &cells);

	out->failed = out->failed || !cells;
	if (cells)
		put_lines(a, cells, n, out);
	free(cells);
}

/* --- Pairs -------------------------------------------------------------------------------------- */

/* Rows that are shown unless all are. */
#define PAIRS_SHOWN 12

static void put_cell(const struct tsr_audit *a, const struct tsr_audit_cell *c,
		     struct tsr_text *out)
{
	tsr_text_printf(out, "%-*s %-*s %6.3f %8.1e %8.1e %8.1e %9.3g %8" PRIu64, NAME_COLUMNS - 3,
			momentum_name(a, c), NAME_COLUMNS - 3, variance_name(a, c), c->bytes,
			c->nmse[MEDIAN], c->nmse[5], c->nmse[LAST], (double)c->max_after,
			c->exposed);
	if (c->nraw)
		tsr_text_printf(out, " %4zu", c->nraw);
	tsr_text_puts(out, "\n");
}

/* The variance of the pair of tensors with the largest error. */
static const char *worst_name(const struct tsr_audit *a, const struct tsr_audit_cell *c)
{
	return a->tensors[a->pairs[c->worst].variance].tensor->name;
}

static void put_pairs(const struct tsr_audit *a, const struct tsr_audit_cell *cells, size_t n,
		      unsigned verbose, struct tsr_text *out)
{
	const size_t shown = verbose || n < PAIRS_SHOWN ? n : PAIRS_SHOWN;
	char line[160];

	if (!n || !a->npairs)
		return;
	snprintf(line, sizeof(line),
		 "updates m / (sqrt(v) + %.4g), eps %s, of %zu pairs; the largest |u| was %.3g",
		 (double)a->eps, a->eps_known ? "of the optimizer" : "assumed", a->npairs,
		 (double)cells[0].max_before);
	tsr_text_puts(out, "\n");
	tsr_put_wrapped(out, line, 0, 2);
	tsr_text_printf(out, "%-*s %-*s %6s %8s %8s %8s %9s %8s %4s\n", NAME_COLUMNS - 3,
			"momentum", NAME_COLUMNS - 3, "variance", "bytes", "median", "95%", "worst",
			"max |u|", "v lost", "raw");
	for (size_t i = 0; i < shown; i++)
		put_cell(a, &cells[i], out);
	if (shown < n)
		tsr_text_printf(out, "and %zu other pairs of codecs, which -v shows\n", n - shown);
	tsr_text_printf(out, "worst of %s + %s: ", momentum_name(a, &cells[0]),
			variance_name(a, &cells[0]));
	tsr_text_printf(out, "%s\n", tsr_format_name(worst_name(a, &cells[0]), 40).text);
}

/* --- Codecs ------------------------------------------------------------------------------------- */

static void put_nmse(const struct tsr_audit_column *c, struct tsr_text *out)
{
	tsr_text_printf(out, "%-*s %6.3f", NAME_COLUMNS, name_of(c->coding), c->bytes);
	for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++)
		tsr_text_printf(out, " %7.1e", c->quantile[TSR_AUDIT_NMSE][i]);
	if (c->nraw)
		tsr_text_printf(out, " %3zu", c->nraw);
	tsr_text_puts(out, "\n");
}

static void put_others(const struct tsr_audit_column *c, struct tsr_text *out)
{
	tsr_text_printf(out, "%-*s %8.1e %8.1e %9" PRIu64 " %7" PRIu64 " %7" PRIu64, NAME_COLUMNS,
			name_of(c->coding), c->quantile[TSR_AUDIT_MAX_ABS][LAST],
			c->quantile[TSR_AUDIT_MEAN_REL][MEDIAN], c->zeroed, c->underflow,
			c->overflow);
	if (c->coding->codec->grouped)
		tsr_text_printf(out, " %6.1f %6.1f", c->quantile[TSR_AUDIT_RANGE_MEAN][MEDIAN],
				c->quantile[TSR_AUDIT_RANGE_MAX][LAST]);
	if (c->coding->codec->grouped && c->coding->kind != TSR_KIND_WEIGHT)
		tsr_text_printf(out, " %7s%%", tsr_format_percent(c->stuck, c->groups).text);
	tsr_text_puts(out, "\n");
}

static void put_codecs(const struct tsr_audit *a, enum tsr_kind kind, struct tsr_text *out)
{
	const struct tsr_audit_list *list = tsr_audit_list(a, kind);
	struct tsr_audit_column *c = calloc(list->n + 1, sizeof(*c));
	size_t n = 0;

	for (unsigned i = 0; c && i < list->n; i++)
		out->failed = out->failed || !tsr_audit_column(a, kind, i, &c[i]);
	for (unsigned i = 0; c && i < list->n; i++)
		n = c[i].n > n ? c[i].n : n;
	if (n) {
		tsr_text_printf(out, "\n%s, NMSE over %zu tensors\n%-*s %6s", tsr_kind_name(kind),
				n, NAME_COLUMNS, "codec", "bytes");
		for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++)
			tsr_text_printf(out, " %6u%%", tsr_audit_percent(i));
		tsr_text_puts(out, " raw\n");
		for (unsigned i = 0; i < list->n; i++)
			put_nmse(&c[i], out);
		tsr_text_printf(out, "%-*s %8s %8s %9s %7s %7s %6s %6s %8s\n", NAME_COLUMNS, "",
				"max abs", "relative", "zeroed", "scale 0", "inf", "range", "max",
				"stuck");
		for (unsigned i = 0; i < list->n; i++)
			put_others(&c[i], out);
	}
	out->failed = out->failed || !c;
	free(c);
}

/* --- Tensors ------------------------------------------------------------------------------------ */

const char *tsr_audit_fault_text(const struct tsr_audit_tensor *t, char *text, size_t room)
{
	static const char *const faults[] = {
		[TSR_AUDIT_SMALL] = "elements are too few: pack keeps them as they are",
		[TSR_AUDIT_NONFINITE] = "values are not finite: no codec holds them",
		[TSR_AUDIT_NEGATIVE] = "values of a variance are negative: no codec holds them",
		[TSR_AUDIT_ZERO] = "values are 0, all there are: no error to judge by",
	};
	const uint64_t n = t->fault == TSR_AUDIT_SMALL ? t->tensor->numel : t->nfaulty;

	if (t->fault == TSR_AUDIT_SOUND)
		return NULL;
	snprintf(text, room, "%" PRIu64 " %s", n, faults[t->fault]);
	return text;
}

static void put_tensors(const struct tsr_audit *a, struct tsr_text *out)
{
	tsr_text_puts(out, "\nNMSE of each tensor\n");
	for (size_t i = 0; i < a->ntensors; i++) {
		const struct tsr_audit_tensor *t = &a->tensors[i];
		const struct tsr_audit_list *list = tsr_audit_list(a, t->tensor->kind);

		tsr_text_printf(out, "%s\n", tsr_format_name(t->tensor->name, 80).text);
		for (unsigned k = 0; t->trials && k < list->n; k++) {
			if (tsr_audit_counts(t, k))
				tsr_text_printf(out, "  %-*s %7.1e\n", NAME_COLUMNS,
						name_of(&list->codings[k]), t->trials[k].nmse);
		}
	}
}

/* --- All of it ---------------------------------------------------------------------------------- */

void tsr_audit_put_table(const struct tsr_audit *a, unsigned verbose, struct tsr_text *out)
{
	struct tsr_audit_cell *cells;
	const size_t n = tsr_audit_cells(a, &cells);

	if (!cells) {
		out->failed = true;
		return;
	}
	put_lines(a, cells, n, out);
	put_pairs(a, cells, n, verbose, out);
	put_codecs(a, TSR_KIND_MOMENTUM, out);
	put_codecs(a, TSR_KIND_VARIANCE, out);
	put_codecs(a, TSR_KIND_WEIGHT, out);
	if (a->momenta.n || a->variances.n) {
		char line[160];

		snprintf(line, sizeof(line),
			 "stuck: groups that a decay by beta1 %.4g or beta2 %.4g (%s) does not "
			 "change",
			 a->beta1, a->beta2, a->betas_known ? "of the optimizer" : "assumed");
		tsr_put_wrapped(out, line, 0, 2);
	}
	if (verbose)
		put_tensors(a, out);
	free(cells);
}
