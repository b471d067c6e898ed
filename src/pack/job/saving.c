/* SPDX-License-Identifier: Apache-2.0 */
/* Packing the state of a running job: which tensor becomes what, encoding on the CPU, and the file. */
#include "tersor/saving.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "base/pipeline.h"
#include "ckpt/build.h"
#include "ckpt/piece_hash.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/layout.h"
#include "ckpt/read.h"
#include "ckpt/tensor_tiles.h"
#include "codec/found_math.h"
#include "codec/narrow.h"
#include "container/packed/packed_write.h"
#include "io/hash.h"
#include "layouts/open.h"
#include "pack/codec_rules.h"
#include "pack/open_checkpoint.h"
#include "tersor/names.h"

struct tsr_saving {
	struct tsr_checkpoint *c; /* NULL once it is written */
	uint64_t *number; /* per tensor: of the job's */
};

void tsr_saving_free(struct tsr_saving *s)
{
	if (!s)
		return;
	tsr_checkpoint_close(s->c);
	free(s->number);
	free(s);
}
TSR_OWNED_BY(tsr_saving_free, struct tsr_saving)

/* --- Planning ----------------------------------------------------------------------------------- */

/* What needs a look at all elements before they are encoded, or an output. */
static enum tsr_status check_options(const struct tsr_pack_options *o, struct tsr_err *err)
{
	const struct tsr_coding *const codings[] = { &o->weight, &o->momentum, &o->variance,
						     &o->other };

	for (size_t i = 0; i < sizeof(codings) / sizeof(*codings); i++) {
		if (codings[i]->codec && (codings[i]->codec->learned || codings[i]->codec->rank))
			return tsr_fail(
				err, TSR_E_USAGE,
				"codec %s: needs a pass over the data, which saving a running job "
				"has not",
				codings[i]->codec->name);
	}
	if (o->choice || o->nbounds || o->delta || o->weights_out || o->max_shard_nbytes ||
	    o->dry_run)
		return tsr_fail(
			err, TSR_E_USAGE,
			"planning what a job saves: found options of choosing, bounds or the "
			"output, expected codings and rules only");
	return TSR_OK;
}

static enum tsr_status plan(struct tsr_saving *s, const struct tsr_pack_options *o,
			    struct tsr_err *err)
{
	struct tsr_checkpoint *c = s->c;
	struct tsr_packed_tensor ignored;

	if (c->packed)
		return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: is packed already", c->path);
	TSR_TRY(tsr_packed_check_names(c, err));
	TSR_TRY(tsr_names_assign(c, o->rules, o->nrules, err));
	TSR_TRY(TSR_NEW(&s->number, c->ntensors + 1, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_array *a = &c->arrays[c->tensors[i].plane[0]];

		s->number[i] = a->layout ? a->layout->chunks->offset : a->offset;
		tsr_pack_choose(o, &c->tensors[i], &ignored);
	}
	return tsr_pack_check_ratios(o, c, &(struct tsr_pack_given){ .n = 0 }, err);
}

enum tsr_status tsr_saving_plan(const struct tsr_job_state *state,
				const struct tsr_pack_options *options, struct tsr_saving **ret,
				struct tsr_err *err)
{
	struct tsr_pack_options o = tsr_pack_defaults();
	struct tsr_open_options open = tsr_open_defaults();
	TSR_OWNED(tsr_saving_free) struct tsr_saving *s = NULL;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_options_take(&open, o.open, err));
	TSR_TRY(check_options(&o, err));
	open.parts = true; /* what a rank has */
	open.as_stored = true;
	TSR_TRY(TSR_NEW(&s, 1, err, state->name));
	TSR_TRY(tsr_job_open(state, &open, &s->c, err));
	TSR_TRY(plan(s, &o, err));
	return TSR_GIVE(ret, s);
}

/* The planes of a tensor, in device memory; of sizes only if @saved is NULL.  Returns how many. */
static unsigned describe(const struct tsr_tensor *t, const struct tsr_saved *saved,
			 struct tsr_device_plane *to)
{
	for (unsigned k = 0; k < t->nplanes && k < TSR_PLANES_MAX; k++)
		to[k] = (struct tsr_device_plane){ .coding = &t->coding,
						   .which = k,
						   .n = t->numel,
						   .columns = tsr_coded_columns(t),
						   .plain = saved ? saved->plane[k] : NULL,
						   .scales = saved ? saved->plane[1] : NULL };
	return t->nplanes;
}

