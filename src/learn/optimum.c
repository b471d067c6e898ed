/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that a histogram is best rounded to, by dynamic programming over its nonempty bins.
 *
 * A cluster is a run of bins from one up to before another, and costs the sum of count (a - c)^2 over
 * its bins, a being the centre of a bin times the number of all bins: an integer.  c is the mean, or
 * for the first and the last cluster a value of -1 and 1.  Sums are exact integers, so a cost is three
 * FP64 operations.
 *
 * These costs satisfy the quadrangle inequality: the later the bins a cluster begins with, the less a
 * further bin at its end adds.  So in each layer the lowest best beginning of the last cluster does not
 * decrease with its end, and those of both halves lie on the two sides of that in the middle.  Nor does
 * it decrease from layer to layer, with the same end.
 */
#include "learn/histogram.h"

#include <math.h>

#include "base/fail.h"
#include "learn/wide.h"

#define NBINS TSR_HISTOGRAM_BINS

/* Sums over the bins before each, as unsigned so that they may wrap: differences are exact. */
struct sums {
	uint64_t n[NBINS + 1], na[NBINS + 1];
	tsr_u128 naa[NBINS + 1];
};

struct programme {
	unsigned k, b; /* clusters and nonempty bins */
	int32_t edge; /* all bins: a value of 1 */
	bool forced;
	int32_t a[NBINS]; /* of the nonempty bins */
	struct sums sums;
	double costs[2][NBINS + 1];
	double *cost; /* of the bins before each in the clusters of the layer before */
	double *next; /* and of this layer */
	uint16_t beginning[]; /* per layer and end: of its last cluster */
};

static void add_up(struct programme *p, const uint64_t *count)
{
	struct sums *s = &p->sums;

	for (int32_t i = 0; i < p->edge; i++) {
		const int64_t a = 2 * i + 1 - p->edge;
		const unsigned b = p->b;

		if (!count[i])
			continue;
		p->a[b] = (int32_t)a;
		s->n[b + 1] = s->n[b] + count[i];
		s->na[b + 1] = s->na[b] + count[i] * (uint64_t)a;
		s->naa[b + 1] = s->naa[b] + (tsr_u128)count[i] * (uint64_t)(a * a);
		p->b++;
	}
}

/* Of the bins from @from up to before @to, around their mean. */
static inline double mean_cost(const struct sums *s, unsigned from, unsigned to)
{
	const double n = (double)(int64_t)(s->n[to] - s->n[from]);
	const double na = (double)(int64_t)(s->na[to] - s->na[from]);

	return (double)(s->naa[to] - s->naa[from]) - na * na / n;
}

/* The same around @c. */
static double fixed_cost(const struct sums *s, unsigned from, unsigned to, int64_t c)
{
	const tsr_i128 n = (tsr_i128)(s->n[to] - s->n[from]);
	const tsr_i128 na = (int64_t)(s->na[to] - s->na[from]);

	return (double)((tsr_i128)(s->naa[to] - s->naa[from]) - 2 * c * na + c * c * n);
}

static inline double cost_of(const struct programme *p, unsigned layer, unsigned from, unsigned to)
{
	if (p->forced && layer == p->k)
		return fixed_cost(&p->sums, from, to, p->edge);
	return mean_cost(&p->sums, from, to);
}

/* The lowest best beginning of the last of @layer clusters, which ends before @to. */
static unsigned best_beginning(struct programme *p, unsigned layer, unsigned to, unsigned low,
			       unsigned high)
{
	double least = INFINITY;
	unsigned best = low;

	for (unsigned from = low; from <= high; from++) {
		const double cost = p->cost[from] + cost_of(p, layer, from, to);

		if (cost < least) {
			least = cost;
			best = from;
		}
	}
	p->next[to] = least;
	p->beginning[(size_t)layer * (NBINS + 1) + to] = (uint16_t)best;
	return best;
}

/* Ends from @first to @last, whose best beginnings are from @low to @high. */
static void divide(struct programme *p, unsigned layer, unsigned first, unsigned last, unsigned low,
		   unsigned high)
{
	const unsigned mid = first + (last - first) / 2;
	const unsigned before = p->beginning[(size_t)(layer - 1) * (NBINS + 1) + mid];
	const unsigned best = best_beginning(p, layer, mid, before > low ? before : low,
					     high < mid - 1 ? high : mid - 1);

	if (first < mid)
		divide(p, layer, first, mid - 1, low, best);
	if (mid < last)
		divide(p, layer, mid + 1, last, best, high);
}

/* The ends of a layer leave a bin for each cluster to come. */
static void run_layer(struct programme *p, unsigned layer)
{
	const unsigned last = p->b - (p->k - layer), first = layer == p->k ? last : layer;

	divide(p, layer, first, last, layer - 1, last - 1);
}

/* The means of the clusters, from the last to the first. */
static void take_means(const struct programme *p, float *value)
{
	const struct sums *s = &p->sums;
	unsigned to = p->b;

	for (unsigned layer = p->k; layer > 0; layer--) {
		const unsigned from = layer == 1 ? 0
						 : p->beginning[(size_t)layer * (NBINS + 1) + to];
		const double n = (double)(s->n[to] - s->n[from]);

		value[layer - 1] = (float)((double)(int64_t)(s->na[to] - s->na[from]) /
					   (n * p->edge));
		to = from;
	}
}

enum tsr_status tsr_optimum(const uint64_t *count, unsigned nbins, unsigned k, bool forced,
			    float *value, struct tsr_err *err)
{
	const size_t n = (size_t)(k + 1) * (NBINS + 1);
	TSR_OWNED(free) struct programme *p = calloc(1, sizeof(*p) + n * sizeof(*p->beginning));

	if (!p)
		return tsr_fail_nomem(err, "codebook");
	p->k = k;
	p->edge = (int32_t)nbins;
	p->forced = forced;
	p->cost = p->costs[0];
	p->next = p->costs[1];
	add_up(p, count);
	if (p->b <= k) {
		/* Every bin is a value, and the last one all that are left. */
		for (unsigned i = 0; i < p->k; i++)
			value[i] = p->b ? (float)p->a[i < p->b ? i : p->b - 1] / (float)p->edge
					: 0.0f;
	} else {
		for (unsigned to = 1; to <= p->b; to++)
			p->cost[to] = p->forced ? fixed_cost(&p->sums, 0, to, -p->edge)
						: mean_cost(&p->sums, 0, to);
		for (unsigned layer = 2; layer <= p->k; layer++) {
			double *swap = p->cost;

			run_layer(p, layer);
			p->cost = p->next;
			p->next = swap;
		}
		take_means(p, value);
	}
	if (forced) {
		value[0] = -1.0f;
		value[k - 1] = 1.0f;
	}
	return TSR_OK;
}

double tsr_optimum_nmse(const uint64_t *count, unsigned nbins, const float *value, unsigned k)
{
	double error = 0, total = 0;
	unsigned at = 0;

	for (unsigned i = 0; i < nbins; i++) {
		const double centre = (2.0 * i + 1 - nbins) / nbins;
		double off;

		while (at + 1 < k &&
		       fabs(centre - (double)value[at + 1]) < fabs(centre - (double)value[at]))
			at++;
		off = centre - (double)value[at];
		error += (double)count[i] * off * off;
		total += (double)count[i] * centre * centre;
	}
	return total > 0 ? error / total : 0;
}
