/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs, the entropy coder and signatures of arrays in a GPU's memory, on a stream of the caller: for use
 * inside a training job.
 */
#ifndef TERSOR_DEVICE_H
#define TERSOR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/codec.h"
#include "tersor/gpu.h"
#include "tersor/signatures.h"
#include "tersor/status.h"

/*
 * All arrays are in the memory of the GPU that @gpu was opened with, and @stream is a CUstream or
 * cudaStream_t of its primary context, as PyTorch's are (torch.cuda.Stream.cuda_stream); NULL is the
 * default stream.  Functions append work to the stream and return: they neither allocate memory there nor
 * wait, but for tsr_device_prepare().  The results have the bits of the CPU's codecs.  Failures are those of
 * tersor/gpu.h; a kernel that fails later is found by whoever waits for the stream.  Thread-safe.
 */

/* What the elements of a tensor are like, as far as it decides whether a codec can hold them. */
struct tsr_device_found {
	struct tsr_encode_report report; /* of the encoder */
	uint64_t nonfinite; /* infinite or NaN */
	uint64_t negative; /* below 0 */
	uint64_t nonzero;
	uint64_t fractional; /* no integer of at most 2^24 */
	uint64_t wide; /* not exactly a BF16 */
	uint64_t overflow; /* finite, but infinite in the narrow float of the codec: BF16 or F16 */
};

/**
 * tsr_device_prepare() - Have what kernels of a codec need in the GPU's memory
 * @coding: of any codec in tsr_codecs()
 *
 * To be called once per codec before the functions below: allocates some kilobytes and waits for them.
 *
 * Return: TSR_OK; TSR_E_UNSUPPORTED for a learned codec, which needs a pass over the data first.
 */
TSR_API enum tsr_status tsr_device_prepare(struct tsr_gpu *gpu, const struct tsr_coding *coding,
					   struct tsr_err *err);

/**
 * tsr_device_ratios() - Momenta as what a relative codec encodes
 * @coding: of a relative codec (ratio8)
 * @m, @v:  @n momenta, and the variances of the same elements
 * @ratios: out: @n of them; may be @m
 */
TSR_API enum tsr_status tsr_device_ratios(struct tsr_gpu *gpu, void *stream,
					  const struct tsr_coding *coding, const float *m,
					  const float *v, uint64_t n, float *ratios,
					  struct tsr_err *err);

/**
 * tsr_device_encode() - Encode a tensor, or a run of its groups
 * @coding: as codec->encode() takes it
 * @x:      @n elements; ratios for a relative codec
 * @plane:  out: an array per plane of tsr_plane_nbytes() bytes, fastest where aligned to 16 bytes
 * @found:  added to: what @x is like; NULL: it is not read a second time for that
 *
 * FlashOptim, section 3, for bf16+ulp8, softsign8 and sqrt8.
 */
TSR_API enum tsr_status tsr_device_encode(struct tsr_gpu *gpu, void *stream,
					  const struct tsr_coding *coding, const float *x,
					  uint64_t n, void *const plane[],
					  struct tsr_device_found *found, struct tsr_err *err);

/* The same backwards: @x gets what @plane decodes to; of a relative codec the ratios. */
TSR_API enum tsr_status tsr_device_decode(struct tsr_gpu *gpu, void *stream,
					  const struct tsr_coding *coding,
					  const void *const plane[], uint64_t n, float *x,
					  struct tsr_err *err);

/**
 * tsr_device_sign() - Hash and measure the pieces of tensors (tersor/signatures.h), in one kernel
 * @tensors: @n of them by @first_piece, each ceil(nbytes / TSR_SIGN_PIECE) pieces behind the one before,
 *           in the GPU's memory, as are their data, contiguous and aligned to 16 bytes
 * @npieces: of all tensors
 * @pieces:  out: in the GPU's memory, for tsr_sign_pieces(); those of tensors that are not there are left
 *           alone
 */
TSR_API enum tsr_status tsr_device_sign(struct tsr_gpu *gpu, void *stream,
					const struct tsr_to_sign *tensors, size_t n,
					uint64_t npieces, struct tsr_signed_piece *pieces,
					struct tsr_err *err);

/* --- Entropy coding ----------------------------------------------------------------------------- */

/* A plane of a tensor; addresses are in device memory. */
struct tsr_device_plane {
	const struct tsr_coding *coding; /* of the tensor */
	unsigned which; /* of its planes */
	uint64_t n, columns; /* elements of the tensor, and of its last dimension: 1 without any */
	void *plain; /* tsr_plane_nbytes() bytes, aligned to 16 */
	const void *scales; /* plane 1 of the tensor, plain; of plane 0 of codecs with `contexts` */
	const void *coded; /* to decode: aligned to 8 bytes, */
	uint64_t coded_nbytes;
};

/*
 * The most bytes of a coded plane, a multiple of 16; its addresses are not used.  0: it is not coded on a
 * GPU, because it is empty, or because its pieces after the first are not aligned: where groups follow rows.
 */
TSR_API uint64_t tsr_device_coded_bound(const struct tsr_device_plane *plane);

/*
 * Bytes of device memory, aligned to 256, that coding planes together needs meanwhile, or decoding them;
 * UINT64_MAX, which nobody has, when out of host memory.
 */
TSR_API uint64_t tsr_device_coding_scratch(const struct tsr_gpu *gpu,
					   const struct tsr_device_plane *planes, size_t n,
					   bool decodes);

/**
 * tsr_device_code() - Code planes
 * @planes:  @n of them, each with a tsr_device_coded_bound(); borrowed by this call only
 * @scratch: of tsr_device_coding_scratch()
 * @coded:   out: the coded planes one behind the other, each at a multiple of 16 bytes; aligned to 16 bytes,
 *           with room for all bounds together.  May be where the planes were
 * @ends:    out: in device memory: of each where it ends in @coded
 *
 * They are arrays as a packed file has them (docs/internals/format.md, section 4.8) with the bytes that the
 * CPU makes, but for hashes of pieces, which are 0: tsr_saving_write() fills them in.  How much there is to
 * copy to the host is known when @ends is read.  Many planes together are coded faster than each alone: a
 * piece of 262,144 elements takes one block of threads.
 */
TSR_API enum tsr_status tsr_device_code(struct tsr_gpu *gpu, void *stream,
					const struct tsr_device_plane *planes, size_t n,
					void *scratch, void *coded, uint64_t *ends,
					struct tsr_err *err);

/**
 * tsr_device_uncode() - Decode coded planes
 * @damaged: in device memory: stays as it is, UINT64_MAX, unless a plane is damaged, or needs the base of a
 *           delta; its elements are not to be used then.  Hashes are not compared
 *
 * Scales that codes depend on are decoded first where they are among @planes.
 */
TSR_API enum tsr_status tsr_device_uncode(struct tsr_gpu *gpu, void *stream,
					  const struct tsr_device_plane *planes, size_t n,
					  void *scratch, uint64_t *damaged, struct tsr_err *err);

#endif
