/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `verify`: is a checkpoint whole, and does it hold what the original holds?  The walk
 * compares the hash of every plane on the way, by tsr_plane_hashes_check() of ckpt/piece_hash.c.
 */
#include <stdio.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/fingerprint.h"
#include "ckpt/layout.h"
#include "ckpt/read.h"
#include "ckpt/tensor_tiles.h"
#include "codec/measuring.h"
#include "compare/comparison.h"
#include "container/packed/packed_write.h"
#include "ckpt/piece_hash.h"
#include "ckpt/record_crc.h"
#include "pack/bounds.h"
#include "pack/masters.h"
#include "pack/outcome/muon_matrix.h"
#include "pack/walk.h"
#include "parts/part.h"
#include "codec/narrow.h"
#include "codec/nonfinite.h"
#include "names/eps.h"

struct verifying {
	const struct tsr_verify_options *options;
	struct tsr_verification *v;
	const struct tsr_tensor **original; /* per tensor: its counterpart, or NULL */
	struct sums {
		struct tsr_measure measure;
		struct tsr_update_measure update;
	} sums[2]; /* of the tensors being committed, by side */
	struct tsr_bound_worst worst;
};

/* What a tile's commit needs. */
struct found {
	struct tsr_measure measure;
	struct tsr_update_measure update;
	struct tsr_breach breach;
	uint64_t nonfinite;
	uint32_t bytes_differ;
	uint32_t
		astray; /* of a master: a value rounds to other narrow weights than those it shares */
};

/* A thread's memory for the tile it verifies. */
struct extra {
	_Alignas(float) unsigned char original[TSR_TILE_NBYTES]; /* FP32 values, or bytes */
	uint16_t narrow[TSR_TILE_ELEMENTS];
};

/* Elements of the original, decoded if it is a compressed state of another tool. */
static enum tsr_status read_decoded(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				    uint64_t first, size_t n, float *x, struct tsr_err *err)
{
	TSR_OWNED(free) struct tsr_read_scratch *scratch = malloc(sizeof(*scratch));

	if (!scratch)
		return tsr_fail_nomem(err, c->path);
	return tsr_tensor_read_f32(c, t, first, n, scratch, x, err);
}

/* What a part of the original holds: FP32 values where the packed tensor has a codec, else bytes. */
static enum tsr_status read_original(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				     const struct tsr_walked *r, struct extra *e,
				     struct tsr_err *err)
{
	float *x = (float *)(void *)e->original;

	if (r->tensor->coding.codec && t->coding.codec)
		return read_decoded(c, t, r->tile.first, r->tile.n, x, err);
	if (r->tensor->coding.codec)
		return tsr_tensor_read_plain(c, t, r->tile.first, r->tile.n, e->narrow, x, err);
	if (t->coding.codec)
		return read_decoded(c, t, r->offset / sizeof(*x), r->nbytes / sizeof(*x), x, err);
	return tsr_array_read(c, &c->arrays[t->plane[0]], r->offset, r->nbytes, e->original, err);
}

static enum tsr_status verify_tile(void *ctx, const struct tsr_walked *r, struct tsr_err *err)
{
	struct verifying *w = ctx;
	struct extra *e = r->extra;
	struct found *found = r->found;
	const struct tsr_tensor *original = w->original[r->tile.tensor];
	const bool coded = r->tensor->coding.codec != NULL;
	const float *x = (const float *)(const void *)e->original;

	*found = (struct found){ .nonfinite = 0 };
	found->nonfinite = coded ? tsr_count_nonfinite(TSR_F32, r->data, r->tile.n * sizeof(float))
				 : tsr_count_nonfinite(r->tensor->dtype, r->data, r->nbytes);
	found->astray = r->tensor->narrow &&
			!tsr_masters_round(&r->tensor->coding, r->coder->plane[0], r->data,
					   r->tile.n);
	if (!original)
		return TSR_OK;
	TSR_TRY(read_original(w->v->original, original, r, e, err));
	if (coded)
		tsr_measure_add(&found->measure, x, r->data, r->tile.n);
	else
		found->bytes_differ = memcmp(e->original, r->data, r->nbytes) != 0;
	return TSR_OK;
}

