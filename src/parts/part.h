/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command's work in parts: processes that know nothing of each other each do one, and another joins them.
 *
 * Every process opens the inputs and plans all of the command as if it were alone.  Only the jobs of a
 * pipeline are dealt: a part does its own, writes what they found into a report, and ends.  Who joins runs
 * the same command once more and commits what the reports say in place of doing the jobs; all that comes
 * after is the code of one process.
 */
#ifndef TSR_PARTS_PART_H
#define TSR_PARTS_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scope.h"
#include "tersor/run.h"
#include "tersor/status.h"
#include "text/text.h"

#define TSR_PARTS_MAX 65536u

struct tsr_parts;
struct tsr_part_report;

/*
 * struct tsr_part_request - Which part of what
 * @number, @count: which of how many, from 1 on
 * @path:    the output, or the report of a command that writes none: reports of parts are beside it
 * @command: its name
 * @words:   those that decide what comes out, each with its NUL; the same in all parts
 * @in_memory: the report is not written to a file, but left for tsr_part_text()
 */
struct tsr_part_request {
	unsigned number, count;
	const char *path;
	const char *command;
	struct tsr_text words;
	bool in_memory;
};

/* A part to be done; everything is copied.  Free with tsr_part_free(). */
enum tsr_status tsr_part_new(const struct tsr_part_request *request, struct tsr_parts **ret,
			     struct tsr_err *err);

/*
 * Whether the report of a part that @request describes is beside its path: written by this version, for the
 * same words; and the files that it wrote into are still there.  Who joins checks the rest.
 */
enum tsr_status tsr_part_is_done(const struct tsr_part_request *request, bool *ret,
				 struct tsr_err *err);

/*
 * The parts of @path, all of them, to be joined: those whose reports are the @n @texts, in the order of the
 * parts, or with NULL beside it.  TSR_E_FORMAT if one is damaged or missing, or if they are not of one
 * command.
 */
enum tsr_status tsr_part_join(const char *path, const struct tsr_text *texts, unsigned n,
			      struct tsr_parts **ret, struct tsr_err *err);
void tsr_part_free(struct tsr_parts *p);
TSR_OWNED_BY(tsr_part_free, struct tsr_parts)

/* What is done in parts, as in the request; of those to be joined, as their reports say. */
const struct tsr_part_request *tsr_part_request(const struct tsr_parts *p);

/* Whether parts are joined; false for NULL too. */
bool tsr_part_joins(const struct tsr_parts *p);

/* Whether one is done here; false for NULL too. */
bool tsr_part_is_one(const struct tsr_parts *p);

/* Hashes of the inputs of some jobs: @times of the fractions of seconds of their times; 0: one has none. */
struct tsr_part_inputs {
	uint64_t all, times;
};

/*
 * Name the inputs of the jobs that follow: all parts must have the same, so TSR_E_FORMAT says where one does
 * not.  Nothing for NULL.
 */
enum tsr_status tsr_part_inputs(struct tsr_parts *p, const struct tsr_part_inputs *inputs,
				struct tsr_err *err);

/* What all parts of this command on these inputs have in common, and nothing else: names temporary files. */
uint64_t tsr_part_id(const struct tsr_parts *p);

/* The same of the file that is worked on, where a command works on several. */
uint64_t tsr_part_file_id(const struct tsr_parts *p);

/*
 * Bytes that have no place yet: a part writes its own, in the order of its jobs, of all files one after the
 * other, into its report.  Who joins the jobs of a part reads them in that order: TSR_E_FORMAT if there are
 * fewer or they have another @hash, which is XXH3, from tsr_part_end() if there are more.
 */
enum tsr_status tsr_part_put(struct tsr_parts *p, const void *bytes, size_t nbytes,
			     struct tsr_err *err);
enum tsr_status tsr_part_get(struct tsr_parts *p, void *bytes, size_t nbytes, uint64_t hash,
			     struct tsr_err *err);

/*
 * Of a command on many files what follows is of the next one.  Until tsr_part_end_files(), each file ends
 * with TSR_PART_DONE in a part, which goes on.  Nothing for NULL.
 */
void tsr_part_next_file(struct tsr_parts *p);

/* After the last file: what follows is of no file again. */
void tsr_part_end_files(struct tsr_parts *p);

/* Whether the command is on many files, of which this is one; false for NULL. */
bool tsr_part_is_of_files(const struct tsr_parts *p);

/*
 * After the last job: a part writes its report, and TSR_PART_DONE ends the command here; outputs are synced
 * before.  TSR_OK for NULL and the joining process.
 */
enum tsr_status tsr_part_end(struct tsr_parts *p, struct tsr_err *err);

/* The report of a part that has ended, else NULL; borrowed. */
const struct tsr_text *tsr_part_text(const struct tsr_parts *p);

/* The bytes that a part had, and those of all parts; jobs that were dealt together count once. */
struct tsr_part_share {
	uint64_t nbytes, all_nbytes;
};
struct tsr_part_share tsr_part_share(const struct tsr_parts *p);

/*
 * Note a temporary file at @path that all parts write: tsr_part_remove() removes it.  Who joins reads again
 * what they wrote: TSR_E_FORMAT if the file has other bytes, and a part is to be done again.
 */
enum tsr_status tsr_part_meet(struct tsr_parts *p, const char *path, struct tsr_err *err);

/*
 * What a part wrote into file number @file of those that it noted by tsr_part_meet(), of which there are
 * tsr_part_nmet() so far, where the joining process reads it again.  One thread at a time; nothing in the
 * joining process.
 */
size_t tsr_part_nmet(const struct tsr_parts *p);
void tsr_part_wrote(struct tsr_parts *p, size_t file, const void *bytes, size_t nbytes,
		    uint64_t offset);

/* Who joined them removes files, and then reports, if they are still there; @threads as of a run. */
void tsr_part_remove(const struct tsr_parts *p, unsigned threads);

/* TSR_E_UNSUPPORTED if parts are asked for, of @what, which has none. */
enum tsr_status tsr_part_refuse(const struct tsr_run *run, const char *what, struct tsr_err *err);

#endif
