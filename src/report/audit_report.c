/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of audits for people. */
#include "report/reports.h"

#include "tersor/version.h"

TSR_EMBED(tsr_audit_html, "src/report/notes/audit.html");

#define LAST (TSR_AUDIT_QUANTILES - 1)

/* Rows of a page. */
#define ROWS_SHOWN 200

/* --- What it says to use ---------------------------------------------------------------------- */

/* The form to use and what it does, in a sentence and as a command. */
static void say_form(struct tsr_report *r, const struct tsr_audit *a,
		     const struct tsr_audit_form *f)
{
	const char *level = tsr_finding_level_name(f->level);
	struct tsr_text command = { 0 };
	char words[320];

	snprintf(words, sizeof(words),
		 "%s%s: %s %.2g%% of %s length%s (update NMSE at most %.1e: %s)",
		 a->asked ? "" : "use ", f->name,
		 f->level == TSR_FINDING_FINE ? "every update stays within" : "updates are up to",
		 100 * sqrt(f->update_nmse), f->level == TSR_FINDING_FINE ? "its" : "their",
		 f->level == TSR_FINDING_FINE ? "" : " off", f->update_nmse,
		 tsr_format_name(f->worst, 60).text);
	tsr_report_find(r, TSR_TO_BOTH, level, "", words);
	tsr_audit_put_command(a, f, &command);
	/* A command that is wrapped cannot be pasted. */
	if (strcmp(a->name, tsr_checkpoint_path(a->source)) == 0) {
		tsr_report_say(r, TSR_TO_PAGE, "%s", command.bytes);
		if (r->wants_text)
			tsr_text_printf(&r->text, "      %s\n", command.bytes);
	}
	r->text.failed |= command.failed;
	tsr_text_free(&command);
}

static void say_verdict(struct tsr_report *r, const struct tsr_audit *a)
{
	struct tsr_audit_verdict v;
	char steps[256] = "";

	tsr_audit_judge(a, &v);
	if (v.found)
		say_form(r, a, &v.form[0]);
	else if (a->npairs)
		tsr_report_find(r, TSR_TO_BOTH, "bad", "",
				a->asked ? "this state does not hold all momenta and variances"
					 : "use no codec for the states: none of at most 2.2 bytes "
					   "for both holds all of them");
	tsr_report_gap(r);
	tsr_report_table(r, tsr_audit_forms(&v), "", "");
	if (v.lr > 0)
		snprintf(steps, sizeof(steps),
			 "; rounded by at most %.2g steps at lr %.3g, in %s%s", v.weight_step, v.lr,
			 tsr_format_name(v.weight_step_worst, 60).text,
			 v.weight_step > TSR_WEIGHT_STEP_MAX ? ": pack --auto rounds less" : "");
	if (v.weight)
		tsr_report_say(r, TSR_TO_BOTH, "weights: %s, NMSE at most %.1e, %.4g B%s",
			       v.weight->codec->name, v.weight_nmse, v.weight_bytes, steps);
}

/* --- What is wrong with tensors --------------------------------------------------------------- */

const char *tsr_audit_fault_text(const struct tsr_audit_tensor *t, char *text, size_t room)
{
	static const char *const faults[] = {
		[TSR_AUDIT_SMALL] = "elements are too few: pack keeps them as they are",
		[TSR_AUDIT_NONFINITE] = "values are not finite: no codec holds them",
		[TSR_AUDIT_NEGATIVE] = "values of a variance are negative: no codec holds them",
		[TSR_AUDIT_ZERO] = "values are 0, all there are: no error to judge by",
	};
	const uint64_t n = t->fault == TSR_AUDIT_SMALL ? t->tensor->numel : t->nfaulty;

	if (t->fault == TSR_AUDIT_SOUND)
		return NULL;
	snprintf(text, room, "%" PRIu64 " %s", n, faults[t->fault]);
	return text;
}

/* --- Tables for people ------------------------------------------------------------------------ */

static void report_pairs(struct tsr_report *r, const struct tsr_audit *a, bool paper)
{
	struct tsr_table t = tsr_audit_pairs(a);
	size_t n;
	const struct tsr_audit_cell *cells = tsr_audit_cells(a, &n);

	t.most_text = paper ? 0 : t.most_text;
	if (!a->npairs || !n) {
		tsr_table_free(&t);
		return;
	}
	tsr_report_heading(r, TSR_TO_BOTH,
			   "Pairs of codecs: updates m / (sqrt(v) + %.4g), eps %s, of %zu pairs; "
			   "the largest |u| was %.3g",
			   (double)a->eps, a->eps_known ? "of the optimizer" : "assumed", a->npairs,
			   (double)cells[0].max_before);
	tsr_report_say(r, TSR_TO_PAGE, "NMSE of updates, the smallest worst error first%s.",
		       t.nrows > t.most_page ? "; the first of them" : "");
	tsr_report_table(r, t,
			 paper ? "-m,-v,bytes,pooled,-median,-95,-most,raw"
			       : "-m,-v,bytes,-median,-95,-most,max_after,exposed,raw",
			 "-m,-v,bytes,nmse,pooled,max_after,exposed,raw");
	tsr_report_say(
		r, TSR_TO_TEXT, "worst of %s + %s: %s", tsr_audit_momentum(a, &cells[0]),
		tsr_audit_variance(a, &cells[0]),
		tsr_format_name(cells[0].n ? tsr_audit_worst_name(a, &cells[0]) : "", 40).text);
}

