/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of tensors of an open checkpoint, a job each. */

#include "base/fail.h"
#include "base/pipeline.h"
#include "ckpt/read.h"
#include "recording/signing.h"

/* Elements of packed tensors, and four times as many bytes of others, that are read at once. */
#define PIECE TSR_READ_MAX

struct signing_tensors {
	const struct tsr_checkpoint *c;
	const struct tsr_tensor *const *tensors;
	struct tsr_signature *ret;
};

struct scratch {
	struct tsr_signing signing;
	_Alignas(8) unsigned char bytes[PIECE * sizeof(float)];
};

enum tsr_dtype tsr_signed_dtype(const struct tsr_tensor *t)
{
	return t->coding.codec ? TSR_F32 : t->dtype;
}

static enum tsr_status sign(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct signing_tensors *k = ctx;
	const struct tsr_tensor *t = k->tensors[job];
	const bool packed = t && t->coding.codec;
	struct scratch *s = scratch;
	uint64_t left;

	k->ret[job] = (struct tsr_signature){ .zeros = 0 };
	if (!t)
		return TSR_OK;
	left = packed ? t->numel : tsr_tensor_nbytes(t);
	tsr_signing_begin(&s->signing, tsr_signed_dtype(t));
	for (uint64_t at = 0; left;) {
		const uint64_t most = packed ? PIECE : sizeof(s->bytes);
		const size_t n = (size_t)(left < most ? left : most);

		TSR_TRY(packed ? tsr_checkpoint_read_f32(k->c, t, at, n, (float *)s->bytes, err)
			       : tsr_checkpoint_read_stored(k->c, t, 0, at, n, s->bytes, err));
		tsr_signing_add(&s->signing, s->bytes, packed ? n * sizeof(float) : n);
		at += n;
		left -= n;
	}
	tsr_signing_end(&s->signing, &k->ret[job]);
	return TSR_OK;
}

enum tsr_status tsr_sign_tensors(const struct tsr_checkpoint *c,
				 const struct tsr_tensor *const *tensors, size_t n,
				 struct tsr_signature *ret, const struct tsr_run *run,
				 struct tsr_err *err)
{
	struct signing_tensors k = { c, tensors, ret };
	const struct tsr_run threads = { .threads = run ? run->threads : 1 };
	const struct tsr_pipeline pipeline = {
		.njobs = n, .scratch_nbytes = sizeof(struct scratch), .work = sign, .ctx = &k
	};

	return tsr_pipeline_run(&pipeline, &threads, err);
}
