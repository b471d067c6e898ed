/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps on GPUs: gpu_step.cu does any step in three passes, step_fused.cu those of a few states in one.
 * This header is what they share, and how fused kernels load and store weights, states and gradients.
 * In kernels, a tile is N consecutive elements, those of one thread.
 */
#ifndef TSR_GPU_STEP_CUH
#define TSR_GPU_STEP_CUH

#include <stddef.h>

#include "gpu/cuda.h"
#include "gpu/gpu_groups.cuh"
#include "gpu/gpu_split.cuh"

extern "C" {
#include "step/step.h"
}

/* --- The rules --------------------------------------------------------------------------------- */

enum step_rule {
	RULE_PLAIN_SGD,
	RULE_SGD,
	RULE_LION,
	RULE_FLASH_LION,
	RULE_ADAM,
	RULE_ADAMW,
	RULE_FLASH_ADAM,
	/* Only in the kernels of step_near.cu: */
	RULE_COAT_ADAMW,
	RULE_BITSANDBYTES_ADAM,
};

/* How many kinds of state besides the weight it has. */
static inline unsigned step_states(enum step_rule rule)
{
	return rule == RULE_PLAIN_SGD ? 0 : rule < RULE_ADAM ? 1 : 2;
}

/* Whether one kernel takes all parts together. */
bool tsr_gpu_step_has_kernel(const struct tsr_step *step);

/*
 * Start the step of as many elements from the first on as one kernel takes: none if there is no
 * kernel or an array is not aligned, else all whole groups.  Stores how many.
 */
enum tsr_status tsr_gpu_step_fused(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				   enum step_rule rule, const void *grad, uint64_t n,
				   struct tsr_step_report *report, uint64_t *done_ret,
				   struct tsr_err *err);

/*
 * Where momenta are stored as ratios to their variances: turn the momenta of an array into ratios, or
 * without @make back.  The device is current.
 */
enum tsr_status tsr_gpu_turn_ratios(struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
				    float *m, const float *variance, uint64_t n, bool make,
				    struct tsr_err *err);

/*
 * The two parts of a step that stores its moments first, on arrays of whole blocks:
 * tsr_step_block_moments(), then tsr_step_weights() or of a matrix tsr_step_matrix().  @grad begins with
 * them; the device is current.
 */
enum tsr_status tsr_gpu_block_moments(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				      const void *grad, uint64_t n, float *m, float *v,
				      struct tsr_step_report *report, struct tsr_err *err);
enum tsr_status tsr_gpu_step_weights(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				     const void *grad, const float *m, const float *v, uint64_t n,
				     float *w, struct tsr_err *err);
enum tsr_status tsr_gpu_step_matrix(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				    const void *grad, const float *m, float *w,
				    struct tsr_err *err);

/* --- What a kernel is told --------------------------------------------------------------------- */

struct step_part {
	void *plane[TSR_PLANES_MAX];
	enum tsr_scale scale;
};

/*
 * What is the same for all elements: the compiler keeps it in constant memory, and conditions on it
 * are branches that no thread of a warp takes alone.
 */
struct step_args {
	struct tsr_step_scalars scalars;
	enum step_rule rule;
	unsigned weight; /* row of the codec */
	enum tsr_dtype grad_dtype;
	bool ordinary; /* scalars_are_ordinary(): Adam's update needs no slow paths */
	bool flash; /* scalars_are_flash() */
	struct tsr_masks masks;
	const void *grad;
	struct step_part part[TSR_PARTS];
	uint64_t ntiles; /* whole groups */
	struct tsr_step_report *report; /* or NULL */
};

/* Of these, the states that step_near.cu has kernels for.  @a lacks its tiles. */
bool tsr_gpu_step_has_pair(const struct tsr_step *step);
enum tsr_status tsr_gpu_step_pair(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				  const struct step_args *a, uint64_t n, uint64_t *done_ret,
				  struct tsr_err *err);

/* The same of states in Gefen's blocks, for gefen_fused.cu; @aligned: all arrays but those per block. */
bool tsr_gpu_step_has_blocks(const struct tsr_step *step);
enum tsr_status tsr_gpu_step_blocks(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				    const struct step_args *a, bool aligned, uint64_t n,
				    uint64_t *done_ret, struct tsr_err *err);

/* --- Arrays ------------------------------------------------------------------------------------ */