static void report_codecs(struct tsr_report *r, const struct tsr_audit *a, enum tsr_kind kind)
{
	struct tsr_table t = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < a->ntensors; i++) {
		bool counts = false;

		for (unsigned k = 0; k < tsr_audit_list(a, kind)->n && !counts; k++)
			counts = a->tensors[i].tensor->kind == kind &&
				 tsr_audit_counts(&a->tensors[i], k);
		n += counts;
	}
	if (!n)
		return;
	for (unsigned i = 0; i < tsr_audit_list(a, kind)->n; i++)
		tsr_audit_add_codec(&t, a, kind, i);
	tsr_report_heading(r, TSR_TO_BOTH, "%s, NMSE over %zu tensors", tsr_kind_name(kind), n);
	if (r->wants_text)
		tsr_table_put_text(&t, "-coding,bytes,nmse,raw", r->verbose, &r->text);
	tsr_report_table(r, t,
			 "-coding,-max_abs,-mean_rel,zeroed_total,-underflow,-overflow,-range,"
			 "-range_max,-stuck",
			 "-coding,bytes,nmse,zeroed_total,-stuck,raw");
}

static void report_all(struct tsr_report *r, const struct tsr_audit *a, bool paper)
{
	report_pairs(r, a, paper);
	report_codecs(r, a, TSR_KIND_MOMENTUM);
	report_codecs(r, a, TSR_KIND_VARIANCE);
	report_codecs(r, a, TSR_KIND_WEIGHT);
	if (a->momenta.n || a->variances.n)
		tsr_report_say(r, TSR_TO_TEXT,
			       "stuck: groups that a decay by beta1 %.4g or beta2 %.4g (%s) does "
			       "not change",
			       a->beta1, a->beta2, a->betas_known ? "of the optimizer" : "assumed");
	if (!r->wants_text || !r->verbose)
		return;
	tsr_report_heading(r, TSR_TO_TEXT, "NMSE of each tensor");
	for (size_t i = 0; i < a->ntensors; i++) {
		tsr_report_say(r, TSR_TO_TEXT, "%s",
			       tsr_format_name(a->tensors[i].tensor->name, TSR_COLUMNS).text);
		tsr_report_table(r, tsr_audit_trials(a, &a->tensors[i], true), "codec,nmse", NULL);
	}
}

/* --- Several checkpoints ---------------------------------------------------------------------- */

/* The worst update error by checkpoint in a few pairs of codecs, which are its columns. */
static void report_series(struct tsr_report *r, struct tsr_audit *const *audits, size_t n)
{
	static const char *const keys[TSR_AUDIT_SERIES_MAX] = { "a", "b", "c", "d" };
	const struct tsr_audit *last = audits[n - 1];
	const struct tsr_audit_series s = tsr_audit_series_of(last);
	struct tsr_table t = { 0 };
	char head[80];

	for (size_t i = 0; i < n; i++) {
		tsr_row(&t);
		TSR_CELL(&t, "number", "#", i + 1);
		TSR_CELL(&t, "checkpoint", "worst update NMSE:32n", audits[i]->name);
		for (unsigned k = 0; k < s.n; k++) {
			snprintf(head, sizeof(head), "%s\n%s:11.1e",
				 tsr_audit_momentum(last, s.cell[k]),
				 tsr_audit_variance(last, s.cell[k]));
			TSR_CELL(&t, keys[k], head,
				 tsr_audit_series_nmse(audits[i], last, s.cell[k]));
		}
	}
	tsr_report_heading(r, TSR_TO_PAGE, "Checkpoints");
	tsr_report_say(r, TSR_TO_PAGE,
		       "Worst NMSE of updates. What follows, and the charts above but the first, "
		       "are of the last one.");
	tsr_report_gap(r);
	tsr_report_table(r, t, "checkpoint,a,b,c,d", "");
}

static void report_all_series(struct tsr_audit *const *audits, size_t n, struct tsr_report *r)
{
	struct tsr_table t = { 0 };

	if (audits[n - 1]->npairs)
		report_series(r, audits, n);
	for (size_t i = 0; i < n && audits[n - 1]->weights.n; i++) {
		const struct tsr_audit_column *c = tsr_audit_best(audits[i], TSR_KIND_WEIGHT);

		if (!c)
			continue;
		tsr_row(&t);
		TSR_CELL(&t, "checkpoint", "weights:32n", audits[i]->name);
		TSR_CELL(&t, "codec", "codec:11", c->coding->codec->name);
		TSR_CELL(&t, "nmse", "worst NMSE:11.1e", c->quantile[TSR_AUDIT_NMSE][LAST]);
	}
	if (t.nrows)
		tsr_report_gap(r);
	tsr_report_table(r, t, "", NULL);
}

