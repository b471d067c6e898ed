/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep/figure.h"
void tsr_sweep_put_html(const struct tsr_sweep *s, struct tsr_text *html)
{
	(void)s;
	tsr_text_puts(html, "<html></html>\n");
}
