/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a checkpoint's parameters: the tensors of each, and where its state is in what was saved. */
#ifndef TSR_NAMES_PARAMETERS_H
#define TSR_NAMES_PARAMETERS_H

#include "format/value.h"
#include "names/roles.h"
#include "tersor/optimizer.h"

struct tsr_candidate;
struct tsr_named;

struct tsr_parameter {
	size_t tensor[TSR_SLOTS]; /* indices into the checkpoint's; SIZE_MAX: it has none */
	size_t counter; /* the tensor that counts its steps; SIZE_MAX: none */
	size_t master; /* a second copy of the weight; SIZE_MAX: none */
	/* In what was saved around the tensors, once tsr_parameters_place() has looked there: */
	struct tsr_value *state; /* the mapping that has its state; NULL: none */
	const char *prefix; /* of its keys there, "state.NAME."; NULL: the mapping is its own */
	size_t prefix_nbytes;
	/* The number of its steps, which may be that of all groups; NULL: none, or a tensor counts them. */
	struct tsr_value *count;
};

/* Tensors by their names without what wrappers add. */
struct tsr_names {
	size_t n;
	struct tsr_named *list;
};

/* Start from all zeros. */
struct tsr_parameters {
	struct tsr_checkpoint *c;
	struct tsr_arena *arena; /* has all that is here */
	/*
	 * One per tensor, which is its weight, or the first of its states if it has none; once some
	 * were kept, these, in the order of their weights.
	 */
	size_t n;
	struct tsr_parameter *list;
	struct tsr_tensor_role *roles; /* per tensor */
	const struct tsr_name_rule *rules;
	unsigned nrules;
	bool *is_param; /* per tensor: whether it is known to be one, though it has no dimensions */
	bool outdated; /* one of these is not in the table */
	bool stray_state; /* some momentum or variance belongs to no weight that is known */
	struct tsr_names weights;
	struct tsr_names scalars; /* tensors without dimensions that may be parameters */
	size_t *of_weight; /* per tensor: the kept parameter whose weight it is, or SIZE_MAX */
	size_t *of_state; /* per array: the one whose momentum or variance it is, or SIZE_MAX */
	struct tsr_value *optimizer; /* the first state_dict() of an optimizer in the trees */
	size_t noptimizers;
	struct tsr_value
		*group_step; /* that groups of pytorch_optimizer's SOAP count; NULL: none does */
};

void tsr_parameters_free(struct tsr_parameters *p);

/*
 * tsr_names_assign(), which also fills the table.  In a packed file kinds are as they are, roles are found by
 * name.
 *
 * @params has one entry per tensor: whether it is known to be a parameter, which a tensor without
 * dimensions is not taken for otherwise, nor are its states for states; NULL: none is.  It says nothing
 * of tensors that a rule or their name settles.
 */
enum tsr_status tsr_names_fill(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
			       unsigned nrules, const bool *params, struct tsr_parameters *p,
			       struct tsr_err *err);

/*
 * tsr_names_assign(), which also says of each tensor whether it is the model's own: a weight or a
 * buffer, but no momentum, variance, step counter, master copy or anything else that an optimizer
 * keeps.  @model has one entry per tensor.
 */
enum tsr_status tsr_names_model(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				unsigned nrules, bool *model, struct tsr_err *err);

/* Its slots: an entry per tensor; and in these the states of @all, one candidate per tensor. */
enum tsr_status tsr_parameters_init(struct tsr_parameters *p, struct tsr_checkpoint *c,
				    struct tsr_err *err);
enum tsr_status tsr_parameters_join(struct tsr_parameters *p, struct tsr_candidate *all,
				    struct tsr_err *err);

/* Fill the table; the rules must live as long. */
enum tsr_status tsr_parameters_find(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				    unsigned nrules, struct tsr_parameters *p, struct tsr_err *err);

/*
 * A tensor without dimensions is a parameter only if something says so: this name of one, if it matches no
 * other weight.  Once all names that are known were told, have the table say so.
 */
enum tsr_status tsr_parameters_know(struct tsr_parameters *p, const char *name,
				    struct tsr_err *err);
enum tsr_status tsr_parameters_update(struct tsr_parameters *p, struct tsr_err *err);

/* The weight of this name, or else the only one without wrappers; SIZE_MAX if there is none, or several. */
enum tsr_status tsr_parameters_weight(const struct tsr_parameters *p, const char *name, size_t *ret,
				      struct tsr_err *err);

/* Keep the parameters with these weights; @kept has an entry per tensor. */
enum tsr_status tsr_parameters_keep(struct tsr_parameters *p, const bool *kept,
				    struct tsr_err *err);

/*
 * Find the optimizers, and what kept parameters have in what was saved around the tensors.  There each number
 * under the key "step" is a value of its own from then on.
 */
enum tsr_status tsr_parameters_place(struct tsr_parameters *p, struct tsr_err *err);

#endif
