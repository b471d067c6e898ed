/* SPDX-License-Identifier: Apache-2.0 */
/* A block of one tensor, or of a momentum and its variance, as the bytes of an object, and back. */
#include "store/block_code.h"

#include <stdlib.h>
#include <string.h>

#include "base/little_endian.h"
#include "codec/math.h"
#include "entropy/differences.h"
#include "store/quantize_loops.h"
#include "tersor/pack.h"

#define VERSION 1u
#define HEAD_NBYTES 32u
#define SLOT_NBYTES 8u

/* How a slot is stored (docs/internals/format.md, section 19.2). */
enum form {
	FORM_BYTES = 1, /* its elements, byte by byte */
	FORM_CODES, /* the planes of pack's codec for its kind */
	FORM_CHANGES, /* what differs in them from those of the base */
	FORM_STEPS,
	FORM_RATIOS,
	FORM_LOGS,
};

/* The planes of codes: at most 4 bytes per element, and scales. */
#define PLANE_NBYTES (4 * (size_t)TSR_STORE_BLOCK)

struct tsr_block_coder {
	struct tsr_integers integers;
	int32_t k[TSR_STORE_BLOCK];
	uint8_t plane[2][PLANE_NBYTES], old[2][PLANE_NBYTES];
	float y[TSR_STORE_BLOCK];
};

struct tsr_block_coder *tsr_block_coder_new(void)
{
	struct tsr_block_coder *c = malloc(sizeof(*c));

	if (!c)
		return NULL;
	c->integers.e = tsr_entropy_new(TSR_ENTROPY_WIDTH);
	if (c->integers.e)
		return c;
	free(c);
	return NULL;
}

void tsr_block_coder_free(struct tsr_block_coder *c)
{
	if (c)
		tsr_entropy_free(c->integers.e);
	free(c);
}

/* --- Codes of pack ---------------------------------------------------------------------------- */

static struct tsr_coding coding_of(enum tsr_kind kind)
{
	const struct tsr_pack_options o = tsr_pack_defaults();

	return kind == TSR_KIND_WEIGHT	   ? o.weight
	       : kind == TSR_KIND_MOMENTUM ? o.momentum
					   : o.variance;
}

static void encode_codes(const struct tsr_coding *coding, const float *x, size_t n,
			 uint8_t (*plane)[PLANE_NBYTES])
{
	struct tsr_encode_report report = { 0 };
	void *to[TSR_PLANES_MAX] = { plane[0], plane[1] };

	coding->codec->encode(coding, x, n, to, &report);
}

static void decode_codes(const struct tsr_coding *coding, uint8_t (*plane)[PLANE_NBYTES], size_t n,
			 float *y)
{
	const void *from[TSR_PLANES_MAX] = { plane[0], plane[1] };

	coding->codec->decode(coding, from, n, y);
}

/* How a plane of codes is coded. */
struct coded_plane {
	size_t n;
	struct tsr_entropy_kind kind;
	struct tsr_entropy_variance variance; /* with contexts */
	bool contexts;
};

static struct coded_plane coded_plane(const struct tsr_block_coder *c, const struct tsr_block *b,
				      const struct tsr_coding *coding, unsigned i)
{
	return (struct coded_plane){
		.n = (size_t)tsr_plane_count(coding, i, b->n),
		.kind = tsr_entropy_kind(tsr_plane_dtype(coding, i)),
		.variance = { .first = b->phase,
			      .columns = b->columns ? b->columns : 1,
			      .scales = { .scales = (const void *)c->plane[1],
					  .group = coding->group } },
		.contexts = !i && coding->codec->contexts == TSR_CONTEXTS_ROOTS,
	};
}

/* The planes of a slot, the scales first, since the contexts of codes depend on them. */
static size_t put_codes(struct tsr_block_coder *c, const struct tsr_block *b,
			const struct tsr_coding *coding, uint8_t *to)
{
	size_t used = 0;

	for (unsigned i = coding->codec->nplanes; i-- > 0;) {
		const struct coded_plane p = coded_plane(c, b, coding, i);
		const size_t nbytes = p.contexts
					      ? tsr_entropy_encode_codes(c->integers.e, &p.variance,
									 c->plane[i], p.n,
									 to + used + 4)
					      : tsr_entropy_encode(c->integers.e, p.kind,
								   c->plane[i], p.n, to + used + 4);

		tsr_put_le(to + used, nbytes, 4);
		used += 4 + nbytes;
	}
	return used;
}

