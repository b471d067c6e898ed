/* SPDX-License-Identifier: Apache-2.0 */
/* The curves of a replay: each figure over steps, of all tensors and of the worst. */
#ifndef TSR_REPORT_REPLAY_CURVES_H
#define TSR_REPORT_REPLAY_CURVES_H

#include <stdbool.h>
#include <stddef.h>

#include "report/charts/plot.h"
#include "tersor/replay.h"

/* What a panel shows. */
struct tsr_curve_kind {
	enum tsr_figure_name figure;
	const char *title;
	const char *unit; /* of the axis: "NMSE", "ULP", "%" or "" */
	const char *key, *shown; /* in tables */
	bool percent; /* of elements or groups */
	bool wide_log; /* a logarithmic axis even for one decade */
	bool only_if_any; /* no panel if all values are 0 */
};

/* The count that is 100% of a parameter, or of all for SIZE_MAX; 0 if unknown. */
uint64_t tsr_curve_whole(const struct tsr_curve_kind *kind, const struct tsr_replay *r,
			 size_t param);

/* A figure over steps; arrays have a value per step, or NaN. */
struct tsr_curve {
	const struct tsr_curve_kind *kind;
	double *total; /* of all tensors */
	double *worst; /* the largest of a tensor */
	size_t *tensor; /* the index of that parameter */
	struct tsr_axis y; /* with all values noted */
};

#define TSR_CURVES_MAX 10

struct tsr_curves {
	const struct tsr_replay *replay;
	unsigned n;
	struct tsr_curve curve[TSR_CURVES_MAX];
	double *values; /* of all arrays */
	size_t *tensors;
};

/* The step with the largest total, and that with the largest of a tensor; SIZE_MAX if all are 0. */
size_t tsr_curve_worst(const struct tsr_curve *c, size_t nsteps);
size_t tsr_curve_worst_step(const struct tsr_curve *c, size_t nsteps);

/* The largest value of a parameter over the steps; NaN if it has none. */
double tsr_curve_largest(const struct tsr_curve *c, const struct tsr_replay *r, size_t param);

/* Find the curves of a compared replay; false if out of memory.  To be freed. */
bool tsr_curves_find(struct tsr_curves *c, const struct tsr_replay *r);
void tsr_curves_free(struct tsr_curves *c);

#endif
