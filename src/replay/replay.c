/* SPDX-License-Identifier: Apache-2.0 */
/* A replay from beginning to end: plan, load the state, step, check, write. */
#include "tersor/replay.h"

#include <math.h>

#include "base/fail.h"
#include "base/order.h"
#include "io/file.h"
#include "io/mapped.h"
#include "base/option_size.h"
#include "recording/recording_data.h"
#include "replay/soap_state.h"
#include "replay/gpu/gpu_memory.h"
#include "replay/new_states.h"
#include "replay/replay_plan.h"
#include "replay/replay_parts.h"
#include "replay/form/scales.h"
#include "replay/stepping.h"
#include "step/hyperparameters.h"
#include "tersor/learn.h"

struct tsr_replay_options tsr_replay_defaults(void)
{
	return (struct tsr_replay_options){
		.size = sizeof(struct tsr_replay_options),
		.optimizer = TSR_OPTIMIZER_COUNT,
		.container = TSR_CONTAINER_COUNT,
		.ngpus = TSR_REPLAY_CPU,
	};
}

/* --- Before anything is computed -------------------------------------------------------------- */

static enum tsr_status check_options(const struct tsr_replaying *r)
{
	const struct tsr_replay_options *o = r->options;

	if (o->ngates && !o->compare)
		return tsr_fail(r->err, TSR_E_USAGE, "%s: a gate needs a comparison with FP32",
				r->recording->path);
	if (o->first_step && o->last_step && o->first_step > o->last_step)
		return tsr_fail(r->err, TSR_E_USAGE,
				"%s: steps %" PRIu64 " to %" PRIu64 " are none", r->recording->path,
				o->first_step, o->last_step);
	return tsr_replay_check_parts(r);
}

/* A state with f16 scales is FlashOptim's; continuing in the wrong order of operations must be asked for. */
static enum tsr_status check_order(const struct tsr_replaying *r)
{
	if (!tsr_order_has(r->result->order, r->result->optimizer))
		return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_ORDER,
				     "%s: the optimizer is %s, which the order %s does not have",
				     r->c->path, tsr_optimizer_name(r->result->optimizer),
				     tsr_order_name(r->result->order));
	for (size_t i = 0; i < r->nparams && !r->options->order_given; i++) {
		for (unsigned part = 0; part < TSR_SLOTS; part++) {
			const size_t tensor = r->params[i].tensor[part];
			const struct tsr_coding *coding = &r->params[i].coding[part];

			if (tensor == SIZE_MAX || !coding->codec || r->options->coding[part].codec)
				continue;
			if (coding->codec->grouped && coding->scale == TSR_SCALE_F16)
				return tsr_fail_hint(
					r->err, TSR_E_USAGE, TSR_HINT_ORDER,
					"%s: tensor %.200s: its scales are f16, as FlashOptim's, "
					"which does not say whose order of operations to continue",
					r->c->path, r->c->tensors[tensor].name);
		}
	}
	return TSR_OK;
}

/* What the optimizer keeps: AMSGrad's variances if the checkpoint has them and no option says otherwise. */
static enum tsr_status choose_slots(struct tsr_replaying *r)
{
	const struct tsr_codec *variance = r->options->coding[TSR_SLOT_VARIANCE].codec;
	bool amsgrad = false;

	for (size_t i = 0; i < r->nparams; i++) {
		struct tsr_replay_param *p = &r->params[i];
		struct tsr_hyper *h = &r->result->hyper[p->group];

		if (p->tensor[TSR_SLOT_MAX_VARIANCE] != SIZE_MAX &&
		    !tsr_hyper_is_set(h, TSR_HYPER_AMSGRAD))
			tsr_hyper_put(h, TSR_HYPER_AMSGRAD, 1);
	}
	for (size_t i = 0; i < r->nparams; i++) {
		struct tsr_replay_param *p = &r->params[i];

		p->slots = tsr_optimizer_slots(r->result->optimizer, &r->result->hyper[p->group]);
		amsgrad |= p->slots >> TSR_SLOT_MAX_VARIANCE & 1;
	}
	if (amsgrad && (!tsr_order_is_torch(r->result->order) || (variance && variance->learned)))
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: AMSGrad has a step in PyTorch's orders only, and none with "
				"means of blocks",
				r->c->path);
	return TSR_OK;
}

