/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding of made-up values by each codec, on both sides. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "check_gpu.h"
#include "codec/list.h"

/* --- Values ----------------------------------------------------------------------------------- */

static const uint32_t specials[] = {
	0x00000000, 0x00000001, 0x00000002, 0x00007fff, 0x00008000, 0x00008001, 0x0000ffff,
	0x007fffff, 0x00800000, 0x00800001, 0x007f8000, 0x01000000, 0x01002041, 0x0d800000,
	0x17800000, 0x20000000, 0x21ffffff, 0x22000000, 0x2b8cbccc, 0x2b8cbccd, 0x33000000,
	0x33000001, 0x33800000, 0x387fc000, 0x387fe000, 0x387fffff, 0x38800000, 0x3f000000,
	0x3f7fffff, 0x3f800000, 0x3f800001, 0x3f804000, 0x3f808000, 0x3f818000, 0x3f80ffff,
	0x477fe000, 0x477fefff, 0x477ff000, 0x47800000, 0x5f7fffff, 0x5f800000, 0x7b7fffff,
	0x7b800000, 0x7e7fffff, 0x7e800000, 0x7f7f0000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff,
	0x7f800000, 0x7f800001, 0x7f808000, 0x7f810000, 0x7fbfffff, 0x7fc00000, 0x7fff8000,
	0x7fffffff,
};

static const char *const data_names[DATA_COUNT] = { "special",	   "finite", "weights",
						    "variances",   "tiny",   "huge",
						    "equal",	   "steps",  "zero",
						    "all special", "edges",  "middles" };

static uint64_t random_u64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static float float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static float draw(enum data data, size_t i, uint64_t *seed)
{
	const uint64_t z = random_u64(seed);
	const uint32_t r = (uint32_t)z, bits = (uint32_t)(z >> 32);
	const uint32_t finite = (bits & 0x7f800000u) == 0x7f800000u ? bits & 0xbfffffffu : bits;

	switch (data) {
	case DATA_SPECIAL:
		return float_of(r & 1 ? specials[(r >> 2) % COUNT_OF(specials)] | (r & 2) << 30
				      : bits);
	case DATA_FINITE:
		return float_of(finite);
	case DATA_WEIGHTS:
		return (float)((double)(int32_t)bits * 0x1p-36) * float_of((r % 24 + 108) << 23);
	case DATA_VARIANCES:
		return (float)((double)bits * 0x1p-32) * float_of((r % 100 + 27) << 23);
	case DATA_TINY:
		return float_of(bits & 0x80ffffffu);
	case DATA_HUGE:
		return float_of((bits & 0x80ffffffu) + 0x7e000000u);
	case DATA_EQUAL:
		*seed -= i % 32 == 31 ? 0 : 0x9e3779b97f4a7c15u;
		return float_of(finite);
	case DATA_STEPS:
		return float_of((uint32_t)i * 257u);
	case DATA_ALL_SPECIAL:
		return float_of((bits & 0x80000000u) | 0x7f800000u | (r % 3 ? bits & 0x7fffff : 0));
	default:
		return 0.0f;
	}
}

/* Runs as long as what a warp steps at a time, each of about one magnitude. */
static void fill_edges(float *x, size_t n, uint64_t seed)
{
	static const int exponents[] = { -145, -126, -110, -101, -99, -90, -81, -79, -61, -59,
					 -50,  -39,  -37,  -30,	 -20, -10, -7,	-5,  -3,  -1,
					 0,    1,    29,   59,	 61,  98,  100, 126 };
	static const unsigned spreads[] = { 1, 3, 3, 8, 20 };
	const size_t run = 512;

	for (size_t from = 0; from < n; from += run) {
		const uint64_t z = random_u64(&seed);
		const int exponent = exponents[z % COUNT_OF(exponents)];
		const unsigned spread = spreads[(z >> 8) % COUNT_OF(spreads)];
		const bool zeros = (z >> 16) % 8 == 0;

		for (size_t i = from; i < n && i < from + run; i++) {
			const uint64_t y = random_u64(&seed);
			const double mantissa = 1.0 + (double)(y & 0x7fffff) * 0x1p-23;
			const double sign = y >> 63 ? -1.0 : 1.0;
			const int at = exponent - (int)((y >> 24) % spread);

			x[i] = zeros && (y >> 40) % 16 == 0 ? (float)(0.0 * sign)
							    : (float)(sign * ldexp(mantissa, at));
		}
	}
}

