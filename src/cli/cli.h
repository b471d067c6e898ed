/* SPDX-License-Identifier: Apache-2.0 */
/* What every command of the tool shares: options, messages and exit statuses. */
#ifndef TSR_CLI_CLI_H
#define TSR_CLI_CLI_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "tersor/checkpoint.h"
#include "text/nearest.h"

/*
 * The tool is src/cli, src/render, src/report and src/bench.  Only src/cli prints and exits.  Besides public
 * headers the tool includes these of the library, as it is linked with libtersor.a:
 *   base, io, text: arenas, clocks, failures, files, JSON, growing texts
 *   container/containers.h: how names of files end
 *   what results are made of: ckpt/checkpoint_model.h, compare/comparison.h, pack/packing.h,
 *   replay/replay_result.h, recording/recording_summary.h
 *   what reports say of them: audit/audit_figures.h and its like, compare/lost.h, names/copies, pack/outcome,
 *   replay/findings
 *   src/bench alone: entropy/entropy.h, format/safetensors.h, gpu/gpu_work.h, step/step.h
 */

/* Exit status; 128 + n on signal n. */
enum cli_exit {
	CLI_OK = 0,
	CLI_DIFFERS = 1, /* ran, and a comparison, bound or baseline failed */
	CLI_USAGE = 2,
	CLI_INPUT = 3, /* malformed or unsupported input */
	CLI_IO = 4, /* input/output error or out of resources */
};

/* Run `call`; forward its exit status to the caller of this function unless it is CLI_OK. */
#define CLI_TRY(call) \
	do { \
		const int try_status_ = (call); \
		if (try_status_ != CLI_OK) \
			return try_status_; \
	} while (0)

/* --- Options -------------------------------------------------------------------------------- */

enum cli_type {
	CLI_FLAG, /* bool: set to true */
	CLI_COUNT, /* unsigned: one more each time */
	CLI_STRING, /* const char * */
	CLI_WORD, /* const char *: one of the option's `values` */
	CLI_WORDS, /* const char *: one of them, or several with commas */
	CLI_OPTIONAL, /* struct cli_optional: a report, or a word of `values`, which may be left out */
	CLI_LIST, /* struct cli_list: may be given more than once */
	CLI_NUMBER, /* uint64_t, from min to max, or 0x...; suffixes K, M, G (KiB and so on) */
	CLI_REAL, /* double; from least to most unless both are 0 */
};

struct cli_optional {
	bool given;
	const char *value; /* NULL if left out */
};

struct cli_list {
	const char **items;
	unsigned n;
};

/* A row of an option table.  Parsing, --help and completion walk it. */
struct cli_opt {
	const char *name; /* long name; NULL ends the table */
	char key; /* short name, or 0 */
	const char *arg; /* what the argument is called; NULL for flags */
	enum cli_type type;
	size_t at; /* offset in the command's arguments */
	uint64_t min, max; /* of a CLI_NUMBER */
	double least, most; /* of a CLI_REAL */
	/*
	 * Words that the argument can be, separated by spaces; or "@weight", "@momentum",
	 * "@variance": the codecs for these, "@file", "@report": a file that is written besides
	 * any output.  NULL: anything.
	 */
	const char *values;
	/* Names of other options, with blanks between them; "name=word": if it has this word. */
	const char *needs; /* one of these has to be given, too */
	const char *excludes; /* none of these may be */
};

/*
 * Rows of these tables; a file that uses them defines AT(field), the offset of a field.  The last arguments
 * are values, or the ends of a range, and may go on with .needs and .excludes.
 */
#define CLI_OPT_NUMBER(name_, arg_, field, min_, ...) \
	{ \
		.name = name_, .arg = arg_, .type = CLI_NUMBER, .at = AT(field), .min = min_, \
		.max = __VA_ARGS__ \
	}
#define CLI_OPT_REAL(name_, arg_, field, least_, ...) \
	{ \
		.name = name_, .arg = arg_, .type = CLI_REAL, .at = AT(field), .least = least_, \
		.most = __VA_ARGS__ \
	}
#define CLI_OPT_KEY(name_, key_, arg_, type_, field, ...) \
	{ \
		.name = name_, .key = key_, .arg = arg_, .type = type_, .at = AT(field), \
		.values = __VA_ARGS__ \
	}
#define CLI_OPT(name, arg, type, field, ...) CLI_OPT_KEY(name, 0, arg, type, field, __VA_ARGS__)

/* Options that several commands take; bits of cli_cmd.takes. */
enum cli_takes {
	CLI_WRITES = 1, /* -o, --max-shard-size, -f, --dry-run */
	CLI_READS = 2, /* --follow-symlinks, --npy-dtype, --params, --params-from, --opaque */
	CLI_DRAWS = 4, /* --csv, --svg, --html */
	CLI_COMPUTES = 8, /* --device */
	CLI_WORKS = 16, /* -j, --no-progress */
	CLI_REPORTS = 32, /* --json, --color, -q, -v */
	CLI_PARTS = 128, /* --part, --continue */
	CLI_NUMBERS = 64, /* none: states that nothing settles are called by numbers, not refused */
};

/* An option as the command line has it; NULL: without a value. */
struct cli_given {
	const struct cli_opt *opt;
	const char *value;
};

/* The reports besides that for people; a page and a chart need a file. */
enum cli_report_kind { CLI_JSON, CLI_CSV, CLI_HTML, CLI_SVG, CLI_NREPORTS };