static const char *get_codes(struct tsr_block_coder *c, const struct tsr_block *b,
			     const struct tsr_coding *coding, const uint8_t *bytes, size_t nbytes)
{
	for (unsigned i = coding->codec->nplanes; i-- > 0;) {
		const struct coded_plane p = coded_plane(c, b, coding, i);
		const uint64_t size = nbytes < 4 ? UINT64_MAX : tsr_get_le(bytes, 4);
		const char *wrong;

		if (size > nbytes - 4)
			return "a plane ends early";
		wrong = p.contexts ? tsr_entropy_decode_codes(c->integers.e, &p.variance, bytes + 4,
							      (size_t)size, c->plane[i], p.n)
				   : tsr_entropy_decode(c->integers.e, p.kind, bytes + 4,
							(size_t)size, c->plane[i], p.n);
		if (wrong)
			return wrong;
		bytes += 4 + size;
		nbytes -= 4 + (size_t)size;
	}
	return nbytes ? "there are bytes behind its last plane" : NULL;
}

/* The codes of the base's weights, which those of new ones differ from. */
static struct tsr_entropy_old old_codes(struct tsr_block_coder *c, const struct tsr_coding *coding,
					const float *base, size_t n)
{
	encode_codes(coding, base, n, c->old);
	return (struct tsr_entropy_old){
		.kind = { .of = TSR_DIFFERENCE_FLOATS, .width = 2, .correction = 1, .mantissa = 7 },
		.plane = c->old[0],
		.correction = c->old[1],
	};
}

/* --- Forms ------------------------------------------------------------------------------------ */

struct slot {
	const struct tsr_block_of *of;
	enum tsr_kind kind;
	const float *base, *last; /* of weights, or NULL */
	const float *root; /* of momenta in ratios: the variances that are stored */
};

static size_t put_logs(struct tsr_block_coder *c, const struct tsr_block *b, double bound,
		       const float *x, float *y, uint8_t *to)
{
	const uint32_t rows = tsr_block_rows(b);
	struct tsr_logs logs = { .lines = rows ? c->integers.lines : NULL };
	size_t used = 8;

	tsr_logs_find_means(&c->integers, b, x, &logs.all);
	if (!tsr_quantize_logs(&c->integers, b, &logs, x, bound, c->k, y))
		return 0;
	tsr_put_le(to, (uint32_t)logs.all, 4);
	tsr_put_le(to + 4, logs.step, 4);
	if (rows)
		used += tsr_line_numbers_put(&c->integers, rows + b->columns, to + used);
	return used + tsr_integers_put(&c->integers, b, false, c->k, to + used);
}

static const char *get_logs(struct tsr_block_coder *c, const struct tsr_block *b,
			    const uint8_t *bytes, size_t nbytes, float *y)
{
	const uint32_t rows = tsr_block_rows(b);
	struct tsr_logs logs = { .lines = NULL };
	size_t used = 8, lines_nbytes;
	const char *wrong;
	int8_t lines[TSR_STORE_LINES];

	if (nbytes < used)
		return "its logarithms end early";
	logs.all = (int32_t)(uint32_t)tsr_get_le(bytes, 4);
	logs.step = (uint32_t)tsr_get_le(bytes + 4, 4);
	if (logs.step < TSR_LOG_STEP_MIN || logs.step > TSR_LOG_STEP_MAX)
		return "the step of its logarithms is not in its range";
	if (rows) {
		wrong = tsr_line_numbers_get(&c->integers, rows + b->columns, bytes + used,
					     nbytes - used, &lines_nbytes);
		if (wrong)
			return wrong;
		used += lines_nbytes;
		memcpy(lines, c->integers.lines, rows + b->columns);
		logs.lines = lines;
	}
	wrong = tsr_integers_get(&c->integers, b, bytes + used, nbytes - used, c->k);
	if (!wrong)
		tsr_dequantize_logs(&c->integers, b, &logs, c->k, y);
	return wrong;
}

