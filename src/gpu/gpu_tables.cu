/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of codecs whose codes are tables.  The tables are those of the CPU, copied: so are the bits.
 * A warp has a group, so that it needs one row, which its threads then find in the nearest cache.
 */
#include <stdlib.h>

#include "gpu/gpu_tables.cuh"
#include "gpu/vector.cuh"

#define WARP 32u

/* --- Groups ------------------------------------------------------------------------------------ */

/*
 * tsr_table_expand() by two questions of the whole warp: of the 32 bounds of every 8th row, and of the 8
 * from the one found on.
 */
static __device__ __forceinline__ uint32_t find_expand(const float *bound, float absmax,
						       float least)
{
	const float ratio = absmax / least;
	const uint32_t lane = threadIdx.x % WARP;
	const uint32_t coarse = __popc(__ballot_sync(TSR_WHOLE_WARP, bound[8 * lane] >= ratio));
	const uint32_t from = coarse ? 8 * (coarse - 1) : 0;
	const uint32_t fine = __popc(
		__ballot_sync(TSR_WHOLE_WARP, lane < 8 && bound[from + lane % 8] >= ratio));
	const uint32_t row = from + (fine ? fine - 1 : 0);

	return absmax > 0.0f ? (row ? row : 1) : absmax != absmax;
}

/* The scale and, where it has one, the row of group @g, stored by the first thread. */
static __device__ __forceinline__ struct coded_group begin_group(struct tsr_table_rule rule,
								 struct tsr_gpu_tables tables,
								 uint32_t max, uint32_t least,
								 uint64_t g, float *scales,
								 uint8_t *expand)
{
	const float absmax = tsr_f32_from_bits(__reduce_max_sync(TSR_WHOLE_WARP, max));
	uint32_t row = rule.row;
	const float scale = tsr_table_scale(rule, absmax);

	if (rule.expanded)
		row = find_expand(tables.bound, absmax,
				  tsr_f32_from_bits(__reduce_min_sync(TSR_WHOLE_WARP, least)));
	if (threadIdx.x % WARP == 0) {
		scales[g] = scale;
		if (rule.expanded)
			expand[g] = (uint8_t)row;
	}
	return coded_group_of(rule, tables, row, scale);
}

/* --- Whole groups of 32 N aligned elements ----------------------------------------------------- */

/* Vectors of 4 elements, of which a thread has every 32nd of its group. */
template <class codec, int N>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_groups(const float *x, uint64_t ngroups, uint8_t *codes, float *scales,
		      uint8_t *expand, struct tsr_gpu_tables tables)
{
	const uint64_t g = tsr_first_vector(1) / WARP;
	const uint64_t first = (g * N / 4) * WARP + threadIdx.x % WARP;
	struct tsr_vec<float, 4> in[N / 4];
	uint32_t max = 0, least = INT32_MAX;
	struct coded_group group;

	if (g >= ngroups)
		return;
#pragma unroll
	for (int u = 0; u < N / 4; u++)
		in[u] = tsr_load<float, 4>(x, first + u * WARP);
#pragma unroll
	for (int k = 0; k < N; k++) {
		const uint32_t mag = magnitude(in[k / 4].v[k % 4]);

		max = ::max(max, mag);
		least = ::min(least, unless_zero(mag));
	}
	group = begin_group(codec::rule(), tables, max, least, g, scales, expand);
#pragma unroll
	for (int u = 0; u < N / 4; u++) {
		struct tsr_vec<uint8_t, 4> out;

#pragma unroll
		for (int k = 0; k < 4; k++)
			out.v[k] = encode_one(codec::rule(), &group, in[u].v[k]);
		tsr_store(codes, first + u * WARP, out);
	}
}

template <class codec, int N>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_groups(const uint8_t *codes, const float *scales, const uint8_t *expand,
		      uint64_t ngroups, struct tsr_gpu_tables tables, float *x)
{
	const uint64_t g = tsr_first_vector(1) / WARP;
	const uint64_t first = (g * N / 4) * WARP + threadIdx.x % WARP;
	struct tsr_vec<uint8_t, 4> in[N / 4];
	const struct tsr_table_row *row;
	float scale;

	if (g >= ngroups)
		return;
#pragma unroll
	for (int u = 0; u < N / 4; u++)
		in[u] = tsr_load<uint8_t, 4>(codes, first + u * WARP);
	scale = scales[g];
	row = &tables.row[codec::rule().expanded ? expand[g] : codec::rule().row];
#pragma unroll
	for (int u = 0; u < N / 4; u++) {
		struct tsr_vec<float, 4> out;

#pragma unroll
		for (int k = 0; k < 4; k++)
			out.v[k] = decode_one(codec::rule(), row, scale, in[u].v[k]);
		tsr_store(x, first + u * WARP, out);
	}
}

/* --- Any groups: a warp each, of which the last one is short ----------------------------------- */