/* Elements of an access: 16 bytes of them, or the whole tile. */
template <typename T, int N> static __host__ __device__ constexpr int access_width(void)
{
	return 16 / (int)sizeof(T) < N ? 16 / (int)sizeof(T) : N;
}

template <typename T, int N>
static __device__ __forceinline__ void load_tile(const void *array, uint64_t tile, T *x)
{
	const int width = access_width<T, N>(), naccesses = N / width;

#pragma unroll
	for (int i = 0; i < naccesses; i++)
		*(struct tsr_vec<T, width> *)&x[i * width] = tsr_load<T, width>(
			(const T *)array, tile * naccesses + i);
}

template <typename T, int N>
static __device__ __forceinline__ void store_tile(void *array, uint64_t tile, const T *x)
{
	const int width = access_width<T, N>(), naccesses = N / width;

#pragma unroll
	for (int i = 0; i < naccesses; i++)
		tsr_store<T, width>((T *)array, tile * naccesses + i,
				    *(const struct tsr_vec<T, width> *)&x[i * width]);
}

/* --- Split codecs ------------------------------------------------------------------------------ */

template <class codec, int N>
static __device__ __forceinline__ void load_split(const struct step_part *p, uint64_t tile,
						  float *w)
{
	typename codec::first a[N];
	typename codec::second b[N];

	load_tile<typename codec::first, N>(p->plane[0], tile, a);
	if constexpr (codec::nplanes == 2)
		load_tile<typename codec::second, N>(p->plane[1], tile, b);
	codec::template decode<N>(a, b, w);
}

template <class codec, int N>
static __device__ __forceinline__ unsigned store_split(const struct step_part *p, uint64_t tile,
						       const float *w)
{
	typename codec::first a[N];
	typename codec::second b[N];
	const unsigned overflow = codec::template encode<N>(w, a, b);

	store_tile<typename codec::first, N>(p->plane[0], tile, a);
	if constexpr (codec::nplanes == 2)
		store_tile<typename codec::second, N>(p->plane[1], tile, b);
	return overflow;
}

/* --- Weights ----------------------------------------------------------------------------------- */

template <int N>
static __device__ __forceinline__ void load_weights(const struct step_args *a, uint64_t tile,
						    float *w)
{
	const struct step_part *p = &a->part[TSR_PART_WEIGHT];

	switch (a->weight) {
#define X(id, each, loops, format, code, ...) \
	case TSR_ROW_##id: \
		load_split<loops<format, code>, N>(p, tile, w); \
		break;
		TSR_SPLIT_LIST(X)
#undef X
	default:
		load_tile<float, N>(p->plane[0], tile, w);
	}
}

/* Returns how many narrow weights overflowed. */
template <int N>
static __device__ __forceinline__ unsigned store_weights(const struct step_args *a, uint64_t tile,
							 const float *w)
{
	const struct step_part *p = &a->part[TSR_PART_WEIGHT];

	switch (a->weight) {
#define X(id, each, loops, format, code, ...) \
	case TSR_ROW_##id: \
		return store_split<loops<format, code>, N>(p, tile, w);
		TSR_SPLIT_LIST(X)
#undef X
	default:
		store_tile<float, N>(p->plane[0], tile, w);
		return 0;
	}
}

/* --- States ------------------------------------------------------------------------------------ */

/*
 * store() is called by all threads of a warp, as those of a group talk to each other, and stores if
 * @inside.  With takes_roots it can be given the roots of ordinary elements instead of these.  A tile
 * is 16 bytes of the first plane.
 */
template <class split> struct split_state {
	static const bool takes_roots = false;
	static const int tile = 16 / sizeof(typename split::first);

	template <int N>
	static __device__ __forceinline__ void load(const struct step_part *p, uint64_t tile,
						    float *x)
	{
		load_split<split, N>(p, tile, x);
	}
	template <int N>
	static __device__ __forceinline__ void store(const struct step_part *p, uint64_t tile,
						     bool inside, const float *x, bool roots,
						     struct tsr_encode_report *report)
	{
		(void)roots;
		(void)report;
		if (inside)
			store_split<split, N>(p, tile, x);
	}
};

