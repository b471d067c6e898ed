/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a replay share: parameters, their resident state, and the plan of the steps. */
#ifndef TSR_REPLAY_ENGINE_H
#define TSR_REPLAY_ENGINE_H

#include "tersor/recording.h"
#include "step/step.h"
#include "tersor/replay.h"

struct tsr_value;

/* Elements that a thread takes at a time; docs/replay.md names it, since sums are added by it. */
#define TSR_REPLAY_PIECE 65536u

/* The longest run of elements that cannot be cut: groups of two codecs may have little in common. */
#define TSR_REPLAY_ALIGN_MAX (UINT64_C(1) << 22)

/* Steps whose files are open at once, so that a piece of the state takes them one after another. */
#define TSR_REPLAY_WINDOW 8u

/* A parameter and its state, which is resident from loading on. */
struct tsr_replay_param {
	const char *name; /* of its weight in the checkpoint */
	const char *recorded; /* in the recording */
	size_t group; /* of the recording */
	unsigned kinds; /* what it keeps besides the weight: a mask of enum tsr_kind */
	uint64_t numel;
	uint64_t piece; /* elements of a job: a multiple of what steps and codecs need */
	size_t tensor[TSR_PARTS]; /* indices into the checkpoint's; SIZE_MAX: not there yet */
	size_t counter; /* the tensor that counts its steps; SIZE_MAX: none */
	struct tsr_value *scalar; /* the number that does, if no tensor does; NULL: none */
	struct tsr_coding coding[TSR_PARTS]; /* codec NULL: the rule keeps no such part */
	unsigned char *plane[TSR_PARTS][TSR_PLANES_MAX];
	float *fp32[TSR_PARTS]; /* the state of the replay in FP32 beside it; NULL without */
	uint64_t count; /* steps taken */
	size_t nseen; /* steps that have a gradient for it */
	size_t first_missing; /* index of the first that has none, if any */
	bool fresh; /* it has no momentum yet */
	bool lossy; /* something was encoded with loss that was not so before */
};

/* What a struct tsr_replay has that its users need not see. */
struct tsr_replay_owned {
	struct tsr_replay_param *params; /* with the state, which the source's tensors refer to */
	size_t nparams;
	struct tsr_hyper *hyper;
	double *lr;
	char *recording;
	unsigned threads; /* that free the state */
};

/* A parameter of the recording, whether it is stepped or not. */
struct tsr_replay_listed {
	const char *name; /* of its weight in the checkpoint */
	size_t tensor; /* that weight */
	size_t group; /* of the recording */
	size_t param; /* index of the parameter that is stepped; SIZE_MAX: no step has its gradient */
};

/* A replay under way. */
struct tsr_replaying {
	const struct tsr_replay_options *options;
	const struct tsr_run *run;
	struct tsr_checkpoint *c;
	struct tsr_recording *recording;
	struct tsr_replay *result;
	size_t first; /* index of the first step in the recording; the result says how many */
	size_t nrecorded;
	/* In the order of the recording's groups; of the checkpoint if the recording lists none. */
	struct tsr_replay_listed *listed;
	bool stray_state; /* some state in the checkpoint is of no weight that is known */
	size_t nparams;
	struct tsr_replay_param *params; /* those that are stepped, in the checkpoint's order */
	size_t *by_recorded; /* indices of params, sorted by their name in the recording */
	struct tsr_hyper *hyper; /* per group */
	double *lr; /* per step and group */
	uint64_t done_nbytes, total_nbytes; /* for progress: of gradients */
	struct tsr_replay_adding
		*adding; /* where new states go in the output; NULL: there is none */
	struct tsr_replay_gpu *gpu; /* that it steps on; NULL: the CPU */
	struct tsr_err *err;
};

/* --- Parameters (params.c) ------------------------------------------------------------------ */

/*
 * Match the recording's parameters with the checkpoint's tensors, and look at the headers of every
 * step: TSR_E_FORMAT names the step and the tensor that is missing, extra or of another shape.
 */
enum tsr_status tsr_replay_find_params(struct tsr_replaying *r);

/* The parameter of this name in the recording, or NULL. */
const struct tsr_replay_param *tsr_replay_param_of(const struct tsr_replaying *r,
						   const char *recorded);

