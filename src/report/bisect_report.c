/* SPDX-License-Identifier: Apache-2.0 */
/* The report of two runs that were compared step by step. */
#include "report/reports.h"

#include <string.h>

#include "recording/signing.h"

/* Rows of text and of a page. */
#define SHOWN 12
#define SHOWN_ON_PAGE 200

#define CSV_COLUMNS \
	"name,of,rank,where,compared,differing,first_step,rms_a,rms_b,max_a,max_b,nonfinite_a," \
	"nonfinite_b,zeros_a,zeros_b,hash_a,hash_b,elements,element,value_a,value_b"

static const char *const where_names[] = { "both", "only in A", "only in B", "shapes differ",
					   "dtypes differ" };

/* --- Tables ------------------------------------------------------------------------------------ */

static void put_signature(struct tsr_table *t, const struct tsr_signature *s, bool is_b)
{
	static const char *const keys[][2] = { { "rms_a", "rms_b" },
					       { "max_a", "max_b" },
					       { "nonfinite_a", "nonfinite_b" },
					       { "zeros_a", "zeros_b" },
					       { "hash_a", "hash_b" } };
	static const char *const shown[][2] = { { "rms A:.6g", "rms B:.6g" },
						{ "max A:.6g", "max B:.6g" } };
	const bool absent = tsr_signature_is_absent(s);
	char hex[33];

	for (unsigned i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", s->hash[i]);
	TSR_CELL(t, keys[0][is_b], shown[0][is_b], absent ? (double)NAN : (double)s->rms);
	TSR_CELL(t, keys[1][is_b], shown[1][is_b], absent ? (double)NAN : (double)s->max);
	TSR_CELL(t, keys[2][is_b], NULL, s->nonfinite);
	TSR_CELL(t, keys[3][is_b], NULL, s->zeros);
	TSR_CELL(t, keys[4][is_b], NULL, absent ? NULL : tsr_keep(t, hex));
}

/* What text says of a tensor besides its figures. */
static const char *note_of(struct tsr_table *t, const struct tsr_bisect_tensor *x)
{
	char note[256];

	if (x->where != TSR_BISECT_BOTH)
		return where_names[x->where];
	if (!x->nelements)
		return NULL;
	snprintf(note, sizeof(note), "%s, first %" PRIu64 ": %.9g, %.9g",
		 tsr_format_number(x->nelements, "element").text, x->element, x->value[0],
		 x->value[1]);
	return tsr_keep(t, note);
}

static void add_tensor(struct tsr_table *t, const struct tsr_bisect *b,
		       const struct tsr_bisect_tensor *x)
{
	tsr_row(t);
	TSR_CELL(t, "name", "tensor:n", x->name);
	TSR_CELL(t, "of", "of:n", x->of);
	if (b->side[0].nranks > 1 || b->side[1].nranks > 1)
		TSR_CELL(t, "rank", "rank", x->rank);
	TSR_CELL(t, "where", NULL, where_names[x->where]);
	TSR_CELL(t, "compared", NULL, x->ncompared);
	TSR_CELL(t, "differing", "steps", x->ndiffering);
	if (x->ndiffering) {
		TSR_CELL(t, "first_step", "first", x->first_step);
		put_signature(t, &x->first[0], false);
		put_signature(t, &x->first[1], true);
	}
	if (x->nelements) {
		TSR_CELL(t, "elements", NULL, x->nelements);
		TSR_CELL(t, "element", NULL, x->element);
		TSR_CELL(t, "value_a", NULL, x->value[0]);
		TSR_CELL(t, "value_b", NULL, x->value[1]);
	}
	TSR_CELL(t, "-note", ":4|", note_of(t, x));
}

/* Those that differ first come first. */
static struct tsr_table tensors_of(const struct tsr_bisect *b, bool all)
{
	struct tsr_table t = { .most_text = SHOWN, .most_page = SHOWN_ON_PAGE };

	for (size_t i = 0; i < b->ntensors; i++) {
		const struct tsr_bisect_tensor *x = &b->tensors[i];

		if (!all && !x->ndiffering && x->where == TSR_BISECT_BOTH)
			continue;
		add_tensor(&t, b, x);
		if (!all)
			tsr_rank(&t, x->ndiffering ? -(double)x->first_step : -INFINITY);
	}
	if (!all)
		tsr_table_sort(&t);
	return t;
}

/* As many as it takes to tell two numbers apart, 9 at least. */
static int digits_apart(const double value[2])
{
	char text[2][32];

	for (unsigned k = 0; k < 2; k++)
		snprintf(text[k], sizeof(text[k]), "%.9g", value[k]);
	return strcmp(text[0], text[1]) == 0 ? 17 : 9;
}

static struct tsr_table hypers_of(const struct tsr_bisect *b)
{
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < b->nhypers; i++) {
		const struct tsr_bisect_hyper *h = &b->hyper[i];
		char value[2][32];
		const int digits = h->text ? 9 : digits_apart(h->value);

		for (unsigned k = 0; k < 2; k++)
			snprintf(value[k], sizeof(value[k]), "%.*g", digits, h->value[k]);
		tsr_row(&t);
		TSR_CELL(&t, "name", "differs", h->name);
		if (!h->text)
			TSR_CELL(&t, "group", "group", h->group);
		if (h->step)
			TSR_CELL(&t, "step", "from step", h->step);
		TSR_CELL(&t, "a", "A:n", h->text ? h->words[0] : tsr_keep(&t, value[0]));
		TSR_CELL(&t, "b", "B:n", h->text ? h->words[1] : tsr_keep(&t, value[1]));
	}
	return t;
}

