/* SPDX-License-Identifier: Apache-2.0 */
/* Gates: limits that the codecs an audit says to use must meet. */
#include "audit/audit_gates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[TSR_GATED_COUNT] = {
	[TSR_GATED_UPDATE_NMSE] = "update-nmse", [TSR_GATED_MAX_UPDATE] = "max-update",
	[TSR_GATED_EXPOSED] = "exposed",	 [TSR_GATED_NMSE] = "nmse",
	[TSR_GATED_ZEROED] = "zeroed",		 [TSR_GATED_STUCK] = "stuck",
};

static bool has_quantiles(enum tsr_audit_gated figure)
{
	return figure != TSR_GATED_MAX_UPDATE && figure != TSR_GATED_EXPOSED;
}

/* "p95" */
static bool parse_quantile(const char *text, unsigned *ret)
{
	for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%u", tsr_audit_percent(i));
		if (strcmp(text, name) == 0) {
			*ret = i;
			return true;
		}
	}
	return false;
}

bool tsr_audit_gate_parse(const char *text, struct tsr_audit_gate *ret)
{
	const size_t len = strcspn(text, "=");
	char *end;

	*ret = (struct tsr_audit_gate){ .quantile = TSR_AUDIT_QUANTILES - 1, .text = text };
	while (ret->figure < TSR_GATED_COUNT &&
	       (strlen(names[ret->figure]) != len || strncmp(text, names[ret->figure], len) != 0))
		ret->figure++;
	if (ret->figure == TSR_GATED_COUNT || !text[len] || !text[len + 1])
		return false;
	ret->limit = strtod(text + len + 1, &end);
	if (!(ret->limit >= 0))
		return false;
	if (*end == ',' && has_quantiles(ret->figure))
		return parse_quantile(end + 1, &ret->quantile);
	return *end == '\0';
}

/* --- Pairs -------------------------------------------------------------------------------------- */

static bool is_on_pairs(const struct tsr_audit_gate *g)
{
	return g->figure < TSR_GATED_NMSE;
}

/* What a gate is on: a pair of codecs, or one. */
struct judged {
	const struct tsr_audit_cell *pair;
	const struct tsr_audit_column *codec;
};

static double value_of(const struct judged *j, const struct tsr_audit_gate *g)
{
	static const enum tsr_audit_figure figures[TSR_GATED_COUNT] = {
		[TSR_GATED_NMSE] = TSR_AUDIT_NMSE,
		[TSR_GATED_ZEROED] = TSR_AUDIT_ZEROED,
		[TSR_GATED_STUCK] = TSR_AUDIT_STUCK,
	};

	if (j->codec)
		return j->codec->quantile[figures[g->figure]][g->quantile];
	if (g->figure == TSR_GATED_UPDATE_NMSE)
		return j->pair->nmse[g->quantile];
	return g->figure == TSR_GATED_MAX_UPDATE ? (double)j->pair->max_after
						 : (double)j->pair->exposed;
}

/* The first gate that is missed, or NULL. */
static const struct tsr_audit_gate *missed_by(const struct judged *j,
					      const struct tsr_audit_gate *gates, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (is_on_pairs(&gates[i]) == !j->codec &&
		    !(value_of(j, &gates[i]) <= gates[i].limit))
			return &gates[i];
	}
	return NULL;
}

static bool pair_passes(const struct tsr_audit *a, const struct tsr_audit_cell *c,
			const struct tsr_audit_gate *gates, unsigned n, struct tsr_text *out)
{
	const struct judged j = { .pair = c };
	const struct tsr_audit_gate *missed = c ? missed_by(&j, gates, n) : NULL;

	if (!c)
		tsr_text_puts(out, "no pair of codecs holds all momenta and variances\n");
	if (missed)
		tsr_text_printf(out, "gate %s: found %.3g with %s + %s\n", missed->text,
				value_of(&j, missed), a->momenta.codings[c->m].codec->name,
				a->variances.codings[c->v].codec->name);
	return c && !missed;
}

/* --- Codecs of a kind --------------------------------------------------------------------------- */

static bool codec_passes(const struct tsr_audit *a, enum tsr_kind kind,
			 const struct tsr_audit_cell *verdict, const struct tsr_audit_gate *gates,
			 unsigned n, struct tsr_text *out)
{
	const struct tsr_audit_gate *missed;
	struct judged j = { .codec = NULL };
	bool any = false;

	for (size_t i = 0; i < a->ntensors; i++)
		any = any || (a->tensors[i].tensor->kind == kind && a->tensors[i].trials);
	if (!any)
		return true;
	/* The verdict's; of weights, and without pairs, the one with the least error. */
	if (kind != TSR_KIND_WEIGHT && verdict)
		j.codec = &tsr_audit_columns(
			a, kind)[kind == TSR_KIND_MOMENTUM ? verdict->m : verdict->v];
	else
		j.codec = tsr_audit_best(a, kind);
	if (!j.codec) {
		tsr_text_printf(out, "no codec holds all tensors of kind %s\n",
				tsr_kind_name(kind));
		return false;
	}
	missed = missed_by(&j, gates, n);
	if (missed)
		tsr_text_printf(out, "gate %s: found %.3g with %s for a %s\n", missed->text,
				value_of(&j, missed), j.codec->coding->codec->name,
				tsr_kind_name(kind));
	return !missed;
}

/* --- All of them -------------------------------------------------------------------------------- */

bool tsr_audit_gates_pass(const struct tsr_audit *a, const struct tsr_audit_gate *gates, unsigned n,
			  struct tsr_text *out)
{
	const struct tsr_audit_cell *verdict = tsr_audit_best_pair(a), *cells;
	bool on_pairs = false, on_codecs = false, passed = true;
	size_t ncells;

	for (unsigned i = 0; i < n; i++) {
		on_pairs = on_pairs || is_on_pairs(&gates[i]);
		on_codecs = on_codecs || !is_on_pairs(&gates[i]);
	}
	cells = tsr_audit_cells(a, &ncells);
	if (!verdict && !a->asked && ncells && cells[0].n)
		verdict = &cells[0];
	if (verdict && verdict->nraw)
		verdict = NULL;
	if (on_pairs)
		passed = pair_passes(a, verdict, gates, n, out);
	for (unsigned kind = TSR_KIND_WEIGHT; on_codecs && kind <= TSR_KIND_VARIANCE; kind *= 2)
		passed = codec_passes(a, (enum tsr_kind)kind, verdict, gates, n, out) && passed;
	return passed;
}
