/* SPDX-License-Identifier: Apache-2.0 */
/* States whose blocks and codebook are learned. */
#include "replay/form/scales.h"

#include "base/arena.h"
#include "base/fail.h"
#include "ckpt/build.h"
#include "codec/gefen_state.h"
#include "recording/recording_data.h"
#include "tersor/learn.h"

/* --- What the checkpoint has ------------------------------------------------------------------- */

static const struct tsr_coding *stored_as(const struct tsr_replaying *r,
					  const struct tsr_replay_param *p, unsigned slot)
{
	return p->tensor[slot] == SIZE_MAX ? NULL : &r->c->tensors[p->tensor[slot]].coding;
}

/* The learned codec that a tensor is stored in, if it is one; Gefen's program has the same. */
static const struct tsr_codec *learned_codec(const struct tsr_coding *stored)
{
	const struct tsr_codec *codec = stored && stored->codec
						? tsr_codec_find(stored->codec->name)
						: NULL;

	return codec && codec->learned ? codec : NULL;
}

static const float *codebook_of(const struct tsr_coding *stored)
{
	const struct tsr_codec *codec = learned_codec(stored);

	if (!codec || !codec->has_codebook)
		return NULL;
	return stored->codec == codec ? stored->codebook
				      : ((const struct tsr_gefen_state *)stored->codec)->table;
}

/* A state that is written again has one codebook. */
static enum tsr_status find_codebook(struct tsr_replaying *r)
{
	for (size_t i = 0; i < r->nparams; i++) {
		const float *own = codebook_of(stored_as(r, &r->params[i], TSR_SLOT_MOMENTUM));

		if (!own)
			continue;
		for (unsigned k = 1; k < TSR_CODEBOOK_ENTRIES; k++) {
			if (!(own[k - 1] <= own[k]))
				return tsr_fail(r->err, TSR_E_FORMAT,
						"%s: tensor %.200s: found a codebook that is not "
						"ascending at entry %u, expected one that is",
						r->c->path, r->params[i].name, k);
		}
		if (r->codebook &&
		    memcmp(r->codebook, own, TSR_CODEBOOK_ENTRIES * sizeof(*own)) != 0)
			return tsr_fail(r->err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: found a codebook of its own, expected "
					"that of the other tensors",
					r->c->path, r->params[i].name);
		r->codebook = own;
	}
	return TSR_OK;
}

bool tsr_replay_own_learned(const struct tsr_replaying *r, const struct tsr_replay_param *p,
			    enum tsr_slot slot, struct tsr_coding *ret)
{
	const struct tsr_coding *stored = stored_as(r, p, slot);
	const struct tsr_codec *codec = learned_codec(stored);

	if (!codec || !(codec->kinds & tsr_slot_kind(slot)))
		return false;
	*ret = tsr_coding_default(codec);
	ret->group = stored->group;
	ret->codebook = r->codebook;
	return true;
}

bool tsr_replay_is_gefens(const struct tsr_coding *stored, const struct tsr_coding *coding)
{
	const float *book = codebook_of(stored);

	return learned_codec(stored) == coding->codec && stored->codec != coding->codec &&
	       stored->group == coding->group &&
	       (!book || memcmp(book, coding->codebook, TSR_CODEBOOK_ENTRIES * sizeof(*book)) == 0);
}

/* --- What has to be learned -------------------------------------------------------------------- */

/* Whether states of this slot are in a learned codec unless they have another. */
static bool is_wanted(const struct tsr_replaying *r, unsigned slot)
{
	const struct tsr_codec *asked = r->options->coding[slot].codec;

	if (asked)
		return asked->learned;
	for (size_t i = 0; i < r->nparams; i++) {
		if (learned_codec(stored_as(r, &r->params[i], slot)))
			return true;
	}
	return false;
}

static bool is_needed(const struct tsr_replaying *r)
{
	for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
		if (!is_wanted(r, slot))
			continue;
		for (size_t i = 0; i < r->nparams; i++) {
			const struct tsr_replay_param *p = &r->params[i];

			if ((p->slots >> slot & 1) && !learned_codec(stored_as(r, p, slot)))
				return true;
		}
	}
	return false;
}

static enum tsr_status learn(struct tsr_replaying *r)
{
	struct tsr_learn_options o = r->options->learn ? *r->options->learn : tsr_learn_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *step = NULL;
	enum tsr_status status;

	o.gradients = true;
	o.peer = o.peer || r->result->order == TSR_ORDER_GEFEN;
	o.few = o.few || r->codebook;
	TSR_TRY(tsr_recording_open_step(r->recording, 0, &step, r->err));
	status = tsr_learn(step, &o, r->run, &r->learned, r->err);
	if (status != TSR_OK)
		tsr_recording_name_step(r->recording, 0, r->err);
	return status;
}

enum tsr_status tsr_replay_learn(struct tsr_replaying *r)
{
	TSR_TRY(find_codebook(r));
	if (!is_needed(r))
		return TSR_OK;
	TSR_TRY(learn(r));
	if (r->codebook)
		return TSR_OK;
	r->codebook = tsr_arena_dup(r->c->arena, r->learned->codebook,
				    sizeof(r->learned->codebook));
	return r->codebook ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

void tsr_replay_fit_learned(struct tsr_replaying *r, const struct tsr_replay_param *p,
			    enum tsr_slot slot, struct tsr_coding *coding)
{
	const struct tsr_learned_tensor *known = r->learned
							 ? tsr_learned_find(r->learned, p->recorded)
							 : NULL;

	if (known) {
		coding->group = slot == TSR_SLOT_VARIANCE ? known->period : known->block;
		coding->codebook = r->codebook;
		return;
	}
	*coding = tsr_coding_default(tsr_codec_find("f32"));
	r->nunlearned++;
}

enum tsr_status tsr_replay_check_blocks(const struct tsr_replaying *r,
					const struct tsr_replay_param *p)
{
	for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
		const struct tsr_coding *coding = &p->coding[slot];

		if (!coding->codec || !coding->codec->learned)
			continue;
		if (p->numel % coding->group)
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: tensor %.200s: found blocks of %" PRIu32
					" elements, expected a divisor of its %" PRIu64,
					r->c->path, p->name, coding->group, p->numel);
		if (coding->group > TSR_GROUP_MAX)
			return tsr_fail(r->err, TSR_E_LIMIT,
					"%s: tensor %.200s: found blocks of %" PRIu32
					" elements, over the limit of %u",
					r->c->path, p->name, coding->group, TSR_GROUP_MAX);
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_note_unlearned(struct tsr_replaying *r)
{
	if (!r->nunlearned)
		return TSR_OK;
	return tsr_build_note(r->c, r->err,
			      "%.200s: step %" PRIu64
			      " has no gradients to learn the blocks of %zu "
			      "states from: these are f32",
			      r->recording->path, r->recording->steps[0].step, r->nunlearned);
}
