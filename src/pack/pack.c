/* SPDX-License-Identifier: Apache-2.0 */
#include "tersor/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/pipeline.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "container/packed.h"
#include "ckpt/read.h"
#include "container/tree.h"
#include "pack/coder.h"
#include "pack/given.h"
#include "pack/pieces.h"
#include "pack/plan.h"
#include "ckpt/checksum.h"

struct packing {
	const struct tsr_pack_options *options;
	const struct tsr_pack_given *given;
	const struct tsr_run *run;
	struct tsr_packing *result;
	struct tsr_checkpoint *c; /* result->source */
	const char *out_path;
	struct tsr_tensor *stored; /* the source's tensors as they stand in its files */
	struct tsr_pack_plan plan;
	struct tsr_pieces pieces;
	struct tsr_hasher *hasher[TSR_PLANES_MAX]; /* of the tensor being committed */
	struct tsr_record_crc record; /* of the source tensor being committed */
	uint64_t done_nbytes, total_nbytes;
	struct tsr_err *err;
};

struct tsr_pack_options tsr_pack_defaults(void)
{
	return (struct tsr_pack_options){
		.weight = tsr_coding_default(tsr_codec_find("bf16+ulp8")),
		.momentum = tsr_coding_default(tsr_codec_find("softsign8")),
		.variance = tsr_coding_default(tsr_codec_find("sqrt8")),
	};
}

void tsr_raw_reason_text(const struct tsr_packed_tensor *t, char *text, size_t room)
{
	const struct tsr_measure *m = &t->measure;

	text[0] = '\0';
	switch (t->raw) {
	case TSR_RAW_NO:
		break;
	case TSR_RAW_NONFINITE:
		snprintf(text, room, "%llu non-finite value%s", (unsigned long long)m->nonfinite,
			 m->nonfinite == 1 ? "" : "s");
		break;
	case TSR_RAW_NEGATIVE:
		snprintf(text, room, "%llu negative variance%s", (unsigned long long)m->negative,
			 m->negative == 1 ? "" : "s");
		break;
	case TSR_RAW_OVERFLOW:
		snprintf(text, room, "%llu values and %llu scales overflow the narrow format",
			 (unsigned long long)(m->overflow + t->report.narrow_overflow),
			 (unsigned long long)t->report.scale_overflow);
		break;
	}
}

/* --- The source ------------------------------------------------------------------------------ */

/* Whether the caller has settled the coding of a tensor. */
static bool is_kept(const struct packing *p, size_t tensor)
{
	return p->given->kept && tensor < p->given->n && p->given->kept[tensor];
}

static enum tsr_status check_source(struct packing *p)
{
	if (p->c->packed && !p->given->kept)
		return tsr_fail(p->err, TSR_E_UNSUPPORTED, "%s: is packed already", p->c->path);
	if (p->c->generation >= TSR_GENERATION_MAX)
		return tsr_fail(p->err, TSR_E_LIMIT,
				"%s: found %u lossy generations, the limit of %u", p->c->path,
				p->c->generation, TSR_GENERATION_MAX);
	for (size_t i = 0; i < p->c->ntensors; i++) {
		if (tsr_packed_name_reserved(p->c->tensors[i].name))
			return tsr_fail(p->err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: the name ends in the suffix of a "
					"plane, which packed "
					"files reserve",
					p->c->path, p->c->tensors[i].name);
	}
	return TSR_OK;
}

static void choose_coding(const struct tsr_pack_options *o, struct tsr_tensor *t)
{
	t->coding = (struct tsr_coding){ .group = 1 };
	if (t->dtype == TSR_F32 && t->kind == TSR_KIND_WEIGHT)
		t->coding = o->weight;
	else if (t->dtype == TSR_F32 && t->kind == TSR_KIND_MOMENTUM)
		t->coding = o->momentum;
	else if (t->dtype == TSR_F32 && t->kind == TSR_KIND_VARIANCE)
		t->coding = o->variance;
	if (t->coding.codec && !t->coding.codec->grouped) {
		t->coding.group = 1;
		t->coding.scale = TSR_SCALE_E8M8;
	}
	if (t->coding.codec && t->coding.codec->stochastic)
		t->coding.stream = tsr_coding_stream(t->name);
	else
		t->coding.seed = 0;
	t->nplanes = t->coding.codec ? t->coding.codec->nplanes : 1;
}

