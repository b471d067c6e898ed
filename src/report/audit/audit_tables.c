/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the papers, of one's own data. */
#include "report/audit/audit_tables.h"

#include <stdio.h>
#include <string.h>

#include "report/format.h"

#define LAST (TSR_AUDIT_QUANTILES - 1)

/* --- What they try ------------------------------------------------------------------------------ */

/* A coding of a table; TSR_SCALE_COUNT: the codec's own scale. */
struct row {
	const char *codec;
	enum tsr_kind kind;
	enum tsr_scale scale;
	bool blocks; /* groups are Gefen's blocks */
};

#define M TSR_KIND_MOMENTUM
#define V TSR_KIND_VARIANCE
#define W TSR_KIND_WEIGHT
#define OWN TSR_SCALE_COUNT

/* Linear and companded codes, with FlashOptim's scales and with those of full range. */
static const struct row flashoptim_4[] = { { "linear8", M, TSR_SCALE_F16, false },
					   { "softsign8", M, TSR_SCALE_F16, false },
					   { "linear8", M, TSR_SCALE_E8M8, false },
					   { "softsign8", M, TSR_SCALE_E8M8, false },
					   { "ulinear8", V, TSR_SCALE_F16, false },
					   { "sqrt8", V, TSR_SCALE_F16, false },
					   { "ulinear8", V, TSR_SCALE_E8M8, false },
					   { "sqrt8", V, TSR_SCALE_E8M8, false },
					   { 0 } };

static const struct row coat_1[] = {
	{ "e4m3", M, OWN, false },  { "e4m3x", M, OWN, false }, { "e5m2", M, OWN, false },
	{ "e5m2x", M, OWN, false }, { "e4m3", V, OWN, false },	{ "e4m3x", V, OWN, false },
	{ "e5m2", V, OWN, false },  { "e5m2x", V, OWN, false }, { 0 }
};

static const struct row coat_9[] = { { "e4m3x", M, OWN, false }, { "dyn8", M, OWN, false },
				     { "e4m3", V, OWN, false },	 { "e4m3x", V, OWN, false },
				     { "e5m2", V, OWN, false },	 { "e5m2x", V, OWN, false },
				     { "dyn8", V, OWN, false },	 { 0 } };

/* Learned, uniform and dynamic codebooks in the same blocks. */
static const struct row gefen[] = { { "gefen8", M, OWN, false },
				    { "linear8", M, TSR_SCALE_F32, true },
				    { "dyn8", M, OWN, true },
				    { "blockmean", V, OWN, false },
				    { 0 } };

static const struct row extra_bits[] = {
	{ "fp16", W, OWN, false },	  { "bf16", W, OWN, false },
	{ "e5m2+trunc4", W, OWN, false }, { "e5m2+trunc8", W, OWN, false },
	{ "e5m2+sr8", W, OWN, false },	  { "e4m3+trunc4", W, OWN, false },
	{ "e4m3+trunc8", W, OWN, false }, { "fp16+trunc8", W, OWN, false },
	{ "bf16+trunc8", W, OWN, false }, { "bf16+trunc16", W, OWN, false },
	{ "bf16+ulp8", W, OWN, false },	  { 0 }
};

static unsigned fill(const struct row *rows, struct tsr_coding *ret)
{
	unsigned n = 0;

	for (; rows[n].codec; n++) {
		ret[n] = tsr_coding_with(tsr_codec_find(rows[n].codec), rows[n].scale, 0);
		ret[n].kind = rows[n].kind;
		if (rows[n].blocks)
			ret[n].group = 0;
	}
	return n;
}

/* --- Quantiles ---------------------------------------------------------------------------------- */

#define LABEL_COLUMNS 20

static void put_head(const char *title, struct tsr_text *out)
{
	tsr_text_printf(out, "%-*s", LABEL_COLUMNS, title);
	for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++)
		tsr_text_printf(out, " %6u%%", tsr_audit_percent(i));
	tsr_text_puts(out, "\n");
}

static void put_label(const struct tsr_coding *coding, struct tsr_text *out)
{
	char label[160];

	if (coding->codec->grouped && (coding->codec->learned || !coding->group))
		snprintf(label, sizeof(label), "%s blocks", coding->codec->name);
	else
		snprintf(label, sizeof(label), "%s", tsr_format_coding(coding).text);
	tsr_text_printf(out, "%-*s", LABEL_COLUMNS, label);
}

static void put_quantiles(const double quantile[TSR_AUDIT_QUANTILES], struct tsr_text *out)
{
	for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++)
		tsr_text_printf(out, " %7.1e", quantile[i]);
	tsr_text_puts(out, "\n");
}

/* The NMSE of all codings of a kind, as the boxes of a plot. */
static void put_boxes(const struct tsr_audit *a, enum tsr_kind kind, struct tsr_text *out)
{
	const struct tsr_audit_list *list = tsr_audit_list(a, kind);
	char title[64];

	snprintf(title, sizeof(title), "%s, NMSE", tsr_kind_name(kind));
	put_head(title, out);
	for (unsigned i = 0; i < list->n; i++) {
		struct tsr_audit_column c;

		if (!tsr_audit_column(a, kind, i, &c)) {
			out->failed = true;
			return;
		}
		put_label(&list->codings[i], out);
		put_quantiles(c.quantile[TSR_AUDIT_NMSE], out);
		if (c.underflow || c.nraw)
			tsr_text_printf(out,
					"  groups with scale 0: %s; tensors it cannot hold: %zu\n",
					tsr_format_count(c.underflow).text, c.nraw);
	}
}

/* --- FlashOptim --------------------------------------------------------------------------------- */

