/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coding pieces of planes in host memory, on the CPU or on a GPU.  A block of threads of the GPU has a piece;
 * coders, each with a stream, keep many blocks at work, since nobody waits for a piece that is being coded.
 */
#include "ckpt/gpu/piece_coder.h"

#include "base/fail.h"
#include "entropy/contexts_math.h"
#include "gpu/gpu_work.h"

#define PLAIN_NBYTES (TSR_ENTROPY_PIECE * TSR_ENTROPY_WIDTH)

/* What a kernel is told, and what it finds. */
struct control {
	struct tsr_gpu_piece piece;
	uint64_t damaged;
};

/* On the GPU: a piece, and the scales of its codes. */
struct device_memory {
	_Alignas(16) unsigned char plain[PLAIN_NBYTES];
	uint16_t scales[TSR_ENTROPY_PIECE];
	_Alignas(16) struct control control;
	_Alignas(16) unsigned char coded[]; /* the most that a piece takes */
};

/* What comes back from there, in pinned memory. */
struct host_memory {
	struct control control;
	_Alignas(16) unsigned char coded[]; /* the most that is asked for */
};

struct tsr_piece_coder {
	struct tsr_entropy *entropy;
	struct tsr_gpu *gpu; /* NULL: on the CPU */
	struct tsr_gpu_stream *stream;
	struct device_memory *device;
	struct host_memory *host;
	struct control control; /* on its way to the GPU */
	const void *coded; /* a piece that was begun: where it is to be found, */
	size_t nbytes; /* and its bytes, if the CPU coded it, */
	const uint32_t *nbytes_there; /* or NULL, or where the GPU says them */
};

/* --- On the CPU --------------------------------------------------------------------------------- */

static size_t encode_on_cpu(struct tsr_entropy *e, const struct tsr_piece *p, const void *plain,
			    void *coded)
{
	if (p->variance)
		return tsr_entropy_encode_codes(e, p->variance, plain, p->n, coded);
	return tsr_entropy_encode(e, p->kind, plain, p->n, coded);
}

static const char *decode_on_cpu(struct tsr_entropy *e, const struct tsr_piece *p,
				 const void *coded, size_t nbytes, void *plain)
{
	if (p->variance)
		return tsr_entropy_decode_codes(e, p->variance, coded, nbytes, plain, p->n);
	return tsr_entropy_decode(e, p->kind, coded, nbytes, plain, p->n);
}

/* --- On a GPU ----------------------------------------------------------------------------------- */

static struct tsr_gpu_coding coding_of(const struct tsr_piece *p)
{
	return (struct tsr_gpu_coding){ p->kind, p->variance != NULL };
}

/* Append the copies of the description of a piece, and of its scales if it has any. */
static enum tsr_status describe(struct tsr_piece_coder *c, const struct tsr_piece *p, size_t nbytes,
				struct tsr_err *err)
{
	struct device_memory *d = c->device;
	const struct tsr_entropy_variance *v = p->variance;

	c->control = (struct control){ .piece = { .plain = d->plain,
						  .coded = d->coded,
						  .n = (uint32_t)p->n,
						  .nbytes = (uint32_t)nbytes },
				       .damaged = UINT64_MAX };
	if (v) {
		const uint64_t nscales = tsr_entropy_scale_of(&v->scales, v->first, p->n - 1) + 1;

		c->control.piece.variance = *v;
		c->control.piece.variance.scales.scales = d->scales;
		TSR_TRY(tsr_gpu_copy(c->stream, d->scales, v->scales.scales,
				     nscales * sizeof(*d->scales), err));
	}
	return tsr_gpu_copy(c->stream, &d->control, &c->control, sizeof(c->control), err);
}

static enum tsr_status get_control(struct tsr_piece_coder *c, struct tsr_err *err)
{
	return tsr_gpu_copy(c->stream, &c->host->control, &c->device->control, sizeof(c->control),
			    err);
}

/* All that a piece can take is brought back: its size is not known before it is there. */
static enum tsr_status begin_on_gpu(struct tsr_piece_coder *c, const struct tsr_piece *p,
				    const void *plain, struct tsr_err *err)
{
	struct device_memory *d = c->device;

	TSR_TRY(tsr_gpu_copy(c->stream, d->plain, plain, p->n * p->kind.width, err));
	TSR_TRY(describe(c, p, 0, err));
	TSR_TRY(tsr_gpu_encode_pieces(c->stream, coding_of(p), &d->control.piece, 1, NULL, err));
	TSR_TRY(get_control(c, err));
	c->coded = c->host->coded;
	c->nbytes_there = &c->host->control.piece.nbytes;
	return tsr_gpu_copy(c->stream, c->host->coded, d->coded, tsr_entropy_bound(p->kind, p->n),
			    err);
}