/* The middle between an 8-bit float and the next one, as log2 of its share of the largest. */
static double middle(bool e4m3, unsigned code)
{
	const int fraction = e4m3 ? 3 : 2, one = 1 << fraction, field = (int)code >> fraction;
	const double significand = (double)((int)code % one + (field ? one : 0)) + 0.5;

	return log2(significand / (1.75 * one)) + (field ? field : 1) - (e4m3 ? 15 : 30);
}

/*
 * Runs of what is next to where codes change, beside the largest and least values that make them change there:
 * of e4m3x, of e5m2x, and of log8.
 */
static void fill_middles(float *x, size_t n, uint64_t seed)
{
	static const unsigned quarters[] = { 1, 2, 4, 8, 10, 12 };
	const size_t run = 256;

	for (size_t from = 0; from < n; from += run) {
		const uint64_t z = random_u64(&seed);
		const unsigned which = (unsigned)(z % 3), row = 9 + (unsigned)((z >> 8) % 247);
		const double range = quarters[(z >> 8) % COUNT_OF(quarters)] / 4.0;
		const double octaves = which < 2 ? (which == 0 ? 16.6 : 30.6) * 16 / row
						 : 2 * range;
		const double root = (double)(0x800 + (z >> 20) % 0x800) * 0x1p-11;
		const double largest = ldexp(root * root, (int)((z >> 48) % 20) * 2 - 20);

		for (size_t i = from; i < n && i < from + run; i++) {
			const uint64_t y = random_u64(&seed);
			const double at = which < 2 ? middle(which == 0, 2 + (unsigned)(y % 120)) *
							      16 / row
						    : -range * (double)(2 * (y % 254) + 1) / 254;
			const double down = i % 32 == 0	  ? 0
					    : i % 32 == 1 ? -octaves
							  : fmax(at, -octaves);
			float value = (float)(largest * exp2(down));

			for (unsigned step = (unsigned)((y >> 32) % 3); i % 32 > 1 && step; step--)
				value = nextafterf(value, y >> 40 & 1 ? 0.0f : INFINITY);
			x[i] = which < 2 && y >> 41 & 1 ? -value : value;
		}
	}
}

void fill(float *x, size_t n, enum data data, uint64_t seed)
{
	if (data == DATA_MIDDLES) {
		fill_middles(x, n, seed);
		return;
	}
	if (data == DATA_EDGES) {
		fill_edges(x, n, seed);
		return;
	}
	for (size_t i = 0; i < n; i++)
		x[i] = draw(data, i, &seed);
}

/* --- Arrays on both sides --------------------------------------------------------------------- */

#define GUARD_BYTE 0xa5
#define MARGIN 256u

/* An array in the middle of memory whose other bytes must stay as they are. */
struct array {
	unsigned char *want, *got; /* the whole memory, on the host */
	void *device;
	size_t room, at, nbytes;
};

static void array_new(struct array *a, size_t room)
{
	struct tsr_err err;

	a->room = room + 2 * (size_t)MARGIN;
	a->want = must_have(malloc(a->room));
	a->got = must_have(malloc(a->room));
	must(tsr_gpu_alloc(gpu, a->room, "a test array", &a->device, &err), &err);
}

/*
 * Under the address sanitizer, where an emulated GPU's memory is the CPU's: whether the memory around
 * the array may be touched.
 */
static void allow_around(const struct array *a, bool allow)
{
#ifdef __SANITIZE_ADDRESS__
	char *memory = a->device;

	ASAN_UNPOISON_MEMORY_REGION(memory, a->room);
	if (!allow) {
		ASAN_POISON_MEMORY_REGION(memory, a->at);
		ASAN_POISON_MEMORY_REGION(memory + a->at + a->nbytes, a->room - a->at - a->nbytes);
	}
#else
	(void)a;
	(void)allow;
#endif
}

static void array_free(struct array *a)
{
	allow_around(a, true);
	free(a->want);
	free(a->got);
	tsr_gpu_free(gpu, a->device);
}

/* The part of the memory that a test looks at. */
static size_t extent(const struct array *a)
{
	return a->at + a->nbytes + MARGIN < a->room ? a->at + a->nbytes + MARGIN : a->room;
}

