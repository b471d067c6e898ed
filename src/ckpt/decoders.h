/* SPDX-License-Identifier: Apache-2.0 */
/* What coded planes of a checkpoint are decoded with. */
#ifndef TSR_CKPT_DECODERS_H
#define TSR_CKPT_DECODERS_H

#include "ckpt/coded/coded_plane.h"
#include "ckpt/gpu/piece_coder.h"
#include "ckpt/tensor_tiles.h"
#include "tersor/run.h"

/* What one thread decodes with, and the last piece that it read a part of. */
struct tsr_decoder {
	struct tsr_decoder *next;
	struct tsr_piece_coder *coder;
	const struct tsr_coded *held; /* whose piece @plain or @both is; NULL: neither */
	uint64_t piece;
	bool holds_both; /* it is @both, of two planes coded together, @held that of the floats */
	unsigned char *old,
		*both; /* elements of the base, and of two planes; NULL until there are any */
	unsigned char *coded;
	unsigned char plain[TSR_PIECE_NBYTES];
	uint16_t scales[TSR_PIECE_ELEMENTS];
};

/* The decoders of a checkpoint, of which there are none yet; NULL when out of memory. */
struct tsr_decoding *tsr_decoding_new(void);

/* While no thread has one; NULL is allowed. */
void tsr_decoding_free(struct tsr_decoding *d);

/*
 * Decode the arrays of a checkpoint, and of those that it differs from, on the GPUs of @run from now on, or,
 * with none or NULL, on the CPU.  While no thread reads them; before GPUs are closed back to the CPU.
 */
void tsr_coded_decode_on(const struct tsr_checkpoint *c, const struct tsr_run *run);

/*
 * One to read a piece with, which is nobody else's until it is returned: that which holds the piece if
 * there is one.  As many as threads want are made, and stay until others are needed, on another device, or
 * the checkpoint is closed.
 */
enum tsr_status tsr_decoder_take(const struct tsr_checkpoint *c, const struct tsr_coded *coded,
				 uint64_t piece, struct tsr_decoder **ret, struct tsr_err *err);
void tsr_decoder_return(struct tsr_decoding *all, struct tsr_decoder *d);

#endif
