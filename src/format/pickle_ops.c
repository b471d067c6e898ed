/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the opcodes do.  Those that build values are carried out; what others would import or call
 * becomes a GLOBAL or a CALL (pickle_calls.c), and nothing is ever called.
 */
#include "format/pickle_vm.h"

#include <inttypes.h>
#include <string.h>

/* --- The program ---------------------------------------------------------------------------- */

static enum tsr_status op_proto(struct tsr_pickle_vm *vm)
{
	uint64_t version = 0;

	if (vm->op_at)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found after the start of the pickle");
	TSR_TRY(tsr_vm_take_number(vm, 1, &version));
	if (version < 2 || version > 5)
		return tsr_vm_fail(vm, TSR_E_UNSUPPORTED,
				   "found pickle protocol %u, expected 2 to 5", (unsigned)version);
	return TSR_OK;
}

/* A hint for readers of streams. */
static enum tsr_status op_frame(struct tsr_pickle_vm *vm)
{
	uint64_t nbytes = 0;

	TSR_TRY(tsr_vm_take_number(vm, 8, &nbytes));
	if (nbytes > vm->nbytes - vm->at)
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "found a frame of %" PRIu64
				   " bytes, expected at most the %zu left",
				   nbytes, vm->nbytes - vm->at);
	return TSR_OK;
}

static enum tsr_status op_stop(struct tsr_pickle_vm *vm)
{
	if (vm->nmarks)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found with %zu marks left over", vm->nmarks);
	if (vm->n != 1)
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "found with %zu values on the stack, expected 1", vm->n);
	if (vm->at != vm->nbytes)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %zu bytes after it, expected none",
				   vm->nbytes - vm->at);
	vm->stopped = true;
	return TSR_OK;
}

/* --- Stack and memo ------------------------------------------------------------------------- */

/* As in CPython, POP takes a mark that is at the top. */
static enum tsr_status op_pop(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;

	if (vm->nmarks && vm->n == vm->floor) {
		vm->floor = vm->marks[--vm->nmarks];
		return TSR_OK;
	}
	TSR_TRY(tsr_vm_pop(vm, 1, &items));
	if (vm->called == items[0])
		return tsr_vm_fail(vm, TSR_E_UNSUPPORTED,
				   "found a call whose result is dropped (the state of an object "
				   "that is set by a function?)");
	return TSR_OK;
}

static enum tsr_status op_pop_mark(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;
	size_t n = 0;

	return tsr_vm_pop_mark(vm, &items, &n);
}

static enum tsr_status op_dup(struct tsr_pickle_vm *vm)
{
	TSR_TRY(tsr_vm_need(vm, 1));
	return tsr_vm_push(vm, vm->stack[vm->n - 1]);
}

/* Its argument: bytes of the id; 0: it is the next number. */
static enum tsr_status op_put(struct tsr_pickle_vm *vm)
{
	uint64_t id = vm->nputs;

	if (vm->arg)
		TSR_TRY(tsr_vm_take_number(vm, vm->arg, &id));
	return tsr_vm_put(vm, id);
}

static enum tsr_status op_get(struct tsr_pickle_vm *vm)
{
	uint64_t id = 0;

	TSR_TRY(tsr_vm_take_number(vm, vm->arg, &id));
	return tsr_vm_get(vm, id);
}

/* --- Numbers and constants ------------------------------------------------------------------ */

static enum tsr_status op_none(struct tsr_pickle_vm *vm)
{
	if (!vm->none)
		vm->none = tsr_value_new(vm->arena, TSR_VALUE_NONE);
	return tsr_vm_push(vm, vm->none);
}

static enum tsr_status op_bool(struct tsr_pickle_vm *vm)
{
	struct tsr_value **slot = vm->arg ? &vm->yes : &vm->no;

	if (!*slot)
		*slot = tsr_value_new(vm->arena, TSR_VALUE_BOOL);
	if (*slot)
		(*slot)->boolean = vm->arg;
	return tsr_vm_push(vm, *slot);
}

