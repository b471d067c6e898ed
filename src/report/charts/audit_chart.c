/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of an audit: its panels one below the other, and what each shows in a sentence. */
#include "report/charts/charts.h"

#include <stdio.h>

#define LAST (TSR_AUDIT_QUANTILES - 1)

/* --- Panels ------------------------------------------------------------------------------------- */

enum { CURVES, HEAT, MOMENTA, VARIANCES, WEIGHTS, PANELS };

static const enum tsr_kind kinds[PANELS] = {
	[MOMENTA] = TSR_KIND_MOMENTUM, [VARIANCES] = TSR_KIND_VARIANCE, [WEIGHTS] = TSR_KIND_WEIGHT
};

static int height_of(const struct tsr_audits *v, unsigned panel)
{
	const struct tsr_audit *last = v->each[v->n - 1];

	return panel == CURVES ? tsr_audit_curves_height(v)
	       : panel == HEAT ? tsr_audit_heat_height(last)
			       : tsr_audit_boxes_height(last, kinds[panel]);
}

/* Panels from @first to before @end. */
static void put_chart(const struct tsr_audits *v, const struct tsr_chart_frame *f, unsigned first,
		      unsigned end, struct tsr_text *svg)
{
	const struct tsr_audit *last = v->each[v->n - 1];
	int total = 10, top = 0;

	for (unsigned i = first; i < end; i++)
		total += height_of(v, i) / 10;
	tsr_chart_open(svg, f, "", total, "Errors of codecs over the tensors of a checkpoint");
	for (unsigned i = first; i < end; i++) {
		const int height = height_of(v, i);

		if (height && i == CURVES)
			tsr_audit_curves_put(v, top, 10 * f->width, svg);
		else if (height && i == HEAT)
			tsr_audit_heat_put(last, top, 10 * f->width, svg);
		else if (height)
			tsr_audit_boxes_put(last, kinds[i], top, 10 * f->width, svg);
		top += height;
	}
	tsr_text_puts(svg, "</svg>\n");
}

/* --- What they show ----------------------------------------------------------------------------- */

/* The range of the first line, which is of the pair to use. */
static void say_curves(const struct tsr_audits *v, struct tsr_text *html)
{
	const struct tsr_audit_series s = tsr_audit_series_of(v->each[v->n - 1]);
	double least = INFINITY, most = -INFINITY;

	for (size_t i = 0; i < v->n; i++) {
		const double nmse = tsr_audit_series_nmse(v->each[i], v->each[v->n - 1], s.cell[0]);

		least = fmin(least, nmse);
		most = fmax(most, nmse);
	}
	tsr_text_printf(html, "<p>The first pair stays between %.2g and %.2g.</p>\n", least, most);
}

static void say_heat(const struct tsr_audit *a, struct tsr_text *html)
{
	size_t n, nfine = 0;
	const struct tsr_audit_cell *cells = tsr_audit_cells(a, &n);

	for (size_t k = 0; k < n; k++)
		nfine += cells[k].n && !cells[k].nraw &&
			 tsr_update_level(cells[k].nmse[LAST]) == TSR_FINDING_FINE;
	tsr_text_printf(html,
			"<p>%zu of %zu pairs are fine: every update stays within 3.2%% of its "
			"length.%s</p>\n",
			nfine, n, tsr_audit_best_pair(a) ? " The frame is the pair to use." : "");
}

/* The codec with the least worst error among those of about one byte, or of three for weights. */
static void say_boxes(const struct tsr_audit *a, enum tsr_kind kind, struct tsr_text *html)
{
	const double bytes = kind == TSR_KIND_WEIGHT ? 3.2 : 1.2;
	const struct tsr_audit_column *best = NULL;

	for (unsigned i = 0; i < tsr_audit_list(a, kind)->n; i++) {
		const struct tsr_audit_column *c = &tsr_audit_columns(a, kind)[i];

		if (c->n && c->bytes <= bytes && !c->nraw &&
		    (!best ||
		     c->quantile[TSR_AUDIT_NMSE][LAST] < best->quantile[TSR_AUDIT_NMSE][LAST]))
			best = c;
	}
	if (best)
		tsr_text_printf(html,
				"<p>In at most %.1f bytes %s is nearest to every tensor: NMSE at "
				"most %.2g.</p>\n",
				bytes, best->coding->codec->name,
				best->quantile[TSR_AUDIT_NMSE][LAST]);
}

void tsr_audit_chart_put(const void *ctx, const struct tsr_chart_frame *f, struct tsr_text *svg)
{
	const struct tsr_audits *v = ctx;
	const struct tsr_audit *last = v->each[v->n - 1];
	struct tsr_chart_frame each = *f;
	char id[32];

	each.id = id;
	if (!f->page)
		put_chart(v, f, 0, PANELS, svg);
	for (unsigned i = 0; f->page && i < PANELS; i++) {
		if (!height_of(v, i))
			continue;
		snprintf(id, sizeof(id), "%s-%u", f->id, i);
		put_chart(v, &each, i, i + 1, svg);
		if (i == CURVES)
			say_curves(v, svg);
		else if (i == HEAT)
			say_heat(last, svg);
		else
			say_boxes(last, kinds[i], svg);
	}
}