static float get_float(const uint8_t *bytes)
{
	return tsr_f32_from_bits((uint32_t)tsr_get_le(bytes, 4));
}

static size_t put_quantized(struct tsr_block_coder *c, const struct tsr_block *b, float step,
			    float eps, uint8_t *to)
{
	if (step == 0)
		return 0;
	tsr_put_le(to, tsr_bits_from_f32(step), 4);
	tsr_put_le(to + 4, tsr_bits_from_f32(eps), 4);
	return 8 + tsr_integers_put(&c->integers, b, true, c->k, to + 8);
}

static const char *get_quantized(struct tsr_block_coder *c, const struct tsr_block *b,
				 const uint8_t *bytes, size_t nbytes, const float *with,
				 bool ratios, float *y)
{
	const char *wrong = nbytes < 8 ? "its step is missing"
				       : tsr_integers_get(&c->integers, b, bytes + 8, nbytes - 8,
							  c->k);

	if (wrong)
		return wrong;
	if (!with)
		return "what it is decoded with is missing";
	if (ratios)
		tsr_dequantize_ratios(c->k, with, b->n, get_float(bytes + 4), get_float(bytes), y);
	else
		tsr_dequantize_steps(c->k, with, b->n, get_float(bytes), y);
	return NULL;
}

/* Of variances, negative ones count as infinite. */
static bool all_finite(const float *x, size_t n, bool positive)
{
	static tsr_largest_bits_fn *const largest[] = TSR_ISA_VARIANTS(largest_bits);

	return largest[tsr_isa_level()](x, n, positive ? UINT32_MAX : INT32_MAX) < 0x7f800000;
}

/* The planes of pack, unless a weight beyond BF16 or a scale would not come back. */
static size_t put_as_codes(struct tsr_block_coder *c, const struct slot *s, const float *x,
			   float *y, uint8_t *to, enum form *form)
{
	const struct tsr_coding coding = coding_of(s->kind);
	const struct tsr_block *b = &s->of->at;
	size_t nbytes = 0;

	encode_codes(&coding, x, b->n, c->plane);
	decode_codes(&coding, c->plane, b->n, y);
	if (!all_finite(y, b->n, false))
		return 0;
	*form = FORM_CODES;
	if (s->base) {
		const struct tsr_entropy_old old = old_codes(c, &coding, s->base, b->n);

		*form = FORM_CHANGES;
		nbytes = tsr_entropy_encode_differences(c->integers.e, &old, c->plane[0],
							c->plane[1], b->n, to, 3 * (size_t)b->n);
	}
	if (nbytes)
		return nbytes;
	*form = FORM_CODES;
	return put_codes(c, b, &coding, to);
}

/* One slot: in the form that its tier wants, else by pack's codec, else as it is. */
static size_t put_slot(struct tsr_block_coder *c, const struct slot *s,
		       const struct tsr_store_tier *tier, float eps, const float *x,
		       const float *variance, float *y, uint8_t *to, enum form *form)
{
	const struct tsr_block *b = &s->of->at;
	size_t nbytes = 0;

	if (tier->as == TSR_STORE_BOUNDS && s->kind == TSR_KIND_WEIGHT && s->base) {
		*form = FORM_STEPS;
		nbytes = put_quantized(
			c, b, tsr_quantize_steps(x, s->base, s->last, b->n, tier->weight, c->k, y),
			0, to);
	} else if (tier->as == TSR_STORE_BOUNDS && s->kind == TSR_KIND_MOMENTUM && s->root) {
		*form = FORM_RATIOS;
		nbytes = put_quantized(
			c, b,
			tsr_quantize_ratios(x, variance, s->root, b->n, eps, tier->update, c->k, y),
			eps, to);
	} else if (tier->as == TSR_STORE_BOUNDS && s->kind == TSR_KIND_VARIANCE) {
		*form = FORM_LOGS;
		nbytes = put_logs(c, b, tier->variance, x, y, to);
	}
	return nbytes ? nbytes : put_as_codes(c, s, x, y, to, form);
}

