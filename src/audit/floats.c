/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of tensors of any floating-point type as FP32 values. */
#include "audit/floats.h"

#include <math.h>

#include "base/fail.h"
#include "codec/tables.h"

/* 8-bit floats with a sign. */
struct fp8 {
	enum tsr_dtype dtype;
	struct tsr_fp8_format format;
	bool one_nan; /* a NaN takes the place of -0, and there is no other */
};

static const struct fp8 fp8s[] = {
	{ TSR_F8_E4M3, { 3, 7, 127, false }, false },
	{ TSR_F8_E5M2, { 2, 15, 124, true }, false },
	{ TSR_F8_E4M3FNUZ, { 3, 8, 128, false }, true },
	{ TSR_F8_E5M2FNUZ, { 2, 16, 128, false }, true },
};

static const struct fp8 *find_fp8(enum tsr_dtype dtype)
{
	for (size_t i = 0; i < sizeof(fp8s) / sizeof(*fp8s); i++) {
		if (fp8s[i].dtype == dtype)
			return &fp8s[i];
	}
	return NULL;
}

bool tsr_tensor_is_floating(const struct tsr_tensor *t)
{
	return tsr_tensor_has_f32(t) || t->dtype == TSR_F64 || find_fp8(t->dtype);
}

static float value_of(const struct fp8 *f, unsigned byte)
{
	const unsigned code = byte & 0x7f;
	const struct tsr_fp8_value v = tsr_fp8_value(f->format, code);
	float value = ldexpf((float)v.whole, v.exponent);

	if (f->one_nan && byte == 0x80)
		return NAN;
	if (code >= f->format.ncodes)
		value = f->format.infinite && code == f->format.ncodes ? INFINITY : NAN;
	return byte >> 7 ? -value : value;
}

static void widen_fp8(const struct fp8 *f, const unsigned char *bytes, size_t n, float *x)
{
	float values[256];

	for (unsigned i = 0; i < 256; i++)
		values[i] = value_of(f, i);
	for (size_t i = 0; i < n; i++)
		x[i] = values[bytes[i]];
}

static void round_f64(const unsigned char *bytes, size_t n, float *x)
{
	for (size_t i = 0; i < n; i++) {
		double value;

		memcpy(&value, bytes + i * sizeof(value), sizeof(value));
		x[i] = (float)value;
	}
}

enum tsr_status tsr_floats_read(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				uint64_t first, size_t n, struct tsr_read_scratch *scratch,
				float *x, struct tsr_err *err)
{
	const size_t size = t->dtype == TSR_F64 ? sizeof(double) : 1;
	unsigned char *bytes = scratch->plane[0];

	if (tsr_tensor_has_f32(t))
		return tsr_tensor_read_f32(c, t, first, n, scratch, x, err);
	for (size_t at = 0; at < n; at += TSR_READ_MAX) {
		const size_t some = n - at < TSR_READ_MAX ? n - at : TSR_READ_MAX;

		TSR_TRY(tsr_array_read(c, &c->arrays[t->plane[0]], (first + at) * size, some * size,
				       bytes, err));
		if (t->dtype == TSR_F64)
			round_f64(bytes, some, x + at);
		else
			widen_fp8(find_fp8(t->dtype), bytes, some, x + at);
	}
	return TSR_OK;
}
