/* SPDX-License-Identifier: Apache-2.0 */
/* Reading archives of torch.save. */
#ifndef TSR_TORCH_TORCH_H
#define TSR_TORCH_TORCH_H

#include "ckpt/build.h"
#include "tersor/saving.h"
#include "text/text.h"

/* The most that a data.pkl may take; see also the limits of format/pickle.h. */
#define TSR_TORCH_PICKLE_MAX (UINT64_C(256) << 20)
/* The keys of all dicts, a key that several dicts share counted for each: they are compared. */
#define TSR_TORCH_KEYS_MAX (UINT64_C(1) << 30)

/*
 * A tensor may show its storage's elements more than once: up to 16 times the storage's bytes, and
 * 1 MiB on top.  All tensors of an archive: 16 times the bytes of all storages, and 64 MiB.
 */
#define TSR_TORCH_EXPANSION_MAX 16u
#define TSR_TORCH_EXPANSION_FREE (UINT64_C(1) << 20)
#define TSR_TORCH_EXPANSION_FREE_ALL (UINT64_C(64) << 20)

/* The largest size of a dimension. */
#define TSR_TORCH_DIM_MAX ((UINT64_C(1) << 48) - 1)

/**
 * tsr_torch_read() - Read one archive of torch.save into a checkpoint
 * @base, @nbytes: the part of file number @file that is the archive
 * @where: the start of every message, and of no name
 * @prefix: the start of names, "" for none
 * @root_ret: out: the value that was saved, in which tensors are TENSOR values
 *
 * Nothing is added to the checkpoint's trees.  Arrays get a provisional name: the keys that lead to
 * them, joined with dots.  Tensors that are the same view of the same storage are one array.  One
 * that is a whole stored record has the record's checksum, any other a layout whose chunk says what
 * it is; records without one are counted in `nunchecked`.  What was compressed is inflated (and
 * checked) now, into scratch files.  A record that is part of no tensor is worth a note, and so are
 * NumPy values, which stay as the calls that would make them.
 *
 * A class or function is an inert value if it is known to be a plain one (SECURITY.md lists
 * them); any other is kept, replaced by None with a note, or TSR_E_UNSUPPORTED, as the checkpoint's
 * `opaque` says.  A DTensor, and a ShardedTensor, has the array of what the rank has of it.  Tensors
 * that are not plain ones otherwise are TSR_E_UNSUPPORTED: sparse, quantized, conjugated and so on; and
 * so are whole modules.
 *
 * Return: TSR_OK, TSR_E_FORMAT, TSR_E_UNSUPPORTED, TSR_E_LIMIT, TSR_E_IO or TSR_E_NOMEM.
 */
enum tsr_status tsr_torch_read(struct tsr_checkpoint *c, unsigned file, uint64_t base,
			       uint64_t nbytes, const char *where, const char *prefix,
			       struct tsr_value **root_ret, struct tsr_err *err);

/*
 * The state of a running job into a checkpoint without files: the place of an array is the number of the
 * job's tensor.  Names, trees and refusals are those of tsr_torch_read().
 */
enum tsr_status tsr_torch_read_job(struct tsr_checkpoint *c, const struct tsr_job_state *s,
				   struct tsr_err *err);

/*
 * A note with the names of all classes and functions in the trees that make no plain values.  Counts
 * the parts of tensors.
 */
enum tsr_status tsr_torch_name_carried(struct tsr_checkpoint *c, struct tsr_err *err);

/* "Shard(0) of [256, 64]": what a part of a tensor is, of which other ranks have the rest. */
void tsr_torch_describe_part(const struct tsr_value *tensor, struct tsr_text *out);

/*
 * Detects from its first bytes (512 suffice) a file that torch.save wrote before PyTorch 1.6, or that
 * another tool wrote.  Returns text for a message that says what to do about it; NULL: neither.
 */
const char *tsr_torch_old_kind(const unsigned char *head, size_t n);

/* What torch calls an element type. */
struct tsr_torch_dtype {
	enum tsr_dtype dtype;
	const char *storage; /* "FloatStorage", or NULL where only untyped storages hold it */
	const char *name; /* "float32" */
};

/* NULL if torch has no such type. */
const struct tsr_torch_dtype *tsr_torch_dtype(enum tsr_dtype dtype);
const struct tsr_torch_dtype *tsr_torch_dtype_by_name(const char *name);
const struct tsr_torch_dtype *tsr_torch_dtype_by_value(const struct tsr_value *v); /* a GLOBAL */
const struct tsr_torch_dtype *tsr_torch_dtype_by_storage(const char *storage);

/* Whether torch has an element type of this name, even one that TSR_DTYPE_LIST lacks. */
bool tsr_torch_is_dtype(const char *name);

#endif