static uint64_t coded_bound(const struct tsr_tensor *t)
{
	struct tsr_device_plane planes[TSR_PLANES_MAX];
	uint64_t sum = 0;

	for (unsigned n = describe(t, NULL, planes), k = 0; k < n; k++) {
		const uint64_t bound = tsr_device_coded_bound(&planes[k]);

		if (!bound)
			return 0;
		sum += bound;
	}
	return sum;
}

/* The bytes of a plane, or of the elements as they are. */
static uint64_t plane_nbytes(const struct tsr_tensor *t, unsigned plane)
{
	return t->coding.codec ? tsr_plane_nbytes(&t->coding, plane, t->numel)
			       : tsr_tensor_nbytes(t);
}

static uint64_t room_of(uint64_t nbytes)
{
	return (nbytes + 15) / 16 * 16;
}

size_t tsr_saving_ntensors(const struct tsr_saving *s)
{
	return s->c->ntensors;
}

void tsr_saving_tensors(const struct tsr_saving *s, struct tsr_saving_tensor *ret)
{
	for (size_t i = 0; i < s->c->ntensors; i++) {
		const struct tsr_tensor *t = &s->c->tensors[i], *v = tsr_tensor_beside(s->c, t);
		const bool encoded = t->coding.codec != NULL;

		ret[i] = (struct tsr_saving_tensor){
			.name = t->name,
			.number = s->number[i],
			.numel = t->numel,
			.variance = v ? (size_t)(v - s->c->tensors) : SIZE_MAX,
			.coded_bound = encoded ? coded_bound(t) : 0,
			.nplanes = t->nplanes,
			.encoded = encoded,
		};
		for (unsigned k = 0; k < t->nplanes; k++) {
			ret[i].plane[k] = plane_nbytes(t, k);
			ret[i].room += room_of(ret[i].plane[k]);
		}
	}
}

void tsr_saving_place(const struct tsr_saving *s, struct tsr_saved *saved, const size_t *which,
		      size_t n, void *base)
{
	char *at = base;

	for (size_t i = 0; i < n; i++) {
		const struct tsr_tensor *t = &s->c->tensors[which[i]];

		for (unsigned k = 0; k < t->nplanes; k++) {
			saved[which[i]].plane[k] = at;
			at += room_of(plane_nbytes(t, k));
		}
	}
}

/* --- Encoding on the CPU ------------------------------------------------------------------------ */

struct encoding {
	const struct tsr_checkpoint *c;
	const struct tsr_saved *saved;
	struct tsr_device_found *found;
	struct tsr_tiles tiles;
};

/* Of one tile in flight. */
struct tile_memory {
	float x[TSR_TILE_ELEMENTS], variance[TSR_TILE_ELEMENTS];
	struct tsr_device_found found;
	struct tsr_tile tile;
};

/* Elements that are looked at together: a length that the compiler knows is looked through as vectors. */
#define LOOKS 256u

static struct tsr_found_counts look_at_some(const float *x, uint32_t limit)
{
	struct tsr_found_counts c = { 0 };

	for (size_t i = 0; i < LOOKS; i++)
		tsr_found_count(&c, x[i], limit);
	return c;
}

/* As the kernel in gpu/caller_stream.cu looks.  Zeros behind the last elements count for nothing. */
static void look_at(const float *x, size_t n, uint32_t limit, struct tsr_device_found *found)
{
	for (size_t i = 0; i < n; i += LOOKS) {
		const size_t left = n - i;
		float rest[LOOKS] = { 0 };
		struct tsr_found_counts c;

		if (left < LOOKS)
			memcpy(rest, x + i, left * sizeof(*x));
		c = look_at_some(left < LOOKS ? rest : x + i, limit);
		found->nonfinite += c.nonfinite;
		found->negative += c.negative;
		found->nonzero += c.nonzero;
		found->fractional += c.fractional;
		found->wide += c.wide;
		found->overflow += c.overflow;
	}
}

/* The elements of a tile in FP32: where they are, or in @x. */
static const float *get_tile(const struct encoding *e, size_t tensor, const struct tsr_tile *tile,
			     float *x)
{
	const struct tsr_tensor *t = &e->c->tensors[tensor];
	const char *at = e->saved[tensor].data;

	at += tile->first * (tsr_dtype_bits(t->dtype) / 8);
	if (t->dtype == TSR_F32)
		return (const float *)(const void *)at;
	tsr_widen(t->dtype, at, tile->n, x);
	return x;
}

