/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_API_H
#define TERSOR_API_H

/* Marks what libtersor exports; src/tersor.map lists the same names, and lint compares them. */
#ifdef __cplusplus
#define TSR_API extern "C" __attribute__((visibility("default")))
#else
#define TSR_API __attribute__((visibility("default")))
#endif

#endif
