/* SPDX-License-Identifier: Apache-2.0 */
/* What writing and reading the index of a packed directory share (docs/internals/format.md). */
#ifndef TSR_DIRECTORY_DIRECTORY_INDEX_H
#define TSR_DIRECTORY_DIRECTORY_INDEX_H

#include "directory/directory_data.h"

#define TSR_INDEX_VERSION 1u

/* Digits of a hash, what they are while the text is hashed, and what ends the text behind them. */
#define TSR_INDEX_HEX 16u
#define TSR_INDEX_ZEROS "0000000000000000"
#define TSR_INDEX_END "\"}\n"

#endif
