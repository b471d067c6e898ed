/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What DeepSpeed's ZeRO stages save.  Each group of parameters is flattened and divided among ranks.
 * Stages 1 and 2 divide the flat group; stage 3 divides each parameter, and a rank's part of the group
 * is its parts of all parameters, each rounded up to the same length.
 */
#ifndef TSR_LAYOUTS_ZERO_H
#define TSR_LAYOUTS_ZERO_H

#include "layouts/folder.h"
#include "text/named.h"

/* How many ranks there may be. */
#define TSR_ZERO_RANKS_MAX 65536u

/* A parameter, in the order of its group. */
struct tsr_zero_param {
	const char *name;
	size_t group;
	unsigned rank;
	const uint64_t *shape;
	uint64_t numel;
	uint64_t first; /* element of the flat group, or in stage 3 of each rank's part of it */
	uint64_t part; /* elements of it that each rank has, in stage 3 */
	size_t weight; /* its FP32 weight, an array of the checkpoint */
	struct tsr_value *state; /* of the optimizer, joined: a DICT */
};

struct tsr_zero {
	struct tsr_folder *d; /* with the files of all ranks */
	struct tsr_arena *arena; /* has the lists */
	size_t first; /* array of the checkpoint that is of this directory */
	size_t narrays; /* of this directory, before any was joined */
	size_t nranks;
	struct tsr_value **model,
		**optim; /* per rank: what its files hold; model of stage 3 or rank 0 */
	size_t nmodels;
	bool stage3;
	bool divided; /* the model is, too */
	struct tsr_value *common; /* a universal checkpoint's optimizer_state.pt; else NULL */
	const struct tsr_value *paddings; /* zeros behind each parameter, per group, or NULL */
	size_t ngroups, nparams;
	struct tsr_zero_param *params; /* by group */
	size_t *group_at; /* where each group's begin, and the end of the last */
	struct tsr_named *by_name; /* params, sorted */
	size_t *flat; /* FP32 weights: by rank, then by group */
	const struct tsr_value **state; /* of the optimizer, a mapping or NULL: the same order */
	uint64_t
		*needed; /* per group: elements that its parameters need, of all ranks or of each */
};

/*
 * Find the files of all ranks and read them; tsr_zero_free() also on failure.  Without optimizer files
 * there are no parameters, unless it is @universal: then they are in files of their own.
 */
enum tsr_status tsr_zero_read(struct tsr_folder *d, bool universal, struct tsr_zero *ret);
void tsr_zero_free(struct tsr_zero *z);

/*
 * The parameters, from param_shapes in the model states: fills params, by_name, needed and group_at.
 * Stage and paddings are known.
 */
enum tsr_status tsr_zero_param_shapes(struct tsr_zero *z);

/* Join the partitions: weight and state of each parameter. */
enum tsr_status tsr_zero_join(struct tsr_zero *z);

/* The model: each weight once, in FP32 where the optimizer has it so. */
enum tsr_status tsr_zero_model(const struct tsr_zero *z, struct tsr_value **ret);

/* Put model and optimizer, by name, and what else the files hold into the root of the directory. */
enum tsr_status tsr_zero_put(struct tsr_zero *z);

/* The parameter of a name, or NULL. */
const struct tsr_zero_param *tsr_zero_find(const struct tsr_zero *z, const char *name);

/* The numbers of a torch.Size, a tuple or a list; the arena owns them. */
enum tsr_status tsr_zero_shape(const struct tsr_zero *z, const char *name,
			       const struct tsr_value *v, unsigned *rank_ret,
			       const uint64_t **shape_ret, uint64_t *numel_ret);

#endif