/* --- The pieces ------------------------------------------------------------------------------ */

/* What there is of a piece under way. */
struct scratch {
	struct tsr_coder coder; /* first: the pipeline opens it */
	struct tsr_piece piece;
	uint32_t crc; /* of what was read, where the source has a checksum of it */
	struct tsr_measure measure;
	struct tsr_encode_report report;
};

/* FP32 elements of a tensor that stands in the compressed form of another tool. */
static enum tsr_status decode_source(const struct packing *p, const struct tsr_tensor *stored,
				     uint64_t first, size_t n, float *x, struct tsr_err *err)
{
	struct tsr_read_scratch *scratch = malloc(sizeof(*scratch));
	enum tsr_status status = scratch ? TSR_OK : tsr_fail_nomem(err, p->c->path);

	for (size_t at = 0; at < n && status == TSR_OK; at += TSR_READ_MAX) {
		const size_t left = n - at;

		status = tsr_tensor_read_f32(p->c, stored, first + at,
					     left < TSR_READ_MAX ? left : TSR_READ_MAX, scratch,
					     x + at, err);
	}
	free(scratch);
	return status;
}

/* @nbytes of a source tensor from byte @offset on. */
static enum tsr_status read_source(const struct packing *p, struct scratch *s, uint64_t offset,
				   size_t nbytes, void *to, struct tsr_err *err)
{
	const struct tsr_tensor *stored = &p->stored[s->piece.tensor];

	if (stored->coding.codec)
		return decode_source(p, stored, offset / sizeof(float), nbytes / sizeof(float), to,
				     err);
	TSR_TRY(tsr_array_read(p->c, &p->c->arrays[stored->plane[0]], offset, nbytes, to, err));
	if (tsr_record_is_streamed(p->c, stored))
		s->crc = tsr_crc32(0, to, nbytes);
	return TSR_OK;
}

/* What a packed file has as it is must be what was written into it. */
static enum tsr_status check_hash(const struct packing *p, const struct scratch *s, unsigned plane,
				  struct tsr_err *err)
{
	const struct tsr_tensor *stored = &p->stored[s->piece.tensor];
	const uint64_t found = p->c->tensors[s->piece.tensor].hash[plane];

	if (!p->c->packed || !is_kept(p, s->piece.tensor) || found == stored->hash[plane] ||
	    stored->coding.codec != p->c->tensors[s->piece.tensor].coding.codec)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: tensor %.200s: data of %.200s is damaged: found hash %016llx, "
			"expected %016llx",
			p->c->path, stored->name, p->c->arrays[stored->plane[plane]].name,
			(unsigned long long)found, (unsigned long long)stored->hash[plane]);
}

/* The source's checksum, if it has one, once all of the tensor has passed. */
static enum tsr_status check_record(struct packing *p, const struct scratch *s, struct tsr_err *err)
{
	const struct tsr_tensor *stored = &p->stored[s->piece.tensor];
	const struct tsr_tensor *t = &p->c->tensors[s->piece.tensor];

	if (!tsr_record_is_streamed(p->c, stored))
		return TSR_OK;
	if (s->piece.first == 0)
		p->record = (struct tsr_record_crc){ 0 };
	tsr_record_add(&p->record, s->crc, s->piece.n * (t->coding.codec ? sizeof(float) : 1));
	return s->piece.last
		       ? tsr_record_check(p->c, &p->c->arrays[stored->plane[0]], &p->record, err)
		       : TSR_OK;
}

/* Planes that are as they are wanted pass as they are: encoding again could change them. */
static enum tsr_status take_planes(const struct packing *p, struct scratch *s, struct tsr_err *err)
{
	const struct tsr_tensor *t = &p->c->tensors[s->piece.tensor];
	struct tsr_coder_memory *m = s->coder.m;
	void *plane[TSR_PLANES_MAX];

	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		plane[i] = m->plane[i];
	TSR_TRY(tsr_piece_read(p->c, &s->piece, plane, err));
	TSR_TRY(tsr_coder_decode(&s->coder, &t->coding, s->piece.n, err));
	tsr_measure_add(&s->measure, m->x, m->x, s->piece.n);
	return TSR_OK;
}

