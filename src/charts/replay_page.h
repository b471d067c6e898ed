/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a replay: findings, charts, their values and tables, in one file. */
#ifndef TSR_REPORT_REPLAY_PAGE_H
#define TSR_REPORT_REPLAY_PAGE_H

#include "tersor/replay.h"
#include "text/text.h"

void tsr_replay_put_html(const struct tsr_replay *r, struct tsr_text *html);

#endif
