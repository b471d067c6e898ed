/* SPDX-License-Identifier: Apache-2.0 */
/* An audit as JSON and as comma-separated values. */
#include "report/audit/audit_report.h"

#include <inttypes.h>
#include <stdlib.h>

#include "report/audit/audit_table.h"
#include "report/format.h"
#include "text/json.h"

static const enum tsr_kind kinds[] = { TSR_KIND_WEIGHT, TSR_KIND_MOMENTUM, TSR_KIND_VARIANCE };

const char *tsr_audit_fault_name(enum tsr_audit_fault fault)
{
	static const char *const names[] = {
		[TSR_AUDIT_SOUND] = "sound",	     [TSR_AUDIT_SMALL] = "small",
		[TSR_AUDIT_NONFINITE] = "nonfinite", [TSR_AUDIT_NEGATIVE] = "negative",
		[TSR_AUDIT_ZERO] = "zero",
	};

	return names[fault];
}

static const char *raw_name(enum tsr_raw_reason raw)
{
	static const char *const names[] = {
		[TSR_RAW_NO] = NULL,
		[TSR_RAW_NONFINITE] = "nonfinite",
		[TSR_RAW_NEGATIVE] = "negative",
		[TSR_RAW_OVERFLOW] = "overflow",
		[TSR_RAW_SMALL] = "small",
		[TSR_RAW_INTEGERS] = "integers",
	};

	return names[raw];
}

/* --- JSON: over all tensors --------------------------------------------------------------------- */

static void put_column(struct tsr_text *json, const struct tsr_audit *a, enum tsr_kind kind,
		       unsigned i)
{
	struct tsr_audit_column c;

	json->failed = json->failed || !tsr_audit_column(a, kind, i, &c);
	if (json->failed)
		return;
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "kind", tsr_kind_name(kind));
	tsr_coding_put_json(c.coding, json);
	tsr_json_put_u64(json, "tensors", c.n);
	tsr_json_put_u64(json, "raw", c.nraw);
	tsr_json_put_double(json, "bytes", c.bytes);
	tsr_json_put_u64(json, "zeroed_total", c.zeroed);
	tsr_json_put_u64(json, "groups_total", c.groups);
	tsr_json_put_u64(json, "stuck_total", c.stuck);
	for (unsigned f = 0; f < TSR_AUDIT_FIGURES; f++)
		tsr_json_put_doubles(json, tsr_audit_figure_name((enum tsr_audit_figure)f),
				     c.quantile[f], TSR_AUDIT_QUANTILES);
	tsr_json_close(json, '}');
}

/* The index of a moment's coding, and its codec's name: null as it is. */
static void put_side(struct tsr_text *json, const char *key, const struct tsr_audit_list *list,
		     unsigned i)
{
	tsr_json_put_string(json, key, i < list->n ? list->codings[i].codec->name : NULL);
}

static void put_cell(struct tsr_text *json, const struct tsr_audit *a,
		     const struct tsr_audit_cell *c)
{
	const struct tsr_audit_pair *worst = &a->pairs[c->worst];

	tsr_json_open(json, NULL, '{');
	put_side(json, "momentum", &a->momenta, c->m);
	put_side(json, "variance", &a->variances, c->v);
	tsr_json_put_u64(json, "momentum_index", c->m);
	tsr_json_put_u64(json, "variance_index", c->v);
	tsr_json_put_u64(json, "pairs", c->n);
	tsr_json_put_u64(json, "raw", c->nraw);
	tsr_json_put_double(json, "bytes", c->bytes);
	tsr_json_put_doubles(json, "nmse", c->nmse, TSR_AUDIT_QUANTILES);
	tsr_json_put_double(json, "max_before", (double)c->max_before);
	tsr_json_put_double(json, "max_after", (double)c->max_after);
	tsr_json_put_u64(json, "exposed", c->exposed);
	tsr_json_put_u64(json, "overflow", c->overflow);
	tsr_json_put_string(json, "worst", c->n ? a->tensors[worst->variance].tensor->name : NULL);
	tsr_json_close(json, '}');
}

