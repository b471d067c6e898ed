/* SPDX-License-Identifier: Apache-2.0 */
/* The command `diff`: how far the tensors of two checkpoints differ, in whatever form they are stored. */
#include <math.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "base/progress.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/decoders.h"
#include "ckpt/fingerprint.h"
#include "ckpt/read.h"
#include "codec/measuring.h"
#include "compare/comparison.h"
#include "pack/bounds.h"
#include "pack/tile_codec.h"
#include "ckpt/record_crc.h"
#include "codec/math.h"
#include "parts/parted_pipeline.h"

/* Differences are summed tile by tile, so this size decides the last bits of the figures. */
#define TILE TSR_READ_MAX

struct diffing {
	struct tsr_comparison *result;
	const struct tsr_diff_options *options;
	struct tsr_tiles tiles; /* one entry per tensor of the result */
	struct tsr_progress progress;
	struct tsr_measure sum; /* of the tensor whose tiles are being committed */
};

/* What one tile contributes; of equally bad elements the first is the worst. */
struct tally {
	struct tsr_measure measure;
	uint64_t different, nonfinite_different;
	uint64_t worst;
	uint64_t worst_ulp; /* UINT64_MAX where one side is not finite */
	double worst_a, worst_b;
	struct tsr_breach breach;
};

struct scratch {
	struct tsr_coder coder; /* first: the pipeline opens it */
	float a[TILE], b[TILE];
	struct tally tally;
};

/* Tensors without FP32 values are compared byte by byte; units of a tile are then bytes. */
static bool by_value(const struct tsr_diff_tensor *d)
{
	return tsr_tensor_has_f32(d->a);
}

static int32_t ordered(float x)
{
	const int32_t mag = (int32_t)(tsr_bits_from_f32(x) & TSR_F32_MAG);

	return tsr_bits_from_f32(x) & TSR_F32_SIGN ? -mag : mag;
}

static void note_worst(struct tally *t, uint64_t index, uint64_t ulp, double a, double b)
{
	if (t->different > 1 && ulp <= t->worst_ulp)
		return;
	t->worst = index;
	t->worst_ulp = ulp;
	t->worst_a = a;
	t->worst_b = b;
}

/*
 * Find what differs, and take pairs that are not finite out of the arrays, where they would spoil
 * the sums: 0 against 0 adds nothing to them.
 */
static void tally_values(struct scratch *s, uint64_t first, size_t n)
{
	struct tally *t = &s->tally;
	uint64_t specials = 0;

	for (size_t i = 0; i < n; i++) {
		const uint32_t a = tsr_bits_from_f32(s->a[i]), b = tsr_bits_from_f32(s->b[i]);
		const bool special = (a & TSR_F32_INF) == TSR_F32_INF ||
				     (b & TSR_F32_INF) == TSR_F32_INF;

		if (a != b) {
			const int64_t distance = (int64_t)ordered(s->a[i]) - ordered(s->b[i]);

			t->different++;
			t->nonfinite_different += special;
			note_worst(t, first + i, special ? UINT64_MAX : (uint64_t)llabs(distance),
				   (double)s->a[i], (double)s->b[i]);
		}
		if (special)
			s->a[i] = s->b[i] = 0.0f;
		specials += special;
	}
	tsr_measure_add(&t->measure, s->a, s->b, n);
	t->measure.exact -= t->nonfinite_different;
	t->measure.zeros -= specials;
	t->measure.nonfinite += specials;
}

/* Whether a variance was kept in FP32 on both sides, so that it can be checked what steps left of it. */
static bool has_floor(const struct tsr_comparison *r, const struct tsr_diff_tensor *d)
{
	return r->moments.steps && r->moments.betas_known && d->a->kind == TSR_KIND_VARIANCE &&
	       d->a->dtype == TSR_F32 && d->b->dtype == TSR_F32 && !d->a->coding.codec &&
	       !d->b->coding.codec;
}

