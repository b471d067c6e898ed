/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of an audit, and the same for programs: JSON and comma-separated values. */
#include "report/checkpoints/remarks.h"
#include "report/reports.h"

#define LAST (TSR_AUDIT_QUANTILES - 1)
#define MEDIAN TSR_AUDIT_MEDIAN

/* Rows of a text unless it is verbose, and of a page. */
#define PAIRS_SHOWN 12
#define ROWS_SHOWN 200

/* --- Tables ----------------------------------------------------------------------------------- */

/* How a codec's errors and other figures are shown; the rest is for programs. */
static const char *shown_of(enum tsr_audit_figure figure)
{
	return figure == TSR_AUDIT_NMSE ? "0% 5% 25% 50% 75% 95% 100%:.1e" : NULL;
}

/* How people see a coding: its codec, and the format of its scales where others have the same codec. */
static const char *label_of(const struct tsr_audit_list *list, unsigned i, struct tsr_table *t)
{
	const struct tsr_coding *coding = &list->codings[i];

	for (unsigned k = 0; k < list->n; k++) {
		if (k == i || list->codings[k].codec != coding->codec)
			continue;
		return tsr_keepf(t, "%s %s", coding->codec->name, tsr_scale_name(coding->scale));
	}
	return coding->codec->name;
}

/* One codec over all tensors. */
void tsr_audit_add_codec(struct tsr_table *t, const struct tsr_audit *a, enum tsr_kind kind,
			 unsigned i)
{
	const struct tsr_audit_column *c = &tsr_audit_columns(a, kind)[i];

	tsr_row(t);
	TSR_CELL(t, "kind", NULL, tsr_kind_name(kind));
	tsr_cell_coding(t, c->coding);
	TSR_CELL(t, "-coding", "codec", label_of(tsr_audit_list(a, kind), i, t));
	TSR_CELL(t, "tensors", NULL, c->n);
	TSR_CELL(t, "raw", "raw", c->nraw);
	TSR_CELL(t, "bytes", "bytes:.3f", c->bytes);
	TSR_CELL(t, "zeroed_total", "zeroed:,", c->zeroed);
	TSR_CELL(t, "groups_total", NULL, c->groups);
	TSR_CELL(t, "stuck_total", NULL, c->stuck);
	for (unsigned f = 0; f < TSR_AUDIT_FIGURES; f++)
		tsr_cell_list(t, tsr_audit_figure_name((enum tsr_audit_figure)f),
			      shown_of((enum tsr_audit_figure)f), c->quantile[f],
			      TSR_AUDIT_QUANTILES);
	TSR_CELL(t, "-max_abs", "max abs:.1e", c->quantile[TSR_AUDIT_MAX_ABS][LAST]);
	TSR_CELL(t, "-mean_rel", "relative:.1e", c->quantile[TSR_AUDIT_MEAN_REL][MEDIAN]);
	TSR_CELL(t, "-underflow", "scale 0", c->underflow);
	TSR_CELL(t, "-overflow", "inf", c->overflow);
	if (!c->coding->codec->grouped)
		return;
	TSR_CELL(t, "-range", "range:.1f", c->quantile[TSR_AUDIT_RANGE_MEAN][MEDIAN]);
	TSR_CELL(t, "-range_max", "max:.1f", c->quantile[TSR_AUDIT_RANGE_MAX][LAST]);
	if (kind != TSR_KIND_WEIGHT)
		TSR_CELL(t, "-stuck", "stuck\n%:.4%", tsr_share(c->stuck, c->groups));
}

/* The codec of a moment; NULL as it is. */
static const char *side_name(const struct tsr_audit_list *list, unsigned i)
{
	return i < list->n ? list->codings[i].codec->name : NULL;
}

const char *tsr_audit_momentum(const struct tsr_audit *a, const struct tsr_audit_cell *c)
{
	return side_name(&a->momenta, c->m);
}

const char *tsr_audit_variance(const struct tsr_audit *a, const struct tsr_audit_cell *c)
{
	return side_name(&a->variances, c->v);
}

/* The variance of the pair of tensors with the largest error. */
const char *tsr_audit_worst_name(const struct tsr_audit *a, const struct tsr_audit_cell *c)
{
	return c->n ? a->tensors[a->pairs[c->worst].variance].tensor->name : NULL;
}

/* All pairs of codecs, the best first. */
struct tsr_table tsr_audit_pairs(const struct tsr_audit *a)
{
	struct tsr_table t = { .most_text = PAIRS_SHOWN, .most_page = ROWS_SHOWN };
	size_t n;
	const struct tsr_audit_cell *c = tsr_audit_cells(a, &n);

