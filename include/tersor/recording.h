/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings of gradients on disk: opening them and their steps, and their totals. */
#ifndef TERSOR_RECORDING_H
#define TERSOR_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/checkpoint.h"
#include "tersor/directory.h"
#include "tersor/optimizer.h"
#include "tersor/status.h"

/* Parameters that share hyperparameters. */
struct tsr_recording_group {
	size_t nparams;
	const char *const *params; /* names; NULL: the group has every parameter (one group only) */
	struct tsr_hyper hyper; /* what the recording says; lr is each step's */
};

struct tsr_recording_step {
	uint64_t step; /* number of the step that these gradients led to; 1 is the first ever */
	size_t nfiles; /* 1, or one per rank */
	const char *const *files; /* below the recording's directory */
	const double *lr; /* per group; NULL: not recorded */
	bool has_loss;
	double loss;
};

/* What ran, as the manifest says it; "" and -1 where it does not. */
struct tsr_recorded_run {
	char order[32]; /* also one that is not known here */
	char pytorch[64]; /* its version */
	char device[96]; /* "NVIDIA H100 80GB HBM3", "cpu" */
	signed char fused, foreach, capturable; /* 0 or 1: options of the optimizer */
};

/**
 * struct tsr_recording - Gradients of consecutive steps on disk (docs/replay.md)
 *
 * Read-only after opening.  Steps are numbered without gaps.
 */
struct tsr_recording {
	const char *path;
	bool has_manifest;
	enum tsr_optimizer optimizer; /* TSR_OPTIMIZER_COUNT: not recorded */
	enum tsr_order order; /* of the run, by all that is recorded; TSR_ORDER_COUNT: not known */
	struct tsr_recorded_run run;
	size_t ngroups;
	const struct tsr_recording_group *groups;
	size_t nsteps;
	const struct tsr_recording_step *steps;
};

/**
 * tsr_recording_open() - Open a directory with a manifest.json, or with one file of gradients a step
 * @path:    the directory
 * @options: how to open the files of steps; NULL for tsr_open_defaults()
 * @ret:     out: to be closed with tsr_recording_close(); untouched on failure
 *
 * Without a manifest the directory has one checkpoint of any container per step, whose name ends in
 * the number of the step; optimizer, hyperparameters and lr are then unknown, and one group has
 * every parameter.
 *
 * Return: TSR_OK; TSR_E_FORMAT for a malformed manifest or a gap in the steps; TSR_E_UNSUPPORTED for
 * another version, optimizer or hyperparameter; TSR_E_LIMIT; TSR_E_IO; TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_recording_open(const char *path, const struct tsr_open_options *options,
					   struct tsr_recording **ret, struct tsr_err *err);
TSR_API void tsr_recording_close(struct tsr_recording *r);

/* Whether this path is the directory of a recording, rather than a checkpoint. */
TSR_API bool tsr_recording_probe(const char *path);

/*
 * Open the gradients of step @index (from 0) as a checkpoint whose tensors are named after the
 * parameters and are BF16, F16 or F32.  Errors name the step.  Thread-safe.
 */
TSR_API enum tsr_status tsr_recording_open_step(const struct tsr_recording *r, size_t index,
						struct tsr_checkpoint **ret, struct tsr_err *err);

/**
 * tsr_recode_recording() - Write a recording with its gradients entropy coded, or plain again
 * @path:    the directory of a recording; symbolic links in it are refused unless @options->open->follow
 * @out:     the directory to make, as for tsr_pack_directory(); with `force` one is replaced that
 *           has no other entries than those that the new one has
 * @options: NULL for tsr_recode_defaults(), which write plain files.  `coded` is TSR_CODED_ALL or
 *           TSR_CODED_NONE, and `max_shard_nbytes` and `weights_out` must not be set
 * @watch:   NULL: none; @packed is called after each file that was coded, @unpacked after each that is plain
 * @run:     threads and progress; NULL: the calling thread only
 * @ret:     out: an entry for every file, packed or copied; to be freed with tsr_directory_close(); set on
 *           TSR_OK and TSR_E_DURABILITY
 *
 * Files of gradients keep their names, and all others are copied.  A file is coded only if it is safetensors,
 * comes back with the bytes that it has, and gets smaller; otherwise it is copied, and its entry says why.
 * So a recording that was coded comes back byte for byte.
 *
 * Return: TSR_OK; TSR_E_FORMAT for a damaged file or manifest; or whatever reading and writing return.
 */
TSR_API enum tsr_status tsr_recode_recording(const char *path, const char *out,
					     const struct tsr_recode_options *options,
					     const struct tsr_directory_watch *watch,
					     const struct tsr_run *run, struct tsr_directory **ret,
					     struct tsr_err *err);

/* The group that a parameter is in, or NULL if it is in none. */
TSR_API const struct tsr_recording_group *tsr_recording_group_of(const struct tsr_recording *r,
								 const char *param);

#endif
