/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of tsr_update_measure_add(). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "codec/loops.h"
#include "codec/simd/measure_lanes.h"

/* Elements between two folds of the 32-bit counts; four arrays of them stay in the L2 cache. */
#define BATCH 4096

/* IEEE 754 has one right answer for the root, as for + and /. */
INLINE f32xl root_of(const f32xl *v)
{
#if defined(__AVX__)
	return (f32xl)_mm256_sqrt_ps((__m256)*v);
#elif defined(__SSE2__)
	__m128 halves[2];
	f32xl root;

	memcpy(halves, v, sizeof(halves));
	halves[0] = _mm_sqrt_ps(halves[0]);
	halves[1] = _mm_sqrt_ps(halves[1]);
	memcpy(&root, halves, sizeof(root));
	return root;
#else
	f32xl root;

	for (int i = 0; i < LANES; i++)
		root[i] = sqrtf((*v)[i]);
	return root;
#endif
}

/* All bits set where a number, by its bits, is finite. */
INLINE i32xl finite_of(const i32xl *bits)
{
	return (i32xl)((u32xl)(*bits & (int32_t)TSR_F32_MAG) - TSR_F32_INF) >> 31;
}

/* The arrays of a batch. */
struct batch {
	const float *m, *v, *m_after, *v_after;
	size_t n;
};

struct sums {
	struct f64xl uu, dd, tt;
};

/* Of one batch. */
struct counts {
	counter undefined, exposed;
	i32xl max_before, max_after; /* as bits, which are ordered like the values */
};

/*
 * Elements whose updates are not all finite are left out where they are @looked_for; else they are as finite
 * as the sums that this leaves.
 */
INLINE void add_updates(struct sums *s, struct counts *c, const struct batch *b, float eps,
			bool looked_for)
{
	const i32xl zero = { 0 };
	struct f64xl uu = s->uu, dd = s->dd, tt = s->tt;
	counter undefined = { 0 }, exposed = { 0 };
	i32xl max_before = zero, max_after = zero;

	for (size_t i = 0; i < b->n; i += LANES) {
		f32xl m, v, m_after, v_after;

		load_f32(&m, b->m + i);
		load_f32(&v, b->v + i);
		load_f32(&m_after, b->m_after + i);
		load_f32(&v_after, b->v_after + i);

		const f32xl divisor = root_of(&v_after) + eps;
		const f32xl renewed = v_after + (v - v_after) * TSR_UPDATE_RENEWED;
		i32xl u = (i32xl)(m / (root_of(&v) + eps));
		i32xl w = (i32xl)(m_after / divisor);
		i32xl t = (i32xl)(m / (root_of(&renewed) + eps));

		if (looked_for) {
			const i32xl defined = finite_of(&u) & finite_of(&w) & finite_of(&t);
			const i32xl not = ~defined;

			u &= defined;
			w &= defined;
			t &= defined;
			count(&undefined, &not );
		}

		const i32xl before = u & (int32_t)TSR_F32_MAG, after = w & (int32_t)TSR_F32_MAG;
		const f32xl uf = (f32xl)u, d = uf - (f32xl)w, e = uf - (f32xl)t;
		const i32xl zeroed = not_zero(&v) & ~not_zero(&v_after) & not_zero(&m_after);
		struct f64xl uw, dw, ew;

		widen(&uw, &uf);
		widen(&dw, &d);
		widen(&ew, &e);
		add_product(&uu, &uw, &uw);
		add_product(&dd, &dw, &dw);
		add_product(&tt, &ew, &ew);
		max_i32(&max_before, &before);
		max_i32(&max_after, &after);
		count(&exposed, &zeroed);
	}
	s->uu = uu;
	s->dd = dd;
	s->tt = tt;
	*c = (struct counts){ undefined, exposed, max_before, max_after };
}

LOOP void add_all(struct sums *s, struct counts *c, const struct batch *b, float eps)
{
	add_updates(s, c, b, eps, false);
}

