/* SPDX-License-Identifier: Apache-2.0 */
/* The tool without its main(): commands, standard streams and exit statuses. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "cli/cli.h"
#include "base/isa.h"
#include "io/pages.h"

extern const struct cli_cmd cmd_pack, cmd_unpack, cmd_inspect, cmd_verify, cmd_diff, cmd_convert,
	cmd_sweep, cmd_audit, cmd_replay, cmd_codecs, cmd_codebook, cmd_bench, cmd_completion,
	cmd_version, cmd_apply, cmd_join, cmd_store, cmd_bisect;

const struct cli_cmd *const cli_cmds[] = {
	&cmd_pack,    &cmd_unpack,     &cmd_inspect, &cmd_verify, &cmd_diff,
	&cmd_convert, &cmd_apply,      &cmd_join,    &cmd_store,  &cmd_audit,
	&cmd_sweep,   &cmd_replay,     &cmd_bisect,  &cmd_codecs, &cmd_codebook,
	&cmd_bench,   &cmd_completion, &cmd_version, NULL,
};

const struct cli_cmd *cli_find(const char *name)
{
	for (const struct cli_cmd *const *c = cli_cmds; *c; c++) {
		if (strcmp((*c)->name, name) == 0)
			return *c;
	}
	return NULL;
}

static int unknown_command(const char *name)
{
	struct tsr_nearest nearest = { .wrong = name };

	for (const struct cli_cmd *const *c = cli_cmds; *c; c++)
		tsr_nearest_offer(&nearest, (*c)->name);
	if (nearest.name)
		return cli_fail(CLI_USAGE, "unknown command '%s'; did you mean '%s'?", name,
				nearest.name);
	return cli_fail(CLI_USAGE, "unknown command '%s' (see 'tersor --help')", name);
}

int cli_dispatch(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct cli_cmd *cmd;

	if (!name)
		return cli_fail(CLI_USAGE, "no command (see 'tersor --help')");
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
	    (strcmp(name, "help") == 0 && argc == 2)) {
		cli_print_main_help();
		return CLI_OK;
	}
	if (strcmp(name, "help") == 0) {
		cmd = cli_find(argv[2]);
		if (!cmd)
			return unknown_command(argv[2]);
		cli_print_help(cmd, false);
		return CLI_OK;
	}
	if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
		name = "version";
	cmd = cli_find(name);
	return cmd ? cli_run(cmd, argc - 1, argv + 1) : unknown_command(name);
}

int cli_start(void)
{
	const char *isa = getenv("TERSOR_ISA");

	/*
	 * The next file opened would take the number of a closed standard descriptor.  /dev/null takes it
	 * first, read-only, so writing results to a closed stdout is still an error.
	 */
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", O_RDONLY) != fd)
			abort();
	}
	cli_catch_signals();
	tsr_pages_map_large();
	if (!isa || !*isa || tsr_isa_select(isa))
		return CLI_OK;
	return cli_fail(CLI_USAGE,
			"TERSOR_ISA: no SIMD level '%s' in this build or on this processor", isa);
}

int cli_finish(int status)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };

	/* A report that did not reach stdout is an error; whoever closed a pipe, as head does, knows. */
	if (fflush(stdout) != 0 || ferror(stdout) || fclose(stdout) != 0) {
		const char *why = strerror(errno);

		if (poll(&out, 1, 0) != 1 || !(out.revents & POLLERR))
			cli_fail(CLI_IO, "standard output: %s", why);
		if (status == CLI_OK)
			status = CLI_IO;
	}
	return status;
}