static enum tsr_status piece_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct packing *p = ctx;
	struct scratch *s = scratch;
	struct tsr_coder_memory *m = s->coder.m;
	const struct tsr_tensor *t;
	struct tsr_coding coding;

	s->piece = tsr_pieces_get(&p->pieces, job);
	t = &p->c->tensors[s->piece.tensor];
	s->measure = (struct tsr_measure){ 0 };
	s->report = (struct tsr_encode_report){ 0 };
	if (!t->coding.codec)
		return read_source(p, s, s->piece.first, s->piece.n, m->plane[0], err);
	if (tsr_coding_is_same(&p->stored[s->piece.tensor].coding, &t->coding))
		return take_planes(p, s, err);
	TSR_TRY(read_source(p, s, s->piece.first * sizeof(float), s->piece.n * sizeof(float), m->x,
			    err));
	coding = t->coding;
	coding.first = s->piece.first;
	return tsr_coder_encode(&s->coder, &coding, s->piece.n, &s->measure, &s->report, err);
}

static enum tsr_status piece_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct packing *p = ctx;
	struct scratch *s = scratch;
	struct tsr_tensor *t = &p->c->tensors[s->piece.tensor];
	struct tsr_packed_tensor *r = &p->result->tensors[s->piece.tensor];

	(void)job;
	TSR_TRY(check_record(p, s, err));
	if (t->coding.codec) {
		if (s->piece.first == 0) {
			r->measure = (struct tsr_measure){ 0 };
			r->report = (struct tsr_encode_report){ 0 };
		}
		tsr_measure_merge(&r->measure, &s->measure);
		r->report.scale_underflow += s->report.scale_underflow;
		r->report.scale_overflow += s->report.scale_overflow;
		r->report.narrow_overflow += s->report.narrow_overflow;
	}
	for (unsigned i = 0; i < t->nplanes; i++) {
		if (s->piece.first == 0)
			tsr_hasher_reset(p->hasher[i]);
		tsr_hasher_add(p->hasher[i], s->coder.m->plane[i],
			       tsr_piece_plane_nbytes(t, i, &s->piece));
		if (s->piece.last) {
			t->hash[i] = tsr_hasher_value(p->hasher[i]);
			TSR_TRY(check_hash(p, s, i, err));
		}
	}
	p->done_nbytes += s->piece.n * (t->coding.codec ? sizeof(float) : 1);
	if (p->run && p->run->progress &&
	    !p->run->progress(p->run->ctx, p->done_nbytes, p->total_nbytes))
		return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled", p->out_path);
	return TSR_OK;
}

static enum tsr_status piece_finish(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct packing *p = ctx;
	struct scratch *s = scratch;
	const struct tsr_tensor *t = &p->c->tensors[s->piece.tensor];

	(void)job;
	for (unsigned i = 0; i < t->nplanes; i++) {
		const size_t shard = p->plan.shard_of[s->piece.tensor];
		const uint64_t at = p->plan.offset[s->piece.tensor][i] +
				    tsr_piece_plane_offset(t, i, &s->piece);

		TSR_TRY(tsr_outfile_write(p->plan.outputs.files[shard], s->coder.m->plane[i],
					  tsr_piece_plane_nbytes(t, i, &s->piece), at, err));
	}
	return TSR_OK;
}

static enum tsr_status encode_all(struct packing *p)
{
	const struct tsr_pipeline pipeline = {
		.njobs = tsr_pieces_count(&p->pieces),
		.scratch_nbytes = sizeof(struct scratch),
		.open = tsr_coder_open_encoder,
		.close = tsr_coder_close,
		.work = piece_work,
		.commit = piece_commit,
		.finish = piece_finish,
		.ctx = p,
	};

	p->done_nbytes = 0;
	TSR_TRY(tsr_pack_plan_create(&p->plan, p->err));
	TSR_TRY(tsr_pipeline_run(&pipeline, p->run, p->err));
	return tsr_checkpoint_check_unchanged(p->c, p->err);
}

/* --- What was measured ----------------------------------------------------------------------- */

