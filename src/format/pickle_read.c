/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a pickle: a program for a stack machine, of which only the building of values is done. */
#include <inttypes.h>
#include <stdlib.h>

#include "format/pickle_vm.h"

static enum tsr_status step(struct tsr_pickle_vm *vm)
{
	const struct tsr_pickle_opcode *opcode;
	unsigned code;

	if (vm->at == vm->nbytes)
		return tsr_fail(vm->err, TSR_E_FORMAT,
				"%.400s: byte %zu: found the end of the data, expected STOP",
				vm->where, vm->at);
	code = vm->bytes[vm->at];
	opcode = &tsr_pickle_opcodes[code];
	vm->op_at = vm->at++;
	vm->op = opcode->name;
	vm->arg = opcode->arg;
	if (opcode->run)
		return opcode->run(vm);
	if (opcode->name)
		return tsr_vm_fail(vm, TSR_E_UNSUPPORTED,
				   "an opcode that no checkpoint of torch needs");
	return tsr_fail(vm->err, TSR_E_FORMAT,
			"%.400s: byte %zu: found 0x%02x, which is not an opcode", vm->where,
			vm->op_at, code);
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
	if (!tsr_value_cut_cycles(vm->arena, vm->stack[0]))
		return tsr_vm_nomem(vm);
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
