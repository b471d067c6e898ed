/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of steps: their files, which gradient is for which parameter, and the scalars of steps. */
#include "replay/window.h"

#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "recording/recording_data.h"

/*
 * Windows are shorter where they would have too many gradients, of which each takes some 200 bytes,
 * or too many files open at once.
 */
#define MANY_GRADS 65536u
#define MANY_FILES 256u

/* --- Memory ----------------------------------------------------------------------------------- */

enum tsr_status tsr_replay_window_init(struct tsr_replay_window *w, struct tsr_replaying *r)
{
	const size_t n = r->nparams ? MANY_GRADS / r->nparams : TSR_REPLAY_WINDOW;

	*w = (struct tsr_replay_window){ .r = r };
	w->longest_window = n < 1 ? 1 : n < TSR_REPLAY_WINDOW ? (unsigned)n : TSR_REPLAY_WINDOW;
	/* A GPU has the sums of a comparison for one step. */
	if (tsr_replay_looks(r->options) || (r->gpus && r->options->compare))
		w->longest_window = 1;
	return TSR_NEW(&w->grads, w->longest_window * r->nparams + 1, r->err, r->c->path);
}

void tsr_replay_window_free(struct tsr_replay_window *w)
{
	free(w->grads);
}

/* --- Files ------------------------------------------------------------------------------------ */

/* How many steps the window from w->first on has; all their files are open at once. */
static unsigned length(const struct tsr_replay_window *w)
{
	const struct tsr_recording_step *steps = w->r->recording->steps + w->r->first + w->first;
	size_t nfiles = steps[0].nfiles;
	unsigned n = 1;

	while (n < w->longest_window && w->first + n < w->r->result->nsteps &&
	       steps[n].nfiles <= MANY_FILES - (nfiles < MANY_FILES ? nfiles : MANY_FILES))
		nfiles += steps[n++].nfiles;
	return n;
}

static const struct tsr_tensor *weight_of(const struct tsr_replaying *r, size_t param)
{
	return &r->c->tensors[r->params[param].tensor[TSR_SLOT_WEIGHT]];
}

/* Open a step and find the parameter of each gradient; the files must not have changed since. */
static enum tsr_status open_step(struct tsr_replay_window *w, unsigned step)
{
	struct tsr_replaying *r = w->r;
	const size_t index = r->first + w->first + step;
	struct tsr_checkpoint *c;
	enum tsr_status status;

	TSR_TRY(tsr_recording_open_step(r->recording, index, &w->steps[step], r->err));
	c = w->steps[step];
	status = tsr_records_check(c, NULL, r->err);
	if (status != TSR_OK) {
		tsr_recording_name_step(r->recording, index, r->err);
		return status;
	}
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const size_t param = tsr_replay_param_of(r, t->name);

		if (param == SIZE_MAX || !tsr_tensor_same_shape(t, weight_of(r, param)))
			return tsr_fail(r->err, TSR_E_IO,
					"%s: step %" PRIu64
					": tensor %.200s: changed while reading",
					c->path, tsr_replay_step_of(w, step)->step, t->name);
		w->grads[step * r->nparams + param].array = &c->arrays[t->plane[0]];
	}
	tsr_build_drop_tensors(c);
	return TSR_OK;
}

enum tsr_status tsr_replay_window_open(struct tsr_replay_window *w)
{
	w->n = length(w);
	memset(w->grads, 0, w->n * w->r->nparams * sizeof(*w->grads));
	for (unsigned i = 0; i < w->n; i++)
		TSR_TRY(open_step(w, i));
	return TSR_OK;
}

void tsr_replay_window_close(struct tsr_replay_window *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		tsr_checkpoint_close(w->steps[i]);
		w->steps[i] = NULL;
	}
}

/* --- Steps ------------------------------------------------------------------------------------ */

/* The entry of a parameter that the step takes, or NULL. */
static struct tsr_replay_grad *grad_of(const struct tsr_replay_window *w, unsigned step,
				       size_t param)
{
	struct tsr_replay_grad *g = &w->grads[step * w->r->nparams + param];

	return !g->array || tsr_replay_step_of(w, step)->skipped ? NULL : g;
}

const struct tsr_array *tsr_replay_grad(const struct tsr_replay_window *w, unsigned step,
					size_t param)
{
	const struct tsr_replay_grad *g = grad_of(w, step, param);

	return g ? g->array : NULL;
}

/* The scalars of a step of w->r, or of one that also takes it: there are too many to keep. */
static struct tsr_step_scalars scalars_of(const struct tsr_replay_window *w,
					  const struct tsr_replaying *r, unsigned step,
					  size_t param)
{
	const struct tsr_replay_param *p = &w->r->params[param];
	const struct tsr_replay_grad *g = grad_of(w, step, param);
	struct tsr_hyper h = r->result->hyper[p->group];
	struct tsr_step_scalars s;

	tsr_hyper_put(&h, TSR_HYPER_LR, tsr_replay_step_in(r, w, step)->lr[p->group]);
	s = tsr_step_scalars(r->result->order, r->result->optimizer, &h, g->count, g->fresh);
	s.elements = weight_of(w->r, param)->numel;
	/* The lr of an update that is made orthogonal depends on its shape. */
	if (p->rows && tsr_optimizer_is_muon(r->result->optimizer))
		s.rate = tsr_step_matrix_rate(&h, p->rows, p->columns);
	return s;
}

