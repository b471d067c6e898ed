/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding pieces of planes (format.md, "Coded planes"), one by a block of threads: of a piece that is
 * damaged its number is reported, and the CPU says why.
 */
#include "gpu/entropy/contexts_decode.cuh"

/* Blocks of a multiprocessor: with one more, what is loaded ahead would not stay in registers. */
#define CONTEXTS_BLOCKS 4u

typedef void decode_kernel(const struct tsr_gpu_piece *pieces, struct tsr_entropy_kind kind,
			   uint64_t *damaged);

static __device__ __forceinline__ void report_piece(bool fine, uint64_t *damaged)
{
	if (!fine && threadIdx.x == 0)
		atomicMin((unsigned long long *)damaged, (unsigned long long)blockIdx.x);
}

template <int W, class table>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_pieces(const struct tsr_gpu_piece *pieces, struct tsr_entropy_kind kind,
		      uint64_t *damaged)
{
	__shared__ struct piece_memory<W, table> m;
	const struct tsr_gpu_piece *p = &pieces[blockIdx.x];

	report_piece(decode_piece<W>(&m, (const unsigned char *)p->coded, p->nbytes, p->n,
				     kind.width, kind.rotated, (unsigned char *)p->plain),
		     damaged);
}

static __global__ void __launch_bounds__(TSR_BLOCK, CONTEXTS_BLOCKS)
	decode_pieces_of_codes(const struct tsr_gpu_piece *pieces, struct tsr_entropy_kind,
			       uint64_t *damaged)
{
	__shared__ union codes_memory m;

	report_piece(__syncthreads_and(decode_codes(&m, &pieces[blockIdx.x])), damaged);
}

static decode_kernel *kernel_of(struct tsr_gpu_coding coding)
{
	if (coding.contexts)
		return decode_pieces_of_codes;
	switch (coding.kind.width) {
	case 1:
		return decode_pieces<1, direct_table>;
	case 2:
		return decode_pieces<2, direct_table>;
	default:
		return decode_pieces<4, small_table>;
	}
}

extern "C" enum tsr_status tsr_gpu_decode_pieces(struct tsr_gpu_stream *stream,
						 struct tsr_gpu_coding coding,
						 const struct tsr_gpu_piece *pieces,
						 unsigned npieces, uint64_t *damaged,
						 struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	if (npieces)
		kernel_of(coding)<<<npieces, TSR_BLOCK, 0, stream->handle>>>(pieces, coding.kind,
									     damaged);
	return tsr_gpu_started(stream->gpu, "decoding", "", err);
}
