/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pickles are programs for a stack machine.  This one knows the opcodes that build values; what
 * others would import or call becomes a GLOBAL or a CALL, and nothing is ever carried out.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/pickle_vm.h"

/* --- The program ---------------------------------------------------------------------------- */

enum tsr_status tsr_vm_take(struct tsr_pickle_vm *vm, size_t n, const unsigned char **ret)
{
	if (n > vm->nbytes - vm->at)
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "found the end of the data after %zu bytes of its operand, "
				   "expected %zu bytes",
				   vm->nbytes - vm->at, n);
	*ret = vm->bytes + vm->at;
	vm->at += n;
	return TSR_OK;
}

enum tsr_status tsr_vm_take_number(struct tsr_pickle_vm *vm, size_t n, uint64_t *ret)
{
	const unsigned char *b = NULL;
	uint64_t value = 0;

	TSR_TRY(tsr_vm_take(vm, n, &b));
	for (size_t i = n; i--;)
		value = value << 8 | b[i];
	*ret = value;
	return TSR_OK;
}

/* A number of @nlength bytes, and that many bytes. */
static enum tsr_status take_counted(struct tsr_pickle_vm *vm, size_t nlength, uint64_t limit,
				    const unsigned char **ret, size_t *nbytes_ret)
{
	uint64_t n = 0;

	TSR_TRY(tsr_vm_take_number(vm, nlength, &n));
	if (n > vm->nbytes - vm->at)
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "found a length of %" PRIu64
				   " bytes, expected at most the %zu left",
				   n, vm->nbytes - vm->at);
	if (n > limit)
		return tsr_vm_fail(vm, TSR_E_LIMIT,
				   "%" PRIu64 " bytes are over the limit of %" PRIu64, n, limit);
	*nbytes_ret = (size_t)n;
	return tsr_vm_take(vm, (size_t)n, ret);
}

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

/* --- Numbers and constants ------------------------------------------------------------------ */

static enum tsr_status push_constant(struct tsr_pickle_vm *vm, struct tsr_value **slot,
				     enum tsr_value_type type, bool boolean)
{
	if (!*slot) {
		*slot = tsr_value_new(vm->arena, type);
		if (*slot && type == TSR_VALUE_BOOL)
			(*slot)->boolean = boolean;
	}
	return tsr_vm_push(vm, *slot);
}

static enum tsr_status op_none(struct tsr_pickle_vm *vm)
{
	return push_constant(vm, &vm->none, TSR_VALUE_NONE, false);
}

static enum tsr_status op_newtrue(struct tsr_pickle_vm *vm)
{
	return push_constant(vm, &vm->yes, TSR_VALUE_BOOL, true);
}

static enum tsr_status op_newfalse(struct tsr_pickle_vm *vm)
{
	return push_constant(vm, &vm->no, TSR_VALUE_BOOL, false);
}

static enum tsr_status push_unsigned(struct tsr_pickle_vm *vm, size_t nbytes)
{
	uint64_t value = 0;

	TSR_TRY(tsr_vm_take_number(vm, nbytes, &value));
	if (value >= 256)
		return tsr_vm_push(vm, tsr_value_int(vm->arena, (int64_t)value));
	if (!vm->small[value])
		vm->small[value] = tsr_value_int(vm->arena, (int64_t)value);
	return tsr_vm_push(vm, vm->small[value]);
}

static enum tsr_status op_binint1(struct tsr_pickle_vm *vm)
{
	return push_unsigned(vm, 1);
}

static enum tsr_status op_binint2(struct tsr_pickle_vm *vm)
{
	return push_unsigned(vm, 2);
}

static enum tsr_status op_binint(struct tsr_pickle_vm *vm)
{
	const unsigned char *b = NULL;

	TSR_TRY(tsr_vm_take(vm, 4, &b));
	return tsr_vm_push(vm, tsr_value_long(vm->arena, b, 4));
}

static enum tsr_status push_long(struct tsr_pickle_vm *vm, size_t nlength)
{
	const unsigned char *b = NULL;
	size_t nbytes = 0;

