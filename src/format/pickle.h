/* SPDX-License-Identifier: Apache-2.0 */
/* Pickles, read without executing anything and written for torch.load. */
#ifndef TSR_FORMAT_PICKLE_H
#define TSR_FORMAT_PICKLE_H

#include "text/text.h"
#include "format/value.h"

/* Limits; see SECURITY.md. */
#define TSR_PICKLE_NBYTES_MAX (UINT64_C(256) << 20)
#define TSR_PICKLE_OPS_MAX 64000000u
#define TSR_PICKLE_STACK_MAX 1000000u
#define TSR_PICKLE_MARKS_MAX 1000u
#define TSR_PICKLE_STRING_MAX (UINT64_C(16) << 20)
#define TSR_PICKLE_LONG_MAX 1024u

/*
 * Memory that a pickle, the values made of it and the memo may take together: one byte of a pickle
 * can cost 64 bytes of values.
 */
#define TSR_PICKLE_MEMORY_MAX (UINT64_C(448) << 20)

/**
 * tsr_pickle_read() - Interpret a pickle without executing anything
 * @bytes: @nbytes bytes, exactly one pickle of protocol 2 to 5
 * @where: the start of every message: "FILE: data.pkl"
 * @arena: what holds the values, which do not point into @bytes
 * @ret:   out: the value; it passed tsr_value_check(); untouched on failure
 *
 * Opcodes are those that torch.save and the metadata of torch.distributed.checkpoint use, at
 * protocol 2 and 4 (5 with in-band data only); every other one is refused by its name and offset.
 *
 * Shared values are shared: None, True, False, (), small ints and what the memo holds.  Dicts keep
 * their pairs in order, equal keys included.  GLOBALs of `builtins` have the module `__builtin__`,
 * as at protocol 2.  The calls that stand for bytes, sets and frozensets at protocol 2 become
 * those; a str of Python 2 becomes a STRING if it is UTF-8, else BYTES.  No other call is
 * interpreted, and any GLOBAL is accepted: the caller decides what is allowed.
 *
 * Return: TSR_OK, TSR_E_FORMAT, TSR_E_UNSUPPORTED, TSR_E_LIMIT or TSR_E_NOMEM.
 */
enum tsr_status tsr_pickle_read(const void *bytes, size_t nbytes, const char *where,
				struct tsr_arena *arena, struct tsr_value **ret,
				struct tsr_err *err);

/* How a TENSOR is written: the arguments of torch._utils._rebuild_tensor_v2 or _v3. */
struct tsr_pickle_tensor {
	const char *key; /* of its storage */
	const char *storage; /* class of torch: "FloatStorage"; NULL for an untyped one */
	const char *dtype; /* of torch: "float8_e4m3fn"; for an untyped storage only */
	uint64_t storage_numel; /* elements, or bytes of an untyped storage */
	unsigned rank;
	const uint64_t *shape; /* at offset 0 of its storage */
	const uint64_t *stride; /* in elements; NULL: row-major */
};

/**
 * tsr_pickle_write() - Write a value as a pickle of protocol 2 that torch.load accepts
 * @root:    a value; tsr_value_check() is called first
 * @tensors: what each TENSOR is, by the number in tensor.array
 * @out:     appended to, also on failure; the caller checks `failed`
 *
 * The same value gives the same bytes.  A value that is reached more than once is written once and
 * fetched from the memo, so sharing survives.  Uses only opcodes that torch's weights_only loader
 * permits (but for ints of 256 bytes and more): sets, frozensets and bytes are written as the calls
 * that protocol 2 has for them.  Which globals there are is for the caller to decide; that loader
 * knows set and _codecs.encode, not frozenset.
 * PERSISTENT is refused with TSR_E_UNSUPPORTED: storages are reached through TENSOR.  What is
 * written keeps the limits of tsr_pickle_read(), or the answer is TSR_E_LIMIT; TSR_E_FORMAT if the
 * value contains itself, or a string or global that no pickle can hold.  Uses `scratch` of the
 * values, so one thread at a time.
 */
enum tsr_status tsr_pickle_write(const struct tsr_value *root,
				 const struct tsr_pickle_tensor *tensors, const char *where,
				 struct tsr_text *out, struct tsr_err *err);

#endif