/* Elements of a tile, and of the original's, as FP32 values; raw ones over what they were. */
static void widen_tile(const struct tsr_walked *t, const float **before, const float **after)
{
	const size_t n = t->nbytes * 8 / tsr_dtype_bits(t->tensor->dtype);
	const struct extra *e = t->extra;

	*before = (const float *)(const void *)e->original;
	*after = t->data;
	if (t->tensor->coding.codec)
		return;
	/* Raw tensors equal their original, or have a fault. */
	tsr_widen(t->tensor->dtype, t->data, n, t->coder->m->x);
	*before = *after = t->coder->m->x;
}

/* Moments that are not packed, as they are. */
static void check_raw(const struct verifying *w, const struct tsr_walked *const t[2])
{
	struct found *found = t[1]->found;
	const struct tsr_moments x = { t[0]->data, t[1]->data };
	const size_t n = t[1]->nbytes / sizeof(float);

	if (tsr_moments_suspect(&x, n, w->v->moments.bound) &&
	    tsr_moments_checked(w->v->checked, t[0]->tensor, t[1]->tensor))
		tsr_breach_find(&found->breach, &x, t[1]->offset / sizeof(float), n,
				w->v->moments.bound, w->v->eps);
}

static enum tsr_status verify_pair(void *ctx, const struct tsr_walked *const t[2],
				   struct tsr_err *err)
{
	const struct verifying *w = ctx;
	struct found *found = t[1]->found;
	const struct tsr_tensor *m = w->original[t[0]->tile.tensor],
				*v = w->original[t[1]->tile.tensor];
	struct tsr_moments before, after;

	for (unsigned i = 0; i < 2; i++)
		TSR_TRY(verify_tile(ctx, t[i], err));
	if (!t[0]->tensor->coding.codec && !t[1]->tensor->coding.codec) {
		check_raw(w, t);
		return TSR_OK;
	}
	if (!m || !v)
		return TSR_OK;
	widen_tile(t[0], &before.m, &after.m);
	widen_tile(t[1], &before.v, &after.v);
	tsr_update_measure_add(&found->update, &before, &after,
			       t[0]->nbytes * 8 / tsr_dtype_bits(t[0]->tensor->dtype), w->v->eps);
	if (tsr_update_suspect(&found->update, w->v->moments.bound) &&
	    tsr_moments_checked(w->v->original, m, v))
		tsr_breach_find(&found->breach, &before, t[1]->offset / sizeof(float),
				t[1]->nbytes / sizeof(float), w->v->moments.bound, w->v->eps);
	return TSR_OK;
}

/* Only the first fault of a tensor counts. */
static bool fault(struct verifying *w, size_t tensor, const char *what)
{
	struct tsr_verified_tensor *t = &w->v->tensors[tensor];

	if (t->fault)
		return false;
	t->fault = tsr_arena_string(w->v->checked->arena, what);
	if (!t->fault)
		t->fault = "found something wrong, and no memory to say what";
	w->v->nfaults++;
	return true;
}

static enum tsr_status commit_tile(void *ctx, const struct tsr_walked *r, struct tsr_err *err)
{
	struct verifying *w = ctx;
	const struct found *found = r->found;
	struct tsr_verified_tensor *t = &w->v->tensors[r->tile.tensor];
	struct sums *sums = &w->sums[r->side];

	(void)err;
	t->nonfinite += found->nonfinite;
	tsr_breach_merge(&t->breach, &found->breach);
	if (r->tile.first == 0)
		*sums = (struct sums){ .measure = { 0 } };
	if (w->v->original) {
		tsr_measure_merge(&sums->measure, &found->measure);
		tsr_update_measure_merge(&sums->update, &found->update);
		t->measure = tsr_measure_result(&sums->measure);
		t->update = tsr_update_measure_result(&sums->update);
	}
	if (found->astray)
		fault(w, r->tile.tensor,
		      "has values that do not round to the model's, which it shares");
	if (found->bytes_differ)
		w->v->nunlike += fault(w, r->tile.tensor, "raw data differs from the original");
	return TSR_OK;
}

/* Which tensors are a momentum and its variance, as the original has them. */
static void join_moments(struct verifying *w)
{
	struct tsr_checkpoint *c = w->v->checked, *original = w->v->original;

	/* A name that does not tell is not measured. */
	if (tsr_names_assign(original, NULL, 0, NULL) != TSR_OK)
		return;
	for (size_t i = 0; i < c->ntensors; i++) {
		const size_t partner = w->original[i] ? w->original[i]->partner : 0;
		const struct tsr_tensor *other =
			partner ? tsr_checkpoint_find(c, original->tensors[partner - 1].name)
				: NULL;

		c->tensors[i].partner = other ? (size_t)(other - c->tensors) + 1 : 0;
	}
	w->v->lr = tsr_names_lr(original);
}

