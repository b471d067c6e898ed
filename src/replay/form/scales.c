/* SPDX-License-Identifier: Apache-2.0 */
/* Scales that follow a state which changes little in a step. */
#include "replay/form/scales.h"

#include <math.h>

#include "base/fail.h"
#include "ckpt/build.h"
#include "codec/group_math.h"
#include "codec/narrow.h"
#include "step/hyperparameters.h"

/*
 * An e8m8 scale is rounded up at every step.  Where a step without a gradient leaves this share of
 * it or more, the state drifts by 0.5% and more (docs/internals/numerics.md), and above 1 - 2^-8 the scale
 * never shrinks at all.  An f16 scale is rounded to nearest: its variances follow further.
 */
#define E8M8_KEPT_MAX 0.95
#define F16_KEPT_MAX (1 - 0x1p-7)

/* What a step without a gradient leaves of a slot, and the hyperparameter that says so. */
static enum tsr_hyper_name decay_of(enum tsr_optimizer optimizer, enum tsr_slot slot)
{
	if (optimizer == TSR_OPTIMIZER_SGD || optimizer == TSR_OPTIMIZER_SGDW ||
	    tsr_optimizer_is_muon(optimizer))
		return TSR_HYPER_MOMENTUM;
	if (optimizer == TSR_OPTIMIZER_LION || slot == TSR_SLOT_VARIANCE ||
	    slot == TSR_SLOT_MAX_VARIANCE)
		return TSR_HYPER_BETA2;
	return TSR_HYPER_BETA1;
}

/* The largest of any group of parameters, so that all have the same scales. */
static double largest_decay(const struct tsr_replaying *r, enum tsr_hyper_name name)
{
	double largest = 0;

	for (size_t g = 0; g < r->result->ngroups; g++)
		largest = fmax(largest, r->result->hyper[g].value[name]);
	return largest;
}

static bool follows(const struct tsr_replaying *r, enum tsr_slot slot,
		    const struct tsr_coding *coding)
{
	const double decay = largest_decay(r, decay_of(r->result->optimizer, slot));
	const bool root = coding->codec->companding == TSR_COMPANDING_SQRT;
	const double kept = root ? sqrt(decay) : decay;

	if (slot == TSR_SLOT_WEIGHT || !coding->codec->grouped)
		return true;
	if (coding->scale == TSR_SCALE_E8M8)
		return kept < E8M8_KEPT_MAX;
	return coding->scale == TSR_SCALE_F32 || coding->scale == TSR_SCALE_F28 ||
	       slot == TSR_SLOT_MOMENTUM || kept <= F16_KEPT_MAX;
}

void tsr_replay_choose_scale(const struct tsr_replaying *r, enum tsr_slot slot,
			     struct tsr_coding *coding)
{
	if (coding->scale != TSR_SCALE_E8M8 || r->options->keep_scales || follows(r, slot, coding))
		return;
	coding->scale = TSR_SCALE_F32;
	r->result->widened[slot] = true;
}

enum tsr_status tsr_replay_note_scales(struct tsr_replaying *r)
{
	for (unsigned i = 0; i < TSR_SLOTS; i++) {
		const enum tsr_slot slot = (enum tsr_slot)i;
		const struct tsr_coding *coding = &r->result->coding[slot];
		const enum tsr_hyper_name name = decay_of(r->result->optimizer, slot);

		if (!coding->codec)
			continue;
		r->result->decay[slot] = name;
		r->result->decays[slot] = largest_decay(r, name);
		if (!follows(r, slot, coding))
			TSR_TRY(tsr_build_note(
				r->c, r->err,
				"%s scales cannot follow the %s with %s = %.7g: it drifts from "
				"step to step; f32 scales follow",
				tsr_scale_name(coding->scale), tsr_kind_name(tsr_slot_kind(slot)),
				tsr_hyper_name(name), r->result->decays[slot]));
	}
	return TSR_OK;
}

bool tsr_replay_scale_widens(const struct tsr_coding *from, const struct tsr_coding *to)
{
	struct tsr_coding wide = *from;

	if (!from->codec || !from->codec->grouped || from->scale != TSR_SCALE_E8M8 ||
	    to->scale != TSR_SCALE_F32)
		return false;
	wide.scale = TSR_SCALE_F32;
	return tsr_coding_is_same(&wide, to);
}

void tsr_replay_widen_scales(const struct tsr_coding *from, unsigned plane, const void *scale,
			     size_t nbytes, float *ret)
{
	const uint16_t *bits = scale;
	const size_t n = nbytes / sizeof(*bits);

	if (from->codec->planes[plane].unit == TSR_PER_GROUP_TOO) {
		tsr_widen(from->codec->planes[plane].dtype, scale, n, ret);
		return;
	}
	for (size_t i = 0; i < n; i++)
		ret[i] = tsr_f32_from_e8m8(bits[i]);
}
