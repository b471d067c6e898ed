/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_H
#define TERSOR_H

/* Everything that libtersor offers.  Link with -ltersor. */

#ifdef __cplusplus
extern "C" {
#endif

#include "tersor/compare.h"
#include "tersor/checkpoint.h"
#include "tersor/codec.h"
#include "tersor/dtype.h"
#include "tersor/gpu.h"
#include "tersor/measure.h"
#include "tersor/names.h"
#include "tersor/optimizer.h"
#include "tersor/pack.h"
#include "tersor/recording.h"
#include "tersor/replay.h"
#include "tersor/run.h"
#include "tersor/status.h"
#include "tersor/sweep.h"
#include "tersor/escape.h"
#include "tersor/version.h"

#ifdef __cplusplus
}
#endif

#endif
