/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of the containers use to fill a checkpoint. */
#ifndef TSR_CKPT_BUILD_H
#define TSR_CKPT_BUILD_H

#include "io/file.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/layout.h"
#include "format/value.h"

/*
 * Memory that names, shapes, layouts and values of one checkpoint may take: some, and some for each byte of
 * its files, but never more than the most.
 */
#define TSR_BUILD_NBYTES_FREE (UINT64_C(448) << 20)
#define TSR_BUILD_NBYTES_PER_BYTE 4u
#define TSR_BUILD_NBYTES_MAX (UINT64_C(1) << 30)

/*
 * Bytes that the names of all tensors may have, and those that optimizers give their parameters: some, and
 * some for each byte of the files.  A file may share one long key among very many places.
 */
#define TSR_BUILD_NAMES_FREE (UINT64_C(16) << 20)
#define TSR_BUILD_NAMES_PER_BYTE 4u

/* Count a name that is made of keys, or looked up: TSR_E_LIMIT if it is too much. */
enum tsr_status tsr_build_charge_name(struct tsr_checkpoint *c, size_t nbytes, struct tsr_err *err);

/* Make @container the checkpoint's if no input was read before. */
void tsr_build_container(struct tsr_checkpoint *c, enum tsr_container container);

/* Take ownership of a file, also on failure; *index_ret is what array->file and chunk->file mean. */
enum tsr_status tsr_build_file(struct tsr_checkpoint *c, struct tsr_file *f, unsigned *index_ret,
			       struct tsr_err *err);

/*
 * Add an array; name, shape and layout must live in the checkpoint's arena.  Sets numel and nbytes
 * from dtype and shape (TSR_E_LIMIT on overflow).  *index_ret may be NULL.
 */
enum tsr_status tsr_build_array(struct tsr_checkpoint *c, const struct tsr_array *a,
				size_t *index_ret, struct tsr_err *err);

/* Add a tensor; name and shape must live in the checkpoint's arena. */
enum tsr_status tsr_build_tensor(struct tsr_checkpoint *c, const struct tsr_tensor *t,
				 struct tsr_err *err);

/* Sort the names of tensors once all are there: TSR_E_FORMAT for two of one name. */
enum tsr_status tsr_build_index(struct tsr_checkpoint *c, struct tsr_err *err);

/* Per array: the tensor whose first plane it is, or SIZE_MAX. */
void tsr_build_by_array(const struct tsr_checkpoint *c, size_t *ret);

/* Where there is no memory for one: no tensor is found by its name. */
void tsr_build_no_index(struct tsr_checkpoint *c);

/* Free the list of tensors, keep the arrays. */
void tsr_build_drop_tensors(struct tsr_checkpoint *c);

/* The metadata entry with the number of lossy generations; more than the limit is malformed. */
#define TSR_GENERATION_KEY "tersor_generation"
#define TSR_GENERATION_MAX 1000000u

/* Add an entry of metadata; both texts must live in the arena. */
enum tsr_status tsr_build_meta(struct tsr_checkpoint *c, const char *key, const char *value,
			       struct tsr_err *err);

/* Add the root of what an input holds: mappings, lists, scalars, and TENSOR values for arrays. */
enum tsr_status tsr_build_tree(struct tsr_checkpoint *c, struct tsr_value *root,
			       struct tsr_err *err);

/*
 * Add what a user should know, escaped so that it can be printed: a note of what is lost, misnamed or in
 * doubt; a remark of what is as it should be, which is shown to those who ask.
 */
enum tsr_status tsr_build_note(struct tsr_checkpoint *c, struct tsr_err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
enum tsr_status tsr_build_remark(struct tsr_checkpoint *c, struct tsr_err *err, const char *fmt,
				 ...) __attribute__((format(printf, 3, 4)));

/* The failure of an allocation from the arena: TSR_E_LIMIT or TSR_E_NOMEM. */
enum tsr_status tsr_build_nomem(struct tsr_checkpoint *c, struct tsr_err *err);

/* What messages call the place of an array: its file; the checkpoint, if that is in a job's memory. */
const char *tsr_array_path(const struct tsr_checkpoint *c, const struct tsr_array *a);

#endif
