/* SPDX-License-Identifier: Apache-2.0 */
/* A directory being read as one checkpoint: its files, and which of them were read. */
#ifndef TSR_LAYOUTS_FOLDER_H
#define TSR_LAYOUTS_FOLDER_H

#include "ckpt/build.h"
#include "io/dir.h"

/**
 * struct tsr_folder - A directory being read
 * @c:      gets the tensors
 * @root:   what was saved around them: a DICT that becomes one tree of the checkpoint
 * @names:  of files and directories in it, but for those that start with a dot
 * @taken:  per name: read, or its contents are known otherwise
 * @parent: the directory that it was entered from, or NULL
 */
struct tsr_folder {
	struct tsr_checkpoint *c;
	const struct tsr_open_options *options;
	const char *path;
	struct tsr_value *root;
	struct tsr_dir names;
	bool *taken;
	const struct tsr_folder *parent;
	struct tsr_err *err;
};

/* What a framework writes into a directory. */
struct tsr_folder_layout {
	bool (*detect)(const struct tsr_folder *d);
	enum tsr_status (*read)(struct tsr_folder *d);
};

/* Read a directory into a checkpoint, by the layout that it is in. */
enum tsr_status tsr_folder_read(struct tsr_checkpoint *c, const char *path,
				const struct tsr_open_options *options, struct tsr_err *err);

/* --- For the readers of the layouts ------------------------------------------------------------- */

/* Open the directory @name in @parent.  To be left, also on failure. */
enum tsr_status tsr_folder_enter(const struct tsr_folder *parent, const char *name,
				 struct tsr_folder *ret);
void tsr_folder_leave(struct tsr_folder *d);

/* Enter @name, read it and account for its files. */
typedef enum tsr_status tsr_folder_read_fn(struct tsr_folder *d, void *ctx);
enum tsr_status tsr_folder_within(struct tsr_folder *d, const char *name, tsr_folder_read_fn *read,
				  void *ctx);

/* The index of a name, or SIZE_MAX. */
size_t tsr_folder_find(const struct tsr_folder *d, const char *name);
bool tsr_folder_has(const struct tsr_folder *d, const char *name);

/*
 * Ignore the older checkpoints of the same folder, which @is_other recognises by their names; a note says
 * so.
 */
enum tsr_status tsr_folder_skip_others(struct tsr_folder *d, const char *latest,
				       bool (*is_other)(const struct tsr_folder *d,
							const char *name));

/* Whether @name is "PREFIX", up to 18 digits, "SUFFIX". */
bool tsr_folder_numbered(const char *name, const char *prefix, const char *suffix);

/* Whether it has a directory of this name, which is no link. */
bool tsr_folder_has_folder(const struct tsr_folder *d, const char *name);

/* What the file @name holds in its first line, without space at its ends. */
enum tsr_status tsr_folder_line(struct tsr_folder *d, const char *name, const char **ret);

/* Read a file of a container into the checkpoint; its trees are added to it. */
enum tsr_status tsr_folder_add(struct tsr_folder *d, const char *name);

/* Read a file of torch.save, whose value is the caller's and no tree of the checkpoint. */
enum tsr_status tsr_folder_torch(struct tsr_folder *d, const char *name, struct tsr_value **ret);

/* Put a value under a key of the root; a key that is there already is TSR_E_FORMAT. */
enum tsr_status tsr_folder_put(struct tsr_folder *d, const char *key, struct tsr_value *v);

/* Put a value into a DICT, or all items of another; @v may be NULL when out of memory. */
enum tsr_status tsr_folder_set(const struct tsr_folder *d, struct tsr_value *dict, const char *key,
			       struct tsr_value *v);
enum tsr_status tsr_folder_set_all(const struct tsr_folder *d, struct tsr_value *dict,
				   const struct tsr_value *mapping);

/*
 * Schedulers, random states and the like, which frameworks of Hugging Face put beside weights: each
 * under the name of its file without extension.
 */
bool tsr_folder_has_states(const struct tsr_folder *d);
enum tsr_status tsr_folder_states(struct tsr_folder *d);

/*
 * Files that were not read: TSR_E_UNSUPPORTED for one that may hold tensors, one note with the names
 * of all others.
 */
enum tsr_status tsr_folder_account(struct tsr_folder *d);

/* --- Dropping the arrays of files whose parts became other arrays ----------------------------- */

/*
 * Of the arrays from @first on, keep those that @root has as TENSOR values, in their order, and number
 * them anew.  No other tree may have one of them.
 */
enum tsr_status tsr_keep_reached(struct tsr_checkpoint *c, size_t first, struct tsr_value *root,
				 struct tsr_err *err);

#endif
