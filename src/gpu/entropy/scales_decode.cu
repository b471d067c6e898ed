/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding pieces of scales (format.md, "Lines of scales"): of the first piece that is damaged the
 * number is reported, and the CPU says why.
 */
#include "gpu/entropy/decode_stream.cuh"
#include "gpu/entropy/gpu_lines.cuh"

/* The means, which begin @body; their bytes, or 0 if they are wrong. */
static __device__ uint32_t read_means(const uint32_t *body, uint32_t nbytes, struct scale_lines *l)
{
	const uint32_t used = tsr_contexts_means_nbytes(l->nrows, l->ncolumns);

	if (nbytes < used || body[0] > UINT16_MAX || !is_padded(body, 4 + l->nrows + l->ncolumns))
		return 0;
	l->all = (int32_t)body[0];
	l->rows = (const int8_t *)(body + 1);
	l->columns = l->rows + l->nrows;
	return used;
}

/* What is in front of the rests of a piece by its lines; 0 if it is damaged. */
static __device__ uint32_t read_front(const struct tsr_gpu_scales *p, struct scale_lines *l)
{
	const uint32_t *piece = (const uint32_t *)p->coded;
	uint32_t means;

	if (!tsr_lines_are_possible(&p->grid, p->n) || p->nbytes % 4 ||
	    piece[0] >> 8 != p->nbytes - LINES_HEAD)
		return 0;
	*l = scale_lines_of(&p->grid, p->n);
	means = read_means(piece + LINES_HEAD / 4, p->nbytes - LINES_HEAD, l);
	return means ? LINES_HEAD + means : 0;
}

/* By all threads; false in all of them if the piece is damaged. */
template <int W, class table>
static __device__ bool decode_scales(struct piece_memory<W, table> *m,
				     const struct tsr_gpu_scales *p)
{
	const unsigned char *piece = (const unsigned char *)p->coded;
	const bool by_lines = p->nbytes >= LINES_HEAD && piece[0] == TSR_ENTROPY_LINES;
	struct scale_lines l = {};
	const uint32_t front = by_lines ? read_front(p, &l) : 0;

	if (by_lines && !front)
		return false;
	if (!decode_piece<W>(m, piece + front, p->nbytes - front, p->n, W, false,
			     (unsigned char *)p->scales))
		return false;
	if (by_lines)
		subtract_lines<W>(&l, UINT32_MAX, p->scales, p->scales);
	return true;
}

template <int W, class table>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_pieces_of_scales(const struct tsr_gpu_scales *pieces, uint64_t *damaged)
{
	__shared__ struct piece_memory<W, table> m;

	if (!decode_scales<W>(&m, &pieces[blockIdx.x]) && threadIdx.x == 0)
		atomicMin((unsigned long long *)damaged, (unsigned long long)blockIdx.x);
}

extern "C" enum tsr_status tsr_gpu_decode_scales(struct tsr_gpu_stream *stream, unsigned width,
						 struct tsr_gpu_scales *pieces, unsigned npieces,
						 uint64_t *damaged, struct tsr_err *err)
{
	const unsigned index = stream->gpu->index;

	if (!npieces)
		return TSR_OK;
	TSR_CUDA_TRY(index, err, cudaSetDevice((int)index), "cannot be used");
	if (width == 2)
		decode_pieces_of_scales<2, direct_table>
			<<<npieces, TSR_BLOCK, 0, stream->handle>>>(pieces, damaged);
	else
		decode_pieces_of_scales<4, small_table>
			<<<npieces, TSR_BLOCK, 0, stream->handle>>>(pieces, damaged);
	TSR_CUDA_TRY(index, err, cudaGetLastError(), "cannot start decoding");
	return TSR_OK;
}