static enum tsr_status encode_tile(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct encoding *e = ctx;
	struct tile_memory *m = scratch;
	const struct tsr_tile *tile = &m->tile;
	const struct tsr_tensor *t, *beside;
	struct tsr_coding coding;
	void *plane[TSR_PLANES_MAX];
	const float *x;

	(void)err;
	m->tile = tsr_tiles_get(&e->tiles, job);
	m->found = (struct tsr_device_found){ 0 };
	t = &e->c->tensors[tile->tensor];
	coding = t->coding;
	coding.first = tile->first;
	x = get_tile(e, tile->tensor, tile, m->x);
	look_at(x, tile->n, tsr_found_limit(coding.codec), &m->found);
	beside = tsr_tensor_beside(e->c, t);
	if (beside) {
		memmove(m->x, x, tile->n * sizeof(*x));
		x = m->x;
		tsr_ratios_make(&coding, m->x,
				get_tile(e, (size_t)(beside - e->c->tensors), tile, m->variance),
				tile->n);
	}
	for (unsigned i = 0; i < t->nplanes; i++)
		plane[i] = (char *)e->saved[tile->tensor].plane[i] +
			   tsr_tile_plane_offset(t, i, tile);
	coding.codec->encode(&coding, x, tile->n, plane, &m->found.report);
	return TSR_OK;
}

static enum tsr_status add_found(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct encoding *e = ctx;
	const struct tile_memory *m = scratch;
	struct tsr_device_found *sum = &e->found[m->tile.tensor];

	(void)job;
	(void)err;
	sum->report.scale_underflow += m->found.report.scale_underflow;
	sum->report.scale_overflow += m->found.report.scale_overflow;
	sum->report.narrow_overflow += m->found.report.narrow_overflow;
	sum->nonfinite += m->found.nonfinite;
	sum->negative += m->found.negative;
	sum->nonzero += m->found.nonzero;
	sum->fractional += m->found.fractional;
	sum->wide += m->found.wide;
	sum->overflow += m->found.overflow;
	return TSR_OK;
}

enum tsr_status tsr_saving_encode(const struct tsr_saving *s, const struct tsr_saved *saved,
				  struct tsr_device_found *found, const struct tsr_run *run,
				  struct tsr_err *err)
{
	static const struct tsr_run one = { .threads = 1 };
	TSR_SCOPED(tsr_tiles_free) struct tsr_tiles tiles = { 0 };
	struct encoding e = { .c = s->c, .saved = saved, .found = found };
	struct tsr_pipeline pipeline = { .scratch_nbytes = sizeof(struct tile_memory),
					 .work = encode_tile,
					 .commit = add_found,
					 .ctx = &e };
	TSR_OWNED(free) bool *skip = NULL;

	TSR_TRY(TSR_NEW(&skip, s->c->ntensors + 1, err, s->c->path));
	for (size_t i = 0; i < s->c->ntensors; i++) {
		const struct tsr_tensor *t = &s->c->tensors[i];

		skip[i] = !t->coding.codec || !saved[i].data;
		if (!t->coding.codec && saved[i].data && saved[i].plane[0])
			memcpy(saved[i].plane[0], saved[i].data, tsr_tensor_nbytes(t));
	}
	TSR_TRY(tsr_tensor_tiles(&tiles, s->c->tensors, s->c->ntensors, false, false, skip,
				 s->c->path, err));
	e.tiles = tiles;
	pipeline.njobs = tiles.njobs;
	return tsr_pipeline_run(&pipeline, run ? run : &one, err);
}

enum tsr_status tsr_saving_encode_on(const struct tsr_saving *s, const struct tsr_saved *saved,
				     const size_t *which, size_t n, struct tsr_gpu *gpu,
				     void *stream, struct tsr_device_found *found, float *scratch,
				     struct tsr_err *err)
{
	for (size_t k = 0; k < n; k++) {
		const size_t i = which[k];
		const struct tsr_tensor *t = &s->c->tensors[i], *v = tsr_tensor_beside(s->c, t);
		const float *x = saved[i].data;

		TSR_TRY(tsr_device_prepare(gpu, &t->coding, err));
		if (v) {
			TSR_TRY(tsr_device_ratios(gpu, stream, &t->coding, x,
						  saved[v - s->c->tensors].data, t->numel, scratch,
						  err));
			x = scratch;
		}
		TSR_TRY(tsr_device_encode(gpu, stream, &t->coding, x, t->numel, saved[i].plane,
					  &found[i], err));
	}
	return TSR_OK;
}

