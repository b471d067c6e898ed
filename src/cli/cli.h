/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CLI_CLI_H
#define TSR_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/run.h"
#include "tersor/status.h"

/* Exit status; 128 + n on signal n. */
enum cli_exit {
	CLI_OK = 0,
	CLI_DIFFERS = 1, /* ran, and a comparison, bound or baseline failed */
	CLI_USAGE = 2,
	CLI_INPUT = 3, /* malformed or unsupported input */
	CLI_IO = 4, /* input/output error or out of resources */
};

/* --- Options -------------------------------------------------------------------------------- */

enum cli_type {
	CLI_FLAG, /* bool: set to true */
	CLI_COUNT, /* unsigned: one more each time */
	CLI_STRING, /* const char * */
	CLI_OPTIONAL, /* struct cli_optional: the argument may be left out */
	CLI_LIST, /* struct cli_list: may be given more than once */
	CLI_NUMBER, /* uint64_t, from min to max; suffixes K, M, G (KiB and so on) */
};

struct cli_optional {
	bool given;
	const char *value; /* NULL if left out */
};

struct cli_list {
	const char **items;
	unsigned n;
};

/* A row of a command's option table.  Parsing, --help and completion walk it. */
struct cli_opt {
	const char *name; /* long name; NULL ends the table */
	char key; /* short name, or 0 */
	const char *arg; /* what the argument is called; NULL for flags */
	enum cli_type type;
	size_t at; /* offset in the command's arguments */
	uint64_t min, max; /* of a CLI_NUMBER */
	const char
		*values; /* words for completion, or "@weight", "@momentum", "@variance", "@file";
			 * "@report": a file that is written, besides any output */
	const char *help;
};

/* What every command takes; the first member of each command's arguments. */
struct cli_common {
	bool help;
	struct cli_optional json;
	unsigned quiet, verbose;
	bool no_progress;
	uint64_t threads;
	struct cli_list operands;
};

struct cli_cmd {
	const char *name;
	const char *summary;
	const char *operands; /* for the usage line */
	const char *details; /* a paragraph for --help */
	const char *examples; /* lines for --help */
	const struct cli_opt *opts;
	bool long_work; /* takes -j and --no-progress */
	bool reports; /* takes --json, -q and -v */
	unsigned operands_min, operands_max;
	size_t args_nbytes;
	int (*run)(const struct cli_cmd *cmd, void *args);
};

/* The table of commands; NULL at the end. */
extern const struct cli_cmd *const cli_cmds[];

/* The options that this command takes besides its own; NULL-named at the end. */
const struct cli_opt *cli_common_opts(const struct cli_cmd *cmd);

/* Parse and run a command; argv[0] is its name.  Returns the exit status. */
int cli_run(const struct cli_cmd *cmd, int argc, char **argv);

void cli_print_help(const struct cli_cmd *cmd);
void cli_print_main_help(void);

/* The name nearest to a mistyped one, NULL if none is near.  `next` yields names until NULL. */
const char *cli_nearest(const char *wrong, const char *(*next)(void *ctx), void *ctx);

/* --- Messages ------------------------------------------------------------------------------- */

/* One line on stderr, escaped: "tersor: ...".  Returns `status` or CLI_USAGE. */
int cli_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(const struct cli_cmd *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A line "tersor: warning: ..." unless -q. */
void cli_warn(const struct cli_common *common, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* What the user can do about a failure, in the words of this tool: "; --force ...", or "". */
const char *cli_hint(const struct tsr_err *err);

/* Print why a library call failed and return the exit status that stands for it. */
int cli_error(const struct tsr_err *err);

/* --- Long work ------------------------------------------------------------------------------ */

/* Install handlers that make the work stop; cli_signal() is the signal that came, or 0. */
void cli_catch_signals(void);
int cli_signal(void);

struct cli_progress {
	const char *verb;
	bool shown;
	double started, printed;
	uint64_t done;
};

/* A run with -j's threads that can be interrupted and shows a bar on a terminal. */
struct tsr_run cli_run_start(struct cli_progress *p, const struct cli_common *common,
			     const char *verb);
void cli_run_end(struct cli_progress *p);

/* Seconds of a clock that only goes forward. */
double cli_seconds(void);

#endif