/* What the moments of a checkpoint can be, by its optimizer. */
static void begin_moments(struct verifying *w)
{
	const struct tsr_checkpoint *c = w->v->original ? w->v->original : w->v->checked;

	w->v->eps = tsr_names_eps(c, &w->v->eps_known);
	w->v->moments = tsr_moments_begin(c);
}

/* With @strict what is wrong with them is a fault, else a warning. */
static enum tsr_status judge_moments(struct verifying *w, struct tsr_err *err)
{
	struct tsr_moments_found *f = &w->v->moments;
	struct tsr_checkpoint *c = w->v->checked;
	char text[400];
	size_t first = 0;

	/* Of a packed file alone the codes are no moments of Adam's. */
	for (size_t i = 0; i < c->ntensors && (w->v->original || !c->packed); i++) {
		const struct tsr_tensor *v = &c->tensors[i];
		const struct tsr_tensor *m = tsr_tensor_partner(c->tensors, c->ntensors, i);

		if (m && w->v->original) {
			v = w->original[i];
			m = w->original[m - c->tensors];
		}
		if (!m || !v || !tsr_moments_checked(w->v->original ? w->v->original : c, m, v))
			continue;
		first = f->all.n ? first : i;
		tsr_moments_add(f, &c->tensors[i], &w->v->tensors[i].breach);
	}
	if (!w->options->strict || !tsr_moments_faulty(f))
		return tsr_moments_note(f, c, false, err);
	tsr_moments_text(f, text, sizeof(text));
	fault(w, first, text);
	return TSR_OK;
}

/* Find each tensor's counterpart. */
static enum tsr_status find_originals(struct verifying *w, struct tsr_err *err)
{
	struct tsr_checkpoint *c = w->v->checked, *original = w->v->original;

	if (original->packed)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is a packed file, expected the original", original->path);
	for (size_t i = 0; i < c->ntensors; i++) {
		w->original[i] = tsr_checkpoint_find(original, c->tensors[i].name);
		if (!w->original[i]) {
			w->v->nabsent += fault(w, i, "not in the original");
		} else if (w->original[i]->dtype != c->tensors[i].dtype ||
			   !tsr_tensor_same_shape(w->original[i], &c->tensors[i])) {
			w->v->nunlike += fault(w, i, "dtype or shape differs from the original");
			w->original[i] = NULL;
		}
	}
	for (size_t i = 0; i < original->ntensors; i++) {
		if (tsr_checkpoint_find(c, original->tensors[i].name))
			continue;
		if (!w->v->nmissing++)
			w->v->first_missing = original->tensors[i].name;
		w->v->nfaults++;
	}
	return TSR_OK;
}

static void judge_error(struct verifying *w, size_t i)
{
	const struct tsr_tensor *t = &w->v->checked->tensors[i];
	static const struct tsr_bound bad = { TSR_METRIC_UPDATE_NMSE, TSR_UPDATE_BAD };
	const struct tsr_measured *m = &w->v->tensors[i].measure;
	const struct tsr_update_measured *u = &w->v->tensors[i].update;
	const struct tsr_bound *bound;
	struct tsr_error_summary found;
	char text[160];
	double error;

	if (t->error)
		found = tsr_error_summarize(m);
	if (t->error && memcmp(found.value, t->error->value, sizeof(found.value)) != 0) {
		snprintf(text, sizeof(text),
			 "error against the original is not the recorded one: found NMSE %.4g, "
			 "recorded %.4g",
			 found.value[TSR_METRIC_NMSE], t->error->value[TSR_METRIC_NMSE]);
		w->v->nunlike += fault(w, i, text);
	}
	bound = tsr_bound_exceeded(w->options->bounds, w->options->nbounds,
				   t->coding.codec ? m : NULL, u, w->v->tensors[i].weight_step,
				   &error);
	if (!bound && w->options->strict && u->n && tsr_update_level(u->nmse) == TSR_FINDING_BAD) {
		bound = &bad;
		error = u->nmse;
	}
	if (!bound)
		return;
	snprintf(text, sizeof(text), "found %s error %.4g, expected %s %.4g",
		 tsr_metric_name(bound->metric), error, bound == &bad ? "less than" : "at most",
		 bound->limit);
	fault(w, i, text);
	tsr_bound_worst_add(&w->worst, i, bound, error);
}

