/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_REPLAY_MAKE_H
#define TSR_TESTS_REPLAY_MAKE_H

/* Outcomes of replays made by hand, for what reports say of them. */
#include <math.h>

#include "ckpt/checkpoint_model.h"
#include "replay/replay_result.h"
#include "unit.h"

#define MADE_PARAMS 3
#define MADE_STEPS_MAX 3000

struct made {
	struct tsr_replay replay;
	struct tsr_checkpoint source;
	struct tsr_tensor tensors[MADE_PARAMS];
	size_t by_name[MADE_PARAMS];
	const char *params[MADE_PARAMS];
	struct tsr_hyper hyper[2];
	struct tsr_replay_step steps[MADE_STEPS_MAX];
	struct tsr_replay_figures figures[MADE_STEPS_MAX][MADE_PARAMS];
	double lr[MADE_STEPS_MAX][2];
	struct tsr_numerics_warning warning;
};

/* A value that differs for every figure, step and parameter and is largest in none of the last. */
static inline UNUSED double made_value(unsigned figure, size_t step, size_t param)
{
	return ldexp(1 + (double)((step * 37 + param * 11 + figure) % 101) / 128,
		     -20 + (int)figure);
}

static inline UNUSED void make_figures(struct made *m, size_t step)
{
	struct tsr_replay_step *s = &m->steps[step];

	s->tensors = m->figures[step];
	for (unsigned f = 0; f < TSR_FIGURE_COUNT; f++) {
		s->total.value[f] = made_value(f, step, 7);
		for (size_t p = 0; p < MADE_PARAMS; p++)
			s->tensors[p].value[f] = made_value(f, step, p);
	}
	for (size_t p = 0; p < MADE_PARAMS; p++) {
		struct tsr_replay_figures *f = &s->tensors[p];

		f->value[TSR_FIGURE_WEIGHT_ULP] = (double)(100 + (step * 7 + p * 3) % 41);
		f->value[TSR_FIGURE_WEIGHT_COSINE] = 1 - 0x1p-20 * (double)(p + 1);
		f->value[TSR_FIGURE_STALLED] = (double)p;
		f->value[TSR_FIGURE_UNDERFLOW] = f->value[TSR_FIGURE_VARIANCE_LOST] = 0;
	}
	s->total.value[TSR_FIGURE_WEIGHT_ULP] = 141;
	s->total.value[TSR_FIGURE_STALLED] = 3;
	s->total.value[TSR_FIGURE_UNDERFLOW] = s->total.value[TSR_FIGURE_VARIANCE_LOST] = 0;
}

static inline UNUSED void make_state(struct made *m)
{
	static const char *const codecs[TSR_SLOTS] = { "bf16+ulp8", "softsign8", "sqrt8" };

	for (unsigned p = 0; p < TSR_SLOT_MAX_VARIANCE; p++)
		m->replay.coding[p] = tsr_coding_default(tsr_codec_find(codecs[p]));
}

/* Names in their order: 1000, 64 and 33 elements; two groups; the first step is 401. */
static inline UNUSED struct made *make_replay(size_t nsteps)
{
	static const char *const names[MADE_PARAMS] = { "a.weight", "b.bias", "c,\"d\"<e>&\x1b" };
	static const uint64_t numel[MADE_PARAMS] = { 1000, 64, 33 };
	struct made *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	assert_true(nsteps <= MADE_STEPS_MAX);
	m->replay = (struct tsr_replay){
		.source = &m->source,
		.optimizer = TSR_OPTIMIZER_ADAMW,
		.nparams = MADE_PARAMS,
		.params = m->params,
		.ngroups = 2,
		.hyper = m->hyper,
		.nsteps = nsteps,
		.steps = m->steps,
		.compared = true,
		.first_count = 400,
		.state_nbytes = 5621,
		.grad_nbytes = 2194,
		.out_nbytes = 7000,
	};
	make_state(m);
	m->source = (struct tsr_checkpoint){ .path = "made.safetensors",
					     .ntensors = MADE_PARAMS,
					     .tensors = m->tensors,
					     .tensor_by_name = m->by_name };
	for (size_t p = 0; p < MADE_PARAMS; p++) {
		m->params[p] = names[p];
		m->tensors[p] = (struct tsr_tensor){ .name = names[p], .numel = numel[p] };
		m->by_name[p] = p;
	}
	for (unsigned g = 0; g < 2; g++) {
		tsr_hyper_put(&m->hyper[g], TSR_HYPER_BETA1, 0.9);
		tsr_hyper_put(&m->hyper[g], TSR_HYPER_WEIGHT_DECAY, g ? 0.0 : 0.1);
	}
	for (size_t i = 0; i < nsteps; i++) {
		m->lr[i][0] = 1e-3 * (double)(nsteps - i);
		m->lr[i][1] = 0.5;
		m->steps[i].step = 401 + i;
		m->steps[i].lr = m->lr[i];
		make_figures(m, i);
	}
	return m;
}

/* As after a step with gradients that are not finite. */
static inline UNUSED void make_skipped(struct made *m, size_t step)
{
	m->steps[step].skipped = true;
	m->steps[step].tensors = NULL;
	m->steps[step].total = (struct tsr_replay_figures){ { 0 } };
	m->replay.nskipped++;
}

#endif