	for (; a->npairs && n; n--, c++) {
		tsr_row(&t);
		TSR_CELL(&t, "momentum", NULL, tsr_audit_momentum(a, c));
		TSR_CELL(&t, "variance", NULL, tsr_audit_variance(a, c));
		TSR_CELL(&t, "-m", "momentum", label_of(&a->momenta, c->m, &t));
		TSR_CELL(&t, "-v", "variance", label_of(&a->variances, c->v, &t));
		TSR_CELL(&t, "momentum_index", NULL, c->m);
		TSR_CELL(&t, "variance_index", NULL, c->v);
		TSR_CELL(&t, "pairs", NULL, c->n);
		TSR_CELL(&t, "raw", "raw", c->nraw);
		TSR_CELL(&t, "bytes", "bytes:.3f", c->bytes);
		tsr_cell_list(&t, "nmse", shown_of(TSR_AUDIT_NMSE), c->nmse, TSR_AUDIT_QUANTILES);
		TSR_CELL(&t, "pooled", "together:.1e", tsr_audit_pooled(a, c->m, c->v));
		TSR_CELL(&t, "max_before", NULL, c->max_before);
		TSR_CELL(&t, "max_after", "max |u|:.3g", c->max_after);
		TSR_CELL(&t, "exposed", "v lost:,", c->exposed);
		TSR_CELL(&t, "overflow", NULL, c->overflow);
		TSR_CELL(&t, "worst", NULL, tsr_audit_worst_name(a, c));
		TSR_CELL(&t, "-median", "median:.1e", c->nmse[MEDIAN]);
		TSR_CELL(&t, "-95", "95%:.1e", c->nmse[5]);
		TSR_CELL(&t, "-most", "worst:.1e", c->nmse[LAST]);
	}
	return t;
}

/* One tensor in every codec; those that cannot be tried are put aside, if they are not left out. */
struct tsr_table tsr_audit_trials(const struct tsr_audit *a, const struct tsr_audit_tensor *tensor,
				  bool measured)
{
	static const char *const raw_names[] = {
		[TSR_RAW_NONFINITE] = "nonfinite", [TSR_RAW_NEGATIVE] = "negative",
		[TSR_RAW_OVERFLOW] = "overflow",   [TSR_RAW_SMALL] = "small",
		[TSR_RAW_INTEGERS] = "integers",
	};
	const struct tsr_audit_list *list = tsr_audit_list(a, tensor->tensor->kind);
	struct tsr_table t = { 0 };

	for (unsigned i = 0; tensor->trials && i < list->n; i++) {
		const struct tsr_audit_trial *x = &tensor->trials[i];

		if (!x->measured && measured)
			continue;
		tsr_row(&t);
		tsr_put_aside(&t, tsr_audit_counts(tensor, i) ? 0 : TSR_TO_TEXT);
		TSR_CELL(&t, "-checkpoint", NULL, a->name);
		TSR_CELL(&t, "-kind", NULL, tsr_kind_name(tensor->tensor->kind));
		TSR_CELL(&t, "-tensor", NULL, tensor->tensor->name);
		TSR_CELL(&t, "codec", "codec", list->codings[i].codec->name);
		TSR_CELL(&t, "measured", NULL, x->measured);
		if (!x->measured)
			continue;
		TSR_CELL(&t, "raw", NULL, raw_names[x->raw]);
		TSR_CELL(&t, "nbytes", NULL, x->nbytes);
		TSR_CELL(&t, "nmse", "NMSE:.1e", x->nmse);
		TSR_CELL(&t, "max_abs", NULL, x->max_abs);
		TSR_CELL(&t, "mean_rel", NULL, x->mean_rel);
		TSR_CELL(&t, "zeroed", NULL, x->zeroed);
		TSR_CELL(&t, "scale_underflow", NULL, x->scale_underflow);
		TSR_CELL(&t, "scale_overflow", NULL, x->scale_overflow);
		TSR_CELL(&t, "groups", NULL, x->groups);
		TSR_CELL(&t, "stuck", NULL, x->stuck);
		TSR_CELL(&t, "range_mean", NULL, x->range_mean);
		TSR_CELL(&t, "range_max", NULL, x->range_max);
	}
	return t;
}

