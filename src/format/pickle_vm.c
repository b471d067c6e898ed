/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that a pickle is a program for: its operands, stack and memo. */
#include "format/pickle_vm.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/little_endian.h"

/* --- Messages ------------------------------------------------------------------------------- */

enum tsr_status tsr_vm_fail(const struct tsr_pickle_vm *vm, enum tsr_status code, const char *fmt,
			    ...)
{
	char found[TSR_ERR_MAX / 2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(found, sizeof(found), fmt, ap);
	va_end(ap);
	return tsr_fail(vm->err, code, "%.400s: byte %zu: %s: %s", vm->where, vm->op_at, vm->op,
			found);
}

enum tsr_status tsr_vm_nomem(const struct tsr_pickle_vm *vm)
{
	if (!tsr_arena_full(vm->arena))
		return tsr_fail_nomem(vm->err, vm->where);
	return tsr_vm_fail(vm, TSR_E_LIMIT, "values take more memory than the limit of %zu bytes",
			   vm->allowed);
}

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

	TSR_TRY(tsr_vm_take(vm, n, &b));
	*ret = tsr_get_le(b, n);
	return TSR_OK;
}

enum tsr_status tsr_vm_take_counted(struct tsr_pickle_vm *vm, size_t nlength, uint64_t limit,
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

/* --- The stack ------------------------------------------------------------------------------ */

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

enum tsr_status tsr_vm_mark(struct tsr_pickle_vm *vm)
{
	if (vm->nmarks == TSR_PICKLE_MARKS_MAX)
		return tsr_vm_fail(vm, TSR_E_LIMIT, "more marks than the limit of %u",
				   TSR_PICKLE_MARKS_MAX);
	vm->marks[vm->nmarks++] = vm->floor;
	vm->floor = vm->n;
	return TSR_OK;
}

enum tsr_status tsr_vm_pop_mark(struct tsr_pickle_vm *vm, struct tsr_value ***items_ret,
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

enum tsr_status tsr_vm_pop(struct tsr_pickle_vm *vm, size_t n, struct tsr_value ***items_ret)
{
	TSR_TRY(tsr_vm_need(vm, n));
	vm->n -= n;
	*items_ret = vm->stack + vm->n;
	return TSR_OK;
}

/* --- The memo ------------------------------------------------------------------------------- */

/* The memo and the values share one limit. */
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

/* Picklers count from 0, but the C one of Python 2 from 1; so a memo has at most one hole. */
enum tsr_status tsr_vm_put(struct tsr_pickle_vm *vm, uint64_t id)
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
	vm->called = NULL;
	return TSR_OK;
}

enum tsr_status tsr_vm_get(struct tsr_pickle_vm *vm, uint64_t id)
{
	if (id >= vm->memo_room || !vm->memo[id])
		return tsr_vm_fail(vm, TSR_E_FORMAT,
				   "found memo id %" PRIu64 ", which was not put before", id);
	return tsr_vm_push(vm, vm->memo[id]);
}

enum tsr_status tsr_vm_extend(struct tsr_pickle_vm *vm, struct tsr_value *list,
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

enum tsr_status tsr_vm_push_list(struct tsr_pickle_vm *vm, enum tsr_value_type type,
				 struct tsr_value *const *items, size_t n)
{
	struct tsr_value *list = tsr_value_new(vm->arena, type);

	if (!list)
		return tsr_vm_nomem(vm);
	TSR_TRY(tsr_vm_extend(vm, list, items, n));
	return tsr_vm_push(vm, list);
}
