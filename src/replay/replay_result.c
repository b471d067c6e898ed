/* SPDX-License-Identifier: Apache-2.0 */
/* What a user of the library sees of a replay. */
#include "replay/replay_result.h"

const struct tsr_checkpoint *tsr_replay_source(const struct tsr_replay *r)
{
	return r->source;
}

size_t tsr_replay_nparams(const struct tsr_replay *r)
{
	return r->nparams;
}

const char *tsr_replay_param(const struct tsr_replay *r, size_t index)
{
	return index < r->nparams ? r->params[index] : NULL;
}

size_t tsr_replay_nsteps(const struct tsr_replay *r)
{
	return r->nsteps;
}

const struct tsr_replay_step *tsr_replay_step(const struct tsr_replay *r, size_t index)
{
	return index < r->nsteps ? &r->steps[index] : NULL;
}

size_t tsr_replay_nwarnings(const struct tsr_replay *r)
{
	return r->nwarnings;
}

const struct tsr_numerics_warning *tsr_replay_warning(const struct tsr_replay *r, size_t index)
{
	return index < r->nwarnings ? &r->warnings[index] : NULL;
}

size_t tsr_replay_nmissing(const struct tsr_replay *r)
{
	return r->nmissing;
}

const struct tsr_replay_missing *tsr_replay_missing(const struct tsr_replay *r, size_t index)
{
	return index < r->nmissing ? &r->missing[index] : NULL;
}

const struct tsr_gate *tsr_replay_failed_gate(const struct tsr_replay *r, size_t *step_ret,
					      size_t *param_ret)
{
	if (!r->gate_failed)
		return NULL;
	*step_ret = r->gate_step;
	*param_ret = r->gate_param;
	return &r->failed;
}

unsigned tsr_replay_gpus(const struct tsr_replay *r, const unsigned **indices_ret)
{
	*indices_ret = r->gpus;
	return r->ngpus;
}
