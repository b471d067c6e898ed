/* SPDX-License-Identifier: Apache-2.0 */
/* The resident state: how it gets into memory, and out of it. */
#include "replay/stepping.h"

#include "base/fail.h"
#include "io/mapped.h"
#include "io/pages.h"
#include "base/pipeline.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"
#include "codec/measuring.h"
#include "codec/nonfinite.h"
#include "pack/walk.h"
#include "replay/soap_state.h"
#include "replay/form/scales.h"
#include "replay/replay_parts.h"
#include "tersor/measure.h"

/* --- Memory ----------------------------------------------------------------------------------- */

/* Parameters of so many elements are freed by several threads. */
#define DROP_NUMEL (UINT64_C(1) << 20)

static enum tsr_status drop_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_replay_param *p = (const struct tsr_replay_param *)ctx +
					   job / TSR_REPLAY_ARRAYS;
	const unsigned i = (unsigned)(job % TSR_REPLAY_ARRAYS);

	(void)scratch, (void)err;
	if (p->array[i] && p->numel >= DROP_NUMEL)
		tsr_pages_drop(p->array[i], (size_t)tsr_replay_array_nbytes(p, i, p->numel));
	return TSR_OK;
}

void tsr_replay_free_state(struct tsr_replay_param *params, size_t n, bool on_disk,
			   unsigned threads)
{
	const struct tsr_run run = { .threads = threads };
	const struct tsr_pipeline pipeline = { .njobs = n * TSR_REPLAY_ARRAYS,
					       .work = drop_work,
					       .ctx = params };
	bool large = false;

	for (size_t i = 0; i < n && !large && !on_disk; i++)
		large = params[i].numel >= DROP_NUMEL;
	/* That only saves time: if it fails, everything is freed all the same. */
	if (large)
		(void)tsr_pipeline_run(&pipeline, &run, NULL);
	for (size_t i = 0; i < pipeline.njobs && !on_disk; i++)
		free(params[i / TSR_REPLAY_ARRAYS].array[i % TSR_REPLAY_ARRAYS]);
	free(params);
}

/* Not zeroed; not NULL for a tensor without elements. */
static void *allocate(const struct tsr_replaying *r, uint64_t nbytes)
{
	if (r->result->disk)
		return tsr_mapped_take(r->result->disk, nbytes);
	return nbytes < SIZE_MAX ? malloc((size_t)nbytes + 1) : NULL;
}

static enum tsr_status allocate_state(struct tsr_replaying *r)
{
	/* Each array begins at a cache line. */
	const uint64_t narrays = (uint64_t)r->nparams * TSR_REPLAY_ARRAYS;

	if (r->options->state_dir)
		TSR_TRY(tsr_mapped_new(r->options->state_dir, r->c->path,
				       r->result->state_nbytes + 64 * narrays, &r->result->disk,
				       r->err));
	for (uint64_t k = 0; k < narrays; k++) {
		struct tsr_replay_param *p = &r->params[k / TSR_REPLAY_ARRAYS];
		const unsigned i = (unsigned)(k % TSR_REPLAY_ARRAYS);

		if (!tsr_replay_has_array(r, p, i))
			continue;
		p->array[i] = allocate(r, tsr_replay_array_nbytes(p, i, p->numel));
		if (!p->array[i])
			return tsr_fail(r->err, TSR_E_NOMEM,
					"%s: tensor %.200s: out of memory: the state takes %" PRIu64
					" bytes",
					r->c->path, p->name, r->result->state_nbytes);
	}
	return TSR_OK;
}

/* --- Loading ---------------------------------------------------------------------------------- */

/* What loading a part of a parameter found. */
struct loaded {
	struct tsr_measure measure;
	struct tsr_encode_report report;
};

struct loading {
	struct tsr_replaying *r;
	uint64_t step; /* number of the step before the first */
	struct loaded loaded[TSR_SLOTS]; /* of the parameter being committed */
};

