/* SPDX-License-Identifier: Apache-2.0 */
/* The machines that tersor is built for; every other one is refused here, at compile time. */
#ifndef TSR_BASE_PLATFORM_H
#define TSR_BASE_PLATFORM_H

#include <stdint.h>

#if SIZE_MAX < UINT64_MAX
#error "32-bit builds are not supported: offsets and sizes in files are 64-bit"
#endif

/* Arrays are copied between memory and file as they are. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "big-endian builds are not supported: files are little-endian"
#endif

#endif
