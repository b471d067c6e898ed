/* SPDX-License-Identifier: Apache-2.0 */
/* The command `pack`: every tensor is encoded, measured and written, or kept raw. */

#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/build.h"
#include "ckpt/shared_views.h"
#include "container/tree.h"
#include "names/eps.h"
#include "names/name_rules.h"
#include "pack/bounds.h"
#include "pack/choice/choice.h"
#include "pack/codec_rules.h"
#include "pack/encode_tiles.h"
#include "pack/learned_codings.h"
#include "pack/masters.h"
#include "pack/new_delta_base.h"
#include "pack/outcome/muon_matrix.h"
#include "pack/open_checkpoint.h"
#include "pack/packed_output.h"
#include "pack/packing.h"

struct packing {
	const struct tsr_pack_options *options;
	const struct tsr_pack_given *given;
	struct tsr_packed_output out;
	struct tsr_run whole; /* its run without parts */
	struct tsr_packing *result;
	struct tsr_checkpoint *c; /* result->source: its tensors have the codings to be used */
	struct tsr_checkpoint stored; /* the same, with the tensors as they are in its files */
	struct tsr_error_summary *errors; /* per tensor, in the arena: what the output records */
	uint64_t *nbytes; /* per tensor, for take_sizes() */
	struct tsr_pack_learned learned;
	struct tsr_encoding encoding;
	struct tsr_encoded_sums sums[2]; /* of the tensors being committed, by side */
	struct tsr_err *err;
};

struct tsr_pack_options tsr_pack_defaults(void)
{
	return (struct tsr_pack_options){
		.size = sizeof(struct tsr_pack_options),
		.weight = tsr_coding_default(tsr_codec_find("bf16+ulp8")),
		.momentum = tsr_coding_default(tsr_codec_find("softsign8")),
		.variance = tsr_coding_default(tsr_codec_find("sqrt8")),
		.min_elements = TSR_MIN_ELEMENTS_DEFAULT,
		.as = TSR_DTYPE_COUNT,
	};
}

/* --- The source ------------------------------------------------------------------------------ */

static enum tsr_status check_source(struct packing *p)
{
	if (p->c->packed && !p->given->kept)
		return tsr_fail(p->err, TSR_E_UNSUPPORTED, "%s: is packed already", p->c->path);
	if (p->c->generation >= TSR_GENERATION_MAX)
		return tsr_fail(p->err, TSR_E_LIMIT,
				"%s: found %u lossy generations, the limit of %u", p->c->path,
				p->c->generation, TSR_GENERATION_MAX);
	return tsr_packed_check_names(p->c, p->err);
}

/* --- The tiles ------------------------------------------------------------------------------- */

static enum tsr_status encode_all(struct packing *p)
{
	struct tsr_walk walk;

	p->encoding.writer = p->out.writer;
	walk = tsr_encoding_walk(&p->encoding, p->out.path);
	walk.hash_into = p->c->tensors;
	walk.in_parts = true;
	TSR_TRY(tsr_writer_create(p->out.writer, p->err));
	TSR_TRY(tsr_walk_run(&walk, p->out.run, p->err));
	return tsr_writer_end_part(p->out.writer, p->err);
}

/* --- What was measured ----------------------------------------------------------------------- */

/* With strict, fail because of a tensor that its codec cannot hold. */
static enum tsr_status check_raw(const struct packing *p, size_t i)
{
	const struct tsr_packed_tensor *r = &p->result->tensors[i];
	char reason[120];

	if (!p->options->strict || r->raw == TSR_RAW_NO || r->raw >= TSR_RAW_SMALL)
		return TSR_OK;
	tsr_raw_reason_text(r, reason, sizeof(reason));
	return tsr_fail_hint(p->err, TSR_E_UNSUPPORTED, TSR_HINT_STRICT,
			     "%s: tensor %.200s: found %s, expected none", p->c->path,
			     p->c->tensors[i].name, reason);
}

/*
 * Keep the tensors raw that their codec cannot hold, and store the first planes of those that only looked
 * like masters; *again_ret says whether there are any.
 */
