/* SPDX-License-Identifier: Apache-2.0 */
#include "tersor/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/pipeline.h"
#include "ckpt/packed.h"
#include "pack/pieces.h"

/* Elements that are encoded, decoded and measured at a time, so that they stay in the L1 cache. */
#define STRIP_ELEMENTS 2048u

/* What an entry of the output cannot borrow from its source tensor. */
struct own_entry {
	char *name; /* of a plane that has a suffix */
	uint64_t count; /* the one dimension of a plane that is not shaped like its tensor */
};

struct packing {
	const struct tsr_pack_options *options;
	const struct tsr_run *run;
	struct tsr_packing *result;
	struct tsr_checkpoint *c; /* result->source */
	const char *out_path;
	struct tsr_st_entry *entries; /* the arrays of the output, in their order */
	struct own_entry *own; /* per entry, in the order of tensors */
	size_t nentries;
	uint64_t (*offset)[TSR_PLANES_MAX]; /* of each tensor's planes in the output's data */
	struct tsr_meta *meta; /* of the output; borrows all but two values */
	size_t nmeta;
	uint64_t json_nbytes; /* room for the header's text */
	struct tsr_pieces pieces;
	struct tsr_outfile *out;
	struct tsr_hasher *hasher[TSR_PLANES_MAX]; /* of the tensor being committed */
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

/* --- The plan: codings, layout, header ------------------------------------------------------- */

static enum tsr_status check_source(struct packing *p)
{
	if (p->c->packed)
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

static void drop_plan(struct packing *p)
{
	for (size_t i = 0; i < p->nentries; i++)
		free(p->own[i].name);
	free(p->own);
	free(p->entries);
	free(p->offset);
	free(p->meta);
	p->own = NULL;
	p->entries = NULL;
	p->offset = NULL;
	p->meta = NULL;
	p->nentries = 0;
	tsr_pieces_free(&p->pieces);
}

static enum tsr_status join_name(const struct packing *p, const char *name, const char *suffix,
				 char **ret)
{
	const size_t name_len = strlen(name), suffix_len = strlen(suffix);

	if (name_len + suffix_len > TSR_NAME_MAX)
		return tsr_fail(
			p->err, TSR_E_LIMIT,
			"%s: tensor %.40s...: the name of its plane %s would be over the limit "
			"of %u bytes",
			p->c->path, name, suffix, TSR_NAME_MAX);
	*ret = malloc(name_len + suffix_len + 1);
	if (!*ret)
		return tsr_fail_nomem(p->err, p->out_path);
	memcpy(*ret, name, name_len);
	memcpy(*ret + name_len, suffix, suffix_len + 1);
	return TSR_OK;
}

static enum tsr_status add_entry(struct packing *p, size_t tensor, unsigned plane)
{
	const struct tsr_tensor *t = &p->c->tensors[tensor];
	const struct tsr_plane_desc *desc = t->coding.codec ? &t->coding.codec->planes[plane]
							    : NULL;
	struct tsr_st_entry *e = &p->entries[p->nentries];
	struct own_entry *own = &p->own[p->nentries];

	*e = (struct tsr_st_entry){ .name = t->name,
				    .dtype = t->dtype,
				    .rank = t->rank,
				    .shape = t->shape,
				    .nbytes = tsr_tensor_nbytes(t),
				    .tag = tensor * TSR_PLANES_MAX + plane };
	if (desc) {
		e->dtype = tsr_plane_dtype(&t->coding, plane);
		e->nbytes = tsr_plane_nbytes(&t->coding, plane, t->numel);
	}
	if (desc && desc->suffix[0]) {
		TSR_TRY(join_name(p, t->name, desc->suffix, &own->name));
		e->name = own->name;
	}
	if (desc && desc->unit != TSR_PER_ELEMENT) {
		own->count = tsr_plane_count(&t->coding, plane, t->numel);
		e->rank = 1;
		e->shape = &own->count;
	}
	p->nentries++;
	return TSR_OK;
}

static enum tsr_status plan_entries(struct packing *p)
{
	const size_t room = p->c->ntensors * TSR_PLANES_MAX + 1;