static void put_flashoptim(const struct tsr_audit *a, struct tsr_text *out)
{
	tsr_text_puts(out, "FlashOptim, Figure 4: linear and companded codes, over tensors\n\n");
	put_boxes(a, TSR_KIND_MOMENTUM, out);
	tsr_text_puts(out, "\n");
	put_boxes(a, TSR_KIND_VARIANCE, out);
	tsr_text_puts(out, "\n");
	put_head("update, NMSE", out);
	for (unsigned i = 0; i < a->momenta.n && i < a->variances.n; i++) {
		struct tsr_audit_cell c;

		if (!tsr_audit_cell(a, i, i, &c)) {
			out->failed = true;
			return;
		}
		put_label(&a->variances.codings[i], out);
		put_quantiles(c.nmse, out);
	}
	tsr_text_puts(out,
		      "updates: with the momentum's code of the same line; of full range: e8m8\n");
}

/* --- COAT --------------------------------------------------------------------------------------- */

/* Updates of one momentum's codec with all of variances; of all elements, or of the worst pair. */
static void put_coat_row(const struct tsr_audit *a, unsigned m, bool worst, struct tsr_text *out)
{
	tsr_text_printf(out, "%-12s", a->momenta.codings[m].codec->name);
	for (unsigned v = 0; v < a->variances.n; v++) {
		struct tsr_audit_cell c = { .n = 0 };

		out->failed = out->failed || (worst && !tsr_audit_cell(a, m, v, &c));
		tsr_text_printf(out, " %9.2e", worst ? c.nmse[LAST] : tsr_audit_pooled(a, m, v));
	}
	tsr_text_puts(out, "\n");
}

static void put_coat(const struct tsr_audit *a, const char *title, struct tsr_text *out)
{
	tsr_text_printf(out, "%s: error of m / (sqrt(v) + %.4g)\n", title, (double)a->eps);
	for (unsigned worst = 0; worst < 2; worst++) {
		tsr_text_printf(out, "\nNMSE of %s; rows: momentum, columns: variance\n%-12s",
				worst ? "the worst tensor" : "all elements together", "");
		for (unsigned v = 0; v < a->variances.n; v++)
			tsr_text_printf(out, " %9s", a->variances.codings[v].codec->name);
		tsr_text_puts(out, "\n");
		for (unsigned m = 0; m < a->momenta.n; m++)
			put_coat_row(a, m, worst, out);
	}
}

/* --- Gefen -------------------------------------------------------------------------------------- */

static void put_gefen(const struct tsr_audit *a, struct tsr_text *out)
{
	tsr_text_puts(out, "Gefen: codebooks in the blocks that were found, over tensors\n\n");
	put_boxes(a, TSR_KIND_MOMENTUM, out);
	tsr_text_puts(out, "\n");
	put_boxes(a, TSR_KIND_VARIANCE, out);
	if (!a->learned)
		return;
	tsr_text_printf(out, "\ncodebook: NMSE %.4e of the normalised values, in %u of %d bins\n",
			a->learned->nmse, a->learned->nonempty, TSR_LEARNED_BINS);
	tsr_text_printf(out, "\n%-44s %14s %8s %8s\n", "parameter", "elements", "period", "block");
	for (size_t i = 0; i < a->learned->ntensors; i++) {
		const struct tsr_learned_tensor *t = &a->learned->tensors[i];

		tsr_text_printf(out, "%-44s %14s %8u %8u\n", tsr_format_name(t->name, 44).text,
				tsr_format_count(t->numel).text, (unsigned)t->period,
				(unsigned)t->block);
	}
}

/* --- Extra bits --------------------------------------------------------------------------------- */

static void put_extra_bits(const struct tsr_audit *a, struct tsr_text *out)
{
	tsr_text_puts(out, "FP8, FP16 and BF16 weights with extra bits, over tensors\n\n");
	put_boxes(a, TSR_KIND_WEIGHT, out);
	tsr_text_printf(out, "\n%-*s %8s %9s %9s %12s\n", LABEL_COLUMNS, "weight", "bytes",
			"relative", "max abs", "become zero");
	for (unsigned i = 0; i < a->weights.n; i++) {
		struct tsr_audit_column c;

		if (!tsr_audit_column(a, TSR_KIND_WEIGHT, i, &c)) {
			out->failed = true;
			return;
		}
		put_label(&a->weights.codings[i], out);
		tsr_text_printf(out, " %8.3f %9.1e %9.1e %12s\n", c.bytes,
				c.quantile[TSR_AUDIT_MEAN_REL][3],
				c.quantile[TSR_AUDIT_MAX_ABS][LAST],
				tsr_format_count(c.zeroed).text);
	}
}

/* --- All of them -------------------------------------------------------------------------------- */

static void put_coat_1(const struct tsr_audit *a, struct tsr_text *out)
{
	put_coat(a, "COAT, Table 1", out);
}

static void put_coat_9(const struct tsr_audit *a, struct tsr_text *out)
{
	put_coat(a, "COAT, Table 9", out);
}

static const struct {
	const char *name;
	const struct row *rows;
	void (*put)(const struct tsr_audit *a, struct tsr_text *out);
} tables[] = {
	{ "flashoptim-4", flashoptim_4, put_flashoptim },
	{ "coat-1", coat_1, put_coat_1 },
	{ "coat-9", coat_9, put_coat_9 },
	{ "gefen", gefen, put_gefen },
	{ "extra-bits", extra_bits, put_extra_bits },
};

unsigned tsr_audit_table_codings(const char *name, struct tsr_coding *ret)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
		if (strcmp(tables[i].name, name) == 0)
			return fill(tables[i].rows, ret);
	}
	return 0;
}

void tsr_audit_put_paper_table(const char *name, const struct tsr_audit *a, struct tsr_text *out)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
		if (strcmp(tables[i].name, name) == 0)
			tables[i].put(a, out);
	}
}
