/* SPDX-License-Identifier: Apache-2.0 */
/* A packed file that is written, of tensors that are encoded or whose planes are copied. */
#ifndef TSR_PACK_PACKED_OUTPUT_H
#define TSR_PACK_PACKED_OUTPUT_H

#include "container/packed/packed_write.h"
#include "container/writer.h"

/* The first members are set by the caller, who begins with zeros. */
struct tsr_packed_output {
	struct tsr_checkpoint *c; /* its tensors have the codings that are written */
	const struct tsr_pack_options *options;
	const struct tsr_run *run;
	const char *path;
	struct tsr_packed_source source; /* what its header says */
	struct tsr_checkpoint *base; /* of a delta, or NULL */
	struct tsr_meta *meta, *weights_meta;
	struct tsr_writer *writer;
};

/* Open the base of a delta, if it is one; @plain: it need not be packed. */
enum tsr_status tsr_packed_output_open(struct tsr_packed_output *o, bool plain,
				       struct tsr_err *err);

/*
 * For a file of weights, find what is the model's own: before the tree is a tensor too, which is not.  Only
 * then are kinds needed.
 */
enum tsr_status tsr_packed_output_find_model(struct tsr_packed_output *o, struct tsr_err *err);

/* Say which inputs all parts must have, @c and the base, and what has no parts. */
enum tsr_status tsr_packed_output_name_inputs(const struct tsr_packed_output *o,
					      const struct tsr_checkpoint *c, struct tsr_err *err);

/* Lay out the files for the codings as they are now, anew if they were before. */
enum tsr_status tsr_packed_output_plan(struct tsr_packed_output *o, struct tsr_err *err);

void tsr_packed_output_free(struct tsr_packed_output *o);

#endif