	TSR_TRY(take_counted(vm, nlength, TSR_PICKLE_LONG_MAX, &b, &nbytes));
	return tsr_vm_push(vm, tsr_value_long(vm->arena, b, nbytes));
}

static enum tsr_status op_long1(struct tsr_pickle_vm *vm)
{
	return push_long(vm, 1);
}

/* Its length is signed; a negative one is more than is left in any case. */
static enum tsr_status op_long4(struct tsr_pickle_vm *vm)
{
	return push_long(vm, 4);
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

/* --- Texts ---------------------------------------------------------------------------------- */

static enum tsr_status push_string(struct tsr_pickle_vm *vm, size_t nlength)
{
	const unsigned char *b = NULL;
	size_t nbytes = 0;

	TSR_TRY(take_counted(vm, nlength, TSR_PICKLE_STRING_MAX, &b, &nbytes));
	if (!tsr_value_is_text((const char *)b, nbytes))
		return tsr_vm_fail(vm, TSR_E_FORMAT, "found bytes that are not UTF-8");
	return tsr_vm_push(vm, tsr_value_text(vm->arena, TSR_VALUE_STRING, b, nbytes));
}

static enum tsr_status op_short_binunicode(struct tsr_pickle_vm *vm)
{
	return push_string(vm, 1);
}

static enum tsr_status op_binunicode(struct tsr_pickle_vm *vm)
{
	return push_string(vm, 4);
}

static enum tsr_status op_binunicode8(struct tsr_pickle_vm *vm)
{
	return push_string(vm, 8);
}

static enum tsr_status push_bytes(struct tsr_pickle_vm *vm, size_t nlength)
{
	const unsigned char *b = NULL;
	size_t nbytes = 0;

	TSR_TRY(take_counted(vm, nlength, TSR_PICKLE_STRING_MAX, &b, &nbytes));
	return tsr_vm_push(vm, tsr_value_text(vm->arena, TSR_VALUE_BYTES, b, nbytes));
}

static enum tsr_status op_short_binbytes(struct tsr_pickle_vm *vm)
{
	return push_bytes(vm, 1);
}

static enum tsr_status op_binbytes(struct tsr_pickle_vm *vm)
{
	return push_bytes(vm, 4);
}

static enum tsr_status op_binbytes8(struct tsr_pickle_vm *vm)
{
	return push_bytes(vm, 8);
}

/* A str of Python 2 was text or binary; torch.load takes it for UTF-8, and so it is a STRING. */
static enum tsr_status push_python2(struct tsr_pickle_vm *vm, size_t nlength)
{
	const unsigned char *b = NULL;
	enum tsr_value_type type;
	size_t nbytes = 0;

	TSR_TRY(take_counted(vm, nlength, TSR_PICKLE_STRING_MAX, &b, &nbytes));
	type = tsr_value_is_text((const char *)b, nbytes) ? TSR_VALUE_STRING : TSR_VALUE_BYTES;
	return tsr_vm_push(vm, tsr_value_text(vm->arena, type, b, nbytes));
}

static enum tsr_status op_short_binstring(struct tsr_pickle_vm *vm)
{
	return push_python2(vm, 1);
}

static enum tsr_status op_binstring(struct tsr_pickle_vm *vm)
{
	return push_python2(vm, 4);
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

/* The builtins are called as protocol 2 has them, whatever the protocol. */
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
				   tsr_vm_kind(module), tsr_vm_kind(name));
	TSR_TRY(check_name(vm, module->text.bytes, module->text.nbytes));
	TSR_TRY(check_name(vm, name->text.bytes, name->text.nbytes));
	return tsr_vm_push(vm, new_global(vm, module->text.bytes, name->text.bytes));
}

/* --- The opcodes ---------------------------------------------------------------------------- */

