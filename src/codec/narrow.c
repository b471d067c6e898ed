/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of FP32 values as BF16 or F16, and back: tensors of these types on their way through codecs. */
#include "codec/narrow.h"

#include <string.h>

/* Values that are narrowed at once. */
#define BATCH 1024u

bool tsr_codec_takes(const struct tsr_codec *codec, enum tsr_dtype dtype)
{
	return dtype == TSR_F32 || (codec->grouped && (dtype == TSR_BF16 || dtype == TSR_F16));
}

/* The codec that is nothing but a conversion to this type. */
static struct tsr_coding conversion(enum tsr_dtype dtype)
{
	return tsr_coding_default(tsr_codec_find(dtype == TSR_BF16 ? "bf16" : "fp16"));
}

void tsr_widen(enum tsr_dtype dtype, const void *narrow, size_t n, float *x)
{
	const struct tsr_coding coding = conversion(dtype);

	if (dtype == TSR_F32)
		memcpy(x, narrow, n * sizeof(*x));
	else
		coding.codec->decode(&coding, &narrow, n, x);
}

/* Narrow @n values, batch by batch, to where they are to go, or else widen them again. */
static void narrow(enum tsr_dtype dtype, float *x, size_t n, unsigned char *to)
{
	const struct tsr_coding coding = conversion(dtype);
	struct tsr_encode_report report = { 0 };
	uint16_t batch[BATCH];
	void *out = batch;
	const void *in = batch;

	for (size_t at = 0; at < n; at += BATCH) {
		const size_t count = n - at < BATCH ? n - at : BATCH;

		coding.codec->encode(&coding, x + at, count, &out, &report);
		if (to)
			memcpy(to + at * sizeof(*batch), batch, count * sizeof(*batch));
		else
			coding.codec->decode(&coding, &in, count, x + at);
	}
}

void tsr_round_to(enum tsr_dtype dtype, float *x, size_t n)
{
	if (dtype != TSR_F32)
		narrow(dtype, x, n, NULL);
}

void tsr_narrow_in_place(enum tsr_dtype dtype, float *x, size_t n)
{
	if (dtype != TSR_F32)
		narrow(dtype, x, n, (unsigned char *)x);
}
