/* SPDX-License-Identifier: Apache-2.0 */
/* The resident state: what it is coded as, and how it gets into memory. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/pages.h"
#include "base/pipeline.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"
#include "pack/walk.h"
#include "replay/engine.h"
#include "tersor/measure.h"

/* --- Codings ---------------------------------------------------------------------------------- */

struct tsr_coding tsr_replay_coding_at(const struct tsr_coding *coding, uint64_t step)
{
	struct tsr_coding at = *coding;

	at.seed += step * UINT64_C(0x9e3779b97f4a7c15);
	return at;
}

static bool is_f32(const struct tsr_coding *coding)
{
	return coding->codec->planes[0].dtype == TSR_F32;
}

/* The coding that a tensor of the checkpoint has, if a state can be encoded in it. */
static bool own_coding(const struct tsr_replaying *r, size_t tensor, enum tsr_part part,
		       struct tsr_coding *ret)
{
	const struct tsr_coding *own = tensor == SIZE_MAX ? NULL : &r->c->tensors[tensor].coding;

	if (!own || !own->codec || tsr_codec_find(own->codec->name) != own->codec ||
	    !(own->codec->kinds & tsr_part_kind(part)))
		return false;
	*ret = *own;
	return true;
}

/* The one asked for; or that of the checkpoint, of this tensor or else of any such one; or FP32. */
static struct tsr_coding choose_coding(const struct tsr_replaying *r,
				       const struct tsr_replay_param *p, enum tsr_part part)
{
	struct tsr_coding coding = r->options->coding[part];

	if (coding.codec) {
		if (!coding.codec->grouped) {
			coding.group = 1;
			coding.scale = TSR_SCALE_E8M8;
		}
	} else if (p->tensor[part] != SIZE_MAX || !r->result->coding[part].codec) {
		if (!own_coding(r, p->tensor[part], part, &coding))
			coding = tsr_coding_default(tsr_codec_find("f32"));
	} else {
		coding = r->result->coding[part];
	}
	coding.stream = coding.codec->stochastic ? tsr_coding_stream(p->name) : 0;
	coding.seed = coding.codec->stochastic ? coding.seed : 0;
	coding.first = 0;
	return coding;
}

/* --- Planning --------------------------------------------------------------------------------- */

static bool keeps(const struct tsr_replay_param *p, unsigned part)
{
	return part == TSR_PART_WEIGHT || (p->kinds & tsr_part_kind((enum tsr_part)part));
}

static bool is_adam(const struct tsr_replaying *r)
{
	return r->result->optimizer == TSR_OPTIMIZER_ADAM ||
	       r->result->optimizer == TSR_OPTIMIZER_ADAMW;
}

/*
 * Optimizers have no state for a parameter that never had a gradient.  It is taken for one if the
 * others count their steps, or need not: else nothing tells it from one whose state is missing.
 */
static bool may_be_new(const struct tsr_replaying *r, const struct tsr_replay_param *p,
		       bool counted)
{
	return !tsr_replay_has_any_state(p) && p->counter == SIZE_MAX && !p->scalar &&
	       !r->stray_state && (counted || r->options->has_count || !is_adam(r));
}

/* A checkpoint has all states of a parameter that the optimizer needs, or none. */
static enum tsr_status check_complete(const struct tsr_replaying *r)
{
	const struct tsr_replay_param *other = NULL;
	bool counted = false;