	p->entries = calloc(room, sizeof(*p->entries));
	p->own = calloc(room, sizeof(*p->own));
	p->offset = calloc(p->c->ntensors + 1, sizeof(*p->offset));
	if (!p->entries || !p->own || !p->offset)
		return tsr_fail_nomem(p->err, p->out_path);
	for (size_t i = 0; i < p->c->ntensors; i++) {
		for (unsigned plane = 0; plane < p->c->tensors[i].nplanes; plane++)
			TSR_TRY(add_entry(p, i, plane));
	}
	tsr_st_sort(p->entries, p->nentries);
	p->result->data_nbytes = tsr_st_layout(p->entries, p->nentries);
	for (size_t i = 0; i < p->nentries; i++) {
		const struct tsr_st_entry *e = &p->entries[i];

		p->offset[e->tag / TSR_PLANES_MAX][e->tag % TSR_PLANES_MAX] = e->offset;
		if (e->tag % TSR_PLANES_MAX == 0)
			p->result->tensors[e->tag / TSR_PLANES_MAX].nbytes = 0;
	}
	for (size_t i = 0; i < p->nentries; i++)
		p->result->tensors[p->entries[i].tag / TSR_PLANES_MAX].nbytes +=
			p->entries[i].nbytes;
	return TSR_OK;
}

/* The metadata of the output: the source's, with `format` set, and our two entries, sorted. */
static enum tsr_status plan_meta(struct packing *p)
{
	static char pt[] = "pt", key_format[] = "format", key_tersor[] = TSR_PACKED_KEY;
	static char key_check[] = TSR_PACKED_CHECK_KEY, zeros[] = TSR_PACKED_CHECK_ZEROS;
	const struct tsr_meta ours[] = { { key_format, pt },
					 { key_tersor, NULL },
					 { key_check, zeros } };
	size_t next = 0;

	p->meta = calloc(p->c->nmeta + 3, sizeof(*p->meta));
	if (!p->meta)
		return tsr_fail_nomem(p->err, p->out_path);
	p->nmeta = 0;
	for (size_t i = 0; i < p->c->nmeta; i++) {
		const char *key = p->c->meta[i].key;

		while (next < 3 && strcmp(ours[next].key, key) < 0)
			p->meta[p->nmeta++] = ours[next++];
		if (strcmp(key, "format") != 0 && strcmp(key, TSR_GENERATION_KEY) != 0)
			p->meta[p->nmeta++] = p->c->meta[i];
	}
	while (next < 3)
		p->meta[p->nmeta++] = ours[next++];
	return TSR_OK;
}

static enum tsr_status compose_header(struct packing *p, bool widest, struct tsr_text *header)
{
	struct tsr_packed_source source = { .kind = "safetensors",
					    .generation = p->result->generation };
	struct tsr_text json = { 0 };
	enum tsr_status status;

	for (size_t i = 0; i < p->c->nmeta; i++) {
		if (strcmp(p->c->meta[i].key, "format") == 0)
			source.format = p->c->meta[i].value;
	}
	status = tsr_packed_compose(&source, p->c->tensors, p->c->ntensors, widest, p->out_path,
				    &json, p->err);
	if (status != TSR_OK) {
		tsr_text_free(&json);
		return status;
	}
	for (size_t i = 0; i < p->nmeta; i++) {
		if (strcmp(p->meta[i].key, TSR_PACKED_KEY) == 0)
			p->meta[i].value = json.bytes;
	}
	status = tsr_packed_header(p->entries, p->nentries, p->meta, p->nmeta,
				   widest ? 0 : p->json_nbytes, p->out_path, header, p->err);
	tsr_text_free(&json);
	return status;
}

static enum tsr_status plan(struct packing *p)
{
	struct tsr_text header = { 0 };
	enum tsr_status status;