static enum tsr_status plan(struct tsr_replaying *r, const struct tsr_replaying *first)
{
	const char **names;

	TSR_TRY(check_options(r));
	TSR_TRY(tsr_replay_choose_steps(r));
	TSR_TRY(tsr_replay_choose_hyper(r));
	TSR_TRY(tsr_replay_gpu_check(r));
	TSR_TRY(tsr_replay_find_params(r, first));
	TSR_TRY(choose_slots(r));
	TSR_TRY(tsr_replay_find_bases(r));
	TSR_TRY(tsr_replay_note_states(r));
	TSR_TRY(tsr_replay_read_counts(r));
	TSR_TRY(tsr_replay_plan_state(r));
	TSR_TRY(tsr_replay_note_scales(r));
	TSR_TRY(check_order(r));
	TSR_TRY(TSR_TAKE(&names, r->nparams + 1, r->result->arena, r->err, r->c->path));
	for (size_t i = 0; i < r->nparams; i++)
		names[i] = r->params[i].name;
	r->result->params = names;
	r->result->compared = r->options->compare && !r->options->dry_run;
	for (size_t i = 0; r->result->compared && i < r->result->nsteps; i++) {
		struct tsr_replay_step *s = &r->result->steps[i];

		TSR_TRY(TSR_TAKE(&s->tensors, r->nparams + 1, r->result->arena, r->err,
				 r->c->path));
		for (unsigned f = 0; f < TSR_FIGURE_COUNT; f++)
			s->total.value[f] = NAN;
	}
	return TSR_OK;
}

/* An output must not replace an input. */
static enum tsr_status check_not_input(const struct tsr_replaying *r, const char *path)
{
	for (unsigned i = 0; i < r->c->nfiles; i++)
		TSR_TRY(tsr_file_check_not(r->c->files[i], path, r->err));
	if (r->options->schedule)
		TSR_TRY(tsr_path_check_not(r->options->schedule, path, r->err));
	return tsr_recording_check_not(r->recording, path, r->err);
}

/* A replay can take long: what would fail at its end fails now. */
static enum tsr_status check_outputs(struct tsr_replaying *r, const char *out)
{
	for (unsigned i = 0; i < r->options->nreports; i++)
		TSR_TRY(check_not_input(r, r->options->reports[i]));
	if (r->options->signatures) {
		TSR_TRY(tsr_replay_check_plain(r, "for signatures", r->err));
		TSR_TRY(tsr_outfile_check_target(r->options->signatures, r->options->force,
						 r->err));
		TSR_TRY(check_not_input(r, r->options->signatures));
	}
	if (!out)
		return TSR_OK;
	if (r->options->each_step)
		return tsr_fail(r->err, TSR_E_USAGE,
				"%s: a replay whose steps are looked at writes no checkpoint", out);
	TSR_TRY(tsr_outfile_check_target(out, r->options->force, r->err));
	TSR_TRY(check_not_input(r, out));
	TSR_TRY(tsr_replay_check_form(r, out));
	return tsr_replay_plan_new_states(r);
}

/* --- Afterwards ------------------------------------------------------------------------------- */

static enum tsr_status check_gate(struct tsr_replaying *r, size_t gate, size_t step, size_t param)
{
	struct tsr_replay *result = r->result;
	const struct tsr_gate *g = &r->options->gates[gate];
	const struct tsr_replay_step *s = &result->steps[step];
	const double error = tsr_figure_error(&s->tensors[param], g->figure);

	if (isnan(error) || error <= g->limit)
		return TSR_OK;
	result->gate_failed = true;
	result->gate = gate;
	result->gate_step = step;
	result->gate_param = param;
	result->failed = *g;
	return tsr_fail(
		r->err, TSR_E_BOUND,
		"%s: step %" PRIu64
		": tensor %.200s: %s%sfound %s %.4g, expected at most %.4g; nothing written",
		r->recording->path, s->step, result->params[param], r->form ? r->form : "",
		r->form ? ": " : "", tsr_figure_name(g->figure), error, g->limit);
}