/* Its argument: bytes of the number. */
static enum tsr_status op_unsigned(struct tsr_pickle_vm *vm)
{
	uint64_t value = 0;

	TSR_TRY(tsr_vm_take_number(vm, vm->arg, &value));
	if (value >= 256)
		return tsr_vm_push(vm, tsr_value_int(vm->arena, (int64_t)value));
	if (!vm->small[value])
		vm->small[value] = tsr_value_int(vm->arena, (int64_t)value);
	return tsr_vm_push(vm, vm->small[value]);
}

static enum tsr_status op_binint(struct tsr_pickle_vm *vm)
{
	const unsigned char *b = NULL;

	TSR_TRY(tsr_vm_take(vm, vm->arg, &b));
	return tsr_vm_push(vm, tsr_value_long(vm->arena, b, vm->arg));
}

/* Its argument: bytes of the length.  That of LONG4 is signed; a negative one is over what is left. */
static enum tsr_status op_long(struct tsr_pickle_vm *vm)
{
	const unsigned char *b = NULL;
	size_t nbytes = 0;

	TSR_TRY(tsr_vm_take_counted(vm, vm->arg, TSR_PICKLE_LONG_MAX, &b, &nbytes));
	return tsr_vm_push(vm, tsr_value_long(vm->arena, b, nbytes));
}

static enum tsr_status op_binfloat(struct tsr_pickle_vm *vm)
{
	const unsigned char *b = NULL;
	struct tsr_value *v;

	TSR_TRY(tsr_vm_take(vm, 8, &b));
	v = tsr_value_new(vm->arena, TSR_VALUE_FLOAT);
	for (size_t i = 0; v && i < 8; i++)
		v->real = v->real << 8 | b[i];
	return tsr_vm_push(vm, v);
}

/* --- Texts: the argument is the number of bytes of their length ------------------------------ */

static enum tsr_status op_string(struct tsr_pickle_vm *vm)
{
	const unsigned char *b = NULL;
	size_t nbytes = 0;

	TSR_TRY(tsr_vm_take_counted(vm, vm->arg, TSR_PICKLE_STRING_MAX, &b, &nbytes));
	if (!tsr_value_is_text((const char *)b, nbytes))
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found bytes that are not UTF-8");
	return tsr_vm_push(vm, tsr_value_text(vm->arena, TSR_VALUE_STRING, b, nbytes));
}

static enum tsr_status op_bytes(struct tsr_pickle_vm *vm)
{
	const unsigned char *b = NULL;
	size_t nbytes = 0;

	TSR_TRY(tsr_vm_take_counted(vm, vm->arg, TSR_PICKLE_STRING_MAX, &b, &nbytes));
	return tsr_vm_push(vm, tsr_value_text(vm->arena, TSR_VALUE_BYTES, b, nbytes));
}

/* A str of Python 2 was text or binary; torch.load takes it for UTF-8, and so it is a STRING. */
static enum tsr_status op_python2(struct tsr_pickle_vm *vm)
{
	const unsigned char *b = NULL;
	enum tsr_value_type type;
	size_t nbytes = 0;

	TSR_TRY(tsr_vm_take_counted(vm, vm->arg, TSR_PICKLE_STRING_MAX, &b, &nbytes));
	type = tsr_value_is_text((const char *)b, nbytes) ? TSR_VALUE_STRING : TSR_VALUE_BYTES;
	return tsr_vm_push(vm, tsr_value_text(vm->arena, type, b, nbytes));
}

/* --- Globals -------------------------------------------------------------------------------- */

static enum tsr_status check_name(struct tsr_pickle_vm *vm, const char *bytes, size_t nbytes)
{
	if (nbytes > TSR_VALUE_NAME_MAX)
		return tsr_vm_fail(vm, TSR_E_LIMIT,
				   "found a name of %zu bytes, over the limit of %u", nbytes,
				   TSR_VALUE_NAME_MAX);
	if (!tsr_value_is_name(bytes, nbytes))
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "found name \"%.*s\", expected ASCII identifiers with dots",
				   (int)nbytes, bytes);
	return TSR_OK;
}

