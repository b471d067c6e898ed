/* SPDX-License-Identifier: Apache-2.0 */
/* What is to become of each file of a directory, and how. */
#ifndef TSR_DIRECTORY_PLAN_H
#define TSR_DIRECTORY_PLAN_H

#include "directory/by_file.h"
#include "directory/dir_target.h"
#include "directory/directory_data.h"

/* A directory that is being packed. */
struct tsr_dir_packing {
	struct tsr_directory *d; /* what it is to become */
	struct tsr_nodes nodes; /* what is in it; d->entries[i] is of node i */
	const struct tsr_pack_options *options;
	struct tsr_directory_watch watch;
	struct tsr_by_file by_file;
	struct tsr_dir_target target;
	bool *quantized; /* per node: whether it is a shard of a quantized model */
	struct tsr_err *err;
};

/* Make the entries: what is packed and copied, and the sizes to expect. */
enum tsr_status tsr_dir_plan(struct tsr_dir_packing *p);

/*
 * How the file of an entry is packed: the one place where options of a file are made.  @weights_out: the
 * path of the first of two files, if there are two.
 */
struct tsr_pack_options tsr_dir_file_options(const struct tsr_dir_packing *p,
					     const char *weights_out);

/* The parts of a checkpoint become @as, once it is known that it is packed, or not. */
void tsr_dir_settle_parts(struct tsr_dir_packing *p, const struct tsr_directory_entry *metadata,
			  enum tsr_stored_as as);

/* Bytes of what an entry's packed file is made from: more files than one if it is a DCP. */
uint64_t tsr_dir_source_nbytes(const struct tsr_dir_packing *p,
			       const struct tsr_directory_entry *e);

/* Why the packed file of an entry is not worth keeping; NULL: it is. */
const char *tsr_dir_no_gain(const struct tsr_dir_packing *p, const struct tsr_directory_entry *e,
			    const struct tsr_packing *packing);

/* Make the entry one of a copy, for @reason; NULL if it never was to be packed. */
enum tsr_status tsr_dir_plan_copy(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
				  const char *reason);

#endif
