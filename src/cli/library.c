/* SPDX-License-Identifier: Apache-2.0 */
/* A function of somebody else's library, or a kernel, over FP32 bit patterns, in child processes. */
#include "cli/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
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
#include "sweep/cuda_kernel.h"

/* Bit patterns of a call, aligned: they have one exponent field. */
#define TILE (UINT32_C(1) << 16)

/* Processes that share a GPU: it works for one while the others compute what a codec makes of numbers. */
#define GPU_CHILDREN 4u

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

/* One of the two. */
struct callee {
	cli_library_fn *function;
	void *kernel;
};

struct calling {
	const struct tsr_results_plan *plan;
	struct shown *shown;
	struct tsr_cuda_kernels kernels;
	struct callee callee, other;
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

/* Have the parent say why the library is no use.  Returns false. */
static __attribute__((format(printf, 2, 3))) bool refuse(struct calling *c, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(c->shown->message, sizeof(c->shown->message), fmt, args);
	va_end(args);
	c->shown->stage = REFUSED;
	return false;
}

static bool find(struct calling *c, void *library, const char *symbol, struct callee *ret)
{
	void *found = dlsym(library, symbol);

	if (!found)
		return refuse(c, "%s: found no symbol %.300s", c->plan->library, symbol);
	memcpy(&ret->function, &found, sizeof(found));
	return true;
}

static bool load_library(struct calling *c, const char *path)
{
	const struct tsr_results_plan *p = c->plan;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return refuse(c, "%s: cannot be loaded: %s", p->library, dlerror());
	return find(c, library, p->symbol, &c->callee) &&
	       (!p->against || find(c, library, p->against, &c->other));
}

static bool load_kernels(struct calling *c, size_t nbytes)
{
	const struct tsr_results_plan *p = c->plan;
	struct tsr_err err;
	enum tsr_status status = tsr_cuda_kernels_open(&c->kernels, p->library, p->gpu,
						       TILE * sizeof(float), TILE * nbytes, &err);

	TSR_THEN(status, tsr_cuda_kernels_find(&c->kernels, p->symbol, &c->callee.kernel, &err));
	if (p->against)
		TSR_THEN(status,
			 tsr_cuda_kernels_find(&c->kernels, p->against, &c->other.kernel, &err));
	return status == TSR_OK || refuse(c, "%s", err.msg);
}

static bool load(struct calling *c, const char *path)
{
	const size_t nbytes = tsr_dtype_bits(c->plan->out) / 8;

	c->in = guarded(sizeof(float));
	c->out = guarded(nbytes);
	c->expected = guarded(nbytes);
	if (!c->in || !c->out || !c->expected)
		return refuse(c, "%s: out of memory", c->plan->library);
	return c->plan->on_gpu ? load_kernels(c, nbytes) : load_library(c, path);
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

/* Which inputs a call has. */
#define INPUTS "on inputs 0x%08x to 0x%08x"

/* False if a kernel failed: nothing else can be called then. */
static bool call(struct calling *c, enum stage stage, const struct callee *callee, uint32_t from,
		 size_t n, void *out)
{
	const struct tsr_results_plan *p = c->plan;
	float *in = c->in - n;
	struct tsr_err err;

	for (size_t i = 0; i < n; i++)
		in[i] = tsr_f32_from_bits(from + (uint32_t)i);
	c->shown->stage = (int)stage;
	if (!p->on_gpu) {
		callee->function(in, out, n);
		return true;
	}
	return tsr_cuda_kernels_call(&c->kernels, callee->kernel, in, n, out,
				     n * (tsr_dtype_bits(p->out) / 8), &err) == TSR_OK ||
	       refuse(c, "%s: kernel %s " INPUTS " %s", p->library,
		      stage == CALLING ? p->symbol : p->against, from, from + (uint32_t)(n - 1),
		      err.msg);
}

/* False if it cannot go on. */
static bool call_tile(struct calling *c, uint64_t tile)
{
	const struct tsr_results_plan *p = c->plan;
	const uint32_t start = (uint32_t)(tile * TILE), end = start + (TILE - 1);
	const uint32_t from = p->first > start ? p->first : start;
	const size_t n = (p->last < end ? p->last : end) - from + 1;
	const size_t nbytes = n * (tsr_dtype_bits(p->out) / 8);
	const void *expected = c->expected - nbytes;

	c->shown->from = from;
	if (!call(c, CALLING, &c->callee, from, n, c->out - nbytes) ||
	    (p->against && !call(c, CALLING_OTHER, &c->other, from, n, c->expected - nbytes)))
		return false;
	if (!p->against)
		expected = by_codec(c, from, n);
	tsr_results_add(&c->shown->found, p->out, from, c->out - nbytes, expected, n);
	c->shown->ndone += n;
	return true;
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
		uint64_t tile;

		do {
			tile = atomic_fetch_add(&s->next, 1);
		} while (tile <= last && call_tile(&c, tile));
		if (tile > last)
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
		return tsr_fail(err, TSR_E_FORMAT, "%s", s->message);
	}
	if (stage != CALLING && stage != CALLING_OTHER)
		return tsr_fail(err, TSR_E_FORMAT, "%s: the library %s before %s was called",
				p->library, how, p->symbol);
	return tsr_fail(err, TSR_E_FORMAT, "%s: symbol %s %s " INPUTS, p->library,
			stage == CALLING ? p->symbol : p->against, how, from,
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
	const unsigned most = plan->on_gpu ? GPU_CHILDREN : TSR_THREADS_MAX;
	TSR_OWNED(free) char *path = realpath(plan->library, NULL);
	enum tsr_status status;

	if (!path)
		return tsr_fail(err, TSR_E_IO, "%s: %s", plan->library, strerror(errno));
	w.plan = plan;
	w.path = path;
	w.nchildren = tsr_run_threads(run);
	w.nchildren = w.nchildren < most ? w.nchildren : most;
	w.shared_nbytes = sizeof(struct shared) + w.nchildren * sizeof(struct shown);
	w.shared = mmap(NULL, w.shared_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (w.shared == MAP_FAILED)
		return tsr_fail_nomem(err, plan->library);
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
	return status;
}
