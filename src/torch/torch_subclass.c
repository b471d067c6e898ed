/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that torch.save writes as more than plain ones, all with _rebuild_from_type_v2: those with
 * attributes of their own, the states of torchao's optimizers, and DTensors.
 */
#include <string.h>

#include "torch/torch_archive.h"

/* The arguments of _rebuild_from_type_v2, and of _rebuild_wrapper_subclass as its function. */
enum { FUNCTION, TYPE, ARGS, STATE, TYPED_COUNT };
enum { CLASS, DTYPE, SIZE, STRIDE, OFFSET, LAYOUT, DEVICE, REQUIRES_GRAD, WRAPPER_COUNT };

/* The arguments of _rebuild_from_type_v2; NULL for anything else. */
static struct tsr_value *const *typed_args(const struct tsr_value *v)
{
	if (!tsr_value_is_call(v, "torch._tensor", "_rebuild_from_type_v2") || v->call.is_new ||
	    v->call.state || v->call.items || v->call.args->list.n != TYPED_COUNT)
		return NULL;
	return v->call.args->list.items;
}

bool tsr_torch_is_typed(const struct tsr_value *v, struct tsr_value *call_ret,
			struct tsr_value **attributes_ret)
{
	struct tsr_value *const *args = typed_args(v);

	if (!args)
		return false;
	*call_ret = (struct tsr_value){ .type = TSR_VALUE_CALL };
	call_ret->call.callee = args[FUNCTION];
	call_ret->call.args = args[ARGS];
	*attributes_ret = args[STATE];
	return tsr_torch_is_tensor(call_ret) && args[ARGS]->type == TSR_VALUE_TUPLE &&
	       tsr_value_is_global(args[TYPE], "torch", "Tensor") &&
	       args[STATE]->type == TSR_VALUE_DICT;
}

const struct tsr_value *tsr_torch_subclass(const struct tsr_value *v)
{
	struct tsr_value *const *args = typed_args(v);
	const struct tsr_value *wrapper = args ? args[ARGS] : NULL, *class;

	if (!args || args[TYPE]->type != TSR_VALUE_GLOBAL)
		return NULL;
	class = args[TYPE];
	if (!tsr_value_is_global(args[FUNCTION], "torch._utils", "_rebuild_wrapper_subclass"))
		return class;
	if (wrapper->type != TSR_VALUE_TUPLE || wrapper->list.n < WRAPPER_COUNT ||
	    !tsr_value_is_global(wrapper->list.items[CLASS], class->global.module,
				 class->global.name))
		return NULL;
	return class;
}

/* --- The states of torchao ------------------------------------------------------------------------ */

bool tsr_torch_is_state_class(const struct tsr_value *global)
{
	return tsr_value_is_global(global, "torchao.optim.subclass_8bit", "OptimState8bit") ||
	       tsr_value_is_global(global, "torchao.optim.subclass_fp8", "OptimStateFp8") ||
	       tsr_value_is_global(global, "torchao.prototype.low_bit_optim.subclass_8bit",
				   "OptimState8bit") ||
	       tsr_value_is_global(global, "torchao.prototype.low_bit_optim.subclass_fp8",
				   "OptimStateFp8");
}

bool tsr_torch_is_state(const struct tsr_value *v, struct tsr_value **codes_ret,
			struct tsr_value *tensor_ret)
{
	const struct tsr_value *class = tsr_torch_subclass(v);
	struct tsr_value *const *args = class ? typed_args(v) : NULL;

	if (!class || !tsr_torch_is_state_class(class) || args[STATE]->type != TSR_VALUE_DICT ||
	    !tsr_value_is_global(args[FUNCTION], "torch._utils", "_rebuild_wrapper_subclass"))
		return false;
	*codes_ret = tsr_value_at(args[STATE], "codes");
	*tensor_ret = (struct tsr_value){ .type = TSR_VALUE_TENSOR };
	tensor_ret->tensor.attributes = args[STATE];
	tensor_ret->tensor.wrapper = args[ARGS];
	return *codes_ret != NULL;
}

/* --- DTensors ------------------------------------------------------------------------------------- */

