/* SPDX-License-Identifier: Apache-2.0 */
/* What the opcodes do to the stack and the memo; and calls whose value is known without calling. */
#include "format/pickle_vm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- The stack ------------------------------------------------------------------------------ */

const char *tsr_vm_kind(const struct tsr_value *v)
{
	static const char *const kinds[] = {
		[TSR_VALUE_NONE] = "None",	 [TSR_VALUE_BOOL] = "a bool",
		[TSR_VALUE_INT] = "an int",	 [TSR_VALUE_FLOAT] = "a float",
		[TSR_VALUE_STRING] = "a string", [TSR_VALUE_BYTES] = "bytes",
		[TSR_VALUE_LIST] = "a list",	 [TSR_VALUE_TUPLE] = "a tuple",
		[TSR_VALUE_SET] = "a set",	 [TSR_VALUE_FROZENSET] = "a frozenset",
		[TSR_VALUE_DICT] = "a dict",	 [TSR_VALUE_GLOBAL] = "a global",
		[TSR_VALUE_CALL] = "an object",	 [TSR_VALUE_PERSISTENT] = "a persistent object",
		[TSR_VALUE_TENSOR] = "a tensor",
	};

	return kinds[v->type];
}

enum tsr_status tsr_vm_push(struct tsr_pickle_vm *vm, struct tsr_value *v)
{
	if (!v)
		return tsr_vm_nomem(vm);
	if (vm->n == vm->room) {
		const size_t room = vm->room ? 2 * vm->room : 64;
		struct tsr_value **stack;

		if (vm->n >= TSR_PICKLE_STACK_MAX)
			return tsr_vm_fail(vm, TSR_E_LIMIT,
					   "more values on the stack than the limit of %u",
					   TSR_PICKLE_STACK_MAX);
		stack = realloc(vm->stack, room * sizeof(*stack));
		if (!stack)
			return tsr_fail_nomem(vm->err, vm->where);
		vm->stack = stack;
		vm->room = room < TSR_PICKLE_STACK_MAX ? room : TSR_PICKLE_STACK_MAX;
	}
	vm->stack[vm->n++] = v;
	return TSR_OK;
}

enum tsr_status tsr_vm_need(const struct tsr_pickle_vm *vm, size_t n)
{
	if (vm->n - vm->floor < n)
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "stack underflow: found %zu values%s, expected %zu",
				   vm->n - vm->floor, vm->nmarks ? " above the last mark" : "", n);
	return TSR_OK;
}

enum tsr_status tsr_op_mark(struct tsr_pickle_vm *vm)
{
	if (vm->nmarks == TSR_PICKLE_MARKS_MAX)
		return tsr_vm_fail(vm, TSR_E_LIMIT, "more marks than the limit of %u",
				   TSR_PICKLE_MARKS_MAX);
	vm->marks[vm->nmarks++] = vm->floor;
	vm->floor = vm->n;
	return TSR_OK;
}

/* Take the last mark and all above it off the stack; the values stay readable in place. */
static enum tsr_status pop_mark(struct tsr_pickle_vm *vm, struct tsr_value ***items_ret,
				size_t *n_ret)
{
	if (!vm->nmarks)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found no mark on the stack");
	*items_ret = vm->stack ? vm->stack + vm->floor : NULL;
	*n_ret = vm->n - vm->floor;
	vm->n = vm->floor;
	vm->floor = vm->marks[--vm->nmarks];
	return TSR_OK;
}

/* Take @n values off the stack, to be read in place. */
static enum tsr_status pop(struct tsr_pickle_vm *vm, size_t n, struct tsr_value ***items_ret)
{
	TSR_TRY(tsr_vm_need(vm, n));
	vm->n -= n;
	*items_ret = vm->stack + vm->n;
	return TSR_OK;
}

/* A mark at the top is what POP takes, as CPython has it. */
enum tsr_status tsr_op_pop(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;

	if (vm->nmarks && vm->n == vm->floor) {
		vm->floor = vm->marks[--vm->nmarks];
		return TSR_OK;
	}
	return pop(vm, 1, &items);
}

enum tsr_status tsr_op_pop_mark(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;
	size_t n = 0;

	return pop_mark(vm, &items, &n);
}

enum tsr_status tsr_op_dup(struct tsr_pickle_vm *vm)
{
	TSR_TRY(tsr_vm_need(vm, 1));
	return tsr_vm_push(vm, vm->stack[vm->n - 1]);
}

/* --- The memo ------------------------------------------------------------------------------- */

