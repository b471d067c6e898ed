/* SPDX-License-Identifier: Apache-2.0 */
/* A function of somebody else's library over FP32 bit patterns, in child processes. */
#include "cli/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "codec/math.h"

/* Bit patterns of a call, aligned: they have one exponent field. */
#define TILE (UINT32_C(1) << 16)

#define LOOK_NS 5000000 /* how often the parent looks at its children */

enum stage { LOADING, CALLING, CALLING_OTHER, DONE, REFUSED };

/* What a child shows.  It may have been written by the library: any value is possible. */
struct shown {
	_Atomic uint64_t ndone; /* bit patterns */
	_Atomic uint32_t from; /* first pattern of the call */
	_Atomic int stage;
	char message[400]; /* with REFUSED */
	struct tsr_results found; /* with DONE */
};

struct shared {
	_Atomic uint64_t next; /* the tile that nobody has taken */
	struct shown child[];
};

/* --- In a child ---------------------------------------------------------------------------------- */

struct calling {
	const struct tsr_results_plan *plan;
	struct shown *shown;
	cli_library_fn *function, *other;
	float *in; /* ends of arrays, behind which is no memory */
	unsigned char *out, *expected;
	float copy[TILE]; /* of the numbers, for a codec: the function may have written there */
	uint32_t planes[TSR_PLANES_MAX][TILE];
};

/* The end of an array of a tile. */
static void *guarded(size_t element_nbytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), nbytes = TILE * element_nbytes;
	unsigned char *p = mmap(NULL, nbytes + page, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + nbytes, page, PROT_NONE) != 0)
		return NULL;
	return p + nbytes;
}

static bool refuse(struct calling *c, const char *what, const char *which)
{
	snprintf(c->shown->message, sizeof(c->shown->message), "%s%.300s", what, which);
	c->shown->stage = REFUSED;
	return false;
}

static bool find(struct calling *c, void *library, const char *symbol, cli_library_fn **ret)
{
	void *found = dlsym(library, symbol);

	if (!found)
		return refuse(c, "found no symbol ", symbol);
	memcpy(ret, &found, sizeof(found));
	return true;
}

static bool load(struct calling *c, const char *path)
{
	const struct tsr_results_plan *p = c->plan;
	const size_t nbytes = tsr_dtype_bits(p->out) / 8;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return refuse(c, "cannot be loaded: ", dlerror());
	c->in = guarded(sizeof(float));
	c->out = guarded(nbytes);
	c->expected = guarded(nbytes);
	if (!c->in || !c->out || !c->expected)
		return refuse(c, "out of memory", "");
	return find(c, library, p->symbol, &c->function) &&
	       (!p->against || find(c, library, p->against, &c->other));
}

/* What the codec makes of the numbers. */
static const void *by_codec(struct calling *c, uint32_t from, size_t n)
{
	struct tsr_coding coding = tsr_coding_default(c->plan->codec);
	struct tsr_encode_report report = { 0 };
	void *out[TSR_PLANES_MAX];
	const void *in[TSR_PLANES_MAX];

	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		in[i] = out[i] = c->planes[i];
	for (size_t i = 0; i < n; i++)
		c->copy[i] = tsr_f32_from_bits(from + (uint32_t)i);
	coding.first = from;
	coding.codec->encode(&coding, c->copy, n, out, &report);
	if (c->plan->out != TSR_F32)
		return c->planes[0];
	coding.codec->decode(&coding, in, n, c->copy);
	return c->copy;
}

static void call(struct calling *c, enum stage stage, cli_library_fn *function, uint32_t from,
		 size_t n, void *out)
{
	float *in = c->in - n;

	for (size_t i = 0; i < n; i++)
		in[i] = tsr_f32_from_bits(from + (uint32_t)i);
	c->shown->stage = (int)stage;
	function(in, out, n);
}

