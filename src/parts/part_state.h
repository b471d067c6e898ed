/* SPDX-License-Identifier: Apache-2.0 */
/* What is behind a struct tsr_parts, for the files of this room. */
#ifndef TSR_PARTS_PART_STATE_H
#define TSR_PARTS_PART_STATE_H

#include "parts/dealing.h"
#include "parts/part.h"
#include "parts/part_report.h"

struct tsr_file;
struct tsr_hasher;
struct tsr_outfile;

/* How much of a part's data is read, and the hash of that. */
struct tsr_part_reader {
	uint64_t nbytes;
	struct tsr_hasher *hasher;
};

struct tsr_parts {
	struct tsr_part_request request; /* with what it points to */
	bool joins;
	uint64_t options; /* a hash of the request, but for the number */
	struct tsr_part_inputs inputs; /* as they were named last */
	uint64_t file; /* the number of the file that is worked on, or 0 */
	size_t nruns; /* pipelines so far */
	struct tsr_part_share share;
	/* of one part: */
	uint64_t *load; /* per part: bytes that it had so far */
	struct tsr_job_range range; /* of the last pipeline */
	uint64_t range_njobs, range_all_nbytes; /* jobs of that, and bytes of all parts */
	struct tsr_text text; /* the report */
	struct tsr_part_file
		*met; /* files that it shares with other parts, their paths in @files */
	size_t nmet;
	struct tsr_outfile *data; /* NULL as long as there is none */
	struct tsr_hasher *hasher; /* of it */
	uint64_t data_nbytes;
	bool ended;
	/* of those to be joined: */
	struct tsr_part_report *reports; /* @request.count of them */
	struct tsr_part_reader
		*readers; /* @request.count of them; NULL as long as nothing is read */
	unsigned joined; /* the part whose jobs are joined, from 1 on */
	struct tsr_file *read; /* its data, or that of @reading, the part before; or NULL */
	unsigned reading;
	size_t nfiles;
	char **files; /* to be removed at the end */
};

#endif
