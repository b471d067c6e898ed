/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_SWEEP_FIGURE_H
#define TSR_SWEEP_FIGURE_H

#include <stdbool.h>

#include "text/text.h"
#include "tersor/sweep.h"

/*
 * Mean relative error against exponent, one line per codec: BF16 above, FP16 below.  The same bytes
 * on every machine.
 */

/* As an SVG file. */
void tsr_sweep_put_svg(const struct tsr_sweep *s, struct tsr_text *svg);

/* In a page of its own, with its values, the table and how to read it; needs no network. */
void tsr_sweep_put_html(const struct tsr_sweep *s, struct tsr_text *html);

/* --- What the two share ----------------------------------------------------------------------- */

/* How a drawing is laid out, in pixels. */
struct tsr_figure {
	const struct tsr_sweep *sweep;
	const char *id; /* of the svg element */
	int width;
	int panel_height;
	bool legend; /* beside each panel */
	bool all; /* also the lines that only a page can show */
};

/* The svg element. */
void tsr_figure_put(const struct tsr_figure *f, struct tsr_text *svg);

enum tsr_figure_panel { TSR_PANEL_BF16, TSR_PANEL_FP16, TSR_PANEL_COUNT };

/* The panel that shows this codec; TSR_PANEL_COUNT for none. */
enum tsr_figure_panel tsr_figure_panel_of(const struct tsr_codec *codec);

/* Whether a codec's line is drawn, and not just there to be switched on in a page. */
bool tsr_figure_shows(const struct tsr_sweep *s, const struct tsr_codec *codec);

/* A short line in the style of a codec's, in an svg element of its own: for legends of pages. */
void tsr_figure_put_sample(const struct tsr_sweep *s, unsigned codec, struct tsr_text *svg);

#endif