	for (size_t i = 0; i < r->nparams && !r->options->zero_state; i++) {
		counted = counted || r->params[i].counter != SIZE_MAX || r->params[i].scalar;
		for (unsigned part = TSR_PART_MOMENTUM; part < TSR_PARTS; part++) {
			if (keeps(&r->params[i], part) && r->params[i].tensor[part] != SIZE_MAX)
				other = &r->params[i];
		}
	}
	for (size_t i = 0; i < r->nparams && other; i++) {
		if (may_be_new(r, &r->params[i], counted))
			continue;
		for (unsigned part = TSR_PART_MOMENTUM; part < TSR_PARTS; part++) {
			if (keeps(&r->params[i], part) && r->params[i].tensor[part] == SIZE_MAX)
				return tsr_fail_hint(
					r->err, TSR_E_FORMAT, TSR_HINT_ZERO_STATE,
					"%s: tensor %.200s: found no %s of this weight, expected "
					"one since %.200s has its state",
					r->c->path, r->params[i].name,
					tsr_kind_name(tsr_part_kind((enum tsr_part)part)),
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

static enum tsr_status plan_piece(const struct tsr_replaying *r, struct tsr_replay_param *p)
{
	struct tsr_step step = { .optimizer = r->result->optimizer };
	uint64_t align;

	memcpy(step.coding, p->coding, sizeof(step.coding));
	align = tsr_step_align(&step);
	p->piece = align < TSR_REPLAY_PIECE ? TSR_REPLAY_PIECE / align * align : align;
	if (align > TSR_REPLAY_ALIGN_MAX && p->numel > TSR_REPLAY_ALIGN_MAX)
		return tsr_fail(r->err, TSR_E_LIMIT,
				"%s: tensor %.200s: groups of its codecs meet every %llu elements, "
				"over the limit of %llu",
				r->c->path, p->name, (unsigned long long)align,
				(unsigned long long)TSR_REPLAY_ALIGN_MAX);
	return TSR_OK;
}

static enum tsr_status plan_param(struct tsr_replaying *r, struct tsr_replay_param *p)
{
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!keeps(p, part))
			continue;
		if (p->tensor[part] != SIZE_MAX)
			TSR_TRY(check_readable(r, p->tensor[part]));
		p->coding[part] = choose_coding(r, p, (enum tsr_part)part);
		if (!r->result->coding[part].codec)
			r->result->coding[part] = p->coding[part];
		for (unsigned i = 0; i < p->coding[part].codec->nplanes; i++)
			r->result->state_nbytes += tsr_plane_nbytes(&p->coding[part], i, p->numel);
		if (r->options->compare)
			r->result->state_nbytes += p->numel * sizeof(float);
	}
	p->fresh = r->options->zero_state || p->tensor[TSR_PART_MOMENTUM] == SIZE_MAX;
	return plan_piece(r, p);
}

enum tsr_status tsr_replay_plan_state(struct tsr_replaying *r)
{
	TSR_TRY(check_complete(r));
	/* Those with a state first, so that new ones can be like them. */
	for (size_t i = 0; i < r->nparams; i++) {
		for (unsigned part = 0; part < TSR_PARTS; part++) {
			struct tsr_coding *coding = &r->result->coding[part];

			if (keeps(&r->params[i], part) && !coding->codec &&
			    own_coding(r, r->params[i].tensor[part], (enum tsr_part)part, coding))
				*coding = choose_coding(r, &r->params[i], (enum tsr_part)part);
		}
	}
	for (size_t i = 0; i < r->nparams; i++)
		TSR_TRY(plan_param(r, &r->params[i]));
	return TSR_OK;
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* Elements from which on it is worth the while to free on several threads. */
#define DROP_NUMEL (UINT64_C(1) << 20)

static enum tsr_status drop_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_replay_param *p = (const struct tsr_replay_param *)ctx + job / TSR_PARTS;
	const unsigned part = (unsigned)(job % TSR_PARTS);

	(void)scratch, (void)err;
	for (unsigned i = 0; i < TSR_PLANES_MAX && p->numel >= DROP_NUMEL; i++) {
		if (p->plane[part][i])
			tsr_pages_drop(p->plane[part][i],
				       (size_t)tsr_plane_nbytes(&p->coding[part], i, p->numel));
	}
	if (p->fp32[part] && p->numel >= DROP_NUMEL)
		tsr_pages_drop(p->fp32[part], (size_t)p->numel * sizeof(float));
	return TSR_OK;
}

void tsr_replay_free_state(struct tsr_replay_param *params, size_t n, unsigned threads)
{
	const struct tsr_run run = { .threads = threads };
	const struct tsr_pipeline pipeline = { .njobs = n * TSR_PARTS,
					       .work = drop_work,
					       .ctx = params };
	bool large = false;

	for (size_t i = 0; i < n && !large; i++)
		large = params[i].numel >= DROP_NUMEL;
	/* Whether it can or not, all is freed. */
	if (large)
		(void)tsr_pipeline_run(&pipeline, &run, NULL);
	for (size_t i = 0; i < n; i++) {
		for (unsigned part = 0; part < TSR_PARTS; part++) {
			for (unsigned plane = 0; plane < TSR_PLANES_MAX; plane++)
				free(params[i].plane[part][plane]);
			free(params[i].fp32[part]);
		}
	}
	free(params);
}

/* What will be filled as a whole; a tensor without elements has a byte all the same. */
static void *allocate(uint64_t nbytes)
{
	return nbytes < SIZE_MAX ? malloc((size_t)nbytes + 1) : NULL;
}

static enum tsr_status allocate_part(struct tsr_replaying *r, struct tsr_replay_param *p,
				     unsigned part)
{
	const struct tsr_coding *coding = &p->coding[part];
	bool ok = true;

	for (unsigned i = 0; i < coding->codec->nplanes && ok; i++) {
		p->plane[part][i] = allocate(tsr_plane_nbytes(coding, i, p->numel));
		ok = p->plane[part][i] != NULL;
	}
	if (ok && r->options->compare) {
		p->fp32[part] = allocate(p->numel * sizeof(float));
		ok = p->fp32[part] != NULL;
	}
	if (ok)
		return TSR_OK;
	return tsr_fail(r->err, TSR_E_NOMEM,
			"%s: tensor %.200s: out of memory: the state takes %llu bytes", r->c->path,
			p->name, (unsigned long long)r->result->state_nbytes);
}

/* --- Loading ---------------------------------------------------------------------------------- */

/* A part of a parameter, and its first job. */
struct load {
	struct tsr_replay_param *p;
	unsigned part;
	uint64_t first_job;
};

struct loading {
	struct tsr_replaying *r;
	struct load *loads;
	size_t n;
	uint64_t step; /* number of the step before the first */
	size_t scratch_elements;
	/* Of the part being committed: */
	struct tsr_measure measure;
	struct tsr_encode_report report;
};

struct load_scratch {
	struct tsr_read_scratch read;
	const struct load *load;
	uint64_t first;
	size_t n;
	struct tsr_measure measure;
	struct tsr_encode_report report;
	_Alignas(64) float x[]; /* as it was, then as it is decoded */
};

static uint64_t njobs_of(const struct tsr_replay_param *p)
{
	return p->numel ? (p->numel - 1) / p->piece + 1 : 1;
}

static const struct load *find_load(const struct loading *l, uint64_t job)
{
	size_t low = 0, high = l->n - 1;

	while (low < high) {
		const size_t mid = low + (high - low + 1) / 2;

		if (l->loads[mid].first_job <= job)
			low = mid;
		else
			high = mid - 1;
	}
	return &l->loads[low];
}

static void planes_at(const struct tsr_replay_param *p, unsigned part, uint64_t first,
		      void *plane[])
{
	for (unsigned i = 0; i < p->coding[part].codec->nplanes; i++)
		plane[i] = p->plane[part][i] + tsr_plane_nbytes(&p->coding[part], i, first);
}

/* Whether a tensor's planes are what a state in this coding has. */
static bool has_coding(const struct tsr_tensor *t, const struct tsr_coding *coding)
{
	if (t->coding.codec)
		return tsr_coding_is_same(&t->coding, coding);
	return t->dtype == TSR_F32 && is_f32(coding);
}

/* Planes of the wanted coding are taken as they are: encoding again could change them. */
static enum tsr_status take(const struct loading *l, struct load_scratch *s, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = l->r->c;
	const struct tsr_replay_param *p = s->load->p;
	const unsigned part = s->load->part;
	const struct tsr_tensor *t = &c->tensors[p->tensor[part]];
	const struct tsr_coding *coding = &p->coding[part];
	void *plane[TSR_PLANES_MAX];

	planes_at(p, part, s->first, plane);
	for (unsigned i = 0; i < t->nplanes; i++)
		TSR_TRY(tsr_array_read(c, &c->arrays[t->plane[i]],
				       tsr_plane_nbytes(coding, i, s->first),
				       (size_t)tsr_plane_nbytes(coding, i, s->n), plane[i], err));
	if (p->fp32[part])
		coding->codec->decode(coding, (const void *const *)plane, s->n,
				      p->fp32[part] + s->first);
	return TSR_OK;
}

static enum tsr_status encode(const struct loading *l, struct load_scratch *s, struct tsr_err *err)
{
	const struct tsr_replay_param *p = s->load->p;
	const unsigned part = s->load->part;
	const size_t tensor = l->r->options->zero_state && part != TSR_PART_WEIGHT
				      ? SIZE_MAX
				      : p->tensor[part];
	struct tsr_coding coding = tsr_replay_coding_at(&p->coding[part], l->step);
	void *plane[TSR_PLANES_MAX];

	memset(s->x, 0, s->n * sizeof(*s->x));
	for (size_t at = 0; at < s->n && tensor != SIZE_MAX; at += TSR_READ_MAX) {
		const size_t left = s->n - at;

		TSR_TRY(tsr_tensor_read_f32(l->r->c, &l->r->c->tensors[tensor], s->first + at,
					    left < TSR_READ_MAX ? left : TSR_READ_MAX, &s->read,
					    s->x + at, err));
	}
	if (p->fp32[part])
		memcpy(p->fp32[part] + s->first, s->x, s->n * sizeof(*s->x));
	planes_at(p, part, s->first, plane);
	coding.first = s->first;
	coding.codec->encode(&coding, s->x, s->n, plane, &s->report);
	if (is_f32(&coding))
		return TSR_OK;
	coding.codec->decode(&coding, (const void *const *)plane, s->n, s->x + l->scratch_elements);
	tsr_measure_add(&s->measure, s->x, s->x + l->scratch_elements, s->n);
	return TSR_OK;
}

static enum tsr_status load_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct loading *l = ctx;
	struct load_scratch *s = scratch;
	const struct tsr_replay_param *p;
	size_t tensor;

	s->load = find_load(l, job);
	p = s->load->p;
	tensor = p->tensor[s->load->part];
	s->first = (job - s->load->first_job) * p->piece;
	s->n = (size_t)(p->numel - s->first < p->piece ? p->numel - s->first : p->piece);
	s->measure = (struct tsr_measure){ 0 };
	s->report = (struct tsr_encode_report){ 0 };
	if (tensor != SIZE_MAX &&
	    !(l->r->options->zero_state && s->load->part != TSR_PART_WEIGHT) &&
	    has_coding(&l->r->c->tensors[tensor], &p->coding[s->load->part]))
		return take(l, s, err);
	return encode(l, s, err);
}

/* As when packing, but there is no way to keep such a tensor raw. */
static enum tsr_status check_loaded(const struct loading *l, const struct load *load,
				    struct tsr_err *err)
{
	const struct tsr_measure *m = &l->measure;
	const struct tsr_encode_report *e = &l->report;
	const struct tsr_coding *coding = &load->p->coding[load->part];
	const struct tsr_checkpoint *c = l->r->c;
	const size_t tensor = load->p->tensor[load->part];
	const bool variance = load->part == TSR_PART_VARIANCE && coding->codec->grouped;
	char found[160] = "";

