/* SPDX-License-Identifier: Apache-2.0 */
/* The packed format (docs/internals/format.md): what its reader and its writer share. */
#ifndef TSR_CONTAINER_PACKED_H
#define TSR_CONTAINER_PACKED_H

#include "format/safetensors.h"
#include "ckpt/checkpoint_model.h"
#include "text/json.h"

#define TSR_PACKED_VERSION 1
#define TSR_PACKED_KEY "tersor"
#define TSR_PACKED_CHECK_KEY "tersor_check"
#define TSR_PACKED_CHECK_ZEROS "0000000000000000"

/* The coder of coded planes. */
#define TSR_PACKED_CODER "rans32"

#define TSR_PACKED_CODEBOOK_NBYTES (256 * sizeof(float))

/* The limit on JSON values in the `tersor` entry. */
#define TSR_PACKED_VALUES_MAX (2 * TSR_ST_VALUES_MAX)

/* Bytes of the error figures of a tensor; all bits of all set: not measured. */
#define TSR_PACKED_ERROR_NBYTES 19u

/* How many of these a figure takes: the upper ones of its binary64.  By the NMSE originals are told apart. */
unsigned tsr_packed_figure_nbytes(enum tsr_metric metric);

/* The bits of a figure, rounded to nearest; of a number that is not finite those of infinity. */
uint64_t tsr_packed_figure_bits(enum tsr_metric metric, double value);
double tsr_packed_figure(enum tsr_metric metric, uint64_t bits);

/* What the text of the `tersor` entry must obey. */
struct tsr_json_rules tsr_packed_rules(const char *path);

/* The 16 digits of the check in a header's text, or NULL. */
const char *tsr_packed_find_check(const char *json);

/* Whether a source tensor may not have this name: it ends in the suffix of a plane. */
bool tsr_packed_name_reserved(const char *name);

#endif