/* By their byte; those without a function are refused by name. */
static const struct {
	const char *name;
	tsr_pickle_op *run;
} opcodes[256] = {
	[0x80] = { "PROTO", op_proto },
	[0x95] = { "FRAME", op_frame },
	['.'] = { "STOP", op_stop },
	['('] = { "MARK", tsr_op_mark },
	['0'] = { "POP", tsr_op_pop },
	['1'] = { "POP_MARK", tsr_op_pop_mark },
	['2'] = { "DUP", tsr_op_dup },
	['q'] = { "BINPUT", tsr_op_binput },
	['r'] = { "LONG_BINPUT", tsr_op_long_binput },
	[0x94] = { "MEMOIZE", tsr_op_memoize },
	['h'] = { "BINGET", tsr_op_binget },
	['j'] = { "LONG_BINGET", tsr_op_long_binget },
	['N'] = { "NONE", op_none },
	[0x88] = { "NEWTRUE", op_newtrue },
	[0x89] = { "NEWFALSE", op_newfalse },
	['J'] = { "BININT", op_binint },
	['K'] = { "BININT1", op_binint1 },
	['M'] = { "BININT2", op_binint2 },
	[0x8a] = { "LONG1", op_long1 },
	[0x8b] = { "LONG4", op_long4 },
	['G'] = { "BINFLOAT", op_binfloat },
	[0x8c] = { "SHORT_BINUNICODE", op_short_binunicode },
	['X'] = { "BINUNICODE", op_binunicode },
	[0x8d] = { "BINUNICODE8", op_binunicode8 },
	['U'] = { "SHORT_BINSTRING", op_short_binstring },
	['T'] = { "BINSTRING", op_binstring },
	['C'] = { "SHORT_BINBYTES", op_short_binbytes },
	['B'] = { "BINBYTES", op_binbytes },
	[0x8e] = { "BINBYTES8", op_binbytes8 },
	[')'] = { "EMPTY_TUPLE", tsr_op_empty_tuple },
	['t'] = { "TUPLE", tsr_op_tuple },
	[0x85] = { "TUPLE1", tsr_op_tuple1 },
	[0x86] = { "TUPLE2", tsr_op_tuple2 },
	[0x87] = { "TUPLE3", tsr_op_tuple3 },
	[']'] = { "EMPTY_LIST", tsr_op_empty_list },
	['l'] = { "LIST", NULL },
	['a'] = { "APPEND", tsr_op_append },
	['e'] = { "APPENDS", tsr_op_appends },
	['}'] = { "EMPTY_DICT", tsr_op_empty_dict },
	['d'] = { "DICT", NULL },
	['s'] = { "SETITEM", tsr_op_setitem },
	['u'] = { "SETITEMS", tsr_op_setitems },
	[0x8f] = { "EMPTY_SET", tsr_op_empty_set },
	[0x90] = { "ADDITEMS", tsr_op_additems },
	[0x91] = { "FROZENSET", tsr_op_frozenset },
	['c'] = { "GLOBAL", op_global },
	[0x93] = { "STACK_GLOBAL", op_stack_global },
	['R'] = { "REDUCE", tsr_op_reduce },
	[0x81] = { "NEWOBJ", tsr_op_newobj },
	['b'] = { "BUILD", tsr_op_build },
	['Q'] = { "BINPERSID", tsr_op_binpersid },
	['I'] = { "INT", NULL },
	['L'] = { "LONG", NULL },
	['F'] = { "FLOAT", NULL },
	['S'] = { "STRING", NULL },
	['V'] = { "UNICODE", NULL },
	['P'] = { "PERSID", NULL },
	['g'] = { "GET", NULL },
	['p'] = { "PUT", NULL },
	['i'] = { "INST", NULL },
	['o'] = { "OBJ", NULL },
	[0x82] = { "EXT1", NULL },
	[0x83] = { "EXT2", NULL },
	[0x84] = { "EXT4", NULL },
	[0x92] = { "NEWOBJ_EX", NULL },
	[0x96] = { "BYTEARRAY8", NULL },
	[0x97] = { "NEXT_BUFFER", NULL },
	[0x98] = { "READONLY_BUFFER", NULL },
};

