/* SPDX-License-Identifier: Apache-2.0 */
/* A window of steps, for the loop over its pieces and for comparing them with FP32. */
#ifndef TSR_REPLAY_STEPPING_H
#define TSR_REPLAY_STEPPING_H

#include "ckpt/checkpoint_model.h"
#include "ckpt/checksum.h"
#include "replay/compare_fp32.h"
#include "replay/engine.h"

/* What a piece found at one step. */
struct tsr_replay_piece {
	size_t nbytes; /* of the gradient */
	uint32_t crc; /* of these, where the file has a checksum */
	float largest; /* magnitude of weights before the step, if it is asked for */
	size_t index; /* of a gradient that is not finite */
	struct tsr_compare compare;
};

/* Sums over the pieces of a window, per step. */
struct tsr_replay_sums {
	struct tsr_compare param[TSR_REPLAY_WINDOW]; /* of the parameter being committed */
	struct tsr_compare total[TSR_REPLAY_WINDOW];
	bool any[TSR_REPLAY_WINDOW]; /* whether total was begun */
};

struct tsr_replay_window {
	struct tsr_replaying *r;
	size_t first; /* index of its first step */
	unsigned n; /* steps */
	unsigned longest_window; /* the most that it may have */
	struct tsr_checkpoint *steps[TSR_REPLAY_WINDOW]; /* without their tensors, only arrays */
	/* Of all parameters at the first step, and so on; NULL: the step has none. */
	const struct tsr_array **grads;
	uint64_t *start; /* per parameter: its first job; one entry more at the end */
	size_t longest; /* elements of a job */
	size_t scratch_nbytes; /* of a job */
	bool nonfinite; /* a piece found a gradient that is not finite */
	/* Of the parameter being committed, per step: */
	struct tsr_record_crc crc[TSR_REPLAY_WINDOW];
	float largest[TSR_REPLAY_WINDOW];
	bool *warned; /* per parameter */
	struct tsr_replay_sums *compare; /* NULL: not asked for */
};

/* What a thread works on; FP32 arrays follow, of window->longest elements each. */
struct tsr_replay_job {
	size_t param;
	uint64_t first;
	size_t n;
	bool last; /* of its parameter */
	struct tsr_replay_piece piece[TSR_REPLAY_WINDOW];
	_Alignas(64) float x[];
};

static inline const struct tsr_replay_step *tsr_replay_step_of(const struct tsr_replay_window *w,
							       unsigned step)
{
	return &w->r->result->steps[w->first + step];
}

/* The gradient of a parameter, or NULL if the step does not take it. */
static inline const struct tsr_array *tsr_replay_grad(const struct tsr_replay_window *w,
						      unsigned step, size_t param)
{
	return tsr_replay_step_of(w, step)->skipped ? NULL : w->grads[step * w->r->nparams + param];
}

/* Bytes of @n elements of a gradient. */
static inline size_t tsr_replay_grad_nbytes(const struct tsr_array *grad, size_t n)
{
	return n * (tsr_dtype_bits(grad->dtype) / 8);
}

/* --- Pieces (stepping.c) ------------------------------------------------------------------------ */

/* Let @scratch be the piece with number @job. */
struct tsr_replay_job *tsr_replay_locate(const struct tsr_replay_window *w, void *scratch,
					 uint64_t job);

/* A step of a whole parameter that has a gradient for it. */
struct tsr_step tsr_replay_make_step(const struct tsr_replay_window *w, unsigned step,
				     size_t param);

/* The step for a piece that is alone: its planes begin at the piece. */
struct tsr_step tsr_replay_step_at(const struct tsr_step *step, uint64_t first);

/* TSR_E_UNSUPPORTED, naming step and tensor, if an encoding found values over its range. */
enum tsr_status tsr_replay_check_range(const struct tsr_replay_window *w, unsigned step,
				       const struct tsr_replay_param *p,
				       const struct tsr_step_report *report, struct tsr_err *err);

/*
 * Add a piece of a gradient to the checksum of its record, in order; @begin and @end: the first
 * and last piece of its parameter.  At the end TSR_E_FORMAT if the file has another one.
 */
enum tsr_status tsr_replay_commit_record(struct tsr_replay_window *w, unsigned step,
					 const struct tsr_array *grad, bool begin, bool end,
					 uint32_t piece_crc, size_t nbytes, struct tsr_err *err);

/* Tell how far it is; TSR_E_CANCELLED. */
enum tsr_status tsr_replay_progress(const struct tsr_replay_window *w, struct tsr_err *err);

/* --- Gradients that are not finite (nonfinite.c) ------------------------------------------------- */

/* Steps with such a gradient are not taken. */
enum tsr_status tsr_replay_skip_steps(struct tsr_replay_window *w);

/* A piece had one: fail with the first of the first step that has any. */
enum tsr_status tsr_replay_name_nonfinite(struct tsr_replay_window *w);

/* --- Comparing (beside.c) ------------------------------------------------------------------------ */

/* FP32 arrays of window->longest elements that comparing a piece needs; the last is the gradient's. */
#define TSR_REPLAY_COMPARE_ARRAYS (3 * TSR_PARTS + 2)

/*
 * Step a piece of @n elements: decode, update in FP32, encode and decode again, and the same in the
 * replay in FP32.  The planes get the bits that tsr_step_apply() gives them.  @at is for the piece
 * alone; @grad is the array behind the first; @x are all the arrays.
 */
void tsr_replay_compare_step(const struct tsr_replay_window *w, const struct tsr_replay_param *p,
			     const struct tsr_step *at, uint64_t first, size_t n, const void *grad,
			     float *x, struct tsr_replay_piece *piece,
			     struct tsr_step_report *report);

/* The same for a step without a gradient, if comparing was asked for. */
void tsr_replay_compare_idle(const struct tsr_replay_window *w, const struct tsr_replay_param *p,
			     uint64_t first, size_t n, float *x, struct tsr_replay_piece *piece);

/* Add a piece up, in order; @begin and @end: the first and last of its parameter. */
void tsr_replay_compare_commit(struct tsr_replay_window *w, size_t param, unsigned step,
			       const struct tsr_replay_piece *piece, bool begin, bool end);

/* The figures of all parameters together. */
void tsr_replay_compare_finish(struct tsr_replay_window *w);

#endif
