/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of all codecs whose elements share what is stored of their group: see gpu_groups.cuh. */
#include "gpu/gpu_learned.cuh"
#include "gpu/gpu_packed.cuh"

/* --- Groups of the usual sizes ---------------------------------------------------------------- */

/*
 * A team of threads has a group, each N consecutive elements: on an H200 1.5 to 5.4 times as fast as
 * groups of any size.  Whole groups only.  Threads read 16 bytes at some distance: a sector is then for
 * several reads of a warp, and the first one leaves it in the cache.
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

#define TILES 4u /* of a thread, to be decoded: on an H200 up to 1.15 times as fast as one */

template <class codec, unsigned GROUP>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_groups(const __grid_constant__ coded_planes planes, uint64_t n, float *x)
{
	const uint64_t first = tsr_first_vector(TILES);
	float out[TILES][4];

#pragma unroll
	for (unsigned i = 0; i < TILES; i++)
		if (first + i * TSR_BLOCK < n / 4)
			group_tiles<codec, GROUP>::template load<4>(planes, first + i * TSR_BLOCK,
								    out[i]);
#pragma unroll
	for (unsigned i = 0; i < TILES; i++)
		if (first + i * TSR_BLOCK < n / 4)
			store_tile<float, 4>(x, first + i * TSR_BLOCK, out[i]);
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

/* The largest and least magnitudes of a group; or with its root mean square as the largest. */
template <class codec>
static __device__ __forceinline__ struct magnitudes measure(const float *x, struct team t)
{
	struct magnitudes m = { 0, UINT32_MAX };

	for (uint32_t k = t.thread; k < t.count; k += t.nthreads) {
		const uint32_t mag = magnitude(x[t.first + k]);

		m.largest = ::max(m.largest, mag);
		m.least = ::min(m.least, mag - 1);
	}
	m = join_magnitudes(m, t.nthreads);
	if constexpr (codec::has_rms) {
		const float absmax = tsr_f32_from_bits(m.largest);
		uint32_t sum = 0;

		for (uint32_t k = t.thread; k < t.count; k += t.nthreads)
			sum += tsr_square_share(x[t.first + k], absmax);
		sum = __reduce_add_sync(TSR_WHOLE_WARP, sum);
		m.largest = tsr_bits_from_f32(tsr_root_mean_square(absmax, sum, t.count));
	}
	return m;
}

/* The codes of a group, by shares: a thread that has no element left has a word nevertheless. */
template <class codec>
static __device__ __forceinline__ void put_packed(const struct coded_planes &planes,
						  const typename codec::coder &coder,
						  const float *x, struct team t)
{
	for (uint32_t k = 0; k < t.count; k += SHARE) {
		const uint64_t share = t.first + k;
		typename codec::code_type code = 0;
		uint32_t word;

		if (k + t.thread < t.count)
			codec::template encode<1>(planes, coder, &x[share + t.thread], &code);
		word = pack_word<codec::packed_bits>(codec::bits_of(code), t.thread);
		if (t.thread < codec::packed_bits)
			((uint32_t *)planes
				 .plane[0])[share / SHARE * codec::packed_bits + t.thread] = word;
	}
}

/* The code of element @i. */
template <class codec>
static __device__ __forceinline__ typename codec::code_type code_at(const void *plane, uint64_t i)
{
	if constexpr (codec::packed_bits > 0)
		return codec::code_of(unpack_word<codec::packed_bits>(
			(const uint32_t *)plane + i / SHARE * codec::packed_bits, i % SHARE));
	else if constexpr (codec::has_codes)
		return ((const typename codec::code_type *)plane)[i];
	else
		return 0;
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
	struct scale_events events = { 0, 0 };
	typename codec::coder coder;

	planes.codebook = share(book);
	coder = codec::begin(planes, measure<codec>(x, t), t.group, t.count && t.thread == 0,
			     &events);
	if constexpr (codec::packed_bits > 0)
		put_packed<codec>(planes, coder, x, t);
	else
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
		const typename codec::code_type code = code_at<codec>(planes.plane[0], t.first + k);

		codec::template decode<1>(planes, stored, &code, &x[t.first + k]);
	}
}

/* A warp has a block, of which the mean is stored. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_means(const float *x, uint64_t n, uint32_t size, enum tsr_dtype narrow, float *means)
{
	const struct team b = my_block(n, size);
	const double sum = sum_of_block(b, [=](uint64_t i) { return (double)x[i]; });

	if (b.count && b.thread == 0)
		means[b.group] = narrowed(narrow, tsr_block_mean(sum, b.count));
}

/* --- Launches -------------------------------------------------------------------------------- */

