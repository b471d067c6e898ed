/* SPDX-License-Identifier: Apache-2.0 */
/* tersor join: the parts of a command into what one process would have made. */

#include "cli/parts/parting.h"
#include "io/temporary.h"

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	char *path = tsr_path_trim(common->operands.items[0]);
	int status;

	(void)cmd;
	if (!path)
		return cli_fail(CLI_IO, "out of memory for the command line");
	status = cli_join(path, NULL, 0, common);
	free(path);
	return status;
}

const struct cli_cmd cmd_join = {
	.name = "join",
	.summary = "put the parts of a command together",
	.operands = "OUT",
	.details =
		"After all N processes of a command with --part I/N have ended, writes what one "
		"process without --part would have written, to the byte: OUT is the output of the "
		"command, or of one without output the report of its --json. Checks that all "
		"parts are there and are of one command, on the same inputs, which it opens "
		"again. Prints the report and has the exit status of the one process, then "
		"removes the parts. Runs where the parts ran, or where the same relative paths "
		"lead to the same files.",
	.examples = "  for i in 1 2; do tersor pack big.pt -o o --part $i/2; done; "
		    "tersor join o\n",
	.takes = CLI_WORKS,
	.run = run,
};
