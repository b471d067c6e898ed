/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of tensors against one plain loop, on every SIMD level, in one piece and in several. */
#include <math.h>

#include "base/isa.h"
#include "recording/signing.h"
#include "unit.h"

#define N 20011u

/* Random bits, among them zeros, subnormals, infinities and NaN; a few huge values would hide all others. */
static void fill(float *x, size_t n, uint64_t seed)
{
	static const uint32_t special[] = { 0,		0x80000000, 1,		0x80000001,
					    0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff };

	for (size_t i = 0; i < n; i++) {
		const uint64_t r = random_u64(&seed);

		x[i] = r % 7 == 0 && seed % 3
			       ? float_of(special[r / 7 % (COUNT_OF(special) - 1)])
			       : float_of((uint32_t)(r >> 32 & 0x80ffffff) | 0x3d000000);
	}
	x[n / 2] = n % 2 ? float_of(special[7]) : x[n / 2];
}

static void check_figures(const struct tsr_signature *s, const float *x, size_t n)
{
	double squares = 0, most = 0;
	size_t nonfinite = 0, zeros = 0;

	for (size_t i = 0; i < n; i++) {
		const double value = (double)x[i];

		zeros += value == 0;
		if (!is_finite_bits(bits_of(x[i]))) {
			nonfinite++;
			continue;
		}
		squares += value * value;
		most = fabs(value) > most ? fabs(value) : most;
	}
	assert_int_equal(s->nonfinite, nonfinite);
	assert_int_equal(s->zeros, zeros);
	assert_true((double)s->max == most);
	if (n > nonfinite)
		assert_true(fabs((double)s->rms - sqrt(squares / (double)(n - nonfinite))) <=
			    1e-7 * (double)s->rms);
	else
		assert_true(s->rms == 0.0f);
}

static void sign(const void *x, size_t nbytes, enum tsr_dtype dtype, struct tsr_signature *ret)
{
	const struct tsr_to_sign t = { .data = x, .nbytes = nbytes, .dtype = dtype };

	assert_int_equal(tsr_sign(&t, 1, ret, NULL, NULL), TSR_OK);
}

static void sign_in_pieces(const float *x, size_t n, size_t piece, struct tsr_signature *ret)
{
	struct tsr_signing s;

	tsr_signing_begin(&s, TSR_F32);
	for (size_t at = 0; at < n; at += piece)
		tsr_signing_add(&s, x + at, (n - at < piece ? n - at : piece) * sizeof(*x));
	tsr_signing_end(&s, ret);
}

static void test_figures_and_hash(void **state)
{
	static const size_t lengths[] = { 0, 1, 7, 8, 9, 63, 8192, N };
	struct tsr_signature first, other;
	static float x[N];

	(void)state;
	fill(x, N, 1);
	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		assert_true(tsr_isa_select("base"));
		sign(x, lengths[i] * sizeof(*x), TSR_F32, &first);
		check_figures(&first, x, lengths[i]);
		assert_false(tsr_signature_is_absent(&first));
		for (const char *const *name = tsr_isa_names(); *name; name++) {
			if (!tsr_isa_select(*name))
				continue;
			sign(x, lengths[i] * sizeof(*x), TSR_F32, &other);
			assert_memory_equal(&first, &other, sizeof(first));
			sign_in_pieces(x, lengths[i], 33, &other);
			assert_memory_equal(&first, &other, sizeof(first));
		}
	}
	assert_true(tsr_isa_select(NULL));
}

/* Of no bytes: what the Python package xxhash prints for 256 zeros. */
static void test_known_hashes(void **state)
{
	static const unsigned char zeros[16] = { 0xbb, 0x03, 0x9d, 0x71, 0xe9, 0x63, 0x0a, 0x91,
						 0xa6, 0x8d, 0xfb, 0xb1, 0xd7, 0x5c, 0x6e, 0x8d };
	struct tsr_signature s;

	(void)state;
	sign("", 0, TSR_U8, &s);
	assert_memory_equal(s.hash, zeros, sizeof(zeros));
	assert_true(s.max == 0.0f && s.rms == 0.0f && !s.zeros && !s.nonfinite);
}

/* Bits that figures do not see, such as the sign of a zero, are in the hash. */
static void test_one_bit(void **state)
{
	static float x[N];
	struct tsr_signature before, after;

	(void)state;
	sign(x, sizeof(x), TSR_F32, &before);
	x[N - 1] = -0.0f;
	sign(x, sizeof(x), TSR_F32, &after);
	assert_false(tsr_signature_equal(&before, &after));
	assert_int_equal(before.zeros, N);
	assert_int_equal(after.zeros, N);
}

static void test_narrow_values(void **state)
{
	static const uint16_t bf16[3] = { 0x3f80, 0xc000, 0x7f80 },
			      f16[3] = { 0x3c00, 0xc000, 0x7c00 };
	struct tsr_signature s;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		sign(i ? f16 : bf16, sizeof(bf16), i ? TSR_F16 : TSR_BF16, &s);
		assert_true(s.max == 2.0f && fabsf(s.rms - sqrtf(2.5f)) < 1e-6f);
		assert_int_equal(s.nonfinite, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_figures_and_hash),
		cmocka_unit_test(test_known_hashes),
		cmocka_unit_test(test_one_bit),
		cmocka_unit_test(test_narrow_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
