/* SPDX-License-Identifier: Apache-2.0 */
/* What diff says of two checkpoints. */
#include "report/checkpoints/checkpoint_reports.h"

static const char *const kind_names[] = {
	[TSR_DIFF_COMPARED] = "compared",   [TSR_DIFF_ONLY_A] = "only in A",
	[TSR_DIFF_ONLY_B] = "only in B",    [TSR_DIFF_SHAPE] = "shapes differ",
	[TSR_DIFF_DTYPE] = "dtypes differ",
};

/* What the figures do not say. */
static const char *note_of(struct tsr_table *t, const struct tsr_diff_tensor *d)
{
	if (d->kind != TSR_DIFF_COMPARED)
		return kind_names[d->kind];
	if (d->nonfinite_different)
		return tsr_keepf(t, "%" PRIu64 " non-finite", d->nonfinite_different);
	return d->different && !d->measure.n ? tsr_keepf(t, "at element %" PRIu64, d->worst) : "";
}

static struct tsr_table list_tensors(const struct tsr_report *r, const struct tsr_diff_options *o,
				     const struct tsr_comparison *c, bool *any_ret)
{
	struct tsr_table t = { 0 };

	*any_ret = false;
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_diff_tensor *d = &c->tensors[i];
		const bool compared = d->kind == TSR_DIFF_COMPARED;
		/* With tolerances only what is beyond them is worth a line. */
		const bool shown = r->verbose ||
				   (o->ntolerances ? d->exceeds
						   : !d->noted && (!compared || d->different));

		*any_ret = *any_ret || shown;
		if (!shown && !r->wants_json)
			continue;
		tsr_row(&t);
		TSR_CELL(&t, "name", "tensor:n", d->name);
		TSR_CELL(&t, "result", NULL,
			 !compared	? kind_names[d->kind]
			 : d->different ? "different"
					: "equal");
		TSR_CELL(&t, "-note", "", note_of(&t, d));
		TSR_CELL(&t, "exceeds", NULL, d->exceeds);
		TSR_CELL(&t, "noted", NULL, d->noted);
		if (compared) {
			TSR_CELL(&t, "different", "different:10", d->different);
			TSR_CELL(&t, "nonfinite_different", NULL, d->nonfinite_different);
		}
		if (d->different) {
			TSR_CELL(&t, "worst_index", NULL, d->worst);
			TSR_CELL(&t, "worst_a", NULL, d->worst_a);
			TSR_CELL(&t, "worst_b", NULL, d->worst_b);
		}
		if (d->measure.n)
			tsr_measured_put(&t, &d->measure);
		tsr_put_aside(&t, shown ? 0 : TSR_TO_TEXT);
	}
	return t;
}

void tsr_comparison_report(const struct tsr_comparison *c, const struct tsr_diff_options *o,
			   struct tsr_report *r)
{
	const struct tsr_diff_tensor *worst = tsr_comparison_worst(c);
	bool any;
	struct tsr_table t = list_tensors(r, o, c, &any);

	tsr_json_put_u64(&r->json, "differing", c->ndiffering);
	tsr_json_put_u64(&r->json, "exceeding", c->nexceeding);
	tsr_json_put_u64(&r->json, "noted", c->nnoted);
	if (o->steps)
		tsr_moments_put_json(&c->moments, &r->json);
	tsr_besides_put_json(&c->besides, &r->json);
	tsr_report_rows(r, t, "tensors",
			"name,different,error.ulp,error.abs,error.rel,error.nmse,-note");
	if (worst) {
		tsr_text_printf(&r->text, "%sworst: %s, element %" PRIu64, any ? "\n" : "",
				tsr_format_name(worst->name, 40).text, worst->worst);
		if (worst->measure.n)
			tsr_text_printf(&r->text, ": %.9g against %.9g", worst->worst_a,
					worst->worst_b);
		tsr_text_puts(&r->text, "\n");
	}
	if (c->nnoted)
		tsr_text_printf(&r->text,
				"%" PRIu64
				" tensors that the other kind of file lacks: not counted\n",
				c->nnoted);
	tsr_besides_put_text(&c->besides, r->verbose, &r->text);
	tsr_text_printf(&r->text, "%zu tensors compared: %" PRIu64 " differ",
			c->ntensors - (size_t)c->nnoted, c->ndiffering);
	if (o->ntolerances)
		tsr_text_printf(&r->text, ", %" PRIu64 " beyond the tolerances", c->nexceeding);
	tsr_text_puts(&r->text, "\n");
}