/* One pair of tensors in every pair of codecs, but as it is. */
static struct tsr_table updates_of(const struct tsr_audit *a, size_t pair)
{
	const struct tsr_audit_pair *p = &a->pairs[pair];
	const unsigned nm = a->momenta.n + 1, nv = a->variances.n + 1;
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i + 1 < nm * nv; i++) {
		const struct tsr_audit_update *u = tsr_audit_update(a, pair, i / nv, i % nv);

		if (!u->measured)
			continue;
		tsr_row(&t);
		TSR_CELL(&t, "-checkpoint", NULL, a->name);
		TSR_CELL(&t, "-kind", NULL, "update");
		TSR_CELL(&t, "-tensor", NULL, a->tensors[p->variance].tensor->name);
		TSR_CELL(&t, "momentum", NULL, side_name(&a->momenta, i / nv));
		TSR_CELL(&t, "variance", NULL, side_name(&a->variances, i % nv));
		TSR_CELL(&t, "nmse", NULL, u->nmse);
		TSR_CELL(&t, "-max_before", NULL, p->max_before);
		TSR_CELL(&t, "max_after", NULL, u->max_after);
		TSR_CELL(&t, "exposed", NULL, u->exposed);
		TSR_CELL(&t, "overflow", NULL, u->overflow);
	}
	return t;
}

/* --- What it says to use ---------------------------------------------------------------------- */

/* Per parameter, with the weight where there is one. */
static double bytes_of(const struct tsr_audit_verdict *v, const struct tsr_audit_form *f)
{
	return f->bytes + (v->weight ? v->weight_bytes : 0);
}

struct tsr_table tsr_audit_forms(const struct tsr_audit_verdict *v)
{
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < v->n; i++) {
		const struct tsr_audit_form *f = &v->form[i];

		tsr_row(&t);
		TSR_CELL(&t, "form", "form", f->name);
		TSR_CELL(&t, "momentum", NULL, f->momentum->codec->name);
		TSR_CELL(&t, "variance", NULL, f->variance->codec->name);
		TSR_CELL(&t, "grade", "grade", tsr_finding_level_name(f->level));
		TSR_CELL(&t, "-within", "updates\nwithin %:.2g", 100 * sqrt(f->update_nmse));
		TSR_CELL(&t, "update_nmse", "NMSE\nworst:.1e", f->update_nmse);
		TSR_CELL(&t, "median", "NMSE\nmedian:.1e", f->median);
		TSR_CELL(&t, "bytes_per_parameter",
			 v->weight ? "bytes/\nparam:.3f" : "bytes of\nboth:.3f", bytes_of(v, f));
		TSR_CELL(&t, "default", NULL, f->usual);
		TSR_CELL(&t, "-option", "pack",
			 f->usual ? "(default)" : tsr_keepf(&t, "--state %s", f->name));
	}
	return t;
}

void tsr_audit_put_command(const struct tsr_audit *a, const struct tsr_audit_form *f,
			   struct tsr_text *out)
{
	/* The path as a shell takes it. */
	const bool plain = strspn(a->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					   "0123456789_./:+=@%-") == strlen(a->name);

	tsr_text_puts(out, "tersor pack ");
	tsr_text_printf(out,
			plain				   ? "%s"
			: !strpbrk(a->name, "'\n\r\t\033") ? "'%s'"
							   : "IN",
			a->name);
	if (!f->usual)
		tsr_text_printf(out, " --state %s", f->name);
}

/* --- JSON and CSV ----------------------------------------------------------------------------- */

static const enum tsr_kind kinds[] = { TSR_KIND_WEIGHT, TSR_KIND_MOMENTUM, TSR_KIND_VARIANCE };

static void put_summaries(const struct tsr_audit *a, struct tsr_text *json)
{
	struct tsr_table codecs = { 0 };
	struct tsr_text command = { 0 };
	struct tsr_audit_verdict v;
	const struct tsr_audit_form *f = &v.form[0];

	tsr_audit_judge(a, &v);
	/* Null if it recommends nothing. */
	if (v.found) {
		tsr_audit_put_command(a, f, &command);
		tsr_json_open(json, "recommended", '{');
		tsr_json_put_string(json, "form", f->name);
		tsr_json_put_string(json, "momentum", f->momentum->codec->name);
		tsr_json_put_string(json, "variance", f->variance->codec->name);
		tsr_json_put_string(json, "weight", v.weight ? v.weight->codec->name : NULL);
		tsr_json_put_double(json, "update_nmse", f->update_nmse);
		tsr_json_put_string(json, "grade", tsr_finding_level_name(f->level));
		tsr_json_put_double(json, "bytes_per_parameter", bytes_of(&v, f));
		if (v.lr > 0)
			tsr_json_put_double(json, "weight_step", v.weight_step);
		tsr_json_put_string(json, "command", command.bytes);
		tsr_json_close(json, '}');
		json->failed |= command.failed;
		tsr_text_free(&command);
	} else {
		tsr_json_put_null(json, "recommended");
	}
	tsr_table_end_json(tsr_audit_forms(&v), "forms", json);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		for (unsigned i = 0; i < tsr_audit_list(a, kinds[k])->n; i++)
			tsr_audit_add_codec(&codecs, a, kinds[k], i);
	}
	tsr_table_end_json(codecs, "codecs", json);
	tsr_table_end_json(tsr_audit_pairs(a), "pairs", json);
}

