/* SPDX-License-Identifier: Apache-2.0 */
/* Codings whose blocks, codebook or factors are learned, of the tensors that are packed. */
#include "pack/learned_codings.h"

#include <inttypes.h>

#include "base/arena.h"
#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "learn/factors.h"

/* Where blocks are short a learned codec takes more than this, and the usual codecs take less. */
#define BYTES_MAX 1.1

static bool is_learned(const struct tsr_coding *coding)
{
	return coding->codec && coding->codec->learned;
}

static bool is_lowrank(const struct tsr_coding *coding)
{
	return coding->codec && coding->codec->rank;
}

/* Whether a tensor of the checkpoint will be packed in a learned codec. */
static bool is_needed(const struct tsr_checkpoint *c, const struct tsr_pack_options *o)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		const enum tsr_kind kind = c->tensors[i].kind;

		if ((kind == TSR_KIND_MOMENTUM && is_learned(&o->momentum)) ||
		    (kind == TSR_KIND_VARIANCE && is_learned(&o->variance)))
			return true;
	}
	return false;
}

/* The rank of the factors by which some momentum may be packed. */
static unsigned factor_rank(const struct tsr_pack_options *o)
{
	unsigned rank = tsr_factor_rank(&o->momentum, 0);

	for (unsigned i = 0; o->choice && i < o->choice->ncandidates; i++)
		rank = tsr_factor_rank(&o->choice->candidates[i].momentum, rank);
	return rank;
}

enum tsr_status tsr_pack_learn(struct tsr_checkpoint *c, const struct tsr_pack_options *options,
			       const struct tsr_run *run, struct tsr_pack_learned *ret,
			       struct tsr_err *err)
{
	TSR_TRY(tsr_factors_find(c, factor_rank(options), run, err));
	if (!is_needed(c, options))
		return TSR_OK;
	ret->any_size = options->learn && options->learn->peer;
	ret->learned = options->learned;
	if (!ret->learned) {
		TSR_TRY(tsr_learn(c, options->learn, run, &ret->own, err));
		ret->learned = ret->own;
	}
	ret->codebook = tsr_arena_dup(c->arena, ret->learned->codebook,
				      sizeof(ret->learned->codebook));
	return ret->codebook ? TSR_OK : tsr_build_nomem(c, err);
}

static void use_usual(struct tsr_tensor *t)
{
	const char *name = t->kind == TSR_KIND_VARIANCE ? "sqrt8" : "softsign8";

	t->coding = tsr_coding_default(tsr_codec_find(name));
	t->coding.row = tsr_coding_row(&t->coding, t->rank, t->shape);
}

enum tsr_status tsr_pack_fit(struct tsr_pack_learned *l, const struct tsr_checkpoint *c,
			     struct tsr_tensor *t, struct tsr_err *err)
{
	const struct tsr_learned_tensor *known;

	if (is_lowrank(&t->coding) && !t->coding.factors) {
		l->nomatrix = l->nnomatrix++ ? l->nomatrix : t;
		use_usual(t);
		t->nplanes = t->coding.codec->nplanes;
	}
	if (!is_learned(&t->coding))
		return TSR_OK;
	known = l->learned ? tsr_learned_find(l->learned, t->weight ? t->weight : t->name) : NULL;
	if (known && known->numel != t->numel)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found %" PRIu64
				" elements, expected the %" PRIu64 " that blocks were learned from",
				c->path, t->name, t->numel, known->numel);
	if (known) {
		t->coding.group = t->kind == TSR_KIND_VARIANCE ? known->period : known->block;
		t->coding.codebook = l->codebook;
	}
	if (!known) {
		l->nunknown++;
		use_usual(t);
	} else if (!l->any_size && tsr_coding_bytes_per_element(&t->coding) > BYTES_MAX) {
		l->nlarge++;
		use_usual(t);
	}
	t->nplanes = t->coding.codec->nplanes;
	return TSR_OK;
}

enum tsr_status tsr_pack_note_learned(const struct tsr_pack_learned *l, struct tsr_checkpoint *c,
				      struct tsr_err *err)
{
	if (l->nlarge)
		TSR_TRY(tsr_build_note(
			c, err,
			"%.200s: %zu tensors have softsign8 or sqrt8, as their blocks "
			"are so short that gefen8 or blockmean would take more than "
			"%.1f bytes per element",
			c->path, l->nlarge, BYTES_MAX));
	if (l->nunknown)
		TSR_TRY(tsr_build_note(
			c, err,
			"%.200s: %zu tensors have softsign8 or sqrt8, as there was no "
			"gradient to learn their blocks from",
			c->path, l->nunknown));
	if (l->nnomatrix)
		TSR_TRY(tsr_build_note(
			c, err,
			"%.200s: %zu tensors have softsign8, the first %.200s: a low-rank codec "
			"is for matrices of which factors of rank 16 take at most 1.5 bits per "
			"element",
			c->path, l->nnomatrix, l->nomatrix->name));
	return TSR_OK;
}

void tsr_pack_learned_free(struct tsr_pack_learned *l)
{
	tsr_learned_free(l->own);
	*l = (struct tsr_pack_learned){ .learned = NULL };
}
