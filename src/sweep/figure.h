/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_SWEEP_FIGURE_H
#define TSR_SWEEP_FIGURE_H

#include "base/text.h"
#include "tersor/sweep.h"

/* Mean relative error against exponent, as an SVG file. */
void tsr_sweep_put_svg(const struct tsr_sweep *s, struct tsr_text *svg);

/* The same figure in a page of its own, with its values and the table; needs no network. */
void tsr_sweep_put_html(const struct tsr_sweep *s, struct tsr_text *html);

#endif
