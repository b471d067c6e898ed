/* SPDX-License-Identifier: Apache-2.0 */
/* Long work: threads, a GPU, cancellation by signals, and the progress bar on stderr. */
#include "cli/work.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/parts/parting.h"
#include "render/format.h"

#define BAR_WIDTH 28

/* Columns of a terminal, of which the last stays empty so that no line wraps. */
static int columns_of(FILE *to)
{
	struct winsize size;

	return ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col - 1
									: TSR_COLUMNS - 1;
}

struct cli_shared_work *cli_shared_work;

void cli_draw_bar(FILE *to, const char *verb, uint64_t done, uint64_t total, double started,
		  double now)
{
	const double share = total ? (double)done / (double)total : 1;
	const double speed = (double)done / (now - started + 1e-9);
	const unsigned eta = speed > 0 ? (unsigned)((double)(total - done) / speed + 0.5) : 0;
	const int columns = columns_of(to), room = columns - 46;
	const int width = room < BAR_WIDTH ? room : BAR_WIDTH;
	const int filled = (int)(share * width);
	char bar[BAR_WIDTH + 4] = "", line[256];

	if (width > 3) {
		snprintf(bar, sizeof(bar), "[%*s] ", width, "");
		memset(bar + 1, '.', (size_t)width);
		memset(bar + 1, '#', (size_t)filled);
	}
	snprintf(line, sizeof(line), "%-10s %s%3d%%  %s/s  ETA %u:%02u", verb, bar,
		 (int)(100 * share), tsr_format_bytes(speed).text, eta / 60, eta % 60);
	if (columns < 20)
		snprintf(line, sizeof(line), "%3d%%", (int)(100 * share));
	fprintf(to, "\r%-*.*s", columns < 79 ? columns : 79, columns, line);
}

void cli_wipe_bar(FILE *to)
{
	const int columns = columns_of(to);

	fprintf(to, "\r%*s\r", columns < 79 ? columns : 79, "");
}

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct cli_work *w = ctx;
	const double now = w->verb ? tsr_seconds() : 0;

	if (w->verb && now - w->printed >= 0.1) {
		w->printed = now;
		cli_draw_bar(stderr, w->verb, done, total, w->started, now);
		w->shown = true;
		cli_bar_shown(true);
	}
	if (cli_shared_work) {
		atomic_store(&cli_shared_work->done, done);
		atomic_store(&cli_shared_work->total, total);
	}
	return !cli_signal() && !(cli_shared_work && atomic_load(&cli_shared_work->stop));
}

void cli_work_start(struct cli_work *w, const struct cli_common *common, const char *verb)
{
	const bool show = !common->no_progress && !common->quiet && isatty(STDERR_FILENO);

	*w = (struct cli_work){ .verb = show ? verb : NULL, .started = tsr_seconds() };
	w->printed = w->started;
	w->run = (struct tsr_run){ .threads = (unsigned)common->threads,
				   .progress = on_progress,
				   .ctx = w,
				   .parts = cli_parts() };
}

int cli_work_open(struct cli_work *w, const struct cli_cmd *cmd, const struct cli_common *common,
		  const char *verb)
{
	cli_work_start(w, common, verb);
	w->run.gpus = w->gpus;
	return cmd->takes & CLI_COMPUTES ? cli_open_gpus(cmd, common, verb, w->gpus, &w->run.ngpus)
					 : CLI_OK;
}

enum tsr_status cli_work_end(struct cli_work *w, enum tsr_status status)
{
	if (w->shown)
		cli_wipe_bar(stderr);
	cli_bar_shown(false);
	for (unsigned i = 0; i < w->run.ngpus; i++)
		tsr_gpu_close(w->gpus[i]);
	return status;
}
