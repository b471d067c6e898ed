/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_GPU_CHECK_GPU_H
#define TSR_TESTS_GPU_CHECK_GPU_H

/* What the files of the GPU tests share. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu_work.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))

/* One line per test; a failure is counted, and the first few are shown. */
void check_begin(const char *claim);
void check_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void check_end(uint64_t cases);
void expect(bool holds, const char *what);

/* The tests end here if this failed. */
void must(enum tsr_status status, const struct tsr_err *err);
void *must_have(void *memory);

extern struct tsr_gpu *gpu;
extern struct tsr_gpu_stream *stream;

enum data {
	DATA_SPECIAL, /* half of them special, of either sign */
	DATA_FINITE, /* random finite patterns */
	DATA_WEIGHTS, /* as a training run has them, of either sign */
	DATA_VARIANCES, /* likewise, positive, down to 1e-30 */
	DATA_TINY, /* subnormals */
	DATA_HUGE, /* up to FLT_MAX */
	DATA_EQUAL, /* runs of 32 that are equal, so that they are their scale */
	DATA_STEPS, /* consecutive patterns */
	DATA_ZERO,
	DATA_ALL_SPECIAL, /* nothing but NaN and infinities */
	DATA_EDGES, /* runs of one magnitude, often where kernels change their ways */
	DATA_MIDDLES, /* next to where codes of e4m3x, e5m2x and log8 change */
	DATA_COUNT
};

/* The same values for the same seed. */
void fill(float *x, size_t n, enum data data, uint64_t seed);

enum cases { CASES_FEW, CASES_SHORT /* arrays */, CASES_ALL };

/* Every codec that has kernels. */
void check_codecs(enum cases cases);

/* The same on a caller's stream. */
void check_device(enum cases cases);

/* Sweeps of every codec without scales. */
void check_sweeps(enum cases cases);

/* Steps of every optimizer. */
void check_steps(enum cases cases);

/* A piece of a plane in host memory, coded by the CPU; codes with contexts have scales. */
struct piece {
	struct tsr_entropy_variance variance;
	uint32_t n, nbytes;
	size_t nscales;
	uint16_t *scales;
	unsigned char *plain, *coded;
};

void pieces_encode_on_cpu(struct tsr_gpu_coding coding, struct piece *p);
bool pieces_cpu_decodes(struct tsr_gpu_coding coding, const struct piece *p, void *plain);
void pieces_free(struct piece *p);

/* Decode pieces as they are now; returns the first that is damaged, UINT64_MAX if none is. */
uint64_t pieces_decode(struct tsr_gpu_coding coding, const struct piece *pieces, unsigned npieces,
		       unsigned char *const plain[]);

/* The GPU makes the CPU's bytes of all of them together, and the elements again. */
void pieces_check(struct tsr_gpu_coding coding, const struct piece *pieces, unsigned npieces,
		  const char *what);

/* Bits of a piece changed, most of them near its beginning, or its size: refused by both or by none. */
uint64_t pieces_check_damage(struct tsr_gpu_coding coding, struct piece *p, unsigned times);

uint32_t random_32(uint64_t *seed);

/* Coding and decoding of planes. */
void check_entropy(enum cases cases);
void check_entropy_codes(enum cases cases);
void check_planes(enum cases cases);

/*
 * Try every case of every shortcut of src/gpu/shortcut.cuh on the GPU in use against the formula
 * that it stands for.
 */
void check_shortcuts(enum cases cases);

#endif
