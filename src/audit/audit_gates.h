/* SPDX-License-Identifier: Apache-2.0 */
/* Gates: limits that the codecs an audit says to use must meet. */
#ifndef TSR_AUDIT_GATES_H
#define TSR_AUDIT_GATES_H

#include "audit/audit_figures.h"
#include "text/text.h"

enum tsr_audit_gated {
	/* Of pairs of codecs. */
	TSR_GATED_UPDATE_NMSE,
	TSR_GATED_MAX_UPDATE, /* the largest |u| that comes back */
	TSR_GATED_EXPOSED,
	/* Of the codecs of each kind. */
	TSR_GATED_NMSE,
	TSR_GATED_ZEROED,
	TSR_GATED_STUCK,
	TSR_GATED_COUNT
};

struct tsr_audit_gate {
	enum tsr_audit_gated figure;
	unsigned
		quantile; /* below TSR_AUDIT_QUANTILES, over tensors; of the others there is one figure */
	double limit;
	const char *text; /* as it was given */
};

#define TSR_AUDIT_GATES_TEXT "update-nmse, max-update, exposed, nmse, zeroed or stuck"

/* "update-nmse=1e-3,p95"; without a quantile the maximum.  False if it is not a gate; @text is kept. */
bool tsr_audit_gate_parse(const char *text, struct tsr_audit_gate *ret);

/*
 * Whether the codecs of the verdict meet all gates; if there is none, the best pair and the codec of each
 * kind with the least error that hold all tensors.  If not, @out gets lines on what was missed.
 */
bool tsr_audit_gates_pass(const struct tsr_audit *a, const struct tsr_audit_gate *gates, unsigned n,
			  struct tsr_text *out);

#endif
