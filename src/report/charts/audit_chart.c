/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of an audit: its panels one below the other, and their style. */
#include "report/charts/audit_chart.h"

#include "report/charts/chart.h"

/* Colours are repeated for dark pages, as not every SVG viewer knows variables. */
const char tsr_audit_chart_style[] =
	".audit text{font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;"
	"fill:#222}.audit .title{font-weight:600;font-size:13px}"
	".audit .tick,.audit .unit{fill:#555;font-size:11px;font-weight:400}"
	".audit .up{font-size:8px}.audit .mid{text-anchor:middle}.audit .end{text-anchor:end}"
	".audit .page{fill:#fff}.audit .grid{stroke:#e3e3e3}.audit .field{fill:#000;opacity:0}"
	".audit .row:hover .field{opacity:.06}.audit .whisker{stroke:#555}"
	".audit .box{fill:#cfe3f3;stroke:#0060a8}.audit .median{stroke:#0060a8;stroke-width:2}"
	".audit .marker{fill:#fff;stroke:#555}.audit .most .marker{stroke:#c44e00;stroke-width:1.5}"
	".audit .cell text{font-size:11px;fill:#222}.audit .cell .small{font-size:9px}.audit .q7 "
	"rect{fill:#f0f0f0}"
	".audit .q0 rect{fill:#fff7d0}.audit .q1 rect{fill:#fee391}.audit .q2 rect{fill:#fec44f}"
	".audit .q3 rect{fill:#fe9929}.audit .q4 rect{fill:#ec7014}.audit .q5 rect{fill:#b13d02}"
	".audit .q6 rect{fill:#7a2403}.audit .q5 text,.audit .q6 text{fill:#fff}"
	".audit .best rect{stroke:#222;stroke-width:2.5}.audit .axis{stroke:#555}"
	".audit .curve path{fill:none;stroke-width:1.8;stroke-linejoin:round}"
	".audit .curve .marker{fill:#fff;stroke-width:1.3}.audit .c0 path{stroke:#0060a8}"
	".audit .c1 path{stroke:#c44e00}.audit .c2 path{stroke:#1b6b35}.audit .c3 "
	"path{stroke:#7a3e9d}"
	"@media(prefers-color-scheme:dark){.audit text{fill:#e6e6e6}"
	".audit .tick,.audit .unit{fill:#aab0b8}.audit .page{fill:#16191d}.audit "
	".grid{stroke:#30353c}"
	".audit .field{fill:#fff}.audit .whisker{stroke:#aab0b8}"
	".audit .box{fill:#1f4763;stroke:#6cb8f0}.audit .median{stroke:#6cb8f0}"
	".audit .marker{fill:#16191d;stroke:#aab0b8}.audit .most .marker{stroke:#ff9d5c}"
	".audit .cell text{fill:#f2f2f2}.audit .q7 rect{fill:#23272c}"
	".audit .q0 rect{fill:#2b2a22}.audit .q1 rect{fill:#463a1c}.audit .q2 rect{fill:#654a16}"
	".audit .q3 rect{fill:#8a5510}.audit .q4 rect{fill:#b5610d}.audit .q5 rect{fill:#e98a3c}"
	".audit .q6 rect{fill:#ffb98a}.audit .q5 text,.audit .q6 text{fill:#1a1208}"
	".audit .best rect{stroke:#f2f2f2}.audit .axis{stroke:#aab0b8}"
	".audit .curve .marker{fill:#16191d}.audit .c0 path{stroke:#6cb8f0}"
	".audit .c1 path{stroke:#ff9d5c}.audit .c2 path{stroke:#7fd69a}.audit .c3 "
	"path{stroke:#c9a0e8}}";

void tsr_audit_chart_put(const struct tsr_audit_view *v, const char *id, int width,
			 struct tsr_text *svg)
{
	const int heat = tsr_audit_heat_height(v, 10 * width);
	const int curves = tsr_audit_curves_height(v);
	struct tsr_chart_head head = { .id = id,
				       .class = "audit",
				       .width = width,
				       .height = (curves + heat) / 10 + 10,
				       .label = "Errors of codecs over the tensors of a checkpoint",
				       .style = tsr_audit_chart_style };
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
