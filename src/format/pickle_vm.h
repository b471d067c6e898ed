/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that a pickle is a program for; between the files of the reader only. */
#ifndef TSR_CKPT_PICKLE_VM_H
#define TSR_CKPT_PICKLE_VM_H

#include "base/fail.h"
#include "format/pickle.h"

struct tsr_pickle_vm {
	const unsigned char *bytes;
	size_t nbytes;
	size_t at; /* the next byte */
	size_t op_at; /* of the opcode being carried out */
	uint32_t nops;
	bool stopped;

	struct tsr_value **stack;
	size_t n, room;
	size_t floor; /* where the values above the last mark start */
	size_t marks[TSR_PICKLE_MARKS_MAX]; /* the floors below the marks */
	size_t nmarks;

	struct tsr_value **memo; /* NULL where nothing was put */
	size_t memo_room, nputs;

	/* Values that no program can tell apart are made once. */
	struct tsr_value *none, *no, *yes, *no_items;
	struct tsr_value *small[256]; /* ints */

	struct tsr_arena *arena;
	size_t arena_limit; /* for now; the memo takes its part */
	size_t allowed; /* bytes that the values and the memo may take */
	const char *where;
	struct tsr_err *err;
};

/* Fail with "WHERE: byte 12: OPCODE: " before the message. */
enum tsr_status tsr_vm_fail(const struct tsr_pickle_vm *vm, enum tsr_status code, const char *fmt,
			    ...) __attribute__((format(printf, 3, 4)));

/* The failure of an allocation: TSR_E_LIMIT if it is the arena's limit, else TSR_E_NOMEM. */
enum tsr_status tsr_vm_nomem(const struct tsr_pickle_vm *vm);

/* Push a value; NULL stands for a failed allocation. */
enum tsr_status tsr_vm_push(struct tsr_pickle_vm *vm, struct tsr_value *v);

/* That at least @n values stand above the last mark. */
enum tsr_status tsr_vm_need(const struct tsr_pickle_vm *vm, size_t n);

/* The next @n bytes of the program. */
enum tsr_status tsr_vm_take(struct tsr_pickle_vm *vm, size_t n, const unsigned char **ret);

/* The next @n bytes as a little-endian number, n <= 8. */
enum tsr_status tsr_vm_take_number(struct tsr_pickle_vm *vm, size_t n, uint64_t *ret);

/* What to call a value in a message: "a list". */
const char *tsr_vm_kind(const struct tsr_value *v);

/* Carries out one opcode, whose own byte is behind. */
typedef enum tsr_status tsr_pickle_op(struct tsr_pickle_vm *vm);

/* Those that make and fill containers and calls, and use the memo.  Names are pickletools' own. */
tsr_pickle_op tsr_op_mark, tsr_op_pop, tsr_op_pop_mark, tsr_op_dup;
tsr_pickle_op tsr_op_binput, tsr_op_long_binput, tsr_op_memoize, tsr_op_binget, tsr_op_long_binget;
tsr_pickle_op tsr_op_empty_tuple, tsr_op_tuple, tsr_op_tuple1, tsr_op_tuple2, tsr_op_tuple3;
tsr_pickle_op tsr_op_empty_list, tsr_op_list, tsr_op_append, tsr_op_appends;
tsr_pickle_op tsr_op_empty_dict, tsr_op_dict, tsr_op_setitem, tsr_op_setitems;
tsr_pickle_op tsr_op_empty_set, tsr_op_additems, tsr_op_frozenset;
tsr_pickle_op tsr_op_reduce, tsr_op_newobj, tsr_op_build, tsr_op_binpersid;

#endif
