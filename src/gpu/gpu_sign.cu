/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes and figures of the pieces of tensors: tsr_device_sign().  XXH3-128 of more than 240 bytes, which a
 * padded piece always has: eight sums over stripes of 64 bytes, scrambled after every 16 of them.
 */
#include "codec/math.h"
#include "gpu/cuda.h"
#include "gpu/vector.cuh"

extern "C" {
#include "io/hash.h"
#include "tersor/device.h"
}

/* A team of threads has a piece, each of them two of the sums: what they exchange stays in a thread. */
#define TEAM 4u
/* Few threads in a block, so that all processors have as many pieces. */
#define THREADS 64u
#define STRIPE 64u
#define STRIPES 16u /* of a block of XXH3 */
#define AT_ONCE 8u /* loads of a thread in flight */
#define LANES (TSR_SIGN_LANES / TEAM) /* of a thread */

#define PRIME32_1 0x9E3779B1u
#define PRIME32_2 0x85EBCA77u
#define PRIME32_3 0xC2B2AE3Du
#define PRIME64_1 0x9E3779B185EBCA87ull
#define PRIME64_2 0xC2B2AE3D27D4EB4Full
#define PRIME64_3 0x165667B19E3779F9ull
#define PRIME64_4 0x85EBCA77C2B2AE63ull
#define PRIME64_5 0x27D4EB2F165667C5ull

/* What pieces are mixed with: xxHash's own table. */
struct secret {
	uint64_t words[TSR_HASH_SECRET_WORDS];
};

/* The 8 bytes at byte @at of it. */
static __device__ __forceinline__ uint64_t word_at(const struct secret &s, unsigned at)
{
	const unsigned shift = at % 8 * 8;
	const uint64_t low = s.words[at / 8] >> shift;

	return shift ? low | s.words[at / 8 + 1] << (64 - shift) : low;
}

struct two {
	uint64_t v[2];
};

/* The 16 bytes of a thread; behind the end of the tensor, in no WHOLE block, are zeros. */
template <bool WHOLE>
static __device__ __forceinline__ struct two load(const unsigned char *at, const unsigned char *end)
{
	struct two d = {};
	uint4 raw;

	if constexpr (!WHOLE) {
		if (at + sizeof(d) > end) {
			for (unsigned i = 0; at + i < end; i++)
				d.v[i / 8] |= (uint64_t)at[i] << (i % 8 * 8);
			return d;
		}
	}
	raw = *(const uint4 *)at;
	d.v[0] = (uint64_t)raw.y << 32 | raw.x;
	d.v[1] = (uint64_t)raw.w << 32 | raw.z;
	return d;
}

struct sums {
	uint64_t mixed[2];
	double squares[LANES];
	uint32_t largest, nonfinite, zeros;
};

static __device__ __forceinline__ void mix(struct sums *s, struct two d, uint64_t key0,
					   uint64_t key1)
{
	const uint64_t a = d.v[0] ^ key0, b = d.v[1] ^ key1;

	s->mixed[0] += d.v[1] + (a & UINT32_MAX) * (a >> 32);
	s->mixed[1] += d.v[0] + (b & UINT32_MAX) * (b >> 32);
}

static __device__ __forceinline__ void count(struct sums *s, unsigned lane, uint32_t bits)
{
	uint32_t magnitude = bits & TSR_F32_MAG;
	const bool special = magnitude >= TSR_F32_INF;
	double value;

	s->nonfinite += special;
	s->zeros += magnitude == 0;
	magnitude = special ? 0 : magnitude;
	s->largest = magnitude > s->largest ? magnitude : s->largest;
	value = (double)tsr_f32_from_bits(magnitude);
	s->squares[lane] += value * value; /* the product is exact */
}

/* The values in 16 bytes of stripe number @stripe. */
template <int DTYPE>
static __device__ __forceinline__ void count_all(struct sums *s, struct two d, unsigned stripe)
{
#pragma unroll
	for (unsigned i = 0; i < 4; i++) {
		const uint32_t word = (uint32_t)(d.v[i / 2] >> (i % 2 * 32));

		if (DTYPE == TSR_F32)
			count(s, stripe % 2 * 4 + i, word);
		if (DTYPE == TSR_BF16) {
			count(s, 2 * i, word << 16);
			count(s, 2 * i + 1, word & 0xffff0000u);
		}
		if (DTYPE == TSR_F16) {
			count(s, 2 * i, tsr_bits_from_f32(tsr_f32_from_f16(word & 0xffff)));
			count(s, 2 * i + 1, tsr_bits_from_f32(tsr_f32_from_f16(word >> 16)));
		}
	}
}