static void put_summaries(struct tsr_text *json, const struct tsr_audit *a)
{
	struct tsr_audit_cell *cells;
	const size_t n = tsr_audit_cells(a, &cells);
	struct tsr_text verdict = { 0 };

	json->failed = json->failed || !cells;
	if (!cells)
		return;
	tsr_audit_put_verdict(a, cells, n, &verdict);
	tsr_json_put_string(json, "verdict", verdict.bytes);
	tsr_json_open(json, "codecs", '[');
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		for (unsigned i = 0; i < tsr_audit_list(a, kinds[k])->n; i++)
			put_column(json, a, kinds[k], i);
	}
	tsr_json_close(json, ']');
	tsr_json_open(json, "pairs", '[');
	for (size_t i = 0; a->npairs && i < n; i++)
		put_cell(json, a, &cells[i]);
	tsr_json_close(json, ']');
	tsr_text_free(&verdict);
	free(cells);
}

/* --- JSON: tensors ------------------------------------------------------------------------------ */

static void put_trial(struct tsr_text *json, const struct tsr_coding *coding,
		      const struct tsr_audit_trial *t)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "codec", coding->codec->name);
	tsr_json_put_bool(json, "measured", t->measured);
	if (t->measured) {
		tsr_json_put_string(json, "raw", raw_name(t->raw));
		tsr_json_put_u64(json, "nbytes", t->nbytes);
		tsr_json_put_double(json, "nmse", t->nmse);
		tsr_json_put_double(json, "max_abs", (double)t->max_abs);
		tsr_json_put_double(json, "mean_rel", t->mean_rel);
		tsr_json_put_u64(json, "zeroed", t->zeroed);
		tsr_json_put_u64(json, "scale_underflow", t->scale_underflow);
		tsr_json_put_u64(json, "scale_overflow", t->scale_overflow);
		tsr_json_put_u64(json, "groups", t->groups);
		tsr_json_put_u64(json, "stuck", t->stuck);
		tsr_json_put_double(json, "range_mean", (double)t->range_mean);
		tsr_json_put_double(json, "range_max", (double)t->range_max);
	}
	tsr_json_close(json, '}');
}

