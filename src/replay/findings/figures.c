/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a replay's figures, and the error that a gate limits. */
#include "tersor/replay.h"
#include "text/bytes.h"

static const char *const names[TSR_FIGURE_COUNT] = {
	[TSR_FIGURE_WEIGHT_ULP] = "weight-ulp",
	[TSR_FIGURE_WEIGHT_NMSE] = "weight-nmse",
	[TSR_FIGURE_WEIGHT_COSINE] = "weight-cosine",
	[TSR_FIGURE_MOMENTUM_NMSE] = "momentum-nmse",
	[TSR_FIGURE_VARIANCE_NMSE] = "variance-nmse",
	[TSR_FIGURE_MOMENTUM_QUANT] = "momentum-quant",
	[TSR_FIGURE_VARIANCE_QUANT] = "variance-quant",
	[TSR_FIGURE_UPDATE_NMSE] = "update-nmse",
	[TSR_FIGURE_UPDATE_QUANT] = "update-quant",
	[TSR_FIGURE_UPDATE_NORM] = "update-norm",
	[TSR_FIGURE_STALLED] = "stalled",
	[TSR_FIGURE_UNDERFLOW] = "underflow",
	[TSR_FIGURE_VARIANCE_LOST] = "variance-lost",
};

const char *tsr_figure_name(enum tsr_figure_name name)
{
	return names[name];
}

bool tsr_figure_find(const char *name, enum tsr_figure_name *name_ret)
{
	return TSR_FIND_NAME(name, names, name_ret);
}

double tsr_figure_error(const struct tsr_replay_figures *f, enum tsr_figure_name name)
{
	return name == TSR_FIGURE_WEIGHT_COSINE ? 1 - f->value[name] : f->value[name];
}