/* --- Words ------------------------------------------------------------------------------------- */

static const char *const sources[] = { "signatures", "recording of gradients", "checkpoints" };

/* "21 steps, 0 to 20" */
static struct tsr_cell format_steps(uint64_t n, uint64_t first, uint64_t last)
{
	struct tsr_cell cell;

	if (n == 1)
		snprintf(cell.text, sizeof(cell.text), "step %" PRIu64, first);
	else
		snprintf(cell.text, sizeof(cell.text), "%" PRIu64 " steps, %" PRIu64 " to %" PRIu64,
			 n, first, last);
	return cell;
}

static void say_side(struct tsr_report *r, const char *name, const struct tsr_bisect_side *s)
{
	const struct tsr_recording *run = s->run;
	char ranks[64] = "", of[96] = "";

	if (s->nranks > 1)
		snprintf(ranks, sizeof(ranks), ", %" PRIu64 " of %" PRIu64 " ranks", s->nfiles,
			 s->nranks);
	if (run)
		snprintf(of, sizeof(of), ", %s, %s",
			 run->optimizer == TSR_OPTIMIZER_COUNT ? "optimizer not recorded"
							       : tsr_optimizer_name(run->optimizer),
			 *run->run.order ? run->run.order : "order not recorded");
	tsr_report_fact(r, TSR_TO_BOTH, name, "%s: %s, %s%s%s", tsr_format_name(s->path, 40).text,
			s->source == TSR_BISECT_CHECKPOINTS && s->nsteps == 1 ? "checkpoint"
									      : sources[s->source],
			format_steps(s->nsteps, s->first_step, s->last_step).text, ranks, of);
	if (s->torn_nbytes)
		tsr_report_fact(r, TSR_TO_BOTH, "",
				"the step after %" PRIu64 " was not written to its end: left out",
				s->last_step);
}

/* Tensors that differ at the step that shows it. */
static size_t count_at(const struct tsr_bisect *b, bool gradients, size_t *all_ret)
{
	size_t n = 0;

	*all_ret = 0;
	for (size_t i = 0; i < b->ntensors; i++) {
		const struct tsr_bisect_tensor *t = &b->tensors[i];

		if (!t->ncompared || (strcmp(t->of, "gradient") == 0) != gradients)
			continue;
		++*all_ret;
		n += t->ndiffering && t->first_step == b->step;
	}
	return n;
}

