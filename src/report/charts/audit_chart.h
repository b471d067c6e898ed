/* SPDX-License-Identifier: Apache-2.0 */
/* The charts and the page of an audit. */
#ifndef TSR_CHARTS_AUDIT_CHART_H
#define TSR_CHARTS_AUDIT_CHART_H

#include "report/charts/audit_view.h"
#include "report/charts/plot.h"

/*
 * Of struct tsr_audit_view: in a file all panels one below the other, in a page an svg element for each, with
 * a sentence on what it shows.
 */
tsr_chart_put tsr_audit_chart_put;

/*
 * The panels, in tenths of a pixel: their height at a width, 0 if there is nothing to show; and their
 * elements, from @top on.
 */
int tsr_audit_boxes_height(const struct tsr_audit_panel *p);
void tsr_audit_boxes_put(const struct tsr_audit_view *v, const struct tsr_audit_panel *p, int top,
			 int width, struct tsr_text *svg);
int tsr_audit_curves_height(const struct tsr_audit_view *v);
void tsr_audit_curves_put(const struct tsr_audit_view *v, int top, int width, struct tsr_text *svg);
int tsr_audit_heat_height(const struct tsr_audit_view *v);
void tsr_audit_heat_put(const struct tsr_audit_view *v, int top, int width, struct tsr_text *svg);

#endif