/* *damaged_ret: whether the CPU has to say what is wrong. */
static enum tsr_status decode_on_gpu(struct tsr_piece_coder *c, const struct tsr_piece *p,
				     const void *coded, size_t nbytes, void *plain,
				     bool *damaged_ret, struct tsr_err *err)
{
	struct device_memory *d = c->device;

	TSR_TRY(tsr_gpu_copy(c->stream, d->coded, coded, nbytes, err));
	TSR_TRY(describe(c, p, nbytes, err));
	TSR_TRY(tsr_gpu_decode_pieces(c->stream, coding_of(p), &d->control.piece, 1,
				      &d->control.damaged, err));
	TSR_TRY(get_control(c, err));
	TSR_TRY(tsr_gpu_copy(c->stream, plain, d->plain, p->n * p->kind.width, err));
	TSR_TRY(tsr_gpu_sync(c->stream, err));
	*damaged_ret = c->host->control.damaged != UINT64_MAX;
	return TSR_OK;
}

/* --- Either ------------------------------------------------------------------------------------- */

static bool is_for_gpu(const struct tsr_piece_coder *c, const struct tsr_piece *p)
{
	return c->gpu && p->n;
}

enum tsr_status tsr_piece_encode_begin(struct tsr_piece_coder *c, const struct tsr_piece *p,
				       const void *plain, void *coded, struct tsr_err *err)
{
	if (is_for_gpu(c, p))
		return begin_on_gpu(c, p, plain, err);
	c->coded = coded;
	c->nbytes = encode_on_cpu(c->entropy, p, plain, coded);
	c->nbytes_there = NULL;
	return TSR_OK;
}

enum tsr_status tsr_piece_encode_end(struct tsr_piece_coder *c, const void **coded_ret,
				     size_t *nbytes_ret, struct tsr_err *err)
{
	if (c->nbytes_there) {
		TSR_TRY(tsr_gpu_sync(c->stream, err));
		c->nbytes = *c->nbytes_there;
	}
	*coded_ret = c->coded;
	*nbytes_ret = c->nbytes;
	return TSR_OK;
}

enum tsr_status tsr_piece_decode(struct tsr_piece_coder *c, const struct tsr_piece *p,
				 const void *coded, size_t nbytes, void *plain,
				 const char **wrong_ret, struct tsr_err *err)
{
	const bool fits = nbytes <= tsr_entropy_bound(p->kind, p->n);
	bool damaged = true;

	*wrong_ret = NULL;
	if (is_for_gpu(c, p) && fits)
		TSR_TRY(decode_on_gpu(c, p, coded, nbytes, plain, &damaged, err));
	if (damaged)
		*wrong_ret = decode_on_cpu(c->entropy, p, coded, nbytes, plain);
	return TSR_OK;
}

struct tsr_entropy *tsr_piece_coder_entropy(struct tsr_piece_coder *c)
{
	return c->entropy;
}

/* --- Opening ------------------------------------------------------------------------------------ */

static enum tsr_status open_gpu(struct tsr_piece_coder *c, size_t coded_max, struct tsr_err *err)
{
	const struct tsr_entropy_kind widest = { .width = TSR_ENTROPY_WIDTH };
	const size_t nbytes = sizeof(*c->device) + tsr_entropy_bound(widest, TSR_ENTROPY_PIECE);

	TSR_TRY(tsr_gpu_alloc(c->gpu, nbytes, "coded pieces", (void **)&c->device, err));
	TSR_TRY(tsr_gpu_alloc_host(c->gpu, sizeof(*c->host) + coded_max, "coded pieces",
				   (void **)&c->host, err));
	return tsr_gpu_stream_new(c->gpu, &c->stream, err);
}

enum tsr_status tsr_piece_coder_new(struct tsr_gpu *gpu, size_t coded_max,
				    struct tsr_piece_coder **ret, struct tsr_err *err)
{
	struct tsr_piece_coder *c = calloc(1, sizeof(*c));
	enum tsr_status status = TSR_OK;

	*ret = NULL;
	if (c)
		c->entropy = tsr_entropy_new(TSR_ENTROPY_WIDTH);
	if (!c || !c->entropy) {
		free(c);
		return tsr_fail_nomem(err, "work buffers");
	}
	c->gpu = gpu;
	if (gpu)
		status = open_gpu(c, coded_max, err);
	if (status != TSR_OK)
		tsr_piece_coder_free(c);
	else
		*ret = c;
	return status;
}

void tsr_piece_coder_free(struct tsr_piece_coder *c)
{
	if (!c)
		return;
	tsr_entropy_free(c->entropy);
	if (c->gpu) {
		tsr_gpu_stream_free(c->stream);
		tsr_gpu_free(c->gpu, c->device);
		tsr_gpu_free_host(c->gpu, c->host);
	}
	free(c);
}