/* Whether the recording lists the parameters of every group, in the order of its optimizer. */
bool tsr_replay_is_listed(const struct tsr_recording *recording);

/* Whether the checkpoint has a momentum or a variance of a parameter. */
bool tsr_replay_has_any_state(const struct tsr_replay_param *p);

/* --- Gradients that are missing (missing.c) ----------------------------------------------------- */

/* Note that a step has a gradient for the parameter; steps come in their order. */
void tsr_replay_saw_gradient(struct tsr_replay_param *p, size_t step);

/*
 * Put what all steps together lack of @n parameters into the result; TSR_E_FORMAT, naming the first
 * step and parameter, if that is to fail.
 */
enum tsr_status tsr_replay_list_missing(struct tsr_replaying *r,
					const struct tsr_replay_param *params, size_t n);

/* --- Hyperparameters (hyper.c) -------------------------------------------------------------- */

/* Choose steps, optimizer, hyperparameters per group and lr per step. */
enum tsr_status tsr_replay_choose_steps(struct tsr_replaying *r);
enum tsr_status tsr_replay_choose_hyper(struct tsr_replaying *r);

/* --- Counting steps (counters.c) ------------------------------------------------------------ */

/* Find how many steps each parameter has seen. */
enum tsr_status tsr_replay_read_counts(struct tsr_replaying *r);

/* Put the counts, and the number of the last step, into the checkpoint. */
enum tsr_status tsr_replay_write_counts(struct tsr_replaying *r);

/* --- State (state.c) ------------------------------------------------------------------------ */

/* Settle codings and allocate; then read, verify, decode and encode. */
enum tsr_status tsr_replay_plan_state(struct tsr_replaying *r);
enum tsr_status tsr_replay_load_state(struct tsr_replaying *r);
void tsr_replay_free_state(struct tsr_replay_param *params, size_t n, unsigned threads);

/* The coding of a part for the step with this number: random bits differ from step to step. */
struct tsr_coding tsr_replay_coding_at(const struct tsr_coding *coding, uint64_t step);

/* --- Stepping (stepping.c) ------------------------------------------------------------------- */

enum tsr_status tsr_replay_run_steps(struct tsr_replaying *r);

/* --- Values that are not finite (finite.c) ----------------------------------------------------- */

/*
 * Count those of the state after the last step in the result: TSR_E_UNSUPPORTED if there are any
 * and it is to be @written, else a note for the user.
 */
enum tsr_status tsr_replay_check_finite(struct tsr_replaying *r, bool written);

/* Add "N WHAT" to a list in words, unless @n is 0. */
void tsr_replay_put_count(char *text, size_t room, uint64_t n, const char *what);

/* --- Numerics (spacing.c) --------------------------------------------------------------------- */

/*
 * How far apart the values of a weight codec are next to @magnitude; docs/replay.md has the table.
 * Infinite if it cannot hold @magnitude.
 */
double tsr_replay_spacing(const struct tsr_codec *codec, float magnitude);

/* Whether an update of the size of @lr is too small to move the largest weight. */
bool tsr_replay_is_stalled(const struct tsr_codec *codec, float largest, double lr);

/* --- The result (output.c, additions.c) ------------------------------------------------------ */

/* Whether the state goes into a packed file. */
bool tsr_replay_is_packed(const struct tsr_replaying *r);

/* TSR_E_USAGE or TSR_E_UNSUPPORTED if an output of the asked for kind cannot hold the state. */
enum tsr_status tsr_replay_check_form(const struct tsr_replaying *r, const char *out);

/*
 * Settle before the first step where states will go that the checkpoint does not have:
 * TSR_E_UNSUPPORTED if nothing tells.  Call it if there will be an output.
 */
enum tsr_status tsr_replay_plan_additions(struct tsr_replaying *r);
void tsr_replay_free_additions(struct tsr_replaying *r);

/* Add tensors for these states, and for counters. */
enum tsr_status tsr_replay_add_states(struct tsr_replaying *r);

/* Write the checkpoint with its new state, or only plan it. */
enum tsr_status tsr_replay_write(struct tsr_replaying *r, const char *out);

#endif
