/* SPDX-License-Identifier: Apache-2.0 */
/* Masters: FP32 tensors whose narrow weights another tensor of the checkpoint has, bit for bit. */
#include "pack/masters.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/order.h"
#include "ckpt/build.h"
#include "ckpt/read.h"
#include "codec/measuring.h"
#include "codec/narrow.h"
#include "io/hash.h"

/* A sample of a tensor is so many elements at its start, in its middle and at its end. */
#define SAMPLE 2048u
/* Where they may begin: every codec with a narrow plane can be encoded from there. */
#define SAMPLE_ALIGN 64u

/* A tensor that may be a master, or have a master's narrow weights. */
struct candidate {
	size_t tensor;
	bool master;
	uint64_t key; /* equal for tensors that may belong together */
};

struct candidates {
	struct candidate *list;
	size_t n;
};

static void candidates_free(struct candidates *k)
{
	free(k->list);
}

/* Memory for a sample. */
struct sample {
	struct tsr_read_scratch scratch;
	float x[SAMPLE];
	uint16_t narrow[3 * SAMPLE];
	uint32_t correction[SAMPLE];
};

/* Whether a tensor is stored as a narrow weight and a correction. */
static bool may_be_master(const struct tsr_tensor *t)
{
	return t->coding.codec && t->nplanes == 2 && !t->coding.codec->grouped && t->numel > 0;
}

TSR_COMPARE_BY(compare, struct candidate, TSR_ORDER(a->key, b->key),
	       tsr_order_then(TSR_ORDER(a->master, b->master), TSR_ORDER(a->tensor, b->tensor)))

static void sort(const struct candidates *k)
{
	if (k->n)
		qsort(k->list, k->n, sizeof(*k->list), compare);
}

/* The end of the candidates with the key of @first, and which of them is the first master. */
static size_t end_of_run(const struct candidates *k, size_t first, size_t *master_ret)
{
	size_t end = first;

	while (end < k->n && k->list[end].key == k->list[first].key && !k->list[end].master)
		end++;
	*master_ret = end;
	while (end < k->n && k->list[end].key == k->list[first].key)
		end++;
	return end;
}

/* List what may belong together by type and shape; list is to be freed, also on failure. */
static enum tsr_status list_candidates(const struct tsr_checkpoint *c, struct candidates *k,
				       struct tsr_err *err)
{
	size_t kept = 0, master, end;

	TSR_TRY(TSR_NEW(&k->list, c->ntensors + 1, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const bool is_master = may_be_master(t);
		const enum tsr_dtype dtype = is_master ? tsr_plane_dtype(&t->coding, 0) : t->dtype;

		if (is_master ||
		    (!t->coding.codec && (dtype == TSR_BF16 || dtype == TSR_F16) && t->numel > 0))
			k->list[k->n++] = (struct candidate){
				i, is_master, tsr_hash(t->shape, t->rank * sizeof(*t->shape), dtype)
			};
	}
	sort(k);
	for (size_t i = 0; i < k->n; i = end) {
		end = end_of_run(k, i, &master);
		for (size_t j = i; j < end && master > i && master < end; j++)
			k->list[kept++] = k->list[j];
	}
	k->n = kept;
	return TSR_OK;
}

/* --- Samples ------------------------------------------------------------------------------------ */

/* @n elements of a raw tensor, or of the first plane that a tensor will have. */
static enum tsr_status read_narrow(const struct tsr_checkpoint *stored, const struct tsr_tensor *t,
				   size_t tensor, uint64_t first, size_t n, struct sample *s,
				   uint16_t *narrow, struct tsr_err *err)
{
	const struct tsr_tensor *was = &stored->tensors[tensor];
	struct tsr_encode_report report = { 0 };
	void *plane[TSR_PLANES_MAX] = { narrow, s->correction };
	struct tsr_coding coding = t->coding;

	if (!coding.codec || (was->coding.codec && tsr_coding_is_same(&was->coding, &coding)))
		return tsr_array_read(stored, &stored->arrays[was->plane[0]],
				      first * sizeof(*narrow), n * sizeof(*narrow), narrow, err);
	TSR_TRY(tsr_tensor_read_f32(stored, was, first, n, &s->scratch, s->x, err));
	coding.first = first;
	coding.codec->encode(&coding, s->x, n, plane, &report);
	return TSR_OK;
}

static enum tsr_status sample(const struct tsr_checkpoint *stored, const struct tsr_checkpoint *c,
			      struct candidate *k, struct sample *s, struct tsr_err *err)
{
	const struct tsr_tensor *t = &c->tensors[k->tensor];
	const size_t n = t->numel < SAMPLE ? (size_t)t->numel : SAMPLE;
	const uint64_t last = (t->numel - n) / SAMPLE_ALIGN * SAMPLE_ALIGN;
	const uint64_t middle = last / 2 / SAMPLE_ALIGN * SAMPLE_ALIGN;
	const uint64_t at[] = { 0, middle, last };