/* What rounding does to each weight, in steps of the optimizer of the original. */
static void measure_steps(struct verifying *w)
{
	const struct tsr_checkpoint *c = w->v->checked, *original = w->v->original;
	struct tsr_verified_tensor *tensors = w->v->tensors;
	const struct tsr_tensor *of;
	size_t weight;

	for (size_t i = 0; i < c->ntensors; i++)
		tensors[i].weight_step = -1;
	for (size_t i = 0; i < c->ntensors; i++) {
		if (!w->original[i] ||
		    !tsr_weight_of(original, (size_t)(w->original[i] - original->tensors),
				   &tensors[i].update, w->v->lr, &weight))
			continue;
		of = tsr_checkpoint_find(c, original->tensors[weight].name);
		weight = of ? (size_t)(of - c->tensors) : 0;
		if (of && of->coding.codec && w->original[weight])
			tensors[weight].weight_step = tsr_weight_step(&tensors[weight].measure,
								      &tensors[i].update, w->v->lr);
	}
}

/* The updates of Muon's momenta, as packing measures them. */
static enum tsr_status measure_muon(struct verifying *w, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->v->checked, *original = w->v->original;
	TSR_OWNED(free) bool *chosen = NULL;
	struct tsr_update_measure u;

	TSR_TRY(TSR_NEW(&chosen, original->ntensors + 1, err, original->path));
	tsr_muon_choose(original->tensors, original->ntensors, TSR_MUON_COST, 2, chosen);
	for (size_t i = 0; i < c->ntensors; i++) {
		TSR_SCOPED(tsr_muon_matrix_close) struct tsr_muon_matrix m = { 0 };
		const struct tsr_tensor *of = w->original[i];

		if (!of || !chosen[of - original->tensors] || !c->tensors[i].coding.codec)
			continue;
		TSR_TRY(tsr_muon_matrix_open(original, of, &m, err));
		for (size_t first = 0, n; first < m.n; first += n) {
			n = m.n - first < TSR_READ_MAX ? m.n - first : TSR_READ_MAX;
			TSR_TRY(read_decoded(c, &c->tensors[i], first, n, m.after + first, err));
		}
		tsr_muon_matrix_compare(&m, &u);
		w->v->tensors[i].update = tsr_update_measure_result(&u);
	}
	return TSR_OK;
}

static void judge(struct verifying *w)
{
	const struct tsr_checkpoint *c = w->v->checked;
	char text[160];

	measure_steps(w);

	for (size_t i = 0; i < c->ntensors; i++) {
		if (w->original[i])
			judge_error(w, i);
		if (w->v->tensors[i].nonfinite && !w->options->allow_nonfinite) {
			snprintf(text, sizeof(text), "found %" PRIu64 " non-finite value%s",
				 w->v->tensors[i].nonfinite,
				 w->v->tensors[i].nonfinite == 1 ? "" : "s");
			fault(w, i, text);
		}
	}
}

/* The file was not made of this original, or one of them changed since; @how in words. */
static enum tsr_status report_unlike(const struct tsr_verification *v, const char *how,
				     struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_BOUND, "%.200s: is not what %.200s was %s: %s",
			v->original->path, v->checked->path,
			v->checked->packed ? "packed from" : "made of", how);
}

/* That tensors differ or are missing comes before any detail. */
static enum tsr_status report_tensors(const struct tsr_verification *v, struct tsr_err *err)
{
	char how[TSR_BESIDES_TEXT];
	size_t n = (size_t)snprintf(how, sizeof(how), "%" PRIu64 " of %zu tensors differ",
				    v->nunlike, v->checked->ntensors);

	if (v->nabsent)
		n += (size_t)snprintf(how + n, sizeof(how) - n, ", %" PRIu64 " %s not in it",
				      v->nabsent, v->nabsent == 1 ? "is" : "are");
	if (v->nmissing)
		snprintf(how + n, sizeof(how) - n,
			 ", %" PRIu64 " of its tensors %s missing, first %.200s", v->nmissing,
			 v->nmissing == 1 ? "is" : "are", v->first_missing);
	return report_unlike(v, how, err);
}

