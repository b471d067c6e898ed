/* SPDX-License-Identifier: Apache-2.0 */
/* Deltas: checkpoints whose planes may be what differs from a base (format.md, section 4.9). */
#ifndef TSR_CKPT_DELTAS_H
#define TSR_CKPT_DELTAS_H

#include "ckpt/checkpoint_model.h"
#include "entropy/differences.h"
#include "tersor/run.h"

/* The hash of all planes of @n tensors, by which a delta names its base. */
uint64_t tsr_tensors_set(const struct tsr_tensor *tensors, size_t n);

/*
 * The same of a checkpoint that is not packed, whose tensors get the hashes that they would have raw in a
 * packed one: reads all of it, on the threads of @run.  TSR_E_UNSUPPORTED if some are in the compressed form
 * of another tool.
 */
enum tsr_status tsr_plain_set(struct tsr_checkpoint *c, const struct tsr_run *run,
			      struct tsr_err *err);

/*
 * TSR_E_FORMAT unless the base of a delta, which was found at @path, has the set that the delta names; says
 * so if the base is what the delta leads to.
 */
enum tsr_status tsr_delta_check_base(const struct tsr_checkpoint *c, const char *path,
				     struct tsr_err *err);

/*
 * tsr_plain_set() and tsr_delta_check_base() of the base of @c, later: what is read of the base from now on
 * to decode the delta is hashed then, and tsr_delta_prove() reads only what was not.  Until then what is
 * decoded may be of another base.
 */
enum tsr_status tsr_delta_prove_later(struct tsr_checkpoint *c, const char *path,
				      struct tsr_err *err);

/*
 * Whether the base is the one that the delta names, if that is not known yet: @status is what became of
 * decoding, and is returned if it is.  Where decoding failed, another base is a better reason.
 */
enum tsr_status tsr_delta_prove(struct tsr_checkpoint *c, enum tsr_status status,
				const struct tsr_run *run, struct tsr_err *err);

/*
 * The tensor of @base from which a plane of @t can differ: it has the same name and shape, and the same dtype
 * and coding or, for plane 0, the same narrow floats there.  NULL: there is none.
 */
const struct tsr_tensor *tsr_delta_old(const struct tsr_checkpoint *base,
				       const struct tsr_tensor *t, unsigned plane);

/*
 * Whether a delta can name its base so: by the name of a file beside it or, @levels times, by "../", a
 * directory that is its own one's sibling so many levels up, and the path of a file as deep in that.
 */
bool tsr_base_name_is_valid(const char *name, unsigned *levels);

/* Whether the two planes of a tensor are coded as one, if both are coded: a float and its correction. */
bool tsr_delta_joins(const struct tsr_tensor *t);

/* What the elements of a plane are; with @joined those of plane 0 and their corrections. */
struct tsr_difference_kind tsr_delta_kind(const struct tsr_tensor *t, unsigned plane, bool joined);

/* Once the base of a checkpoint is open: reading its planes will read those of the base. */
enum tsr_status tsr_delta_link(struct tsr_checkpoint *c, struct tsr_err *err);

#endif
