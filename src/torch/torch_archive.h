/* SPDX-License-Identifier: Apache-2.0 */
/* One archive of torch.save and the tensors in it; between the files that read it only. */
#ifndef TSR_TORCH_TORCH_ARCHIVE_H
#define TSR_TORCH_TORCH_ARCHIVE_H

#include "ckpt/checkpoint_model.h"
#include "text/text.h"
#include "torch/torch.h"
#include "format/zip.h"

/* The record data/KEY of a storage. */
struct tsr_torch_record {
	const struct tsr_torch_dtype *dtype; /* of its elements; NULL: untyped, bytes */
	uint64_t numel; /* as its storage was said to have: elements, or bytes */
	unsigned file; /* of the checkpoint; where it can be read in place */
	uint64_t offset, nbytes;
	bool has_crc; /* of the bytes in that file */
	uint32_t crc;
};

/* A view of a storage. */
struct tsr_torch_view {
	struct tsr_torch_record record;
	size_t member; /* of the archive: which record it is */
	enum tsr_dtype dtype;
	bool swapped; /* elements are big-endian */
	bool requires_grad, parameter;
	bool contiguous;
	unsigned rank;
	uint64_t shape[TSR_RANK_MAX];
	uint64_t stride[TSR_RANK_MAX]; /* as of a contiguous tensor where they do not matter */
	uint64_t given[TSR_RANK_MAX]; /* the strides that it says */
	uint64_t first; /* element of the storage */
	uint64_t numel, nbytes; /* of the tensor */
};

/*
 * Of a pickle that is in no archive only @c, @where and @err are set, for a checkpoint's tree, and for a
 * running job its facts.
 */
struct tsr_torch_archive {
	struct tsr_checkpoint *c;
	unsigned file;
	const char *where;
	const uint64_t *const
		*facts; /* of a running job's tensors; NULL: they are in the archive */
	size_t nfacts;
	struct tsr_zip *zip; /* NULL: there is none */
	char *name; /* room for "ROOT/" and the name of a record */
	size_t root_len; /* of "ROOT/" */
	bool swapped;
	bool *used; /* per member: whether something was read from it so far */
	struct tsr_torch_record *records; /* per member; numel and the like once @used */
	struct tsr_err *err;
};

/*
 * Open the archive at @base of file number @file: check its directory, what it says about itself
 * and that it is not a program.  To be closed with tsr_torch_close(), also on failure.
 */
enum tsr_status tsr_torch_open(struct tsr_torch_archive *a, uint64_t base, uint64_t nbytes);
void tsr_torch_close(struct tsr_torch_archive *a);

/* The member ROOT/@name, at most 40 bytes long, or NULL. */
const struct tsr_zip_member *tsr_torch_find(const struct tsr_torch_archive *a, const char *name);

/* The value in data.pkl, as tsr_pickle_read() gives it. */
enum tsr_status tsr_torch_load(struct tsr_torch_archive *a, struct tsr_arena *arena,
			       struct tsr_value **ret);

/*
 * Fail with "WHERE: data.pkl: AT: " before the message, or outside of an archive "WHERE: AT: "; @at "" is
 * the root.
 */