/* Add the first @n stripes of a block, of the last of which only the values: it is mixed in at the end. */
template <int DTYPE, bool WHOLE>
static __device__ __forceinline__ void add_block(struct sums *s, const uint64_t *key,
						 const unsigned char *at, const unsigned char *end,
						 unsigned n)
{
#pragma unroll
	for (unsigned first = 0; first < STRIPES; first += AT_ONCE) {
		struct two d[AT_ONCE];

#pragma unroll
		for (unsigned k = 0; k < AT_ONCE; k++)
			d[k] = load<WHOLE>(at + (first + k) * STRIPE, end);
#pragma unroll
		for (unsigned k = 0; k < AT_ONCE; k++) {
			const unsigned stripe = first + k;

			if (WHOLE || stripe < n)
				count_all<DTYPE>(s, d[k], stripe);
			if (WHOLE || stripe + 1 < n)
				mix(s, d[k], key[stripe], key[stripe + 1]);
		}
	}
}

/* Thread @t of the team adds a piece of @nstripes, from its own first byte on. */
template <int DTYPE>
static __device__ void add_piece(struct sums *s, const struct secret &secret, unsigned t,
				 const unsigned char *at, const unsigned char *end,
				 unsigned nstripes)
{
	const uint64_t scramble[2] = { word_at(secret, 128 + 16 * t),
				       word_at(secret, 136 + 16 * t) };
	uint64_t key[STRIPES + 1];

#pragma unroll
	for (unsigned i = 0; i <= STRIPES; i++)
		key[i] = secret.words[2 * t + i];
	for (; nstripes > STRIPES; nstripes -= STRIPES, at += STRIPES * STRIPE) {
		add_block<DTYPE, true>(s, key, at, end, STRIPES);
#pragma unroll
		for (unsigned i = 0; i < 2; i++)
			s->mixed[i] = (s->mixed[i] ^ s->mixed[i] >> 47 ^ scramble[i]) * PRIME32_1;
	}
	add_block<DTYPE, false>(s, key, at, end, nstripes);
	mix(s, load<false>(at + (nstripes - 1) * STRIPE, end), word_at(secret, 121 + 16 * t),
	    word_at(secret, 129 + 16 * t));
}

/* What the threads of a team have, in all of them. */
template <class T> static __device__ __forceinline__ T add_team(T x)
{
	x += __shfl_xor_sync(TSR_WHOLE_WARP, x, 2);
	return x + __shfl_xor_sync(TSR_WHOLE_WARP, x, 1);
}

