/* SPDX-License-Identifier: Apache-2.0 */
/* Import of FlashOptim's compressed states; flashoptim_export.h is the way back. */
#ifndef TSR_NAMES_FLASHOPTIM_IMPORT_H
#define TSR_NAMES_FLASHOPTIM_IMPORT_H

#include "names/import/import_parts.h"
#include "names/optimizer_ids.h"

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

#endif