struct load_scratch {
	struct tsr_read_scratch read;
	struct tsr_tile tile;
	struct loaded loaded[TSR_SLOTS];
	/* Four arrays: elements and what they decode to, and the same of the variance. */
	_Alignas(64) float x[];
};

/* What a part of a tile is before and after it is encoded; the variance's is there for the momentum. */
static float *was_of(const struct loading *l, struct load_scratch *s, unsigned slot)
{
	return s->x + (slot == TSR_SLOT_VARIANCE ? 2 * l->r->longest : 0);
}

static float *decoded_of(const struct loading *l, struct load_scratch *s, unsigned slot)
{
	return was_of(l, s, slot) + l->r->longest;
}

/* Whether the planes of a tensor hold what those of this coding do. */
static bool has_coding(const struct tsr_tensor *t, const struct tsr_coding *coding)
{
	if (t->dtype != TSR_F32)
		return false;
	if (t->coding.codec)
		return tsr_coding_is_same(&t->coding, coding) ||
		       tsr_replay_scale_widens(&t->coding, coding) ||
		       tsr_replay_is_gefens(&t->coding, coding);
	return tsr_replay_is_f32(coding);
}

/* The tensor that a slot is loaded from; SIZE_MAX: it starts from zeros. */
static size_t source_of(const struct tsr_replaying *r, const struct tsr_replay_param *p,
			unsigned slot)
{
	return r->options->zero_state && slot != TSR_SLOT_WEIGHT ? SIZE_MAX : p->tensor[slot];
}

/* Whether the checkpoint has the planes of a slot; of ratios also what they are relative to. */
static bool has_planes(const struct tsr_replaying *r, const struct tsr_replay_param *p,
		       unsigned slot)
{
	const size_t source = source_of(r, p, slot);

	if (source == SIZE_MAX || !has_coding(&r->c->tensors[source], &p->coding[slot]))
		return false;
	return !p->coding[slot].codec->relative || has_planes(r, p, TSR_SLOT_VARIANCE);
}

/* Planes that hold the wanted values are copied: encoding again could change them. */
static enum tsr_status copy_planes(const struct loading *l, struct load_scratch *s, unsigned slot,
				   struct tsr_err *err)
{
	const struct tsr_replaying *r = l->r;
	const struct tsr_tile *tile = &s->tile;
	const struct tsr_replay_param *p = &r->params[tile->tensor];
	const struct tsr_tensor *t = &r->c->tensors[p->tensor[slot]];
	const struct tsr_coding *coding = &p->coding[slot];
	const struct tsr_coding *stored = t->coding.codec ? &t->coding : coding;
	float *was = was_of(l, s, slot), *fp32[TSR_SLOTS];
	void *plane[TSR_PLANES_MAX];

	tsr_replay_planes_at(coding, tsr_replay_planes(p, slot), tile->first, plane);
	for (unsigned i = 0; i < t->nplanes; i++) {
		const size_t nbytes = (size_t)tsr_plane_nbytes(stored, i, tile->n);
		const bool widen = nbytes != tsr_plane_nbytes(coding, i, tile->n);

		TSR_TRY(tsr_array_read(r->c, &r->c->arrays[t->plane[i]],
				       tsr_plane_nbytes(stored, i, tile->first), nbytes,
				       widen ? s->x : plane[i], err));
		if (widen)
			tsr_replay_widen_scales(stored, i, s->x, nbytes, plane[i]);
	}
	tsr_replay_fp32_at(p->array, tile->first, fp32);
	if (!fp32[slot] && !(slot == TSR_SLOT_VARIANCE && tsr_replay_is_relative(p)))
		return TSR_OK;
	coding->codec->decode(coding, (const void *const *)plane, tile->n, was);
	tsr_ratios_undo(coding, was, was_of(l, s, TSR_SLOT_VARIANCE), tile->n);
	memcpy(decoded_of(l, s, slot), was, tile->n * sizeof(*was));
	if (fp32[slot])
		memcpy(fp32[slot], was, tile->n * sizeof(*was));
	return TSR_OK;
}