/* An array of @nbytes that begins @shift bytes behind an aligned address; the contents are unset. */
static void array_place(struct array *a, size_t nbytes, size_t shift)
{
	a->at = MARGIN + shift;
	a->nbytes = nbytes;
	memset(a->want, GUARD_BYTE, extent(a));
}

static void *host_of(const struct array *a)
{
	return a->want + a->at;
}

static void *device_of(const struct array *a)
{
	return (char *)a->device + a->at;
}

static void upload(const struct array *a)
{
	struct tsr_err err;

	allow_around(a, true);
	must(tsr_gpu_copy(stream, a->device, a->want, extent(a), &err), &err);
	allow_around(a, false);
}

/* The array itself is what has to be found; around it, nothing may have changed. */
static void upload_guards_only(const struct array *a)
{
	struct tsr_err err;

	memset(a->got, GUARD_BYTE, extent(a));
	allow_around(a, true);
	must(tsr_gpu_copy(stream, a->device, a->got, extent(a), &err), &err);
	must(tsr_gpu_sync(stream, &err), &err);
	allow_around(a, false);
}

static bool download_equals(const struct array *a, const char *what, const char *which)
{
	const size_t nbytes = extent(a);
	struct tsr_err err;
	size_t i = 0;

	allow_around(a, true);
	must(tsr_gpu_copy(stream, a->got, a->device, nbytes, &err), &err);
	must(tsr_gpu_sync(stream, &err), &err);
	if (memcmp(a->want, a->got, nbytes) == 0)
		return true;
	while (a->want[i] == a->got[i])
		i++;
	check_failed("%s: %s: byte %lld of %zu is %02x, expected %02x", which, what,
		     (long long)i - (long long)a->at, a->nbytes, a->got[i], a->want[i]);
	return false;
}

/* --- One comparison --------------------------------------------------------------------------- */

static struct array x_array, plane_array[TSR_PLANES_MAX];
static struct tsr_encode_report *device_report;

static void name_case(char which[200], const struct tsr_coding *coding, size_t n, const char *data,
		      size_t shift)
{
	snprintf(which, 200, "%s, %s scales, group %u, row %u, %zu elements, %s, shifted by %zu",
		 coding->codec->name, tsr_scale_name(coding->scale), coding->group, coding->row, n,
		 data, shift);
}

static size_t entry_size(const struct tsr_coding *coding, unsigned plane)
{
	return tsr_dtype_bits(tsr_plane_dtype(coding, plane)) / 8;
}

static void place_planes(const struct tsr_coding *coding, size_t n, size_t shift)
{
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		array_place(&plane_array[i], (size_t)tsr_plane_nbytes(coding, i, n),
			    shift * entry_size(coding, i));
}

static void compare_encode(const struct tsr_coding *coding, size_t n, const char *which)
{
	struct tsr_encode_report want = { 0 }, got;
	void *host[TSR_PLANES_MAX] = { NULL }, *device[TSR_PLANES_MAX] = { NULL };
	struct tsr_err err;

	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		host[i] = host_of(&plane_array[i]);
		device[i] = device_of(&plane_array[i]);
		upload_guards_only(&plane_array[i]);
	}
	coding->codec->encode(coding, host_of(&x_array), n, host, &want);
	upload(&x_array);
	must(tsr_gpu_zero(stream, device_report, sizeof(*device_report), &err), &err);
	must(tsr_gpu_encode(stream, coding, device_of(&x_array), n, device, device_report, &err),
	     &err);
	must(tsr_gpu_copy(stream, &got, device_report, sizeof(got), &err), &err);
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		download_equals(&plane_array[i],
				i == 0	 ? "first plane"
				: i == 1 ? "second plane"
					 : "third plane",
				which);
	if (memcmp(&want, &got, sizeof(got)) != 0)
		check_failed("%s: report %llu %llu %llu, expected %llu %llu %llu", which,
			     (unsigned long long)got.scale_underflow,
			     (unsigned long long)got.scale_overflow,
			     (unsigned long long)got.narrow_overflow,
			     (unsigned long long)want.scale_underflow,
			     (unsigned long long)want.scale_overflow,
			     (unsigned long long)want.narrow_overflow);
}

