/* SPDX-License-Identifier: Apache-2.0 */
/* A replay's state on a GPU.  Gradients are read by the CPU's threads and follow each other to it. */
#ifndef TSR_REPLAY_DEVICE_H
#define TSR_REPLAY_DEVICE_H

#include "replay/stepping.h"

/* Elements that go to the GPU at once, as a multiple of a job's on the CPU. */
#define TSR_REPLAY_DEVICE_PIECES 16u

struct tsr_replay_device;

/* Use the GPU of the options and copy the loaded state to it.  Free with tsr_replay_device_close(). */
enum tsr_status tsr_replay_device_open(const struct tsr_replaying *r,
				       struct tsr_replay_device **ret, struct tsr_err *err);

/* Where a plane of a parameter is on the GPU. */
void *tsr_replay_device_plane(const struct tsr_replay_device *d, size_t param, unsigned part,
			      unsigned plane);

/* Before the first piece of a window. */
enum tsr_status tsr_replay_device_begin(struct tsr_replay_device *d, struct tsr_err *err);

/*
 * Append the step @at of a piece of @n elements, whose planes and gradient begin at the piece.
 * @grad is in host memory and free again on return.  What is noticed is added up per entry.
 */
enum tsr_status tsr_replay_device_step(struct tsr_replay_device *d, size_t entry,
				       const struct tsr_step *at, const void *grad,
				       size_t grad_nbytes, uint64_t n, struct tsr_err *err);

/* After the last piece of a window: wait, and give the reports, one per entry. */
enum tsr_status tsr_replay_device_end(struct tsr_replay_device *d,
				      const struct tsr_step_report **reports_ret,
				      struct tsr_err *err);

/* Copy the state back. */
enum tsr_status tsr_replay_device_fetch(struct tsr_replay_device *d, struct tsr_err *err);

/* NULL is allowed. */
void tsr_replay_device_close(struct tsr_replay_device *d);

#endif
