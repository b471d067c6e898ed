/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of an audit: its panels one below the other, and what each shows in a sentence. */
#include "report/charts/charts.h"

#include <stdio.h>

#define LAST (TSR_AUDIT_QUANTILES - 1)

enum { CURVES, HEAT, BOXES };

static int height_of(const struct tsr_audit_view *v, unsigned piece)
{
	return piece == CURVES ? tsr_audit_curves_height(v)
	       : piece == HEAT ? tsr_audit_heat_height(v)
			       : tsr_audit_boxes_height(&v->panel[piece - BOXES]);
}

static void put_chart(const struct tsr_audit_view *v, const char *id, unsigned first, unsigned end,
		      int width, struct tsr_text *svg)
{
	struct tsr_chart_head head = {
		.id = id,
		.width = width,
		.height = 10,
		.label = "Errors of codecs over the tensors of a checkpoint"
	};
	int top = 0;

	for (unsigned i = first; i < end; i++)
		head.height += height_of(v, i) / 10;
	tsr_chart_open(svg, &head);
	for (unsigned i = first; i < end; i++) {
		const int height = height_of(v, i);

		if (height && i == CURVES)
			tsr_audit_curves_put(v, top, 10 * width, svg);
		else if (height && i == HEAT)
			tsr_audit_heat_put(v, top, 10 * width, svg);
		else if (height)
			tsr_audit_boxes_put(v, &v->panel[i - BOXES], top, 10 * width, svg);
		top += height;
	}
	tsr_text_puts(svg, "</svg>\n");
}

/* --- What they show ----------------------------------------------------------------------------- */

/* The codec with the least worst error among those of about one byte, or of three for weights. */
static void say_boxes(const struct tsr_audit_panel *p, struct tsr_text *html)
{
	const double bytes = p->kind == TSR_KIND_WEIGHT ? 3.2 : 1.2;
	const struct tsr_audit_column *best = NULL;

	for (unsigned i = 0; i < p->n; i++) {
		const struct tsr_audit_column *c = &p->columns[i];

		if (c->bytes <= bytes && !c->nraw &&
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
	const struct tsr_audit_view *v = ctx;
	double least = INFINITY, most = -INFINITY;
	size_t nfine = 0;

	if (!f->page)
		put_chart(v, f->id, CURVES, BOXES + TSR_AUDIT_PANELS, f->width, svg);
	for (unsigned i = CURVES; f->page && i < BOXES + TSR_AUDIT_PANELS; i++) {
		char each[32];

		if (!height_of(v, i))
			continue;
		snprintf(each, sizeof(each), "%s-%u", f->id, i);
		put_chart(v, each, i, i + 1, f->width, svg);
		/* The range of the first line, which is of the pair to use. */
		for (size_t k = 0; i == CURVES && k < v->naudits; k++) {
			least = fmin(least, v->nmse[k * v->series.n]);
			most = fmax(most, v->nmse[k * v->series.n]);
		}
		for (size_t k = 0; i == HEAT && k < v->ncells; k++)
			nfine += v->cells[k].n && !v->cells[k].nraw &&
				 tsr_update_level(v->cells[k].nmse[LAST]) == TSR_FINDING_FINE;
		if (i == CURVES)
			tsr_text_printf(svg, "<p>The first pair stays between %.2g and %.2g.</p>\n",
					least, most);
		else if (i == HEAT)
			tsr_text_printf(svg,
					"<p>%zu of %zu pairs are fine: every update stays within "
					"3.2%% of its length.%s</p>\n",
					nfine, v->ncells,
					v->best ? " The frame is the pair to use." : "");
		else
			say_boxes(&v->panel[i - BOXES], svg);
	}
}