/* Their values; the first member of each command's arguments. */
struct cli_common {
	struct cli_given *given; /* all options, in their order */
	unsigned ngiven;
	bool help, brief; /* --help; -h, which is a screen of it */
	const char *output;
	uint64_t max_shard;
	bool force, dry_run;
	bool follow;
	const char *npy_dtype, *params, *params_from, *base, *opaque;
	struct tsr_open_options open; /* what CLI_READS options mean */
	struct cli_optional report[CLI_NREPORTS];
	const char *color;
	const char *device;
	uint64_t threads;
	bool no_progress;
	const char *part;
	bool continues;
	unsigned quiet, verbose;
	struct cli_list operands;
};

struct cli_cmd {
	const char *name;
	const char *summary;
	const char *operands; /* for the usage line, which says how many they are */
	const char *help; /* man/help: a paragraph, examples, and words for each option */
	const struct cli_opt *opts; /* its own; NULL for none */
	unsigned takes; /* enum cli_takes */
	bool output_needed; /* of a command with CLI_WRITES */
	bool (*name_output)(const char *in, char *out,
			    size_t room); /* without -o, of one input; or NULL */
	size_t args_nbytes; /* 0: struct cli_common is all */
	int (*run)(const struct cli_cmd *cmd, void *args);
};

/* The table of commands; NULL at the end. */
extern const struct cli_cmd *const cli_cmds[];

/* The one of this name, or NULL. */
const struct cli_cmd *cli_find(const char *name);

/*
 * The tool in three calls: hold the standard streams, catch signals and choose a SIMD level; run the
 * command that argv[1] names; close standard output.  Each returns an exit status; cli_finish() that of
 * what went before, unless closing fails.
 */
int cli_start(void);
int cli_dispatch(int argc, char **argv);
int cli_finish(int status);

/* Every option of a command, in the order of its help. */
struct cli_opts {
	const struct cli_opt *opt[64];
	unsigned n;
};

void cli_collect_opts(const struct cli_cmd *cmd, struct cli_opts *ret);

/* Whether the argument is the file of a report, or any file. */
bool cli_is_report(const struct cli_opt *o);
bool cli_is_path(const struct cli_opt *o);

/* Parse and run a command; argv[0] is its name.  Returns the exit status. */
int cli_run(const struct cli_cmd *cmd, int argc, char **argv);

/*
 * The output without -o: "DIR.packed" of a directory, "X.packed.safetensors" of "X.pt"; and back.  False if
 * the input has no such name.
 */
bool cli_name_packed(const char *in, char *out, size_t room);
bool cli_name_unpacked(const char *in, char *out, size_t room);

/* CLI_OK, or CLI_INPUT after a message that says where a recording goes. */
int cli_check_no_recording(const char *path);

/* Warn if a delta was written away from @base. */
void cli_warn_not_beside(const struct cli_common *common, const char *base);

/* CLI_OK, or CLI_IO after a message.  Neither a report nor an output lands on another option's file. */
int cli_check_paths(const struct cli_opts *opts, void *args);

/*
 * "-" among the inputs and as the output becomes the path of that standard stream.  CLI_OK, or CLI_USAGE
 * after a message where a stream cannot be what it is given for.
 */
int cli_take_streams(const struct cli_cmd *cmd, const struct cli_opts *all, void *args);

/* Whether an output or a report other than the one for people is on standard output. */
bool cli_fills_stdout(const struct cli_common *common);

/* Whether a file is called .json and is not empty, and is not a report of this tool. */
bool cli_is_other_json(const char *path);

/* The name of an option that is given and among @names, as .needs has them, or NULL; an output may be named
 * by default. */
const char *cli_given(const struct cli_common *common, const char *names);

/* Whether a word is one of those in @words, which spaces separate; TSR_STATE_PAIR is any with a slash. */
bool cli_is_among(const char *word, size_t len, const char *words);

/* A number that is not infinite, and nothing else. */
bool cli_parse_double(const char *text, double *ret);

/* Room for a word of a list. */
#define CLI_WORD_NBYTES 128

/*
 * Take the first word of a list with commas between words; longer ones than there is room for are cut.
 * *list_ref becomes what follows, NULL behind the last word; false: it was NULL.
 */
bool cli_next_word(const char **list_ref, char word[CLI_WORD_NBYTES]);

/* What --help says of an option; NULL if out of memory.  To be freed. */
char *cli_option_words(const struct cli_cmd *cmd, const struct cli_opt *o);

void cli_print_help(const struct cli_cmd *cmd, bool brief);
void cli_print_main_help(void);

/* --- Messages ------------------------------------------------------------------------------- */

/* One line on stderr, escaped: "tersor: ...".  Returns `status` or CLI_USAGE. */
int cli_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(const struct cli_cmd *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* That the wrong name is not a known @what ("option --max-error: unknown figure"); returns CLI_USAGE. */
int cli_unknown(const struct cli_cmd *cmd, const char *what, const struct tsr_nearest *nearest,
		const char *advice);

/* A line "tersor: warning: ..." unless -q. */
void cli_warn(const struct cli_common *common, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Whether a progress bar is on the terminal, which a signal that stops the program wipes. */
void cli_bar_shown(bool shown);

/* A line "tersor: note: ..." with -v: of what is as it should be. */
void cli_note(const struct cli_common *common, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Say so if what was lost makes updates bad (tsr_update_level()). */
struct tsr_lost;
void cli_warn_updates(const struct cli_common *common, const char *path, const struct tsr_lost *l);

/* What the user can do about a failure, in the words of this tool: "; --force ...", or "". */
const char *cli_hint(const struct tsr_err *err);

/* Print why a library call failed and return the exit status that stands for it. */
int cli_error(const struct tsr_err *err);

/* Install handlers for signals that stop the tool; cli_signal() is the one that came, or 0. */
void cli_catch_signals(void);
int cli_signal(void);

#endif