static enum tsr_status settle(struct packing *p, bool *again_ret)
{
	*again_ret = false;
	for (size_t i = 0; i < p->c->ntensors; i++) {
		struct tsr_tensor *t = &p->c->tensors[i];
		struct tsr_packed_tensor *r = &p->result->tensors[i];
		const enum tsr_raw_reason raw = tsr_encoded_raw_reason(&p->encoding, i);

		if (p->encoding.apart[i] && t->narrow) {
			t->narrow = NULL;
			*again_ret = true;
		}
		if (raw == TSR_RAW_NO)
			continue;
		r->raw = raw;
		TSR_TRY(check_raw(p, i));
		*again_ret = true;
		if (tsr_pack_drop_ratios(p->options, t)) {
			r->raw = TSR_RAW_NO;
			TSR_TRY(tsr_pack_note_ratios(p->c, t, 1, p->err));
			continue;
		}
		t->coding = (struct tsr_coding){ .group = 1 };
		t->nplanes = 1;
		t->narrow = NULL;
	}
	return TSR_OK;
}

static void record_errors(struct packing *p)
{
	bool lossy = false;

	for (size_t i = 0; i < p->c->ntensors; i++) {
		const struct tsr_packed_tensor *r = &p->result->tensors[i];

		if (!p->c->tensors[i].coding.codec)
			continue;
		p->errors[i] = tsr_error_summarize(&r->measure);
		lossy = lossy || r->measure.exact != r->measure.n;
	}
	p->result->generation = p->c->generation + lossy;
	if (p->result->generation < p->given->generation)
		p->result->generation = p->given->generation;
}

/* --- All of it ------------------------------------------------------------------------------- */

/* What the files have, or are planned to have. */
static void take_sizes(struct packing *p)
{
	memset(p->nbytes, 0, p->c->ntensors * sizeof(*p->nbytes));
	tsr_writer_tensor_nbytes(p->out.writer, p->c->ntensors, p->nbytes);
	for (size_t i = 0; i < p->c->ntensors; i++)
		p->result->tensors[i].nbytes = p->nbytes[i];
	p->result->data_nbytes = tsr_writer_data_nbytes(p->out.writer);
	p->result->header_nbytes = tsr_writer_nbytes(p->out.writer) - p->result->data_nbytes;
}

/* Lay out the files for the codings as they are now, with room for the figures. */
static enum tsr_status plan(struct packing *p)
{
	const struct tsr_checkpoint *c = p->c;

	for (size_t i = 0; i < c->ntensors; i++)
		c->tensors[i].error = c->tensors[i].coding.codec ? &p->errors[i] : NULL;
	TSR_TRY(tsr_packed_output_plan(&p->out, p->err));
	p->result->plain_nbytes = tsr_writer_nbytes(p->out.writer);
	take_sizes(p);
	return TSR_OK;
}

/* A rule that matches nothing is a typo; who packs several files tells from all of them. */
static enum tsr_status check_rules(struct packing *p)
{
	const struct tsr_pack_options *o = p->options;
	const bool *matched = p->c->rules_matched;

	for (unsigned i = 0; matched && o->rules_matched && i < o->nrules; i++)
		o->rules_matched[i] = o->rules_matched[i] || matched[i];
	if (!matched || o->rules_matched)
		return TSR_OK;
	if (o->strict)
		return tsr_name_rules_strict(o->rules, o->nrules, matched, p->c->path, p->err);
	return tsr_name_rules_note(p->c, o->rules, o->nrules, p->err);
}

/* The bytes of all files as tensors are coded now. */
static enum tsr_status size_now(void *ctx, uint64_t *nbytes_ret)
{
	struct packing *p = ctx;

	for (size_t i = 0; i < p->c->ntensors; i++)
		p->c->tensors[i].narrow = NULL;
	TSR_TRY(tsr_masters_find(&p->stored, p->c, p->err));
	TSR_TRY(plan(p));
	*nbytes_ret = tsr_packing_nbytes(p->result);
	return TSR_OK;
}

/* What rounding does to each weight, in steps of its optimizer. */
static void measure_steps(struct packing *p)
{
	struct tsr_packed_tensor *tensors = p->result->tensors;
	size_t w;

	for (size_t i = 0; i < p->c->ntensors; i++)
		tensors[i].weight_step = -1;
	for (size_t i = 0; i < p->c->ntensors; i++) {
		if (tsr_weight_of(p->c, i, &tensors[i].update, p->result->lr, &w) &&
		    p->c->tensors[w].coding.codec)
			tensors[w].weight_step = tsr_weight_step(&tensors[w].measure,
								 &tensors[i].update, p->result->lr);
	}
}

