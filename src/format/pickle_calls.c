/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of calls: those of bytes, sets and members of classes are carried out, all others
 * become a CALL, and nothing is ever called.
 */
#include "format/pickle_vm.h"

#include <stdio.h>
#include <string.h>

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

/* A copy, as in Python: later changes of the argument do not reach the set. */
static enum tsr_status push_set(struct tsr_pickle_vm *vm, enum tsr_value_type type,
				const struct tsr_value *args)
{
	const struct tsr_value *list = args->list.n ? args->list.items[0] : args;

	return tsr_vm_push_list(vm, type, list->list.items, list->list.n);
}

static bool are_set_args(const struct tsr_value *args)
{
	return !args->list.n || (args->list.n == 1 && args->list.items[0]->type == TSR_VALUE_LIST);
}

enum tsr_status tsr_vm_push_call(struct tsr_pickle_vm *vm, struct tsr_value *callee,
				 struct tsr_value *args, bool is_new)
{
	struct tsr_value *v = tsr_value_new(vm->arena, TSR_VALUE_CALL);

	if (!v)
		return tsr_vm_nomem(vm);
	v->call.callee = callee;
	v->call.args = args;
	v->call.is_new = is_new;
	vm->called = v;
	return tsr_vm_push(vm, v);
}

/* The callee and the arguments, below @more values. */
static enum tsr_status pop_call(struct tsr_pickle_vm *vm, size_t more,
				struct tsr_value ***items_ret)
{
	TSR_TRY(tsr_vm_pop(vm, 2 + more, items_ret));
	if ((*items_ret)[0]->type != TSR_VALUE_GLOBAL && (*items_ret)[0]->type != TSR_VALUE_CALL)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %s to call, expected a global",
				   tsr_value_kind((*items_ret)[0]));
	if ((*items_ret)[1]->type != TSR_VALUE_TUPLE)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %s for arguments, expected a tuple",
				   tsr_value_kind((*items_ret)[1]));
	return TSR_OK;
}

/* Whether getattr() has a class, and the name of one attribute of it. */
static bool is_attribute(const struct tsr_value *args)
{
	const struct tsr_value *class, *name;

	if (args->list.n != 2)
		return false;
	class = args->list.items[0];
	name = args->list.items[1];
	return class->type == TSR_VALUE_GLOBAL && name->type == TSR_VALUE_STRING &&
	       tsr_value_is_name(name->text.bytes, name->text.nbytes) &&
	       !strchr(name->text.bytes, '.') &&
	       strlen(class->global.name) + 1 + name->text.nbytes <= TSR_VALUE_NAME_MAX;
}

/*
 * A member of a class, as protocol 2 has them and as some versions of Python have members of enums:
 * getattr(class, name).  Protocol 4 has a global with the name "class.name".
 */
static enum tsr_status push_attribute(struct tsr_pickle_vm *vm, const struct tsr_value *class,
				      const struct tsr_value *name)
{
	char joined[TSR_VALUE_NAME_MAX + 1];

	snprintf(joined, sizeof(joined), "%s.%s", class->global.name, name->text.bytes);
	return tsr_vm_push(vm, tsr_value_global(vm->arena, class->global.module, joined));
}

enum tsr_status tsr_vm_reduce(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL, *callee, *args;

	TSR_TRY(pop_call(vm, 0, &items));
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
	if (tsr_value_is_global(callee, "__builtin__", "getattr") && is_attribute(args))
		return push_attribute(vm, args->list.items[0], args->list.items[1]);
	return tsr_vm_push_call(vm, callee, args, false);
}

enum tsr_status tsr_vm_newobj(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;

	TSR_TRY(pop_call(vm, 0, &items));
	return tsr_vm_push_call(vm, items[0], items[1], true);
}

/* Keyword arguments stand above the others. */
enum tsr_status tsr_vm_newobj_ex(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL, *kwargs;

	TSR_TRY(pop_call(vm, 1, &items));
	kwargs = items[2];
	if (kwargs->type != TSR_VALUE_DICT)
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "found %s for keyword arguments, expected a dict",
				   tsr_value_kind(kwargs));
	TSR_TRY(tsr_vm_push_call(vm, items[0], items[1], true));
	vm->stack[vm->n - 1]->call.kwargs = kwargs;
	return TSR_OK;
}

enum tsr_status tsr_vm_build(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;

	TSR_TRY(tsr_vm_pop(vm, 2, &items));
	if (items[0]->type != TSR_VALUE_CALL)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %s, expected an object to give a state",
				   tsr_value_kind(items[0]));
	if (items[0]->call.state)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found an object that has a state already");
	items[0]->call.state = items[1];
	vm->n++; /* the object stays */
	return TSR_OK;
}