/* What the memo takes, the values may not. */
static enum tsr_status grow_memo(struct tsr_pickle_vm *vm)
{
	const size_t more = vm->memo_room ? vm->memo_room : 256, room = vm->memo_room + more;
	const size_t nbytes = more * sizeof(*vm->memo);
	struct tsr_value **memo;

	if (vm->arena_limit < nbytes || vm->arena_limit - nbytes < tsr_arena_used(vm->arena))
		return tsr_vm_fail(vm, TSR_E_LIMIT,
				   "the memo takes more memory than the limit of %zu bytes",
				   vm->allowed);
	memo = realloc(vm->memo, room * sizeof(*memo));
	if (!memo)
		return tsr_fail_nomem(vm->err, vm->where);
	memset(memo + vm->memo_room, 0, nbytes);
	vm->memo = memo;
	vm->memo_room = room;
	vm->arena_limit -= nbytes;
	tsr_arena_limit(vm->arena, vm->arena_limit);
	return TSR_OK;
}

/* Picklers count from 0, the one of Python 2 in C from 1; so no memo has holes to speak of. */
static enum tsr_status put(struct tsr_pickle_vm *vm, uint64_t id)
{
	TSR_TRY(tsr_vm_need(vm, 1));
	if (id > vm->nputs + 1)
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "found memo id %" PRIu64
				   ", expected at most %zu after %zu others",
				   id, vm->nputs + 1, vm->nputs);
	if (id >= vm->memo_room)
		TSR_TRY(grow_memo(vm));
	if (vm->memo[id])
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found memo id %" PRIu64 " a second time", id);
	vm->memo[id] = vm->stack[vm->n - 1];
	vm->nputs++;
	return TSR_OK;
}

static enum tsr_status get(struct tsr_pickle_vm *vm, uint64_t id)
{
	if (id >= vm->memo_room || !vm->memo[id])
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "found memo id %" PRIu64 ", which was not put before", id);
	return tsr_vm_push(vm, vm->memo[id]);
}

enum tsr_status tsr_op_binput(struct tsr_pickle_vm *vm)
{
	uint64_t id = 0;

	TSR_TRY(tsr_vm_take_number(vm, 1, &id));
	return put(vm, id);
}

enum tsr_status tsr_op_long_binput(struct tsr_pickle_vm *vm)
{
	uint64_t id = 0;

	TSR_TRY(tsr_vm_take_number(vm, 4, &id));
	return put(vm, id);
}

enum tsr_status tsr_op_memoize(struct tsr_pickle_vm *vm)
{
	return put(vm, vm->nputs);
}

enum tsr_status tsr_op_binget(struct tsr_pickle_vm *vm)
{
	uint64_t id = 0;

	TSR_TRY(tsr_vm_take_number(vm, 1, &id));
	return get(vm, id);
}

enum tsr_status tsr_op_long_binget(struct tsr_pickle_vm *vm)
{
	uint64_t id = 0;

	TSR_TRY(tsr_vm_take_number(vm, 4, &id));
	return get(vm, id);
}

/* --- Containers ----------------------------------------------------------------------------- */

/* Append @n values to a list of any kind. */
static enum tsr_status extend(struct tsr_pickle_vm *vm, struct tsr_value *list,
			      struct tsr_value *const *items, size_t n)
{
	if (!n)
		return TSR_OK;
	if (!tsr_value_reserve(vm->arena, list, n))
		return tsr_vm_nomem(vm);
	memcpy(list->list.items + list->list.n, items, n * sizeof(*items));
	list->list.n += n;
	return TSR_OK;
}

/* Push a new list of any kind. */
static enum tsr_status push_list(struct tsr_pickle_vm *vm, enum tsr_value_type type,
				 struct tsr_value *const *items, size_t n)
{
	struct tsr_value *list = tsr_value_new(vm->arena, type);

	if (!list)
		return tsr_vm_nomem(vm);
	TSR_TRY(extend(vm, list, items, n));
	return tsr_vm_push(vm, list);
}

static enum tsr_status push_since_mark(struct tsr_pickle_vm *vm, enum tsr_value_type type)
{
	struct tsr_value **items = NULL;
	size_t n = 0;

	TSR_TRY(pop_mark(vm, &items, &n));
	if (type == TSR_VALUE_DICT && n % 2)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found a key without a value");
	if (type == TSR_VALUE_TUPLE && !n)
		return tsr_op_empty_tuple(vm);
	return push_list(vm, type, items, n);
}

static enum tsr_status push_tuple(struct tsr_pickle_vm *vm, size_t n)
{
	struct tsr_value **items = NULL;

	TSR_TRY(pop(vm, n, &items));
	return push_list(vm, TSR_VALUE_TUPLE, items, n);
}

