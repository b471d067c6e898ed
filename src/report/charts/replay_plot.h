/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of figures over steps: axes, limits and lines. */
#ifndef TSR_REPLAY_PLOT_H
#define TSR_REPLAY_PLOT_H

#include "report/charts/chart.h"
#include "report/charts/replay_curves.h"

/* Height of a panel in tenths of a pixel. */
#define TSR_PLOT_HEIGHT 2350

/* The most steps for which lines may be dashed: markers and dashes need room. */
#define TSR_PLOT_DASHED 400

/* Colours are repeated for dark pages, as not every SVG viewer knows variables. */
#define TSR_PLOT_STYLE \
	".curves text{font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;" \
	"fill:#222}.curves .title{font-weight:600;font-size:13px}.curves .unit{font-weight:400}" \
	".curves .tick,.curves .note,.curves .unit{fill:#555;font-size:11px}" \
	".curves .note{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}" \
	".curves .up{font-size:8px}.curves .mid{text-anchor:middle}" \
	".curves .end{text-anchor:end}.curves .page{fill:#fff}.curves .grid{stroke:#e3e3e3}" \
	".curves .axis{stroke:#555}.curves .limit{stroke:#777;stroke-dasharray:2 3}" \
	".curves path{stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}" \
	".curves .marker{fill:#fff;stroke-width:1.3}" \
	"@media(prefers-color-scheme:dark){.curves text{fill:#e6e6e6}" \
	".curves .tick,.curves .note,.curves .unit{fill:#aab0b8}.curves .page{fill:#16191d}" \
	".curves .grid{stroke:#30353c}.curves .axis{stroke:#aab0b8}.curves .limit{stroke:#8a9099}" \
	".curves .marker{fill:#16191d}.curves .note{stroke:#16191d}}"

struct tsr_plot {
	struct tsr_chart_area area; /* the bottom is the x axis */
	struct tsr_chart_scale x, y; /* indices of steps; values */
	int floor, ceiling; /* where 0 and infinity are drawn */
	double step; /* between ticks of a linear y axis */
	int nticks; /* besides 0 */
	size_t nsteps;
};

/* A panel with its title and axes, for values in the range of @c over the steps of @r. */
struct tsr_plot tsr_plot_open(struct tsr_text *svg, const struct tsr_replay *r,
			      const struct tsr_curve *c, unsigned panel, int left, int top,
			      int width);

/* A line through @values, one per step, with markers where there are few. */
void tsr_plot_put_line(struct tsr_text *svg, const struct tsr_plot *p, const char *class,
		       const double *values, unsigned shape);

/* The thresholds of its figure, and the end of the panel. */
void tsr_plot_close(struct tsr_text *svg, const struct tsr_plot *p, const struct tsr_curve *c);

#endif