/* What the planes hold, decoded on both sides. */
static void compare_decode(const struct tsr_coding *coding, size_t n, size_t shift,
			   const char *which)
{
	const void *host[TSR_PLANES_MAX] = { NULL }, *device[TSR_PLANES_MAX] = { NULL };
	struct tsr_err err;

	array_place(&x_array, n * sizeof(float), shift * sizeof(float));
	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		host[i] = host_of(&plane_array[i]);
		device[i] = device_of(&plane_array[i]);
		upload(&plane_array[i]);
	}
	coding->codec->decode(coding, host, n, host_of(&x_array));
	upload_guards_only(&x_array);
	must(tsr_gpu_decode(stream, coding, device, n, device_of(&x_array), &err), &err);
	download_equals(&x_array, "decoded", which);
}

static void compare(const struct tsr_coding *coding, size_t n, enum data data, size_t shift)
{
	char which[200];

	name_case(which, coding, n, data_names[data], shift);
	array_place(&x_array, n * sizeof(float), shift * sizeof(float));
	fill(host_of(&x_array), n, data, n + 1000003u * data);
	place_planes(coding, n, shift);
	compare_encode(coding, n, which);
	compare_decode(coding, n, shift, which);
}

/* Planes that no encoder makes: a file may hold anything. */
static void compare_any_planes(const struct tsr_coding *coding, size_t n, size_t shift)
{
	uint64_t seed = n + coding->group;
	char which[200];

	name_case(which, coding, n, "any planes", shift);
	place_planes(coding, n, shift);
	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		unsigned char *bytes = host_of(&plane_array[i]);

		for (size_t j = 0; j < plane_array[i].nbytes; j++) {
			const uint64_t z = random_u64(&seed);

			bytes[j] = (unsigned char)(z & 1 ? z >> 8 : 0xff);
		}
	}
	compare_decode(coding, n, shift, which);
}

/* --- All comparisons of a codec --------------------------------------------------------------- */

static uint64_t compare_lengths(const struct tsr_coding *coding, bool small)
{
	static const size_t long_ones[] = { 127,  128,	129,  1023,  1024,  4095,
					    4096, 4097, 8191, 16384, 16397, 100003 };
	uint64_t cases = 0;

	for (size_t n = 0; n <= 70; n += small ? 23 : 1) {
		compare(coding, n, DATA_SPECIAL, 0);
		compare(coding, n, (enum data)(n % DATA_COUNT), n % 5);
		cases += 2;
	}
	for (size_t i = 0; i < COUNT_OF(long_ones); i += small ? 8 : 1) {
		for (unsigned data = 0; data < DATA_COUNT; data++, cases++)
			compare(coding, long_ones[i], (enum data)data, i % 2 ? data % 5 : 0);
		compare_any_planes(coding, long_ones[i], i % 3);
		cases++;
	}
	return cases;
}

static uint64_t compare_groups(struct tsr_coding coding, bool small)
{
	static const uint32_t groups[] = { 1, 2, 3, 8, 31, 33, 64, 100, 128, 1000, 65536 };
	uint64_t cases = 0;

	for (size_t i = 0; i < COUNT_OF(groups); i += small ? 4 : 1) {
		const uint32_t group = coding.group =
			tsr_coding_with(coding.codec, coding.scale, groups[i]).group;
		const size_t lengths[] = {
			0, 1, group - 1, group, group + 1, 3 * group + 17, 20011
		};

		for (size_t j = 0; j < COUNT_OF(lengths); j += small ? 5 : 1) {
			for (unsigned data = 0; data < DATA_COUNT; data += small ? 3 : 1, cases++)
				compare(&coding, lengths[j], (enum data)data, data % 3);
			compare_any_planes(&coding, lengths[j], j % 3);
			cases++;
		}
	}
	return cases;
}

/* Groups that end with the rows, of which the last row may be a part. */
static uint64_t compare_rows(struct tsr_coding coding, bool small)
{
	static const uint32_t rows[] = { 33, 48, 63, 100, 2049, 50257 };
	uint64_t cases = 0;

	for (size_t i = 0; i < COUNT_OF(rows); i += small ? 2 : 1) {
		const size_t n = rows[i] < 1000 ? 40 * rows[i] : 2 * rows[i];

		coding.row = rows[i];
		for (unsigned data = 0; data < DATA_COUNT; data += small ? 3 : 1, cases++)
			compare(&coding, n, (enum data)data, data % 3);
		compare_any_planes(&coding, n + rows[i] / 2, 0);
		cases++;
	}
	return cases;
}