/* Before tally_values(). */
static void find_breaches(const struct tsr_comparison *r, struct scratch *s, uint64_t first,
			  size_t n)
{
	const struct tsr_moments_found *f = &r->moments;
	const double kept = tsr_adam_floor(f->beta2, f->steps, 1.0f);

	for (size_t i = 0; i < n; i++) {
		if (!((double)s->b[i] < kept * (double)s->a[i] || s->b[i] < 0))
			continue;
		if (s->b[i] < 0 || (double)s->b[i] < tsr_adam_floor(f->beta2, f->steps, s->a[i]))
			tsr_breach_add(&s->tally.breach, first + i, s->a[i], s->b[i]);
	}
}

static void tally_bytes(struct scratch *s, enum tsr_dtype dtype, uint64_t first, size_t n)
{
	const unsigned char *a = (const unsigned char *)s->a, *b = (const unsigned char *)s->b;
	const size_t bits = tsr_dtype_bits(dtype), size = bits < 8 ? 1 : bits / 8;

	for (size_t i = 0; i < n; i += size) {
		if (memcmp(a + i, b + i, size) == 0)
			continue;
		s->tally.different++;
		note_worst(&s->tally, (first + i) / size, 0, NAN, NAN);
	}
}

static enum tsr_status diff_tile(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct diffing *d = ctx;
	const struct tsr_comparison *r = d->result;
	struct scratch *s = scratch;
	const struct tsr_tile tile = tsr_tiles_get(&d->tiles, job);
	const struct tsr_diff_tensor *t = &r->tensors[tile.tensor];

	s->tally = (struct tally){ 0 };
	/* Nothing is read of an empty tensor, nor of one that only one side has. */
	if (!tile.n)
		return TSR_OK;
	if (by_value(t)) {
		TSR_TRY(tsr_coder_read_f32(&s->coder, r->a, t->a, tile.first, tile.n, s->a, err));
		TSR_TRY(tsr_coder_read_f32(&s->coder, r->b, t->b, tile.first, tile.n, s->b, err));
		if (has_floor(r, t))
			find_breaches(r, s, tile.first, tile.n);
		tally_values(s, tile.first, tile.n);
		return TSR_OK;
	}
	TSR_TRY(tsr_array_read(r->a, &r->a->arrays[t->a->plane[0]], tile.first, tile.n, s->a, err));
	TSR_TRY(tsr_array_read(r->b, &r->b->arrays[t->b->plane[0]], tile.first, tile.n, s->b, err));
	tally_bytes(s, t->a->dtype, tile.first, tile.n);
	return TSR_OK;
}

static uint64_t weigh_job(void *ctx, uint64_t job)
{
	const struct diffing *d = ctx;
	const struct tsr_tile tile = tsr_tiles_get(&d->tiles, job);

	if (!tile.n)
		return 0;
	return by_value(&d->result->tensors[tile.tensor]) ? tile.n * sizeof(float) : tile.n;
}

static enum tsr_status diff_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct diffing *d = ctx;
	const struct scratch *s = scratch;
	const struct tsr_tile tile = tsr_tiles_get(&d->tiles, job);
	struct tsr_diff_tensor *t = &d->result->tensors[tile.tensor];
	const bool worse = s->tally.different &&
			   (!t->different || (t->nonfinite_different == 0 &&
					      (s->tally.nonfinite_different ||
					       s->tally.worst_ulp > t->measure.max_ulp)));

	if (worse) {
		t->worst = s->tally.worst;
		t->worst_a = s->tally.worst_a;
		t->worst_b = s->tally.worst_b;
	}
	t->different += s->tally.different;
	t->nonfinite_different += s->tally.nonfinite_different;
	tsr_breach_merge(&t->breach, &s->tally.breach);
	if (tile.first == 0)
		d->sum = (struct tsr_measure){ 0 };
	tsr_measure_merge(&d->sum, &s->tally.measure);
	t->measure = tsr_measure_result(&d->sum);
	return tsr_progress_add(&d->progress, weigh_job(ctx, job), err);
}

static enum tsr_status run_tiles(struct diffing *d, struct tsr_err *err)
{
	const struct tsr_pipeline pipeline = { .njobs = d->tiles.njobs,
					       .scratch_nbytes = sizeof(struct scratch),
					       .open = tsr_coder_open_decoder,
					       .close = tsr_coder_close,
					       .work = diff_tile,
					       .commit = diff_commit,
					       .ctx = d };
	const struct tsr_parted parted = { .pipeline = &pipeline,
					   .what = d->progress.what,
					   .weigh = weigh_job,
					   .found_at = offsetof(struct scratch, tally),
					   .found_nbytes = sizeof(struct tally),
					   .keeps_failures = true };
	const struct tsr_run *run = d->progress.run;
	const struct tsr_comparison *r = d->result;
	enum tsr_status status;

