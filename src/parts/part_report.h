/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of parts: what each did and found, as bytes. */
#ifndef TSR_PARTS_PART_REPORT_H
#define TSR_PARTS_PART_REPORT_H

#include "parts/part.h"

/*
 * A report is this header, coded pieces, the words of the command, each with its NUL, pipelines one after the
 * other, and the files that all parts write.  Numbers are little-endian and not aligned.
 */
struct tsr_part_header {
	char magic[8];
	char version[40]; /* of tersor */
	uint32_t number, count;
	uint64_t data_nbytes; /* coded pieces: what was found of each has its hash */
	uint64_t words_nbytes, runs_nbytes, files_nbytes;
	uint64_t hash; /* XXH3 of all before it and of all but the coded pieces behind it */
};

/*
 * A pipeline in a report: what @nfound jobs from @first on found, @found_nbytes each.  @file: which of a
 * command's files it is of, from 1 on; 0: the command is about no files one by one.
 */
struct tsr_part_run {
	uint64_t file;
	struct tsr_part_inputs inputs;
	uint64_t njobs, first, end, found_nbytes, nfound;
	uint32_t status; /* why the next job failed; TSR_OK: all from @first to @end - 1 are done */
	uint32_t hint; /* of that failure */
	uint64_t message_nbytes;
	const char *found, *message; /* in memory: behind it, in this order */
};

/* A file that all parts write. */
struct tsr_part_file {
	const char *path;
	struct tsr_text wrote; /* of a part: struct tsr_part_range of what it wrote */
};

struct tsr_part_range {
	uint64_t offset, nbytes, hash;
};

/* A report that was read; its pipelines are taken one after the other. */
struct tsr_part_report {
	char *name; /* for messages */
	struct tsr_part_header header;
	char *bytes; /* all behind the coded pieces: words first */
	const char *run, *files, *end; /* the next pipeline; behind the last one; behind all */
	uint64_t data_at; /* how much of the coded pieces is read */
};

/* The beginning of a report, up to its first pipeline. */
void tsr_part_report_begin(const struct tsr_text *words, struct tsr_text *text);

/*
 * Pipelines: begin one, add what its jobs found, and end it: @at is what the begin returned, @run all but
 * its message, @failure why the next job failed or NULL.
 */
size_t tsr_part_report_open_run(struct tsr_text *text);
void tsr_part_report_close_run(struct tsr_text *text, size_t at, const struct tsr_part_run *run,
			       const struct tsr_err *failure);

/* The end: the files that all parts write, @n of them, and the header, whose other members are known here. */
void tsr_part_report_end(struct tsr_text *text, const struct tsr_part_header *header,
			 const struct tsr_part_file *files, size_t n);

/* Whether a failure is about the inputs, so that any process would find it; others end a part. */
bool tsr_part_keeps_failure(enum tsr_status status);

/* That of a pipeline; TSR_OK if it has none. */
enum tsr_status tsr_part_run_failure(const struct tsr_part_run *run, struct tsr_err *err);

/*
 * Take a report of @nbytes in memory, or from the file @name if @text is NULL: all that its sizes, counts and
 * hash say is checked.  On failure nothing is to be freed.
 */
enum tsr_status tsr_part_report_take(const char *name, const char *text, size_t nbytes,
				     struct tsr_part_report *ret, struct tsr_err *err);
void tsr_part_report_free(struct tsr_part_report *r);

/* The next pipeline; TSR_E_FORMAT if there is none.  It stays the next one until tsr_part_report_next(). */
enum tsr_status tsr_part_report_run(const struct tsr_part_report *r, struct tsr_part_run *ret,
				    struct tsr_err *err);
void tsr_part_report_next(struct tsr_part_report *r);

/* Go on to the first pipeline of a file from @file on: those of files before that failed can be left. */
void tsr_part_report_skip_to(struct tsr_part_report *r, uint64_t file);

/*
 * Read again what the part wrote into the file at @path, NULL: into all of them; TSR_E_FORMAT if one has
 * other bytes.  A part that does not name the file ended before, as its pipelines do.
 */
enum tsr_status tsr_part_report_wrote(const struct tsr_part_report *r, const char *path,
				      struct tsr_err *err);

/* --- Finding all parts of a job, by the names of their reports -------------------------------- */

/* "PATH.part-NUMBER-of-COUNT.bin", to be freed. */
enum tsr_status tsr_part_report_path(const char *path, unsigned number, unsigned count, char **ret,
				     struct tsr_err *err);

/* The reports beside @path, as many as there are parts, in their order; to be freed also on failure. */
enum tsr_status tsr_part_reports_find(const char *path, struct tsr_part_report **ret,
				      unsigned *n_ret, struct tsr_err *err);

#endif
