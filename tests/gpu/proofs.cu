/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every shortcut of the kernels against the formula that it stands for: for all inputs where it has
 * one; quotients at all places where softsign8's code changes, else at random, next to ties too.
 */
#include <cuda_runtime.h>
#include <stdlib.h>

#include "codec/group_math.h"
#include "gpu/shortcut.cuh"

extern "C" {
#include "check_gpu.h"
#include "step/cuda_power.h"
}

#define BLOCK 256u

struct finding {
	unsigned long long count; /* of differences */
	uint32_t a, b; /* the operands of one of them */
};

static __device__ void differ(struct finding *f, uint32_t a, uint32_t b)
{
	if (atomicAdd(&f->count, 1ull) == 0) {
		f->a = a;
		f->b = b;
	}
}

static __device__ bool is_nan_bits(uint32_t bits)
{
	return (bits & TSR_F32_MAG) > TSR_F32_INF;
}

/* --- Of one operand: all 2^32 patterns -------------------------------------------------------- */

static __global__ void try_bf16_pair(struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x, other = bits * 2654435761u;
	const float x = tsr_f32_from_bits(bits), y = tsr_f32_from_bits(other);
	const uint32_t pair = tsr_bf16_pair(x, y);

	if (!is_nan_bits(bits) && (pair & 0xffff) != tsr_bf16_from_f32(x))
		differ(f, bits, pair);
	if (!is_nan_bits(other) && pair >> 16 != tsr_bf16_from_f32(y))
		differ(f, other, pair);
	/* A NaN is larger than all. */
	if (is_nan_bits(bits) &&
	    (tsr_bf16_pair_max(pair & 0x7fff7fffu, 0x3f803f80u) & 0xffff) <= 0x7f80)
		differ(f, bits, pair);
	if (is_nan_bits(other) &&
	    tsr_bf16_pair_max(0x3f803f80u, pair & 0x7fff7fffu) >> 16 <= 0x7f80)
		differ(f, other, pair);
}

static __global__ void try_f16_pair(struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x, other = bits * 2654435761u;
	const float x = tsr_f32_from_bits(bits), y = tsr_f32_from_bits(other);
	const uint32_t pair = tsr_f16_pair(x, y);

	if (!is_nan_bits(bits) && (pair & 0xffff) != tsr_f16_from_f32(x))
		differ(f, bits, pair);
	if (!is_nan_bits(other) && pair >> 16 != tsr_f16_from_f32(y))
		differ(f, other, pair);
}

/* A narrow weight stands for what the rounding formula gives; the splits use one for the other. */
static __global__ void try_rounding(struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x;
	const float x = tsr_f32_from_bits(bits);
	const float b = tsr_f32_from_bf16(tsr_bf16_from_f32(x));
	const float h = tsr_f32_from_f16(tsr_f16_from_f32(x));

	if (is_nan_bits(bits))
		return;
	if (tsr_bits_from_f32(b) != tsr_bits_from_f32(tsr_bf16_round(x)) ||
	    tsr_bits_from_f32(h) != tsr_bits_from_f32(tsr_f16_round(x)))
		differ(f, bits, 0);
}

static __global__ void try_f16_widen(struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x;
	const float formula = tsr_f32_from_f16(bits & 0xffff);

	if (bits < 0x10000 && formula == formula &&
	    tsr_bits_from_f32(formula) != tsr_bits_from_f32(tsr_f16_widen(bits)))
		differ(f, bits, tsr_bits_from_f32(tsr_f16_widen(bits)));
}

/* Finite numbers from 2^-100 on, with this GPU's estimate. */
static __global__ void try_root(struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x;
	const float x = tsr_f32_from_bits(bits);

	if (x >= 0x1p-100f && bits < TSR_F32_INF &&
	    tsr_bits_from_f32(tsr_root_ordinary(x)) != tsr_bits_from_f32(__fsqrt_rn(x)))
		differ(f, bits, tsr_bits_from_f32(tsr_root_ordinary(x)));
}

/* Numbers that are not subnormal: as near as tsr_log2_estimate() says. */
static __global__ void try_log2(struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x;
	const float x = tsr_f32_from_bits(bits), found = tsr_log2_estimate(x);
	const double exact = log2((double)x);
	const double most = 0x1p-22 * (x >= 0.5f && x <= 2.0f ? 1 : fabs(exact));

	if (x >= 0x1p-126f && bits < TSR_F32_INF && !(fabs((double)found - exact) <= most))
		differ(f, bits, tsr_bits_from_f32(found));
}

