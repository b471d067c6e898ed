/* SPDX-License-Identifier: Apache-2.0 */
/* The entry point. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
	int status = cli_start();

	if (status == CLI_OK)
		status = cli_dispatch(argc, argv);
	return cli_finish(status);
}