	tsr_replay_put_count(found, sizeof(found), m->nonfinite, "non-finite values");
	tsr_replay_put_count(found, sizeof(found), variance ? m->negative : 0,
			     "negative variances");
	tsr_replay_put_count(found, sizeof(found), m->overflow + e->narrow_overflow,
			     "values over its range");
	tsr_replay_put_count(found, sizeof(found), e->scale_overflow, "scales over its range");
	if (!*found)
		return TSR_OK;
	return tsr_fail(err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found %s, which %s cannot hold, expected none", c->path,
			tensor == SIZE_MAX ? load->p->name : c->tensors[tensor].name, found,
			coding->codec->name);
}

static enum tsr_status load_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct loading *l = ctx;
	struct load_scratch *s = scratch;
	const struct tsr_run *run = l->r->run;

	if (job == s->load->first_job) {
		l->measure = (struct tsr_measure){ 0 };
		l->report = (struct tsr_encode_report){ 0 };
	}
	tsr_measure_merge(&l->measure, &s->measure);
	l->report.scale_overflow += s->report.scale_overflow;
	l->report.narrow_overflow += s->report.narrow_overflow;
	if (run && run->progress && !run->progress(run->ctx, 0, 1))
		return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled", l->r->c->path);
	if (job + 1 != s->load->first_job + njobs_of(s->load->p))
		return TSR_OK;
	s->load->p->lossy |= l->measure.n > 0 && !s->load->p->coding[s->load->part].codec->lossless;
	return check_loaded(l, s->load, err);
}

