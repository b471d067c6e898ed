/* SPDX-License-Identifier: Apache-2.0 */
/* What the figures of a replay say, in words. */
#ifndef TSR_REPLAY_FINDINGS_H
#define TSR_REPLAY_FINDINGS_H

#include "tersor/replay.h"

/* How serious a finding is. */
enum tsr_finding_level { TSR_FINDING_FINE, TSR_FINDING_WATCH, TSR_FINDING_BAD };

/* "fine", "watch", "bad". */
const char *tsr_finding_level_name(enum tsr_finding_level level);

struct tsr_finding {
	enum tsr_finding_level level;
	char text[768]; /* a sentence or two, safe to print */
};

#define TSR_FINDINGS_MAX 8

struct tsr_findings {
	unsigned n;
	struct tsr_finding item[TSR_FINDINGS_MAX];
};

/* What the figures of a compared replay say, in words, by the thresholds of report/replay_figures.h. */
void tsr_replay_find(const struct tsr_replay *r, struct tsr_findings *ret);

/* The first of the gravest, in @findings; NULL if there is none. */
const struct tsr_finding *tsr_gravest_finding(const struct tsr_replay *r,
					      struct tsr_findings *findings);

#endif
