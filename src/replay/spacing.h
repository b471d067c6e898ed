/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the learning rate can move the largest weights. */
#ifndef TSR_REPLAY_SPACING_H
#define TSR_REPLAY_SPACING_H

#include "tersor/codec.h"

/*
 * The distance between the values of a weight codec next to @magnitude; docs/replay.md has the
 * table.  Infinite if it cannot hold @magnitude.
 */
double tsr_replay_spacing(const struct tsr_codec *codec, float magnitude);

/* Whether an update of the size of @lr is too small to move the largest weight. */
bool tsr_replay_is_stalled(const struct tsr_codec *codec, float largest, double lr);

#endif