/* The module of builtins has its name of protocol 2, whatever the protocol. */
static struct tsr_value *new_global(struct tsr_pickle_vm *vm, const char *module, const char *name)
{
	if (strcmp(module, "builtins") == 0)
		module = "__builtin__";
	return tsr_value_global(vm->arena, module, name);
}

/* A line of the program, without its end, as a string. */
static enum tsr_status take_name(struct tsr_pickle_vm *vm, char out[TSR_VALUE_NAME_MAX + 1])
{
	const char *start = (const char *)vm->bytes + vm->at;
	const size_t left = vm->nbytes - vm->at;
	const size_t most = left < TSR_VALUE_NAME_MAX + 1 ? left : TSR_VALUE_NAME_MAX + 1;
	const char *end = left ? memchr(start, '\n', most) : NULL;

	if (!end && most == left)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found a name without end");
	TSR_TRY(check_name(vm, start, end ? (size_t)(end - start) : most));
	memcpy(out, start, (size_t)(end - start));
	out[end - start] = '\0';
	vm->at += (size_t)(end - start) + 1;
	return TSR_OK;
}

static enum tsr_status op_global(struct tsr_pickle_vm *vm)
{
	char module[TSR_VALUE_NAME_MAX + 1], name[TSR_VALUE_NAME_MAX + 1];

	TSR_TRY(take_name(vm, module));
	TSR_TRY(take_name(vm, name));
	return tsr_vm_push(vm, new_global(vm, module, name));
}

static enum tsr_status op_stack_global(struct tsr_pickle_vm *vm)
{
	const struct tsr_value *module, *name;

	TSR_TRY(tsr_vm_need(vm, 2));
	name = vm->stack[--vm->n];
	module = vm->stack[--vm->n];
	if (module->type != TSR_VALUE_STRING || name->type != TSR_VALUE_STRING)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %s and %s, expected two strings",
				   tsr_value_kind(module), tsr_value_kind(name));
	TSR_TRY(check_name(vm, module->text.bytes, module->text.nbytes));
	TSR_TRY(check_name(vm, name->text.bytes, name->text.nbytes));
	return tsr_vm_push(vm, new_global(vm, module->text.bytes, name->text.bytes));
}

/* --- Containers: the argument is their type -------------------------------------------------- */

static enum tsr_status op_empty(struct tsr_pickle_vm *vm)
{
	return tsr_vm_push_list(vm, vm->arg, NULL, 0);
}

static enum tsr_status op_empty_tuple(struct tsr_pickle_vm *vm)
{
	if (!vm->no_items)
		vm->no_items = tsr_value_new(vm->arena, TSR_VALUE_TUPLE);
	return tsr_vm_push(vm, vm->no_items);
}

/* Its argument: number of items. */
static enum tsr_status op_tuple(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;

	TSR_TRY(tsr_vm_pop(vm, vm->arg, &items));
	return tsr_vm_push_list(vm, TSR_VALUE_TUPLE, items, vm->arg);
}

/* A new container of all that is above the last mark. */
static enum tsr_status op_since_mark(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;
	size_t n = 0;

	TSR_TRY(tsr_vm_pop_mark(vm, &items, &n));
	if (vm->arg == TSR_VALUE_TUPLE && !n)
		return op_empty_tuple(vm);
	return tsr_vm_push_list(vm, vm->arg, items, n);
}

/* The container to fill: the value at the top, or the items of an object there. */
static enum tsr_status find_filled(struct tsr_pickle_vm *vm, enum tsr_value_type type,
				   struct tsr_value **ret)
{
	struct tsr_value *v;

