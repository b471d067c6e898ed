/* SPDX-License-Identifier: Apache-2.0 */
/* The resident state: what it is coded as, and in which tiles. */
#include "replay/stepping.h"

#include "base/fail.h"
#include "base/multiple.h"
#include "ckpt/read.h"
#include "replay/soap_state.h"
#include "replay/form/scales.h"
#include "replay/replay_plan.h"
#include "step/combinations.h"
#include "step/hyperparameters.h"
#include "step/step.h"

/* --- Codings ---------------------------------------------------------------------------------- */

/* The coding that a tensor of the checkpoint has, if a state can be encoded in it. */
static bool own_coding(const struct tsr_replaying *r, const struct tsr_replay_param *p,
		       enum tsr_slot slot, struct tsr_coding *ret)
{
	const size_t tensor = p->tensor[slot];
	const struct tsr_coding *own = tensor == SIZE_MAX ? NULL : &r->c->tensors[tensor].coding;

	if (tsr_replay_own_learned(r, p, slot, ret))
		return true;
	/* The state is FP32: it keeps the values of another dtype as they are. */
	if (!own || !own->codec || r->c->tensors[tensor].dtype != TSR_F32 ||
	    tsr_codec_find(own->codec->name) != own->codec ||
	    !(own->codec->kinds & tsr_slot_kind(slot)))
		return false;
	*ret = *own;
	return true;
}

/* The row of a state that is coded anew: of its weight, whose shape it has. */
static uint32_t row_of(const struct tsr_replaying *r, const struct tsr_replay_param *p,
		       const struct tsr_coding *coding)
{
	const struct tsr_tensor *weight = &r->c->tensors[p->tensor[TSR_SLOT_WEIGHT]];

	return tsr_coding_row(coding, weight->rank, weight->shape);
}

/* What the update of a parameter adds to the root of a variance. */
static float eps_of(const struct tsr_replaying *r, const struct tsr_replay_param *p)
{
	return tsr_replay_is_adam(r) ? (float)r->result->hyper[p->group].value[TSR_HYPER_EPS] : 0;
}

/* A momentum without a variance is not stored as ratios to it. */
static struct tsr_coding without_ratios(const struct tsr_replaying *r,
					const struct tsr_replay_param *p,
					const struct tsr_coding *coding)
{
	const uint32_t group = coding->group == coding->codec->group ? 0 : coding->group;
	struct tsr_coding other = tsr_coding_with(tsr_codec_find("softsign8"), coding->scale,
						  group);

	other.row = row_of(r, p, &other);
	return other;
}

/* The requested coding; else that of this tensor, or of others of its kind; else FP32. */
static struct tsr_coding choose_coding(struct tsr_replaying *r, const struct tsr_replay_param *p,
				       enum tsr_slot slot)
{
	const enum tsr_slot like = slot == TSR_SLOT_MAX_VARIANCE ? TSR_SLOT_VARIANCE : slot;
	struct tsr_coding coding = r->options->coding[like];
	bool own = false;

	if (coding.codec && coding.codec->learned && tsr_replay_own_learned(r, p, slot, &coding)) {
		own = true;
	} else if (coding.codec) {
		if (!coding.codec->grouped) {
			coding.group = 1;
			coding.scale = TSR_SCALE_E8M8;
		}
		coding.row = row_of(r, p, &coding);
	} else if (p->tensor[slot] != SIZE_MAX || !r->result->coding[slot].codec) {
		own = own_coding(r, p, slot, &coding);
		if (!own)
			coding = tsr_coding_default(tsr_codec_find("f32"));
	} else {
		coding = r->result->coding[slot];
		coding.row = row_of(r, p, &coding);
	}
	if (coding.codec->learned && !own)
		tsr_replay_fit_learned(r, p, slot, &coding);
	if (coding.codec->relative && !(p->slots >> TSR_SLOT_VARIANCE & 1))
		coding = without_ratios(r, p, &coding);
	else if (coding.codec->relative && !own)
		tsr_coding_use_eps(&coding, eps_of(r, p));
	coding.kind = tsr_slot_kind(slot);
	tsr_replay_choose_scale(r, slot, &coding);
	coding.stream = coding.codec->stochastic ? tsr_coding_stream(p->name) : 0;
	coding.seed = coding.codec->stochastic ? coding.seed : 0;
	coding.first = 0;
	return coding;
}

/* --- Planning --------------------------------------------------------------------------------- */