LOOP void add_defined(struct sums *s, struct counts *c, const struct batch *b, float eps)
{
	add_updates(s, c, b, eps, true);
}

/* The rare batch in which an update is not finite. */
static void add_undefined(struct tsr_update_measure *u, const struct batch *b, float eps)
{
	for (size_t i = 0; i < b->n; i++) {
		const float before = b->m[i] / (sqrtf(b->v[i]) + eps);
		const float after = b->m_after[i] / (sqrtf(b->v_after[i]) + eps);
		const float renewed = b->v_after[i] +
				      (b->v[i] - b->v_after[i]) * TSR_UPDATE_RENEWED;
		const float later = b->m[i] / (sqrtf(renewed) + eps);
		const bool defined = fabsf(before) <= FLT_MAX;

		u->nonfinite += !defined;
		u->overflow += defined && !(fabsf(after) <= FLT_MAX && fabsf(later) <= FLT_MAX);
	}
}

static bool is_finite(const struct sums *s)
{
	const f64xh total = s->uu.low + s->uu.high + s->dd.low + s->dd.high + s->tt.low +
			    s->tt.high;
	bool finite = true;

	for (int i = 0; i < LANES / 2; i++)
		finite = finite && total[i] <= DBL_MAX;
	return finite;
}

static void add_batch(struct tsr_update_measure *u, struct sums *s, const struct batch *b,
		      float eps)
{
	const struct sums before = *s;
	struct counts c;

	add_all(s, &c, b, eps);
	if (!is_finite(s)) {
		*s = before;
		add_defined(s, &c, b, eps);
	}
	u->exposed += counter_value(&c.exposed);
	u->max_before = tsr_max_magnitude(u->max_before,
					  tsr_f32_from_bits((uint32_t)lane_max(&c.max_before)));
	u->max_after = tsr_max_magnitude(u->max_after,
					 tsr_f32_from_bits((uint32_t)lane_max(&c.max_after)));
	if (counter_value(&c.undefined))
		add_undefined(u, b, eps);
}

/* The tail, padded with updates of 0 / (0 + eps), which add nothing. */
static void add_tail(struct tsr_update_measure *u, struct sums *s, const struct batch *rest,
		     float eps)
{
	float x[4][LANES] = { { 0 } };
	const size_t nbytes = rest->n * sizeof(float);

	memcpy(x[0], rest->m, nbytes);
	memcpy(x[1], rest->v, nbytes);
	memcpy(x[2], rest->m_after, nbytes);
	memcpy(x[3], rest->v_after, nbytes);
	add_batch(u, s, &(struct batch){ x[0], x[1], x[2], x[3], LANES }, eps);
}

void TSR_FOR_ISA(update_measure_add)(struct tsr_update_measure *u, const struct tsr_moments *before,
				     const struct tsr_moments *after, size_t n, float eps)
{
	const float least = eps > FLT_MIN ? eps : FLT_MIN;
	struct sums s;

	memcpy(&s.uu, u->sum_uu, sizeof(s.uu));
	memcpy(&s.dd, u->sum_dd, sizeof(s.dd));
	memcpy(&s.tt, u->sum_tt, sizeof(s.tt));
	for (size_t i = 0, some; i < n; i += some) {
		const size_t whole = (n - i) - (n - i) % LANES;
		struct batch b = { before->m + i, before->v + i, after->m + i, after->v + i, 0 };

		some = whole > BATCH ? BATCH : whole ? whole : n - i;
		b.n = some;
		if (whole)
			add_batch(u, &s, &b, least);
		else
			add_tail(u, &s, &b, least);
	}
	u->n += n;
	memcpy(u->sum_uu, &s.uu, sizeof(s.uu));
	memcpy(u->sum_dd, &s.dd, sizeof(s.dd));
	memcpy(u->sum_tt, &s.tt, sizeof(s.tt));
}
