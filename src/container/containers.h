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

#endif