static struct no_codebook book_of(const struct tsr_gpu_job *, struct no_codebook)
{
	return {};
}

static struct learned_codebook book_of(const struct tsr_gpu_job *j, struct learned_codebook book)
{
	const struct tsr_coding *c = j->coding;

	for (unsigned i = 0; i < TSR_TABLE_CODES; i++)
		book.entry[i] = j->decodes ? narrowed(c->narrow, c->codebook[i]) : c->codebook[i];
	return book;
}

/* Elements in whole groups that the kernels for the usual sizes take. */
template <class codec> static uint64_t usual_part(const struct tsr_gpu_job *j)
{
	const uint32_t group = j->coding->group;
	const bool usual = group == codec::usual || group == 2 * codec::usual;
	const bool fits = usual && !j->coding->row && tsr_is_aligned(j->x, 16) &&
			  tsr_is_aligned(j->plane[0], 16);

	return fits ? j->n - j->n % group : 0;
}

template <class codec, unsigned GROUP> static void start(const struct tsr_gpu_job *j, uint64_t n)
{
	const struct coded_planes planes = tsr_gpu_planes(j, 0);

	if (j->decodes)
		decode_groups<codec, GROUP>
			<<<tsr_blocks(n / 4, TILES), TSR_BLOCK, 0, j->stream->handle>>>(planes, n,
											j->x);
	else
		encode_groups<codec, GROUP><<<tsr_blocks(n / codec::elements(GROUP), 1), TSR_BLOCK,
					      0, j->stream->handle>>>(j->x, n, planes, j->report);
}

/* Those from @first on. */
template <class codec> static void start_any(const struct tsr_gpu_job *j, uint64_t first)
{
	const struct tsr_coding *c = j->coding;
	const struct coded_planes planes = tsr_gpu_planes(j, first);
	const struct groups groups = groups_of(c);
	const uint64_t n = j->n - first;
	const uint64_t ngroups = tsr_plane_count(c, c->codec->nplanes > 1, n);
	const unsigned blocks = tsr_blocks(ngroups << groups.log_team, 1);
	const typename codec::codebook book = book_of(j, typename codec::codebook());

	if (j->decodes)
		decode_any<codec><<<blocks, TSR_BLOCK, 0, j->stream->handle>>>(planes, n, groups,
									       book, j->x + first);
	else if constexpr (codec::has_codes)
		encode_any<codec><<<blocks, TSR_BLOCK, 0, j->stream->handle>>>(
			j->x + first, n, groups, planes, book, j->report);
	else
		encode_means<<<warps_for(n, c->group), TSR_BLOCK, 0, j->stream->handle>>>(
			j->x, n, c->group, c->narrow, (float *)j->plane[0]);
}

template <class codec> static void run(const struct tsr_gpu_job *j)
{
	const uint64_t part = usual_part<codec>(j);

	if constexpr (codec::usual > 0) {
		if (part)
			(j->coding->group == codec::usual
				 ? start<codec, codec::usual>
				 : start<codec, 2 * codec::usual>)(j, part);
	}
	if (part < j->n)
		start_any<codec>(j, part);
}

/* With rules for momenta and for variances. */
template <class format> static void run_tabled(const struct tsr_gpu_job *j)
{
	(j->coding->kind == TSR_KIND_VARIANCE ? run<tabled<format, true>>
					      : run<tabled<format, false>>)(j);
}

template <class format> static void run_expanded(const struct tsr_gpu_job *j)
{
	run<expanded<format>>(j);
}

/* --- Codecs ---------------------------------------------------------------------------------- */

#define X(id, each, loops, group, code, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run<loops<group_##group, code>>, \
							  TSR_TABLES_COUNT };
TSR_GROUPED_LIST(X)
TSR_PACKED_GROUP_LIST(X)
#undef X
#define X(id, each, loops, set, bits, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run<loops<bits>>, TSR_TABLES_##set };
TSR_PACKED_LOG_LIST(X)
#undef X
#define X(id, each, loops, format, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run_##loops<format_##id>, \
							  tsr_##format##_rule(false).set };
TSR_TABLED_LIST(X)
#undef X

const struct tsr_gpu_codec tsr_gpu_codec_log8 = { run<logarithmic<8>>, TSR_TABLES_LOG8 };
const struct tsr_gpu_codec tsr_gpu_codec_gefen8 = { run<gefen_codes>, TSR_TABLES_COUNT };
const struct tsr_gpu_codec tsr_gpu_codec_blockmean = { run<block_means>, TSR_TABLES_COUNT };
