/* SPDX-License-Identifier: Apache-2.0 */
/* Writing of the packed format: the arrays of its tensors, and the header that describes them. */
#ifndef TSR_CONTAINER_PACKED_WRITE_H
#define TSR_CONTAINER_PACKED_WRITE_H

#include "container/packed/packed.h"
#include "format/safetensors.h"
#include "ckpt/checkpoint_model.h"
#include "text/text.h"

/* What the `tersor` entry says. */
struct tsr_packed_source {
	const char *kind; /* "safetensors" */
	const char *format; /* the source's own `format` metadata, or NULL if it had none */
	const size_t
		*order; /* where the source had its own metadata: @norder numbers; NULL: not kept */
	size_t norder;
	unsigned generation;
	/* with codings, hashes, and errors if they have a codec */
	const struct tsr_tensor *tensors;
	size_t ntensors;
	struct tsr_base_name base; /* without a name: it is no delta */
	const bool *model; /* per tensor, for a file of weights: whether it is the model's own */
};

/* The file of several that a header is for: it has tensors @first to @end - 1. */
struct tsr_packed_shard {
	uint64_t number, count; /* from 1 on */
	size_t first, end;
	const char *weights; /* NULL, or the name of the file that has their weights */
	bool coded; /* some of its arrays are */
};

/* The name of an array, in the arena: TSR_E_LIMIT if it would be too long. */
enum tsr_status tsr_packed_join_name(struct tsr_checkpoint *c, const char *name, const char *suffix,
				     const char **ret, struct tsr_err *err);

/* TSR_E_UNSUPPORTED if a tensor has a name that a plane could have. */
enum tsr_status tsr_packed_check_names(const struct tsr_checkpoint *c, struct tsr_err *err);

/* Whether a plane of a tensor goes into the file of weights. */
bool tsr_packed_is_weight(const struct tsr_packed_source *source, size_t tensor, unsigned plane);

/*
 * The arrays that a packed file has of the tensors of a checkpoint in their codings, tensor by tensor,
 * with TSR_ARRAY_TAG(); none of a first plane that another tensor has.  *ret is to be freed, also on
 * failure; names and shapes are in the arena.
 */
enum tsr_status tsr_packed_arrays(struct tsr_checkpoint *c, struct tsr_st_entry **ret,
				  size_t *n_ret, struct tsr_err *err);

/* What the `tersor` entry says once of tensors with the same coding. */
void tsr_packed_put_coding(const struct tsr_tensor *t, struct tsr_text *json);

/* What it says of each: the number of its coding, and its name and shape if no array shows them. */
void tsr_packed_put_tensor(const struct tsr_tensor *t, uint32_t coding, bool named, bool shaped,
			   struct tsr_text *json);

/*
 * The whole header of a packed file, framed and padded to @json_nbytes (0: as long as it is), with its
 * `tersor` entry, and its check filled in.  @meta is sorted and has the `tersor` and `tersor_check`
 * entries, the former with any value, which is set, the latter as zeros.  TSR_E_LIMIT if a reader would
 * refuse it.
 */
enum tsr_status tsr_packed_header(const struct tsr_packed_source *source,
				  const struct tsr_packed_shard *shard,
				  const struct tsr_st_entry *entries, size_t n,
				  struct tsr_meta *meta, size_t nmeta, uint64_t json_nbytes,
				  const char *path, struct tsr_text *header, struct tsr_err *err);

/* The figures to record of a measurement, rounded as they will be read back. */
struct tsr_error_summary tsr_error_summarize(const struct tsr_measured *m);

#endif