static enum tsr_status encode(const struct loading *l, struct load_scratch *s, unsigned slot,
			      struct tsr_err *err)
{
	const struct tsr_replaying *r = l->r;
	const struct tsr_replay_param *p = &r->params[s->tile.tensor];
	const size_t source = source_of(r, p, slot), n = s->tile.n;
	struct tsr_coding coding = tsr_replay_coding_at(&p->coding[slot], l->step);
	struct loaded *loaded = &s->loaded[slot];
	float *was = was_of(l, s, slot), *decoded = decoded_of(l, s, slot);
	float *fp32[TSR_SLOTS];
	void *plane[TSR_PLANES_MAX];

	if (source != SIZE_MAX)
		TSR_TRY(tsr_tensor_read_f32(r->c, &r->c->tensors[source], s->tile.first, n,
					    &s->read, was, err));
	else
		memset(was, 0, n * sizeof(*was));
	tsr_replay_fp32_at(p->array, s->tile.first, fp32);
	if (fp32[slot])
		memcpy(fp32[slot], was, n * sizeof(*was));
	tsr_replay_planes_at(&coding, tsr_replay_planes(p, slot), s->tile.first, plane);
	coding.first = s->tile.first;
	memcpy(decoded, was, n * sizeof(*was));
	tsr_ratios_make(&coding, decoded, was_of(l, s, TSR_SLOT_VARIANCE), n);
	if (coding.codec->relative)
		loaded->report.narrow_overflow += tsr_count_nonfinite(TSR_F32, decoded,
								      n * sizeof(*decoded));
	coding.codec->encode(&coding, decoded, n, plane, &loaded->report);
	if (tsr_replay_is_f32(&coding))
		return TSR_OK;
	coding.codec->decode(&coding, (const void *const *)plane, n, decoded);
	tsr_ratios_undo(&coding, decoded, decoded_of(l, s, TSR_SLOT_VARIANCE), n);
	tsr_measure_add(&loaded->measure, was, decoded, n);
	return TSR_OK;
}

static enum tsr_status load_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct loading *l = ctx;
	const struct tsr_replaying *r = l->r;
	struct load_scratch *s = scratch;
	const struct tsr_replay_param *p;

	s->tile = tsr_tiles_get(&r->tiles, job);
	p = &r->params[s->tile.tensor];
	/* The momentum, which comes before the variance otherwise, may be relative to it. */
	for (unsigned slot = TSR_SLOTS; slot--;) {
		s->loaded[slot] = (struct loaded){ .measure = { 0 } };
		if (!p->coding[slot].codec)
			continue;
		if (has_planes(r, p, slot))
			TSR_TRY(copy_planes(l, s, slot, err));
		else
			TSR_TRY(encode(l, s, slot, err));
	}
	TSR_TRY(tsr_replay_load_bases(r, p, &s->read, err));
	tsr_replay_leave_tile(r, &s->tile);
	return TSR_OK;
}

/* As when packing, but such a tensor cannot be kept raw. */
static enum tsr_status check_loaded(const struct tsr_replaying *r, struct tsr_replay_param *p,
				    unsigned slot, const struct loaded *loaded, struct tsr_err *err)
{
	const struct tsr_measure *m = &loaded->measure;
	const struct tsr_encode_report *e = &loaded->report;
	const struct tsr_codec *codec = p->coding[slot].codec;
	const size_t tensor = p->tensor[slot];
	const bool variance = slot == TSR_SLOT_VARIANCE && codec->grouped;
	char found[160] = "";

	p->lossy |= m->n > 0 && !codec->lossless;
	tsr_replay_put_count(found, sizeof(found), m->nonfinite, "non-finite values");
	tsr_replay_put_count(found, sizeof(found), variance ? m->negative : 0,
			     "negative variances");
	tsr_replay_put_count(found, sizeof(found), m->overflow + e->narrow_overflow,
			     "values over its range");
	tsr_replay_put_count(found, sizeof(found), e->scale_overflow, "scales over its range");
	if (!*found)
		return TSR_OK;
	return tsr_fail(err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found %s, which %s cannot hold, expected none",
			r->c->path, tensor == SIZE_MAX ? p->name : r->c->tensors[tensor].name,
			found, codec->name);
}