/* Of results that are not subnormal: as near as tsr_exp2_estimate() says. */
static __global__ void try_exp2(struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x;
	const float x = tsr_f32_from_bits(bits), found = tsr_exp2_estimate(x);
	const double exact = exp2((double)x);

	if (x >= -126.0f && x < 127.0f && !(fabs((double)found - exact) <= 0x1p-22 * exact))
		differ(f, bits, tsr_bits_from_f32(found));
}

/* And mantissas of two exponents, an even and an odd one, with the nearest estimate. */
static __global__ void try_root_of_nearest(struct finding *f)
{
	const uint32_t bits = 0x3f800000u + (blockIdx.x * BLOCK + threadIdx.x);
	const float x = tsr_f32_from_bits(bits);
	const float root = tsr_root_from(x, (float)(1.0 / __dsqrt_rn((double)x)));

	if (tsr_bits_from_f32(root) != tsr_bits_from_f32(__fsqrt_rn(x)))
		differ(f, bits, tsr_bits_from_f32(root));
}

/* The correction of every number whose narrow weight is neither zero, subnormal nor special. */
static __global__ void try_bf16_ulp8_correction(struct tsr_masks masks, struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x;
	const float x = tsr_f32_from_bits(bits), narrow = tsr_bf16_round(x);
	const uint32_t narrow_bits = tsr_bits_from_f32(narrow), exponent = narrow_bits >> 23 & 0xff;
	const int32_t formula = tsr_ulp_correction(tsr_split_bf16(), x, narrow, 127.0f);
	const uint32_t found = tsr_bf16_ulp8_correction(masks, x, narrow, narrow_bits | 0x5555);

	if (exponent && exponent < 255 && (int8_t)found != formula)
		differ(f, bits, found);
}

/* All such narrow weights and all corrections, also -128, which no encoder makes. */
static __global__ void try_bf16_ulp8_join(struct tsr_masks masks, struct finding *f)
{
	const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
	const uint32_t narrow = i >> 8, exponent = narrow >> 7 & 0xff;
	const int32_t code = (int8_t)i;
	const float weight = tsr_f32_from_bf16(narrow);
	const uint32_t flipped = tsr_flip_signed_codes(i << 16);
	const float joined = tsr_bf16_ulp8_join(masks, weight, narrow << 16 | 0x3333, flipped, 2);
	const float formula = tsr_ulp_join(tsr_split_bf16(), weight, code, 127.0f);

	if (exponent && exponent < 255 && tsr_bits_from_f32(joined) != tsr_bits_from_f32(formula))
		differ(f, narrow, (uint32_t)code);
}

/* Codes in each byte of a word. */
static __global__ void try_codes(struct tsr_masks masks, struct finding *f)
{
	const uint32_t code = threadIdx.x;

	for (unsigned i = 0; i < 4; i++) {
		const uint32_t word = code << 8 * i | 0x0a0b0c0du << 8 * (i + 1) % 32 >> 8 * i % 32;
		const uint32_t byte = word >> 8 * i & 0xff;
		const float q = tsr_unsigned_code(masks, word, i);

		if (q != (float)byte ||
		    tsr_signed_code(masks, tsr_flip_signed_codes(word), i) != (float)(int8_t)byte)
			differ(f, word, i);
	}
}

/* The last step of softsign8's code, of every quotient: one rounding less. */
static __global__ void try_softsign_rounding(struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x, sign = bits & TSR_F32_SIGN;
	const float half_z = tsr_f32_from_bits(bits);
	const int32_t formula = tsr_round_half_away_i32(254.0f * half_z);

	if (fabsf(half_z) <= 0.5f &&
	    (int32_t)tsr_fma(254.0f, half_z, tsr_f32_from_bits(sign | 0x3f000000u)) != formula)
		differ(f, bits, (uint32_t)formula);
}

