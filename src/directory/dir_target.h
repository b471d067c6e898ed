/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that packing or unpacking one makes. */
#ifndef TSR_DIRECTORY_DIR_TARGET_H
#define TSR_DIRECTORY_DIR_TARGET_H

#include "directory/directory_data.h"
#include "io/dir_output.h"

/*
 * With @force a directory of the same kind is replaced: with @packed a packed one without other files than
 * those that its index lists, else one without other files than those that the new one has under their names.
 * @parts: those who make it together, or NULL.
 */
struct tsr_dir_target {
	const char *path;
	bool packed, force;
	struct tsr_parts *parts;
};

/* Whether the directory can be made: it is apart from what is read, and there is room. */
enum tsr_status tsr_dir_check_target(struct tsr_directory *input,
				     const struct tsr_dir_target *target, uint64_t nbytes,
				     struct tsr_err *err);

/* Start it, for the entries of @d.  Only its owner can look into it before it is published. */
enum tsr_status tsr_dir_start(struct tsr_directory *d, const struct tsr_dir_target *target,
			      struct tsr_outdir **ret, struct tsr_err *err);

/*
 * End it: publish it with the permissions of @d and its directories, or remove it if @status is not
 * TSR_OK, which is then returned.  In parts it stays then, unless it is known that it is of no use.
 */
enum tsr_status tsr_dir_end(struct tsr_directory *d, const struct tsr_dir_target *target,
			    struct tsr_outdir *made, enum tsr_status status, struct tsr_err *err);

/* Remove the index from where it is made, @out: one who failed to join the parts may have made it. */
enum tsr_status tsr_dir_remove_index(const struct tsr_dir_target *target, const char *out,
				     struct tsr_err *err);

/* Make a directory in it; in parts another may have made it. */
enum tsr_status tsr_dir_make_in(const struct tsr_dir_target *target, const char *path,
				struct tsr_err *err);

#endif