/* --- Errors ----------------------------------------------------------------------------------- */

static void add_errors(const struct tsr_block_of *of, const float *base,
		       const void *const elements[TSR_SLOTS], void *const decoded[TSR_SLOTS],
		       float eps, struct tsr_store_sums *sums)
{
	const float *const x[TSR_SLOTS] = { elements[0], elements[1] };
	const float *const y[TSR_SLOTS] = { decoded[0], decoded[1] };
	static tsr_differences_fn *const differences[] = TSR_ISA_VARIANTS(sum_differences);
	static tsr_distances_fn *const distances[] = TSR_ISA_VARIANTS(sum_distances);
	static tsr_errors_fn *const updates[] = TSR_ISA_VARIANTS(sum_update_errors);
	static tsr_roots_fn *const roots[] = TSR_ISA_VARIANTS(sum_root_errors);
	const unsigned isa = tsr_isa_level(), last = of->slots - 1;
	const size_t n = of->at.n;

	if (of->kind[0] == TSR_KIND_WEIGHT) {
		sums->rounded += differences[isa](x[0], y[0], n);
		sums->ulps += distances[isa](x[0], n);
		sums->moved += base ? differences[isa](x[0], base, n) : 0;
		sums->weights += base ? differences[isa](x[0], y[0], n) : 0;
	}
	if (of->slots == 2)
		sums->update += updates[isa](x, y, n, eps, &sums->updates);
	if (of->kind[last] == TSR_KIND_VARIANCE)
		sums->root += roots[isa](x[last], y[last], n, &sums->roots);
}

/* Sums of a block are compared as products, which differ from quotients in their last bits. */
#define ROUNDING (1 + 1e-12)

/* Whether a block that is not as its tier wants it, but in pack's codes, is within the bounds, too. */
static bool is_within(const struct tsr_store_tier *tier, const struct tsr_store_sums *s)
{
	return tier->as != TSR_STORE_BOUNDS || (s->weights <= tier->weight * ROUNDING * s->moved &&
						s->update <= tier->update * ROUNDING * s->updates &&
						s->root <= tier->variance * ROUNDING * s->roots);
}

/* --- Objects ---------------------------------------------------------------------------------- */

static void put_head(const struct tsr_block_of *of, const struct tsr_block_base *base, uint8_t *to)
{
	memset(to, 0, HEAD_NBYTES);
	to[0] = VERSION;
	to[1] = (uint8_t)of->slots;
	to[2] = (uint8_t)(base ? base->depth + 1 : 0);
	to[3] = (uint8_t)of->dtype;
	tsr_put_le(to + 4, of->at.n, 4);
	tsr_put_le(to + 8, of->at.columns, 4);
	tsr_put_le(to + 12,
		   (uint64_t)of->at.phase | (uint64_t)of->kind[0] << 24 |
			   (uint64_t)of->kind[1] << 28,
		   4);
	if (base) {
		tsr_put_le(to + 16, base->id.low, 8);
		tsr_put_le(to + 24, base->id.high, 8);
	}
}

const char *tsr_object_head(const uint8_t *bytes, size_t nbytes, struct tsr_object_head *ret)
{
	uint32_t place;

	if (nbytes < HEAD_NBYTES)
		return "its head ends early";
	if (bytes[0] != VERSION)
		return "it has a version that is not known";
	place = (uint32_t)tsr_get_le(bytes + 12, 4);
	*ret = (struct tsr_object_head){
		.of = { .at = { .n = (uint32_t)tsr_get_le(bytes + 4, 4),
				.columns = (uint32_t)tsr_get_le(bytes + 8, 4),
				.phase = place & 0xffffff },
			.slots = bytes[1],
			.kind = { (enum tsr_kind)(place >> 24 & 15), (enum tsr_kind)(place >> 28) },
			.dtype = (enum tsr_dtype)bytes[3] },
		.depth = bytes[2],
		.base = { tsr_get_le(bytes + 16, 8), tsr_get_le(bytes + 24, 8) },
	};
	if (ret->depth > TSR_STORE_CHAIN_MAX || !ret->depth != !(ret->base.low | ret->base.high))
		return "it has a base that its depth does not allow";
	return NULL;
}

