/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep/figure.h"
void tsr_sweep_put_svg(const struct tsr_sweep *s, struct tsr_text *svg)
{
	(void)s;
	tsr_text_puts(svg, "<svg/>\n");
}
void tsr_sweep_put_html(const struct tsr_sweep *s, struct tsr_text *html)
{
	(void)s;
	tsr_text_puts(html, "<html></html>\n");
}
