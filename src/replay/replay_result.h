/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_REPLAY_REPLAY_RESULT_H
#define TSR_REPLAY_REPLAY_RESULT_H

/* The outcome of a replay; users of the library have the functions of tersor/replay.h. */

#include "tersor/recording.h"
#include "tersor/replay.h"

struct tsr_mapped;

/* Who says in which order: the caller, the recording, or nobody. */
enum tsr_order_from { TSR_ORDER_FROM_OPTION, TSR_ORDER_FROM_RECORDING, TSR_ORDER_FROM_DEFAULT };

/* The outcome of tsr_replay(). */
struct tsr_replay {
	struct tsr_checkpoint *source;
	struct tsr_arena *arena; /* has the lists and texts, but for the warnings, which grow */
	const char *recording; /* its path, as it was given */
	enum tsr_optimizer optimizer;
	enum tsr_order order; /* that it was replayed in */
	enum tsr_order_from order_from;
	struct tsr_recorded_run recorded;
	struct tsr_coding coding[TSR_SLOTS];
	bool widened[TSR_SLOTS]; /* scales are f32 instead of e8m8, which could not follow */
	enum tsr_hyper_name
		decay[TSR_SLOTS]; /* of what a step without a gradient leaves of a slot */
	double decays[TSR_SLOTS]; /* its largest value of all groups */
	size_t nparams;
	const char *const *params; /* that were stepped, in the checkpoint's order */
	size_t ngroups;
	struct tsr_hyper *hyper; /* per group, as they were used; lr is each step's */
	size_t nsteps;
	struct tsr_replay_step *steps;
	double *lr; /* per step and group; each step has its slot */
	bool compared;
	size_t nwarnings;
	struct tsr_numerics_warning *warnings; /* the first per parameter */
	size_t nskipped; /* steps */
	size_t nmissing; /* parameters that some step has no gradient for */
	struct tsr_replay_missing *missing;
	uint64_t first_count; /* number of steps that the state had seen before */
	bool gate_failed;
	size_t gate, gate_step, gate_param; /* the first that failed; indices */
	struct tsr_gate failed; /* that gate */
	unsigned *gpus; /* that it was stepped on */
	unsigned ngpus; /* 0: on the CPU */
	uint64_t nonfinite; /* values of the state after the last step that are not finite */
	uint64_t state_nbytes; /* resident */
	uint64_t grad_nbytes; /* read */
	uint64_t out_nbytes; /* written, or to be written */
	bool dry_run; /* nothing was read but headers */
	struct tsr_replay_param *state; /* of @nparams, which the source's tensors refer to */
	struct tsr_mapped *disk; /* that has the state; NULL: memory has it */
	unsigned threads; /* that free the state */
};

#endif
