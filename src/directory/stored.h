/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a packed directory has for its entries. */
#ifndef TSR_DIRECTORY_STORED_H
#define TSR_DIRECTORY_STORED_H

#include "directory/traversal.h"

/*
 * How to open each file of a directory: as given (NULL: by default), but states keep an optimizer's numbers
 * where names and shapes do not settle them, since each file comes back by itself.
 */
enum tsr_status tsr_directory_open_options(struct tsr_open_options *ret,
					   const struct tsr_open_options *given,
					   struct tsr_err *err);

/* The same for files of a packed directory, which may hold one rank's parts: others are beside it. */
enum tsr_status tsr_stored_open_options(struct tsr_open_options *ret,
					const struct tsr_open_options *given, struct tsr_err *err);

/*
 * Whether a checkpoint is stored as a model that loaders take: safetensors with packed weights in a file of
 * their own.  Coded as an archive (TSR_CODED_ALL) it is one file.
 */
bool tsr_stored_as_model(const struct tsr_checkpoint *c, enum tsr_coded_planes coded);

/*
 * Give a packed entry the names of its files: the packed file, which is opened to read it, and with @two
 * before it one under the source's own name with the narrow weights, where loaders look for a model.
 */
enum tsr_status tsr_stored_list(struct tsr_directory *d, struct tsr_directory_entry *e, bool two,
				struct tsr_err *err);

/* The one of an entry's files that is opened to read its tensors. */
const struct tsr_stored_file *tsr_opened_file(const struct tsr_directory_entry *e);

/*
 * Whether the files of an entry are there with their sizes, and those of a packed one with the headers
 * that they were written with: TSR_E_FORMAT if not.
 */
enum tsr_status tsr_check_stored(struct tsr_traversal *t, const struct tsr_directory_entry *e);

/*
 * The files of a packed entry, which are written, get the permissions of its source, and the entry their
 * sizes and the hashes of their headers.
 */
enum tsr_status tsr_stored_finish(struct tsr_traversal *t, struct tsr_directory_entry *e);

#endif