static void call_tile(struct calling *c, uint64_t tile)
{
	const struct tsr_results_plan *p = c->plan;
	const uint32_t start = (uint32_t)(tile * TILE), end = start + (TILE - 1);
	const uint32_t from = p->first > start ? p->first : start;
	const size_t n = (p->last < end ? p->last : end) - from + 1;
	const size_t nbytes = n * (tsr_dtype_bits(p->out) / 8);
	const void *expected = c->expected - nbytes;

	c->shown->from = from;
	call(c, CALLING, c->function, from, n, c->out - nbytes);
	if (c->other)
		call(c, CALLING_OTHER, c->other, from, n, c->expected - nbytes);
	else
		expected = by_codec(c, from, n);
	tsr_results_add(&c->shown->found, p->out, from, c->out - nbytes, expected, n);
	c->shown->ndone += n;
}

static _Noreturn void be_child(const struct tsr_results_plan *p, const char *path, struct shared *s,
			       unsigned index)
{
	static struct calling c;
	const uint64_t last = p->last / TILE;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	for (int i = 1; i < 32; i++)
		signal(i, SIG_DFL);
	/* A terminal sends these to all: the parent decides. */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	c = (struct calling){ .plan = p, .shown = &s->child[index] };
	if (load(&c, path)) {
		for (uint64_t tile; (tile = atomic_fetch_add(&s->next, 1)) <= last;)
			call_tile(&c, tile);
		c.shown->stage = DONE;
	}
	_exit(0);
}

/* --- In the parent ------------------------------------------------------------------------------- */

struct watching {
	const struct tsr_results_plan *plan;
	const char *path; /* of the library, which dlopen() does not look for elsewhere */
	struct shared *shared;
	size_t shared_nbytes;
	unsigned nchildren;
	struct child {
		pid_t pid; /* 0: has ended */
		uint64_t ndone;
		double since; /* when it was seen to have got so far */
	} child[TSR_THREADS_MAX];
	struct tsr_progress progress;
	uint64_t ndone;
};

/* Why a child is no use: what it was doing, and @how that ended. */
static enum tsr_status fail_of(const struct watching *w, unsigned i, const char *how,
			       struct tsr_err *err)
{
	const struct tsr_results_plan *p = w->plan;
	struct shown *s = &w->shared->child[i];
	const int stage = s->stage;
	const uint32_t from = s->from, end = from | (TILE - 1);

	if (stage == REFUSED) {
		s->message[sizeof(s->message) - 1] = '\0';
		return tsr_fail(err, TSR_E_FORMAT, "%s: %s", p->library, s->message);
	}
	if (stage != CALLING && stage != CALLING_OTHER)
		return tsr_fail(err, TSR_E_FORMAT, "%s: the library %s before %s was called",
				p->library, how, p->symbol);
	return tsr_fail(err, TSR_E_FORMAT, "%s: symbol %s %s on inputs 0x%08x to 0x%08x",
			p->library, stage == CALLING ? p->symbol : p->against, how, from,
			p->last < end ? p->last : end);
}

/* What became of a child that ended. */
static enum tsr_status judge(const struct watching *w, unsigned i, int status, struct tsr_err *err)
{
	char how[120];

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && w->shared->child[i].stage == DONE)
		return TSR_OK;
	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "crashed (signal %d, %s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(how, sizeof(how), "ended its process with status %d", WEXITSTATUS(status));
	return fail_of(w, i, how, err);
}

static enum tsr_status look_at(struct watching *w, unsigned i, struct tsr_err *err)
{
	const uint64_t ndone = w->shared->child[i].ndone;
	struct child *c = &w->child[i];
	char how[64];
	int status;

	if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
		c->pid = 0;
		return judge(w, i, status, err);
	}
	if (ndone != c->ndone) {
		c->ndone = ndone;
		c->since = tsr_seconds();
	}
	if (tsr_seconds() - c->since < (double)w->plan->timeout_s)
		return TSR_OK;
	snprintf(how, sizeof(how), "did not return in %" PRIu64 " s", w->plan->timeout_s);
	return fail_of(w, i, how, err);
}

