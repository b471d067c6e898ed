/* SPDX-License-Identifier: Apache-2.0 */
/* Which coding each tensor is packed in. */
#include "pack/codec_rules.h"

#include <math.h>

#include "ckpt/build.h"
#include "ckpt/read.h"
#include "codec/narrow.h"
#include "names/aliases.h"

/* The coding for tensors of this kind; without a codec where they stay raw. */
static struct tsr_coding coding_for(const struct tsr_pack_options *o, const struct tsr_tensor *t)
{
	const struct tsr_coding raw = { .group = 1 };

	switch (t->kind) {
	case TSR_KIND_WEIGHT:
		return o->weight;
	case TSR_KIND_MOMENTUM:
		return o->momentum;
	case TSR_KIND_VARIANCE:
		return o->variance;
	case TSR_KIND_OTHER:
		break;
	}
	if (!t->field || !t->rank || !o->other.codec)
		return raw;
	/* The inverse root of a rounded factor is another one: NMSE 0.009 to 20 in BF16 and INT8. */
	return tsr_alias_is_factor(t) && !o->other.codec->lossless ? raw : o->other;
}

void tsr_pack_give(struct tsr_tensor *t, const struct tsr_coding *coding)
{
	t->coding = *coding;
	if (t->coding.codec && !tsr_codec_takes(t->coding.codec, t->dtype))
		t->coding = (struct tsr_coding){ .group = 1 };
	if (t->coding.codec && !t->coding.codec->grouped) {
		t->coding.group = 1;
		t->coding.scale = TSR_SCALE_E8M8;
	}
	if (t->coding.codec && t->coding.codec->stochastic)
		t->coding.stream = tsr_coding_stream(t->name);
	else
		t->coding.seed = 0;
	t->coding.kind = t->kind;
	t->coding.row = tsr_coding_row(&t->coding, t->rank, t->shape);
	t->coding.share = tsr_coding_share(&t->coding, t->rank, t->shape);
	if (t->coding.share)
		t->coding.factors = t->factors;
	t->nplanes = t->coding.codec ? t->coding.codec->nplanes : 1;
}

void tsr_pack_choose(const struct tsr_pack_options *o, struct tsr_tensor *t,
		     struct tsr_packed_tensor *r)
{
	const struct tsr_coding raw = { .group = 1 }, coding = coding_for(o, t);

	tsr_pack_give(t, &coding);
	if (t->coding.codec && !t->ruled && (t->numel ? t->numel : 1) < o->min_elements) {
		tsr_pack_give(t, &raw);
		r->raw = TSR_RAW_SMALL;
	}
}

/* --- What a codec cannot hold ------------------------------------------------------------------- */

bool tsr_pack_all_integers(const float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		if (!(fabsf(x[i]) <= 16777216.0f) || x[i] != truncf(x[i]))
			return false;
	}
	return true;
}

enum tsr_raw_reason tsr_pack_raw_reason(const struct tsr_tensor *t,
					const struct tsr_packed_tensor *r, bool integers)
{
	const struct tsr_codec *codec = t->coding.codec;

	if (!codec || (codec->lossless && codec->planes[0].dtype == TSR_F32))
		return TSR_RAW_NO;
	if (r->measure.nonfinite)
		return TSR_RAW_NONFINITE;
	if (r->measure.negative && tsr_coding_is_unsigned(&t->coding))
		return TSR_RAW_NEGATIVE;
	if (r->measure.overflow || r->report.scale_overflow || r->report.narrow_overflow)
		return TSR_RAW_OVERFLOW;
	return integers && !t->ruled && r->measure.max_ulp ? TSR_RAW_INTEGERS : TSR_RAW_NO;
}

/* --- Ratios ----------------------------------------------------------------------------------- */

bool tsr_pack_drop_ratios(const struct tsr_pack_options *o, struct tsr_tensor *t)
{
	const struct tsr_codec *codec = t->coding.codec;
	const uint32_t group = o->momentum.group;

	if (!codec || !codec->relative)
		return false;
	t->coding = tsr_coding_with(tsr_codec_find("softsign8"), t->coding.scale,
				    group == codec->group ? 0 : group);
	t->coding.kind = t->kind;
	t->coding.row = tsr_coding_row(&t->coding, t->rank, t->shape);
	return true;
}

enum tsr_status tsr_pack_note_ratios(struct tsr_checkpoint *c, const struct tsr_tensor *first,
				     size_t n, struct tsr_err *err)
{
	if (n == 1)
		return tsr_build_note(
			c, err,
			"%s: tensor %.200s: has no variance here that ratios to it can "
			"be stored of: %s instead",
			c->path, first->name, first->coding.codec->name);
	return tsr_build_note(
		c, err,
		"%s: tensor %.200s and %zu more: have no variance here that ratios to it "
		"can be stored of: %s instead",
		c->path, first->name, n - 1, first->coding.codec->name);
}

enum tsr_status tsr_pack_check_ratios(const struct tsr_pack_options *o, struct tsr_checkpoint *c,
				      const struct tsr_pack_given *given, struct tsr_err *err)
{
	const struct tsr_tensor *first = NULL, *beside;
	size_t n = 0;

	for (size_t i = 0; i < c->ntensors; i++) {
		struct tsr_tensor *t = &c->tensors[i];

		if (tsr_pack_is_kept(given, i) || !t->coding.codec || !t->coding.codec->relative)
			continue;
		beside = t->beside ? tsr_tensor_beside(c, t) : NULL;
		if (beside && tsr_tensor_has_f32(beside) && tsr_tensor_same_shape(beside, t)) {
			tsr_coding_use_eps(&t->coding, c->eps > 0 ? c->eps : t->coding.eps);
			continue;
		}
		tsr_pack_drop_ratios(o, t);
		t->nplanes = t->coding.codec->nplanes;
		first = first ? first : t;
		n++;
	}
	return n ? tsr_pack_note_ratios(c, first, n, err) : TSR_OK;
}

enum tsr_status tsr_pack_note_decoded(struct tsr_checkpoint *c, struct tsr_err *err)
{
	const struct tsr_tensor *first = NULL;
	size_t n = 0;

	for (size_t i = 0; i < c->ntensors && !c->packed; i++) {
		if (!c->tensors[i].coding.codec || c->tensors[i].coding.group == 1)
			continue;
		first = first ? first : &c->tensors[i];
		n++;
	}
	return n ? tsr_build_note(c, err,
				  "%s: tensor %.200s: is compressed by another tool (%zu in all); "
				  "unpacking the output gives FP32 states",
				  c->path, first->name, n)
		 : TSR_OK;
}
