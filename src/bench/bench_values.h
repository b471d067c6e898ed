/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_BENCH_VALUES_H
#define TSR_BENCH_VALUES_H

#include <stddef.h>
#include <stdint.h>

/* @n positive values spread like those of trained state: uniform times uniform, from a seed. */
void tsr_bench_values(float *x, size_t n, uint64_t seed);

double tsr_bench_seconds(void);

/* The median; sorts the array. */
double tsr_bench_median(double *seconds, unsigned n);

#endif