static bool is_dtensor(const struct tsr_value *class)
{
	return class && strcmp(class->global.name, "DTensor") == 0 &&
	       (strcmp(class->global.module, "torch.distributed.tensor") == 0 ||
		strcmp(class->global.module, "torch.distributed.tensor._api") == 0 ||
		strcmp(class->global.module, "torch.distributed._tensor.api") == 0);
}

static void read_wrapper(struct tsr_torch_dtensor *d, const struct tsr_value *wrapper)
{
	const struct tsr_value *grad = wrapper->list.items[REQUIRES_GRAD];

	d->size = wrapper->list.items[SIZE];
	d->requires_grad = grad->type == TSR_VALUE_BOOL && grad->boolean;
}

/* What it keeps in slots, besides a dict or None for what it keeps in attributes. */
static const struct tsr_value *read_state(struct tsr_torch_dtensor *d, struct tsr_value *state)
{
	const struct tsr_value *is_parameter;

	if (state->type == TSR_VALUE_DICT)
		return state;
	if (state->type != TSR_VALUE_TUPLE || state->list.n != 2)
		return NULL;
	is_parameter = tsr_value_at(state->list.items[0], "_is_param");
	d->parameter = is_parameter && is_parameter->type == TSR_VALUE_BOOL &&
		       is_parameter->boolean;
	if (state->list.items[0]->type == TSR_VALUE_DICT &&
	    state->list.items[0]->list.n > (is_parameter ? 2 : 0))
		d->attributes = state->list.items[0];
	return state->list.items[1];
}

bool tsr_torch_is_dtensor(const struct tsr_value *v, struct tsr_torch_dtensor *ret)
{
	struct tsr_value *const *args = typed_args(v);
	const struct tsr_value *slots;

	memset(ret, 0, sizeof(*ret));
	if (!is_dtensor(tsr_torch_subclass(v)) ||
	    !tsr_value_is_global(args[FUNCTION], "torch._utils", "_rebuild_wrapper_subclass"))
		return false;
	read_wrapper(ret, args[ARGS]);
	slots = read_state(ret, args[STATE]);
	ret->local = tsr_value_at(slots, "_local_tensor");
	ret->spec = tsr_value_at(slots, "_spec");
	if (!ret->local || !ret->spec || ret->spec->type != TSR_VALUE_CALL ||
	    ret->size->type != TSR_VALUE_TUPLE)
		return false;
	ret->placements = tsr_value_at(ret->spec->call.state, "placements");
	return ret->placements && ret->placements->type == TSR_VALUE_TUPLE;
}

/* What a placement is called: "Shard". */
static const char *placement(const struct tsr_value *v)
{
	if (v->type != TSR_VALUE_CALL || v->call.callee->type != TSR_VALUE_GLOBAL)
		return "?";
	return v->call.callee->global.name;
}

void tsr_torch_describe_placements(const struct tsr_torch_dtensor *d, struct tsr_text *out)
{
	for (size_t i = 0; i < d->placements->list.n; i++) {
		const struct tsr_value *p = d->placements->list.items[i];
		const struct tsr_value *dim = NULL;
		int64_t number;

		if (p->type == TSR_VALUE_CALL)
			dim = tsr_value_at(p->call.state, "dim");
		tsr_text_printf(out, "%s%s", i ? ", " : "", placement(p));
		if (dim && tsr_value_get_i64(dim, &number))
			tsr_text_printf(out, "(%lld)", (long long)number);
	}
}

/* Elements that are nowhere but here, or everywhere; partial sums are neither. */
bool tsr_torch_is_placed_whole(const struct tsr_torch_dtensor *d, unsigned rank,
			       const uint64_t *shape)
{
	uint64_t size;

	for (size_t i = 0; i < d->placements->list.n; i++) {
		const char *name = placement(d->placements->list.items[i]);

		if (strcmp(name, "Replicate") != 0 && strcmp(name, "Shard") != 0 &&
		    strcmp(name, "_StridedShard") != 0)
			return false;
	}
	if (d->size->list.n != rank)
		return false;
	for (unsigned i = 0; i < rank; i++) {
		if (!tsr_value_get_u64(d->size->list.items[i], &size) || size != shape[i])
			return false;
	}
	return true;
}
