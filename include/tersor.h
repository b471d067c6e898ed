/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_H
#define TERSOR_H

/*
 * Everything that libtersor offers; `pkg-config --cflags --libs tersor` says how to use it, and
 * examples/pack.c shows it.
 *
 * Functions that can fail return enum tsr_status and describe the failure in a struct tsr_err, which may
 * be NULL.  Results that a function allocates are its last output, named ret, are set only as its
 * comment says, and have a function that frees them; those functions take NULL.  What a function
 * returns from a handle is borrowed, and lives as long as the handle.  Different handles may be used by
 * different threads; one handle may be read by several.  Paths are borrowed for the call.
 */

#ifdef __cplusplus
extern "C" {
#endif

#include "tersor/audit.h"
#include "tersor/bisect.h"
#include "tersor/compare.h"
#include "tersor/checkpoint.h"
#include "tersor/codec.h"
#include "tersor/device.h"
#include "tersor/directory.h"
#include "tersor/dtype.h"
#include "tersor/gpu.h"
#include "tersor/granularity.h"
#include "tersor/learn.h"
#include "tersor/measure.h"
#include "tersor/names.h"
#include "tersor/optimizer.h"
#include "tersor/pack.h"
#include "tersor/recording.h"
#include "tersor/replay.h"
#include "tersor/run.h"
#include "tersor/saving.h"
#include "tersor/signatures.h"
#include "tersor/status.h"
#include "tersor/store.h"
#include "tersor/sweep.h"
#include "tersor/escape.h"
#include "tersor/version.h"

#ifdef __cplusplus
}
#endif

#endif
