/* SPDX-License-Identifier: Apache-2.0 */
/* Coding pieces of planes (format.md, "Coded planes"), one by a block of threads. */
#include "gpu/entropy/contexts_encode.cuh"

/*
 * Blocks of a multiprocessor: all there is room for, but with contexts, where with one more what is loaded
 * ahead would not stay in registers.  They take one piece after the other, so that none waits for the
 * slowest of a batch, and have staging memory for the words of one.
 */
#define BLOCKS 6u
#define CONTEXTS_BLOCKS 4u

typedef void encode_kernel(struct tsr_gpu_piece *pieces, unsigned npieces, bool rotated,
			   unsigned char *staging);

template <int W>
static __global__ void __launch_bounds__(TSR_BLOCK, BLOCKS)
	encode_pieces(struct tsr_gpu_piece *pieces, unsigned npieces, bool rotated,
		      unsigned char *staging)
{
	__shared__ struct coding c;

	staging += (uint64_t)blockIdx.x * WARPS * STAGED;
	for (unsigned i = blockIdx.x; i < npieces; i += gridDim.x) {
		struct tsr_gpu_piece *p = &pieces[i];
		const uint32_t nbytes = put_piece<W>((const unsigned char *)p->plain, p->n, rotated,
						     &c, staging, (uint32_t *)p->coded);

		if (threadIdx.x == 0)
			p->nbytes = nbytes;
	}
}

static __global__ void __launch_bounds__(TSR_BLOCK, CONTEXTS_BLOCKS)
	encode_codes(struct tsr_gpu_piece *pieces, unsigned npieces, bool, unsigned char *staging)
{
	__shared__ struct contexts_coding c;

	staging += (uint64_t)blockIdx.x * CONTEXTS_STAGED;
	for (unsigned i = blockIdx.x; i < npieces; i += gridDim.x) {
		const uint32_t nbytes = put_codes(&pieces[i], &c, staging);

		if (threadIdx.x == 0)
			pieces[i].nbytes = nbytes;
		__syncthreads();
	}
}

static encode_kernel *kernel_of(struct tsr_gpu_coding coding)
{
	if (coding.contexts)
		return encode_codes;
	switch (coding.kind.width) {
	case 1:
		return encode_pieces<1>;
	case 2:
		return encode_pieces<2>;
	case 4:
		return encode_pieces<4>;
	default:
		return encode_pieces<8>;
	}
}

static unsigned blocks_of(const struct tsr_gpu *gpu, struct tsr_gpu_coding coding, unsigned npieces)
{
	const unsigned most = (coding.contexts ? CONTEXTS_BLOCKS : BLOCKS) * gpu->nprocessors;

	return npieces < most ? npieces : most;
}

extern "C" uint64_t tsr_gpu_staging_nbytes(const struct tsr_gpu *gpu, struct tsr_gpu_coding coding,
					   unsigned npieces)
{
	return blocks_of(gpu, coding, npieces) *
	       (uint64_t)(coding.contexts ? CONTEXTS_STAGED : WARPS * STAGED);
}

extern "C" enum tsr_status tsr_gpu_encode_pieces(struct tsr_gpu_stream *stream,
						 struct tsr_gpu_coding coding,
						 struct tsr_gpu_piece *pieces, unsigned npieces,
						 void *staging, struct tsr_err *err)
{
	if (!npieces)
		return TSR_OK;
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	if (!staging)
		TSR_TRY(tsr_gpu_scratch(stream, TSR_GPU_SCRATCH_STAGING,
					tsr_gpu_staging_nbytes(stream->gpu, coding, npieces),
					&staging, err));
	kernel_of(
		coding)<<<blocks_of(stream->gpu, coding, npieces), TSR_BLOCK, 0, stream->handle>>>(
		pieces, npieces, coding.kind.rotated, (unsigned char *)staging);
	return tsr_gpu_started(stream->gpu, "coding", "", err);
}