enum tsr_status tsr_op_empty_tuple(struct tsr_pickle_vm *vm)
{
	if (!vm->no_items)
		vm->no_items = tsr_value_new(vm->arena, TSR_VALUE_TUPLE);
	return tsr_vm_push(vm, vm->no_items);
}

enum tsr_status tsr_op_tuple(struct tsr_pickle_vm *vm)
{
	return push_since_mark(vm, TSR_VALUE_TUPLE);
}

enum tsr_status tsr_op_tuple1(struct tsr_pickle_vm *vm)
{
	return push_tuple(vm, 1);
}

enum tsr_status tsr_op_tuple2(struct tsr_pickle_vm *vm)
{
	return push_tuple(vm, 2);
}

enum tsr_status tsr_op_tuple3(struct tsr_pickle_vm *vm)
{
	return push_tuple(vm, 3);
}

enum tsr_status tsr_op_empty_list(struct tsr_pickle_vm *vm)
{
	return push_list(vm, TSR_VALUE_LIST, NULL, 0);
}

enum tsr_status tsr_op_empty_dict(struct tsr_pickle_vm *vm)
{
	return push_list(vm, TSR_VALUE_DICT, NULL, 0);
}

enum tsr_status tsr_op_empty_set(struct tsr_pickle_vm *vm)
{
	return push_list(vm, TSR_VALUE_SET, NULL, 0);
}

enum tsr_status tsr_op_frozenset(struct tsr_pickle_vm *vm)
{
	return push_since_mark(vm, TSR_VALUE_FROZENSET);
}

/* The list or dict to fill: the value at the top, or what an object there is given. */
static enum tsr_status find_filled(struct tsr_pickle_vm *vm, enum tsr_value_type type,
				   struct tsr_value **ret)
{
	struct tsr_value *v;

	TSR_TRY(tsr_vm_need(vm, 1));
	v = vm->stack[vm->n - 1];
	if (v->type == TSR_VALUE_CALL && type != TSR_VALUE_SET) {
		if (!v->call.items)
			v->call.items = tsr_value_new(vm->arena, type);
		if (!v->call.items)
			return tsr_vm_nomem(vm);
		v = v->call.items;
	}
	if (v->type != type)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %s, expected %s%s", tsr_vm_kind(v),
				   type == TSR_VALUE_LIST   ? "a list"
				   : type == TSR_VALUE_DICT ? "a dict"
							    : "a set",
				   v == vm->stack[vm->n - 1] ? "" : " to be filled in an object");
	*ret = v;
	return TSR_OK;
}

/* Values that pop() or pop_mark() took off go to the one below them. */
static enum tsr_status fill(struct tsr_pickle_vm *vm, enum tsr_value_type type,
			    struct tsr_value *const *items, size_t n)
{
	struct tsr_value *filled = NULL;

	if (type == TSR_VALUE_DICT && n % 2)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found a key without a value");
	if (!n)
		return tsr_vm_need(vm, 1);
	TSR_TRY(find_filled(vm, type, &filled));
	return extend(vm, filled, items, n);
}

static enum tsr_status fill_since_mark(struct tsr_pickle_vm *vm, enum tsr_value_type type)
{
	struct tsr_value **items = NULL;
	size_t n = 0;

	TSR_TRY(pop_mark(vm, &items, &n));
	return fill(vm, type, items, n);
}

enum tsr_status tsr_op_append(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;

	TSR_TRY(pop(vm, 1, &items));
	return fill(vm, TSR_VALUE_LIST, items, 1);
}

enum tsr_status tsr_op_appends(struct tsr_pickle_vm *vm)
{
	return fill_since_mark(vm, TSR_VALUE_LIST);
}

enum tsr_status tsr_op_setitem(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;

	TSR_TRY(pop(vm, 2, &items));
	return fill(vm, TSR_VALUE_DICT, items, 2);
}

enum tsr_status tsr_op_setitems(struct tsr_pickle_vm *vm)
{
	return fill_since_mark(vm, TSR_VALUE_DICT);
}

enum tsr_status tsr_op_additems(struct tsr_pickle_vm *vm)
{
	return fill_since_mark(vm, TSR_VALUE_SET);
}

/* --- Calls ---------------------------------------------------------------------------------- */

/* Bytes as protocol 2 has them: _codecs.encode(str, "latin1"). */
static enum tsr_status push_encoded(struct tsr_pickle_vm *vm, const struct tsr_value *string)
{
	struct tsr_value *v = tsr_value_new(vm->arena, TSR_VALUE_BYTES);
	const unsigned char *from = (const unsigned char *)string->text.bytes;
	const unsigned char *const end = from + string->text.nbytes;
	unsigned char *bytes = v ? tsr_arena_alloc(vm->arena, string->text.nbytes + 1) : NULL;
	size_t n = 0;

