/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the papers, of one's own data. */
#include "report/audit_report.h"
#include "report/learned_report.h"

#include <stdio.h>
#include <string.h>

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

/* A row of a table of boxes, whose title is that of its first column. */
static void add_box(struct tsr_table *t, const char *title, const struct tsr_coding *coding,
		    const double quantile[TSR_AUDIT_QUANTILES])
{
	char head[64], label[160];

	snprintf(head, sizeof(head), "%s:20", title);
	if (coding->codec->grouped && (coding->codec->learned || !coding->group))
		snprintf(label, sizeof(label), "%s blocks", coding->codec->name);
	else
		snprintf(label, sizeof(label), "%s", tsr_format_coding(coding).text);
	tsr_row(t);
	TSR_CELL(t, "codec", head, tsr_keep(t, label));
	if (quantile)
		tsr_cell_list(t, "nmse", "0% 5% 25% 50% 75% 95% 100%:.1e", quantile,
			      TSR_AUDIT_QUANTILES);
}

/* The NMSE of all codings of a kind, as the boxes of a plot. */
static void put_kind(const struct tsr_audit *a, enum tsr_kind kind, struct tsr_report *r)
{
	const struct tsr_audit_list *list = tsr_audit_list(a, kind);
	struct tsr_audit_column c = { 0 };
	struct tsr_table t = { 0 };
	char title[64];

	snprintf(title, sizeof(title), "%s, NMSE", tsr_kind_name(kind));
	for (unsigned i = 0; i < list->n; i++) {
		t.failed |= !tsr_audit_column(a, kind, i, &c);
		add_box(&t, title, &list->codings[i], c.quantile[TSR_AUDIT_NMSE]);
	}
	tsr_report_table(r, &t, "", NULL);
	for (unsigned i = 0; i < list->n; i++) {
		if (tsr_audit_column(a, kind, i, &c) && (c.underflow || c.nraw))
			tsr_report_say(r, TSR_TO_TEXT,
				       "%s: groups with scale 0: %s; tensors it cannot hold: %zu",
				       tsr_format_coding(&list->codings[i]).text,
				       tsr_format_count(c.underflow).text, c.nraw);
	}
}

/* --- What else they show ------------------------------------------------------------------------ */

/* FlashOptim: updates, whose codes for both moments are those of one line. */
static void put_updates(const struct tsr_audit *a, struct tsr_report *r)
{
	struct tsr_audit_cell c = { .n = 0 };
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < a->momenta.n && i < a->variances.n; i++) {
		t.failed |= !tsr_audit_cell(a, i, i, &c);
		add_box(&t, "update, NMSE", &a->variances.codings[i], c.nmse);
	}
	tsr_report_table(r, &t, "", NULL);
	tsr_report_say(r, TSR_TO_TEXT,
		       "updates: with the momentum's code of the same line; of full range: e8m8");
}

/* COAT: updates of every momentum's codec with all of variances, of all elements or of the worst pair. */
static void put_grid(const struct tsr_audit *a, bool worst, struct tsr_report *r)
{
	struct tsr_audit_cell c = { .n = 0 };
	struct tsr_table t = { 0 };
	char head[64];

	for (unsigned m = 0; m < a->momenta.n; m++) {
		tsr_row(&t);
		TSR_CELL(&t, "momentum", " :12", a->momenta.codings[m].codec->name);
		for (unsigned v = 0; v < a->variances.n; v++) {
			const char *name = a->variances.codings[v].codec->name;

			snprintf(head, sizeof(head), "%s:9.2e", name);
			t.failed |= worst && !tsr_audit_cell(a, m, v, &c);
			TSR_CELL(&t, name, head, worst ? c.nmse[LAST] : tsr_audit_pooled(a, m, v));
		}
	}
	tsr_report_say(r, TSR_TO_TEXT, "NMSE of %s; rows: momentum, columns: variance",
		       worst ? "the worst tensor" : "all elements together");
	tsr_report_table(r, &t, "", NULL);
}

static void put_grids(const struct tsr_audit *a, struct tsr_report *r)
{
	put_grid(a, false, r);
	tsr_report_gap(r);
	put_grid(a, true, r);
}

static void put_blocks(const struct tsr_audit *a, struct tsr_report *r)
{
	if (!a->learned)
		return;
	tsr_report_say(r, TSR_TO_TEXT,
		       "codebook: NMSE %.4e of the normalised values, in %u of %d bins",
		       a->learned->nmse, a->learned->nonempty, TSR_LEARNED_BINS);
	tsr_report_gap(r);
	tsr_learned_put_blocks(a->learned, r);
}

static void put_weights(const struct tsr_audit *a, struct tsr_report *r)
{
	struct tsr_audit_column c = { 0 };
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < a->weights.n; i++) {
		t.failed |= !tsr_audit_column(a, TSR_KIND_WEIGHT, i, &c);
		add_box(&t, "weight", &a->weights.codings[i], NULL);
		TSR_CELL(&t, "bytes", "bytes:.3f", c.bytes);
		TSR_CELL(&t, "relative", "relative:.1e", c.quantile[TSR_AUDIT_MEAN_REL][3]);
		TSR_CELL(&t, "max_abs", "max abs:.1e", c.quantile[TSR_AUDIT_MAX_ABS][LAST]);
		TSR_CELL(&t, "zeroed", "become zero:,", c.zeroed);
	}
	tsr_report_table(r, &t, "", NULL);
}

/* --- All of them -------------------------------------------------------------------------------- */

#define MOMENTS (TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE)

static const struct {
	const char *name, *title;
	const struct row *rows;
	unsigned boxes; /* the kinds that have some */
	bool eps; /* the title ends in what updates are */
	void (*more)(const struct tsr_audit *a, struct tsr_report *r);
} tables[] = {
	{ "flashoptim-4", "FlashOptim, Figure 4: linear and companded codes, over tensors",
	  flashoptim_4, MOMENTS, false, put_updates },
	{ "coat-1", "COAT, Table 1", coat_1, 0, true, put_grids },
	{ "coat-9", "COAT, Table 9", coat_9, 0, true, put_grids },
	{ "gefen", "Gefen: codebooks in the blocks that were found, over tensors", gefen, MOMENTS,
	  false, put_blocks },
	{ "extra-bits", "FP8, FP16 and BF16 weights with extra bits, over tensors", extra_bits,
	  TSR_KIND_WEIGHT, false, put_weights },
};

unsigned tsr_audit_table_codings(const char *name, struct tsr_coding *ret)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
		if (strcmp(tables[i].name, name) == 0)
			return fill(tables[i].rows, ret);
	}
	return 0;
}

void tsr_audit_put_paper(const char *name, const struct tsr_audit *a, struct tsr_report *r)
{
	static const enum tsr_kind kinds[] = { TSR_KIND_MOMENTUM, TSR_KIND_VARIANCE,
					       TSR_KIND_WEIGHT };
	size_t i = 0;

	while (strcmp(tables[i].name, name) != 0)
		i++;
	if (tables[i].eps)
		tsr_report_say(r, TSR_TO_TEXT, "%s: error of m / (sqrt(v) + %.4g)", tables[i].title,
			       (double)a->eps);
	else
		tsr_report_say(r, TSR_TO_TEXT, "%s", tables[i].title);
	tsr_report_gap(r);
	for (unsigned k = 0; k < 3; k++) {
		if (!(tables[i].boxes & kinds[k]))
			continue;
		put_kind(a, kinds[k], r);
		tsr_report_gap(r);
	}
	tables[i].more(a, r);
}