	TSR_TRY(tsr_inputs_name((const struct tsr_checkpoint *const[]){ r->a, r->b }, 2, 0, run,
				err));
	tsr_coded_decode_on(r->a, run);
	tsr_coded_decode_on(r->b, run);
	status = tsr_parted_run(&parted, run, err);
	tsr_coded_decode_on(r->a, NULL);
	tsr_coded_decode_on(r->b, NULL);
	if (status != TSR_OK)
		return status;
	TSR_TRY(tsr_checkpoint_check_unchanged(r->a, err));
	TSR_TRY(tsr_checkpoint_check_unchanged(r->b, err));
	return run ? tsr_part_end(run->parts, err) : TSR_OK;
}

/* --- Pairing up ----------------------------------------------------------------------------- */

static void pair(struct tsr_comparison *r, const struct tsr_tensor *a, const struct tsr_tensor *b)
{
	struct tsr_diff_tensor *d = &r->tensors[r->ntensors++];

	*d = (struct tsr_diff_tensor){ .name = a ? a->name : b->name, .a = a, .b = b };
	if (!b)
		d->kind = TSR_DIFF_ONLY_A;
	else if (!a)
		d->kind = TSR_DIFF_ONLY_B;
	else if (!tsr_tensor_same_shape(a, b))
		d->kind = TSR_DIFF_SHAPE;
	else if (a->dtype != b->dtype && !(tsr_tensor_has_f32(a) && tsr_tensor_has_f32(b)))
		d->kind = TSR_DIFF_DTYPE;
}

static enum tsr_status pair_all(struct tsr_comparison *r, struct tsr_err *err)
{
	TSR_TRY(TSR_NEW(&r->tensors, r->a->ntensors + r->b->ntensors + 1, err, r->a->path));
	for (size_t i = 0; i < r->a->ntensors; i++)
		pair(r, &r->a->tensors[i], tsr_checkpoint_find(r->b, r->a->tensors[i].name));
	for (size_t i = 0; i < r->b->ntensors; i++) {
		if (!tsr_checkpoint_find(r->a, r->b->tensors[i].name))
			pair(r, NULL, &r->b->tensors[i]);
	}
	return TSR_OK;
}

static bool is_state(const struct tsr_tensor *t)
{
	return t->kind == TSR_KIND_MOMENTUM || t->kind == TSR_KIND_VARIANCE;
}

static bool has_states(const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		if (is_state(&c->tensors[i]))
			return true;
	}
	return false;
}

/* A file of another kind may lack counters, or all of the optimizer's state. */
static void note_absent(struct tsr_comparison *r)
{
	const bool states_a = has_states(r->a), states_b = has_states(r->b);

	for (size_t i = 0; i < r->ntensors; i++) {
		struct tsr_diff_tensor *d = &r->tensors[i];
		const struct tsr_tensor *t = d->a ? d->a : d->b;

		if (d->kind != TSR_DIFF_ONLY_A && d->kind != TSR_DIFF_ONLY_B)
			continue;
		d->noted = t->kind == TSR_KIND_OTHER ||
			   (is_state(t) && !(d->kind == TSR_DIFF_ONLY_A ? states_b : states_a));
		r->nnoted += d->noted;
	}
}

static bool exceeds(const struct tsr_diff_tensor *d, const struct tsr_bound *tolerances, unsigned n)
{
	double error;

	if (d->noted)
		return false;
	if (d->kind != TSR_DIFF_COMPARED || d->nonfinite_different)
		return true;
	if (!d->different)
		return false;
	return !n || !by_value(d) ||
	       tsr_bound_exceeded(tolerances, n, &d->measure, NULL, -1, &error);
}

