/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry point of tersor-mpi: every rank runs the command on its part, rank 0 joins the parts.
 *
 * The command runs in a thread of its own.  The first thread talks to the other ranks: sums up the
 * progress, and stops the ranks above one that failed.  Those below it go on, as the first error of the
 * whole work may be theirs.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/parts/parting.h"
#include "cli/work.h"
#include "cli/mpi/ranks.h"
#include "tersor/version.h"

/* Of a rank's messages, as many bytes are passed on. */
#define MESSAGES_NBYTES 16384

/* What all ranks must have in common: the version and the words of the command. */
#define COMMON_NBYTES 65536

/* A rank's part of the work. */
struct part {
	int argc;
	char **argv;
	int status;
	atomic_bool ended;
	struct cli_shared_work work;
};

/* --- The command's own thread ---------------------------------------------------------------- */

static void *run_part(void *arg)
{
	struct part *p = arg;

	p->status = cli_dispatch(p->argc, p->argv);
	fflush(stdout);
	fflush(stderr);
	atomic_store(&p->ended, true);
	return NULL;
}

/* Until every rank's work has ended. */
static void follow_work(const struct ranks *r, struct part *p, FILE *bar, const char *verb)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	const double started = tsr_seconds();
	struct ranks_state all;
	bool drawn = false;

	do {
		const bool ended = atomic_load(&p->ended);

		all = (struct ranks_state){
			.done = atomic_load(&p->work.done),
			.total = atomic_load(&p->work.total),
			.nended = ended,
			.failed = ended && p->status > CLI_DIFFERS ? (uint64_t)r->rank : UINT64_MAX,
		};
		ranks_share(&all);
		if (all.failed < (uint64_t)r->rank)
			atomic_store(&p->work.stop, true);
		if (bar && all.total) {
			cli_draw_bar(bar, verb, all.done, all.total, started, tsr_seconds());
			drawn = true;
		}
		for (int i = 0;
		     i < 10 && all.nended < (uint64_t)r->n && ended == atomic_load(&p->ended); i++)
			nanosleep(&pause, NULL);
	} while (all.nended < (uint64_t)r->n);
	if (drawn)
		cli_wipe_bar(bar);
}

/* --- Messages --------------------------------------------------------------------------------- */

/* The standard streams of this process, while the command writes into others. */
struct streams {
	int out, err; /* duplicates */
	int messages; /* what stderr is meanwhile */
};

static void divert(struct streams *s)
{
	const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

	s->out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	s->err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	s->messages = memfd_create("messages", MFD_CLOEXEC);
	if (nowhere < 0 || s->out < 0 || s->err < 0 || s->messages < 0 ||
	    dup2(nowhere, STDOUT_FILENO) < 0 || dup2(s->messages, STDERR_FILENO) < 0)
		ranks_abort(cli_fail(CLI_IO, "standard streams: %s", strerror(errno)));
	close(nowhere);
}