static void put_tensor(struct tsr_text *json, const struct tsr_audit *a,
		       const struct tsr_audit_tensor *t)
{
	const struct tsr_audit_list *list = tsr_audit_list(a, t->tensor->kind);

	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", t->tensor->name);
	tsr_json_put_string(json, "kind", tsr_kind_name(t->tensor->kind));
	tsr_json_put_string(json, "dtype", tsr_dtype_name(t->tensor->dtype));
	tsr_json_put_u64(json, "elements", t->tensor->numel);
	tsr_json_put_string(json, "state", tsr_audit_fault_name(t->fault));
	tsr_json_open(json, "codecs", '[');
	for (unsigned i = 0; t->trials && i < list->n; i++)
		put_trial(json, &list->codings[i], &t->trials[i]);
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

static void put_update(struct tsr_text *json, const struct tsr_audit *a, size_t pair, unsigned m,
		       unsigned v)
{
	const struct tsr_audit_update *u = tsr_audit_update(a, pair, m, v);

	if (!u->measured || (m == a->momenta.n && v == a->variances.n))
		return;
	tsr_json_open(json, NULL, '{');
	put_side(json, "momentum", &a->momenta, m);
	put_side(json, "variance", &a->variances, v);
	tsr_json_put_double(json, "nmse", u->nmse);
	tsr_json_put_double(json, "max_after", (double)u->max_after);
	tsr_json_put_u64(json, "exposed", u->exposed);
	tsr_json_put_u64(json, "overflow", u->overflow);
	tsr_json_close(json, '}');
}

static void put_pair(struct tsr_text *json, const struct tsr_audit *a, size_t i)
{
	const struct tsr_audit_pair *p = &a->pairs[i];

	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "momentum", a->tensors[p->momentum].tensor->name);
	tsr_json_put_string(json, "variance", a->tensors[p->variance].tensor->name);
	tsr_json_put_double(json, "max_before", (double)p->max_before);
	tsr_json_put_u64(json, "nonfinite", p->nonfinite);
	tsr_json_open(json, "codecs", '[');
	for (unsigned m = 0; m <= a->momenta.n; m++) {
		for (unsigned v = 0; v <= a->variances.n; v++)
			put_update(json, a, i, m, v);
	}
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

void tsr_audit_put_json(const struct tsr_audit *a, struct tsr_text *json)
{
	const double betas[2] = { a->beta1, a->beta2 };

	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "file", a->name);
	tsr_json_put_double(json, "eps", (double)a->eps);
	tsr_json_put_bool(json, "eps_known", a->eps_known);
	tsr_json_put_doubles(json, "betas", betas, 2);
	tsr_json_put_bool(json, "betas_known", a->betas_known);
	tsr_json_put_u64(json, "alone", a->nalone);
	put_summaries(json, a);
	tsr_json_open(json, "tensors", '[');
	for (size_t i = 0; i < a->ntensors; i++)
		put_tensor(json, a, &a->tensors[i]);
	tsr_json_close(json, ']');
	tsr_json_open(json, "updates", '[');
	for (size_t i = 0; i < a->npairs; i++)
		put_pair(json, a, i);
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

/* --- CSV ---------------------------------------------------------------------------------------- */

static void put_number(struct tsr_text *csv, double value)
{
	char number[40];

	tsr_json_format_double(number, sizeof(number), value);
	tsr_text_printf(csv, ",%s", number);
}

void tsr_audit_put_csv_names(struct tsr_text *csv)
{
	tsr_text_puts(csv,
		      "checkpoint,kind,tensor,codec,variance_codec,nmse,max_abs,mean_rel,zeroed,"
		      "scale_underflow,scale_overflow,groups,stuck,range_mean,range_max,nbytes,raw,"
		      "max_before,max_after,exposed\n");
}

static void put_start(struct tsr_text *csv, const struct tsr_audit *a, const char *kind,
		      const struct tsr_tensor *t)
{
	tsr_csv_put_name(a->name, csv);
	tsr_text_printf(csv, ",%s,", kind);
	tsr_csv_put_name(t->name, csv);
}

static void put_trial_row(struct tsr_text *csv, const struct tsr_audit *a,
			  const struct tsr_audit_tensor *t, const struct tsr_coding *coding,
			  const struct tsr_audit_trial *trial)
{
	const char *raw = raw_name(trial->raw);

	put_start(csv, a, tsr_kind_name(t->tensor->kind), t->tensor);
	tsr_text_printf(csv, ",%s,", coding->codec->name);
	put_number(csv, trial->nmse);
	put_number(csv, (double)trial->max_abs);
	put_number(csv, trial->mean_rel);
	tsr_text_printf(csv, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
			trial->zeroed, trial->scale_underflow, trial->scale_overflow, trial->groups,
			trial->stuck);
	put_number(csv, (double)trial->range_mean);
	put_number(csv, (double)trial->range_max);
	tsr_text_printf(csv, ",%" PRIu64 ",%s,,,\n", trial->nbytes, raw ? raw : "");
}

static void put_update_row(struct tsr_text *csv, const struct tsr_audit *a, size_t i, unsigned m,
			   unsigned v)
{
	const struct tsr_audit_update *u = tsr_audit_update(a, i, m, v);
	const struct tsr_audit_pair *p = &a->pairs[i];

	if (!u->measured || (m == a->momenta.n && v == a->variances.n))
		return;
	put_start(csv, a, "update", a->tensors[p->variance].tensor);
	tsr_text_printf(csv, ",%s,%s", m < a->momenta.n ? a->momenta.codings[m].codec->name : "",
			v < a->variances.n ? a->variances.codings[v].codec->name : "");
	put_number(csv, u->nmse);
	tsr_text_puts(csv, ",,,,,,,,,,,");
	put_number(csv, (double)p->max_before);
	put_number(csv, (double)u->max_after);
	tsr_text_printf(csv, ",%" PRIu64 "\n", u->exposed);
}

void tsr_audit_put_csv(const struct tsr_audit *a, struct tsr_text *csv)
{
	for (size_t i = 0; i < a->ntensors; i++) {
		const struct tsr_audit_tensor *t = &a->tensors[i];
		const struct tsr_audit_list *list = tsr_audit_list(a, t->tensor->kind);

		for (unsigned k = 0; t->trials && k < list->n; k++) {
			if (t->trials[k].measured)
				put_trial_row(csv, a, t, &list->codings[k], &t->trials[k]);
		}
	}
	for (size_t i = 0; i < a->npairs; i++) {
		for (unsigned m = 0; m <= a->momenta.n; m++) {
			for (unsigned v = 0; v <= a->variances.n; v++)
				put_update_row(csv, a, i, m, v);
		}
	}
}
