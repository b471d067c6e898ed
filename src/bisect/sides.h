/* SPDX-License-Identifier: Apache-2.0 */
/* One of two runs that are compared: signatures of its tensors by step, whatever they are made from. */
#ifndef TSR_BISECT_SIDES_H
#define TSR_BISECT_SIDES_H

#include "ckpt/checkpoint_model.h"
#include "tersor/bisect.h"
#include "text/map.h"

/* A tensor of a run. */
struct tsr_run_tensor {
	struct tsr_signed_tensor is;
	const char *
		key; /* by which the other run's is found: its parameter, what it is to it, and its rank */
	uint64_t rank;
	size_t pass; /* of the side, in which it was met last */
	size_t twin; /* the same of the first rank, with which it must agree; SIZE_MAX: none */
};

struct tsr_named;
struct tsr_run_side;

struct tsr_run_kind {
	/* Step @index into @signatures and @lr of the side. */
	enum tsr_status (*load)(struct tsr_run_side *s, size_t index, const struct tsr_run *run,
				struct tsr_err *err);
	/* The values of the step that is loaded, if there are any, into @current and @at; NULL: loaded. */
	enum tsr_status (*values)(struct tsr_run_side *s, size_t index, struct tsr_err *err);
};

struct tsr_run_side {
	struct tsr_bisect_side pub;
	const struct tsr_run_kind *kind;
	struct tsr_arena *arena; /* of names */
	const struct tsr_open_options *open;
	size_t ntensors, room; /* for so many: SIZE_MAX while it is opened */
	struct tsr_run_tensor *tensors;
	size_t pass; /* number of steps that were looked at: each has a tensor once */
	size_t nsteps;
	uint64_t *steps; /* their numbers, ascending */
	struct tsr_signature *signatures; /* of the loaded step, per tensor */
	const double *lr; /* of it, per group of pub.run; NULL: not recorded */
	struct tsr_map keys; /* of @tensors, with their indices */
	struct tsr_checkpoint *current; /* NULL: it has no values */
	const struct tsr_tensor **at; /* per tensor, of @current; NULL: it has no values */
	struct tsr_signatures **files; /* of signatures */
	struct tsr_recording *recording; /* with gradients, also beside signatures */
	char **paths; /* of checkpoints, per step */
	bool unnumbered; /* the only checkpoint does not say its step */
};

/* Open whatever is at @path; to be closed on failure, too. */
enum tsr_status tsr_side_open(struct tsr_run_side *s, const char *path,
			      const struct tsr_open_options *open, struct tsr_err *err);
void tsr_side_close(struct tsr_run_side *s);

/* One with files of signatures; one with values: checkpoints of @paths, or the gradients of @recording. */
enum tsr_status tsr_side_open_signatures(struct tsr_run_side *s, char *const *paths, size_t n,
					 struct tsr_err *err);
enum tsr_status tsr_side_open_values(struct tsr_run_side *s, struct tsr_err *err);

/*
 * The index of a tensor, which is added unless it is there: TSR_E_FORMAT if it has another shape or type
 * there, was met in this pass already, or there is no room for another.
 */
enum tsr_status tsr_side_tensor(struct tsr_run_side *s, const struct tsr_signed_tensor *t,
				uint64_t rank, size_t *index_ret, struct tsr_err *err);

/* Its tensors by their keys, to be freed. */
enum tsr_status tsr_side_keys(const struct tsr_run_side *s, struct tsr_named **ret,
			      struct tsr_err *err);

/* Sign the tensors of a checkpoint, which is borrowed, as of a step of a side with checkpoints. */
enum tsr_status tsr_side_sign_state(struct tsr_run_side *s, struct tsr_checkpoint *state,
				    const struct tsr_run *run, struct tsr_err *err);

/* What a tensor is to its parameter, in one word for all optimizers that have it. */
const char *tsr_side_slot(const char *of);
bool tsr_is_gradient(const char *of);

/* TSR_E_NOMEM, or TSR_E_LIMIT if names are too long. */
enum tsr_status tsr_side_nomem(const struct tsr_run_side *s, struct tsr_err *err);

#endif