/* --- Entropy coding on a GPU -------------------------------------------------------------------- */

/* Those of several tensors, to be freed; NULL when out of memory. */
static struct tsr_device_plane *describe_all(const struct tsr_saving *s,
					     const struct tsr_saved *saved, const size_t *which,
					     size_t n, size_t *nplanes_ret)
{
	struct tsr_device_plane *planes = calloc(n * TSR_PLANES_MAX + 1, sizeof(*planes));

	*nplanes_ret = 0;
	for (size_t k = 0; planes && k < n; k++)
		*nplanes_ret += describe(&s->c->tensors[which[k]], saved ? &saved[which[k]] : NULL,
					 planes + *nplanes_ret);
	return planes;
}

uint64_t tsr_saving_coding_scratch(const struct tsr_saving *s, const size_t *which, size_t n,
				   const struct tsr_gpu *gpu)
{
	size_t nplanes;
	TSR_OWNED(free)
	struct tsr_device_plane *planes = describe_all(s, NULL, which, n, &nplanes);

	return planes ? tsr_device_coding_scratch(gpu, planes, nplanes, false) : UINT64_MAX;
}

enum tsr_status tsr_saving_code_on(const struct tsr_saving *s, const struct tsr_saved *saved,
				   const size_t *which, size_t n, struct tsr_gpu *gpu, void *stream,
				   void *scratch, void *coded, uint64_t *ends, struct tsr_err *err)
{
	size_t nplanes;
	TSR_OWNED(free)
	struct tsr_device_plane *planes = describe_all(s, saved, which, n, &nplanes);

	if (!planes)
		return tsr_fail_nomem(err, s->c->path);
	return tsr_device_code(gpu, stream, planes, nplanes, scratch, coded, ends, err);
}

/* --- What codecs cannot hold -------------------------------------------------------------------- */

/* Whether it must, and then does: why is in @why. */
static bool keep_raw(struct tsr_tensor *t, const struct tsr_device_found *found, char *why,
		     size_t room)
{
	struct tsr_packed_tensor r = { .report = found->report };
	const bool split = t->coding.codec && (t->coding.codec->narrow == TSR_BF16 ||
					       t->coding.codec->narrow == TSR_F16);

	r.measure.nonfinite = found->nonfinite;
	r.measure.negative = found->negative;
	/* Where an encoder counts them too, as splits do, they are in the report. */
	if (!r.report.narrow_overflow)
		r.measure.overflow = found->overflow;
	/* Nothing was decoded: integers that a BF16 holds come back from a split, and 0 from any codec. */
	r.measure.max_ulp = split ? found->wide > 0 : found->nonzero > 0;
	r.raw = tsr_pack_raw_reason(t, &r, !found->fractional);
	if (r.raw == TSR_RAW_NO)
		return false;
	tsr_raw_reason_text(&r, why, room);
	t->coding = (struct tsr_coding){ .group = 1 };
	t->nplanes = 1;
	return true;
}

size_t tsr_saving_settle(struct tsr_saving *s, const struct tsr_device_found *found,
			 const size_t *which, size_t n, struct tsr_saving_raw *ret)
{
	size_t nraw = 0;

	for (size_t k = 0; k < n; k++) {
		struct tsr_tensor *t = &s->c->tensors[which[k]];
		struct tsr_saving_raw *raw = &ret[nraw];

		if (!t->coding.codec || !keep_raw(t, &found[which[k]], raw->why, sizeof(raw->why)))
			continue;
		raw->tensor = which[k];
		nraw++;
	}
	return nraw;
}

uint64_t tsr_xxh3(const void *bytes, size_t nbytes)
{
	return tsr_hash(bytes, nbytes, 0);
}

/* --- The file ----------------------------------------------------------------------------------- */

/* Let an array be a plane that is coded already. */
static enum tsr_status take_coded_plane(struct tsr_checkpoint *c, const struct tsr_tensor *t,
					unsigned plane, uint64_t nbytes, struct tsr_array *a,
					struct tsr_err *err)
{
	a->dtype = TSR_U8;
	a->rank = 1;
	a->nbytes = nbytes;
	return tsr_coded_take(c, a, t, plane, err);
}