static enum tsr_status load_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct loading *l = ctx;
	const struct load_scratch *s = scratch;
	const struct tsr_tile tile = tsr_tiles_get(&l->r->tiles, job);
	struct tsr_replay_param *p = &l->r->params[tile.tensor];

	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		struct loaded *sum = &l->loaded[slot];

		if (!tile.first)
			*sum = (struct loaded){ .measure = { 0 } };
		tsr_measure_merge(&sum->measure, &s->loaded[slot].measure);
		sum->report.scale_overflow += s->loaded[slot].report.scale_overflow;
		sum->report.narrow_overflow += s->loaded[slot].report.narrow_overflow;
		if (tile.last && p->coding[slot].codec)
			TSR_TRY(check_loaded(l->r, p, slot, sum, err));
	}
	return tsr_progress_add(&l->r->progress, 0, err);
}

/* Whether the container has hashes or checksums. */
static bool is_checkable(const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->narrays && !c->packed; i++) {
		if (c->arrays[i].has_crc || c->arrays[i].layout)
			return true;
	}
	return c->packed;
}

/* Check what will be resident; other tensors are checked when they are written. */
static enum tsr_status verify(struct tsr_replaying *r)
{
	TSR_OWNED(free) struct tsr_tensor *tensors = NULL;
	struct tsr_checkpoint resident = *r->c;
	const struct tsr_walk walk = { .c = &resident, .in_parts = true };

	if (!is_checkable(r->c))
		return TSR_OK;
	TSR_TRY(TSR_NEW(&tensors, r->nparams * (TSR_SLOTS + TSR_BASES) + 1, r->err, r->c->path));
	resident.tensors = tensors;
	resident.ntensors = 0;
	for (size_t i = 0; i < r->nparams; i++) {
		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			const size_t tensor = r->params[i].tensor[slot];

			if (tensor != SIZE_MAX && r->params[i].coding[slot].codec)
				tensors[resident.ntensors++] = r->c->tensors[tensor];
		}
		for (unsigned k = 0; k < TSR_BASES; k++) {
			const struct tsr_replay_param *p = &r->params[i];

			if (p->side[k % 2])
				tensors[resident.ntensors++] = r->c->tensors[p->basis[k]];
		}
	}
	return resident.ntensors ? tsr_walk_run(&walk, r->run, r->err) : TSR_OK;
}

static enum tsr_status load(struct tsr_replaying *r)
{
	struct loading l = { .r = r, .step = r->result->steps[0].step - 1 };
	const struct tsr_pipeline pipeline = { .scratch_nbytes = sizeof(struct load_scratch) +
								 4 * r->longest * sizeof(float),
					       .work = load_work,
					       .commit = load_commit,
					       .ctx = &l };

	TSR_TRY(allocate_state(r));
	if (r->nparams)
		TSR_TRY(tsr_replay_run_tiles(pipeline, offsetof(struct load_scratch, loaded),
					     TSR_SLOTS * sizeof(struct loaded), NULL));
	return tsr_checkpoint_check_unchanged(r->c, r->err);
}

enum tsr_status tsr_replay_load_states(struct tsr_replaying *first)
{
	TSR_TRY(tsr_replay_name_steps(first, NULL, 0));
	/* All are verified before tiles are dealt: each state needs the same ones. */
	for (struct tsr_replaying *r = first; r; r = r->also)
		TSR_TRY(verify(r));
	for (struct tsr_replaying *r = first; r; r = r->also)
		TSR_TRY(load(r));
	return TSR_OK;
}