	TSR_TRY(tsr_vm_need(vm, 1));
	v = vm->stack[vm->n - 1];
	if (v->type == TSR_VALUE_CALL && type != TSR_VALUE_SET) {
		if (v->call.state)
			return tsr_vm_fail(vm, TSR_E_UNSUPPORTED,
					   "found items for an object that has a state already");
		if (!v->call.items)
			v->call.items = tsr_value_new(vm->arena, type);
		if (!v->call.items)
			return tsr_vm_nomem(vm);
		v = v->call.items;
	}
	if (v->type != type)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found %s, expected %s%s", tsr_value_kind(v),
				   type == TSR_VALUE_LIST   ? "a list"
				   : type == TSR_VALUE_DICT ? "a dict"
							    : "a set",
				   v == vm->stack[vm->n - 1] ? "" : " to be filled in an object");
	*ret = v;
	return TSR_OK;
}

/* Values that were popped go into the container below them. */
static enum tsr_status fill(struct tsr_pickle_vm *vm, enum tsr_value_type type,
			    struct tsr_value *const *items, size_t n)
{
	struct tsr_value *filled = NULL;

	if (type == TSR_VALUE_DICT && n % 2)
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found a key without a value");
	if (!n)
		return tsr_vm_need(vm, 1);
	TSR_TRY(find_filled(vm, type, &filled));
	return tsr_vm_extend(vm, filled, items, n);
}

static enum tsr_status op_fill(struct tsr_pickle_vm *vm)
{
	const size_t n = vm->arg == TSR_VALUE_DICT ? 2 : 1;
	struct tsr_value **items = NULL;

	TSR_TRY(tsr_vm_pop(vm, n, &items));
	return fill(vm, vm->arg, items, n);
}

static enum tsr_status op_fill_since_mark(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL;
	size_t n = 0;

	TSR_TRY(tsr_vm_pop_mark(vm, &items, &n));
	return fill(vm, vm->arg, items, n);
}

/* bytearray(bytes), as protocol 2 has it. */
static enum tsr_status op_bytearray(struct tsr_pickle_vm *vm)
{
	struct tsr_value *callee = tsr_value_global(vm->arena, "__builtin__", "bytearray");
	struct tsr_value *args = tsr_value_new(vm->arena, TSR_VALUE_TUPLE), **items = NULL;

	TSR_TRY(op_bytes(vm));
	TSR_TRY(tsr_vm_pop(vm, 1, &items));
	if (!callee || !args || !tsr_value_add(vm->arena, args, items[0]))
		return tsr_vm_nomem(vm);
	return tsr_vm_push_call(vm, callee, args, false);
}

static enum tsr_status op_binpersid(struct tsr_pickle_vm *vm)
{
	struct tsr_value **items = NULL, *id, *v;

	TSR_TRY(tsr_vm_pop(vm, 1, &items));
	id = items[0];
	v = tsr_value_new(vm->arena, TSR_VALUE_PERSISTENT);
	if (!v)
		return tsr_vm_nomem(vm);
	v->inner = id;
	return tsr_vm_push(vm, v);
}

/* --- The opcodes ---------------------------------------------------------------------------- */

