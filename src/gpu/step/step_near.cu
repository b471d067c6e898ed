/* SPDX-License-Identifier: Apache-2.0 */
/* Steps in one pass of states with larger groups than 32: the kernels of step_near.cuh. */
#include "gpu/step/step_near.cuh"

#include <math.h>

#define NEAR_BLOCKS 7 /* at a time on a multiprocessor: 72 registers are left */
#define NEAR_TILE 16

typedef void pair_kernel(const struct pair_args args);

template <bool USUAL, class pair>
static __global__ void __launch_bounds__(FLASH_BLOCK, NEAR_BLOCKS)
	step_near(const __grid_constant__ pair_args args)
{
	const uint64_t tile = (uint64_t)blockIdx.x * FLASH_BLOCK + threadIdx.x;
	const bool inside = tile < args.step.ntiles;

	if (!args.step.flash || !near_step<USUAL, pair, NEAR_TILE>(&args, inside))
		pair_step<typename pair::exact, NEAR_TILE>(&args, tile, inside);
}

struct pair {
	unsigned momentum, variance; /* rows */
	uint32_t group;
	bool (*fits)(const struct pair_args *p); /* whether its fast path takes such scalars */
	pair_kernel *run[2]; /* the second one for gradients in BF16 */
};

#define PAIR(m, v, near) \
	{ \
		TSR_ROW_##m, TSR_ROW_##v, near::group, near::scalars_fit, \
		{ \
			step_near<false, near>, step_near<true, near> \
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

	for (unsigned i = 0; i < TSR_LOG_RANGES; i++)
		p->slope[i] = (float)(-254.0 / log2((double)reach[i]));
}

enum tsr_status tsr_gpu_step_pair(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				  const struct step_args *a, uint64_t n, uint64_t *done_ret,
				  struct tsr_err *err)
{
	const struct pair *pair = pair_of(step);
	struct pair_args p = {};
	unsigned nblocks;

	*done_ret = n - n % pair->group;
	if (!*done_ret)
		return TSR_OK;
	p.step = *a;
	p.step.ntiles = *done_ret / NEAR_TILE;
	p.eps = step->coding[TSR_PART_MOMENTUM].eps;
	p.step.flash &= pair->fits(&p);
	TSR_TRY(tables_of(stream->gpu, &step->coding[TSR_PART_MOMENTUM], &p.momentum, err));
	TSR_TRY(tables_of(stream->gpu, &step->coding[TSR_PART_VARIANCE], &p.variance, err));
	put_slopes(&p);
	nblocks = (unsigned)((p.step.ntiles + FLASH_BLOCK - 1) / FLASH_BLOCK);
	pair->run[a->grad_dtype == TSR_BF16]<<<nblocks, FLASH_BLOCK, 0, stream->handle>>>(p);
	return TSR_OK;
}
