/* SPDX-License-Identifier: Apache-2.0 */
/* The file of signatures of a replay, which has what a run of the same steps would have recorded. */
#include "replay/stepping.h"

#include <math.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "codec/math.h"
#include "io/file.h"
#include "io/hash.h"
#include "recording/recording_data.h"
#include "recording/signing.h"
#include "recording/signature_file.h"
#include "text/json.h"

/* Of a parameter: its gradient, and what its slots are called. */
#define GRADIENT TSR_SLOTS
#define EACH (TSR_SLOTS + 1)
static const char *const names[EACH] = { "weight", "momentum", "variance", "max_exp_avg_sq",
					 "gradient" };

struct tsr_replay_signing {
	struct tsr_outfile *file;
	uint64_t at; /* where the next step goes */
	size_t step_nbytes;
	unsigned char *step; /* its bytes */
	size_t njobs;
	size_t *jobs; /* EACH * parameter + slot, in the order of the file */
	struct tsr_tensor *grads; /* per parameter, of the dtype that all its gradients have */
	/* Of each job: a gradient to be read, or a state in memory; and its signature. */
	const struct tsr_tensor **read;
	struct tsr_to_sign *resident;
	struct tsr_signature *signatures;
	const struct tsr_replay_window *w; /* of the step; NULL: before the first */
	const struct tsr_replaying *r;
};

/* --- The head ---------------------------------------------------------------------------------- */

static void put_group(struct tsr_text *json, const struct tsr_replaying *r, size_t group)
{
	const struct tsr_hyper *h = &r->result->hyper[group];

	tsr_json_open(json, NULL, '{');
	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
		const enum tsr_hyper_name name = (enum tsr_hyper_name)i;

		/* Those that a manifest has under other names. */
		if (!tsr_hyper_is_set(h, name) || name == TSR_HYPER_LR || name == TSR_HYPER_BETA1 ||
		    name == TSR_HYPER_BETA2 || name == TSR_HYPER_MATCH_RMS)
			continue;
		/* All digits: they are compared with those of a run. */
		tsr_json_put_exact(json, tsr_hyper_name(name), h->value[i]);
	}
	if (tsr_hyper_is_set(h, TSR_HYPER_MATCH_RMS))
		tsr_json_put_string(json, "adjust_lr_fn",
				    h->value[TSR_HYPER_MATCH_RMS] != 0 ? "match_rms_adamw"
								       : "original");
	tsr_json_open(json, "params", '[');
	for (size_t i = 0; i < r->nparams; i++) {
		if (r->params[i].group == group)
			tsr_json_put_string(json, NULL, r->params[i].recorded);
	}
	tsr_json_close(json, ']');
	if (tsr_hyper_is_set(h, TSR_HYPER_BETA1) && tsr_hyper_is_set(h, TSR_HYPER_BETA2)) {
		tsr_json_open(json, "betas", '[');
		tsr_json_put_exact(json, NULL, h->value[TSR_HYPER_BETA1]);
		tsr_json_put_exact(json, NULL, h->value[TSR_HYPER_BETA2]);
		tsr_json_close(json, ']');
	}
	tsr_json_close(json, '}');
}

static void put_head(struct tsr_text *json, const struct tsr_replaying *r,
		     const struct tsr_replay_signing *s)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "format", "tersor-signatures");
	tsr_json_put_u64(json, "version", 1);
	tsr_json_put_u64(json, "rank", 0);
	tsr_json_put_u64(json, "ranks", 1);
	tsr_json_put_string(json, "optimizer", tsr_optimizer_name(r->result->optimizer));
	tsr_json_put_string(json, "order", tsr_order_name(r->result->order));
	tsr_json_open(json, "param_groups", '[');
	for (size_t g = 0; g < r->result->ngroups; g++)
		put_group(json, r, g);
	tsr_json_close(json, ']');
	tsr_json_open(json, "tensors", '[');
	for (size_t i = 0; i < s->njobs; i++) {
		const struct tsr_replay_param *p = &r->params[s->jobs[i] / EACH];
		const struct tsr_tensor *t = &r->c->tensors[p->tensor[TSR_SLOT_WEIGHT]];
		const unsigned slot = (unsigned)(s->jobs[i] % EACH);

		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "name", p->recorded);
		tsr_json_put_string(json, "of", names[slot]);
		tsr_json_put_string(json, "dtype",
				    tsr_dtype_name(slot == GRADIENT
							   ? s->grads[s->jobs[i] / EACH].dtype
							   : TSR_F32));
		tsr_json_put_u64s(json, "shape", t->shape, t->rank);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

