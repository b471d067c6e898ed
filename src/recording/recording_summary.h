/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_RECORDING_RECORDING_SUMMARY_H
#define TSR_RECORDING_RECORDING_SUMMARY_H

/* What a recording has in all. */

#include "tersor/recording.h"

struct tsr_arena;

/* The least and the greatest of @n numbers. */
struct tsr_recorded_range {
	double low, high;
	size_t n;
};

/* A tensor that at least one step has. */
struct tsr_recorded_gradient {
	const char *name;
	const struct tsr_recording_group *group; /* NULL: in none */
	enum tsr_dtype dtype; /* in the first step that has it */
	unsigned rank;
	const uint64_t *shape;
	uint64_t numel;
	uint64_t nsteps; /* that have it */
};

struct tsr_recorded_step {
	uint64_t ntensors, nbytes;
	unsigned dtypes; /* mask of 1 << enum tsr_dtype */
};

struct tsr_recorded_group {
	uint64_t nparams; /* that the manifest lists, or that have a gradient in some step */
	uint64_t numel; /* of those with a gradient in some step */
	struct tsr_recorded_range lr; /* of the steps that record it */
};

/* What the manifest and the headers of all steps say. */
struct tsr_recording_summary {
	const struct tsr_recording *recording;
	size_t ngradients;
	struct tsr_recorded_gradient *gradients; /* sorted by name */
	struct tsr_recorded_step *steps; /* per step of the recording */
	struct tsr_recorded_group *groups; /* per group */
	struct tsr_recorded_range loss;
	uint64_t nfiles, nbytes;
	unsigned dtypes;
	uint64_t nmissing; /* gradients that steps lack, of parameters in a group */
	struct tsr_arena *arena; /* of names and shapes */
};

/**
 * tsr_recording_summarize() - Open the headers of all steps and add up what they have
 * @r:   must stay open as long as the summary is used
 * @ret: out: to be freed with tsr_recording_summary_free(); untouched on failure
 *
 * Return: TSR_OK; TSR_E_FORMAT if a tensor has two shapes; whatever tsr_recording_open_step()
 * returns.
 */
enum tsr_status tsr_recording_summarize(const struct tsr_recording *r,
					struct tsr_recording_summary **ret, struct tsr_err *err);
void tsr_recording_summary_free(struct tsr_recording_summary *summary);

#endif