void tsr_replay_plan_steps(struct tsr_replay_window *w)
{
	const struct tsr_replaying *r = w->r;

	for (size_t i = 0; i < r->nparams; i++) {
		struct tsr_replay_param *p = &r->params[i];

		for (unsigned step = 0; step < w->n; step++) {
			struct tsr_replay_grad *g = grad_of(w, step, i);

			if (!g)
				continue;
			g->count = ++p->count;
			g->fresh = p->fresh;
			p->fresh = false;
		}
	}
}

struct tsr_step tsr_replay_step_at(const struct tsr_replay_window *w, const struct tsr_replaying *r,
				   unsigned step, size_t param, uint64_t first)
{
	const struct tsr_replay_param *p = &r->params[param];
	const struct tsr_replay_grad *g = grad_of(w, step, param);
	struct tsr_step s = { .optimizer = r->result->optimizer, .order = r->result->order };

	if (g) {
		s.fp32 = scalars_of(w, w->r, step, param);
		s.scalars = r == w->r ? s.fp32 : scalars_of(w, r, step, param);
		s.grad_dtype = g->array->dtype;
		s.rows = p->rows;
		s.columns = p->columns;
		for (unsigned i = 0; i < TSR_BASES; i++) {
			s.side[i % 2] = p->side[i % 2];
			s.basis[i] = tsr_replay_basis(p, i);
		}
	}
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		if (!p->coding[slot].codec)
			continue;
		s.coding[slot] = tsr_replay_coding_at(&p->coding[slot],
						      tsr_replay_step_of(w, step)->step);
		s.coding[slot].first = first;
		/* The state of Gefen's program has the type of the gradient. */
		if (g && s.coding[slot].codec->learned && s.order == TSR_ORDER_GEFEN)
			s.coding[slot].narrow = g->array->dtype;
		tsr_replay_planes_at(&p->coding[slot], tsr_replay_planes(p, slot), first,
				     s.plane[slot]);
	}
	return s;
}

/* --- Gradients -------------------------------------------------------------------------------- */

enum tsr_status tsr_replay_read_grad(const struct tsr_replay_window *w, unsigned step,
				     const struct tsr_tile *tile, void *out, size_t *nbytes_ret,
				     uint32_t *crc_ret, struct tsr_err *err)
{
	const struct tsr_array *a = tsr_replay_grad(w, step, tile->tensor);
	const size_t each = tsr_dtype_bits(a->dtype) / 8;

	*nbytes_ret = tile->n * each;
	TSR_TRY(tsr_array_read(w->steps[step], a, tile->first * each, *nbytes_ret, out, err));
	if (crc_ret)
		*crc_ret = tsr_record_sum(a, out, *nbytes_ret);
	return TSR_OK;
}

enum tsr_status tsr_replay_commit_grad(struct tsr_replay_window *w, unsigned step,
				       const struct tsr_tile *tile, uint32_t crc,
				       struct tsr_err *err)
{
	const struct tsr_array *a = tsr_replay_grad(w, step, tile->tensor);
	const size_t each = tsr_dtype_bits(a->dtype) / 8, nbytes = tile->n * each;
	enum tsr_status status;

	w->r->result->grad_nbytes += nbytes;
	status = tsr_record_commit(&w->crc[step], w->steps[step], a, tile->first * each, nbytes,
				   crc, err);
	if (status != TSR_OK)
		tsr_recording_name_step(w->r->recording, w->r->first + w->first + step, err);
	return status;
}

enum tsr_status tsr_replay_check_report(struct tsr_replay_window *w, const struct tsr_replaying *r,
					unsigned step, size_t param,
					const struct tsr_step_report *report, struct tsr_err *err)
{
	const struct tsr_replay_param *p = &r->params[param];

	if (report->nonfinite_grad) {
		__atomic_store_n(&w->nonfinite, true, __ATOMIC_RELAXED);
		return tsr_fail(err, TSR_E_FORMAT, "%s: non-finite gradient", w->steps[step]->path);
	}
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		const struct tsr_encode_report *e = &report->encode[slot];
		char found[80] = "";

		tsr_replay_put_count(found, sizeof(found), e->narrow_overflow, "values");
		tsr_replay_put_count(found, sizeof(found), e->scale_overflow, "scales");
		if (*found)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: step %" PRIu64 ": tensor %.200s: found %s of its %s "
					"over the range of %s, expected none",
					w->steps[step]->path, tsr_replay_step_of(w, step)->step,
					p->name, found,
					tsr_kind_name(tsr_slot_kind((enum tsr_slot)slot)),
					p->coding[slot].codec->name);
	}
	return TSR_OK;
}