static bool keeps(const struct tsr_replay_param *p, unsigned slot)
{
	return slot == TSR_SLOT_WEIGHT || p->slots >> slot & 1;
}

/*
 * Optimizers have no state for a parameter that never had a gradient.  A parameter without state is
 * taken for one if the others count their steps, or need not; else its state may just be missing.
 */
static bool may_be_new(const struct tsr_replaying *r, const struct tsr_replay_param *p,
		       bool counted)
{
	return p->tensor[TSR_SLOT_MOMENTUM] == SIZE_MAX &&
	       p->tensor[TSR_SLOT_VARIANCE] == SIZE_MAX && p->counter == SIZE_MAX && !p->scalar &&
	       !r->parameters.stray_state &&
	       (counted || r->options->has_count || !tsr_replay_is_adam(r));
}

/* A checkpoint has all states of a parameter that the optimizer needs, or none. */
static enum tsr_status check_complete(const struct tsr_replaying *r)
{
	const struct tsr_replay_param *other = NULL;
	bool counted = false;

	for (size_t i = 0; i < r->nparams && !r->options->zero_state; i++) {
		counted = counted || r->params[i].counter != SIZE_MAX || r->params[i].scalar;
		if (tsr_replay_is_begun(&r->params[i]))
			other = &r->params[i];
	}
	for (size_t i = 0; i < r->nparams && other; i++) {
		if (may_be_new(r, &r->params[i], counted))
			continue;
		for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
			if (keeps(&r->params[i], slot) && r->params[i].tensor[slot] == SIZE_MAX)
				return tsr_fail_hint(
					r->err, TSR_E_FORMAT, TSR_HINT_ZERO_STATE,
					"%s: tensor %.200s: found no %s of this weight, expected "
					"one since %.200s has its state",
					r->c->path, r->params[i].name,
					tsr_kind_name(tsr_slot_kind((enum tsr_slot)slot)),
					other->name);
		}
	}
	return TSR_OK;
}

static enum tsr_status check_readable(const struct tsr_replaying *r, size_t tensor)
{
	const struct tsr_tensor *t = &r->c->tensors[tensor];

	if (tsr_tensor_has_f32(t))
		return TSR_OK;
	return tsr_fail(r->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found dtype %s, expected F32, BF16, F16 or packed",
			r->c->path, t->name, tsr_dtype_name(t->dtype));
}

static enum tsr_status check_codecs(const struct tsr_replaying *r, const struct tsr_replay_param *p)
{
	const struct tsr_codec *m = p->coding[TSR_SLOT_MOMENTUM].codec;
	const struct tsr_codec *v = p->coding[TSR_SLOT_VARIANCE].codec;
	const char *why = tsr_step_refusal(r->result->optimizer, r->result->order, m, v);

	if (!why)
		return TSR_OK;
	return tsr_fail(r->err, TSR_E_USAGE,
			"%s: tensor %.200s: found %s with momentum %s and variance %s: %s",
			r->c->path, p->name, tsr_optimizer_name(r->result->optimizer),
			m ? m->name : "none", v ? v->name : "none", why);
}

/* Muon's and SOAP's updates are of a whole matrix; of a vector SOAP's is Adam's. */
static enum tsr_status take_matrix(const struct tsr_replaying *r, struct tsr_replay_param *p)
{
	const struct tsr_tensor *weight = &r->c->tensors[p->tensor[TSR_SLOT_WEIGHT]];

	const bool soap = r->result->optimizer == TSR_OPTIMIZER_SOAP;

	if (soap ? weight->rank > 2 : weight->rank != 2)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found %u dimensions, expected %s2 of a matrix "
				"for %s",
				r->c->path, p->name, weight->rank, soap ? "at most " : "",
				tsr_optimizer_name(r->result->optimizer));
	if (p->numel > TSR_STEP_MATRIX_MAX)
		return tsr_fail(r->err, TSR_E_LIMIT,
				"%s: tensor %.200s: found %" PRIu64
				" elements, over the limit of %" PRIu64 " for a matrix of %s",
				r->c->path, p->name, p->numel, TSR_STEP_MATRIX_MAX,
				tsr_optimizer_name(r->result->optimizer));
	TSR_TRY(tsr_replay_check_blocks(r, p));
	p->rows = weight->rank == 2 && p->numel ? weight->shape[0] : p->numel;
	p->columns = weight->rank == 2 && p->numel ? weight->shape[1] : p->numel != 0;
	p->align = p->numel ? p->numel : 1;
	return soap ? tsr_replay_check_bases(r, p) : TSR_OK;
}