static void say_ranks(const struct tsr_bisect *b, struct tsr_text *out)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct tsr_bisect_ranks *k = &b->side[i].ranks;

		if (k->name)
			tsr_text_printf(out,
					"at step %" PRIu64 " rank %" PRIu64 " of %s has another %s "
					"of %s than rank %" PRIu64 ". ",
					k->step, k->rank, i ? "B" : "A",
					tsr_format_name(k->of, 30).text,
					tsr_format_name(k->name, 60).text, k->other);
	}
	tsr_text_puts(out, "Ranks that have a whole tensor must agree: look at what is reduced or "
			   "broadcast");
}

static void say_cause(const struct tsr_bisect *b, struct tsr_text *out)
{
	size_t nstates, ngradients;
	const size_t states = count_at(b, false, &nstates);
	const size_t gradients = count_at(b, true, &ngradients);

	switch (b->cause) {
	case TSR_BISECT_EQUAL:
		tsr_text_printf(out, "all tensors have the same bits at every step");
		break;
	case TSR_BISECT_RANKS:
		say_ranks(b, out);
		break;
	case TSR_BISECT_LOADED:
		tsr_text_printf(out,
				"%zu of %zu weights and states differ in what both had first, "
				"after step %" PRIu64,
				states, nstates, b->step);
		break;
	case TSR_BISECT_HYPERPARAMETERS:
		tsr_text_printf(out, "%s",
				!states	     ? "they differ, but no tensor does"
				: ngradients ? "gradients are equal, and so is what is known of "
					       "the states before the step; hyperparameters are not"
					     : "they differ, and what the states were before the "
					       "step is not known");
		break;
	case TSR_BISECT_GRADIENT:
		tsr_text_printf(out, "%zu of %zu gradients differ, ", gradients, ngradients);
		tsr_text_puts(out, b->known_before
					   ? "from the same weights: other data, another seed, or "
					     "another computation of the gradient"
					   : "and weights before them were not compared");
		break;
	case TSR_BISECT_OPTIMIZER:
		tsr_text_printf(out,
				"%zu of %zu weights and states differ, after the same gradients, "
				"hyperparameters, weights and states: another implementation of "
				"the step, or memory that changed between steps",
				states, nstates);
		break;
	case TSR_BISECT_STATE:
		tsr_text_printf(out, "%zu of %zu weights and states differ", states, nstates);
		if (b->before != b->step)
			tsr_text_printf(out, ", which are equal at step %" PRIu64, b->before);
		tsr_text_puts(out, "; what went into the step was not compared");
		break;
	default:
		tsr_text_printf(out,
				"%zu of %zu are in both runs with one shape and type; these "
				"are equal",
				b->npaired, b->ntensors);
	}
}

static void report_people(const struct tsr_bisect *b, struct tsr_report *r)
{
	struct tsr_text words = { 0 };
	char lead[80];

	tsr_report_open(r, "tersor bisect", "Two runs, step by step");
	say_cause(b, &words);
	snprintf(lead, sizeof(lead),
		 b->cause == TSR_BISECT_EQUAL ? "equal" : "first difference: %s, step %" PRIu64,
		 tsr_bisect_cause_name(b->cause), b->step);
	say_side(r, "A", &b->side[0]);
	say_side(r, "B", &b->side[1]);
	tsr_report_fact(r, TSR_TO_BOTH, "compared", "%s; %s, of which %zu differ",
			format_steps(b->nsteps, b->first_common, b->last_common).text,
			tsr_format_number(b->npaired, "tensor").text, b->ndiffering);
	if (b->side[0].nsteps != b->nsteps || b->side[1].nsteps != b->nsteps)
		tsr_report_fact(r, TSR_TO_BOTH, "",
				"A has %s, B %" PRIu64 ": only those of both were compared",
				tsr_format_number(b->side[0].nsteps, "step").text,
				b->side[1].nsteps);
	tsr_report_gap(r);
	tsr_report_say(r, TSR_TO_BOTH, "%s: %s", lead, words.bytes ? words.bytes : "");
	if (b->replayed >= 0)
		tsr_report_say(
			r, TSR_TO_BOTH,
			"A replay of the gradients of %s up to that step has the bits of A in "
			"%" PRIu64 " and those of B in %" PRIu64 " of the %" PRIu64
			" weights and states that differ",
			b->replayed ? "B" : "A", b->nright[0], b->nright[1], b->nreplayed);
	r->text.failed = r->text.failed || words.failed;
	tsr_text_free(&words);
	if (b->nhypers)
		tsr_report_gap(r);
	tsr_report_table(r, hypers_of(b), "", "");
	if (b->ndiffering || b->npaired != b->ntensors)
		tsr_report_gap(r);
	tsr_report_table(r, tensors_of(b, false),
			 "name,of,rank,first_step,differing,rms_a,rms_b,-note",
			 "name,of,rank,first_step,differing,rms_a,rms_b,max_a,max_b,-note");
	tsr_report_charts(r, tsr_bisect_chart_put, b);
	tsr_report_close(r, NULL);
	tsr_report_svg(r, "bisect", tsr_bisect_chart_put, b);
}