/* The streams are what they were; text[] becomes what was written to stderr. */
static void restore(struct streams *s, char text[MESSAGES_NBYTES])
{
	const ssize_t n = pread(s->messages, text, MESSAGES_NBYTES - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	dup2(s->out, STDOUT_FILENO);
	dup2(s->err, STDERR_FILENO);
	close(s->out);
	close(s->err);
	close(s->messages);
}

/* The messages of ranks first to last - 1, in their order; what several say is printed once. */
static void print_messages(const char *texts, int first, int last)
{
	const char *line = texts;

	for (int rank = 0; rank < last; rank++, line++) {
		for (; *line; line += strcspn(line, "\n") + (strchr(line, '\n') != NULL)) {
			const size_t len = strcspn(line, "\n");
			bool said = false;

			for (const char *t = texts; t < line; t++)
				said = said || ((t == texts || t[-1] == '\n' || t[-1] == '\0') &&
						strncmp(t, line, len + 1) == 0);
			if (rank >= first && !said)
				fprintf(stderr, "%.*s\n", (int)len, line);
		}
	}
}

/*
 * The exit status of the parts.  If one failed, the messages of the lowest that did: that is what one
 * process would say, as parts follow each other.  Otherwise the warnings of all.
 */
static int settle(const struct ranks *r, const char *texts, const int *statuses)
{
	int worst = CLI_OK;

	for (int i = 0; i < r->n; i++) {
		if (statuses[i] > CLI_DIFFERS) {
			print_messages(texts, i, i + 1);
			return statuses[i];
		}
		if (statuses[i] > worst)
			worst = statuses[i];
	}
	print_messages(texts, 0, r->n);
	return worst;
}

/* --- The command ------------------------------------------------------------------------------ */

/* The work of all ranks, up to where the parts are to be joined.  The exit status, on all ranks. */
static int run_parts(const struct ranks *r, struct part *p)
{
	const bool tty = r->rank == 0 && isatty(STDERR_FILENO);
	int *statuses = calloc((size_t)r->n, sizeof(*statuses)), status;
	uint64_t *sizes = calloc((size_t)r->n, sizeof(*sizes));
	char messages[MESSAGES_NBYTES], *texts;
	struct streams streams;
	FILE *bar = NULL;
	pthread_t thread;

	divert(&streams);
	if (tty)
		bar = fdopen(fcntl(streams.err, F_DUPFD_CLOEXEC, 3), "w");
	if (!statuses || !sizes || pthread_create(&thread, NULL, run_part, p) != 0)
		ranks_abort(CLI_IO);
	follow_work(r, p, bar, p->argv[1]);
	pthread_join(thread, NULL);
	if (bar)
		fclose(bar);
	restore(&streams, messages);
	ranks_gather_statuses(p->status, statuses);
	texts = ranks_gather(r, messages, strlen(messages) + 1, sizes);
	status = ranks_from_first(r->rank == 0 ? settle(r, texts, statuses) : CLI_OK);
	free(texts);
	free(sizes);
	free(statuses);
	return status;
}

/* On rank 0: the reports of all ranks, joined. */
static int join_reports(const struct ranks *r, const struct part *p,
			const struct cli_common *common)
{
	struct tsr_text *reports = calloc((size_t)r->n, sizeof(*reports));
	uint64_t *sizes = calloc((size_t)r->n, sizeof(*sizes));
	char *all, *at;
	int status = CLI_OK;

	if (!reports || !sizes)
		ranks_abort(CLI_IO);
	at = all = ranks_gather(r, p->work.report.bytes, p->work.report.nbytes, sizes);
	for (int i = 0; all && i < r->n; at += sizes[i++])
		reports[i] = (struct tsr_text){ .bytes = at, .nbytes = sizes[i] };
	if (all)
		status = cli_join(p->work.path, reports, (unsigned)r->n, common);
	free(all);
	free(sizes);
	free(reports);
	return status;
}

/* Ranks of another version, or with another command line, are refused before anything is read. */
static int check_agreement(const struct ranks *r, int argc, char **argv)
{
	static char words[COMMON_NBYTES];
	size_t at = (size_t)snprintf(words, sizeof(words), "%s", tsr_version()) + 1;
	int other;

	other = ranks_that_differs(r, words, sizeof(words));
	if (other < r->n)
		return r->rank ? CLI_USAGE
			       : cli_fail(CLI_USAGE, "rank %d runs another version of tersor-mpi",
					  other);
	for (int i = 1; i < argc && at < sizeof(words); i++)
		at += (size_t)snprintf(words + at, sizeof(words) - at, "%s", argv[i]) + 1;
	other = ranks_that_differs(r, words, sizeof(words));
	if (other < r->n)
		return r->rank ? CLI_USAGE
			       : cli_fail(CLI_USAGE, "rank %d was given another command line",
					  other);
	return CLI_OK;
}

static int run(const struct ranks *r, int argc, char **argv)
{
	const struct cli_common common = { .threads = r->threads_of_machine };
	const struct cli_cmd *cmd;
	char part[32];
	struct part p = {
		.argc = argc,
		.argv = argv,
		.work = { .part = part,
			  .threads = r->threads,
			  .index_on_machine = (unsigned)r->on_machine },
	};
	int status;

	CLI_TRY(check_agreement(r, argc, argv));
	cmd = argc > 1 ? cli_find(argv[1]) : NULL;
	if (r->n == 1 || !cmd || !(cmd->takes & CLI_PARTS))
		return ranks_from_first(r->rank ? CLI_OK : cli_dispatch(argc, argv));
	snprintf(part, sizeof(part), "%d/%d", r->rank + 1, r->n);
	cli_shared_work = &p.work;
	status = run_parts(r, &p);
	cli_shared_work = NULL;
	if (status <= CLI_DIFFERS && p.work.path)
		status = ranks_from_first(p.work.report.nbytes ? join_reports(r, &p, &common)
					  : r->rank	       ? CLI_OK
						    : cli_join(p.work.path, NULL, 0, &common));
	free(p.work.path);
	tsr_text_free(&p.work.report);
	return status;
}

int main(int argc, char **argv)
{
	struct ranks ranks;
	int status;

	/* The terminal of a rank may be one that mpirun made. */
	setenv("NO_COLOR", "1", 0);
	ranks_start(&argc, &argv, &ranks);
	status = cli_start();
	if (status != CLI_OK)
		ranks_abort(status);
	status = run(&ranks, argc, argv);
	status = cli_finish(status);
	ranks_end();
	return status;
}
