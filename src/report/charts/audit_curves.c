/* SPDX-License-Identifier: Apache-2.0 */
/* The curves of audits of several checkpoints: the worst update error of some pairs of codecs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/charts/charts.h"

/* A line of the legend. */
#define KEY 200

/* @n: lines, each a pair of codecs. */
static struct tsr_lines panel_of(const struct tsr_audits *v, unsigned n)
{
	/* Of audits that a replay calls by their steps, without gaps. */
	uint64_t first, last;
	const bool steps = sscanf(v->each[0]->name, "step %" SCNu64, &first) == 1 &&
			   sscanf(v->each[v->n - 1]->name, "step %" SCNu64, &last) == 1 &&
			   last - first + 1 == v->n;

	return (struct tsr_lines){ .name = "checkpoints",
				   .title = steps ? "Updates over steps"
						  : "Updates over checkpoints",
				   .unit = "worst NMSE",
				   .y = TSR_AXIS,
				   .wide_log = true,
				   .n = v->n,
				   .first = steps ? first : 1,
				   .word = steps ? "step" : NULL,
				   .head = KEY * (int)n };
}

/* Whether line @k has the values of an earlier one, which it covers. */
static bool covers(const double *values, size_t n, unsigned k)
{
	for (unsigned j = 0; j < k; j++) {
		size_t i = 0;

		while (i < n && values[j * n + i] == values[k * n + i])
			i++;
		if (i == n)
			return true;
	}
	return false;
}

int tsr_audit_curves_height(const struct tsr_audits *v)
{
	const struct tsr_audit *last = v->each[v->n - 1];
	const struct tsr_audit_series s = tsr_audit_series_of(last);
	const struct tsr_lines l = panel_of(v, s.n);

	return v->n > 1 && last->npairs && s.n ? tsr_lines_height(&l) : 0;
}

void tsr_audit_curves_put(const struct tsr_audits *v, int top, int width, struct tsr_text *svg)
{
	static const char *const classes[TSR_AUDIT_SERIES_MAX] = { "s0", "s1", "s2", "s3" };
	const struct tsr_audit *last = v->each[v->n - 1];
	const struct tsr_audit_series s = tsr_audit_series_of(last);
	double *values = calloc(v->n * s.n + 1, sizeof(*values));
	struct tsr_lines l = panel_of(v, s.n);
	char key[80];

	svg->failed = svg->failed || !values;
	if (!values)
		return;
	for (size_t i = 0; i < v->n * s.n; i++) {
		values[i] = tsr_audit_series_nmse(v->each[i % v->n], last, s.cell[i / v->n]);
		tsr_axis_note(&l.y, values[i]);
	}
	tsr_lines_open(svg, &l, 0, top, width);
	for (unsigned k = 0; k < s.n; k++) {
		snprintf(key, sizeof(key), "%s + %s%s",
			 last->momenta.codings[s.cell[k]->m].codec->name,
			 last->variances.codings[s.cell[k]->v].codec->name,
			 covers(values, v->n, k) ? ", on the line of another" : "");
		tsr_chart_put_key(svg, l.area.left, top + 440 + KEY * (int)k, classes[k], k, key);
		tsr_lines_put(svg, &l, classes[k], values + k * v->n, k);
	}
	tsr_text_puts(svg, "</g>\n");
	free(values);
}