#define LARGE (((size_t)1 << 24) + 5)

/* Many values: of each kind, and patterns from end to end of FP32. */
static uint64_t compare_many(const struct tsr_coding *coding)
{
	for (unsigned data = 0; data < DATA_ZERO; data++)
		compare(coding, LARGE / 4, (enum data)data, 0);
	compare(coding, LARGE, DATA_STEPS, 0);
	compare_any_planes(coding, LARGE, 0);
	return DATA_ZERO + 2;
}

/* Each narrow weight with each 8-bit correction, or with 256 of the wider ones. */
static void compare_all_pairs(const struct tsr_coding *coding)
{
	const size_t n = (size_t)1 << 24;
	uint16_t *narrow;
	char which[200];

	name_case(which, coding, n, "all pairs", 0);
	place_planes(coding, n, 0);
	narrow = host_of(&plane_array[0]);
	for (size_t i = 0; i < n; i++)
		narrow[i] = (uint16_t)(i >> 8);
	if (entry_size(coding, 1) == 1) {
		for (size_t i = 0; i < n; i++)
			((uint8_t *)host_of(&plane_array[1]))[i] = (uint8_t)i;
	} else {
		for (size_t i = 0; i < n; i++)
			((uint16_t *)host_of(&plane_array[1]))[i] = (uint16_t)(i * 257 +
									       (i >> 8) * 31);
	}
	compare_decode(coding, n, 0, which);
}

static uint64_t check_coding(const struct tsr_coding *coding, bool small, bool many)
{
	uint64_t cases = compare_lengths(coding, small);

	if (coding->codec->grouped)
		cases += compare_groups(*coding, small);
	if (coding->codec->grouped && !coding->codec->flat)
		cases += compare_rows(*coding, small);
	return many ? cases + compare_many(coding) : cases;
}

static void check_codec(const struct tsr_codec *codec, enum cases which)
{
	const bool small = which == CASES_FEW;
	const unsigned nscales = codec->grouped ? TSR_SCALE_COUNT : 1;
	const bool many = which == CASES_ALL && (!codec->family || codec->extra_bits % 6 == 1);
	struct tsr_coding coding = tsr_coding_default(codec);
	uint64_t cases = 0;

	coding.seed = 0x123456789abcdefu;
	coding.stream = 0xfedcba987654321u;
	coding.first = UINT64_C(1) << 34;

	check_begin(codec->name);
	for (unsigned scale = 0; scale < nscales; scale++) {
		coding.scale = (enum tsr_scale)scale;
		if (!codec->grouped || tsr_codec_has_scale(codec, coding.scale))
			cases += check_coding(&coding, small, many);
	}
	/* The other kind that codecs with tables tell apart. */
	if (codec->flat) {
		coding = tsr_coding_default(codec);
		coding.kind = TSR_KIND_VARIANCE;
		cases += check_coding(&coding, small, many);
	}
	if (many && codec->nplanes == 2 && codec->planes[1].unit == TSR_PER_ELEMENT &&
	    !codec->grouped) {
		compare_all_pairs(&coding);
		cases++;
	}
	check_end(cases);
}

/* Values that are finite: packing keeps tensors with others as they are. */
static void check_learned(const char *name, enum cases which)
{
	static const enum data kinds[] = { DATA_FINITE, DATA_WEIGHTS, DATA_VARIANCES,
					   DATA_TINY,	DATA_HUGE,    DATA_EQUAL,
					   DATA_ZERO,	DATA_EDGES,   DATA_MIDDLES };
	static const uint32_t groups[] = { 1, 2, 31, 33, 64, 100, 129, 1000, 65536 };
	static float entry[256];
	struct tsr_coding coding = tsr_coding_default(tsr_codec_find(name));
	const size_t step = which == CASES_FEW ? 3 : 1;
	uint64_t cases = 0;

	for (int i = 0; i < 256; i++)
		entry[i] = (float)((i - 128) * (i < 128 ? 128 - i : i - 128)) * 0x1p-14f;
	coding.codebook = entry;
	check_begin(name);
	for (size_t i = 0; i < COUNT_OF(groups); i += step) {
		const size_t lengths[] = {
			0, 1, groups[i], groups[i] + 1, 3 * groups[i] + 17, 20011
		};

		coding.group = groups[i];
		for (size_t j = 0; j < COUNT_OF(lengths); j += step) {
			for (size_t k = 0; k < COUNT_OF(kinds); k += step, cases++)
				compare(&coding, lengths[j], kinds[k], k % 3);
			compare_any_planes(&coding, lengths[j], j % 3);
			cases++;
		}
	}
	check_end(cases);
}