	for (size_t i = 0; i < 3; i++)
		TSR_TRY(read_narrow(stored, t, k->tensor, at[i], n, s, s->narrow + i * n, err));
	k->key = tsr_hash(s->narrow, 3 * n * sizeof(*s->narrow), k->key);
	return TSR_OK;
}

/* --- Pairs -------------------------------------------------------------------------------------- */

enum tsr_status tsr_masters_find(const struct tsr_checkpoint *stored, struct tsr_checkpoint *c,
				 struct tsr_err *err)
{
	TSR_SCOPED(candidates_free) struct candidates k = { .n = 0 };
	TSR_OWNED(free) struct sample *s = NULL;
	size_t master, end;

	TSR_TRY(list_candidates(c, &k, err));
	if (!k.n)
		return TSR_OK;
	TSR_TRY(TSR_NEW(&s, 1, err, c->path));
	for (size_t i = 0; i < k.n; i++)
		TSR_TRY(sample(stored, c, &k.list[i], s, err));
	sort(&k);
	/* Copies of one tensor, such as new norms, are told apart by their order. */
	for (size_t i = 0; i < k.n; i = end) {
		end = end_of_run(&k, i, &master);
		for (size_t j = master; j < end && master > i; j++) {
			const size_t narrow = k.list[i + (j - master) % (master - i)].tensor;
			struct tsr_tensor *t = &c->tensors[k.list[j].tensor];

			if (tsr_tensor_same_shape(t, &c->tensors[narrow]))
				t->narrow = c->tensors[narrow].name;
		}
	}
	return TSR_OK;
}

enum tsr_status tsr_masters_check(const struct tsr_checkpoint *stored, const struct tsr_tensor *t,
				  const struct tsr_tile *tile, const void *plane, void *room,
				  bool *is_ret, struct tsr_err *err)
{
	const struct tsr_tensor *narrow = tsr_checkpoint_find(stored, t->narrow);
	const size_t nbytes = tile->n * sizeof(uint16_t);

	TSR_TRY(tsr_array_read(stored, &stored->arrays[narrow->plane[0]],
			       tile->first * sizeof(uint16_t), nbytes, room, err));
	*is_ret = memcmp(plane, room, nbytes) == 0;
	return TSR_OK;
}

/* --- Rounding back -------------------------------------------------------------------------------- */

/* Values that are rounded at once, and the most steps of a correction. */
#define BATCH 1024u
#define STEPS 2u

static bool rounds(const struct tsr_coding *coding, const uint16_t *narrow, const float *x,
		   size_t n)
{
	float rounded[BATCH];

	memcpy(rounded, x, n * sizeof(*x));
	tsr_narrow_in_place(tsr_plane_dtype(coding, 0), rounded, n);
	return memcmp(rounded, narrow, n * sizeof(*narrow)) == 0;
}

bool tsr_masters_round(const struct tsr_coding *coding, const uint16_t *narrow, const float *x,
		       size_t n)
{
	bool all = true;

	for (size_t at = 0; at < n && all; at += BATCH)
		all = rounds(coding, narrow + at, x + at, n - at < BATCH ? n - at : BATCH);
	return all;
}

/* Decode @n elements from element @at on. */
static void decode(const struct tsr_coding *coding, void *const plane[TSR_PLANES_MAX], size_t at,
		   size_t n, float *x)
{
	const void *in[TSR_PLANES_MAX];

	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		in[i] = (const char *)plane[i] + tsr_plane_nbytes(coding, i, at);
	coding->codec->decode(coding, in, n, x);
}

/* Take a correction one step towards zero; false at zero, or if the codec has other ones. */
static bool step(const struct tsr_coding *coding, void *correction, size_t i)
{
	int8_t *const q8 = correction;
	int16_t *const q16 = correction;

	switch (tsr_plane_dtype(coding, 1)) {
	case TSR_I8:
		q8[i] = (int8_t)(q8[i] - (q8[i] > 0) + (q8[i] < 0));
		return true;
	case TSR_I16:
		q16[i] = (int16_t)(q16[i] - (q16[i] > 0) + (q16[i] < 0));
		return true;
	case TSR_BF16:
	case TSR_F16: /* a float's magnitude, below its sign */
		q16[i] = (int16_t)(q16[i] - ((q16[i] & 0x7fff) != 0));
		return true;
	default:
		return false;
	}
}

static bool settle(const struct tsr_coding *coding, void *const plane[TSR_PLANES_MAX], size_t i,
		   float *decoded)
{
	const uint16_t *narrow = plane[0];

	for (unsigned left = STEPS; !rounds(coding, narrow + i, decoded, 1); left--) {
		if (!left || coding->codec->lossless || !step(coding, plane[1], i))
			return false;
		decode(coding, plane, i, 1, decoded);
	}
	return true;
}

bool tsr_masters_settle(const struct tsr_coding *coding, void *const plane[TSR_PLANES_MAX],
			const float *x, size_t n, struct tsr_measure *measure)
{
	const uint16_t *narrow = plane[0];
	float decoded[BATCH];
	bool all = true;

	*measure = (struct tsr_measure){ 0 };
	for (size_t at = 0; at < n; at += BATCH) {
		const size_t count = n - at < BATCH ? n - at : BATCH;

		decode(coding, plane, at, count, decoded);
		if (!rounds(coding, narrow + at, decoded, count)) {
			for (size_t i = 0; i < count; i++)
				all = settle(coding, plane, at + i, decoded + i) && all;
		}
		tsr_measure_add(measure, x + at, decoded, count);
	}
	return all;
}

/* --- What is stored twice ------------------------------------------------------------------------ */

/* Whether a tensor is named as the narrow weights of a master. */
static enum tsr_status mark_named(const struct tsr_checkpoint *c, bool **named_ret,
				  size_t *npairs_ret, struct tsr_err *err)
{
	bool *named = NULL;

	TSR_TRY(TSR_NEW(&named, c->ntensors + 1, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++) {
		if (!c->tensors[i].narrow)
			continue;
		named[tsr_checkpoint_find(c, c->tensors[i].narrow) - c->tensors] = true;
		++*npairs_ret;
	}
	*named_ret = named;
	return TSR_OK;
}

enum tsr_status tsr_masters_note(struct tsr_checkpoint *c, struct tsr_err *err)
{
	TSR_SCOPED(candidates_free) struct candidates k = { .n = 0 };
	TSR_OWNED(free) bool *named = NULL;
	size_t npairs = 0, n = 0, master, end;
	const char *one = NULL;

	TSR_TRY(mark_named(c, &named, &npairs, err));
	TSR_TRY(list_candidates(c, &k, err));
	for (size_t i = 0; i < k.n; i = end) {
		size_t unnamed = 0;

		end = end_of_run(&k, i, &master);
		for (size_t j = i; j < master; j++)
			unnamed += !named[k.list[j].tensor];
		for (size_t j = master; j < end && unnamed; j++) {
			const struct tsr_tensor *t = &c->tensors[k.list[j].tensor];

			/* Vectors of one length are nothing special in a model of two types. */
			if (t->narrow || (!npairs && t->rank < 2))
				continue;
			one = one ? one : t->name;
			unnamed--;
			n++;
		}
	}
	if (!n)
		return TSR_OK;
	return tsr_build_note(c, err,
			      "%s: tensor %.200s: is not the master of any tensor of its shape, so "
			      "it is stored whole (%zu such tensors, %zu masters)",
			      c->path, one, n, npairs);
}
