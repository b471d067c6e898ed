/* SPDX-License-Identifier: Apache-2.0 */
/* The curves of audits of several checkpoints: the worst update error of some pairs of codecs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/charts/charts.h"

/* A line of the legend. */
#define KEY 200

static struct tsr_lines panel_of(const struct tsr_audit_view *v)
{
	/* Of audits that a replay calls by their steps, without gaps. */
	uint64_t first, last;
	const bool steps = sscanf(v->audits[0]->name, "step %" SCNu64, &first) == 1 &&
			   sscanf(v->audits[v->naudits - 1]->name, "step %" SCNu64, &last) == 1 &&
			   last - first + 1 == v->naudits;
	struct tsr_lines l = { .name = "checkpoints",
			       .title = steps ? "Updates over steps" : "Updates over checkpoints",
			       .unit = "worst NMSE",
			       .y = TSR_AXIS,
			       .wide_log = true,
			       .n = v->naudits,
			       .first = steps ? first : 1,
			       .word = steps ? "step" : NULL,
			       .head = KEY * (int)v->series.n };

	for (size_t i = 0; i < v->naudits * v->series.n; i++)
		tsr_axis_note(&l.y, v->nmse[i]);
	return l;
}

/* Whether line @k has the values of an earlier one, which it covers. */
static bool covers(const struct tsr_audit_view *v, unsigned k)
{
	const unsigned n = v->series.n;
	size_t same = 0;

	for (unsigned j = 0; j < k && same < v->naudits; j++) {
		for (same = 0; same < v->naudits; same++) {
			if (v->nmse[same * n + j] != v->nmse[same * n + k])
				break;
		}
	}
	return same == v->naudits;
}

int tsr_audit_curves_height(const struct tsr_audit_view *v)
{
	const struct tsr_lines l = panel_of(v);

	return v->series.n ? tsr_lines_height(&l) : 0;
}

void tsr_audit_curves_put(const struct tsr_audit_view *v, int top, int width, struct tsr_text *svg)
{
	static const char *const classes[TSR_AUDIT_SERIES_MAX] = { "s0", "s1", "s2", "s3" };
	double *values = calloc(v->naudits + 1, sizeof(*values));
	struct tsr_lines l = panel_of(v);
	char key[80];

	svg->failed = svg->failed || !values;
	if (!values)
		return;
	tsr_lines_open(svg, &l, 0, top, width);
	for (unsigned k = 0; k < v->series.n; k++) {
		const struct tsr_audit_cell *c = &v->series.cell[k];

		for (size_t i = 0; i < v->naudits; i++)
			values[i] = v->nmse[i * v->series.n + k];
		snprintf(key, sizeof(key), "%s + %s%s", v->audit->momenta.codings[c->m].codec->name,
			 v->audit->variances.codings[c->v].codec->name,
			 covers(v, k) ? ", on the line of another" : "");
		tsr_chart_put_key(svg, l.area.left, top + 440 + KEY * (int)k, classes[k], k, key);
		tsr_lines_put(svg, &l, classes[k], values, k);
	}
	tsr_text_puts(svg, "</g>\n");
	free(values);
}
