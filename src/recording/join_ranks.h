/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that the ranks of a run wrote separately, as one checkpoint. */
#ifndef TSR_RECORDING_JOIN_RANKS_H
#define TSR_RECORDING_JOIN_RANKS_H

#include "tersor/checkpoint.h"

/**
 * tsr_recording_join() - Make one checkpoint of what ranks wrote of one step
 * @parts: @nparts of them, whose files the joined one takes over; still to be closed
 * @ret:   out: to be closed with tsr_checkpoint_close(); untouched on failure
 *
 * A tensor that is in several parts, or begins elsewhere than at 0, must say where in each of them
 * (docs/replay.md); its slices follow each other along one dimension without a gap.
 *
 * Return: TSR_OK, TSR_E_FORMAT, TSR_E_UNSUPPORTED, TSR_E_LIMIT or TSR_E_NOMEM.
 */
enum tsr_status tsr_recording_join(struct tsr_checkpoint **parts, size_t nparts,
				   struct tsr_checkpoint **ret, struct tsr_err *err);

/* Whether a part says where its tensors begin. */
bool tsr_recording_has_offsets(const struct tsr_checkpoint *part);

#endif