enum tsr_status tsr_torch_fail(const struct tsr_torch_archive *a, enum tsr_status code,
			       const char *at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Whether a value is a call that makes a plain tensor. */
bool tsr_torch_is_tensor(const struct tsr_value *v);

/* What such a call says, checked against the archive.  @at: the keys that lead to it. */
enum tsr_status tsr_torch_view(struct tsr_torch_archive *a, const struct tsr_value *call,
			       const char *at, struct tsr_torch_view *ret);

/* Fill @ret, but for its name, with the view; shape and layout are put into the arena. */
enum tsr_status tsr_torch_array(struct tsr_checkpoint *c, const struct tsr_torch_view *view,
				struct tsr_array *ret, struct tsr_err *err);

/* Where a view stands; start, size and stride of @ret are the caller's. */
void tsr_torch_chunk(const struct tsr_torch_view *view, struct tsr_chunk *ret);

/* Whether the argument of a tensor that holds its hooks is empty. */
bool tsr_torch_no_hooks(const struct tsr_value *v);

/* Sets array and requires_grad of the TENSOR that such a call makes. */
typedef enum tsr_status tsr_torch_find_fn(void *ctx, const struct tsr_value *call, const char *at,
					  struct tsr_value *ret);

/* The longest path in messages and provisional names. */
#define TSR_TORCH_PATH_NBYTES 512u

/* How many NumPy values there are, and where the first one stands. */
struct tsr_torch_numpy {
	size_t n;
	char at[TSR_TORCH_PATH_NBYTES];
};

/* Turn the tensors of a value into TENSOR values; refuse what is not known to be harmless. */
enum tsr_status tsr_torch_bind_with(struct tsr_torch_archive *a, struct tsr_value *root,
				    tsr_torch_find_fn *find, void *ctx,
				    struct tsr_torch_numpy *numpy);

/* The same, adding arrays whose names start with @prefix and, if both are not empty, a dot. */
enum tsr_status tsr_torch_bind(struct tsr_torch_archive *a, struct tsr_value *root,
			       const char *prefix);

/*
 * The one tensor that an archive holds and nothing else, as torch.distributed.checkpoint writes
 * them.  No array is added.
 */
enum tsr_status tsr_torch_read_tensor(struct tsr_checkpoint *c, unsigned file, uint64_t base,
				      uint64_t nbytes, const char *where,
				      struct tsr_torch_view *ret, struct tsr_err *err);

/*
 * The tensor of a call of torch._tensor._rebuild_from_type_v2 that makes a plain one with attributes of
 * its own, as a call that tsr_torch_is_tensor() knows; false: anything else.
 */
bool tsr_torch_is_typed(const struct tsr_value *v, struct tsr_value *call_ret,
			struct tsr_value **attributes_ret);

/* The GLOBAL of a tensor's class where such a call makes another one; NULL: it is not such a call. */
const struct tsr_value *tsr_torch_subclass(const struct tsr_value *v);

/* Whether a GLOBAL is the class of a subclass that is read: a state of torchao, or a part of a tensor. */
bool tsr_torch_is_wrapper_class(const struct tsr_value *global);

/*
 * Whether such a call makes one: the tensor to put in its place, but for the array, and the value in it,
 * which has the array once it is bound: the codes, or what the rank has of the tensor.
 */
bool tsr_torch_is_wrapper(const struct tsr_value *v, struct tsr_value **inner_ret,
			  struct tsr_value *tensor_ret);

/* Its wrapper says the CPU, as the storage of the tensor in it will; false when out of memory. */
bool tsr_torch_move_to_cpu(struct tsr_arena *arena, const struct tsr_value *tensor);

/* Whether a TENSOR with a wrapper is a DTensor of which its array has every element. */
bool tsr_torch_is_whole(const struct tsr_value *tensor, const struct tsr_array *a);

/* What becomes of a class, a function or a call of one. */
enum tsr_torch_verdict {
	TSR_TORCH_KEEP,
	TSR_TORCH_DROP, /* None stands in its place */
	TSR_TORCH_REFUSE,
};

/* By the checkpoint's policy.  @v: a GLOBAL or CALL that makes no plain tensor. */
enum tsr_torch_verdict tsr_torch_judge(const struct tsr_checkpoint *c, const struct tsr_value *v);

/* Whether a value is a tensor that is not plain, or a whole module; @global: what is called first. */
bool tsr_torch_is_tensor_like(const struct tsr_value *v, const struct tsr_value *global);

/* Whether a class or function only makes plain values. */
bool tsr_torch_is_harmless(const struct tsr_value *global);

/* Whether a function runs programs or loads code (posix.system, eval): never carried into an output. */
bool tsr_torch_is_dangerous(const struct tsr_value *global);

/* Refuse a class or function, or a call of one (@v), by the kind of thing it is. */
enum tsr_status tsr_torch_refuse(const struct tsr_torch_archive *a, const char *at,
				 const struct tsr_value *v);

#endif
