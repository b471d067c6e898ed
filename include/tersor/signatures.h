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
#include "tersor/run.h"
#include "tersor/status.h"

/* The signature of a tensor, as a file has it but for the order of bytes in numbers. */
struct tsr_signature {
	unsigned char hash[16]; /* of its bytes; all zeros: there is no tensor */
	float max; /* largest magnitude of its finite values */
	float rms; /* root mean square of these */
	uint32_t nonfinite, zeros; /* values; UINT32_MAX stands for more, too */
};

/* A tensor in memory. */
struct tsr_to_sign {
	const void *data; /* row-major, little-endian; NULL: there is none */
	uint64_t nbytes;
	uint64_t first_piece; /* of those of tsr_device_sign(); tsr_sign() does not read it */
	uint32_t dtype; /* enum tsr_dtype */
	uint32_t index; /* of its signature in the array of all */
};

/**
 * tsr_sign() - Signatures of tensors in host memory
 * @tensors: @n of them
 * @ret:     out: signatures; those of tensors that are not there are left alone
 * @run:     how many threads; NULL: one
 *
 * Figures are those of F32, F16 and BF16; other types have zeros.  Thread-safe.
 *
 * Return: TSR_OK or TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_sign(const struct tsr_to_sign *tensors, size_t n,
				 struct tsr_signature *ret, const struct tsr_run *run,
				 struct tsr_err *err);

/*
 * A piece of a tensor: this many bytes of it, the last one fewer.  The hash of a tensor is that of its
 * first piece; each further one makes of it the XXH3-128 of it and its own.  So a GPU hashes all pieces
 * at once.
 */
#define TSR_SIGN_PIECE 32768u

/* Every 32nd square is added up, then these sums by halves: the same bits in any number of threads. */
#define TSR_SIGN_LANES 32u

struct tsr_signed_piece {
	/* XXH3-128, big-endian, of its bytes and of zeros up to a multiple of 64 bytes, at least 256. */
	unsigned char hash[16];
	double squares; /* of its finite values, added up */
	float max; /* largest magnitude of these */
	uint16_t nonfinite, zeros; /* values */
};

/**
 * tsr_sign_pieces() - Signatures of tensors of what tsr_device_sign() found
 * @tensors: @n of them, as that had them, but in host memory; what is not NULL is there
 * @pieces:  in host memory
 * @ret:     out: signatures; those of tensors that are empty or not there are left alone
 */
TSR_API void tsr_sign_pieces(const struct tsr_to_sign *tensors, size_t n,
			     const struct tsr_signed_piece *pieces, struct tsr_signature *ret);

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