static size_t put_slot_head(uint8_t *to, enum form form, size_t nbytes)
{
	tsr_put_le(to, form, 4);
	tsr_put_le(to + 4, nbytes, 4);
	return SLOT_NBYTES + nbytes;
}

/* Whether the weights are those of the last version to the precision of an exact one. */
static bool is_unchanged(struct tsr_block_coder *c, const float *x, const float *last, size_t n)
{
	const struct tsr_coding coding = coding_of(TSR_KIND_WEIGHT);

	if (memcmp(x, last, n * sizeof(*x)) == 0)
		return true;
	encode_codes(&coding, x, n, c->plane);
	decode_codes(&coding, c->plane, n, c->y);
	return memcmp(c->y, last, n * sizeof(*last)) == 0;
}

/* Of a momentum without a variance no bound says what its error does: it has pack's codes or its bits. */
static bool is_lossy(const struct tsr_block_of *of, const struct tsr_store_tier *tier,
		     const void *const x[TSR_SLOTS])
{
	if (tier->as == TSR_STORE_LOSSLESS || of->dtype != TSR_F32 || !of->kind[0] ||
	    (tier->as == TSR_STORE_BOUNDS && of->slots == 1 && of->kind[0] == TSR_KIND_MOMENTUM))
		return false;
	for (unsigned i = 0; i < of->slots; i++)
		if (!all_finite(x[i], of->at.n, of->kind[i] == TSR_KIND_VARIANCE))
			return false;
	return true;
}

/* The variance comes first, since momenta are ratios to what is stored of it. */
static size_t encode_slots(struct tsr_block_coder *c, const struct tsr_block_of *of,
			   const struct tsr_store_tier *tier, const struct tsr_block_base *base,
			   float eps, const void *const x[TSR_SLOTS], void *const y[TSR_SLOTS],
			   uint8_t *to, bool *uses_base)
{
	size_t used = 0;

	*uses_base = false;
	for (unsigned i = of->slots; i-- > 0;) {
		const struct slot s = { .of = of,
					.kind = of->kind[i],
					.base = base ? base->x : NULL,
					.last = base ? base->last : NULL,
					.root = i + 1 < of->slots ? y[1] : NULL };
		enum form form = FORM_BYTES;
		size_t nbytes = put_slot(c, &s, tier, eps, x[i], x[of->slots - 1], y[i],
					 to + used + SLOT_NBYTES, &form);

		if (!nbytes)
			return 0;
		*uses_base = *uses_base || form == FORM_STEPS || form == FORM_CHANGES;
		used += put_slot_head(to + used, form, nbytes);
	}
	return used;
}

static size_t encode_bytes(struct tsr_block_coder *c, const struct tsr_block_of *of,
			   const void *const x[TSR_SLOTS], void *const y[TSR_SLOTS], uint8_t *to)
{
	size_t used = 0;

	for (unsigned i = of->slots; i-- > 0;) {
		const size_t nbytes = tsr_entropy_encode(c->integers.e, tsr_entropy_kind(of->dtype),
							 x[i], of->at.n, to + used + SLOT_NBYTES);

		used += put_slot_head(to + used, FORM_BYTES, nbytes);
		if (y[i])
			memcpy(y[i], x[i], of->at.n * (size_t)tsr_dtype_bits(of->dtype) / 8);
	}
	return used;
}

