/* SPDX-License-Identifier: Apache-2.0 */
/* What tensors of any kind lose in 8-bit floats, by how many elements share a scale. */
#ifndef TERSOR_GRANULARITY_H
#define TERSOR_GRANULARITY_H

#include "tersor/api.h"
#include "tersor/checkpoint.h"
#include "tersor/run.h"
#include "tersor/status.h"

/*
 * An 8-bit format, and the elements that share a scale: @columns neighbours in each of @rows rows.  A tensor
 * is seen as rows of its last dimension; what is left at the end of a row, or below the last whole block, is
 * a smaller group.
 */
struct tsr_granularity {
	const char *format; /* "e4m3", "e5m2": OCP FP8, rounded to nearest even and saturating */
	const char *name; /* "1x16", "tensor" */
	unsigned rows, columns; /* 0: all elements of the tensor */
};

#define TSR_GRANULARITY_FORMATS 2
#define TSR_GRANULARITY_SIZES 10 /* of each */
#define TSR_GRANULARITY_COUNT (TSR_GRANULARITY_FORMATS * TSR_GRANULARITY_SIZES)

/* By index, one format after the other, from the whole tensor to small groups; NULL past the end. */
TSR_API const struct tsr_granularity *tsr_granularity_get(unsigned index);

/*
 * How a group's scale is stored.  It is RN((max |x| + 1e-10) / MAX), MAX the format's largest value, as in
 * COAT, section 5.
 */
enum tsr_granularity_scale {
	TSR_GRANULARITY_BF16, /* rounded up to BF16: nothing saturates */
	TSR_GRANULARITY_F32, /* as it is */
	/* as COAT's program has it: elements are divided by the FP32 scale, and multiplied by it in BF16 */
	TSR_GRANULARITY_COAT,
	TSR_GRANULARITY_SCALE_COUNT
};

/* "bf16", "f32", "coat". */
TSR_API const char *tsr_granularity_scale_name(enum tsr_granularity_scale scale);
TSR_API bool tsr_granularity_scale_find(const char *name, enum tsr_granularity_scale *ret);

/* What one of them does to a tensor. */
struct tsr_granularity_error {
	double nmse; /* sum (x - y)^2 / sum x^2: TSR_METRIC_NMSE */
	double max_abs; /* max |x - y| */
	uint64_t zeroed; /* elements that are not 0 and come back 0 */
	uint64_t nbytes; /* of codes and scales */
};

/* What was found about a tensor; members may be appended. */
struct tsr_granularity_tensor {
	const struct tsr_tensor *tensor; /* borrowed */
	bool floating; /* it has a type of floating-point numbers that is known; else nothing follows */
	uint64_t rows, columns; /* as it was seen */
	uint64_t nonfinite; /* elements as FP32; if there are any, there are no errors */
	double max; /* the largest magnitude */
	struct tsr_granularity_error error[TSR_GRANULARITY_COUNT];
};

/**
 * struct tsr_granularity_options - What to measure
 * @scale: how scales are stored
 * @kinds: a mask of enum tsr_kind: only tensors of these kinds, which are found as by
 *         tsr_names_assign(); 0: all tensors, whose kinds are then not looked for
 * @open:  how to read the files; NULL for tsr_open_defaults()
 */
struct tsr_granularity_options {
	size_t size; /* of this struct: set by tsr_granularity_defaults() */
	enum tsr_granularity_scale scale;
	unsigned kinds;
	const struct tsr_open_options *open;
};

/* BF16 scales, all tensors. */
TSR_API struct tsr_granularity_options tsr_granularity_defaults(void);

/* The outcome of tsr_granularity_measure(). */
struct tsr_granularities;

/**
 * tsr_granularity_measure() - The error of 8-bit floats for each tensor and granularity
 * @paths:   @npaths files, joined as by tsr_checkpoint_open()
 * @options: NULL for tsr_granularity_defaults()
 * @run:     threads and progress; NULL: the calling thread only
 * @ret:     out: to be freed with tsr_granularities_free(); untouched on failure
 *
 * Every tensor is read twice: for its largest magnitude, then for the errors.  F64 is rounded to FP32
 * first.  COAT (arXiv 2410.19313), section 5 and figure 4.  Thread-safe.
 *
 * Return: TSR_OK; TSR_E_USAGE if no tensor is of @kinds; or whatever reading returns.
 */
TSR_API enum tsr_status tsr_granularity_measure(const char *const *paths, unsigned npaths,
						const struct tsr_granularity_options *options,
						const struct tsr_run *run,
						struct tsr_granularities **ret,
						struct tsr_err *err);
TSR_API void tsr_granularities_free(struct tsr_granularities *g);

/* What was measured; borrowed. */
TSR_API const struct tsr_checkpoint *tsr_granularities_checkpoint(
	const struct tsr_granularities *g);

/* Tensors in the order of the source's data; NULL past the end. */
TSR_API size_t tsr_granularities_ntensors(const struct tsr_granularities *g);
TSR_API const struct tsr_granularity_tensor *tsr_granularities_tensor(
	const struct tsr_granularities *g, size_t index);

#endif
