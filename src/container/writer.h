/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a list of tensors into a container, in pieces and from several threads. */
#ifndef TSR_PACK_CONTAINER_H
#define TSR_PACK_CONTAINER_H

#include "format/safetensors.h"
#include "ckpt/checkpoint_model.h"

/* What to write.  Everything is borrowed. */
struct tsr_container_plan {
	const char *path;
	enum tsr_container container; /* not DCP */
	bool force;
	uint64_t max_shard_nbytes; /* of a safetensors file's data; 0: one file */
	struct tsr_checkpoint *c; /* the source: its tensors are written, and its tree */
	bool keep_order; /* tensors in the source's order, not that of the safetensors reference */
	const struct tsr_meta *meta; /* of safetensors files, sorted */
	size_t nmeta;
	unsigned generation; /* lossy generations, for a container that has no metadata; 0: none */
};

struct tsr_writer;

/* Lay everything out; nothing is created yet.  Free with tsr_writer_free(). */
enum tsr_status tsr_writer_plan(const struct tsr_container_plan *plan, struct tsr_writer **ret,
				struct tsr_err *err);

/* Bytes of all files together. */
uint64_t tsr_writer_nbytes(const struct tsr_writer *w);

/* Whether the files can be created: for a dry run. */
enum tsr_status tsr_writer_check(const struct tsr_writer *w, struct tsr_err *err);

enum tsr_status tsr_writer_create(struct tsr_writer *w, struct tsr_err *err);

/* @nbytes of tensor @tensor of the source, at byte @offset of it.  Thread-safe. */
enum tsr_status tsr_writer_put(struct tsr_writer *w, size_t tensor, const void *bytes,
			       size_t nbytes, uint64_t offset, struct tsr_err *err);

/* Whether tsr_writer_set_crc() must be called for every tensor: the container has checksums. */
bool tsr_writer_wants_crc(const struct tsr_writer *w);
void tsr_writer_set_crc(struct tsr_writer *w, size_t tensor, uint32_t crc);

/* Headers and directories, then publish. */
enum tsr_status tsr_writer_publish(struct tsr_writer *w, struct tsr_err *err);
void tsr_writer_free(struct tsr_writer *w);

#endif