template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_any(const float *x, uint64_t n, uint32_t size, uint8_t *codes, float *scales,
		   uint8_t *expand, struct tsr_gpu_tables tables)
{
	const uint64_t g = tsr_first_vector(1) / WARP, first = g * size;
	const uint64_t end = n - first < size ? n : first + size;
	uint32_t max = 0, least = INT32_MAX;
	struct coded_group group;

	if (first >= n)
		return;
	for (uint64_t i = first + threadIdx.x % WARP; i < end; i += WARP) {
		const uint32_t mag = magnitude(x[i]);

		max = ::max(max, mag);
		least = ::min(least, unless_zero(mag));
	}
	group = begin_group(codec::rule(), tables, max, least, g, scales, expand);
	for (uint64_t i = first + threadIdx.x % WARP; i < end; i += WARP)
		codes[i] = encode_one(codec::rule(), &group, x[i]);
}

template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_any(const uint8_t *codes, const float *scales, const uint8_t *expand, uint64_t n,
		   uint32_t size, struct tsr_gpu_tables tables, float *x)
{
	const uint64_t g = tsr_first_vector(1) / WARP, first = g * size;
	const uint64_t end = n - first < size ? n : first + size;
	const struct tsr_table_row *row;
	float scale;

	if (first >= n)
		return;
	scale = scales[g];
	row = &tables.row[codec::rule().expanded ? expand[g] : codec::rule().row];
	for (uint64_t i = first + threadIdx.x % WARP; i < end; i += WARP)
		x[i] = decode_one(codec::rule(), row, scale, codes[i]);
}

/* --- Launches ---------------------------------------------------------------------------------- */

/* How many elements a thread has of groups of this size; 0 if only the kernels for any groups fit. */
static unsigned elements_of(const struct tsr_coding *coding, const void *x, const void *codes)
{
	const unsigned each = coding->group == 128 ? 4 : coding->group == 256 ? 8 : 0;

	return tsr_is_aligned(x, 16) && tsr_is_aligned(codes, 4) ? each : 0;
}

static unsigned warp_blocks(uint64_t ngroups)
{
	return tsr_blocks(ngroups * WARP, 1);
}

template <class codec>
static void run_encode_as(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			  const float *x, uint64_t n, void *const plane[])
{
	const struct tsr_gpu_tables tables = stream->gpu->tables[codec::rule().set];
	const unsigned each = elements_of(coding, x, plane[0]);
	const uint64_t whole = each ? n / coding->group : 0, part = whole * coding->group;
	uint8_t *codes = (uint8_t *)plane[0], *expand = NULL;
	float *scales = (float *)plane[1];

	if (codec::rule().expanded)
		expand = (uint8_t *)plane[2];
	if (whole && each == 4)
		encode_groups<codec, 4><<<warp_blocks(whole), TSR_BLOCK, 0, stream->handle>>>(
			x, whole, codes, scales, expand, tables);
	else if (whole)
		encode_groups<codec, 8><<<warp_blocks(whole), TSR_BLOCK, 0, stream->handle>>>(
			x, whole, codes, scales, expand, tables);
	if (part < n)
		encode_any<codec><<<warp_blocks(tsr_plane_count(coding, 1, n - part)), TSR_BLOCK, 0,
				    stream->handle>>>(x + part, n - part, coding->group,
						      codes + part, scales + whole,
						      expand + (expand ? whole : 0), tables);
}

template <class codec>
static void run_decode_as(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			  const void *const plane[], uint64_t n, float *x)
{
	const struct tsr_gpu_tables tables = stream->gpu->tables[codec::rule().set];
	const unsigned each = elements_of(coding, x, plane[0]);
	const uint64_t whole = each ? n / coding->group : 0, part = whole * coding->group;
	const uint8_t *codes = (const uint8_t *)plane[0], *expand = NULL;
	const float *scales = (const float *)plane[1];

	if (codec::rule().expanded)
		expand = (const uint8_t *)plane[2];
	if (whole && each == 4)
		decode_groups<codec, 4><<<warp_blocks(whole), TSR_BLOCK, 0, stream->handle>>>(
			codes, scales, expand, whole, tables, x);
	else if (whole)
		decode_groups<codec, 8><<<warp_blocks(whole), TSR_BLOCK, 0, stream->handle>>>(
			codes, scales, expand, whole, tables, x);
	if (part < n)
		decode_any<codec><<<warp_blocks(tsr_plane_count(coding, 1, n - part)), TSR_BLOCK, 0,
				    stream->handle>>>(codes + part, scales + whole,
						      expand + (expand ? whole : 0), n - part,
						      coding->group, tables, x + part);
}

/* The rules of a codec, for momenta and for variances. */
template <class codec>
static void run_encode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const float *x, uint64_t n, void *const plane[],
		       struct tsr_encode_report *report)
{
	(void)report;
	if (coding->kind == TSR_KIND_VARIANCE)
		run_encode_as<typename codec::variance>(stream, coding, x, n, plane);
	else
		run_encode_as<typename codec::other>(stream, coding, x, n, plane);
}

