/* SPDX-License-Identifier: Apache-2.0 */
/* Packing a directory file by file into another, and what can be done with that one. */
#ifndef TERSOR_DIRECTORY_H
#define TERSOR_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/compare.h"
#include "tersor/pack.h"
#include "tersor/run.h"
#include "tersor/status.h"

/* The file of a packed directory that says what is in it; written last (docs/internals/format.md). */
#define TSR_DIRECTORY_INDEX "tersor.json"

/* A packed file in it is called as its source and this. */
#define TSR_DIRECTORY_SUFFIX ".tersor"

/* How an entry of a directory is stored in the packed one. */
enum tsr_stored_as {
	TSR_STORED_DIRECTORY,
	TSR_STORED_COPY, /* byte for byte, with a hash */
	TSR_STORED_PACKED, /* as a packed file of its own */
	/*
	 * A *.distcp file of torch.distributed.checkpoint: what it holds is in the packed file of the
	 * .metadata beside it.  Unpacking writes such files anew, by other names if there were several.
	 */
	TSR_STORED_PART,
};

/* "directory", "copied", "packed", "part". */
TSR_API const char *tsr_stored_as_name(enum tsr_stored_as as);

/* A file that a packed directory has for an entry. */
struct tsr_stored_file {
	const char *path; /* below the packed directory */
	uint64_t nbytes;
	uint64_t hash; /* XXH3-64 of a copy, or of the header of a packed file */
};

/*
 * An entry of a directory that was packed.  Texts live as long as the handle.  Members may be appended.
 */
struct tsr_directory_entry {
	const char *path; /* below the directory */
	enum tsr_stored_as as;
	enum tsr_container container; /* of a packed file's source */
	unsigned mode; /* permissions */
	unsigned generation; /* tsr_checkpoint_generation() of a packed file */
	uint64_t nbytes; /* of the source */
	uint64_t stored_nbytes; /* of all @stored */
	const struct tsr_stored_file *stored;
	unsigned nstored;
	const char *reason; /* why a file with tensors was copied; NULL otherwise */
	/*
	 * A copied index of shards says how many bytes its shards have as they are stored: the digits
	 * @total_is at the offset @total_at, where the source has @total_was.  NULL: it is unchanged
	 */
	const char *total_was, *total_is;
	uint64_t total_at;
	const char *fault; /* what verifying or comparing found; NULL: all is well */
};

/* A packed directory, or the outcome of packing, unpacking, verifying or comparing one. */
struct tsr_directory;

/**
 * struct tsr_directory_watch - Called after each file that was worked on
 * @ctx: passed to the functions, each of which may be NULL.  What they are given lives for the call.
 * @packed, @unpacked, @verified, @compared: with the outcome of tsr_pack() and so on
 */
struct tsr_directory_watch {
	size_t size; /* of this struct: set by tsr_directory_watch_defaults() */
	void *ctx;
	void (*packed)(void *ctx, const struct tsr_directory_entry *e, const struct tsr_packing *p);
	void (*unpacked)(void *ctx, const struct tsr_directory_entry *e,
			 const struct tsr_unpacking *u);
	void (*verified)(void *ctx, const struct tsr_directory_entry *e,
			 const struct tsr_verification *v);
	void (*compared)(void *ctx, const struct tsr_directory_entry *e,
			 const struct tsr_comparison *c);
};

/* No functions. */
TSR_API struct tsr_directory_watch tsr_directory_watch_defaults(void);

/**
 * tsr_pack_directory() - Pack every file of a directory that holds tensors, copy the others
 * @path:    a directory; symbolic links in it are refused unless @options->open->follow
 * @out:     the directory to make; it is written beside its name and renamed when complete
 * @options: how each file is packed; NULL for tsr_pack_defaults().  With `force` a packed directory
 *           at @out without other files than its index lists is replaced as a whole; with `strict` a
 *           file that cannot be packed is an error; `max_shard_nbytes` must be 0
 * @watch:   NULL: none
 * @run:     threads and progress; NULL: the calling thread only
 * @ret:     out: to be freed with tsr_directory_close(); set on TSR_OK and TSR_E_DURABILITY
 *
 * The file F with tensors becomes F.tersor, a packed file; a model's narrow weights stay in F unless
 * `coded` is TSR_CODED_ALL, which is the default with `delta`.  `delta` is a packed directory: each file
 * differs from the one of the same name there or, if there is none, from the only one with other numbers in
 * one name of its path.  Files that packing would not make smaller, or that hold something that is not
 * supported, are copied, and their entries say why.
 *
 * Return: TSR_OK; TSR_E_FORMAT for a damaged file; TSR_E_BOUND; or whatever packing, reading and
 * writing return.  Unless it is TSR_OK or TSR_E_DURABILITY, @out is as before.
 */
TSR_API enum tsr_status tsr_pack_directory(const char *path, const char *out,
					   const struct tsr_pack_options *options,
					   const struct tsr_directory_watch *watch,
					   const struct tsr_run *run, struct tsr_directory **ret,
					   struct tsr_err *err);

/**
 * tsr_unpack_directory() - Restore the directory that was packed
 * @path:    a packed directory
 * @out:     as for tsr_pack_directory(); with `force` a directory is replaced that has no
 *           other entries than those that come back
 * @options: `open`, `strict`, `force` and `dry_run` are used; NULL for tsr_write_defaults()
 *
 * Names, layout and permissions are the source's, copied files byte for byte: their hashes are checked.
 */
