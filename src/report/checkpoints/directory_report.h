/* SPDX-License-Identifier: Apache-2.0 */
/* What commands say of a directory that is packed file by file. */
#ifndef TSR_REPORT_CHECKPOINTS_DIRECTORY_REPORT_H
#define TSR_REPORT_CHECKPOINTS_DIRECTORY_REPORT_H

#include "report/checkpoints/remarks.h"
#include "tersor/directory.h"

/* Bytes of all files before and after packing, and how many there are. */
struct tsr_directory_sizes {
	uint64_t nbytes, stored_nbytes;
	size_t npacked, ncopied, ndirectories;
};

struct tsr_directory_sizes tsr_directory_sizes(const struct tsr_directory *d);

/* What a command found in all files of a directory. */
struct tsr_directory_found {
	const struct tsr_directory *d;
	bool done; /* without an error */
	bool coded; /* planes are entropy coded */
	bool against; /* verified against the original */
	const char *delta; /* the directory of the bases of deltas, or NULL */
	size_t ndeltas; /* files in which a plane differs from that of its base */
	struct tsr_summary summary;
	struct tsr_text lines; /* of files that were compared */
	uint64_t elements, before,
		after; /* of gradients that were coded, and bytes of their files */
};

/* Each is the report of one command, as its name says. */
void tsr_packed_directory_report(const struct tsr_directory_found *f, struct tsr_report *r);
void tsr_inspected_directory_report(const struct tsr_directory_found *f, struct tsr_report *r);
void tsr_unpacked_directory_report(const struct tsr_directory_found *f, struct tsr_report *r);
void tsr_recoded_directory_report(const struct tsr_directory_found *f, struct tsr_report *r);
void tsr_verified_directory_report(const struct tsr_directory_found *f, struct tsr_report *r);
void tsr_compared_directory_report(const struct tsr_directory_found *f, struct tsr_report *r);

/* Lines about files that differ and are in no checkpoint, and members as of a directory. */
void tsr_other_files_report(const struct tsr_directory *d, struct tsr_report *r);

/* Why nothing was packed, and what to do; @d: its files were all copied; NULL: the input was a checkpoint. */
void tsr_nothing_packed_put_why(const struct tsr_kept_raw *kept, const struct tsr_directory *d,
				struct tsr_text *out);

#endif