/* How far they are, all together. */
static enum tsr_status report_progress(struct watching *w, struct tsr_err *err)
{
	uint64_t ndone = 0, before = w->ndone;

	for (unsigned i = 0; i < w->nchildren; i++)
		ndone += w->shared->child[i].ndone;
	/* Whatever a child says, progress goes on up to its end. */
	if (ndone > before && ndone <= w->progress.total_nbytes / sizeof(float))
		w->ndone = ndone;
	return tsr_progress_add(&w->progress, (w->ndone - before) * sizeof(float), err);
}

static enum tsr_status watch(struct watching *w, struct tsr_err *err)
{
	unsigned nrunning;

	do {
		nrunning = 0;
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
		TSR_TRY(report_progress(w, err));
		for (unsigned i = 0; i < w->nchildren; i++) {
			if (w->child[i].pid)
				TSR_TRY(look_at(w, i, err));
			nrunning += w->child[i].pid != 0;
		}
	} while (nrunning);
	return report_progress(w, err);
}

static enum tsr_status start(struct watching *w, struct tsr_err *err)
{
	for (unsigned i = 0; i < w->nchildren; i++) {
		const pid_t pid = fork();

		if (pid == 0)
			be_child(w->plan, w->path, w->shared, i);
		if (pid < 0)
			return tsr_fail(err, TSR_E_IO, "%s: no process for it: %s",
					w->plan->library, strerror(errno));
		w->child[i] = (struct child){ .pid = pid, .since = tsr_seconds() };
	}
	return TSR_OK;
}

/* What all found, if that is of the whole range. */
static enum tsr_status gather(const struct watching *w, struct tsr_results *ret,
			      struct tsr_err *err)
{
	const uint64_t n = (uint64_t)w->plan->last - w->plan->first + 1;

	*ret = (struct tsr_results){ .nfirst = 0 };
	for (unsigned i = 0; i < w->nchildren; i++)
		tsr_results_merge(ret, &w->shared->child[i].found);
	if (tsr_results_total(ret).count != n)
		return tsr_fail(err, TSR_E_FORMAT, "%s: symbol %s wrote where it must not",
				w->plan->library, w->plan->symbol);
	return TSR_OK;
}

enum tsr_status cli_library_run(const struct tsr_results_plan *plan, const struct tsr_run *run,
				struct tsr_results *ret, struct tsr_err *err)
{
	const uint64_t n = (uint64_t)plan->last - plan->first + 1;
	struct watching w = {
		.progress = { .run = run, .what = plan->library, .total_nbytes = n * sizeof(float) }
	};
	char *path = realpath(plan->library, NULL);
	enum tsr_status status;

	if (!path)
		return tsr_fail(err, TSR_E_IO, "%s: %s", plan->library, strerror(errno));
	w.plan = plan;
	w.path = path;
	w.nchildren = tsr_run_threads(run);
	w.nchildren = w.nchildren < TSR_THREADS_MAX ? w.nchildren : TSR_THREADS_MAX;
	w.shared_nbytes = sizeof(struct shared) + w.nchildren * sizeof(struct shown);
	w.shared = mmap(NULL, w.shared_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (w.shared == MAP_FAILED) {
		free(path);
		return tsr_fail_nomem(err, plan->library);
	}
	w.shared->next = plan->first / TILE;
	status = start(&w, err);
	TSR_THEN(status, watch(&w, err));
	for (unsigned i = 0; i < w.nchildren; i++) {
		if (w.child[i].pid) {
			kill(w.child[i].pid, SIGKILL);
			waitpid(w.child[i].pid, NULL, 0);
		}
	}
	TSR_THEN(status, gather(&w, ret, err));
	munmap(w.shared, w.shared_nbytes);
	free(path);
	return status;
}
