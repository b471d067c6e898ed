/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/report.h"

void tsr_replay_put_svg(const struct tsr_replay *r, struct tsr_text *svg)
{
	(void)r;
	tsr_text_puts(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n");
}

void tsr_replay_put_html(const struct tsr_replay *r, struct tsr_text *html)
{
	(void)r;
	tsr_text_puts(html, "<!DOCTYPE html>\n");
}