static enum tsr_status plan_loads(struct loading *l, uint64_t *njobs_ret)
{
	struct tsr_replaying *r = l->r;
	uint64_t njobs = 0;

	l->loads = calloc(r->nparams * TSR_PARTS + 1, sizeof(*l->loads));
	if (!l->loads)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < r->nparams; i++) {
		struct tsr_replay_param *p = &r->params[i];
		const uint64_t longest = p->piece < p->numel ? p->piece : p->numel;

		l->scratch_elements = longest > l->scratch_elements ? (size_t)longest
								    : l->scratch_elements;
		for (unsigned part = 0; part < TSR_PARTS; part++) {
			if (!p->coding[part].codec)
				continue;
			TSR_TRY(allocate_part(r, p, part));
			l->loads[l->n++] = (struct load){ p, part, njobs };
			njobs += njobs_of(p);
		}
	}
	*njobs_ret = njobs;
	return TSR_OK;
}

/* Whether a file says what the bytes of an array should be. */
static bool is_checkable(const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->narrays && !c->packed; i++) {
		if (c->arrays[i].has_crc || c->arrays[i].layout)
			return true;
	}
	return c->packed;
}

/* Check hashes and checksums of what will be resident; the rest is when it is written. */
static enum tsr_status verify(struct tsr_replaying *r)
{
	struct tsr_checkpoint resident = *r->c;
	const struct tsr_walk walk = { .c = &resident };
	enum tsr_status status;

