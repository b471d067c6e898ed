/* SPDX-License-Identifier: Apache-2.0 */
/* Coding planes (format.md, "Coded planes"): blocks of threads take one piece after the other. */
#include "gpu/entropy/encode_stream.cuh"

/*
 * Blocks of a multiprocessor: all there is room for.  They take one piece after the other, so that none
 * waits for the slowest of a batch, and have staging memory for the words of one.
 */
#define BLOCKS 6u

struct encode_args {
	const unsigned char *plain;
	uint64_t n, npieces; /* elements; pieces */
	unsigned char *coded;
	uint64_t room; /* bytes from one coded piece to the next */
	uint32_t *nbytes; /* of each coded piece */
	unsigned char *staging;
};

/* --- Pieces -------------------------------------------------------------------------------------- */

template <int W>
static __device__ __forceinline__ void encode_piece(const struct encode_args *a, bool rotated,
						    uint64_t p, struct coding *c)
{
	const uint64_t left = a->n - p * TSR_ENTROPY_PIECE;
	const uint32_t n = left < TSR_ENTROPY_PIECE ? (uint32_t)left : TSR_ENTROPY_PIECE;
	unsigned char *staging = a->staging + (uint64_t)blockIdx.x * WARPS * STAGED;
	const uint32_t used = put_piece<W>(a->plain + W * p * TSR_ENTROPY_PIECE, n, rotated, c,
					   staging, (uint32_t *)(a->coded + p * a->room));

	if (threadIdx.x == 0)
		a->nbytes[p] = used;
}

template <int W>
static __global__ void __launch_bounds__(TSR_BLOCK, BLOCKS)
	encode_pieces(const __grid_constant__ encode_args a, bool rotated)
{
	__shared__ struct coding c;

	for (uint64_t p = blockIdx.x; p < a.npieces; p += gridDim.x)
		encode_piece<W>(&a, rotated, p, &c);
}

typedef void encode_kernel(const struct encode_args, bool);

static encode_kernel *kernel_of(unsigned width)
{
	switch (width) {
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

extern "C" enum tsr_status tsr_gpu_entropy_encode(struct tsr_gpu_stream *stream,
						  struct tsr_entropy_kind kind, const void *plain,
						  uint64_t n, void *coded, uint32_t *nbytes,
						  struct tsr_err *err)
{
	const unsigned index = stream->gpu->index, most = BLOCKS * stream->gpu->nprocessors;
	const uint64_t npieces = tsr_entropy_pieces(n);
	const unsigned nblocks = npieces < most ? (unsigned)npieces : most;
	struct encode_args a = {
		(const unsigned char *)plain,
		n,
		npieces,
		(unsigned char *)coded,
		tsr_entropy_bound(kind, TSR_ENTROPY_PIECE),
		nbytes,
		NULL,
	};
	void *staging;

	if (!n)
		return TSR_OK;
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	TSR_TRY(tsr_gpu_scratch(stream, TSR_GPU_SCRATCH - 1, (uint64_t)nblocks * WARPS * STAGED,
				&staging, err));
	a.staging = (unsigned char *)staging;
	kernel_of(kind.width)<<<nblocks, TSR_BLOCK, 0, stream->handle>>>(a, kind.rotated);
	TSR_CUDA_TRY(index, err, cudaGetLastError(), "cannot start coding");
	return TSR_OK;
}
