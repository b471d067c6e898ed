/* SPDX-License-Identifier: Apache-2.0 */
/* What the imports of other tools' states share: finding the parts of a tensor and joining them. */
#ifndef TSR_NAMES_IMPORT_PARTS_H
#define TSR_NAMES_IMPORT_PARTS_H

#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "format/value.h"
#include "names/optimizer_ids.h"
#include "text/named.h"

/* The import of one checkpoint. */
struct tsr_importing {
	struct tsr_checkpoint *c;
	struct tsr_named *by_name; /* its arrays, sorted */
	bool *part; /* per array: whether it belongs to another array's tensor, or is used up */
	struct tsr_coding *coding; /* per array: of the tensor whose first plane it is */
	size_t (*rest)[TSR_PLANES_MAX - 1]; /* per array: the tensor's other planes */
	size_t *like; /* per array: another one, from 1 on, whose shape its tensor has; 0: its own */
	struct tsr_err *err;
};

/* The array whose name is the first @len bytes of @name and @suffix, or SIZE_MAX. */
size_t tsr_import_find(const struct tsr_importing *m, const char *name, size_t len,
		       const char *suffix);

/* The length of @name without @suffix, which it must end with and not be; else 0. */
size_t tsr_import_stem(const char *name, const char *suffix);

/* Make one tensor of two arrays. */
void tsr_import_join(struct tsr_importing *m, size_t first, size_t second,
		     struct tsr_coding coding);

/* Make array @i plane @plane, from 1 on, of the tensor that begins with array @first. */
void tsr_import_add(struct tsr_importing *m, size_t first, unsigned plane, size_t i);

/* The group of @n elements in @ngroups groups: the least power of two that gives so many; or 0. */
uint32_t tsr_import_group(uint64_t n, uint64_t ngroups);

/* Elements of a block, of which all are whole: as many for each value; 0: they do not fit. */
uint32_t tsr_import_block(const struct tsr_array *codes, const struct tsr_array *values);

/* Refuse scales that do not fit their codes. */
enum tsr_status tsr_import_bad_scales(const struct tsr_importing *m, const struct tsr_array *codes,
				      const struct tsr_array *scales);

/*
 * If array @i has the codes of a state of bitsandbytes: make one tensor of codes, table and scales.
 * docs/internals/numerics.md has their layout.
 */
enum tsr_status tsr_import_bitsandbytes(struct tsr_importing *m, size_t i);

/* The same of all states in a tree, whose tables may be one tensor under several names. */
enum tsr_status tsr_import_bitsandbytes_tree(struct tsr_importing *m, struct tsr_value *root);

/*
 * If array @i has the FP8 codes of a moment of COAT, scaled by group: make one tensor of its arrays.
 * docs/internals/numerics.md has their layout.
 */
enum tsr_status tsr_import_coat(struct tsr_importing *m, size_t i);

/*
 * If array @i has the codes of a momentum of Gefen: make a tensor of codes, codebook and magnitudes, and
 * one of the variance's means.  docs/internals/numerics.md has their layout.
 */
enum tsr_status tsr_import_gefen(struct tsr_importing *m, size_t i);

/* Make one tensor of the parts of a state of torchao, which @v is: a TENSOR with a wrapper. */
enum tsr_status tsr_import_torchao(struct tsr_importing *m, struct tsr_value *v);

/* --- Import of FlashOptim's compressed states; flashoptim_export.h is the way back ------------ */

/*
 * If array @i has the codes of a state (NAME::quantized): make one tensor of codes and scales.  It
 * takes over NAME, so other parts must have been found before.
 */
enum tsr_status tsr_import_flashoptim_state(struct tsr_importing *m, size_t i);

/*
 * For a writer of what is read with such states in it, such as a .pt: TSR_E_UNSUPPORTED if a tensor of @c
 * has the name of codes and is none, as the reader would refuse it.  @container: what is written, for the
 * message.
 */
enum tsr_status tsr_flashoptim_check_names(const struct tsr_checkpoint *c, const char *container,
					   struct tsr_err *err);

/* Let the key of such codes in a tree be NAME, too. */
enum tsr_status tsr_import_flashoptim_key(struct tsr_importing *m, struct tsr_value **key);

/*
 * FlashOptim keeps corrections in tensors of the weight's type: whole numbers, or the bits of
 * 16-bit integers, as the group's master_bytewidth says.  Give that of parameter @id its own type.
 */
enum tsr_status tsr_import_flashoptim_type(struct tsr_checkpoint *c, const struct tsr_optim *o,
					   const struct tsr_optim_id *id, struct tsr_err *err);

/* --- Import of the states of torchao, as far as the names of tensors need it ------------------ */

/*
 * The flat codes of 4 bits in the state_dict() of an optimizer become arrays of 4-bit elements with the
 * shapes of their parameters, by which names are found.
 */
enum tsr_status tsr_import_torchao_shapes(struct tsr_checkpoint *c,
					  const struct tsr_value *optimizer, struct tsr_err *err);

#endif
