/* SPDX-License-Identifier: Apache-2.0 */
/* The charts and the page of an audit. */
#ifndef TSR_CHARTS_AUDIT_CHART_H
#define TSR_CHARTS_AUDIT_CHART_H

#include "report/charts/audit_view.h"
#include "text/text.h"

/* The svg element with all panels one below the other, @width pixels wide. */
void tsr_audit_chart_put(const struct tsr_audit_view *v, const char *id, int width,
			 struct tsr_text *svg);

/* The same as an svg element for each panel, with a sentence on what it shows. */
void tsr_audit_charts_put(const struct tsr_audit_view *v, const char *id, int width,
			  struct tsr_text *html);

/*
 * The panels, in tenths of a pixel: their height at a width, 0 if there is nothing to show; and their
 * elements, from @top on.
 */
int tsr_audit_boxes_height(const struct tsr_audit_panel *p);
void tsr_audit_boxes_put(const struct tsr_audit_view *v, const struct tsr_audit_panel *p, int top,
			 int width, struct tsr_text *svg);
int tsr_audit_curves_height(const struct tsr_audit_view *v);
void tsr_audit_curves_put(const struct tsr_audit_view *v, int top, int width, struct tsr_text *svg);
int tsr_audit_heat_height(const struct tsr_audit_view *v, int width);
void tsr_audit_heat_put(const struct tsr_audit_view *v, int top, int width, struct tsr_text *svg);

#endif
