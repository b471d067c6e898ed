/* SPDX-License-Identifier: Apache-2.0 */
/* Coding pieces of planes in host memory, on the CPU or on a GPU, with the same bytes. */
#ifndef TSR_CKPT_PIECE_CODER_H
#define TSR_CKPT_PIECE_CODER_H

#include "entropy/entropy.h"
#include "tersor/status.h"

struct tsr_gpu;

/* What pieces are coded with, for one thread at a time. */
struct tsr_piece_coder;

/* What a piece is: as for tsr_entropy_encode() or tsr_entropy_encode_codes(). */
struct tsr_piece {
	struct tsr_entropy_kind kind;
	size_t n; /* elements, 0 to TSR_ENTROPY_PIECE */
	const struct tsr_entropy_variance
		*variance; /* of its codes, in host memory; NULL: others */
};

/*
 * With @gpu NULL on the CPU.  @coded_max: the most bytes of a piece that is encoded, by tsr_entropy_bound();
 * 0: pieces are decoded only.  What tsr_piece_coder_free() frees, before the GPU is closed.
 */
enum tsr_status tsr_piece_coder_new(struct tsr_gpu *gpu, size_t coded_max,
				    struct tsr_piece_coder **coder_ret, struct tsr_err *err);

/* NULL is allowed. */
void tsr_piece_coder_free(struct tsr_piece_coder *coder);

/* What the CPU codes with: differences have no kernels. */
struct tsr_entropy *tsr_piece_coder_entropy(struct tsr_piece_coder *coder);

/*
 * Begin to code @plain; only a GPU can fail.  @coded has room for tsr_entropy_bound(), and is used by the CPU
 * alone; what @piece and @plain name may change at once.
 */
enum tsr_status tsr_piece_encode_begin(struct tsr_piece_coder *coder, const struct tsr_piece *piece,
				       const void *plain, void *coded, struct tsr_err *err);

/* Wait until that is done: *coded_ret, which is @coded or memory of the coder, stays until the next piece. */
enum tsr_status tsr_piece_encode_end(struct tsr_piece_coder *coder, const void **coded_ret,
				     size_t *nbytes_ret, struct tsr_err *err);

/*
 * Decode a piece from exactly @nbytes bytes, which may be anything.  *wrong_ret becomes NULL, or what is
 * wrong with the bytes, as by tsr_entropy_decode(); only a GPU can fail.
 */
enum tsr_status tsr_piece_decode(struct tsr_piece_coder *coder, const struct tsr_piece *piece,
				 const void *coded, size_t nbytes, void *plain,
				 const char **wrong_ret, struct tsr_err *err);

#endif