static enum tsr_status align_param(const struct tsr_replaying *r, struct tsr_replay_param *p)
{
	struct tsr_step step = { .optimizer = r->result->optimizer, .order = r->result->order };

	memcpy(step.coding, p->coding, sizeof(step.coding));
	if (tsr_optimizer_takes_matrices(r->result->optimizer))
		return take_matrix(r, p);
	if ((tsr_replay_is_relative(p) || tsr_step_stores_first(&step)) &&
	    tsr_step_moments_align(&step) > TSR_GROUP_MAX)
		return tsr_fail(
			r->err, TSR_E_LIMIT,
			"%s: tensor %.200s: groups of %s and of its variance meet every %" PRIu64
			" elements, over the limit of %u",
			r->c->path, p->name, p->coding[TSR_SLOT_MOMENTUM].codec->name,
			tsr_step_moments_align(&step), TSR_GROUP_MAX);
	TSR_TRY(tsr_replay_check_blocks(r, p));
	p->align = tsr_step_align(&step);
	if (p->align > TSR_REPLAY_ALIGN_MAX && p->numel > TSR_REPLAY_ALIGN_MAX)
		return tsr_fail(r->err, TSR_E_LIMIT,
				"%s: tensor %.200s: groups of its codecs meet every %" PRIu64
				" elements, over the limit of %" PRIu64,
				r->c->path, p->name, p->align, TSR_REPLAY_ALIGN_MAX);
	return TSR_OK;
}

static enum tsr_status plan_param(struct tsr_replaying *r, struct tsr_replay_param *p)
{
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		if (!keeps(p, slot))
			continue;
		if (p->tensor[slot] != SIZE_MAX)
			TSR_TRY(check_readable(r, p->tensor[slot]));
		p->coding[slot] = choose_coding(r, p, (enum tsr_slot)slot);
		if (!r->result->coding[slot].codec)
			r->result->coding[slot] = p->coding[slot];
	}
	for (unsigned i = 0; i < TSR_REPLAY_ARRAYS; i++) {
		if (tsr_replay_has_array(r, p, i))
			r->result->state_nbytes += tsr_replay_array_nbytes(p, i, p->numel);
	}
	TSR_TRY(check_codecs(r, p));
	p->fresh = r->options->zero_state || p->tensor[TSR_SLOT_MOMENTUM] == SIZE_MAX;
	return align_param(r, p);
}

enum tsr_status tsr_replay_plan_state(struct tsr_replaying *r)
{
	TSR_TRY(check_complete(r));
	TSR_TRY(tsr_replay_learn(r));
	/* Parameters with a state come first: new states take their codings. */
	for (size_t i = 0; i < r->nparams; i++) {
		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			struct tsr_coding *coding = &r->result->coding[slot];

			if (keeps(&r->params[i], slot) && !coding->codec &&
			    own_coding(r, &r->params[i], (enum tsr_slot)slot, coding))
				*coding = choose_coding(r, &r->params[i], (enum tsr_slot)slot);
		}
	}
	for (size_t i = 0; i < r->nparams; i++)
		TSR_TRY(plan_param(r, &r->params[i]));
	TSR_TRY(tsr_replay_note_unlearned(r));
	return tsr_replay_cut(r, TSR_REPLAY_TILE, &r->tiles, &r->longest);
}

enum tsr_status tsr_replay_share_tiles(struct tsr_replaying *first)
{
	for (size_t i = 0; i < first->nparams; i++) {
		uint64_t align = 1;

		for (const struct tsr_replaying *r = first; r; r = r->also)
			align = tsr_common_multiple(align, r->params[i].align);
		if (first->params[i].rows)
			align = first->params[i].align;
		else if (align > TSR_REPLAY_ALIGN_MAX &&
			 first->params[i].numel > TSR_REPLAY_ALIGN_MAX)
			return tsr_fail(
				first->err, TSR_E_LIMIT,
				"%s: tensor %.200s: groups of the states meet every %" PRIu64
				" elements, over the limit of %" PRIu64,
				first->c->path, first->params[i].name, align, TSR_REPLAY_ALIGN_MAX);
		for (struct tsr_replaying *r = first; r; r = r->also)
			r->params[i].align = align;
	}
	for (struct tsr_replaying *r = first; r; r = r->also) {
		tsr_tiles_free(&r->tiles);
		TSR_TRY(tsr_replay_cut(r, TSR_REPLAY_TILE, &r->tiles, &r->longest));
	}
	return TSR_OK;
}
