/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on a directory, one entry after the other: what packing, unpacking, recoding, verifying and comparing
 * one have in common.  Each embeds a struct tsr_traversal as its first member.
 */
#ifndef TSR_DIRECTORY_TRAVERSAL_H
#define TSR_DIRECTORY_TRAVERSAL_H

#include "directory/directory_data.h"
#include "tersor/directory.h"

struct tsr_traversal;
typedef enum tsr_status tsr_visit(struct tsr_traversal *t, struct tsr_directory_entry *e);

/*
 * What is written; @dry_run: nothing.  With @force a directory of the same kind is replaced: with @indexed
 * a packed one without other files than those that its index lists, else one without other files than those
 * that the new one has under their names.
 */
struct tsr_dir_output {
	const char *path;
	bool indexed, force, dry_run;
	/* What becomes of each entry; NULL: what it is, once all stored files are found to be there. */
	enum tsr_status (*plan)(struct tsr_traversal *t);
	tsr_visit *write; /* make the files of an entry that is packed */
};

/* Its address must not change once it is started. */
struct tsr_traversal {
	struct tsr_directory
		*d; /* of packing: what it becomes; of comparing: entries of both sides */
	struct tsr_nodes nodes; /* what is in the directory, if it was listed */
	bool follow; /* files may be symbolic links */
	bool packed; /* the directory is a packed one: stored files are read, not their sources */
	struct tsr_directory_watch watch;
	struct tsr_dir_output output;
	const char *out; /* where the output is in the making */
	const char *delta; /* a packed directory that has the bases of what is written; or NULL */
	struct tsr_directory *bases; /* that one */
	struct tsr_arena *scratch; /* until the next entry */
	struct tsr_run run; /* for the work on one file */
	const struct tsr_run *given; /* may be NULL */
	uint64_t done_nbytes, file_nbytes, total_nbytes;
	bool doubt; /* something may not survive a power cut */
	struct tsr_err *err, own; /* the caller's, or our own */
};

/*
 * Take the caller's @watch and @err, which may be NULL, and list the directory @path, each file as if it were
 * copied; with @t->packed read its index instead.
 */
enum tsr_status tsr_traversal_open(struct tsr_traversal *t, const char *path,
				   const struct tsr_directory_watch *watch, struct tsr_err *err);

/* Start on all files; @run may be NULL.  With @plan nothing is done yet. */
void tsr_traversal_start(struct tsr_traversal *t, const struct tsr_run *run, bool plan);

/* Visit every entry, each a file of its own in parts, and end a part. */
enum tsr_status tsr_traversal_each(struct tsr_traversal *t, tsr_visit *visit);

/* TSR_E_CANCELLED if the caller wants to stop: before an entry, and at @done of @total of one. */
enum tsr_status tsr_traversal_next(struct tsr_traversal *t, uint64_t nbytes);
enum tsr_status tsr_traversal_at(const struct tsr_traversal *t, uint64_t done, uint64_t total);

/* What tsr_pack() and others get to work on one file; NULL if the caller gave none. */
const struct tsr_run *tsr_traversal_run(const struct tsr_traversal *t);

/* What is done of all files in parts, or NULL. */
struct tsr_parts *tsr_traversal_parts(const struct tsr_traversal *t);

/* TSR_E_DURABILITY of one file is remembered, and the work goes on; so it does after the part of one file. */
enum tsr_status tsr_traversal_settle(struct tsr_traversal *t, enum tsr_status status);

/* The path of @name in the directory @root, which lives until the next entry. */
enum tsr_status tsr_traversal_path(struct tsr_traversal *t, const char *root, const char *name,
				   const char **ret);

/* Note what is wrong with an entry, once. */
enum tsr_status tsr_traversal_fault(struct tsr_traversal *t, struct tsr_directory_entry *e,
				    const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Bytes of what a packed file of an entry is made from: more files than one if it is a DCP. */
uint64_t tsr_traversal_source_nbytes(const struct tsr_traversal *t,
				     const struct tsr_directory_entry *e);

/* End a traversal: what it worked on is the result unless it failed; TSR_E_DURABILITY of the output. */
enum tsr_status tsr_traversal_end(struct tsr_traversal *t, enum tsr_status status,
				  struct tsr_directory **ret);

/* Deltas of directories: each packed file differs from that of the same name in another packed directory. */

/* Open the directory that @t->delta names, if any, and refuse one that the output would replace. */
enum tsr_status tsr_bases_open(struct tsr_traversal *t);

/*
 * The base of an entry's packed file, for tsr_pack() and tsr_recode(): its path, which lives until the next
 * entry, and the levels of directories that are part of its name.  It is the file of the same name, or the
 * only one whose path has other numbers in one of its names.  NULL if that directory has none.
 */
enum tsr_status tsr_bases_find(struct tsr_traversal *t, const struct tsr_directory_entry *e,
			       const char **path, unsigned *levels);

#endif
