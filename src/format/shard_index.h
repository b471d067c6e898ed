/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a sharded checkpoint, as Hugging Face tools write it. */
#ifndef TSR_FORMAT_SHARD_INDEX_H
#define TSR_FORMAT_SHARD_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scope.h"
#include "base/arena.h"
#include "io/file.h"
#include "text/named.h"
#include "text/text.h"
#include "tersor/status.h"

/* The limit on the text of an index. */
#define TSR_INDEX_NBYTES_MAX (UINT64_C(256) << 20)

/* The limit on JSON values in it: 1 per tensor, and those of the metadata. */
#define TSR_INDEX_VALUES_MAX 2000000u

/* What a Hugging Face index (`*.index.json`) says. */
struct tsr_index {
	size_t nentries;
	struct tsr_named *entries; /* tensors, sorted, and the shard that each is in */
	size_t nshards;
	const char **shards; /* file names, sorted; never a path */
	bool has_total; /* whether metadata.total_size was given and is a number */
	double total; /* bytes of data, maybe infinite or negative; only worth a warning */
	struct tsr_arena *arena; /* has all that is here */
};

/**
 * tsr_index_read() - Read and check an index
 * @ret: out: to be freed with tsr_index_free(); untouched on failure
 *
 * There is a weight_map with at least one tensor.  File names in it are names, not paths: no '/',
 * '\', NUL, ".", "..", nothing over 255 bytes; that is checked before any file is opened.  Members
 * of the root other than weight_map and metadata are ignored.
 *
 * Return: TSR_OK, TSR_E_FORMAT, TSR_E_LIMIT, TSR_E_IO or TSR_E_NOMEM.
 */
enum tsr_status tsr_index_read(const struct tsr_file *f, struct tsr_index **ret,
			       struct tsr_err *err);
void tsr_index_free(struct tsr_index *x);
TSR_OWNED_BY(tsr_index_free, struct tsr_index)

/*
 * The text of an index as transformers writes it: two spaces of indentation, sorted keys, ASCII, a
 * newline at the end.  @shard_of gives the file name of each of @n tensors, whose names are unique
 * and need not be sorted.  What is not UTF-8 in a name becomes U+FFFD.
 */
void tsr_index_compose(const char *const *tensors, const char *const *shard_of, size_t n,
		       uint64_t total_nbytes, struct tsr_text *out);

/*
 * "model-00002-of-00003.safetensors" for shard 1 of 3, counted from 0, of "model.safetensors".  The
 * number goes before the last dot of the name, if that is not its first byte; directories are kept.
 */
void tsr_shard_name(const char *file_name, size_t shard, size_t nshards, struct tsr_text *out);

#endif
