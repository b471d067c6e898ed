/* SPDX-License-Identifier: Apache-2.0 */
/* The known name nearest to a mistyped one. */
#ifndef TSR_CLI_NEAREST_H
#define TSR_CLI_NEAREST_H

#include "cli/cli.h"

/* A search: set `wrong`, offer every known name, then read `name`. */
struct cli_nearest {
	const char *wrong;
	const char *name; /* the nearest one so far; NULL if none is near */
	unsigned distance;
};

void cli_nearest_offer(struct cli_nearest *nearest, const char *name);

/* Say that the wrong name is not a known @what ("option --gate: unknown figure"); returns CLI_USAGE. */
int cli_unknown(const struct cli_cmd *cmd, const char *what, const struct cli_nearest *nearest,
		const char *advice);

#endif