const struct tsr_pickle_opcode tsr_pickle_opcodes[256] = {
	[0x80] = { "PROTO", op_proto, 0 },
	[0x95] = { "FRAME", op_frame, 0 },
	['.'] = { "STOP", op_stop, 0 },
	['('] = { "MARK", tsr_vm_mark, 0 },
	['0'] = { "POP", op_pop, 0 },
	['1'] = { "POP_MARK", op_pop_mark, 0 },
	['2'] = { "DUP", op_dup, 0 },
	['q'] = { "BINPUT", op_put, 1 },
	['r'] = { "LONG_BINPUT", op_put, 4 },
	[0x94] = { "MEMOIZE", op_put, 0 },
	['h'] = { "BINGET", op_get, 1 },
	['j'] = { "LONG_BINGET", op_get, 4 },
	['N'] = { "NONE", op_none, 0 },
	[0x88] = { "NEWTRUE", op_bool, 1 },
	[0x89] = { "NEWFALSE", op_bool, 0 },
	['J'] = { "BININT", op_binint, 4 },
	['K'] = { "BININT1", op_unsigned, 1 },
	['M'] = { "BININT2", op_unsigned, 2 },
	[0x8a] = { "LONG1", op_long, 1 },
	[0x8b] = { "LONG4", op_long, 4 },
	['G'] = { "BINFLOAT", op_binfloat, 0 },
	[0x8c] = { "SHORT_BINUNICODE", op_string, 1 },
	['X'] = { "BINUNICODE", op_string, 4 },
	[0x8d] = { "BINUNICODE8", op_string, 8 },
	['U'] = { "SHORT_BINSTRING", op_python2, 1 },
	['T'] = { "BINSTRING", op_python2, 4 },
	['C'] = { "SHORT_BINBYTES", op_bytes, 1 },
	['B'] = { "BINBYTES", op_bytes, 4 },
	[0x8e] = { "BINBYTES8", op_bytes, 8 },
	[')'] = { "EMPTY_TUPLE", op_empty_tuple, 0 },
	['t'] = { "TUPLE", op_since_mark, TSR_VALUE_TUPLE },
	[0x85] = { "TUPLE1", op_tuple, 1 },
	[0x86] = { "TUPLE2", op_tuple, 2 },
	[0x87] = { "TUPLE3", op_tuple, 3 },
	[']'] = { "EMPTY_LIST", op_empty, TSR_VALUE_LIST },
	['l'] = { "LIST", NULL, 0 },
	['a'] = { "APPEND", op_fill, TSR_VALUE_LIST },
	['e'] = { "APPENDS", op_fill_since_mark, TSR_VALUE_LIST },
	['}'] = { "EMPTY_DICT", op_empty, TSR_VALUE_DICT },
	['d'] = { "DICT", NULL, 0 },
	['s'] = { "SETITEM", op_fill, TSR_VALUE_DICT },
	['u'] = { "SETITEMS", op_fill_since_mark, TSR_VALUE_DICT },
	[0x8f] = { "EMPTY_SET", op_empty, TSR_VALUE_SET },
	[0x90] = { "ADDITEMS", op_fill_since_mark, TSR_VALUE_SET },
	[0x91] = { "FROZENSET", op_since_mark, TSR_VALUE_FROZENSET },
	['c'] = { "GLOBAL", op_global, 0 },
	[0x93] = { "STACK_GLOBAL", op_stack_global, 0 },
	['R'] = { "REDUCE", tsr_vm_reduce, 0 },
	[0x81] = { "NEWOBJ", tsr_vm_newobj, 0 },
	[0x92] = { "NEWOBJ_EX", tsr_vm_newobj_ex, 0 },
	['b'] = { "BUILD", tsr_vm_build, 0 },
	['Q'] = { "BINPERSID", op_binpersid, 0 },
	['I'] = { "INT", NULL, 0 },
	['L'] = { "LONG", NULL, 0 },
	['F'] = { "FLOAT", NULL, 0 },
	['S'] = { "STRING", NULL, 0 },
	['V'] = { "UNICODE", NULL, 0 },
	['P'] = { "PERSID", NULL, 0 },
	['g'] = { "GET", NULL, 0 },
	['p'] = { "PUT", NULL, 0 },
	['i'] = { "INST", NULL, 0 },
	['o'] = { "OBJ", NULL, 0 },
	[0x82] = { "EXT1", NULL, 0 },
	[0x83] = { "EXT2", NULL, 0 },
	[0x84] = { "EXT4", NULL, 0 },
	[0x96] = { "BYTEARRAY8", op_bytearray, 8 },
	[0x97] = { "NEXT_BUFFER", NULL, 0 },
	[0x98] = { "READONLY_BUFFER", NULL, 0 },
};