	if (!is_checkable(r->c))
		return TSR_OK;
	resident.ntensors = 0;
	resident.tensors = calloc(r->nparams * TSR_PARTS + 1, sizeof(*resident.tensors));
	if (!resident.tensors)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < r->nparams; i++) {
		for (unsigned part = 0; part < TSR_PARTS; part++) {
			const size_t tensor = r->params[i].tensor[part];

			if (tensor != SIZE_MAX && r->params[i].coding[part].codec)
				resident.tensors[resident.ntensors++] = r->c->tensors[tensor];
		}
	}
	status = resident.ntensors ? tsr_walk_run(&walk, r->run, r->err) : TSR_OK;
	free(resident.tensors);
	return status;
}

enum tsr_status tsr_replay_load_state(struct tsr_replaying *r)
{
	struct loading l = { .r = r, .step = r->result->steps[0].step - 1 };
	struct tsr_pipeline pipeline = { .work = load_work, .commit = load_commit, .ctx = &l };
	enum tsr_status status = plan_loads(&l, &pipeline.njobs);

	pipeline.scratch_nbytes = sizeof(struct load_scratch) +
				  2 * l.scratch_elements * sizeof(float);
	if (status == TSR_OK)
		status = verify(r);
	if (status == TSR_OK && l.n)
		status = tsr_pipeline_run(&pipeline, r->run, r->err);
	free(l.loads);
	return status == TSR_OK ? tsr_checkpoint_check_unchanged(r->c, r->err) : status;
}
