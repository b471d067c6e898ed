/* SPDX-License-Identifier: Apache-2.0 */
/* Steps in one pass of states with larger groups than 32: the kernels of step_near.cuh. */
#include "gpu/step/near_coded.cuh"
#include "gpu/step/near_tight.cuh"

#include <math.h>

/*
 * One block on a multiprocessor, as its table takes much of the shared memory; its warps go through the
 * tiles on their own.  A pair has as many threads as its registers allow without spills.  Of larger tiles
 * the code is too long for the cache of instructions, for which warps then wait most of all.
 */
#define NEAR_TILE 8

/* Chunks of 32 tiles that a warp takes together. */
#define NEAR_RUN 8u

/* Tiles have numbers of 32 bits, also those that blocks look for behind the last one. */
#define NEAR_MOST (UINT64_C(1) << 34)

typedef void pair_kernel(const struct pair_args args);

/* Number of the run that a warp takes next: some takes long, so that none can be given out before. */
static __device__ __forceinline__ unsigned take_next(unsigned *taken)
{
	unsigned next = 0;

	if (threadIdx.x % 32 == 0)
		next = atomicAdd(taken, 1u);
	return __shfl_sync(TSR_WHOLE_WARP, next, 0);
}

template <bool USUAL, class pair>
static __global__ void __launch_bounds__(pair::block, 1)
	step_near(const __grid_constant__ pair_args args)
{
	const uint32_t ntiles = (uint32_t)args.step.ntiles, nchunks = (ntiles + 31) / 32;
	__shared__ unsigned taken;
	TSR_SHARED(float4, table);

	pair::fill(&args, (float *)table);
	if (threadIdx.x == 0)
		taken = 0;
	__syncthreads();
	for (uint32_t chunk = 0, left = 0;; chunk++, left--) {
		if (left == 0) {
			left = args.run;
			chunk = (take_next(&taken) * gridDim.x + blockIdx.x) * left;
		}
		const uint32_t tile = chunk * 32 + threadIdx.x % 32;
		const bool inside = tile < ntiles;

		if (chunk >= nchunks)
			return;
		if (!args.step.flash ||
		    !near_step<USUAL, pair, NEAR_TILE>(&args, (const float *)table, tile, inside))
			pair_step<typename pair::exact, NEAR_TILE>(&args, tile, inside);
	}
}

struct pair {
	unsigned momentum, variance; /* rows */
	uint32_t group, block, table_nbytes;
	bool (*fits)(const struct pair_args *p); /* whether its fast path takes such scalars */
	pair_kernel *run[2]; /* the second one for gradients in BF16 */
};

#define PAIR(m, v, ...) \
	{ \
		TSR_ROW_##m, TSR_ROW_##v, __VA_ARGS__::group, __VA_ARGS__::block, \
			__VA_ARGS__::table_nbytes, __VA_ARGS__::scalars_fit, \
		{ \
			step_near<false, __VA_ARGS__>, step_near<true, __VA_ARGS__> \
		} \
	}

static const struct pair pairs[] = {
	PAIR(ratio8, log8, near_tight),
	PAIR(e4m3x, e4m3x, near_coded<coat_coder>),
	PAIR(dyn8, dyn8, near_coded<dynamic_coder>),
};

static bool takes(const struct pair *pair, const struct tsr_step *step)
{
	const struct tsr_coding *m = &step->coding[TSR_PART_MOMENTUM];
	const struct tsr_coding *v = &step->coding[TSR_PART_VARIANCE];

	return step->coding[TSR_PART_WEIGHT].codec->row == TSR_ROW_bf16_ulp8 && m->codec &&
	       v->codec && m->codec->row == pair->momentum && v->codec->row == pair->variance &&
	       m->kind != TSR_KIND_VARIANCE && v->kind == TSR_KIND_VARIANCE &&
	       m->group == pair->group && v->group == pair->group && !m->row && !v->row;
}

static const struct pair *pair_of(const struct tsr_step *step)
{
	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		if (takes(&pairs[i], step))
			return &pairs[i];
	}
	return NULL;
}

bool tsr_gpu_step_has_pair(const struct tsr_step *step)
{
	return pair_of(step) != NULL;
}

/* The tables of a codec, in device memory; none for one that needs none. */
static enum tsr_status tables_of(struct tsr_gpu *gpu, const struct tsr_coding *coding,
				 struct tsr_gpu_tables *tables_ret, struct tsr_err *err)
{
	enum tsr_table_set set;

	switch (coding->codec->row) {
	case TSR_ROW_log8:
		set = TSR_TABLES_LOG;
		break;
	case TSR_ROW_e4m3x:
		set = TSR_TABLES_E4M3X;
		break;
	case TSR_ROW_dyn8:
		set = TSR_TABLES_DYNAMIC;
		break;
	default:
		return TSR_OK;
	}
	TSR_TRY(tsr_gpu_prepare_tables(gpu, set, err));
	*tables_ret = gpu->tables[set];
	return TSR_OK;
}

/* A range reaches down to a power of two: 254 codes further. */
static void put_slopes(struct pair_args *p)
{
	const float *reach = tsr_tables_get(TSR_TABLES_LOG)->bound;

	p->reach = reach[TSR_LOG_RANGES - 1];
	for (unsigned i = 0; i < TSR_LOG_RANGES; i++)
		p->slope[i] = (float)(-254.0 / log2((double)reach[i]));
}

static void put_rows(struct pair_args *p)
{
	const struct tsr_tables *tables = tsr_tables_get(TSR_TABLES_DYNAMIC);

	p->nentries = tables->nentries;
	for (unsigned i = 0; i < 2; i++) {
		const struct tsr_table_row *row = &tables->row[i];

		p->row[i] = { row->value[1], row->highest, row->shift, (1u << row->shift) - 1,
			      (int)(row->bucket - row->first) };
	}
}

enum tsr_status tsr_gpu_step_pair(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				  const struct step_args *a, uint64_t n, uint64_t *done_ret,
				  struct tsr_err *err)
{
	const struct pair *pair = pair_of(step);
	struct tsr_gpu *gpu = stream->gpu;
	struct pair_args p = {};
	pair_kernel *run;
	uint64_t nblocks;

	n = n < NEAR_MOST ? n : NEAR_MOST;
	*done_ret = n - n % pair->group;
	if (!*done_ret)
		return TSR_OK;
	p.step = *a;
	p.step.ntiles = *done_ret / NEAR_TILE;
	p.eps = step->coding[TSR_PART_MOMENTUM].eps;
	p.step.flash &= pair->fits(&p);
	TSR_TRY(tables_of(gpu, &step->coding[TSR_PART_MOMENTUM], &p.momentum, err));
	TSR_TRY(tables_of(gpu, &step->coding[TSR_PART_VARIANCE], &p.variance, err));
	put_slopes(&p);
	put_rows(&p);
	run = pair->run[a->grad_dtype == TSR_BF16];
	TSR_CUDA_TRY(gpu->index, err,
		     cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize,
					  (int)pair->table_nbytes),
		     "no shared memory for tables of codes");
	nblocks = (p.step.ntiles + pair->block - 1) / pair->block;
	nblocks = nblocks < gpu->nprocessors ? nblocks : gpu->nprocessors;
	/* Enough runs that no warp is left alone at the end. */
	p.run = (uint32_t)(p.step.ntiles / 32 / nblocks / pair->block) + 1;
	p.run = p.run < NEAR_RUN ? p.run : NEAR_RUN;
	run<<<(unsigned)nblocks, pair->block, pair->table_nbytes, stream->handle>>>(p);
	return TSR_OK;
}
