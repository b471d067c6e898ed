/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of an audit: its panels one below the other. */
#include "report/charts/audit_chart.h"

#include "report/charts/plot.h"

void tsr_audit_chart_put(const struct tsr_audit_view *v, const char *id, int width,
			 struct tsr_text *svg)
{
	const int heat = tsr_audit_heat_height(v, 10 * width);
	const int curves = tsr_audit_curves_height(v);
	struct tsr_chart_head head = {
		.id = id,
		.width = width,
		.height = (curves + heat) / 10 + 10,
		.label = "Errors of codecs over the tensors of a checkpoint"
	};
	int top = 0;

	for (unsigned i = 0; i < TSR_AUDIT_PANELS; i++)
		head.height += tsr_audit_boxes_height(&v->panel[i]) / 10;
	tsr_chart_open(svg, &head);
	if (curves)
		tsr_audit_curves_put(v, top, 10 * width, svg);
	top += curves;
	if (heat)
		tsr_audit_heat_put(v, top, 10 * width, svg);
	top += heat;
	for (unsigned i = 0; i < TSR_AUDIT_PANELS; i++) {
		if (v->panel[i].n)
			tsr_audit_boxes_put(v, &v->panel[i], top, 10 * width, svg);
		top += tsr_audit_boxes_height(&v->panel[i]);
	}
	tsr_text_puts(svg, "</svg>\n");
}