/* Element @i of the product of factors, by the stages one after the other. */
static float product_of(const float *factors, unsigned nstages, size_t nleft, size_t columns,
			size_t i)
{
	float sum = 0;

	for (unsigned stage = 0; stage < nstages;
	     stage++, factors += (nleft + columns) * TSR_RANK) {
		const float *l = factors + i / columns * TSR_RANK;
		const float *r = factors + (nleft + i % columns) * TSR_RANK;

		for (unsigned k = 0; k < TSR_RANK; k++)
			sum += l[k] * r[k];
	}
	return sum;
}

/* Of any factors, added to elements of which the last row may be short; NaN are one NaN. */
static void compare_products(unsigned nstages, size_t columns, size_t n, enum data data, float sign)
{
	const size_t nleft = (n + columns - 1) / columns;
	const size_t room = nstages * (nleft + columns) * TSR_RANK;
	struct tsr_encode_report got;
	uint64_t nonfinite = 0;
	struct tsr_err err;
	char which[200];
	float *x;

	snprintf(which, sizeof(which), "%u stages, %zu columns, %zu elements, %s, sign %g", nstages,
		 columns, n, data_names[data], (double)sign);
	array_place(&plane_array[0], room * sizeof(float), 0);
	array_place(&x_array, n * sizeof(float), 0);
	x = host_of(&x_array);
	fill(host_of(&plane_array[0]), room, data, columns);
	fill(x, n, data, n);
	upload(&plane_array[0]);
	upload(&x_array);
	must(tsr_gpu_zero(stream, device_report, sizeof(*device_report), &err), &err);
	must(tsr_gpu_add_products(stream, device_of(&plane_array[0]), nstages, (uint32_t)columns,
				  sign, n, device_of(&x_array), device_report, &err),
	     &err);
	must(tsr_gpu_copy(stream, &got, device_report, sizeof(got), &err), &err);
	for (size_t i = 0; i < n; i++) {
		const float product = product_of(host_of(&plane_array[0]), nstages, nleft, columns,
						 i);

		x[i] = sign < 0 ? x[i] - product : x[i] + product;
		x[i] = isnan(x[i]) ? float_of(0x7fc00000) : x[i];
		nonfinite += isfinite(x[i]) ? 0 : 1;
	}
	download_equals(&x_array, "elements", which);
	if (got.narrow_overflow != nonfinite)
		check_failed("%s: found %llu that are not finite, expected %llu", which,
			     (unsigned long long)got.narrow_overflow,
			     (unsigned long long)nonfinite);
}

static void check_products(void)
{
	static const uint32_t sizes[][2] = {
		{ 1, 1 }, { 97, 289 }, { 256, 51200 }, { 3000, 3001 }, { 119, 30553 }
	};
	uint64_t cases = 0;

	check_begin("products of factors");
	for (size_t i = 0; i < 2 * COUNT_OF(sizes); i++) {
		const uint32_t *s = sizes[i / 2];

		for (unsigned data = 0; data < DATA_COUNT; data++, cases += 2) {
			compare_products(1 + i % 2, s[0], s[1], (enum data)data, 1);
			compare_products(1 + i % 2, s[0], s[1], (enum data)data, -1);
		}
	}
	check_end(cases);
}

void check_codecs(enum cases cases)
{
	const size_t room = (cases == CASES_ALL ? LARGE : 200000) * sizeof(float) + 64;
	struct tsr_err err;

	must(tsr_gpu_alloc(gpu, sizeof(*device_report), "a report", (void **)&device_report, &err),
	     &err);
	array_new(&x_array, room);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		array_new(&plane_array[i], room);
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (tsr_gpu_has_codec(*c))
			check_codec(*c, cases);
	}
	check_learned("gefen8", cases);
	check_learned("blockmean", cases);
	check_products();
	array_free(&x_array);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		array_free(&plane_array[i]);
	tsr_gpu_free(gpu, device_report);
}
