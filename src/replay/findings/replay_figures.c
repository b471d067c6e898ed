/* SPDX-License-Identifier: Apache-2.0 */
/* Where the figures of a replay are worst. */
#include "replay/findings/replay_figures.h"

#include <math.h>

#include "replay/replay_result.h"
#include "replay/replaying.h"
#include "step/hyperparameters.h"

bool tsr_replay_has_figures(const struct tsr_replay *r, size_t step)
{
	return r->compared && !r->steps[step].skipped && r->steps[step].tensors;
}

struct tsr_replay_worst tsr_replay_worst_at(const struct tsr_replay *r, size_t step,
					    enum tsr_figure_name name)
{
	struct tsr_replay_worst worst = { .step = step };
	double most = 0;

	if (!tsr_replay_has_figures(r, step))
		return worst;
	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_figures *f = &r->steps[step].tensors[i];
		const double error = tsr_figure_error(f, name);

		if (isnan(error) || (worst.any && error <= most))
			continue;
		worst = (struct tsr_replay_worst){ true, step, i, f->value[name] };
		most = error;
	}
	return worst;
}

struct tsr_replay_worst tsr_replay_worst(const struct tsr_replay *r, enum tsr_figure_name name)
{
	struct tsr_replay_worst worst = { .any = false };
	double most = 0;

	for (size_t i = 0; i < r->nsteps; i++) {
		const struct tsr_replay_worst here = tsr_replay_worst_at(r, i, name);
		const double error = here.any ? tsr_figure_error(&r->steps[i].tensors[here.param],
								 name)
					      : 0;

		if (!here.any || (worst.any && error <= most))
			continue;
		worst = here;
		most = error;
	}
	return worst;
}

size_t tsr_replay_worst_step(const struct tsr_replay *r, enum tsr_figure_name name)
{
	size_t worst = SIZE_MAX;
	double most = 0;

	for (size_t i = 0; i < r->nsteps; i++) {
		if (!tsr_replay_has_figures(r, i) || !(r->steps[i].total.value[name] > most))
			continue;
		most = r->steps[i].total.value[name];
		worst = i;
	}
	return worst;
}

double tsr_replay_largest(const struct tsr_replay *r, size_t param, enum tsr_figure_name name)
{
	double largest = NAN;

	for (size_t i = 0; i < r->nsteps; i++) {
		if (tsr_replay_has_figures(r, i))
			largest = fmax(largest,
				       tsr_figure_error(&r->steps[i].tensors[param], name));
	}
	return largest;
}

bool tsr_replay_lr_range(const struct tsr_replay *r, double *least_ret, double *most_ret)
{
	*least_ret = INFINITY;
	*most_ret = -INFINITY;
	for (size_t i = 0; i < r->nsteps; i++) {
		for (size_t g = 0; g < r->ngroups && r->steps[i].lr; g++) {
			*least_ret = fmin(*least_ret, r->steps[i].lr[g]);
			*most_ret = fmax(*most_ret, r->steps[i].lr[g]);
		}
	}
	return *least_ret <= *most_ret;
}

bool tsr_replay_has_hyper(const struct tsr_replay *r, size_t group, enum tsr_hyper_name name)
{
	return name != TSR_HYPER_LR && tsr_hyper_is_set(&r->hyper[group], name) &&
	       tsr_optimizer_uses(r->optimizer, name);
}

/* The steps that are a multiple of (nsteps - 1) / (rows - 1), rounded up. */
bool tsr_replay_in_sample(const struct tsr_replay *r, size_t step, size_t rows)
{
	const uint64_t last = r->nsteps - 1;

	return r->nsteps <= rows || (uint64_t)step * (rows - 1) % last < rows - 1;
}

uint64_t tsr_replay_numel(const struct tsr_replay *r, size_t param)
{
	const struct tsr_tensor *t;
	uint64_t sum = 0;

	if (param == SIZE_MAX) {
		for (size_t i = 0; i < r->nparams; i++)
			sum += tsr_replay_numel(r, i);
		return sum;
	}
	t = r->source ? tsr_checkpoint_find(r->source, r->params[param]) : NULL;
	return t ? t->numel : 0;
}

uint64_t tsr_replay_ngroups(const struct tsr_replay *r, size_t param)
{
	const struct tsr_tensor *t;
	uint64_t sum = 0;

	if (param == SIZE_MAX) {
		for (size_t i = 0; i < r->nparams; i++)
			sum += tsr_replay_ngroups(r, i);
		return sum;
	}
	t = r->source ? tsr_checkpoint_find(r->source, r->params[param]) : NULL;
	for (unsigned p = TSR_SLOT_MOMENTUM; p < TSR_SLOTS && t; p++) {
		struct tsr_coding coding = r->coding[p];

		if (!coding.codec || !coding.codec->grouped)
			continue;
		coding.row = tsr_coding_row(&coding, t->rank, t->shape);
		sum += tsr_plane_count(&coding, 1, t->numel);
	}
	return sum;
}

double tsr_replay_state_bytes(const struct tsr_replay *r)
{
	const double numel = (double)tsr_replay_numel(r, SIZE_MAX);
	uint64_t nbytes = 0;

	for (size_t i = 0; i < r->nparams; i++) {
		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			const struct tsr_coding *coding = &r->state[i].coding[slot];

			for (unsigned k = 0; coding->codec && k < coding->codec->nplanes; k++)
				nbytes += tsr_plane_nbytes(coding, k, r->state[i].numel);
		}
	}
	return numel > 0 ? (double)nbytes / numel : 0;
}

size_t tsr_replay_last_compared(const struct tsr_replay *r)
{
	for (size_t i = r->nsteps; i--;) {
		if (tsr_replay_has_figures(r, i))
			return i;
	}
	return SIZE_MAX;
}
