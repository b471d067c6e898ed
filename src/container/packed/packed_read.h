/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of the packed format: what a file says of itself, and which of its arrays make which tensor. */
#ifndef TSR_CONTAINER_PACKED_READ_H
#define TSR_CONTAINER_PACKED_READ_H

#include "container/packed/packed.h"

/*
 * Fill in generation, shard and the source's metadata of a checkpoint whose one file is packed.  @c
 * holds all metadata entries of the file; @header is its header.  *ret, to be freed also on failure, is the
 * text that tsr_packed_read_tensors() needs; *weights_ret in it is NULL, or the name of the file beside this
 * one that has the arrays it lacks.
 */
enum tsr_status tsr_packed_read(struct tsr_checkpoint *c, const char *header,
				uint64_t header_nbytes, struct tsr_json **ret,
				const char **weights_ret, struct tsr_err *err);

/* Fill in the tensors; @c holds all arrays, first the @nown ones that the packed file itself has. */
enum tsr_status tsr_packed_read_tensors(struct tsr_checkpoint *c, size_t nown,
					const struct tsr_json *text, struct tsr_err *err);

/*
 * Once all files of a packed checkpoint are read and its names are sorted: find the tensors that have the
 * first planes of others, and check that what others are relative to is there.
 */
enum tsr_status tsr_packed_share(struct tsr_checkpoint *c, struct tsr_err *err);

#endif
