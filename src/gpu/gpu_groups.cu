/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of all codecs whose elements share what is stored of their group: see gpu_groups.cuh. */
#include "gpu/gpu_learned.cuh"
#include "gpu/gpu_tables.cuh"

/* --- Groups of the usual sizes ---------------------------------------------------------------- */

/*
 * A team of threads has a group, each N consecutive elements.  Whole groups only.  Threads read 16 bytes
 * at some distance: a sector is then for several reads of a warp, and the first one leaves it in the
 * cache.
 */
template <class codec, unsigned GROUP>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_groups(const float *x, uint64_t n, const __grid_constant__ coded_planes planes,
		      struct tsr_encode_report *report)
{
	const int N = codec::elements(GROUP);
	const uint64_t tile = tsr_first_vector(1);
	const bool inside = tile < n / N;
	float in[N] = {};

	if (inside)
		load_tile<float, N>(x, tile, in);
	group_tiles<codec, GROUP>::template store<N>(planes, tile, inside, in, report);
}

#define W 4
#define EACH 2u /* vectors of a thread: each load is small, so several are issued at once */

/* How many vectors there are from @begin on; at most what fits. */
static __device__ __forceinline__ unsigned vectors_left(uint64_t nvectors, uint64_t begin)
{
	const uint64_t left = nvectors > begin ? nvectors - begin : 0;

	return left < UINT32_MAX ? (unsigned)left : UINT32_MAX;
}

template <class codec, unsigned GROUP>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_groups(const __grid_constant__ coded_planes planes, uint64_t n, float *x)
{
	typedef typename codec::code_type code_type;
	const code_type *codes = (const code_type *)planes.plane[0];
	const unsigned team = GROUP / W;
	const uint64_t begin = tsr_first_vector(EACH);
	const unsigned left = vectors_left(n / W, begin);
	struct tsr_vec<code_type, W> in[EACH];
	typename codec::stored stored[EACH];

#pragma unroll
	for (unsigned u = 0; u < EACH; u++) {
		if (u * TSR_BLOCK < left) {
			in[u] = tsr_load<code_type, W>(codes + begin * W, u * TSR_BLOCK);
			stored[u] = codec::load(planes, begin / team + u * (TSR_BLOCK / team));
		}
	}
#pragma unroll
	for (unsigned u = 0; u < EACH; u++) {
		struct tsr_vec<float, W> out;

		if (u * TSR_BLOCK >= left)
			break;
		codec::template decode<W>(planes, stored[u], in[u].v, out.v);
		tsr_store(x + begin * W, u * TSR_BLOCK, out);
	}
}

/* --- Groups of any size, arrays of any alignment, the short group at the end ------------------ */

/* In shared memory threads of a warp can read different entries of a codebook at once. */
static __device__ __forceinline__ const float *share(const struct no_codebook &)
{
	return NULL;
}

static __device__ __forceinline__ const float *share(const struct learned_codebook &book)
{
	__shared__ float entry[TSR_BLOCK];

	static_assert(sizeof(book) == sizeof(entry), "an entry for each thread");
	entry[threadIdx.x] = book.entry[threadIdx.x];
	__syncthreads();
	return entry;
}

/* A team of threads has a group, each of them every so many elements. */
template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_any(const float *x, uint64_t n, struct groups groups, struct coded_planes planes,
		   const __grid_constant__ typename codec::codebook book,
		   struct tsr_encode_report *report)
{
	typedef typename codec::code_type code_type;
	const struct team t = my_team(n, groups);
	struct magnitudes m = { 0, INT32_MAX };
	struct scale_events events = { 0, 0 };
	typename codec::coder coder;

	planes.codebook = share(book);
	for (uint32_t k = t.thread; k < t.count; k += t.nthreads) {
		const uint32_t mag = magnitude(x[t.first + k]);

		m.largest = ::max(m.largest, mag);
		m.least = ::min(m.least, unless_zero(mag));
	}
	m = join_magnitudes(m, t.nthreads);
	coder = codec::template begin<0>(planes, m, t.group, t.count && t.thread == 0, &events);
	for (uint32_t k = t.thread; k < t.count; k += t.nthreads)
		codec::template encode<1>(planes, coder, &x[t.first + k],
					  (code_type *)planes.plane[0] + t.first + k);
	add_events(report, planes.scale, events);
}

template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_any(struct coded_planes planes, uint64_t n, struct groups groups,
		   const __grid_constant__ typename codec::codebook book, float *x)
{
	const struct team t = my_team(n, groups);
	typename codec::stored stored;

	planes.codebook = share(book);
	if (!t.count)
		return;
	stored = codec::load(planes, t.group);
	for (uint32_t k = t.thread; k < t.count; k += t.nthreads) {
		typename codec::code_type code = 0;

		if (codec::has_codes)
			code = ((const typename codec::code_type *)planes.plane[0])[t.first + k];
		codec::template decode<1>(planes, stored, &code, &x[t.first + k]);
	}
}

/* --- Launches -------------------------------------------------------------------------------- */

/* Elements in whole groups that the kernels for the usual sizes take. */
template <class codec>
static uint64_t usual_part(const struct tsr_coding *coding, const float *x, const void *codes,
			   uint64_t n)
{
	const uint32_t group = coding->group;
	const bool usual = group == codec::usual || group == 2 * codec::usual;
	const bool fits = usual && !coding->row && tsr_is_aligned(x, 16) &&
			  tsr_is_aligned(codes, 16);

	return fits ? n - n % group : 0;
}

