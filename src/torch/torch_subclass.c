/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that torch.save writes as more than plain ones, all with _rebuild_from_type_v2: those with
 * attributes of their own, the states of torchao's optimizers, and one rank's parts of tensors.
 */
#include <inttypes.h>
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
				 class->global.name) ||
	    !tsr_value_is_list(wrapper->list.items[SIZE]))
		return NULL;
	return class;
}

/* --- Subclasses around a tensor ------------------------------------------------------------------- */

/* What the tensor in it is called, in a dict or in slots; NULL: the first of its local shards. */
static const struct {
	const char *module, *name, *inner;
} wrappers[] = {
	{ "torchao.optim.subclass_8bit", "OptimState8bit", "codes" },
	{ "torchao.optim.subclass_fp8", "OptimStateFp8", "codes" },
	{ "torchao.optim.subclass_4bit", "OptimState4bit", "codes" },
	{ "torchao.prototype.low_bit_optim.subclass_4bit", "OptimState4bit", "codes" },
	{ "torchao.prototype.low_bit_optim.subclass_8bit", "OptimState8bit", "codes" },
	{ "torchao.prototype.low_bit_optim.subclass_fp8", "OptimStateFp8", "codes" },
	{ "torch.distributed.tensor", "DTensor", "_local_tensor" },
	{ "torch.distributed.tensor._api", "DTensor", "_local_tensor" },
	{ "torch.distributed._tensor.api", "DTensor", "_local_tensor" },
	{ "torch.distributed._shard.sharded_tensor.api", "ShardedTensor", NULL },
};

static size_t find_wrapper(const struct tsr_value *global)
{
	size_t i = 0;

	while (i < sizeof(wrappers) / sizeof(*wrappers) &&
	       !tsr_value_is_global(global, wrappers[i].module, wrappers[i].name))
		i++;
	return i;
}

bool tsr_torch_is_wrapper_class(const struct tsr_value *global)
{
	return find_wrapper(global) < sizeof(wrappers) / sizeof(*wrappers);
}

/* What an object keeps in slots stands behind a dict, or None, of what it keeps in attributes. */
static const struct tsr_value *slots_of(const struct tsr_value *state)
{
	return state && state->type == TSR_VALUE_TUPLE && state->list.n == 2 ? state->list.items[1]
									     : state;
}

/* The tensor of the first local shard of a ShardedTensor, whose state begins with the list of them. */
static struct tsr_value *first_shard(const struct tsr_value *state)
{
	const struct tsr_value *shards = state->type == TSR_VALUE_TUPLE && state->list.n
						 ? state->list.items[0]
						 : NULL;

	if (!shards || shards->type != TSR_VALUE_LIST || !shards->list.n ||
	    shards->list.items[0]->type != TSR_VALUE_CALL)
		return NULL;
	return tsr_value_at(slots_of(shards->list.items[0]->call.state), "tensor");
}

bool tsr_torch_is_wrapper(const struct tsr_value *v, struct tsr_value **inner_ret,
			  struct tsr_value *tensor_ret)
{
	const struct tsr_value *class = tsr_torch_subclass(v);
	struct tsr_value *const *args = class ? typed_args(v) : NULL;
	const char *inner;

	if (!class || !tsr_torch_is_wrapper_class(class) ||
	    !tsr_value_is_global(args[FUNCTION], "torch._utils", "_rebuild_wrapper_subclass"))
		return false;
	inner = wrappers[find_wrapper(class)].inner;
	*inner_ret = inner ? tsr_value_at(slots_of(args[STATE]), inner) : first_shard(args[STATE]);
	*tensor_ret = (struct tsr_value){ .type = TSR_VALUE_TENSOR };
	tensor_ret->tensor.attributes = args[STATE];
	tensor_ret->tensor.wrapper = args[ARGS];
	return *inner_ret != NULL;
}

bool tsr_torch_move_to_cpu(struct tsr_arena *arena, const struct tsr_value *tensor)
{
	struct tsr_value *device = tensor->tensor.wrapper->list.items[DEVICE];
	struct tsr_value *args, *cpu;

	if (!tsr_value_is_call(device, "torch", "device"))
		return true;
	args = tsr_value_new(arena, TSR_VALUE_TUPLE);
	cpu = tsr_value_string(arena, "cpu");
	if (!tsr_value_add(arena, args, cpu))
		return false;
	device->call.args = args;
	return true;
}

/* --- Parts of tensors ------------------------------------------------------------------------------ */

/* How a DTensor is spread over its mesh: a TUPLE, or NULL. */
static const struct tsr_value *placements_of(const struct tsr_value *tensor)
{
	const struct tsr_value *spec = tsr_value_at(slots_of(tensor->tensor.attributes), "_spec");
	const struct tsr_value *placements;

	if (!spec || spec->type != TSR_VALUE_CALL)
		return NULL;
	placements = tsr_value_at(spec->call.state, "placements");
	return placements && placements->type == TSR_VALUE_TUPLE ? placements : NULL;
}

/* What a placement is called: "Shard". */
static const char *placement(const struct tsr_value *v)
{
	if (v->type != TSR_VALUE_CALL || v->call.callee->type != TSR_VALUE_GLOBAL)
		return "?";
	return v->call.callee->global.name;
}

void tsr_torch_describe_part(const struct tsr_value *tensor, struct tsr_text *out)
{
	const struct tsr_value *placements = placements_of(tensor);
	const struct tsr_value *size = tensor->tensor.wrapper->list.items[SIZE];
	uint64_t number;

	for (size_t i = 0; placements && i < placements->list.n; i++) {
		const struct tsr_value *p = placements->list.items[i], *dim = NULL;

		if (p->type == TSR_VALUE_CALL)
			dim = tsr_value_at(p->call.state, "dim");
		tsr_text_printf(out, "%s%s", i ? ", " : "", placement(p));
		if (dim && tsr_value_get_u64(dim, &number))
			tsr_text_printf(out, "(%" PRIu64 ")", number);
	}
	tsr_text_puts(out, placements ? " of [" : "of [");
	for (size_t i = 0; i < size->list.n; i++) {
		if (tsr_value_get_u64(size->list.items[i], &number))
			tsr_text_printf(out, "%s%" PRIu64, i ? ", " : "", number);
	}
	tsr_text_puts(out, "]");
}

bool tsr_torch_is_whole(const struct tsr_value *tensor, const struct tsr_array *a)
{
	const struct tsr_value *size = tensor->tensor.wrapper->list.items[SIZE];
	const struct tsr_value *placements = placements_of(tensor);
	uint64_t number;

	for (size_t i = 0; placements && i < placements->list.n; i++) {
		/* Sums of which each rank has a term: there may be several kinds of them. */
		if (strstr(placement(placements->list.items[i]), "Partial"))
			return false;
	}
	if (!placements || size->list.n != a->rank)
		return false;
	for (unsigned i = 0; i < a->rank; i++) {
		if (!tsr_value_get_u64(size->list.items[i], &number) || number != a->shape[i])
			return false;
	}
	return true;
}
