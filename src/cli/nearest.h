/* SPDX-License-Identifier: Apache-2.0 */
/* The known name nearest to a mistyped one. */
#ifndef TSR_CLI_NEAREST_H
#define TSR_CLI_NEAREST_H

#include "cli/cli.h"

/* A list of names: `next` yields one after the other, then NULL. */
struct cli_names {
	const char *(*next)(void *ctx);
	void *ctx;
};

/* The name nearest to @wrong; NULL if none is near. */
const char *cli_nearest(const char *wrong, const struct cli_names *names);

/* Say that @wrong is not a known @what ("option --gate: unknown figure"); returns CLI_USAGE. */
int cli_unknown(const struct cli_cmd *cmd, const char *what, const char *wrong,
		const struct cli_names *names, const char *advice);

#endif