static enum tsr_status check_gates(struct tsr_replaying *r)
{
	for (size_t step = 0; step < r->result->nsteps; step++) {
		for (size_t g = 0; g < r->options->ngates && !r->result->steps[step].skipped; g++) {
			for (size_t i = 0; i < r->nparams; i++)
				TSR_TRY(check_gate(r, g, step, i));
		}
	}
	return TSR_OK;
}

/* In the order of steps, then of parameters. */
TSR_COMPARE_BY(by_step, struct tsr_numerics_warning, TSR_ORDER(a->step, b->step),
	       TSR_ORDER(a->param, b->param))

/* --- All of it -------------------------------------------------------------------------------- */

static void leave_gpus(struct tsr_replaying *r)
{
	tsr_replay_gpu_close(r->gpus);
	r->gpus = NULL;
}

static enum tsr_status replay(struct tsr_replaying *first, const char *out)
{
	/* @first and those that also take its steps. */
	for (struct tsr_replaying *r = first; r; r = r->also)
		TSR_TRY(plan(r, first));
	TSR_TRY(first->also ? tsr_replay_share_tiles(first) : TSR_OK);
	TSR_TRY(check_outputs(first, out));
	if (!first->options->dry_run) {
		TSR_TRY(tsr_replay_gpu_open(first));
		TSR_TRY(tsr_replay_load_states(first));
		if (first->options->each_step)
			TSR_TRY(tsr_replay_show_state(first));
		if (first->options->signatures)
			TSR_TRY(tsr_replay_begin_signing(first));
		TSR_TRY(tsr_replay_gpu_put_state(first));
		TSR_TRY(tsr_replay_run_steps(first));
		TSR_TRY(tsr_replay_gpu_get_state(first));
		leave_gpus(first);
		if (out)
			TSR_TRY(tsr_replay_keep_state(first));
		for (struct tsr_replaying *r = first; r; r = r->also) {
			if (r->result->nwarnings)
				qsort(r->result->warnings, r->result->nwarnings,
				      sizeof(*r->result->warnings), by_step);
			TSR_TRY(check_gates(r));
			TSR_TRY(tsr_replay_check_state(r, out != NULL));
		}
		TSR_TRY(tsr_replay_end_part(first));
		if (first->signing)
			TSR_TRY(tsr_replay_end_signing(first));
	}
	return out ? tsr_replay_write(first, out) : TSR_OK;
}

static enum tsr_status open_inputs(struct tsr_replaying *r, const char *const *paths,
				   unsigned npaths, const char *recording)
{
	TSR_TRY(TSR_NEW(&r->result, 1, r->err, recording));
	*r->result = (struct tsr_replay){ .arena = tsr_arena_new(SIZE_MAX),
					  .dry_run = r->options->dry_run,
					  .threads = r->run ? r->run->threads : 1 };
	r->result->recording = tsr_arena_string(r->result->arena, recording);
	if (!r->result->recording)
		return tsr_fail_nomem(r->err, recording);
	TSR_TRY(tsr_checkpoint_open(paths, npaths, r->options->open, &r->result->source, r->err));
	r->c = r->result->source;
	return tsr_recording_open(recording, r->options->open, &r->recording, r->err);
}

static void close_inputs(struct tsr_replaying *r)
{
	leave_gpus(r);
	tsr_replay_drop_signing(r);
	free(r->adding);
	tsr_tiles_free(&r->tiles);
	tsr_learned_free(r->learned);
	tsr_parameters_free(&r->parameters);
	free(r->by_recorded);
	free(r->listed);
	tsr_recording_close(r->recording);
}

/* Replay @n chained states; each result is NULL unless there is something to look at. */
static enum tsr_status run_states(struct tsr_replaying *r, unsigned n, const char *const *paths,
				  unsigned npaths, const char *recording, const char *out,
				  struct tsr_replay *ret[])
{
	enum tsr_status status = TSR_OK;