template <class group> struct grouped_state {
	typedef group codec;
	typedef typename codec::code_type code_type;
	static const bool takes_roots = codec::takes_roots;
	static const int tile = 16 / sizeof(code_type);

	template <int N>
	static __device__ __forceinline__ struct tsr_vec<code_type, N> encode_state(
		const float *x, uint64_t tile, bool inside, bool roots, struct scale_plane scales,
		struct scale_events *events) {
		if constexpr (takes_roots) {
			if (roots)
				return encode_roots<codec, N>(x, tile, inside, scales, events);
		}
		return encode_tile<codec, N>(x, tile, inside, scales, events);
	}

	template <int N>
	static __device__ __forceinline__ void load(const struct step_part *p, uint64_t tile,
						    float *x)
	{
		const float scale = scale_value(
			load_scale(p->plane[1], p->scale, tile / tsr_team(N)), p->scale);
		code_type code[N];

		load_tile<code_type, N>(p->plane[0], tile, code);
#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] = codec::value((float)(int32_t)code[k], scale);
		if ((tsr_bits_from_f32(scale) & TSR_F32_INF) == TSR_F32_INF) {
#pragma unroll
			for (int k = 0; k < N; k++)
				x[k] = with_cpu_nan(x[k], scale);
		}
	}
	template <int N>
	static __device__ __forceinline__ void store(const struct step_part *p, uint64_t tile,
						     bool inside, const float *x, bool roots,
						     struct tsr_encode_report *report)
	{
		struct scale_events events = { 0, 0 };
		const struct scale_plane scales = { p->plane[1], p->scale };
		const struct tsr_vec<code_type, N> code = encode_state<N>(x, tile, inside, roots,
									  scales, &events);

		if (inside)
			tsr_store((code_type *)p->plane[0], tile, code);
		if (p->scale == TSR_SCALE_F16 && report) {
			tsr_add_count(&report->scale_underflow, events.underflow);
			tsr_add_count(&report->scale_overflow, events.overflow);
		}
	}
};

/* For parts that a rule does not have. */
struct no_state {
	typedef no_state codec;
	static const bool takes_roots = false;

	template <int N>
	static __device__ __forceinline__ void load(const struct step_part *, uint64_t, float *)
	{
	}
	template <int N>
	static __device__ __forceinline__ void store(const struct step_part *, uint64_t, bool,
						     const float *, bool,
						     struct tsr_encode_report *)
	{
	}
};

/* state_<id>, of every codec that a part can have. */
#define SPLIT(id, each, loops, format, code, ...) \
	typedef split_state<loops<format, code>> state_##id;
#define GROUPED(id, each, loops, group, code, ...) \
	typedef grouped_state<loops<group_##group, code>> state_##id;
TSR_SPLIT_LIST(SPLIT)
TSR_GROUPED_LIST(GROUPED)
TSR_PLAIN_LIST(SPLIT)
#undef SPLIT
#undef GROUPED

/* --- Gradients --------------------------------------------------------------------------------- */

static __device__ __forceinline__ float gradient_at(const void *grad, enum tsr_dtype dtype,
						    uint64_t i)
{
	if (dtype == TSR_F32)
		return ((const float *)grad)[i];
	return dtype == TSR_BF16 ? tsr_f32_from_bf16(((const uint16_t *)grad)[i])
				 : tsr_f32_from_f16(((const uint16_t *)grad)[i]);
}

static __device__ __forceinline__ bool is_nonfinite(float x)
{
	return (tsr_bits_from_f32(x) & TSR_F32_INF) == TSR_F32_INF;
}

template <int N>
static __device__ __forceinline__ void load_gradients(const struct step_args *a, uint64_t tile,
						      float *g)
{
	uint16_t narrow[N];

	if (a->grad_dtype == TSR_F32) {
		load_tile<float, N>(a->grad, tile, g);
		return;
	}
	load_tile<uint16_t, N>(a->grad, tile, narrow);
	if (a->grad_dtype == TSR_BF16)
		bf16::widen<N>(narrow, g);
	else
		f16::widen<N>(narrow, g);
}

/* How many are not finite: 0 times x is 0 only if x is finite. */
template <int N> static __device__ __forceinline__ unsigned count_nonfinite(const float *g)
{
	float zero = 0.0f;
	unsigned nonfinite = 0;

#pragma unroll
	for (int k = 0; k < N; k++)
		zero = tsr_fma_any(g[k], 0.0f, zero);
	if (zero == 0.0f)
		return 0;
	for (int k = 0; k < N; k++)
		nonfinite += is_nonfinite(g[k]);
	return nonfinite;
}

#endif