/* --- A step ------------------------------------------------------------------------------------ */

/* Sign a gradient as a tensor of its step, if there is one. */
static enum tsr_status take_gradient(struct tsr_replay_signing *k, size_t job)
{
	const size_t param = k->jobs[job] / EACH;
	const struct tsr_array *grad = k->w ? tsr_replay_grad(k->w, 0, param) : NULL;
	struct tsr_tensor *t = &k->grads[param];

	k->read[job] = grad ? t : NULL;
	if (!grad)
		return TSR_OK;
	if (grad->dtype != t->dtype)
		return tsr_fail(k->r->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found a gradient in %s, expected %s, as before",
				k->r->recording->path, k->r->params[param].recorded,
				tsr_dtype_name(grad->dtype), tsr_dtype_name(t->dtype));
	t->plane[0] = (size_t)(grad - k->w->steps[0]->arrays);
	return TSR_OK;
}

/* Before the first step a state is there if the checkpoint has it. */
static void take_slot(struct tsr_replay_signing *k, size_t job)
{
	const struct tsr_replay_param *p = &k->r->params[k->jobs[job] / EACH];
	const unsigned slot = (unsigned)(k->jobs[job] % EACH);

	k->resident[job] = (struct tsr_to_sign){ .nbytes = p->numel * sizeof(float),
						 .dtype = TSR_F32,
						 .index = (uint32_t)job };
	if (k->w || p->tensor[slot] != SIZE_MAX)
		k->resident[job].data = tsr_replay_planes(p, slot)[0];
}

static void put_signature(const struct tsr_signature *s, unsigned char *out)
{
	memcpy(out, s->hash, sizeof(s->hash));
	tsr_put_le(out + 16, tsr_bits_from_f32(s->max), 4);
	tsr_put_le(out + 20, tsr_bits_from_f32(s->rms), 4);
	tsr_put_le(out + 24, s->nonfinite, 4);
	tsr_put_le(out + 28, s->zeros, 4);
}

static void put_double(unsigned char *out, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	tsr_put_le(out, bits, 8);
}

/* Sign all tensors and append the step; @lr of its groups. */
static enum tsr_status append(struct tsr_replay_signing *k, uint64_t step, double loss,
			      const double *lr)
{
	const size_t ngroups = k->r->result->ngroups;
	const size_t n = k->step_nbytes - 8;

	tsr_put_le(k->step, step, 8);
	put_double(k->step + 8, loss);
	for (size_t g = 0; g < ngroups; g++)
		put_double(k->step + 16 + 8 * g, lr[g]);
	for (size_t i = 0; i < k->njobs; i++) {
		if (k->jobs[i] % EACH == GRADIENT)
			TSR_TRY(take_gradient(k, i));
		else
			take_slot(k, i);
	}
	/* Those of what is not read are zeros, until they are of what is resident. */
	TSR_TRY(tsr_sign_tensors(k->w ? k->w->steps[0] : NULL, k->read, k->njobs, k->signatures,
				 k->r->run, k->r->err));
	TSR_TRY(tsr_sign(k->resident, k->njobs, k->signatures, k->r->run, k->r->err));
	for (size_t i = 0; i < k->njobs; i++)
		put_signature(&k->signatures[i],
			      k->step + 16 + 8 * ngroups + TSR_SIGNATURE_NBYTES * i);
	tsr_put_le(k->step + n, tsr_hash(k->step, n, 0), 8);
	TSR_TRY(tsr_outfile_write(k->file, k->step, k->step_nbytes, k->at, k->r->err));
	k->at += k->step_nbytes;
	return TSR_OK;
}