/* With every estimate within 1 ULP. */
static __global__ void try_softsign_ratio(struct finding *f)
{
	const int code = (int)(blockIdx.x * BLOCK + threadIdx.x) - 128;
	const float q = (float)code, d = 254.0f - tsr_abs(q);
	const float formula = __fdiv_rn(q, d);
	const uint32_t reciprocal = tsr_bits_from_f32(__frcp_rn(d));

	for (uint32_t r = reciprocal - 1; r != reciprocal + 2; r++) {
		const float ratio = tsr_softsign_ratio_from(q, d, tsr_f32_from_bits(r));

		if (code <= 127 && tsr_bits_from_f32(ratio) != tsr_bits_from_f32(formula))
			differ(f, (uint32_t)code, r);
	}
	if (code <= 127 && tsr_bits_from_f32(tsr_softsign_ratio(q)) != tsr_bits_from_f32(formula))
		differ(f, (uint32_t)code, 0);
}

/* The estimate is within 1 ULP: of the quotient's neighbours, or it.  Normal 1/d only. */
static __global__ void try_reciprocal(struct finding *f)
{
	const uint32_t bits = blockIdx.x * BLOCK + threadIdx.x;
	const uint32_t exact = tsr_bits_from_f32(__frcp_rn(tsr_f32_from_bits(bits)));
	const uint32_t found = tsr_bits_from_f32(tsr_reciprocal_estimate(tsr_f32_from_bits(bits)));
	const uint32_t exponent = bits >> 23 & 0xff;

	if (exponent >= 1 && exponent <= 252 && exact - found + 1 > 2)
		differ(f, bits, found);
}

/*
 * Quotients next to the middle between two floats, where it matters, with all estimates within 1 ULP:
 * n is RN(d * (q + 1/2 ULP)) and its neighbours, d and q random; and n random.
 */
static __device__ void try_one_quotient(struct finding *f, float n, float d)
{
	const uint32_t formula = tsr_bits_from_f32(__fdiv_rn(n, d));
	const uint32_t reciprocal = tsr_bits_from_f32(__frcp_rn(d));

	for (uint32_t r = reciprocal - 1; r != reciprocal + 2; r++) {
		const float quotient = tsr_quotient_from(n, d, tsr_f32_from_bits(r));

		if (tsr_bits_from_f32(quotient) != formula)
			differ(f, tsr_bits_from_f32(n), tsr_bits_from_f32(d));
	}
}

static __global__ void try_quotients(struct finding *f)
{
	uint64_t z = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x + 1) * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	z ^= z >> 31;

	const uint32_t mantissa = (uint32_t)z & 0x7fffff;
	const float d = tsr_f32_from_bits(0x3f000000u | (mantissa < 0x7fffff ? mantissa : 0));
	const uint32_t q = 0x800000u | ((uint32_t)(z >> 32) & 0x7fffffu);
	const double middle = ((double)q + 0.5) * 0x1p-24 * (double)d;
	const uint32_t n = tsr_bits_from_f32((float)middle);

	for (uint32_t i = n - 2; i != n + 3; i++)
		try_one_quotient(f, tsr_f32_from_bits(i), d);
	try_one_quotient(f, tsr_f32_from_bits(0x33000000u + (uint32_t)(z >> 37)), d);
	try_one_quotient(f, 0.0f, d);
}

/* Of d with a significand of ones, with this GPU's estimate; every n of two exponents. */
static __global__ void try_quotients_by_ones(struct finding *f)
{
	const float n = tsr_f32_from_bits(0x3f000000u + blockIdx.x * BLOCK + threadIdx.x);

	for (uint32_t exponent = 100; exponent < 150; exponent += 7) {
		const float d = tsr_f32_from_bits(exponent << 23 | 0x7fffffu);

		if (tsr_bits_from_f32(tsr_quotient_ordinary(n, d)) !=
		    tsr_bits_from_f32(__fdiv_rn(n, d)))
			differ(f, tsr_bits_from_f32(n), tsr_bits_from_f32(d));
	}
}

/* --- softsign codes ---------------------------------------------------------------------------- */

static __device__ int32_t softsign_code_of(float half_z)
{
	return tsr_round_half_away_i32(254.0f * half_z);
}

/* The least half_z whose code is k. */
static __device__ float softsign_threshold(int32_t k)
{
	uint32_t below = 0, from = 0x3f000000u; /* code 0 and 127 */

	while (from - below > 1) {
		const uint32_t middle = (below + from) / 2;

		if (softsign_code_of(tsr_f32_from_bits(middle)) >= k)
			from = middle;
		else
			below = middle;
	}
	return tsr_f32_from_bits(from);
}

/*
 * For every denominator d (its exponent does not matter: powers of two are exact here) and every
 * code, the numerators whose quotients are next to where the code changes, with every estimate of
 * the reciprocal that is within 1 ULP.  Elsewhere, the shortcut's error of less than 2 ULP does not matter.
 */