/* The arrays of a tensor in memory; the first one keeps its number, by which the tree knows the tensor. */
static enum tsr_status place_planes(struct tsr_checkpoint *c, struct tsr_tensor *t,
				    const struct tsr_saved *saved, struct tsr_err *err)
{
	const struct tsr_array first = c->arrays[t->plane[0]];

	for (unsigned i = 0; i < t->nplanes; i++) {
		const void *bytes = saved->plane[i] ? saved->plane[i] : saved->data;
		static const char empty[1];
		struct tsr_array a = { .name = t->name,
				       .dtype = t->dtype,
				       .rank = t->rank,
				       .shape = t->shape,
				       .stride = i ? NULL : first.stride,
				       .memory = t->numel ? bytes : empty };
		uint64_t *count;

		if (t->coding.codec) {
			count = tsr_arena_alloc(c->arena, sizeof(*count));
			if (!count)
				return tsr_build_nomem(c, err);
			*count = tsr_plane_count(&t->coding, i, t->numel);
			a.dtype = tsr_plane_dtype(&t->coding, i);
			a.rank = 1;
			a.shape = count;
		}
		a.numel = t->coding.codec ? *a.shape : t->numel;
		a.nbytes = t->coding.codec ? tsr_plane_nbytes(&t->coding, i, t->numel)
					   : tsr_tensor_nbytes(t);
		if (t->coding.codec && saved->coded[i])
			TSR_TRY(take_coded_plane(c, t, i, saved->coded[i], &a, err));
		if (i)
			TSR_TRY(tsr_build_array(c, &a, &t->plane[i], err));
		else
			c->arrays[t->plane[0]] = a;
	}
	return tsr_coded_link(c, t, 1, err);
}

static enum tsr_status hash_planes(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = ctx;
	struct tsr_tensor *t = &c->tensors[job];
	void *plane[TSR_PLANES_MAX];

	(void)scratch;
	if (c->arrays[t->plane[0]].coded) {
		for (unsigned i = t->nplanes; i-- > 0;)
			TSR_TRY(tsr_coded_seal(c, &c->arrays[t->plane[i]], &t->hash[i], err));
		return TSR_OK;
	}
	for (unsigned i = 0; i < t->nplanes; i++)
		plane[i] = (void *)(uintptr_t)c->arrays[t->plane[i]].memory;
	return tsr_plane_hashes_whole(t, plane, t->hash, c->path, err);
}

/* Make the plan the packed checkpoint that it will be. */
static enum tsr_status fill(struct tsr_checkpoint *c, const struct tsr_saved *saved,
			    const struct tsr_run *run, struct tsr_err *err)
{
	struct tsr_pipeline pipeline = { .work = hash_planes, .ctx = c };
	bool lossy = false;
	size_t n = 0;

	for (size_t i = 0; i < c->ntensors; i++) {
		struct tsr_tensor t = c->tensors[i];

		if (t.numel && !saved[i].data && !saved[i].plane[0])
			continue;
		lossy = lossy || (t.coding.codec && !t.coding.codec->lossless);
		t.partner =
			0; /* a number among all tensors, which a packed file does not tell either */
		c->tensors[n] = t;
		TSR_TRY(place_planes(c, &c->tensors[n++], &saved[i], err));
	}
	c->ntensors = n;
	c->generation += lossy;
	c->packed = true;
	pipeline.njobs = n;
	return tsr_pipeline_run(&pipeline, run, err);
}

enum tsr_status tsr_saving_write(struct tsr_saving *s, const struct tsr_saved *saved,
				 const char *out, const struct tsr_recode_options *options,
				 const struct tsr_run *run, struct tsr_unpacking **ret,
				 struct tsr_err *err)
{
	struct tsr_recode_options o = tsr_recode_defaults();
	struct tsr_checkpoint *c = s->c;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	if (!c || c->packed)
		return tsr_fail(err, TSR_E_USAGE, "%s: its plan was written already", out);
	status = fill(c, saved, run, err);
	TSR_THEN(status, tsr_recode_checkpoint(c, out, &o, run, ret, err));
	if (tsr_is_written(status))
		s->c = NULL;
	return status;
}