static enum tsr_raw_reason raw_reason(const struct tsr_tensor *t, const struct tsr_packed_tensor *r)
{
	if (!t->coding.codec || t->coding.codec->planes[0].dtype == TSR_F32)
		return TSR_RAW_NO;
	if (r->measure.nonfinite)
		return TSR_RAW_NONFINITE;
	if (t->kind == TSR_KIND_VARIANCE && r->measure.negative && t->coding.codec->grouped)
		return TSR_RAW_NEGATIVE;
	if (r->measure.overflow || r->report.scale_overflow || r->report.narrow_overflow)
		return TSR_RAW_OVERFLOW;
	return TSR_RAW_NO;
}

/* Give up packing the tensors that their codec cannot take; *again_ret tells if there were any. */
static enum tsr_status keep_raw(struct packing *p, bool *again_ret)
{
	char reason[120];

	*again_ret = false;
	for (size_t i = 0; i < p->c->ntensors; i++) {
		struct tsr_tensor *t = &p->c->tensors[i];
		struct tsr_packed_tensor *r = &p->result->tensors[i];
		const enum tsr_raw_reason raw = raw_reason(t, r);

		if (raw == TSR_RAW_NO)
			continue;
		r->raw = raw;
		if (p->options->strict) {
			tsr_raw_reason_text(r, reason, sizeof(reason));
			return tsr_fail_hint(p->err, TSR_E_UNSUPPORTED, TSR_HINT_STRICT,
					     "%s: tensor %.200s: found %s, expected none",
					     p->c->path, t->name, reason);
		}
		t->coding = (struct tsr_coding){ .group = 1 };
		t->nplanes = 1;
		*again_ret = true;
	}
	return TSR_OK;
}

static enum tsr_status check_bounds(struct packing *p)
{
	for (size_t i = 0; i < p->c->ntensors; i++) {
		const struct tsr_tensor *t = &p->c->tensors[i];

		for (unsigned b = 0; t->coding.codec && b < p->options->nbounds; b++) {
			const struct tsr_bound *bound = &p->options->bounds[b];
			const double error = tsr_measure_error(&p->result->tensors[i].measure,
							       bound->metric);

			if (!(error <= bound->limit))
				return tsr_fail(p->err, TSR_E_BOUND,
						"%s: tensor %.200s: found %s error %.4g, expected "
						"at most %.4g; "
						"nothing written",
						p->c->path, t->name, tsr_metric_name(bound->metric),
						error, bound->limit);
		}
	}
	return TSR_OK;
}

static enum tsr_status record_errors(struct packing *p)
{
	bool lossy = false;

	for (size_t i = 0; i < p->c->ntensors; i++) {
		struct tsr_tensor *t = &p->c->tensors[i];
		const struct tsr_packed_tensor *r = &p->result->tensors[i];
		struct tsr_error_summary *e;

		if (!t->coding.codec)
			continue;
		e = tsr_arena_alloc(p->c->arena, sizeof(*e));
		if (!e)
			return tsr_build_nomem(p->c, p->err);
		*e = tsr_error_summarize(&r->measure, r->report.scale_underflow);
		t->error = e;
		lossy = lossy || r->measure.exact != r->measure.n;
	}
	p->result->generation = p->c->generation + lossy;
	if (p->result->generation < p->given->generation)
		p->result->generation = p->given->generation;
	return TSR_OK;
}

/* --- All of it ------------------------------------------------------------------------------- */

static enum tsr_status plan(struct packing *p)
{
	TSR_TRY(tsr_pack_plan_make(&p->plan, p->err));
	for (size_t i = 0; i < p->c->ntensors; i++)
		p->result->tensors[i].nbytes = p->plan.nbytes[i];
	p->result->header_nbytes = tsr_pack_plan_header_nbytes(&p->plan);
	p->result->data_nbytes = tsr_pack_plan_data_nbytes(&p->plan);
	tsr_pieces_free(&p->pieces);
	return tsr_pieces_init(&p->pieces, p->c, p->err);
}

/* Remember how tensors are stored before codings are chosen, and what is to be told of each. */
static enum tsr_status prepare(struct packing *p)
{
	struct tsr_checkpoint *c = p->c;

