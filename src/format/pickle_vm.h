/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that a pickle is a program for; only for the files that read pickles. */
#ifndef TSR_FORMAT_PICKLE_VM_H
#define TSR_FORMAT_PICKLE_VM_H

#include "base/fail.h"
#include "format/pickle.h"

struct tsr_pickle_vm {
	const unsigned char *bytes;
	size_t nbytes;
	size_t at; /* the next byte */
	size_t op_at; /* of the opcode being carried out */
	uint32_t nops;
	const char *op; /* its name */
	unsigned arg; /* what sets it apart from others that do the same */
	bool stopped;

	struct tsr_value **stack;
	size_t n, room;
	size_t floor; /* where the values above the last mark start */
	size_t marks[TSR_PICKLE_MARKS_MAX]; /* the floors below the marks */
	size_t nmarks;

	struct tsr_value **memo; /* NULL where nothing was put */
	size_t memo_room, nputs;

	/* Equal values that a program cannot distinguish are made once. */
	struct tsr_value *none, *no, *yes, *no_items;
	struct tsr_value *small[256]; /* ints */

	const struct tsr_value *called; /* the last CALL, if nothing was put into the memo since */

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

/* A number of @nlength bytes, and that many bytes; TSR_E_LIMIT if it is over @limit. */
enum tsr_status tsr_vm_take_counted(struct tsr_pickle_vm *vm, size_t nlength, uint64_t limit,
				    const unsigned char **ret, size_t *nbytes_ret);

/* Mark the top of the stack. */
enum tsr_status tsr_vm_mark(struct tsr_pickle_vm *vm);

/* Take the last mark and all above it off the stack; the values stay readable in place. */
enum tsr_status tsr_vm_pop_mark(struct tsr_pickle_vm *vm, struct tsr_value ***items_ret,
				size_t *n_ret);

/* Take @n values off the stack, to be read in place. */
enum tsr_status tsr_vm_pop(struct tsr_pickle_vm *vm, size_t n, struct tsr_value ***items_ret);

/* Put the value at the top into the memo; push a value of the memo. */
enum tsr_status tsr_vm_put(struct tsr_pickle_vm *vm, uint64_t id);
enum tsr_status tsr_vm_get(struct tsr_pickle_vm *vm, uint64_t id);

/* Append @n values to a list of any kind; push a new one of @items. */
enum tsr_status tsr_vm_extend(struct tsr_pickle_vm *vm, struct tsr_value *list,
			      struct tsr_value *const *items, size_t n);
enum tsr_status tsr_vm_push_list(struct tsr_pickle_vm *vm, enum tsr_value_type type,
				 struct tsr_value *const *items, size_t n);

/* Push what calling @callee would make; @is_new: by its __new__(). */
enum tsr_status tsr_vm_push_call(struct tsr_pickle_vm *vm, struct tsr_value *callee,
				 struct tsr_value *args, bool is_new);

/* The opcodes REDUCE, NEWOBJ, NEWOBJ_EX and BUILD. */
enum tsr_status tsr_vm_reduce(struct tsr_pickle_vm *vm);
enum tsr_status tsr_vm_newobj(struct tsr_pickle_vm *vm);
enum tsr_status tsr_vm_newobj_ex(struct tsr_pickle_vm *vm);
enum tsr_status tsr_vm_build(struct tsr_pickle_vm *vm);

/* By their byte.  One without a function is refused by its name, which is that of pickletools. */
struct tsr_pickle_opcode {
	const char *name;
	enum tsr_status (*run)(struct tsr_pickle_vm *vm); /* the next byte is behind its own */
	unsigned arg;
};
extern const struct tsr_pickle_opcode tsr_pickle_opcodes[256];

#endif
