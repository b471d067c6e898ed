/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of whole planes: listed, and once they are coded copied from rooms for the longest that there
 * may be to where they go, which is known only then.
 */
#include "gpu/entropy/gpu_entropy.cuh"

#include "entropy/contexts_math.h"

/* The index of a coded plane: of each piece its end in the array, and a hash. */
#define INDEX_WORDS 2u

/* Most planes of a launch, which has 4 KiB for its arguments. */
#define AT_ONCE 24u

struct some_planes {
	struct tsr_gpu_plane plane[AT_ONCE];
};

static_assert(sizeof(struct some_planes) <= 4000, "arguments of a launch");

/* --- Kernels ------------------------------------------------------------------------------------- */

/* Where a coded piece is, if what the index says is possible; else it is empty, which no decoder takes. */
static __device__ void find_coded(const struct tsr_gpu_plane *l, uint32_t i,
				  struct tsr_gpu_piece *p)
{
	const uint64_t *index = (const uint64_t *)l->coded;
	const uint64_t front = 8 * INDEX_WORDS * (uint64_t)l->npieces, all = l->coded_nbytes,
		       begin = i ? index[INDEX_WORDS * (i - 1)] : front,
		       end = index[INDEX_WORDS * i];
	const bool fits = front <= begin && begin <= end && end <= all && begin % 4 == 0 &&
			  end - begin <= l->room && (i + 1 < l->npieces || end == all);

	p->coded = (unsigned char *)l->coded + (fits ? begin : 0);
	p->nbytes = fits ? (uint32_t)(end - begin) : 0;
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	list_pieces(const __grid_constant__ struct some_planes some, unsigned char *rooms,
		    struct tsr_gpu_piece *pieces, struct tsr_gpu_span *spans)
{
	const struct tsr_gpu_plane *l = &some.plane[blockIdx.x];

	for (uint32_t i = threadIdx.x; i < l->npieces; i += TSR_BLOCK) {
		const uint64_t first = (uint64_t)i * l->piece, left = l->n - first;
		struct tsr_gpu_piece p = {};

		p.variance = l->variance;
		p.variance.first = first;
		p.variance.scales.scales += (uint64_t)i * l->piece_scales;
		p.plain = (unsigned char *)l->plain + l->coding.kind.width * first;
		p.coded = rooms + l->rooms + (uint64_t)i * l->room;
		p.n = (uint32_t)(left < l->piece ? left : l->piece);
		if (l->coded)
			find_coded(l, i, &p);
		pieces[l->first + i] = p;
	}
	if (threadIdx.x == 0)
		spans[blockIdx.x] = { l->first, l->npieces };
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	shorten_scales(const uint32_t *from, uint64_t n, uint16_t *to)
{
	const uint64_t i = tsr_first_vector(1);

	if (i < n)
		to[i] = tsr_entropy_log_scale(from[i]);
}

/* Indices, where planes end, and for each piece the place that it goes to, by one block. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	place_pieces(const struct tsr_gpu_span *spans, unsigned n, struct tsr_gpu_piece *pieces,
		     unsigned char *coded, uint64_t *ends)
{
	__shared__ uint32_t partial[WARPS];
	uint64_t begin = 0;

	for (unsigned k = 0; k < n; k++) {
		const struct tsr_gpu_span span = spans[k];
		uint64_t *const index = (uint64_t *)(coded + begin);
		uint64_t end = 8 * INDEX_WORDS * (uint64_t)span.npieces;

		for (uint32_t first = 0; first < span.npieces; first += TSR_BLOCK) {
			const uint32_t i = first + threadIdx.x;
			struct tsr_gpu_piece *p = &pieces[span.first + i];
			const uint32_t nbytes = i < span.npieces ? p->nbytes : 0;
			uint32_t all;
			const uint64_t at = end + sum_before(nbytes, partial, &all);

			if (i < span.npieces) {
				p->plain = coded + begin + at;
				index[INDEX_WORDS * i] = at + nbytes;
				index[INDEX_WORDS * i + 1] = 0;
			}
			end += all;
		}
		if (threadIdx.x == 0)
			ends[k] = begin + end;
		begin = (begin + end + 15) / 16 * 16;
	}
}

/* Pieces to their places, one by a block. */
static __global__ void __launch_bounds__(TSR_BLOCK) move_pieces(const struct tsr_gpu_piece *pieces)
{
	const struct tsr_gpu_piece *p = &pieces[blockIdx.x];
	const uint32_t *from = (const uint32_t *)p->coded, n = p->nbytes / 4;
	uint32_t *to = (uint32_t *)p->plain;

#pragma unroll 8
	for (uint32_t i = threadIdx.x; i < n; i += TSR_BLOCK)
		to[i] = from[i];
}

/* --- Launches ------------------------------------------------------------------------------------ */

extern "C" enum tsr_status tsr_gpu_list_pieces(struct tsr_gpu_stream *stream,
					       const struct tsr_gpu_plane *planes, size_t n,
					       void *rooms, struct tsr_gpu_piece *pieces,
					       struct tsr_gpu_span *spans, struct tsr_err *err)
{
	struct some_planes some;

	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	for (size_t i = 0; i < n; i += AT_ONCE) {
		const size_t left = n - i, count = left < AT_ONCE ? left : AT_ONCE;

		memcpy(some.plane, planes + i, count * sizeof(*planes));
		list_pieces<<<(unsigned)count, TSR_BLOCK, 0, stream->handle>>>(
			some, (unsigned char *)rooms, pieces, spans + i);
	}
	return tsr_gpu_started(stream->gpu, "listing pieces", "", err);
}

extern "C" enum tsr_status tsr_gpu_shorten_scales(struct tsr_gpu_stream *stream,
						  const uint32_t *scales, uint64_t n, uint16_t *to,
						  struct tsr_err *err)
{
	shorten_scales<<<tsr_blocks(n, 1), TSR_BLOCK, 0, stream->handle>>>(scales, n, to);
	return tsr_gpu_started(stream->gpu, "with scales", "", err);
}

extern "C" enum tsr_status tsr_gpu_place_pieces(struct tsr_gpu_stream *stream,
						const struct tsr_gpu_span *spans, size_t n,
						struct tsr_gpu_piece *pieces, uint32_t npieces,
						void *coded, uint64_t *ends, struct tsr_err *err)
{
	place_pieces<<<1, TSR_BLOCK, 0, stream->handle>>>(spans, (unsigned)n, pieces,
							  (unsigned char *)coded, ends);
	if (npieces)
		move_pieces<<<npieces, TSR_BLOCK, 0, stream->handle>>>(pieces);
	return tsr_gpu_started(stream->gpu, "copying pieces", "", err);
}