/* Whether the moments of the source can be Adam's. */
static enum tsr_status check_moments(struct packing *p)
{
	for (size_t i = 0; i < p->c->ntensors; i++) {
		const struct tsr_tensor *v = &p->stored.tensors[i];

		if (p->result->tensors[i].update.n && v->partner &&
		    tsr_moments_checked(&p->stored, &p->stored.tensors[v->partner - 1], v))
			tsr_moments_add(&p->result->moments, &p->c->tensors[i],
					&p->result->tensors[i].breach);
	}
	return tsr_moments_note(&p->result->moments, p->c, p->options->strict, p->err);
}

static enum tsr_status choose(struct packing *p)
{
	struct tsr_choice_options choice;
	struct tsr_choosing choosing = { .choice = &choice,
					 .given = p->given,
					 .encoding = &p->encoding,
					 .run = p->out.run,
					 .what = p->out.path,
					 .size = size_now,
					 .ctx = p };

	if (!p->options->choice)
		return TSR_OK;
	TSR_TRY(TSR_NEW(&choosing.choices, p->c->ntensors + 1, p->err, p->out.path));
	p->result->choices = choosing.choices;
	for (size_t i = 0; i < p->c->ntensors; i++)
		p->result->tensors[i].choice = &choosing.choices[i];
	TSR_TRY(tsr_choice_take(&choice, p->options->choice, p->err));
	choosing.lr = p->result->lr;
	if (choice.weight_steps && !choice.max_nbytes && choosing.lr > 0)
		choosing.by_step = tsr_choice_add_weights(&choice);
	TSR_TRY(tsr_choose(&choosing, &p->result->bound, p->err));
	for (size_t i = 0; i < p->c->ntensors; i++)
		TSR_TRY(check_raw(p, i));
	return TSR_OK;
}

/* Remember how tensors are stored before codings are chosen. */
static enum tsr_status prepare(struct packing *p)
{
	struct tsr_checkpoint *c = p->c;
	size_t n;

	TSR_TRY(check_source(p));
	if (p->options->strict)
		TSR_TRY(tsr_checkpoint_check_strict(c, p->err));
	if (!p->given->named)
		TSR_TRY(tsr_names_assign(c, p->options->rules, p->options->nrules, p->err));
	TSR_TRY(check_rules(p));
	TSR_TRY(tsr_packed_output_find_model(&p->out, p->err));
	TSR_TRY(tsr_note_shared_views(c, p->err));
	TSR_TRY(tsr_tree_attach(c, p->err));
	TSR_TRY(tsr_build_index(c, p->err));
	n = c->ntensors + 1;
	p->result->source_nbytes = tsr_checkpoint_stored_nbytes(c);
	p->stored = *c;
	p->stored.tensors = tsr_arena_alloc(c->arena, n * sizeof(*c->tensors));
	TSR_TRY(TSR_NEW(&p->result->tensors, n, p->err, p->out.path));
	p->encoding = (struct tsr_encoding){
		.stored = &p->stored,
		.wanted = c,
		.eps = p->result->eps,
		.bound = p->result->moments.bound,
		.results = p->result->tensors,
		.sums = p->sums,
		.integers = tsr_arena_alloc(c->arena, n * sizeof(*p->encoding.integers)),
		.apart = tsr_arena_alloc(c->arena, n * sizeof(*p->encoding.apart)),
	};
	p->nbytes = tsr_arena_alloc(c->arena, n * sizeof(*p->nbytes));
	p->errors = tsr_arena_alloc(c->arena, n * sizeof(*p->errors));
	if (!p->stored.tensors || !p->encoding.integers || !p->encoding.apart || !p->nbytes ||
	    !p->errors)
		return tsr_build_nomem(c, p->err);
	TSR_TRY(tsr_pack_learn(c, p->options, p->out.run, &p->learned, p->err));
	for (size_t i = 0; i < c->ntensors; i++) {
		p->stored.tensors[i] = c->tensors[i];
		c->tensors[i].narrow = NULL;
		if (tsr_pack_is_kept(p->given, i))
			continue;
		tsr_pack_choose(p->options, &c->tensors[i], &p->result->tensors[i]);
		TSR_TRY(tsr_pack_fit(&p->learned, c, &c->tensors[i], p->err));
	}
	TSR_TRY(choose(p));
	TSR_TRY(tsr_pack_note_learned(&p->learned, c, p->err));
	TSR_TRY(tsr_pack_check_ratios(p->options, c, p->given, p->err));
	p->result->generation = c->generation > p->given->generation ? c->generation
								     : p->given->generation;
	return tsr_masters_find(&p->stored, c, p->err);
}

