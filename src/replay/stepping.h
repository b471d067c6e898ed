/* SPDX-License-Identifier: Apache-2.0 */
/* Running a replay: its state, its steps, and what it writes. */
#ifndef TSR_REPLAY_STEPPING_H
#define TSR_REPLAY_STEPPING_H

#include "replay/window.h"

/* Step the loaded state, which is on GPUs if there is r->gpus. */
enum tsr_status tsr_replay_run_steps(struct tsr_replaying *r);

/* --- Values that are not finite, in gradients and in the state after the last step ------------ */

/* Look through all gradients of an open window, and mark the steps with such a one as skipped. */
enum tsr_status tsr_replay_skip_steps(struct tsr_replay_window *w);

/* After a tile was found to have one: fail with the first of the first step that has any. */
enum tsr_status tsr_replay_name_nonfinite(struct tsr_replay_window *w);

/*
 * Count such values of the state in the result: TSR_E_UNSUPPORTED if there are any and it is to
 * be @written, else a note for the user.
 */
enum tsr_status tsr_replay_check_state(struct tsr_replaying *r, bool written);

/* --- Signatures of a replay: a file of them, step by step ------------------------------------- */

struct tsr_replay_signing;

/* Begin the file with the state before the first step, once it is loaded. */
enum tsr_status tsr_replay_begin_signing(struct tsr_replaying *r);

/* The gradients of the window, which has one step, and the state after it. */
enum tsr_status tsr_replay_sign_step(struct tsr_replay_window *w);

/* Put the file in place; free what is there, if anything is. */
enum tsr_status tsr_replay_end_signing(struct tsr_replaying *r);
void tsr_replay_drop_signing(struct tsr_replaying *r);

/* --- The result: the checkpoint that was read, with its new state ----------------------------- */

/* TSR_E_USAGE or TSR_E_UNSUPPORTED if an output of the requested kind cannot hold the state. */
enum tsr_status tsr_replay_check_form(const struct tsr_replaying *r, const char *out);

/* Write the checkpoint with its new state, or only plan it. */
enum tsr_status tsr_replay_write(struct tsr_replaying *r, const char *out);

/* Let the tensors of the checkpoint have the state, where it is in memory. */
enum tsr_status tsr_replay_place_state(struct tsr_replaying *r);

/* The same for options->each_step, before the first step; TSR_E_UNSUPPORTED if it cannot be shown. */
enum tsr_status tsr_replay_show_state(struct tsr_replaying *r);

/* --- The resident state: how it gets into memory, and out of it ------------------------------- */

/* Whether the momentum of a parameter is kept in ratios to its variance. */
static inline bool tsr_replay_is_relative(const struct tsr_replay_param *p)
{
	const struct tsr_codec *codec = p->coding[TSR_SLOT_MOMENTUM].codec;

	return codec && codec->relative;
}

/* Allocate the states of @first and of those that also take its steps; read, verify, decode and encode. */
enum tsr_status tsr_replay_load_states(struct tsr_replaying *first);

/* With the state @on_disk, that has its memory. */
void tsr_replay_free_state(struct tsr_replay_param *params, size_t n, bool on_disk,
			   unsigned threads);

#endif