	drop_plan(p);
	TSR_TRY(plan_entries(p));
	TSR_TRY(plan_meta(p));
	TSR_TRY(tsr_pieces_init(&p->pieces, p->c, p->err));
	status = compose_header(p, true, &header);
	p->result->header_nbytes = header.nbytes;
	p->json_nbytes = header.nbytes - 8;
	tsr_text_free(&header);
	return status;
}

/* --- The pieces ------------------------------------------------------------------------------ */

/* One thread's memory for the piece that it works on. */
struct scratch {
	float x[TSR_PIECE_ELEMENTS];
	unsigned char plane[TSR_PLANES_MAX][TSR_PIECE_NBYTES];
	float decoded[TSR_PIECE_ELEMENTS]; /* a strip at a time, which a group can make long */
	struct tsr_piece piece;
	struct tsr_measure measure;
	struct tsr_encode_report report;
};

static void encode_and_measure(const struct tsr_coding *coding, struct scratch *s)
{
	struct tsr_coding strip_coding = *coding;
	/* Multiples of the lanes too, so that an element's lane is that of its place in the piece. */
	const size_t step = coding->group % TSR_MEASURE_LANES
				    ? (size_t)coding->group * TSR_MEASURE_LANES
				    : coding->group;
	const size_t strip = step < STRIP_ELEMENTS ? STRIP_ELEMENTS / step * step : step;

	for (size_t first = 0; first < s->piece.n; first += strip) {
		const size_t n = s->piece.n - first < strip ? s->piece.n - first : strip;
		void *out[TSR_PLANES_MAX];
		const void *in[TSR_PLANES_MAX];

		for (unsigned i = 0; i < coding->codec->nplanes; i++)
			in[i] = out[i] = s->plane[i] + tsr_plane_nbytes(coding, i, first);
		strip_coding.first = s->piece.first + first;
		coding->codec->encode(&strip_coding, s->x + first, n, out, &s->report);
		coding->codec->decode(coding, in, n, s->decoded);
		tsr_measure_add(&s->measure, s->x + first, s->decoded, n);
	}
}

static enum tsr_status piece_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct packing *p = ctx;
	struct scratch *s = scratch;
	const struct tsr_tensor *t;
	const struct tsr_array *source;

	s->piece = tsr_pieces_get(&p->pieces, job);
	t = &p->c->tensors[s->piece.tensor];
	source = &p->c->arrays[t->plane[0]];
	s->measure = (struct tsr_measure){ 0 };
	s->report = (struct tsr_encode_report){ 0 };
	if (!t->coding.codec)
		return tsr_array_read(p->c, source, s->piece.first, s->piece.n, s->plane[0], err);
	TSR_TRY(tsr_array_read(p->c, source, s->piece.first * sizeof(float),
			       s->piece.n * sizeof(float), s->x, err));
	encode_and_measure(&t->coding, s);
	return TSR_OK;
}

static enum tsr_status piece_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct packing *p = ctx;
	struct scratch *s = scratch;
	struct tsr_tensor *t = &p->c->tensors[s->piece.tensor];
	struct tsr_packed_tensor *r = &p->result->tensors[s->piece.tensor];

	(void)job;
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
		tsr_hasher_add(p->hasher[i], s->plane[i], tsr_piece_plane_nbytes(t, i, &s->piece));
		if (s->piece.last)
			t->hash[i] = tsr_hasher_value(p->hasher[i]);
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
		const uint64_t at = p->result->header_nbytes + p->offset[s->piece.tensor][i] +
				    tsr_piece_plane_offset(t, i, &s->piece);

		TSR_TRY(tsr_outfile_write(p->out, s->plane[i],
					  tsr_piece_plane_nbytes(t, i, &s->piece), at, err));
	}
	return TSR_OK;
}

static enum tsr_status encode_all(struct packing *p)
{
	const struct tsr_pipeline pipeline = {
		.njobs = tsr_pieces_count(&p->pieces),
		.scratch_nbytes = sizeof(struct scratch),
		.work = piece_work,
		.commit = piece_commit,
		.finish = piece_finish,
		.ctx = p,
	};