static struct no_codebook book_of(const struct tsr_coding *, bool, struct no_codebook)
{
	return {};
}

static struct learned_codebook book_of(const struct tsr_coding *coding, bool decodes,
				       struct learned_codebook book)
{
	for (unsigned i = 0; i < TSR_TABLE_CODES; i++)
		book.entry[i] = decodes ? narrowed(coding->narrow, coding->codebook[i])
					: coding->codebook[i];
	return book;
}

/* Blocks of threads for teams that have the groups of @n elements. */
static unsigned team_blocks(const struct tsr_coding *coding, const struct groups *groups,
			    uint64_t n)
{
	const unsigned plane = coding->codec->nplanes > 1;

	return tsr_blocks(tsr_plane_count(coding, plane, n) << groups->log_team, 1);
}

template <class codec>
static void run_encode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const float *x, uint64_t n, void *const plane[],
		       struct tsr_encode_report *report)
{
	const uint64_t part = usual_part<codec>(coding, x, plane[0], n), rest = n - part;
	const struct coded_planes planes = tsr_gpu_planes(stream, coding, plane, 0);
	const struct coded_planes others = tsr_gpu_planes(stream, coding, plane, part);
	const struct groups groups = groups_of(coding);

	if constexpr (codec::usual > 0) {
		const unsigned blocks = tsr_blocks(part / codec::elements(coding->group), 1);

		if (part)
			(coding->group == codec::usual ? encode_groups<codec, codec::usual>
						       : encode_groups<codec, 2 * codec::usual>)<<<
				blocks, TSR_BLOCK, 0, stream->handle>>>(x, part, planes, report);
	}
	if (rest)
		encode_any<codec>
			<<<team_blocks(coding, &groups, rest), TSR_BLOCK, 0, stream->handle>>>(
				x + part, rest, groups, others,
				book_of(coding, false, typename codec::codebook()), report);
}

template <class codec>
static void run_decode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const void *const plane[], uint64_t n, float *x)
{
	const uint64_t part = usual_part<codec>(coding, x, plane[0], n), rest = n - part;
	const struct coded_planes planes = tsr_gpu_planes(stream, coding, plane, 0);
	const struct coded_planes others = tsr_gpu_planes(stream, coding, plane, part);
	const struct groups groups = groups_of(coding);

	if constexpr (codec::usual > 0) {
		if (part)
			(coding->group == codec::usual ? decode_groups<codec, codec::usual>
						       : decode_groups<codec, 2 * codec::usual>)<<<
				tsr_blocks(part / W, EACH), TSR_BLOCK, 0, stream->handle>>>(
				planes, part, x);
	}
	if (rest)
		decode_any<codec>
			<<<team_blocks(coding, &groups, rest), TSR_BLOCK, 0, stream->handle>>>(
				others, rest, groups,
				book_of(coding, true, typename codec::codebook()), x + part);
}

/* --- Codecs ---------------------------------------------------------------------------------- */

#define X(id, each, loops, group, code, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run_encode<loops<group_##group, code>>, \
							  run_decode<loops<group_##group, code>>, \
							  TSR_TABLES_COUNT };
TSR_GROUPED_LIST(X)
#undef X

const struct tsr_gpu_codec tsr_gpu_codec_log8 = { run_encode<logarithmic>, run_decode<logarithmic>,
						  TSR_TABLES_LOG };

/* With rules for momenta and for variances. */
template <class format>
static void encode_tabled(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			  const float *x, uint64_t n, void *const plane[],
			  struct tsr_encode_report *report)
{
	(coding->kind == TSR_KIND_VARIANCE
		 ? run_encode<tabled<format, true>>
		 : run_encode<tabled<format, false>>)(stream, coding, x, n, plane, report);
}

template <class format>
static void decode_tabled(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			  const void *const plane[], uint64_t n, float *x)
{
	(coding->kind == TSR_KIND_VARIANCE
		 ? run_decode<tabled<format, true>>
		 : run_decode<tabled<format, false>>)(stream, coding, plane, n, x);
}

#define X(id, each, loops, format, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { encode_tabled<format_##id>, \
							  decode_tabled<format_##id>, \
							  tsr_##format##_rule(false).set };
TSR_TABLED_LIST(X)
#undef X

/* --- Means ----------------------------------------------------------------------------------- */

/* A warp has a block. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_means(const float *x, uint64_t n, uint32_t size, enum tsr_dtype narrow, float *means)
{
	const struct team b = my_block(n, size);
	const double sum = sum_of_block(b, [=](uint64_t i) { return (double)x[i]; });

	if (b.count && b.thread == 0)
		means[b.group] = narrowed(narrow, tsr_block_mean(sum, b.count));
}

static void run_encode_means(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			     const float *x, uint64_t n, void *const plane[],
			     struct tsr_encode_report *report)
{
	(void)report;
	encode_means<<<warps_for(n, coding->group), TSR_BLOCK, 0, stream->handle>>>(
		x, n, coding->group, coding->narrow, (float *)plane[0]);
}

const struct tsr_gpu_codec tsr_gpu_codec_gefen8 = { run_encode<gefen_codes>,
						    run_decode<gefen_codes>, TSR_TABLES_COUNT };
const struct tsr_gpu_codec tsr_gpu_codec_blockmean = { run_encode_means, run_decode<block_means>,
						       TSR_TABLES_COUNT };
