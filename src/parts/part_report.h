/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of parts: what each did and found, as JSON. */
#ifndef TSR_PARTS_PART_REPORT_H
#define TSR_PARTS_PART_REPORT_H

#include "parts/part.h"
#include "text/json.h"

/* The file of bytes without a place: how many, and their XXH3. */
struct tsr_part_data {
	uint64_t nbytes, hash;
};

/* A file that all parts write, and its mark (io/meeting.h). */
struct tsr_part_file {
	const char *path;
	uint64_t nbytes, mark;
	struct tsr_text wrote; /* of a part: offset, size and hash of each range that it wrote */
};

/* A report that was read; its pipelines are taken one after the other. */
struct tsr_part_report {
	struct tsr_json *root;
	char *name; /* for messages */
	const char *tool, *command, *path;
	const struct tsr_json *args; /* strings */
	unsigned number, count;
	const struct tsr_json *run; /* the next pipeline, or NULL */
	const struct tsr_json *files; /* those that all parts write */
	struct tsr_part_data data;
};

/*
 * A pipeline in a report: @end - @first strings from @found on, or fewer, and why the next job failed.
 * @file: which of a command's files it is of, from 1 on; 0: the command is about no files one by one.
 */
struct tsr_part_run {
	struct tsr_part_inputs inputs;
	uint64_t file, njobs, first, end;
	const struct tsr_json *found;
	bool failed;
	struct tsr_err failure;
};

/* The beginning of a report, up to its first pipeline. */
void tsr_part_report_begin(const struct tsr_part_request *r, struct tsr_text *json);

/*
 * Pipelines: begin one, of which @run has all but what it found; add what a job found (the text of a struct
 * tsr_outcome); end it, with why the next job failed or NULL; end the report, with the files that all parts
 * write, @n of them, and what the part wrote beside it.
 */
void tsr_part_report_open_run(struct tsr_text *json, const struct tsr_part_run *run);
void tsr_part_report_add(struct tsr_text *json, const struct tsr_text *found);
void tsr_part_report_close_run(struct tsr_text *json, const struct tsr_err *failure);
void tsr_part_report_end(struct tsr_text *json, const struct tsr_part_file *files, size_t n,
			 const struct tsr_part_data *data);

/* Whether a failure is about the inputs, so that any process would find it; others end a part. */
bool tsr_part_keeps_failure(enum tsr_status status);

/* Take a report, which messages call @name; on failure nothing is to be freed. */
enum tsr_status tsr_part_report_parse(const char *name, const char *text, size_t nbytes,
				      struct tsr_part_report *ret, struct tsr_err *err);
void tsr_part_report_free(struct tsr_part_report *r);

/* Whether two reports are of parts of one command: TSR_E_FORMAT with what differs. */
enum tsr_status tsr_part_report_fits(const struct tsr_part_report *r,
				     const struct tsr_part_report *first, struct tsr_err *err);

/* The next pipeline; TSR_E_FORMAT if there is none.  It stays the next one until tsr_part_report_next(). */
enum tsr_status tsr_part_report_run(const struct tsr_part_report *r, struct tsr_part_run *ret,
				    struct tsr_err *err);
void tsr_part_report_next(struct tsr_part_report *r);

/*
 * TSR_E_IO if the part wrote into another file than that at @path with this mark.  One that does not say so
 * ended before, as its pipelines do.
 */
enum tsr_status tsr_part_report_wrote(const struct tsr_part_report *r, const char *path,
				      uint64_t mark, struct tsr_err *err);

/* Go on to the first pipeline of a file from @file on: those of files before that failed can be left. */
void tsr_part_report_skip_to(struct tsr_part_report *r, uint64_t file);

/* "PATH.part-NUMBER-of-COUNT.json" to be freed; NULL when out of memory. */
char *tsr_part_report_path(const char *path, unsigned number, unsigned count);

/*
 * The reports beside @path, as many as there are parts, in their order; each is to be freed, and the list.
 * On failure there is nothing to free.
 */
enum tsr_status tsr_part_reports_find(const char *path, struct tsr_part_report **ret,
				      unsigned *n_ret, struct tsr_err *err);

#endif
