/* SPDX-License-Identifier: Apache-2.0 */
/* Files of signatures: their layout, which reader and writer share (docs/replay.md, "Signatures"). */
#ifndef TSR_RECORDING_SIGNATURE_FILE_H
#define TSR_RECORDING_SIGNATURE_FILE_H

#include "tersor/signatures.h"

/* Magic, size and XXH3-64 of the head, a JSON text; steps follow it. */
#define TSR_SIGNATURES_MAGIC "TSRSIGN1"
#define TSR_SIGNATURES_HEAD_AT 24u

/* How the files of a directory are called: "signatures.tsig", "signatures-rank00001.tsig". */
#define TSR_SIGNATURES_SUFFIX ".tsig"

#define TSR_SIGNATURE_NBYTES 32u

/* A step: number and loss, learning rates, signatures, and the XXH3-64 of all these. */
static inline size_t tsr_signed_step_nbytes(size_t ngroups, size_t ntensors)
{
	return 8 * (3 + ngroups) + TSR_SIGNATURE_NBYTES * ntensors;
}

#endif