/* --- The worst tensors ------------------------------------------------------------------------ */

/* Those with the largest errors in the codecs of the verdict. */
static void report_worst(struct tsr_report *r, const struct tsr_audit *a,
			 const struct tsr_audit_cell *best)
{
	struct tsr_table t = { .most_page = ROWS_SHOWN };

	for (size_t i = 0; i < a->npairs; i++) {
		const struct tsr_audit_update *u = tsr_audit_update(a, i, best->m, best->v);
		const struct tsr_audit_pair *p = &a->pairs[i];
		const struct tsr_audit_tensor *m = &a->tensors[p->momentum];

		if (!u->measured)
			continue;
		tsr_row(&t);
		tsr_rank(&t, u->nmse);
		TSR_CELL(&t, "parameter", "Parameter:n",
			 m->tensor->weight ? m->tensor->weight : m->tensor->name);
		TSR_CELL(&t, "elements", "elements:,", m->tensor->numel);
		TSR_CELL(&t, "update", "update:.1e", u->nmse);
		TSR_CELL(&t, "momentum", "momentum:.1e", m->trials[best->m].nmse);
		TSR_CELL(&t, "variance", "variance:.1e",
			 a->tensors[p->variance].trials[best->v].nmse);
		TSR_CELL(&t, "before", "max |u|:.3g", p->max_before);
		TSR_CELL(&t, "after", "after:.3g", u->max_after);
	}
	tsr_table_sort(&t);
	tsr_report_heading(r, TSR_TO_PAGE, "Worst tensors");
	tsr_report_say(r, TSR_TO_PAGE, "With %s and %s%s.", tsr_audit_momentum(a, best),
		       tsr_audit_variance(a, best),
		       t.nrows > ROWS_SHOWN ? ", those with the largest update error" : "");
	tsr_report_table(r, t, NULL, "");
}

/* --- All of it -------------------------------------------------------------------------------- */

static void put_page(const struct tsr_audits *v, struct tsr_report *r)
{
	const struct tsr_audit *a = v->each[v->n - 1];
	const struct tsr_audit_cell *best = a->npairs ? tsr_audit_best_pair(a) : NULL;
	const char *path = tsr_checkpoint_path(a->source), *fault;
	bool any = false;
	char text[120];

	tsr_report_open(r, "tersor audit", "Audit");
	say_verdict(r, a);
	tsr_report_say(r, TSR_TO_PAGE, "%s%s%s, %zu tensors; made by tersor " TSR_VERSION, a->name,
		       strcmp(a->name, path) == 0 ? "" : " of ",
		       strcmp(a->name, path) == 0 ? "" : path, a->ntensors);
	for (size_t i = 0; i < a->ntensors; i++) {
		fault = tsr_audit_fault_text(&a->tensors[i], text, sizeof(text));
		if (!fault)
			continue;
		if (!any)
			tsr_report_heading(r, TSR_TO_PAGE, "Tensors without figures");
		tsr_report_say(r, TSR_TO_PAGE, "%s: %s", a->tensors[i].tensor->name, fault);
		any = true;
	}
	tsr_report_charts(r, tsr_audit_chart_put, v);
	if (v->n > 1 && a->npairs)
		report_series(r, v->each, v->n);
	if (best)
		report_worst(r, a, best);
	report_all(r, a, false);
	tsr_report_markup(r, tsr_audit_html);
	tsr_report_close(r, NULL);
}

void tsr_audit_report(struct tsr_audit *const *audits, size_t n, enum tsr_audit_text what,
		      struct tsr_report *r)
{
	const bool last = what == TSR_AUDIT_LAST, paper = what == TSR_AUDIT_PAPER;
	struct tsr_report text = { .wants_text = true, .verbose = r->verbose, .text = r->text };
	struct tsr_report page = { .wants_html = r->wants_html };
	const struct tsr_audits all = { audits, n };

	text.verbose -= n > 1 && text.verbose && !last;
	for (size_t i = last ? n - 1 : 0; i < n && r->wants_text; i++) {
		if (n > 1 && !last)
			tsr_text_printf(&text.text, "%s%s\n", i ? "\n" : "",
					tsr_checkpoint_path(audits[i]->source));
		say_verdict(&text, audits[i]);
		/* More than what it says to use. */
		if (n == 1 || r->verbose || paper || last)
			report_all(&text, audits[i], paper);
	}
	if (n > 1 && !paper && r->wants_text)
		report_all_series(audits, n, &text);
	r->text = text.text;
	if (r->wants_csv)
		tsr_audit_put_csv(audits, n, &r->csv);
	tsr_report_svg(r, "audit", tsr_audit_chart_put, &all);
	if (r->wants_html)
		put_page(&all, &page);
	r->html = page.html;
}