/* A half of the hash, whose table begins at byte @at; as bytes in big-endian order. */
static __device__ __forceinline__ void put_half(const struct sums *s, const struct secret &secret,
						unsigned t, unsigned at, uint64_t start,
						unsigned char *bytes)
{
	const uint64_t a = s->mixed[0] ^ word_at(secret, at + 16 * t);
	const uint64_t b = s->mixed[1] ^ word_at(secret, at + 16 * t + 8);
	uint64_t h = start + add_team(a * b ^ __umul64hi(a, b));

	h = (h ^ h >> 37) * 0x165667919E3779F9ull;
	h ^= h >> 32;
	for (unsigned i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(h >> (56 - 8 * i));
}

/* Lanes are added by halves: the larger distances are between threads, but of FP32 the largest is in one. */
static __device__ __forceinline__ double add_lanes(double *lane, bool f32)
{
#pragma unroll
	for (unsigned i = 0; i < LANES / 2; i++)
		lane[i] += f32 ? lane[i + LANES / 2] : 0.0;
#pragma unroll
	for (unsigned i = 0; i < LANES; i++)
		lane[i] = add_team(lane[i]);
#pragma unroll
	for (unsigned i = 0; i < LANES / 2; i++)
		lane[i] += f32 ? 0.0 : lane[i + LANES / 2];
	return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

/* The tensor that has a piece: the last one that begins at or before it. */
static __device__ __forceinline__ struct tsr_to_sign find(const struct tsr_to_sign *tensors,
							  size_t n, uint64_t piece)
{
	size_t from = 0;

	while (n > 1) {
		const size_t half = n / 2;

		from += tensors[from + half].first_piece <= piece ? half : 0;
		n -= half;
	}
	return tensors[from];
}

static __global__ void __launch_bounds__(THREADS)
	sign_pieces(struct secret secret, const struct tsr_to_sign *tensors, size_t n,
		    uint64_t npieces, struct tsr_signed_piece *pieces)
{
	static const uint64_t start[] = { PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3,
					  PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1 };
	const unsigned t = threadIdx.x % TEAM;
	const uint64_t piece = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) / TEAM;
	const struct tsr_to_sign tensor = find(tensors, n, piece);
	const uint64_t first = (piece - tensor.first_piece) * TSR_SIGN_PIECE;
	const bool there = piece < npieces && tensor.data && first < tensor.nbytes;
	const uint64_t left = there ? tensor.nbytes - first : 0;
	const unsigned nbytes = (unsigned)(left < TSR_SIGN_PIECE ? left : TSR_SIGN_PIECE);
	const unsigned nstripes = nbytes <= 4 * STRIPE ? 4 : (nbytes + STRIPE - 1) / STRIPE;
	const unsigned char *const at = (const unsigned char *)tensor.data + first;
	struct sums s = {};
	struct tsr_signed_piece p;

	s.mixed[0] = start[2 * t];
	s.mixed[1] = start[2 * t + 1];
	if (there && tensor.dtype == TSR_F32)
		add_piece<TSR_F32>(&s, secret, t, at + 16 * t, at + nbytes, nstripes);
	else if (there && tensor.dtype == TSR_BF16)
		add_piece<TSR_BF16>(&s, secret, t, at + 16 * t, at + nbytes, nstripes);
	else if (there && tensor.dtype == TSR_F16)
		add_piece<TSR_F16>(&s, secret, t, at + 16 * t, at + nbytes, nstripes);
	else if (there)
		add_piece<TSR_U8>(&s, secret, t, at + 16 * t, at + nbytes, nstripes);
	put_half(&s, secret, t, 11, nstripes * STRIPE * PRIME64_1, p.hash + 8);
	put_half(&s, secret, t, 117, ~(nstripes * STRIPE * PRIME64_2), p.hash);
	p.squares = add_lanes(s.squares, tensor.dtype == TSR_F32);
	s.largest = max(s.largest, __shfl_xor_sync(TSR_WHOLE_WARP, s.largest, 2));
	p.max = tsr_f32_from_bits(max(s.largest, __shfl_xor_sync(TSR_WHOLE_WARP, s.largest, 1)));
	p.nonfinite = (uint16_t)add_team(s.nonfinite);
	p.zeros = (uint16_t)add_team(s.zeros);
	/* Zeros behind the end were counted. */
	if (tensor.dtype == TSR_F32 || tensor.dtype == TSR_BF16 || tensor.dtype == TSR_F16)
		p.zeros -= (nstripes * STRIPE - nbytes) / (tensor.dtype == TSR_F32 ? 4 : 2);
	if (there && !t)
		pieces[piece] = p;
}

extern "C" enum tsr_status tsr_device_sign(struct tsr_gpu *gpu, void *stream,
					   const struct tsr_to_sign *tensors, size_t n,
					   uint64_t npieces, struct tsr_signed_piece *pieces,
					   struct tsr_err *err)
{
	const uint64_t per_block = THREADS / TEAM;
	struct secret secret;

	if (!n || !npieces)
		return TSR_OK;
	tsr_hash_secret(secret.words);
	TSR_TRY(tsr_gpu_use(gpu, err));
	sign_pieces<<<(unsigned)((npieces + per_block - 1) / per_block), THREADS, 0,
		      (cudaStream_t)stream>>>(secret, tensors, n, npieces, pieces);
	return tsr_gpu_started(gpu, "hashing tensors", "", err);
}
