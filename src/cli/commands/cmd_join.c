/* SPDX-License-Identifier: Apache-2.0 */
/* tersor join: the parts of a command into what one process would have made. */

#include "cli/parts/parting.h"
#include "io/temporary.h"

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	TSR_OWNED(free) char *path = tsr_path_trim(common->operands.items[0]);

	(void)cmd;
	if (!path)
		return cli_fail(CLI_IO, "out of memory for the command line");
	return cli_join(path, NULL, 0, common);
}

TSR_EMBED(help_join, "man/help/join.txt");

const struct cli_cmd cmd_join = {
	.name = "join",
	.summary = "put the parts of a command together",
	.operands = "OUT",
	.help = help_join,
	.takes = CLI_WORKS,
	.run = run,
};