size_t tsr_block_encode(struct tsr_block_coder *c, const struct tsr_block_of *of,
			const struct tsr_store_tier *tier, const struct tsr_block_base *base,
			float eps, const void *const x[TSR_SLOTS], void *const y[TSR_SLOTS],
			uint8_t *to, struct tsr_store_sums *sums)
{
	const bool lossy = is_lossy(of, tier, x);
	bool uses_base = false;
	size_t nbytes = 0;

	if (base && (!lossy || !all_finite(base->x, of->at.n, false)))
		base = NULL;
	if (base && is_unchanged(c, x[0], base->last, of->at.n)) {
		memcpy(y[0], base->last, of->at.n * sizeof(float));
		add_errors(of, NULL, x, y, eps, sums);
		return 0;
	}
	if (lossy)
		nbytes = encode_slots(c, of, tier, base, eps, x, y, to + HEAD_NBYTES, &uses_base);
	if (nbytes)
		add_errors(of, base && tier->as == TSR_STORE_BOUNDS ? base->last : NULL, x, y, eps,
			   sums);
	if (!nbytes || !is_within(tier, sums)) {
		uses_base = false;
		*sums = (struct tsr_store_sums){ 0 };
		nbytes = encode_bytes(c, of, x, y, to + HEAD_NBYTES);
	}
	put_head(of, uses_base ? base : NULL, to);
	return HEAD_NBYTES + nbytes;
}

static const char *get_slot(struct tsr_block_coder *c, const struct slot *s, enum form form,
			    const uint8_t *bytes, size_t nbytes, float *y)
{
	const struct tsr_block *b = &s->of->at;
	const struct tsr_coding coding = coding_of(s->kind);
	const char *wrong;

	if (form == FORM_STEPS || form == FORM_RATIOS)
		return get_quantized(c, b, bytes, nbytes, form == FORM_STEPS ? s->base : s->root,
				     form == FORM_RATIOS, y);
	if (form == FORM_LOGS)
		return get_logs(c, b, bytes, nbytes, y);
	if (form == FORM_CODES) {
		wrong = get_codes(c, b, &coding, bytes, nbytes);
	} else if (form == FORM_CHANGES && s->base && s->kind == TSR_KIND_WEIGHT) {
		const struct tsr_entropy_old old = old_codes(c, &coding, s->base, b->n);

		wrong = tsr_entropy_decode_differences(c->integers.e, &old, bytes, nbytes,
						       c->plane[0], c->plane[1], b->n);
	} else {
		return "it is stored in a form that is not known";
	}
	if (!wrong)
		decode_codes(&coding, c->plane, b->n, y);
	return wrong;
}

static bool is_same_block(const struct tsr_block_of *a, const struct tsr_block_of *b)
{
	return a->at.n == b->at.n && a->at.columns == b->at.columns && a->at.phase == b->at.phase &&
	       a->slots == b->slots && a->kind[0] == b->kind[0] && a->kind[1] == b->kind[1] &&
	       a->dtype == b->dtype;
}

const char *tsr_block_decode(struct tsr_block_coder *c, const struct tsr_block_of *of,
			     const uint8_t *bytes, size_t nbytes, const float *base,
			     void *const y[TSR_SLOTS])
{
	struct tsr_object_head head;
	const char *wrong = tsr_object_head(bytes, nbytes, &head);
	size_t used = HEAD_NBYTES;

	if (!wrong && !is_same_block(of, &head.of))
		wrong = "it is a block of another tensor";
	for (unsigned i = of->slots; !wrong && i-- > 0;) {
		const struct slot s = { .of = of,
					.kind = of->kind[i],
					.base = head.depth ? base : NULL,
					.root = i + 1 < of->slots ? y[1] : NULL };
		enum form form;
		uint64_t size;

		if (nbytes - used < SLOT_NBYTES)
			return "a tensor of it ends early";
		form = (enum form)tsr_get_le(bytes + used, 4);
		size = tsr_get_le(bytes + used + 4, 4);
		used += SLOT_NBYTES;
		if (size > nbytes - used)
			return "a tensor of it ends early";
		if (form == FORM_BYTES)
			wrong = tsr_entropy_decode(c->integers.e, tsr_entropy_kind(of->dtype),
						   bytes + used, (size_t)size, y[i], of->at.n);
		else if (of->dtype != TSR_F32 || !of->kind[i])
			wrong = "it is stored in a form for other tensors";
		else
			wrong = get_slot(c, &s, form, bytes + used, (size_t)size, y[i]);
		used += (size_t)size;
	}
	return wrong ? wrong : used != nbytes ? "there are bytes behind it" : NULL;
}