	for (unsigned i = 0; i < n && status == TSR_OK; i++) {
		r[i].progress = (struct tsr_progress){ .run = r[i].run, .what = recording };
		status = open_inputs(&r[i], paths, npaths, recording);
	}
	TSR_THEN(status, replay(r, out));
	for (unsigned i = 0; i < n; i++) {
		close_inputs(&r[i]);
		ret[i] = r[i].result;
		if (status == TSR_OK || status == TSR_E_BOUND || status == TSR_E_DURABILITY)
			continue;
		tsr_replay_free(ret[i]);
		ret[i] = NULL;
	}
	return status;
}

/* States of the same steps in @r, which are @n; the first has the progress. */
struct states {
	struct tsr_replay_options options[TSR_REPLAY_FORMS_MAX];
	struct tsr_replaying r[TSR_REPLAY_FORMS_MAX];
};

/* @forms: of @n states, or NULL for the one that the options ask for. */
static enum tsr_status take_states(const char *const *paths, unsigned npaths, const char *recording,
				   const char *out, const struct tsr_replay_options *options,
				   const struct tsr_replay_form *forms, unsigned n,
				   const struct tsr_run *run, struct tsr_replay *ret[],
				   struct tsr_err *err)
{
	struct tsr_replay_options o = tsr_replay_defaults();
	struct tsr_open_options open = tsr_open_defaults();
	struct tsr_err own;
	TSR_OWNED(free) struct states *s = NULL;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_options_take(&open, o.open, err));
	o.open = &open;
	if (n < 1 || n > TSR_REPLAY_FORMS_MAX)
		return tsr_fail(err, TSR_E_USAGE, "%s: found %u states, expected 1 to %u",
				recording, n, TSR_REPLAY_FORMS_MAX);
	for (unsigned i = 0; forms && i < n; i++) {
		if (forms[i].hyper.set && o.ngpus > 0)
			return tsr_fail(err, TSR_E_USAGE,
					"%s: hyperparameters are varied on the CPU", recording);
	}
	if (forms && (!o.compare || o.check_numerics))
		return tsr_fail(err, TSR_E_USAGE, "%s: several states are compared with FP32",
				recording);
	TSR_TRY(TSR_NEW(&s, 1, err, recording));
	for (unsigned i = 0; i < n; i++) {
		s->options[i] = o;
		s->r[i] = (struct tsr_replaying){ .options = &s->options[i],
						  .run = run,
						  .err = err ? err : &own,
						  .form = forms ? forms[i].name : NULL,
						  .also = i + 1 < n ? &s->r[i + 1] : NULL };
		if (!forms)
			continue;
		memcpy(s->options[i].coding, forms[i].coding, sizeof(forms[i].coding));
		tsr_hyper_override(&s->options[i].hyper, &forms[i].hyper);
		/* Kernels step a state and its comparison alike. */
		if (forms[i].hyper.set)
			s->options[0].ngpus = TSR_REPLAY_CPU;
	}
	return run_states(s->r, n, paths, npaths, recording, out, ret);
}

enum tsr_status tsr_replay(const char *const *paths, unsigned npaths, const char *recording,
			   const char *out, const struct tsr_replay_options *options,
			   const struct tsr_run *run, struct tsr_replay **ret, struct tsr_err *err)
{
	struct tsr_replay *result = NULL;
	const enum tsr_status status = take_states(paths, npaths, recording, out, options, NULL, 1,
						   run, &result, err);

	if (result)
		*ret = result;
	return status;
}

enum tsr_status tsr_replay_forms(const char *const *paths, unsigned npaths, const char *recording,
				 const struct tsr_replay_options *options,
				 const struct tsr_replay_form *forms, unsigned n,
				 const struct tsr_run *run, struct tsr_replay *ret[],
				 struct tsr_err *err)
{
	return take_states(paths, npaths, recording, NULL, options, forms, n, run, ret, err);
}

/* --- Results ------------------------------------------------------------------------------------ */

void tsr_replay_free(struct tsr_replay *r)
{
	if (!r)
		return;
	free(r->warnings);
	tsr_checkpoint_close(r->source);
	tsr_replay_free_state(r->state, r->nparams, r->disk != NULL, r->threads);
	tsr_mapped_free(r->disk);
	tsr_arena_free(r->arena);
	free(r);
}