/* Coding makes the files shorter than they were planned.  Nothing can fail once they are in place. */
static enum tsr_status publish(struct packing *p)
{
	enum tsr_status status;

	TSR_TRY(tsr_written_delta_init(&p->result->delta, &p->out.source.base, p->c->ntensors,
				       p->err));
	status = tsr_writer_publish(p->out.writer, p->err);
	if (!tsr_is_written(status))
		return status;
	if (p->options->coded != TSR_CODED_NONE) {
		take_sizes(p);
		tsr_written_delta_take(&p->result->delta, p->out.writer, p->c->ntensors);
	}
	return status;
}

/* If the layout changes, the joining process redoes all that parts have done. */
static enum tsr_status plan_again(struct packing *p)
{
	if (p->out.run)
		p->whole = *p->out.run;
	p->whole.parts = NULL;
	p->out.run = p->out.run ? &p->whole : NULL;
	return plan(p);
}

static enum tsr_status run_packing(struct packing *p)
{
	bool again = true;

	TSR_TRY(tsr_packed_output_open(&p->out, p->given->plain_base, p->err));
	TSR_TRY(prepare(p));
	TSR_TRY(tsr_delta_base_fits(p->out.base, p->c, p->err));
	TSR_TRY(tsr_packed_output_name_inputs(&p->out, &p->stored, p->err));
	TSR_TRY(plan(p));
	if (p->options->dry_run) {
		TSR_TRY(tsr_writer_check(p->out.writer, p->err));
		/* Nothing was measured. */
		for (size_t i = 0; i < p->c->ntensors; i++)
			p->c->tensors[i].error = NULL;
		return TSR_OK;
	}
	/* Only encoding shows which tensors stay raw, and so the layout: a second pass is rare. */
	while (again) {
		TSR_TRY(encode_all(p));
		TSR_TRY(settle(p, &again));
		if (again)
			TSR_TRY(plan_again(p));
	}
	record_errors(p);
	TSR_TRY(tsr_masters_note(p->c, p->err));
	p->out.source.generation = p->result->generation;
	measure_steps(p);
	TSR_TRY(tsr_muon_measure_all(&p->stored, p->c, NULL, p->result->tensors, p->err));
	TSR_TRY(check_moments(p));
	TSR_TRY(tsr_pack_check_updates(p->result, p->options, p->err));
	TSR_TRY(tsr_pack_check_bounds(p->result, p->options, p->err));
	return publish(p);
}

enum tsr_status tsr_pack_checkpoint(struct tsr_checkpoint *c, const struct tsr_pack_given *given,
				    const char *out, const struct tsr_pack_options *options,
				    const struct tsr_run *run, struct tsr_packing **ret,
				    struct tsr_err *err)
{
	struct packing p = { .options = options,
			     .given = given,
			     .out = { .c = c, .options = options, .run = run, .path = out },
			     .c = c,
			     .err = err };
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&p.result, 1, err, out));
	p.result->source = c;
	p.result->eps = tsr_names_eps(c, &p.result->eps_known);
	p.result->lr = tsr_names_lr(c);
	p.result->moments = tsr_moments_begin(c);
	status = run_packing(&p);
	tsr_packed_output_free(&p.out);
	tsr_pack_learned_free(&p.learned);
	if (!tsr_is_packed(status)) {
		p.result->source = NULL;
		tsr_packing_free(p.result);
		return status;
	}
	*ret = p.result;
	return status;
}

enum tsr_status tsr_pack(const char *const *paths, unsigned npaths, const char *out,
			 const struct tsr_pack_options *options, const struct tsr_run *run,
			 struct tsr_packing **ret, struct tsr_err *err)
{
	const struct tsr_pack_given nothing = { .n = 0 };
	struct tsr_pack_options o = tsr_pack_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	if (o.delta && o.coded == TSR_CODED_NONE)
		o.coded = TSR_CODED_ALL;
	TSR_TRY(tsr_checkpoint_open(paths, npaths, o.open, &c, err));
	TSR_TRY(tsr_pack_note_decoded(c, err));
	status = tsr_pack_checkpoint(c, &nothing, out, &o, run, ret, err);
	c = tsr_is_packed(status) ? NULL : c;
	return status;
}
