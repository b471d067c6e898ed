/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding the tiles of a checkpoint, and what that finds of each tensor. */
#include "pack/encode_tiles.h"

#include "base/fail.h"
#include "ckpt/read.h"
#include "codec/measuring.h"
#include "codec/narrow.h"
#include "pack/codec_rules.h"
#include "pack/masters.h"
#include "pack/outcome/moments.h"

/* What encoding a tile found, as a walk has it. */
struct found {
	struct tsr_measure measure;
	struct tsr_encode_report report;
	struct tsr_update_measure update; /* of a variance with its momentum */
	struct tsr_breach breach; /* likewise */
	uint32_t integers; /* all elements are */
	uint32_t apart;
};

/* The variances that a tile of a momentum in a relative codec goes with. */
static enum tsr_status get_beside(const struct tsr_encoding *e, const struct tsr_walked *t,
				  struct tsr_err *err)
{
	const struct tsr_tensor *wanted = tsr_tensor_beside(e->wanted, t->tensor);

	if (!wanted)
		return TSR_OK;
	return tsr_coder_beside(t->coder, e->stored,
				&e->stored->tensors[wanted - e->wanted->tensors], wanted,
				t->tile.first, t->tile.n, err);
}

static enum tsr_status encode_tile(void *ctx, const struct tsr_walked *t, struct tsr_err *err)
{
	const struct tsr_encoding *e = ctx;
	struct found *found = t->found;
	struct tsr_coding coding = t->tensor->coding;
	bool same;

	*found = (struct found){ .report = { 0 } };
	coding.first = t->tile.first;
	if (!coding.codec)
		return TSR_OK;
	found->integers = tsr_pack_all_integers(t->data, t->tile.n);
	if (!t->has_planes)
		TSR_TRY(get_beside(e, t, err));
	if (t->has_planes)
		tsr_measure_add(&found->measure, t->data, t->data, t->tile.n);
	else
		TSR_TRY(t->coder->encode(t->coder, &coding, t->tensor->dtype, t->tile.n,
					 &found->measure, &found->report, err));
	if (!t->tensor->narrow)
		return TSR_OK;
	if (!t->has_planes)
		found->apart = !tsr_masters_settle(&coding, t->coder->plane, t->data, t->tile.n,
						   &found->measure);
	TSR_TRY(tsr_masters_check(e->stored, t->tensor, &t->tile, t->coder->plane[0],
				  t->coder->m->x, &same, err));
	found->apart = found->apart || !same;
	return TSR_OK;
}

/* What encoding a side of a pair needs; one that is stored as it is gets its elements into m->x. */
static struct tsr_coder_side side_of(const struct tsr_walked *t, struct tsr_coding *coding)
{
	struct found *found = t->found;
	struct tsr_coder_side side = { .coder = t->coder,
				       .dtype = t->tensor->dtype,
				       .measure = &found->measure,
				       .report = &found->report };
	const size_t n = t->nbytes * 8 / tsr_dtype_bits(t->tensor->dtype);

	*found = (struct found){ .report = { 0 } };
	*coding = t->tensor->coding;
	if (!coding->codec) {
		tsr_widen(t->tensor->dtype, t->data, n, t->coder->m->x);
		return side;
	}
	coding->first = t->tile.first;
	found->integers = tsr_pack_all_integers(t->data, n);
	if (t->has_planes)
		tsr_measure_add(&found->measure, t->data, t->data, n);
	else
		side.coding = coding;
	return side;
}

static enum tsr_status encode_pair(void *ctx, const struct tsr_walked *const t[2],
				   struct tsr_err *err)
{
	const struct tsr_encoding *e = ctx;
	struct found *found = t[1]->found;
	struct tsr_coding coding[2];
	const struct tsr_coder_side m = side_of(t[0], &coding[0]), v = side_of(t[1], &coding[1]);
	const size_t n = t[0]->nbytes * 8 / tsr_dtype_bits(t[0]->tensor->dtype);

	if (m.coding)
		TSR_TRY(get_beside(e, t[0], err));
	TSR_TRY(tsr_coder_encode_pair(&m, &v, n, e->eps, &found->update, err));
	if (tsr_update_suspect(&found->update, e->bound) &&
	    tsr_moments_checked(e->stored, &e->stored->tensors[t[0]->tile.tensor],
				&e->stored->tensors[t[1]->tile.tensor]))
		tsr_breach_find(&found->breach,
				&(struct tsr_moments){ m.coder->m->x, v.coder->m->x },
				t[1]->offset / sizeof(float), n, e->bound, e->eps);
	return TSR_OK;
}

/* The figures of a tile, added to those of its tensor. */
static enum tsr_status add_figures(void *ctx, const struct tsr_walked *t, struct tsr_err *err)
{
	const struct tsr_encoding *e = ctx;
	const struct found *found = t->found;
	const size_t i = t->tile.tensor;
	struct tsr_packed_tensor *r = &e->results[i];
	struct tsr_encoded_sums *sums = &e->sums[t->side];

	(void)err;
	if (t->tile.first == 0)
		*sums = (struct tsr_encoded_sums){ .measure = { 0 } };
	tsr_update_measure_merge(&sums->update, &found->update);
	r->update = tsr_update_measure_result(&sums->update);
	if (t->tile.first == 0)
		r->breach = (struct tsr_breach){ 0 };
	tsr_breach_merge(&r->breach, &found->breach);
	if (t->tile.first == 0 && t->tensor->coding.codec) {
		r->report = (struct tsr_encode_report){ 0 };
		e->integers[i] = true;
	}
	e->integers[i] = e->integers[i] && found->integers;
	if (t->tensor->coding.codec) {
		tsr_measure_merge(&sums->measure, &found->measure);
		r->measure = tsr_measure_result(&sums->measure);
	}
	r->report.scale_underflow += found->report.scale_underflow;
	r->report.scale_overflow += found->report.scale_overflow;
	r->report.narrow_overflow += found->report.narrow_overflow;
	e->apart[i] = e->apart[i] || found->apart;
	return TSR_OK;
}

static enum tsr_status write_tile(void *ctx, const struct tsr_walked *t, struct tsr_err *err)
{
	const struct tsr_encoding *e = ctx;

	for (unsigned i = t->tensor->narrow ? 1 : 0; i < t->tensor->nplanes; i++)
		TSR_TRY(tsr_writer_put(e->writer, TSR_ARRAY_TAG(t->tile.tensor, i),
				       t->coder->plane[i],
				       tsr_tile_plane_nbytes(t->tensor, i, &t->tile),
				       tsr_tile_plane_offset(t->tensor, i, &t->tile), err));
	return TSR_OK;
}

struct tsr_walk tsr_encoding_walk(struct tsr_encoding *e, const char *what)
{
	return (struct tsr_walk){ .c = e->stored,
				  .wanted = e->wanted->tensors,
				  .encodes = true,
				  .what = what,
				  .found_nbytes = sizeof(struct found),
				  .work = encode_tile,
				  .work_pair = encode_pair,
				  .commit = add_figures,
				  .finish = e->writer ? write_tile : NULL,
				  .ctx = e };
}

enum tsr_raw_reason tsr_encoded_raw_reason(const struct tsr_encoding *e, size_t i)
{
	return tsr_pack_raw_reason(&e->wanted->tensors[i], &e->results[i], e->integers[i]);
}