/* The betas of both sides, or of the one that has them. */
static void begin_moments(struct diffing *d)
{
	const struct tsr_moments_found a = tsr_moments_begin(d->result->a);
	struct tsr_moments_found *f = &d->result->moments;

	*f = tsr_moments_begin(d->result->b);
	if (!f->betas_known)
		*f = a;
	else if (a.betas_known && a.beta2 != f->beta2)
		f->betas_known = false;
	f->steps = d->options->steps;
}

static enum tsr_status judge_moments(struct diffing *d, struct tsr_err *err)
{
	struct tsr_comparison *r = d->result;
	struct tsr_moments_found *f = &r->moments;

	if (!f->steps)
		return TSR_OK;
	for (size_t i = 0; i < r->ntensors; i++) {
		if (r->tensors[i].kind == TSR_DIFF_COMPARED && has_floor(r, &r->tensors[i]))
			tsr_moments_add(f, r->tensors[i].b, &r->tensors[i].breach);
	}
	if (!f->betas_known)
		return tsr_build_note(r->b, err,
				      "%.200s: neither file says one beta2: what the steps left of "
				      "variances was not checked",
				      r->b->path);
	return tsr_moments_note(f, r->b, false, err);
}

static enum tsr_status run_diff(struct diffing *d, struct tsr_err *err)
{
	struct tsr_comparison *r = d->result;

	TSR_TRY(tsr_names_assign(r->a, NULL, 0, err));
	TSR_TRY(tsr_names_assign(r->b, NULL, 0, err));
	TSR_TRY(pair_all(r, err));
	begin_moments(d);
	if (r->a->container != r->b->container && !d->options->strict)
		note_absent(r);
	TSR_TRY(tsr_records_check_all(r->a, d->progress.run, err));
	TSR_TRY(tsr_records_check_all(r->b, d->progress.run, err));
	TSR_TRY(tsr_tiles_init(&d->tiles, r->ntensors, r->a->path, err));
	for (size_t i = 0; i < r->ntensors; i++) {
		const struct tsr_diff_tensor *t = &r->tensors[i];
		const bool values = t->kind == TSR_DIFF_COMPARED && by_value(t);
		const uint64_t units = t->kind != TSR_DIFF_COMPARED ? 0
				       : values			    ? t->a->numel
								    : tsr_tensor_nbytes(t->a);

		tsr_tiles_add(&d->tiles, units, TILE);
		d->progress.total_nbytes += units * (values ? sizeof(float) : 1);
	}
	d->progress.what = r->a->path;
	TSR_TRY(run_tiles(d, err));
	TSR_TRY(tsr_besides_compare(r->a, r->b, &r->besides, err));
	TSR_TRY(judge_moments(d, err));
	for (size_t i = 0; i < r->ntensors; i++) {
		struct tsr_diff_tensor *t = &r->tensors[i];

		t->exceeds = exceeds(t, d->options->tolerances, d->options->ntolerances);
		r->ndiffering += !t->noted && (t->kind != TSR_DIFF_COMPARED || t->different);
		r->nexceeding += t->exceeds;
	}
	return TSR_OK;
}

struct tsr_diff_options tsr_diff_defaults(void)
{
	return (struct tsr_diff_options){ .size = sizeof(struct tsr_diff_options) };
}

enum tsr_status tsr_diff(const char *const *a, unsigned na, const char *const *b, unsigned nb,
			 const struct tsr_diff_options *options, const struct tsr_run *run,
			 struct tsr_comparison **ret, struct tsr_err *err)
{
	struct tsr_diff_options o = tsr_diff_defaults();
	TSR_OWNED(tsr_comparison_free) struct tsr_comparison *c = NULL;
	struct diffing d = { .options = &o, .progress = { .run = run } };
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(TSR_NEW(&c, 1, err, a[0]));
	d.result = c;
	TSR_TRY(tsr_checkpoint_open(a, na, o.open, &c->a, err));
	TSR_TRY(tsr_checkpoint_open(b, nb, o.open_b ? o.open_b : o.open, &c->b, err));
	status = run_diff(&d, err);
	tsr_tiles_free(&d.tiles);
	TSR_THEN(status, TSR_GIVE(ret, c));
	return status;
}

void tsr_comparison_free(struct tsr_comparison *c)
{
	if (!c)
		return;
	tsr_checkpoint_close(c->a);
	tsr_checkpoint_close(c->b);
	free(c->tensors);
	free(c);
}
