/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_REPLAY_CURVES_H
#define TSR_REPLAY_CURVES_H

#include <stdbool.h>
#include <stddef.h>

#include "text/text.h"
#include "tersor/replay.h"

/* --- What is drawn ---------------------------------------------------------------------------- */

/* What a panel shows. */
struct tsr_curve_kind {
	enum tsr_figure_name figure;
	const char *title;
	const char *unit; /* of the axis: "NMSE", "ULP", "%" or "" */
	bool percent; /* of elements or groups */
	bool wide_log; /* a logarithmic axis even if one decade holds all */
	bool only_if_any; /* no panel where all is 0 */
};

/* A figure over steps; its arrays have a value per step, NaN where there is none. */
struct tsr_curve {
	const struct tsr_curve_kind *kind;
	double *total; /* of all tensors */
	double *worst; /* the largest of a tensor */
	size_t *tensor; /* which: an index of a parameter */
	double least, most; /* finite and above 0; least > most: there is none */
	bool zero, infinite; /* whether these occur */
};

#define TSR_CURVES_MAX 10

struct tsr_curves {
	const struct tsr_replay *replay;
	unsigned n;
	struct tsr_curve curve[TSR_CURVES_MAX];
	double *values; /* of all arrays */
	size_t *tensors;
};

/* Find the curves of a compared replay; false for no memory.  To be freed. */
bool tsr_curves_find(struct tsr_curves *c, const struct tsr_replay *r);
void tsr_curves_free(struct tsr_curves *c);

/* --- Drawing ---------------------------------------------------------------------------------- */

/* How a drawing is laid out. */
struct tsr_curves_layout {
	const char *id; /* of the svg element */
	int width; /* pixels */
	int columns; /* of panels */
};

/* The svg element; legible on light and on dark pages. */
void tsr_curves_put(const struct tsr_curves *c, const struct tsr_curves_layout *layout,
		    struct tsr_text *svg);

#endif