	p->done_nbytes = 0;
	TSR_TRY(tsr_outfile_create(p->out_path, p->options->force,
				   p->result->header_nbytes + p->result->data_nbytes, &p->out,
				   p->err));
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
			return tsr_fail(p->err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: found %s, expected none with --strict",
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

static void record_errors(struct packing *p)
{
	bool lossy = false;

	for (size_t i = 0; i < p->c->ntensors; i++) {
		struct tsr_tensor *t = &p->c->tensors[i];
		const struct tsr_packed_tensor *r = &p->result->tensors[i];

		if (!t->coding.codec)
			continue;
		t->error = tsr_error_summarize(&r->measure, r->report.scale_underflow);
		t->has_error = true;
		lossy = lossy || r->measure.exact != r->measure.n;
	}
	p->result->generation = p->c->generation + lossy;
}

static enum tsr_status write_header(struct packing *p)
{
	struct tsr_text header = { 0 };
	enum tsr_status status = compose_header(p, false, &header);

	if (status == TSR_OK)
		status = tsr_outfile_write(p->out, header.bytes, header.nbytes, 0, p->err);
	tsr_text_free(&header);
	return status;
}

static enum tsr_status run_packing(struct packing *p)
{
	bool again = true;

	TSR_TRY(check_source(p));
	TSR_TRY(tsr_names_assign(p->c, p->options->rules, p->options->nrules, p->err));
	for (size_t i = 0; i < p->c->ntensors; i++) {
		choose_coding(p->options, &p->c->tensors[i]);
		p->total_nbytes += tsr_tensor_nbytes(&p->c->tensors[i]);
	}
	for (unsigned i = 0; i < p->c->nfiles; i++)
		TSR_TRY(tsr_file_check_not(p->c->files[i], p->out_path, p->err));
	p->result->generation = p->c->generation;
	TSR_TRY(plan(p));
	if (p->options->dry_run)
		return tsr_outfile_check_target(p->out_path, p->options->force, p->err);
	/* Which tensors stay raw, and so the layout, is known after encoding: the rare second pass. */
	while (again) {
		TSR_TRY(encode_all(p));
		TSR_TRY(keep_raw(p, &again));
		if (!again)
			break;
		tsr_outfile_discard(p->out);
		p->out = NULL;
		TSR_TRY(plan(p));
	}
	record_errors(p);
	TSR_TRY(check_bounds(p));
	return write_header(p);
}

enum tsr_status tsr_pack(const char *const *paths, unsigned npaths, const char *out,
			 const struct tsr_pack_options *options, const struct tsr_run *run,
			 struct tsr_packing **ret, struct tsr_err *err)
{
	struct packing p = { .options = options, .run = run, .out_path = out, .err = err };
	enum tsr_status status;

	p.result = calloc(1, sizeof(*p.result));
	if (!p.result)
		return tsr_fail_nomem(err, out);
	status = tsr_checkpoint_open(paths, npaths, &p.result->source, err);
	p.c = p.result->source;
	for (unsigned i = 0; i < TSR_PLANES_MAX && status == TSR_OK; i++) {
		p.hasher[i] = tsr_hasher_new();
		if (!p.hasher[i])
			status = tsr_fail_nomem(err, out);
	}
	if (status == TSR_OK) {
		p.result->tensors = calloc(p.c->ntensors + 1, sizeof(*p.result->tensors));
		status = p.result->tensors ? run_packing(&p) : tsr_fail_nomem(err, out);
	}
	if (status == TSR_OK && p.out) {
		status = tsr_outfile_publish(p.out, err);
		p.out = NULL;
	}
	tsr_outfile_discard(p.out);
	drop_plan(&p);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		tsr_hasher_free(p.hasher[i]);
	if (status != TSR_OK && status != TSR_E_BOUND && status != TSR_E_DURABILITY) {
		tsr_packing_free(p.result);
		return status;
	}
	*ret = p.result;
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