static __global__ void try_softsign_codes(struct finding *f)
{
	const uint32_t mantissa = blockIdx.x * BLOCK + threadIdx.x;
	const int32_t k = (int32_t)blockIdx.y + 1;
	const float d = tsr_f32_from_bits(0x3f800000u | mantissa);
	const uint32_t reciprocal = tsr_bits_from_f32(__frcp_rn(d));
	__shared__ float threshold;

	if (threadIdx.x == 0)
		threshold = softsign_threshold(k);
	__syncthreads();
	for (int step = -6; step <= 6; step++) {
		const float n = tsr_f32_from_bits(tsr_bits_from_f32(threshold * d) +
						  (uint32_t)step);
		const int32_t formula = softsign_code_of(__fdiv_rn(n, d));

		for (uint32_t r = reciprocal - 1; r != reciprocal + 2; r++) {
			if (tsr_softsign_code_from(n, d, tsr_f32_from_bits(r)) != formula)
				differ(f, tsr_bits_from_f32(n), tsr_bits_from_f32(d));
		}
	}
}

/* Random pairs over the whole range, through the functions that the kernels call. */
static __global__ void try_softsign_pairs(struct finding *f)
{
	uint64_t state = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x + 1) * 0x9e3779b97f4a7c15u;

	for (int i = 0; i < 4096; i++) {
		uint64_t z = state += 0x9e3779b97f4a7c15u;

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
		z = (z ^ z >> 27) * 0x94d049bb133111ebu;
		z ^= z >> 31;

		const uint32_t exponent = 27 + (uint32_t)(z >> 32) % 224; /* 2^-100 to 2^123 */
		const uint32_t below = (uint32_t)(z >> 40 & 0xff) % 12;
		const uint32_t sign = (uint32_t)(z >> 63) << 31;
		const float scale = tsr_f32_from_bits(exponent << 23 | ((uint32_t)z & 0x7fffff));
		const float part = tsr_f32_from_bits((127 - below) << 23) *
				   (float)((uint32_t)(z >> 9) & 0xffffff) * 0x1p-24f;
		const float m = tsr_f32_from_bits(tsr_bits_from_f32(scale * part) | sign);

		if (tsr_softsign_code_ordinary(m, scale) !=
		    tsr_softsign_code_in(tsr_bounds_i8(), m, scale))
			differ(f, tsr_bits_from_f32(m), tsr_bits_from_f32(scale));
	}
}

/* Element i is base^(i + 1) by the library of CUDA. */
static __global__ void take_powers(float base, float *power)
{
	const unsigned i = blockIdx.x * BLOCK + threadIdx.x;

	power[i] = powf(base, (float)(i + 1));
}

/* --- Running them ------------------------------------------------------------------------------ */

static struct finding *found;

static void begin(const char *claim)
{
	const struct finding none = { 0, 0, 0 };

	check_begin(claim);
	cudaMemcpy(found, &none, sizeof(none), cudaMemcpyHostToDevice);
}

static void end(uint64_t cases)
{
	struct finding f = { 0, 0, 0 };
	const cudaError_t e = cudaMemcpy(&f, found, sizeof(f), cudaMemcpyDeviceToHost);

	if (e != cudaSuccess || cudaGetLastError() != cudaSuccess)
		check_failed("%s", cudaGetErrorString(e));
	else if (f.count)
		check_failed("%llu differences, one of them at %08x, %08x", f.count, f.a, f.b);
	check_end(cases);
}

#define ALL_BLOCKS (1u << 24) /* of 256 threads: 2^32 patterns */
#define ALL_CASES (UINT64_C(1) << 32)

