/* SPDX-License-Identifier: Apache-2.0 */
/* What is to become of each file of a directory, and how. */
#ifndef TSR_DIRECTORY_PLAN_H
#define TSR_DIRECTORY_PLAN_H

#include "directory/traversal.h"

/* A directory that is being packed; entries[i] is of node i. */
struct tsr_dir_packing {
	struct tsr_traversal t;
	const struct tsr_pack_options *options;
	bool *quantized; /* per node: whether it is a shard of a quantized model */
};

/* Decide what is packed and copied, and the sizes to expect. */
enum tsr_status tsr_dir_plan(struct tsr_traversal *t);

/*
 * How the file of an entry is packed: the one place where options of a file are made.  @weights_out: the
 * path of the first of two files, if there are two.
 */
enum tsr_status tsr_dir_file_options(struct tsr_dir_packing *p, const struct tsr_directory_entry *e,
				     const char *weights_out, struct tsr_pack_options *ret);

/* The parts of a checkpoint become @as, once it is known that it is packed, or not. */
void tsr_dir_settle_parts(struct tsr_dir_packing *p, const struct tsr_directory_entry *metadata,
			  enum tsr_stored_as as);

/* Why the packed file of an entry is not worth keeping; NULL: it is. */
const char *tsr_dir_no_gain(const struct tsr_dir_packing *p, const struct tsr_directory_entry *e,
			    const struct tsr_packing *packing);

/* Make the entry one of a copy, for @reason; NULL if it never was to be packed. */
enum tsr_status tsr_dir_plan_copy(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
				  const char *reason);

#endif
