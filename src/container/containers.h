/* SPDX-License-Identifier: Apache-2.0 */
/* The containers, one row each: how it is detected, read and written. */
#ifndef TSR_CONTAINER_CONTAINERS_H
#define TSR_CONTAINER_CONTAINERS_H

#include "ckpt/build.h"
#include "container/file_head.h"

struct tsr_writer;

/**
 * struct tsr_container_row - A container
 * @detect:  whether a file is one; NULL for directories
 * @read:    add what a file holds to a checkpoint; takes ownership of @f, also on failure; NULL for
 *           directories
 * @lay_out: plan the files for the arrays of a writer (container/writer_layout.h)
 * @ends:    with which names of such files end, at most four; NULL: none
 */
struct tsr_container_row {
	bool (*detect)(const struct tsr_file_head *head);
	enum tsr_status (*read)(struct tsr_checkpoint *c, struct tsr_file *f,
				const struct tsr_open_options *options, struct tsr_err *err);
	enum tsr_status (*lay_out)(struct tsr_writer *w, struct tsr_err *err);
	const char *ends[4];
};

const struct tsr_container_row *tsr_container_row(enum tsr_container container);

/* The container that the name of a file ends like, and how long it is before that; 0: it ends like none. */
size_t tsr_container_stem(const char *name, enum tsr_container *ret);

/*
 * Whether a file is in one of the containers, or was written by PyTorch in a form that is refused by
 * name, as its content shows.  A damaged file can be either.
 */
enum tsr_status tsr_container_probe(const struct tsr_file *f, bool *ret, struct tsr_err *err);

/* Add what a file in one of the containers holds to a checkpoint; takes ownership of @f. */
enum tsr_status tsr_container_read(struct tsr_checkpoint *c, struct tsr_file *f,
				   const struct tsr_open_options *options, struct tsr_err *err);

/* --- The functions of the rows -------------------------------------------------------------------- */

bool tsr_safetensors_detect(const struct tsr_file_head *head);
enum tsr_status tsr_safetensors_read(struct tsr_checkpoint *c, struct tsr_file *f,
				     const struct tsr_open_options *options, struct tsr_err *err);
enum tsr_status tsr_safetensors_lay_out(struct tsr_writer *w, struct tsr_err *err);

struct tsr_writer_file;
struct tsr_text;

/* The header of a file of safetensors, padded to @json_nbytes of text (0: as long as it is). */
enum tsr_status tsr_safetensors_compose(struct tsr_writer *w, const struct tsr_writer_file *f,
					uint64_t json_nbytes, struct tsr_text *header,
					struct tsr_err *err);

/* How long the index of shards is, if there are several files of them. */
enum tsr_status tsr_safetensors_index(struct tsr_writer *w, struct tsr_err *err);

/* That index, for who publishes it: a hundred bytes per array, so it is not kept from the layout on. */
enum tsr_status tsr_safetensors_compose_index(struct tsr_writer *w, struct tsr_err *err);

bool tsr_npz_detect(const struct tsr_file_head *head);
enum tsr_status tsr_npz_read(struct tsr_checkpoint *c, struct tsr_file *f,
			     const struct tsr_open_options *options, struct tsr_err *err);
enum tsr_status tsr_npz_lay_out(struct tsr_writer *w, struct tsr_err *err);

bool tsr_npy_detect(const struct tsr_file_head *head);
enum tsr_status tsr_npy_read(struct tsr_checkpoint *c, struct tsr_file *f,
			     const struct tsr_open_options *options, struct tsr_err *err);
enum tsr_status tsr_npy_lay_out(struct tsr_writer *w, struct tsr_err *err);

enum tsr_status tsr_dcp_lay_out(struct tsr_writer *w, struct tsr_err *err);

/* --- A checkpoint in shards and their index, as the Hugging Face libraries write it ----------- */

/* Whether a file looks like an index. */
enum tsr_status tsr_sharded_detect(const struct tsr_file *f, bool *is_ret, struct tsr_err *err);

/* Read every shard that an index names; takes ownership of @f. */
enum tsr_status tsr_sharded_read(struct tsr_checkpoint *c, struct tsr_file *f,
				 const struct tsr_open_options *options, struct tsr_err *err);

/* --- Files of DCP's Hugging Face writer that hold one rank's parts of tensors ----------------- */

/* {"NAME": {"saved_offsets": [0, 12]}, ...}: where in the whole tensor the stored one begins. */
#define TSR_OFFSETS_KEY "DCP_SHARDING_INFO"

/* TSR_E_UNSUPPORTED if a safetensors file with this metadata holds parts, which nothing here joins. */
enum tsr_status tsr_hf_parts_check(const char *path, const struct tsr_meta *meta, size_t nmeta,
				   struct tsr_err *err);

/* Whether a file is one of several ranks', by its name and that of another one beside it. */
bool tsr_hf_parts_named(const char *path);

/* Fail as tsr_hf_parts_check() does, about a file or a directory of such files. */
enum tsr_status tsr_hf_parts_refuse(const char *path, struct tsr_err *err);

/* --- Files and directories of other programs that are known, but not read --------------------- */

/*
 * TSR_E_UNSUPPORTED with what the file is and what to do, by its content; TSR_E_FORMAT for a pointer to a
 * file that is elsewhere; TSR_OK if it is not known.
 */
enum tsr_status tsr_foreign_refuse(const struct tsr_file *f, const struct tsr_file_head *head,
				   struct tsr_err *err);

/* The same of a directory, by the names in it. */
enum tsr_status tsr_foreign_refuse_directory(const char *directory, struct tsr_err *err);

#endif