template <class codec>
static void run_decode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const void *const plane[], uint64_t n, float *x)
{
	if (coding->kind == TSR_KIND_VARIANCE)
		run_decode_as<typename codec::variance>(stream, coding, plane, n, x);
	else
		run_decode_as<typename codec::other>(stream, coding, plane, n, x);
}

/* --- Tables in device memory ------------------------------------------------------------------- */

/* One array of the tables. */
static cudaError_t upload(const void *from, size_t nbytes, const void **to)
{
	void *memory = NULL;
	cudaError_t e = cudaMalloc(&memory, nbytes);

	if (e == cudaSuccess)
		e = cudaMemcpy(memory, from, nbytes, cudaMemcpyHostToDevice);
	if (e != cudaSuccess) {
		cudaFree(memory);
		return e;
	}
	*to = memory;
	return e;
}

static void free_tables(struct tsr_gpu_tables *t)
{
	cudaFree((void *)t->row);
	cudaFree((void *)t->value);
	cudaFree((void *)t->entry);
	cudaFree((void *)t->bound);
	*t = (struct tsr_gpu_tables){ NULL, NULL, NULL, NULL };
}

/* What bytes of row @row decode to with a scale of 1. */
static void fill_values(enum tsr_table_set set, const struct tsr_tables *from, uint32_t row,
			float *value)
{
	const enum tsr_table_layout layout = set == TSR_TABLES_LOG	 ? TSR_TABLE_UNSIGNED
					     : set != TSR_TABLES_DYNAMIC ? TSR_TABLE_SIGNED
					     : row			 ? TSR_TABLE_UNSIGNED
									 : TSR_TABLE_CENTRED;

	for (uint32_t byte = 0; byte < TSR_TABLE_CODES; byte++)
		value[byte] = tsr_table_value(from->row[row].value[tsr_table_index(layout, byte)],
					      tsr_table_sign(layout, byte), 1.0f);
}

static cudaError_t upload_values(enum tsr_table_set set, const struct tsr_tables *from,
				 const float **to)
{
	const size_t nbytes = (size_t)from->nrows * TSR_TABLE_CODES * sizeof(float);
	float *values = (float *)malloc(nbytes);
	cudaError_t e;

	if (!values)
		return cudaErrorMemoryAllocation;
	for (uint32_t row = 0; row < from->nrows; row++)
		fill_values(set, from, row, values + (size_t)row * TSR_TABLE_CODES);
	e = upload(values, nbytes, (const void **)to);
	free(values);
	return e;
}

static enum tsr_status put_tables(struct tsr_gpu *gpu, enum tsr_table_set set, struct tsr_err *err)
{
	const struct tsr_tables *from = tsr_tables_get(set);
	struct tsr_gpu_tables t = { NULL, NULL, NULL, NULL };
	cudaError_t e = upload(from->entry, from->nentries * sizeof(*from->entry),
			       (const void **)&t.entry);

	if (e == cudaSuccess && from->bound)
		e = upload(from->bound, TSR_TABLE_ROWS * sizeof(*from->bound),
			   (const void **)&t.bound);
	if (e == cudaSuccess)
		e = upload_values(set, from, &t.value);
	if (e == cudaSuccess)
		e = upload(from->row, from->nrows * sizeof(*from->row), (const void **)&t.row);
	if (e != cudaSuccess) {
		free_tables(&t);
		return tsr_gpu_fail(err, gpu->index, e, "cannot copy tables of codes");
	}
	gpu->tables[set] = t;
	return TSR_OK;
}

enum tsr_status tsr_gpu_prepare_tables(struct tsr_gpu *gpu, enum tsr_table_set set,
				       struct tsr_err *err)
{
	enum tsr_status status = TSR_OK;

	pthread_mutex_lock(&gpu->lock);
	if (!gpu->tables[set].row)
		status = put_tables(gpu, set, err);
	pthread_mutex_unlock(&gpu->lock);
	return status;
}

void tsr_gpu_free_tables(struct tsr_gpu *gpu)
{
	cudaSetDevice((int)gpu->index);
	for (unsigned set = 0; set < TSR_TABLES_COUNT; set++)
		free_tables(&gpu->tables[set]);
}

#define X(id, each, loops, format, code, ...) \
	struct momentum_##id { \
		static __host__ __device__ __forceinline__ struct tsr_table_rule rule(void) \
		{ \
			return tsr_##format##_rule(false); \
		} \
	}; \
	struct variance_##id { \
		static __host__ __device__ __forceinline__ struct tsr_table_rule rule(void) \
		{ \
			return tsr_##format##_rule(true); \
		} \
	}; \
	struct tabled_##id { \
		typedef momentum_##id other; \
		typedef variance_##id variance; \
	}; \
	static enum tsr_status prepare_##id(struct tsr_gpu *gpu, struct tsr_err *err) \
	{ \
		return tsr_gpu_prepare_tables(gpu, tsr_##format##_rule(false).set, err); \
	} \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run_encode<tabled_##id>, \
							  run_decode<tabled_##id>, prepare_##id };
TSR_TABLED_LIST(X)