/* Every pattern: not for a CPU. */
static void check_all_patterns(void)
{
	begin("pairs convert to BF16 as the formula does");
	try_bf16_pair<<<ALL_BLOCKS, BLOCK>>>(found);
	end(ALL_CASES);
	begin("pairs convert to FP16 as the formula does");
	try_f16_pair<<<ALL_BLOCKS, BLOCK>>>(found);
	end(ALL_CASES);
	begin("a narrow float stands for the rounded value");
	try_rounding<<<ALL_BLOCKS, BLOCK>>>(found);
	end(ALL_CASES);
	begin("square roots without the slow path");
	try_root<<<ALL_BLOCKS, BLOCK>>>(found);
	end(ALL_CASES);
	begin("logarithms within their bounds");
	try_log2<<<ALL_BLOCKS, BLOCK>>>(found);
	end(ALL_CASES);
	begin("powers of two within their bounds");
	try_exp2<<<ALL_BLOCKS, BLOCK>>>(found);
	end(ALL_CASES);
	begin("8-bit corrections of BF16 with one rounding");
	try_bf16_ulp8_correction<<<ALL_BLOCKS, BLOCK>>>(tsr_masks(), found);
	end(ALL_CASES);
	begin("softsign8 codes with one rounding less");
	try_softsign_rounding<<<ALL_BLOCKS, BLOCK>>>(found);
	end(ALL_CASES);
	begin("reciprocal estimates are within 1 ULP");
	try_reciprocal<<<ALL_BLOCKS, BLOCK>>>(found);
	end(ALL_CASES);
	begin("softsign8 codes at every threshold, for every denominator and estimate");
	try_softsign_codes<<<dim3((1u << 23) / BLOCK, 127), BLOCK>>>(found);
	end((UINT64_C(1) << 23) * 127 * 13 * 3);
}

#define POWERS (1u << 17)

/* By their complements, which are what is used. */
static void check_powers(void)
{
	static const float bases[] = {
		0.25f, 0.5f, 0.8f, 0.9f, 0.95f, 0.98f, 0.99f, 0.999f, 0.9999f
	};
	float *device = NULL, *power = (float *)malloc(POWERS * sizeof(float));
	uint64_t cases = 0;

	check_begin("corrections of Adam are those of CUDA's powers");
	if (!power || cudaMalloc(&device, POWERS * sizeof(float)) != cudaSuccess)
		check_failed("no memory");
	for (size_t b = 0; device && b < sizeof(bases) / sizeof(*bases); b++) {
		take_powers<<<POWERS / BLOCK, BLOCK>>>(bases[b], device);
		if (cudaMemcpy(power, device, POWERS * sizeof(float), cudaMemcpyDeviceToHost) !=
		    cudaSuccess)
			check_failed("%s", cudaGetErrorString(cudaGetLastError()));
		for (uint64_t i = 0; i < POWERS; i++, cases++) {
			if (1.0f - power[i] != 1.0f - tsr_cuda_power(bases[b], i + 1))
				check_failed("%g^%llu: found %a, expected %a", (double)bases[b],
					     (unsigned long long)(i + 1),
					     (double)tsr_cuda_power(bases[b], i + 1),
					     (double)power[i]);
		}
	}
	cudaFree(device);
	free(power);
	check_end(cases);
}

void check_shortcuts(enum cases cases)
{
	const unsigned part = cases == CASES_ALL ? 1 : 128; /* of what is random */

	if (cudaMalloc(&found, sizeof(*found)) != cudaSuccess) {
		check_begin("shortcuts");
		check_failed("no memory");
		check_end(0);
		return;
	}
	if (cases == CASES_ALL) {
		check_all_patterns();
		check_powers();
	}
	begin("FP16 widens as the formula does");
	try_f16_widen<<<256, BLOCK>>>(found);
	end(1 << 16);
	begin("square roots from the nearest estimate");
	try_root_of_nearest<<<(1u << 24) / BLOCK, BLOCK>>>(found);
	end(UINT64_C(1) << 24);
	begin("BF16 and 8-bit corrections joined without special cases");
	try_bf16_ulp8_join<<<(1u << 24) / BLOCK, BLOCK>>>(tsr_masks(), found);
	end(UINT64_C(1) << 24);
	begin("codes out of words");
	try_codes<<<1, BLOCK>>>(tsr_masks(), found);
	end(256 * 4);
	begin("quotients of softsign8 codes, from every estimate within 1 ULP");
	try_softsign_ratio<<<1, BLOCK>>>(found);
	end(256 * 4);
	begin("quotients without the slow path, from every estimate within 1 ULP");
	try_quotients<<<(1u << 20) / part, BLOCK>>>(found);
	end((UINT64_C(1) << 28) / part * 7 * 3);
	begin("quotients by significands of ones");
	try_quotients_by_ones<<<(1u << 24) / BLOCK, BLOCK>>>(found);
	end((UINT64_C(1) << 24) * 8);
	begin("softsign8 codes of random pairs");
	try_softsign_pairs<<<(1u << 12) / part, BLOCK>>>(found);
	end(UINT64_C(4096) / part * BLOCK * 4096);
	cudaFree(found);
}