TSR_API enum tsr_status tsr_unpack_directory(const char *path, const char *out,
					     const struct tsr_write_options *options,
					     const struct tsr_directory_watch *watch,
					     const struct tsr_run *run, struct tsr_directory **ret,
					     struct tsr_err *err);

/**
 * tsr_convert_directory() - Convert a packed directory, decoded, to one checkpoint in another container
 * @path:    a packed directory
 * @out:     as for tsr_convert(), like @options and @ret; next to it the directory is unpacked meanwhile
 */
TSR_API enum tsr_status tsr_convert_directory(const char *path, const char *out,
					      const struct tsr_write_options *options,
					      const struct tsr_run *run, struct tsr_unpacking **ret,
					      struct tsr_err *err);

/**
 * tsr_recode_directory() - Write a packed directory with other planes entropy coded, or none
 * @path:    a packed directory
 * @out:     as for tsr_pack_directory()
 * @options: as for tsr_recode(), for each packed file; `max_shard_nbytes` and `weights_out` must not be set
 * @watch:   NULL: none; its @unpacked is called with what tsr_recode() gives of each file
 * @ret:     out: to be freed with tsr_directory_close(); set on TSR_OK and TSR_E_DURABILITY
 *
 * `delta` is used as by tsr_pack_directory().  What it unpacks to stays, copies stay byte for byte, and files
 * of weights stay plain.  There and back gives the same files.
 */
TSR_API enum tsr_status tsr_recode_directory(const char *path, const char *out,
					     const struct tsr_recode_options *options,
					     const struct tsr_directory_watch *watch,
					     const struct tsr_run *run, struct tsr_directory **ret,
					     struct tsr_err *err);

/**
 * tsr_directory_index() - Make a directory whose files are packed already a packed directory
 * @path: a directory, without symbolic links; its index, if it has one, is removed first and written last
 *
 * For processes that write a packed file each, such as the ranks of a job.  The entry of a packed file has
 * its path and, as the source's size, the bytes of its tensors; other files are entries that are copied.
 * No other process may write into the directory meanwhile.
 *
 * Return: TSR_OK; TSR_E_FORMAT for a damaged file; TSR_E_DURABILITY if only syncing the directory failed;
 * TSR_E_IO; TSR_E_UNSUPPORTED for a link, or a name that is not UTF-8; TSR_E_LIMIT; TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_directory_index(const char *path, struct tsr_err *err);

/* Whether a path is a directory with a file TSR_DIRECTORY_INDEX. */
TSR_API bool tsr_directory_is_packed(const char *path);

/* Read the index of a packed directory; TSR_E_FORMAT if it is damaged. */
TSR_API enum tsr_status tsr_directory_open(const char *path, struct tsr_directory **ret,
					   struct tsr_err *err);
TSR_API void tsr_directory_close(struct tsr_directory *d);

/**
 * tsr_verify_directory() - Check every file of a packed directory
 * @path:    a packed directory
 * @options: as for tsr_verify(); @options->against is one directory, the one that was packed
 * @ret:     out: to be freed with tsr_directory_close(); set on TSR_OK, and on TSR_E_FORMAT and
 *           TSR_E_BOUND if there are entries with a fault
 *
 * Checks the size and hash of every copy and all of every packed file, and that nothing is missing
 * and nothing else is there.  Entries for files that are not in the index come last.
 *
 * Return: TSR_OK; TSR_E_BOUND if contents are not as expected; TSR_E_FORMAT if something is damaged
 * or missing; other failures.
 */
TSR_API enum tsr_status tsr_verify_directory(const char *path,
					     const struct tsr_verify_options *options,
					     const struct tsr_directory_watch *watch,
					     const struct tsr_run *run, struct tsr_directory **ret,
					     struct tsr_err *err);

/**
 * tsr_diff_directory() - Compare two directories file by file, packed or not
 * @a, @b:   directories
 * @options: as for tsr_diff(), for files with tensors; others are equal if their bytes are
 * @ret:     out: entries of both sides by path, those that differ or cannot be read with a fault; set on
 *           TSR_OK, and on TSR_E_FORMAT if all files were looked at
 *
 * Return: TSR_OK, whether or not they differ; TSR_E_FORMAT if some cannot be read; other failures.
 */
TSR_API enum tsr_status tsr_diff_directory(const char *a, const char *b,
					   const struct tsr_diff_options *options,
					   const struct tsr_directory_watch *watch,
					   const struct tsr_run *run, struct tsr_directory **ret,
					   struct tsr_err *err);

/* Entries sorted by path; NULL past the end. */
TSR_API size_t tsr_directory_nentries(const struct tsr_directory *d);
TSR_API const struct tsr_directory_entry *tsr_directory_entry(const struct tsr_directory *d,
							      size_t index);

/* The path that was given. */
TSR_API const char *tsr_directory_path(const struct tsr_directory *d);

/* Bytes of the index file; 0 if it was not read or written. */
TSR_API uint64_t tsr_directory_index_nbytes(const struct tsr_directory *d);

/* Entries with a fault. */
TSR_API size_t tsr_directory_nfaults(const struct tsr_directory *d);

/* What a user should know first, such as that the wrong original was given; NULL if nothing. */
TSR_API const char *tsr_directory_remark(const struct tsr_directory *d);

#endif
