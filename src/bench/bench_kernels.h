/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of one codec, for the report. */
#ifndef TSR_BENCH_KERNELS_H
#define TSR_BENCH_KERNELS_H

#include "bench/bench.h"
#include "tersor/codec.h"

/* Set the speeds of a codec that took these seconds for @n elements. */
void tsr_bench_set_kernel(struct tsr_bench_kernel *k, const struct tsr_coding *coding, uint64_t n,
			  double encode_seconds, double decode_seconds);

/* Whether to measure a codec: the chosen one, or for NULL all, of a family those with 8 extra bits. */
bool tsr_bench_wants(const struct tsr_codec *codec, const char *choice);

#endif