	if (!bytes)
		return tsr_vm_nomem(vm);
	while (from < end) {
		/* UTF-8 has U+0080 to U+00FF in two bytes, the first of them 0xc2 or 0xc3. */
		if (*from > 0xc3)
			return tsr_vm_fail(vm, TSR_E_FORMAT,
					   "found characters beyond Latin-1 in a string for bytes");
		if (*from & 0x80) {
			bytes[n++] = (unsigned char)(*from << 6 | (from[1] & 0x3f));
			from += 2;
		} else {
			bytes[n++] = *from++;
		}
	}
	v->text.bytes = (const char *)bytes;
	v->text.nbytes = n;
	return tsr_vm_push(vm, v);
}

static bool is_latin1(const struct tsr_value *v)
{
	return tsr_value_is_string(v, "latin1") || tsr_value_is_string(v, "latin-1");
}

/* A copy: what is put into the argument later does not reach a set that was made of it. */
static enum tsr_status push_set(struct tsr_pickle_vm *vm, enum tsr_value_type type,
				const struct tsr_value *args)
{
	const struct tsr_value *list = args->list.n ? args->list.items[0] : args;

	return push_list(vm, type, list->list.items, list->list.n);
}

static bool are_set_args(const struct tsr_value *args)
{
	return !args->list.n || (args->list.n == 1 && args->list.items[0]->type == TSR_VALUE_LIST);
}

static enum tsr_status push_call(struct tsr_pickle_vm *vm, struct tsr_value *callee,
				 struct tsr_value *args, bool is_new)
{
	struct tsr_value *v = tsr_value_new(vm->arena, TSR_VALUE_CALL);

	if (!v)
		return tsr_vm_nomem(vm);
	v->call.callee = callee;
	v->call.args = args;
	v->call.is_new = is_new;
	return tsr_vm_push(vm, v);
}

static enum tsr_status pop_call(struct tsr_pickle_vm *vm, struct tsr_value ***items_ret)
{
	TSR_TRY(pop(vm, 2, items_ret));
	if ((*items_ret)[0]->type != TSR_VALUE_GLOBAL && (*items_ret)[0]->type != TSR_VALUE_CALL)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %s to call, expected a global",
				   tsr_vm_kind((*items_ret)[0]));
	if ((*items_ret)[1]->type != TSR_VALUE_TUPLE)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %s for arguments, expected a tuple",
				   tsr_vm_kind((*items_ret)[1]));
	return TSR_OK;
}

enum tsr_status tsr_op_reduce(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL, *callee, *args;

	TSR_TRY(pop_call(vm, &items));
	callee = items[0];
	args = items[1];
	if (tsr_value_is_global(callee, "_codecs", "encode") && args->list.n == 2 &&
	    args->list.items[0]->type == TSR_VALUE_STRING && is_latin1(args->list.items[1]))
		return push_encoded(vm, args->list.items[0]);
	if (tsr_value_is_global(callee, "__builtin__", "bytes") && !args->list.n)
		return tsr_vm_push(vm, tsr_value_text(vm->arena, TSR_VALUE_BYTES, "", 0));
	if (tsr_value_is_global(callee, "__builtin__", "set") && are_set_args(args))
		return push_set(vm, TSR_VALUE_SET, args);
	if (tsr_value_is_global(callee, "__builtin__", "frozenset") && are_set_args(args))
		return push_set(vm, TSR_VALUE_FROZENSET, args);
	return push_call(vm, callee, args, false);
}

enum tsr_status tsr_op_newobj(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;

	TSR_TRY(pop_call(vm, &items));
	return push_call(vm, items[0], items[1], true);
}

enum tsr_status tsr_op_build(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;

	TSR_TRY(pop(vm, 2, &items));
	if (items[0]->type != TSR_VALUE_CALL)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %s, expected an object to give a state",
				   tsr_vm_kind(items[0]));
	if (items[0]->call.state)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found an object that has a state already");
	items[0]->call.state = items[1];
	vm->n++; /* the object stays */
	return TSR_OK;
}

enum tsr_status tsr_op_binpersid(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL, *id, *v;

	TSR_TRY(pop(vm, 1, &items));
	id = items[0];
	v = tsr_value_new(vm->arena, TSR_VALUE_PERSISTENT);
	if (!v)
		return tsr_vm_nomem(vm);
	v->inner = id;
	return tsr_vm_push(vm, v);
}
