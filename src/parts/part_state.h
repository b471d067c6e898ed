/* SPDX-License-Identifier: Apache-2.0 */
/* What is behind a struct tsr_parts, for the files of this room. */
#ifndef TSR_PARTS_PART_STATE_H
#define TSR_PARTS_PART_STATE_H

#include "parts/dealing.h"
#include "parts/part.h"
#include "parts/part_report.h"

struct tsr_file;
struct tsr_outfile;

struct tsr_parts {
	struct tsr_part_request request; /* its strings are in @words */
	struct tsr_text words;
	bool joins;
	uint64_t command; /* a hash of the version, the words, and how many parts there are */
	struct tsr_part_inputs inputs; /* as they were named last */
	uint64_t file; /* the number of the file that is worked on, or 0 */
	struct tsr_part_file *met; /* files that all parts write */
	size_t nmet;
	/* of one part: */
	uint64_t *load; /* per part: bytes that it had so far */
	struct tsr_job_range range; /* of the last pipeline */
	uint64_t range_njobs; /* jobs of all of that */
	struct tsr_text text; /* the report */
	struct tsr_outfile *out; /* its file, NULL as long as there is none */
	uint64_t data_nbytes; /* of coded pieces in it */
	bool ended;
	/* of those to be joined: */
	struct tsr_part_report *reports; /* @request.count of them */
	unsigned joined; /* the part whose jobs are joined, from 1 on */
	struct tsr_file *read; /* its file, or that of @reading, the part before; or NULL */
	unsigned reading;
};

/* Take the command of @p from its words. */
enum tsr_status tsr_part_start(struct tsr_parts *p, struct tsr_err *err);

#endif