static void put_side(struct tsr_text *json, const char *key, const struct tsr_bisect_side *s)
{
	tsr_json_open(json, key, '{');
	tsr_json_put_string(json, "path", s->path);
	tsr_json_put_string(json, "source", sources[s->source]);
	tsr_json_put_u64(json, "steps", s->nsteps);
	tsr_json_put_u64(json, "first_step", s->first_step);
	tsr_json_put_u64(json, "last_step", s->last_step);
	tsr_json_put_u64(json, "ranks", s->nranks);
	tsr_json_put_u64(json, "ranks_found", s->nfiles);
	tsr_json_put_u64(json, "torn_nbytes", s->torn_nbytes);
	if (s->ranks.name) {
		tsr_json_open(json, "ranks_differ", '{');
		tsr_json_put_u64(json, "step", s->ranks.step);
		tsr_json_put_u64(json, "rank", s->ranks.rank);
		tsr_json_put_u64(json, "other", s->ranks.other);
		tsr_json_put_string(json, "name", s->ranks.name);
		tsr_json_put_string(json, "of", s->ranks.of);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, '}');
}

void tsr_bisect_report(const struct tsr_bisect *b, struct tsr_report *r)
{
	report_people(b, r);
	if (r->wants_csv) {
		tsr_text_puts(&r->csv, CSV_COLUMNS "\n");
		tsr_table_end_csv(tensors_of(b, true), CSV_COLUMNS, &r->csv);
	}
	if (!r->wants_json)
		return;
	tsr_json_put_string(&r->json, "cause", tsr_bisect_cause_name(b->cause));
	if (b->cause == TSR_BISECT_EQUAL)
		tsr_json_put_null(&r->json, "step");
	else
		tsr_json_put_u64(&r->json, "step", b->step);
	tsr_json_put_bool(&r->json, "known_before", b->known_before);
	tsr_json_put_u64(&r->json, "steps", b->nsteps);
	tsr_json_put_u64(&r->json, "first_step", b->first_common);
	tsr_json_put_u64(&r->json, "last_step", b->last_common);
	if (b->replayed >= 0) {
		tsr_json_open(&r->json, "replay", '{');
		tsr_json_put_string(&r->json, "of", b->replayed ? "b" : "a");
		tsr_json_put_u64(&r->json, "tensors", b->nreplayed);
		tsr_json_put_u64(&r->json, "as_a", b->nright[0]);
		tsr_json_put_u64(&r->json, "as_b", b->nright[1]);
		tsr_json_close(&r->json, '}');
	}
	put_side(&r->json, "a", &b->side[0]);
	put_side(&r->json, "b", &b->side[1]);
	tsr_table_end_json(hypers_of(b), "hyperparameters", &r->json);
	tsr_table_end_json(tensors_of(b, true), "tensors", &r->json);
}