/* The tensor that is furthest over a bound, or the first with another fault. */
static enum tsr_status report_fault(const struct verifying *w, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->v->checked;
	char others[80], how[TSR_BESIDES_TEXT];

	if (w->v->nmissing || w->v->nabsent || w->v->nunlike)
		return report_tensors(w->v, err);
	for (size_t i = w->worst.tensor; i < c->ntensors; i++) {
		if (!w->v->tensors[i].fault)
			continue;
		snprintf(others, sizeof(others), "; %" PRIu64 " tensors have a fault%s",
			 w->v->nfaults, w->worst.n ? ", this one the worst" : "");
		return tsr_fail(err, TSR_E_BOUND, "%s: tensor %.200s: %s%s", c->path,
				c->tensors[i].name, w->v->tensors[i].fault,
				w->v->nfaults > 1 ? others : "");
	}
	return w->v->besides.ndiffering
		       ? report_unlike(w->v, tsr_besides_first(&w->v->besides, how), err)
		       : TSR_OK;
}

/* Count the checksums of records, which the walk checks. */
static enum tsr_status check_checksums(struct verifying *w, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->v->checked;

	for (size_t i = 0; i < c->narrays; i++) {
		const struct tsr_layout *layout = c->arrays[i].layout;

		w->v->nchecksums += c->arrays[i].has_crc;
		for (size_t k = 0; layout && k < layout->nchunks; k++)
			w->v->nchecksums += layout->chunks[k].has_crc;
	}
	if (!w->options->strict)
		return TSR_OK;
	return tsr_checkpoint_check_strict(c, err);
}

static enum tsr_status run_verify(struct verifying *w, const char *path, const struct tsr_run *run,
				  struct tsr_err *err)
{
	const struct tsr_verify_options *o = w->options;
	struct tsr_walk walk = { .found_nbytes = sizeof(struct found),
				 .extra_nbytes = sizeof(struct extra),
				 .in_parts = true,
				 .work = verify_tile,
				 .commit = commit_tile,
				 .ctx = w };
	size_t n;

	TSR_TRY(tsr_checkpoint_open(&path, 1, o->open, &w->v->checked, err));
	TSR_TRY(check_checksums(w, err));
	TSR_TRY(tsr_names_assign(w->v->checked, NULL, 0, err));
	if (o->nagainst)
		TSR_TRY(tsr_checkpoint_open(o->against, o->nagainst, o->open, &w->v->original,
					    err));
	n = w->v->checked->ntensors;
	TSR_TRY(TSR_NEW(&w->v->tensors, n + 1, err, path));
	TSR_TRY(TSR_NEW(&w->original, n + 1, err, path));
	begin_moments(w);
	walk.work_pair = w->v->original || !w->v->checked->packed ? verify_pair : NULL;
	walk.raw_pairs = true;
	if (w->v->original) {
		TSR_TRY(find_originals(w, err));
		join_moments(w);
		TSR_TRY(tsr_records_check_all(w->v->original, run, err));
	}
	walk.c = w->v->checked;
	TSR_TRY(tsr_inputs_name(
		(const struct tsr_checkpoint *const[]){ w->v->checked, w->v->original }, 2, 0, run,
		err));
	TSR_TRY(tsr_walk_run(&walk, run, err));
	if (w->v->original)
		TSR_TRY(tsr_checkpoint_check_unchanged(w->v->original, err));
	if (run)
		TSR_TRY(tsr_part_end(run->parts, err));
	if (w->v->original) {
		TSR_TRY(tsr_besides_compare(w->v->checked, w->v->original, &w->v->besides, err));
		TSR_TRY(measure_muon(w, err));
	}
	judge(w);
	TSR_TRY(judge_moments(w, err));
	return report_fault(w, err);
}

struct tsr_verify_options tsr_verify_defaults(void)
{
	return (struct tsr_verify_options){ .size = sizeof(struct tsr_verify_options) };
}

enum tsr_status tsr_verify(const char *path, const struct tsr_verify_options *options,
			   const struct tsr_run *run, struct tsr_verification **ret,
			   struct tsr_err *err)
{
	struct tsr_verify_options o = tsr_verify_defaults();
	struct verifying w = { .options = &o };
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(TSR_NEW(&w.v, 1, err, path));
	status = run_verify(&w, path, run, err);
	free(w.original);
	if (status != TSR_OK &&
	    (status != TSR_E_BOUND || !(w.v->nfaults || w.v->besides.ndiffering))) {
		tsr_verification_free(w.v);
		w.v = NULL;
	}
	*ret = w.v;
	return status;
}

void tsr_verification_free(struct tsr_verification *v)
{
	if (!v)
		return;
	tsr_checkpoint_close(v->checked);
	tsr_checkpoint_close(v->original);
	free(v->tensors);
	free(v);
}
