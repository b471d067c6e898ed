/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding planes (format.md, "Coded planes"): of a piece that is damaged its number is reported, and
 * the CPU says why.
 */
#include "gpu/entropy/decode_stream.cuh"

struct decode_args {
	const unsigned char *coded;
	const uint64_t *begin; /* of each piece in the coded bytes, and their end */
	unsigned char *plain;
	uint64_t n; /* elements of the plane */
	uint64_t *damaged; /* the first piece that is */
};

template <int W, class table>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_pieces(const __grid_constant__ decode_args a, unsigned width, bool rotated)
{
	__shared__ struct piece_memory<W, table> m;
	const uint64_t p = blockIdx.x, left = a.n - p * TSR_ENTROPY_PIECE;
	/* One that begins nowhere has no bytes, so that it is refused. */
	const uint64_t nbytes = a.begin[p] % 4 ? 0 : a.begin[p + 1] - a.begin[p];
	const uint32_t n = left < TSR_ENTROPY_PIECE ? (uint32_t)left : TSR_ENTROPY_PIECE;

	if (!decode_piece<W>(&m, a.coded + a.begin[p], nbytes, n, width, rotated,
			     a.plain + width * p * TSR_ENTROPY_PIECE) &&
	    threadIdx.x == 0)
		atomicMin((unsigned long long *)a.damaged, (unsigned long long)p);
}

typedef void decode_kernel(const struct decode_args, unsigned width, bool rotated);

static decode_kernel *kernel_of(unsigned width)
{
	switch (width) {
	case 1:
		return decode_pieces<1, direct_table>;
	case 2:
		return decode_pieces<2, direct_table>;
	default:
		return decode_pieces<4, small_table>;
	}
}

extern "C" enum tsr_status tsr_gpu_entropy_decode(struct tsr_gpu_stream *stream,
						  struct tsr_entropy_kind kind, const void *coded,
						  const uint64_t *begin, uint64_t n, void *plain,
						  uint64_t *damaged, struct tsr_err *err)
{
	const unsigned index = stream->gpu->index;
	const struct decode_args a = { (const unsigned char *)coded, begin, (unsigned char *)plain,
				       n, damaged };

	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	if (n)
		kernel_of(kind.width)<<<(unsigned)tsr_entropy_pieces(n), TSR_BLOCK, 0,
					stream->handle>>>(a, kind.width, kind.rotated);
	TSR_CUDA_TRY(index, err, cudaGetLastError(), "cannot start decoding");
	return TSR_OK;
}
