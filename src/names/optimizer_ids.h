/* SPDX-License-Identifier: Apache-2.0 */
/* Which state of an optimizer belongs to which parameter. */
#ifndef TSR_NAMES_OPTIMIZER_IDS_H
#define TSR_NAMES_OPTIMIZER_IDS_H

#include "ckpt/build.h"

/* A tensor of a model, in the order of the model. */
struct tsr_param {
	const char *name;
	size_t array;
};

/* A parameter as an optimizer knows it: by its position over all param_groups. */
struct tsr_optim_id {
	const struct tsr_value *id; /* an int, or the parameter's name */
	size_t group;
	const char *name; /* of the parameter; NULL until known */
	struct tsr_value *state; /* mapping of its state, or NULL */
	size_t array; /* of its state, one that has its shape; or SIZE_MAX */
};

/* One optimizer's state_dict(). */
struct tsr_optim {
	const char *path; /* where it is, for messages: "optimizer" */
	const char *prefix; /* the keys that lead to it: "optimizer" or "" */
	const struct tsr_value *state, *groups;
	size_t nids;
	struct tsr_optim_id *ids;
	bool reduced; /* some states have a shape that no parameter has: no shape tells a parameter */
};

/* Whether a value is the state_dict() of an optimizer: it has `state` and `param_groups`. */
bool tsr_optim_is(const struct tsr_value *v);

/* Fill @ret from a value for which tsr_optim_is() holds; memory is the checkpoint's arena. */
enum tsr_status tsr_optim_read(struct tsr_checkpoint *c, const struct tsr_value *v,
			       const char *path, const char *prefix, struct tsr_optim *ret,
			       struct tsr_err *err);

/*
 * Give each id of an optimizer the name of its parameter: its own, from param_names, from @given
 * (@ngiven names in the order of ids), or by shape and order from @params of the model, which come
 * in the model's order if @ordered.  Without parameters names stay NULL.  TSR_E_UNSUPPORTED where
 * more than one assignment fits.
 */
enum tsr_status tsr_optim_join(struct tsr_checkpoint *c, struct tsr_optim *o,
			       const struct tsr_param *params, size_t nparams, bool ordered,
			       const char *const *given, size_t ngiven, struct tsr_err *err);

/* Lower *eps to the least of the groups' that is above 0; 0 is none yet. */
void tsr_optim_take_eps(const struct tsr_optim *o, float *eps);

/* The bytes per weight that a FlashOptim group keeps (`master_bytewidth`), or 0. */
uint64_t tsr_optim_bytewidth(const struct tsr_optim *o, size_t group);

/* --- Which state of Gefen's optimizer belongs to which parameter ------------------------------ */

/*
 * Its states have shapes of their own, but each parameter is a group with a name: that of the model in
 * lower case, or a number.  If the names fit @nparams parameters in one way, or all of them in their
 * order do by their sizes, give the ids their names; *joined_ret says so.  Others are left alone.
 */
enum tsr_status tsr_gefen_join(struct tsr_checkpoint *c, struct tsr_optim *o,
			       const struct tsr_param *params, size_t nparams, bool ordered,
			       bool *joined_ret, struct tsr_err *err);

/* --- Which parameters an optimizer numbers, by rules that training programs follow ------------ */

/* Whether the state of an id can be that of the parameter with this array; without a state, it can. */
bool tsr_optim_can_have(const struct tsr_checkpoint *c, const struct tsr_optim *o,
			const struct tsr_optim_id *id, size_t param);

/*
 * Name the ids of an optimizer by the rules of docs/reading.md, "Matching state to parameters", from
 * @params of the model, in its order if @ordered.  Where rules fit and all that do agree, *proved_ret is
 * true, ids have names and a note says which rule it was; otherwise ids are left as they are.
 */
enum tsr_status tsr_order_prove(struct tsr_checkpoint *c, struct tsr_optim *o,
				const struct tsr_param *params, size_t nparams, bool ordered,
				bool *proved_ret, struct tsr_err *err);

/* --- The order in which known architectures define their parameters --------------------------- */

/* How many there are, and what messages call them. */
size_t tsr_architecture_count(void);
const char *tsr_architecture_name(size_t architecture);

/*
 * Sort @n names of parameters into the order of an architecture: @order gets their indices.
 * *applies_ret is whether it knows each component that the order depends on; otherwise @order means
 * nothing.
 */
enum tsr_status tsr_architecture_sort(size_t architecture, const char *const *names, size_t n,
				      size_t *order, bool *applies_ret, struct tsr_err *err);

#endif
