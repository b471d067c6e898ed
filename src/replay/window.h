/* SPDX-License-Identifier: Apache-2.0 */
/* A window: consecutive steps whose files are open at once, with their gradients per parameter. */
#ifndef TSR_REPLAY_WINDOW_H
#define TSR_REPLAY_WINDOW_H

#include "ckpt/checkpoint_model.h"
#include "ckpt/record_crc.h"
#include "replay/replaying.h"
#include "step/step.h"

/* The most steps of a window. */
#define TSR_REPLAY_WINDOW 8u

/* The gradient of a parameter at a step, and which step of the parameter that is. */
struct tsr_replay_grad {
	const struct tsr_array *array; /* NULL: the step has none */
	uint64_t count; /* from 1 on */
	bool fresh; /* as of tsr_step_scalars() */
};

struct tsr_replay_window {
	struct tsr_replaying *r;
	size_t first; /* index of its first step */
	unsigned n; /* steps */
	unsigned longest_window; /* the most that it may have */
	struct tsr_checkpoint *steps[TSR_REPLAY_WINDOW]; /* without their tensors, only arrays */
	struct tsr_replay_grad *grads; /* of all parameters at the first step, and so on */
	bool nonfinite; /* a tile has a gradient that is not finite */
	struct tsr_record_crc crc[TSR_REPLAY_WINDOW]; /* of the parameter being committed */
};

/* A step of the window in the result of a replay that takes it. */
static inline struct tsr_replay_step *tsr_replay_step_in(const struct tsr_replaying *r,
							 const struct tsr_replay_window *w,
							 unsigned step)
{
	return &r->result->steps[w->first + step];
}

static inline struct tsr_replay_step *tsr_replay_step_of(const struct tsr_replay_window *w,
							 unsigned step)
{
	return tsr_replay_step_in(w->r, w, step);
}

/* The gradient of a parameter, or NULL if the step does not take it. */
const struct tsr_array *tsr_replay_grad(const struct tsr_replay_window *w, unsigned step,
					size_t param);

/* Memory for windows; to be freed with tsr_replay_window_free() on failure, too. */
enum tsr_status tsr_replay_window_init(struct tsr_replay_window *w, struct tsr_replaying *r);
void tsr_replay_window_free(struct tsr_replay_window *w);

/* Open the files of the window that begins with step w->first; close them on failure, too. */
enum tsr_status tsr_replay_window_open(struct tsr_replay_window *w);
void tsr_replay_window_close(struct tsr_replay_window *w);

/* Once it is known which steps are skipped: count steps per parameter. */
void tsr_replay_plan_steps(struct tsr_replay_window *w);

/*
 * The step of a parameter of w->r, or of one that also takes it, from element @first on, with the planes
 * of the resident state.  Without scalars if the step has no gradient for it.
 */
struct tsr_step tsr_replay_step_at(const struct tsr_replay_window *w, const struct tsr_replaying *r,
				   unsigned step, size_t param, uint64_t first);

/*
 * Read a tile of a gradient; *nbytes_ret: how many bytes that is.  *crc_ret: their checksum where
 * the file has one, for tsr_replay_commit_grad(); may be NULL.  Thread-safe.
 */
enum tsr_status tsr_replay_read_grad(const struct tsr_replay_window *w, unsigned step,
				     const struct tsr_tile *tile, void *out, size_t *nbytes_ret,
				     uint32_t *crc_ret, struct tsr_err *err);

/*
 * Count a tile of a gradient as read, and add it to the checksum of its record, in order: at the
 * end TSR_E_FORMAT if the file has another one.
 */
enum tsr_status tsr_replay_commit_grad(struct tsr_replay_window *w, unsigned step,
				       const struct tsr_tile *tile, uint32_t crc,
				       struct tsr_err *err);

/*
 * What a step noticed: TSR_E_FORMAT with w->nonfinite for gradients that are not finite;
 * TSR_E_UNSUPPORTED, naming step and tensor, for values over the range of an encoding.
 */
enum tsr_status tsr_replay_check_report(struct tsr_replay_window *w, const struct tsr_replaying *r,
					unsigned step, size_t param,
					const struct tsr_step_report *report, struct tsr_err *err);

#endif
