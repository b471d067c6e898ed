/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures: hashes and figures of the tensors of a run, step by step (docs/replay.md, "Signatures"). */
#ifndef TERSOR_SIGNATURES_H
#define TERSOR_SIGNATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/dtype.h"
#include "tersor/recording.h"
#include "tersor/status.h"

/* The signature of a tensor, as a file has it but for the order of bytes in numbers. */
struct tsr_signature {
	unsigned char
		hash[16]; /* XXH3-128 of its bytes, big-endian; all zeros: there is no tensor */
	float max; /* largest magnitude of its finite values */
	float rms; /* root mean square of these */
	uint32_t nonfinite, zeros; /* values; UINT32_MAX stands for more, too */
};

/**
 * tsr_sign() - The signature of a tensor in memory
 * @data:  @nbytes bytes: elements of @dtype, row-major, little-endian
 *
 * Figures are those of F32, F16 and BF16; other types have zeros.  Thread-safe.
 *
 * Return: TSR_OK or TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_sign(const void *data, size_t nbytes, enum tsr_dtype dtype,
				 struct tsr_signature *ret, struct tsr_err *err);

/* A tensor of which a file has a signature at each step. */
struct tsr_signed_tensor {
	const char *name; /* of the parameter */
	const char *of; /* "gradient", "weight", or what the optimizer calls a state: "exp_avg" */
	enum tsr_dtype dtype;
	unsigned rank;
	const uint64_t *shape;
	bool part; /* one rank's part of a larger tensor */
};

/* The signatures of one process; read-only after opening. */
struct tsr_signatures {
	const char *path;
	const struct tsr_recording *run; /* optimizer, order, groups; without steps */
	uint64_t rank, nranks;
	size_t ntensors;
	const struct tsr_signed_tensor *tensors;
	uint64_t nsteps;
	uint64_t torn_nbytes; /* behind the last whole step: writing it was interrupted */
};

/* What a file has of a step. */
struct tsr_signed_step {
	uint64_t step; /* gradients led to it, weights and states are those after it */
	double loss; /* NaN: not recorded */
	double *lr; /* per group of the run */
	struct tsr_signature *tensors;
};

/**
 * tsr_signatures_open() - Open a file of signatures
 * @ret: out: to be closed with tsr_signatures_close(); untouched on failure
 *
 * Return: TSR_OK; TSR_E_FORMAT for a malformed file; TSR_E_UNSUPPORTED; TSR_E_LIMIT; TSR_E_IO; TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_signatures_open(const char *path, struct tsr_signatures **ret,
					    struct tsr_err *err);
TSR_API void tsr_signatures_close(struct tsr_signatures *s);

/*
 * Step @index, from 0, into memory that lives until the next call or closing.  Not thread-safe.
 * TSR_E_FORMAT if it is damaged.
 */
TSR_API enum tsr_status tsr_signatures_read(struct tsr_signatures *s, uint64_t index,
					    const struct tsr_signed_step **ret,
					    struct tsr_err *err);

#endif
