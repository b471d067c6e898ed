/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a user for a whole directory, divided among its files. */
#ifndef TSR_DIRECTORY_FILE_RULES_H
#define TSR_DIRECTORY_FILE_RULES_H

#include "directory/directory_data.h"
#include "tersor/pack.h"

/* Those that match a tensor of one file. */
struct tsr_file_rules {
	const struct tsr_name_rule *rules;
	unsigned n;
};

/*
 * Choose the rules of @options for what is at @path, and set matched[i] for each of these.  Of what
 * cannot be opened or understood here, all: packing it says why.
 */
enum tsr_status tsr_file_rules_choose(struct tsr_directory *d,
				      const struct tsr_pack_options *options, const char *path,
				      bool *matched, struct tsr_file_rules *ret,
				      struct tsr_err *err);

/* Remark on a rule that matched in no file; with @options->strict it is an error. */
enum tsr_status tsr_file_rules_check(struct tsr_directory *d,
				     const struct tsr_pack_options *options, const bool *matched,
				     struct tsr_err *err);

#endif