enum tsr_status tsr_vm_fail(const struct tsr_pickle_vm *vm, enum tsr_status code, const char *fmt,
			    ...)
{
	char found[TSR_ERR_MAX / 2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(found, sizeof(found), fmt, ap);
	va_end(ap);
	return tsr_fail(vm->err, code, "%.400s: byte %zu: %s: %s", vm->where, vm->op_at,
			opcodes[vm->bytes[vm->op_at]].name, found);
}

enum tsr_status tsr_vm_nomem(const struct tsr_pickle_vm *vm)
{
	if (!tsr_arena_full(vm->arena))
		return tsr_fail_nomem(vm->err, vm->where);
	return tsr_vm_fail(vm, TSR_E_LIMIT, "values take more memory than the limit of %zu bytes",
			   vm->allowed);
}

/* --- The machine ---------------------------------------------------------------------------- */

static enum tsr_status step(struct tsr_pickle_vm *vm)
{
	unsigned code;

	if (vm->at == vm->nbytes)
		return tsr_fail(vm->err, TSR_E_FORMAT,
				"%.400s: byte %zu: found the end of the data, expected STOP",
				vm->where, vm->at);
	code = vm->bytes[vm->at];
	vm->op_at = vm->at++;
	if (opcodes[code].run)
		return opcodes[code].run(vm);
	if (opcodes[code].name)
		return tsr_vm_fail(vm, TSR_E_UNSUPPORTED,
				   "an opcode that no checkpoint of torch needs");
	return tsr_fail(vm->err, TSR_E_FORMAT, "%.400s: byte %zu: found 0x%02x, which is no opcode",
			vm->where, vm->op_at, code);
}

static enum tsr_status run(struct tsr_pickle_vm *vm)
{
	if (!vm->nbytes || vm->bytes[0] != 0x80)
		return tsr_fail(vm->err, TSR_E_FORMAT,
				"%.400s: byte 0: found no PROTO, expected pickle protocol 2 to 5",
				vm->where);
	while (!vm->stopped) {
		if (vm->nops++ == TSR_PICKLE_OPS_MAX)
			return tsr_fail(vm->err, TSR_E_LIMIT,
					"%.400s: byte %zu: more opcodes than the limit of %u",
					vm->where, vm->at, TSR_PICKLE_OPS_MAX);
		TSR_TRY(step(vm));
	}
	return tsr_value_check(vm->stack[0], vm->where, vm->err);
}

/* Let the arena grow by what is allowed and no more; returns its limit before. */
static size_t set_limit(struct tsr_pickle_vm *vm)
{
	const size_t used = tsr_arena_used(vm->arena), before = tsr_arena_limit(vm->arena, 0);
	const size_t left = before > used ? before - used : 0;

	vm->allowed = (size_t)TSR_PICKLE_MEMORY_MAX - vm->nbytes;
	if (vm->allowed > left)
		vm->allowed = left;
	vm->arena_limit = used + vm->allowed;
	tsr_arena_limit(vm->arena, vm->arena_limit);
	return before;
}

enum tsr_status tsr_pickle_read(const void *bytes, size_t nbytes, const char *where,
				struct tsr_arena *arena, struct tsr_value **ret,
				struct tsr_err *err)
{
	struct tsr_pickle_vm vm = {
		.bytes = bytes, .nbytes = nbytes, .arena = arena, .where = where, .err = err
	};
	enum tsr_status status;
	size_t before;

	if (nbytes > TSR_PICKLE_NBYTES_MAX)
		return tsr_fail(err, TSR_E_LIMIT,
				"%.400s: pickle of %zu bytes is over the limit of %" PRIu64, where,
				nbytes, TSR_PICKLE_NBYTES_MAX);
	before = set_limit(&vm);
	status = run(&vm);
	tsr_arena_limit(arena, before);
	if (status == TSR_OK)
		*ret = vm.stack[0];
	free(vm.stack);
	free(vm.memo);
	return status;
}
