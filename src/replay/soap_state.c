/* SPDX-License-Identifier: Apache-2.0 */
/* What SOAP keeps besides momenta and variances: factors of the sides of a matrix, and their eigenbases. */
#include "replay/soap_state.h"

#include "base/fail.h"
#include "codec/nonfinite.h"
#include "names/aliases.h"
#include "text/shape.h"

static const char *const fields[TSR_BASES] = { "GG.0", "GG.1", "Q.0", "Q.1" };

static enum tsr_status refuse(const struct tsr_replaying *r, const struct tsr_replay_param *p,
			      const char *found, const char *expected)
{
	return tsr_fail(r->err, TSR_E_UNSUPPORTED, "%s: tensor %.200s: found %s, expected %s",
			r->c->path, p->name, found, expected);
}

static bool is_called(const struct tsr_replaying *r, size_t tensor, const char *name)
{
	return tensor != SIZE_MAX && strcmp(tsr_names_last(r->c->tensors[tensor].name), name) == 0;
}

/* Both programs have one of all rows or columns of a matrix that are no longer than a limit. */
static enum tsr_status find_one(struct tsr_replaying *r, struct tsr_replay_param *p, unsigned i)
{
	const struct tsr_tensor *w = &r->c->tensors[p->tensor[TSR_SLOT_WEIGHT]], *t;
	const char *momentum = r->c->tensors[p->tensor[TSR_SLOT_MOMENTUM]].name;
	const double most = r->result->hyper[p->group].value[TSR_HYPER_MAX_PRECOND_DIM];
	const bool turned = w->rank == 2 && w->numel && (double)w->shape[i % 2] <= most;
	const uint64_t n = turned ? w->shape[i % 2] : 0;
	const char *name = tsr_arena_printf(r->c->arena, "%.*s%s",
					    (int)(tsr_names_last(momentum) - momentum), momentum,
					    fields[i]);

	if (!name)
		return tsr_fail_nomem(r->err, r->c->path);
	t = tsr_checkpoint_find(r->c, name);
	if (!t != !n)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found %s%s, expected %s by max_precond_dim "
				"%.17g, without merge_dims and precondition_1d",
				r->c->path, p->name, t ? "" : "no ", fields[i], n ? "one" : "none",
				most);
	p->side[i % 2] = (uint32_t)n;
	p->basis[i] = t ? (size_t)(t - r->c->tensors) : SIZE_MAX;
	if (!t || (t->dtype == TSR_F32 && t->rank == 2 && t->shape[0] == n && t->shape[1] == n))
		return TSR_OK;
	return tsr_fail(r->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found %s of shape %s, expected F32 of %s", r->c->path,
			t->name, tsr_dtype_name(t->dtype), tsr_shape_words(t->rank, t->shape).text,
			tsr_shape_words(2, (uint64_t[]){ n, n }).text);
}

/* What both programs settle at their first step, and go by from then on. */
static enum tsr_status check_numbers(const struct tsr_replaying *r,
				     const struct tsr_replay_param *p)
{
	static const enum tsr_hyper_name kept[] = { TSR_HYPER_SHAMPOO_BETA,
						    TSR_HYPER_PRECONDITION_FREQUENCY };

	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		const char *name = tsr_hyper_name(kept[i]);
		const struct tsr_value *own = r->parameters.list[p - r->params].state,
				       *v = own ? tsr_value_at(own, name) : NULL;
		const double x = r->result->hyper[p->group].value[kept[i]];

		if (v && tsr_value_number(v) != x)
			return tsr_fail(
				r->err, TSR_E_UNSUPPORTED,
				"%s: %s of %.200s: found %.17g in its state, expected %.17g",
				r->c->path, name, p->name, tsr_value_number(v), x);
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_find_bases(struct tsr_replaying *r)
{
	for (size_t i = 0; i < r->nparams && r->result->optimizer == TSR_OPTIMIZER_SOAP; i++) {
		struct tsr_replay_param *p = &r->params[i];

		if (r->options->zero_state ||
		    !is_called(r, p->tensor[TSR_SLOT_MOMENTUM], "exp_avg") ||
		    !is_called(r, p->tensor[TSR_SLOT_VARIANCE], "exp_avg_sq"))
			return refuse(r, p, "no exp_avg and exp_avg_sq to begin with",
				      "those of soap: replay does not make its first eigenbases");
		TSR_TRY(TSR_TAKE(&p->basis, TSR_BASES, r->result->arena, r->err, r->c->path));
		for (unsigned k = 0; k < TSR_BASES; k++)
			TSR_TRY(find_one(r, p, k));
		TSR_TRY(check_numbers(r, p));
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_check_bases(const struct tsr_replaying *r,
				       const struct tsr_replay_param *p)
{
	const bool counted = p->counter != SIZE_MAX ||
			     (p->scalar && p->scalar != r->parameters.group_step);

	if (r->result->order != TSR_ORDER_PYTORCH_OPTIMIZER)
		return counted || r->options->has_count
			       ? TSR_OK
			       : refuse(r, p, "no step beside its state",
					"one, as its authors' soap has it; pytorch_optimizer's is "
					"another order");
	if (counted)
		return refuse(r, p, "a step beside its state",
			      "none, as pytorch_optimizer's soap counts those of groups");
	if (p->nseen < r->result->nsteps || !p->count)
		return refuse(r, p,
			      p->count ? "steps without its gradient" : "no step before these",
			      "none and one, as pytorch_optimizer's soap counts them");
	return TSR_OK;
}

enum tsr_status tsr_replay_load_bases(const struct tsr_replaying *r,
				      const struct tsr_replay_param *p,
				      struct tsr_read_scratch *scratch, struct tsr_err *err)
{
	for (unsigned i = 0; i < TSR_BASES; i++) {
		if (p->side[i % 2])
			TSR_TRY(tsr_tensor_read_f32(r->c, &r->c->tensors[p->basis[i]], 0,
						    (size_t)p->side[i % 2] * p->side[i % 2],
						    scratch, tsr_replay_basis(p, i), err));
	}
	return TSR_OK;
}

uint64_t tsr_replay_count_nonfinite_bases(const struct tsr_replay_param *p)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < TSR_BASES; i++)
		count += tsr_count_nonfinite(
			TSR_F32, tsr_replay_basis(p, i),
			(size_t)tsr_replay_basis_nbytes(p, TSR_REPLAY_BASES + i));
	return count;
}
