/* SPDX-License-Identifier: Apache-2.0 */
/* How to carry out long work: threads, progress, GPUs. */
#ifndef TERSOR_RUN_H
#define TERSOR_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct tsr_gpu;
struct tsr_parts;

/**
 * struct tsr_run - How long work is carried out
 * @threads:  worker threads, the caller's included; 0: one per processor.  Each GPU has at least one
 * @progress: called from time to time, never by two threads at once, with the bytes done and the total;
 *            returning false stops the work with TSR_E_CANCELLED.  May be NULL
 * @ctx:      passed to @progress
 * @gpus:     @ngpus of them, where tsr_pack(), tsr_unpack(), tsr_verify() and tsr_diff() encode and
 *            decode: open, borrowed, each once.  Pieces of tensors are dealt to them.  None: on the CPU,
 *            where all other work runs.  Failures of GPUs are described in tersor/gpu.h; one that fails
 *            ends the work
 * @parts:    which part of the work is done, for the tool's processes that share a command; NULL: all of it
 *
 * Results never depend on it.  A zeroed struct is valid: every processor, no progress, no GPU.
 */
struct tsr_run {
	unsigned threads;
	bool (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *ctx;
	struct tsr_gpu *const *gpus;
	unsigned ngpus;
	struct tsr_parts *parts;
};

#endif