static void put_checkpoint(const struct tsr_audit *a, struct tsr_text *json)
{
	static const char *const states[] = {
		[TSR_AUDIT_SOUND] = "sound",	     [TSR_AUDIT_SMALL] = "small",
		[TSR_AUDIT_NONFINITE] = "nonfinite", [TSR_AUDIT_NEGATIVE] = "negative",
		[TSR_AUDIT_ZERO] = "zero",
	};
	const struct tsr_moments_found moments = tsr_audit_moments(a);
	const double betas[2] = { a->beta1, a->beta2 };

	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "file", a->name);
	tsr_json_put_double(json, "eps", (double)a->eps);
	tsr_json_put_bool(json, "eps_known", a->eps_known);
	tsr_json_put_doubles(json, "betas", betas, 2);
	tsr_json_put_bool(json, "betas_known", a->betas_known);
	tsr_json_put_u64(json, "alone", a->nalone);
	tsr_moments_put_json(&moments, json);
	put_summaries(a, json);
	tsr_json_open(json, "tensors", '[');
	for (size_t i = 0; i < a->ntensors; i++) {
		const struct tsr_audit_tensor *t = &a->tensors[i];

		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "name", t->tensor->name);
		tsr_json_put_string(json, "kind", tsr_kind_name(t->tensor->kind));
		tsr_json_put_string(json, "dtype", tsr_dtype_name(t->tensor->dtype));
		tsr_json_put_u64(json, "elements", t->tensor->numel);
		tsr_json_put_string(json, "state", states[t->fault]);
		tsr_table_end_json(tsr_audit_trials(a, t, false), "codecs", json);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_open(json, "updates", '[');
	for (size_t i = 0; i < a->npairs; i++) {
		const struct tsr_audit_pair *p = &a->pairs[i];

		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "momentum", a->tensors[p->momentum].tensor->name);
		tsr_json_put_string(json, "variance", a->tensors[p->variance].tensor->name);
		tsr_json_put_double(json, "max_before", (double)p->max_before);
		tsr_json_put_u64(json, "nonfinite", p->nonfinite);
		tsr_table_end_json(updates_of(a, i), "codecs", json);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

void tsr_audit_put_json(struct tsr_audit *const *audits, size_t n, struct tsr_text *json)
{
	tsr_json_open(json, "checkpoints", '[');
	for (size_t i = 0; i < n; i++)
		put_checkpoint(audits[i], json);
	tsr_json_close(json, ']');
}

void tsr_audit_put_csv(struct tsr_audit *const *audits, size_t n, struct tsr_text *csv)
{
	tsr_text_puts(csv,
		      "checkpoint,kind,tensor,codec,variance_codec,nmse,max_abs,mean_rel,zeroed,"
		      "scale_underflow,scale_overflow,groups,stuck,range_mean,range_max,nbytes,raw,"
		      "max_before,max_after,exposed\n");
	for (size_t k = 0; k < n; k++) {
		const struct tsr_audit *a = audits[k];

		for (size_t i = 0; i < a->ntensors; i++)
			tsr_table_end_csv(
				tsr_audit_trials(a, &a->tensors[i], true),
				"-checkpoint,-kind,-tensor,codec,,nmse,max_abs,mean_rel,zeroed,"
				"scale_underflow,scale_overflow,groups,stuck,range_mean,range_max,"
				"nbytes,raw,,,",
				csv);
		for (size_t i = 0; i < a->npairs; i++)
			tsr_table_end_csv(
				updates_of(a, i),
				"-checkpoint,-kind,-tensor,momentum,variance,nmse,,,,,,,,,,,,"
				"-max_before,max_after,exposed",
				csv);
	}
}