enum tsr_status tsr_replay_sign_step(struct tsr_replay_window *w)
{
	const struct tsr_recording_step *recorded = &w->r->recording->steps[w->r->first + w->first];
	const struct tsr_replay_step *step = tsr_replay_step_of(w, 0);
	struct tsr_replay_signing *k = w->r->signing;

	if (!k || step->skipped)
		return TSR_OK;
	k->w = w;
	return append(k, step->step, recorded->has_loss ? recorded->loss : (double)NAN, step->lr);
}

/* --- The file ---------------------------------------------------------------------------------- */

static enum tsr_status write_head(struct tsr_replay_signing *k)
{
	unsigned char start[TSR_SIGNATURES_HEAD_AT] = TSR_SIGNATURES_MAGIC;
	TSR_SCOPED(tsr_text_free) struct tsr_text json = { 0 };

	put_head(&json, k->r, k);
	if (json.failed)
		return tsr_fail_nomem(k->r->err, k->r->options->signatures);
	tsr_put_le(start + 8, json.nbytes, 8);
	tsr_put_le(start + 16, tsr_hash(json.bytes, json.nbytes, 0), 8);
	TSR_TRY(tsr_outfile_write(k->file, start, sizeof(start), 0, k->r->err));
	k->at = sizeof(start) + json.nbytes;
	return tsr_outfile_write(k->file, json.bytes, json.nbytes, sizeof(start), k->r->err);
}

enum tsr_status tsr_replay_begin_signing(struct tsr_replaying *r)
{
	const char *path = r->options->signatures;
	const struct tsr_replay_step *first = &r->result->steps[0];
	struct tsr_replay_signing *k;

	TSR_TRY(TSR_TAKE(&k, 1, r->result->arena, r->err, path));
	r->signing = k;
	k->r = r;
	TSR_TRY(TSR_TAKE(&k->jobs, EACH * r->nparams + 1, r->result->arena, r->err, path));
	TSR_TRY(TSR_TAKE(&k->grads, r->nparams + 1, r->result->arena, r->err, path));
	TSR_TRY(TSR_TAKE(&k->read, EACH * r->nparams + 1, r->result->arena, r->err, path));
	TSR_TRY(TSR_TAKE(&k->resident, EACH * r->nparams + 1, r->result->arena, r->err, path));
	TSR_TRY(TSR_TAKE(&k->signatures, EACH * r->nparams + 1, r->result->arena, r->err, path));
	for (size_t i = 0; i < EACH * r->nparams; i++) {
		if (i % EACH == GRADIENT || r->params[i / EACH].coding[i % EACH].codec)
			k->jobs[k->njobs++] = i;
	}
	k->step_nbytes = tsr_signed_step_nbytes(r->result->ngroups, k->njobs);
	TSR_TRY(TSR_TAKE(&k->step, k->step_nbytes, r->result->arena, r->err, path));
	for (size_t i = 0; i < r->nparams; i++)
		k->grads[i] = (struct tsr_tensor){ .name = r->params[i].recorded,
						   .dtype = r->params[i].grad_dtype,
						   .numel = r->params[i].numel,
						   .nplanes = 1 };
	TSR_TRY(tsr_outfile_create(path, r->options->force, 0, &k->file, r->err));
	TSR_TRY(write_head(k));
	return append(k, first->step - 1, (double)NAN, first->lr);
}

enum tsr_status tsr_replay_end_signing(struct tsr_replaying *r)
{
	return tsr_outfile_publish(&r->signing->file, r->err);
}

void tsr_replay_drop_signing(struct tsr_replaying *r)
{
	if (r->signing)
		tsr_outfile_discard(r->signing->file);
}