	TSR_TRY(check_source(p));
	if (!p->given->named)
		TSR_TRY(tsr_names_assign(c, p->options->rules, p->options->nrules, p->err));
	TSR_TRY(tsr_tree_attach(c, p->err));
	p->stored = calloc(c->ntensors + 1, sizeof(*p->stored));
	p->result->tensors = calloc(c->ntensors + 1, sizeof(*p->result->tensors));
	if (!p->stored || !p->result->tensors)
		return tsr_fail_nomem(p->err, p->out_path);
	for (size_t i = 0; i < c->ntensors; i++) {
		p->stored[i] = c->tensors[i];
		if (!is_kept(p, i))
			choose_coding(p->options, &c->tensors[i]);
		p->total_nbytes += tsr_tensor_nbytes(&c->tensors[i]);
	}
	p->result->generation = c->generation > p->given->generation ? c->generation
								     : p->given->generation;
	return TSR_OK;
}

/* Records whose bytes do not pass as they are have their checksums checked beforehand. */
static enum tsr_status check_records(struct packing *p)
{
	struct tsr_tensor *chosen = p->c->tensors;
	enum tsr_status status;

	p->c->tensors = p->stored;
	status = tsr_records_check(p->c, false, p->run, p->err);
	p->c->tensors = chosen;
	return status;
}

static enum tsr_status run_packing(struct packing *p)
{
	bool again = true;

	TSR_TRY(prepare(p));
	p->plan = (struct tsr_pack_plan){ .c = p->c,
					  .path = p->out_path,
					  .force = p->options->force,
					  .max_shard_nbytes = p->options->max_shard_nbytes };
	TSR_TRY(plan(p));
	TSR_TRY(tsr_outputs_check(&p->plan.outputs, p->c, p->err));
	if (p->options->dry_run)
		return TSR_OK;
	TSR_TRY(check_records(p));
	/* Which tensors stay raw, and so the layout, is known after encoding: the rare second pass. */
	while (again) {
		TSR_TRY(encode_all(p));
		TSR_TRY(keep_raw(p, &again));
		if (again)
			TSR_TRY(plan(p));
	}
	TSR_TRY(record_errors(p));
	TSR_TRY(check_bounds(p));
	TSR_TRY(tsr_pack_plan_write_headers(&p->plan, p->result->generation, p->err));
	return tsr_outputs_publish(&p->plan.outputs, p->plan.nshards > 1 ? &p->plan.index : NULL,
				   p->err);
}

enum tsr_status tsr_pack_checkpoint(struct tsr_checkpoint *c, const struct tsr_pack_given *given,
				    const char *out, const struct tsr_pack_options *options,
				    const struct tsr_run *run, struct tsr_packing **ret,
				    struct tsr_err *err)
{
	struct packing p = {
		.options = options, .given = given, .run = run, .c = c, .out_path = out, .err = err
	};
	enum tsr_status status = TSR_OK;

	p.result = calloc(1, sizeof(*p.result));
	if (!p.result)
		return tsr_fail_nomem(err, out);
	p.result->source = c;
	for (unsigned i = 0; i < TSR_PLANES_MAX && status == TSR_OK; i++) {
		p.hasher[i] = tsr_hasher_new();
		if (!p.hasher[i])
			status = tsr_fail_nomem(err, out);
	}
	if (status == TSR_OK)
		status = run_packing(&p);
	tsr_pack_plan_drop(&p.plan);
	tsr_pieces_free(&p.pieces);
	free(p.stored);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		tsr_hasher_free(p.hasher[i]);
	if (status != TSR_OK && status != TSR_E_BOUND && status != TSR_E_DURABILITY) {
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
	struct tsr_checkpoint *c = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_checkpoint_open(paths, npaths, options->open, &c, err));
	status = tsr_pack_checkpoint(c, &nothing, out, options, run, ret, err);
	if (status != TSR_OK && status != TSR_E_BOUND && status != TSR_E_DURABILITY)
		tsr_checkpoint_close(c);
	return status;
}

void tsr_packing_free(struct tsr_packing *p)
{
	if (!p)
		return;
	tsr_checkpoint_close(p->source);
	free(p->tensors);
	free(p);
}
