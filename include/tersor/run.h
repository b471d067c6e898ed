/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_RUN_H
#define TERSOR_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct tsr_gpu;

/**
 * struct tsr_run - How to carry out long work
 * @threads:  worker threads, the caller's included; 0: one per processor
 * @progress: called now and then, never by two threads at once, with bytes done and in all;
 *            false stops the work with TSR_E_CANCELLED.  May be NULL
 * @ctx:      passed to @progress
 * @gpu:      where tsr_pack(), tsr_unpack(), tsr_verify() and tsr_diff() encode and decode, open and
 *            borrowed; NULL: on the CPU, as all other work is.  They then also fail as tersor/gpu.h
 *            says, in the same way as when reading fails
 *
 * Results never depend on it.
 */
struct tsr_run {
	unsigned threads;
	bool (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *ctx;
	struct tsr_gpu *gpu;
};

#endif
