/* SPDX-License-Identifier: Apache-2.0 */
/* Errors and warnings on stderr, and the signals that stop the tool. */
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include "cli/cli.h"
#include "compare/lost.h"
#include "io/temporary.h"
#include "tersor/escape.h"

static void print_line(const char *lead, const char *fmt, va_list ap)
{
	char raw[2 * TSR_ERR_MAX], safe[2 * TSR_ERR_MAX];

	vsnprintf(raw, sizeof(raw), fmt, ap);
	tsr_escape(safe, sizeof(safe), raw);
	fprintf(stderr, "tersor: %s%s\n", lead, safe);
}

int cli_fail(int status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line("", fmt, ap);
	va_end(ap);
	return status;
}

int cli_usage(const struct cli_cmd *cmd, const char *fmt, ...)
{
	char raw[TSR_ERR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	return cli_fail(CLI_USAGE, "%s: %s (see 'tersor %s --help')", cmd->name, raw, cmd->name);
}

int cli_unknown(const struct cli_cmd *cmd, const char *what, const struct tsr_nearest *nearest,
		const char *advice)
{
	if (nearest->name)
		return cli_usage(cmd, "%s '%s'; did you mean '%s'?", what, nearest->wrong,
				 nearest->name);
	return cli_usage(cmd, "%s '%s'%s", what, nearest->wrong, advice);
}

void cli_warn(const struct cli_common *common, const char *fmt, ...)
{
	va_list ap;

	if (common->quiet)
		return;
	va_start(ap, fmt);
	print_line("warning: ", fmt, ap);
	va_end(ap);
}

void cli_note(const struct cli_common *common, const char *fmt, ...)
{
	va_list ap;

	if (!common->verbose || common->quiet)
		return;
	va_start(ap, fmt);
	print_line("note: ", fmt, ap);
	va_end(ap);
}

void cli_warn_updates(const struct cli_common *common, const char *path, const struct tsr_lost *l)
{
	if (l->nbad)
		cli_warn(common,
			 "%s: packed so, the updates of %" PRIu64 " of %" PRIu64
			 " tensors are 10%% of their length off or more, at most %.3g%% (NMSE "
			 "%.2g: %s); 'tersor audit' finds codecs that keep them",
			 path, l->nbad, l->nupdates, 100 * sqrt(l->nmse), l->nmse, l->worst);
	if (l->lr > 0 && l->step >= 1)
		cli_warn(common,
			 "%s: packed so, weights are rounded by up to %.2g steps of the optimizer "
			 "at "
			 "lr %.3g (%s); --auto chooses finer corrections",
			 path, l->step, l->lr, l->step_worst);
}

/* Each is appended to the library's message. */
static const char *const hints[] = {
	[TSR_HINT_FORCE] = "; --force replaces it",
	[TSR_HINT_FOLLOW_LINKS] = "; --follow-symlinks allows links",
	[TSR_HINT_BASE] = "; --base names it where it is",
	[TSR_HINT_CHAIN] = "; --max-chain allows more",
	[TSR_HINT_PACK_BASE] =
		"; without --as, or against what tersor pack makes of the base, whose "
		"weights are BF16, there may be some",
	[TSR_HINT_DTYPE] = "; --npy-dtype does",
	[TSR_HINT_STRICT] = "; only --strict refuses this",
	[TSR_HINT_RULES] = "; --map or --keep settles it",
	[TSR_HINT_PARAMS] = "; list the parameters in the optimizer's order in a file and give it "
			    "with --params, or give a .pt of those that are trained with "
			    "--params-from",
	[TSR_HINT_PACK_COMPAT] = "; pack with --compat flashoptim",
	[TSR_HINT_SCALAR_WEIGHT] = "; --map '^NAME$=weight' makes it a weight",
	[TSR_HINT_OPTIMIZER] = "; --optimizer does",
	[TSR_HINT_ORDER] = "; choose --order flashoptim or --order torch-cpu",
	[TSR_HINT_LR] = "; --lr or --schedule gives it",
	[TSR_HINT_STEPS] = " with --steps",
	[TSR_HINT_FIRST_STEP] =
		"; --steps begins elsewhere, --count says how many steps it has seen",
	[TSR_HINT_COUNT] = " (--count)",
	[TSR_HINT_COUNT_OR_ZERO] = "; leave out --count or --zero-state",
	[TSR_HINT_ZERO_STATE] = "; --zero-state starts without",
	[TSR_HINT_SKIP_MISSING] = "; --on-missing skip does not step such parameters",
	[TSR_HINT_SKIP_NONFINITE] = "; --on-nonfinite skip leaves such steps out",
	[TSR_HINT_PACK_STATE] = "; --state flashoptim packs them",
	[TSR_HINT_DECODE] = "; --to pt, npz or npy writes it decoded",
	[TSR_HINT_CPU] = "; leave out --device cuda",
	[TSR_HINT_OPAQUE] = "; --opaque carry keeps it as it is, --opaque drop leaves it out",
	[TSR_HINT_FEW] = "; --few-bins accepts it",
	[TSR_HINT_UNPACK] = "; tersor unpack restores its checkpoint",
	[TSR_HINT_PACKED_DIRECTORY] =
		"; tersor unpack restores it, and tersor convert makes it one "
		"checkpoint",
	[TSR_HINT_PACK] = "; tersor pack packs it",
	[TSR_HINT_PACK_CODED] = "; tersor pack --entropy packs and codes it",
	[TSR_HINT_CANDIDATES] =
		"; name smaller codecs in --auto-codecs, also for weights, or give a larger "
		"--max-bytes",
};

const char *cli_hint(const struct tsr_err *err)
{
	return err->hint < sizeof(hints) / sizeof(*hints) && hints[err->hint] ? hints[err->hint]
									      : "";
}

int cli_error(const struct tsr_err *err)
{
	if (err->code == TSR_E_CANCELLED && cli_signal())
		return 128 + cli_signal();
	if (err->code == TSR_PART_DONE)
		return CLI_OK;
	fprintf(stderr, "tersor: %s%s\n", err->msg, cli_hint(err));
	switch (err->code) {
	case TSR_OK:
	case TSR_PART_DONE:
		return CLI_OK;
	case TSR_E_BOUND:
		return CLI_DIFFERS;
	case TSR_E_USAGE:
		return CLI_USAGE;
	case TSR_E_FORMAT:
	case TSR_E_UNSUPPORTED:
	case TSR_E_LIMIT:
		return CLI_INPUT;
	case TSR_E_IO:
	case TSR_E_NOMEM:
	case TSR_E_CANCELLED:
	case TSR_E_DURABILITY:
		break;
	}
	return CLI_IO;
}

/* --- Signals -------------------------------------------------------------------------------- */

static volatile sig_atomic_t signal_seen, bar_shown;

void cli_bar_shown(bool shown)
{
	bar_shown = shown;
}

/*
 * Without an output in the making nothing is left behind, so the signal does what it does by default.  Once
 * an output has its name, only work that goes on after it stops.
 */
static void on_signal(int number)
{
	signal_seen = number;
	if (!tsr_temporary_any()) {
		/* What the terminal shows next begins on a clean line. */
		if (bar_shown && write(STDERR_FILENO, "\r\033[K", 4) < 0)
			bar_shown = false;
		signal(number, SIG_DFL);
		raise(number);
	}
}

void cli_catch_signals(void)
{
	static const int stopping[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = on_signal };

	for (size_t i = 0; i < sizeof(stopping) / sizeof(*stopping); i++) {
		struct sigaction now;

		/* An ignored signal stays ignored, as under nohup. */
		if (sigaction(stopping[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			sigaction(stopping[i], &action, NULL);
	}
	/* A closed pipe or a file that is too large is reported by the call that fails. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
}

int cli_signal(void)
{
	return signal_seen;
}
