/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CKPT_PACKED_H
#define TSR_CKPT_PACKED_H

#include "ckpt/checkpoint_model.h"
#include "text/text.h"
#include "format/safetensors.h"

/* docs/format.md describes what this reads and writes. */
#define TSR_PACKED_VERSION 1
#define TSR_PACKED_KEY "tersor"
#define TSR_PACKED_CHECK_KEY "tersor_check"
#define TSR_PACKED_CHECK_ZEROS "0000000000000000"

/* The limit on JSON values in the `tersor` entry. */
#define TSR_PACKED_VALUES_MAX (2 * TSR_ST_VALUES_MAX)

/* What stands in a packed file besides its tensors. */
struct tsr_packed_source {
	const char *kind; /* "safetensors" */
	const char *format; /* the source's own `format` metadata, or NULL if it had none */
	unsigned generation;
	struct tsr_shard shard; /* count 1: the file is the whole checkpoint */
};

/* Whether a source tensor may not have this name: it ends in the suffix of a plane. */
bool tsr_packed_name_reserved(const char *name);

/*
 * The JSON text of the `tersor` entry.  With @widest, every figure that is only known after
 * encoding takes as much room as it possibly can.  TSR_E_LIMIT if a reader would refuse it.
 */
enum tsr_status tsr_packed_compose(const struct tsr_packed_source *source,
				   const struct tsr_tensor *tensors, size_t n, bool widest,
				   const char *path, struct tsr_text *json, struct tsr_err *err);

/*
 * The whole header of a packed file, framed and padded to @json_nbytes (0: as long as it is), with
 * its check filled in.  @meta is sorted and has the `tersor` and `tersor_check` entries in it, the
 * latter as zeros.
 */
enum tsr_status tsr_packed_header(const struct tsr_st_entry *entries, size_t n,
				  const struct tsr_meta *meta, size_t nmeta, uint64_t json_nbytes,
				  const char *path, struct tsr_text *header, struct tsr_err *err);

/*
 * Fill in tensors, generation and the source's metadata of a checkpoint whose one file is packed.
 * @c holds the arrays and all metadata entries of the file; @header is its header.
 */
enum tsr_status tsr_packed_read(struct tsr_checkpoint *c, const char *header,
				uint64_t header_nbytes, struct tsr_err *err);

/* The figures to record of a measurement, rounded as they will be read back. */
struct tsr_error_summary tsr_error_summarize(const struct tsr_measure *m, uint64_t scale_underflow);
bool tsr_error_summary_equal(const struct tsr_error_summary *a, const struct tsr_error_summary *b);

#endif
