/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of optimizer steps in memory. */
#ifndef TSR_BENCH_STEPS_H
#define TSR_BENCH_STEPS_H

#include "bench/bench.h"
#include "step/step.h"

/* A codec as it is measured: learned ones have blocks of 256 and entries at equal distances. */
struct tsr_coding tsr_bench_coding(const struct tsr_codec *codec);

/* A step to measure: an optimizer, its state and its gradient. */
struct tsr_bench_step_case {
	const char *name;
	enum tsr_order order;
	enum tsr_optimizer optimizer;
	enum tsr_dtype grad_dtype;
	const char *codec[TSR_PARTS]; /* NULL where the optimizer keeps none */
};

/* In the order of reports; the last has no name. */
extern const struct tsr_bench_step_case tsr_bench_step_cases[];

/* The step itself, without planes: ordinary hyperparameters, the default scales and groups. */
struct tsr_step tsr_bench_step_of(const struct tsr_bench_step_case *c);

/* Add the speed of a step on @n elements to a report. */
void tsr_bench_add_step(struct tsr_bench_kernels *ret, const struct tsr_bench_step_case *c,
			const struct tsr_step *step, uint64_t n, double seconds);

/*
 * Put the planes of each part into its room, one behind the other; each begins at a multiple of
 * @alignment.
 */
void tsr_bench_put_planes(struct tsr_step *step, void *const room[TSR_PARTS], uint64_t n,
			  uint64_t alignment);

/* Room for any part or gradient of @n elements: no coding takes more than 4 bytes of each. */
uint64_t tsr_bench_step_room(uint64_t n);

/*
 * Measure all of them on @n elements, with the gradient and the parts in @room: four arrays of
 * tsr_bench_step_room() bytes, which are overwritten.
 */
enum tsr_status tsr_bench_steps(void *const room[4], uint64_t n, unsigned repeats,
				const struct tsr_run *run, struct tsr_bench_kernels *ret,
				struct tsr_err *err);

/* The same with GPU kernels: @values and @squares are in device memory. */
struct tsr_bench_gpu;
enum tsr_status tsr_bench_steps_gpu(const struct tsr_bench_gpu *on, const float *values,
				    const float *squares, uint64_t n, struct tsr_bench_kernels *ret,
				    struct tsr_err *err);

#endif
