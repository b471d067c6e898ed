// SPDX-License-Identifier: Apache-2.0
/*
 * libfaults.so - make chosen libc calls of a program fail, from outside, by LD_PRELOAD
 *
 * TERSOR_FAULT=RULE[,RULE...], each RULE being CALL:N:ACTION, or CALL:N+:ACTION for the Nth
 * matching call and all later ones.  Calls are counted from 1, for each rule by itself.
 *
 *   CALL    open read pread write pwrite fallocate ftruncate fsync close rename linkat unlink
 *           mkdir stat chmod readdir random thread; any, which is each of the first twelve, or all.
 *           Each name stands for its family: open64, openat and creat; the vectored, *64 and
 *           fortified forms; posix_fallocate; fdatasync; renameat2; unlinkat and rmdir; mkdirat;
 *           fstat, lstat, fstatat, statfs, statvfs and realpath; fchmod, fchmodat and fchown;
 *           opendir and getdents64; getrandom; pthread_create
 *   ACTION  EIO, ENOSPC, ...   the call fails and does nothing (close does close)
 *           short=K            a read or write moves at most K bytes
 *           short1-all         from the Nth call on every read and write moves one byte
 *           eintr-all          from the Nth call on every other call of a thread fails with EINTR
 *           delay=MS           sleep, then do the call
 *           kill stop sigint sigterm sighup
 *                              the process sends itself that signal, then does the call
 *
 * TERSOR_FAULT_PATH=TEXT       only calls on files whose absolute path contains TEXT are counted
 * TERSOR_FAULT_COUNT=FILE      holds the counts as native uint64: one for each rule, in order, and
 *                              the count of allocations in the last of 9
 * TERSOR_FAULT_LOG=FILE        one line before (">") and one after ("<") each matching call: see
 *                              put_line()
 * TERSOR_FAULT_MALLOC=N[:forever]
 *                              the Nth allocation (malloc, calloc, realloc, reallocarray, memalign,
 *                              aligned_alloc, posix_memalign, anonymous mmap) fails; forever: and
 *                              all later ones
 *
 * Reads of directories and random numbers are matched by the rule whatever TERSOR_FAULT_PATH says
 * where they have no path.  File descriptors 0 to 2 are left alone, but for write() to 1 when
 * TERSOR_FAULT_STDOUT is set.  What libc does inside (stdio, mapping a library) is not
 * seen, except for its allocations.  The calls are made with syscall(2), for a 64-bit Linux.
 */
#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8 && sizeof(long) == 8, "a 64-bit system is assumed");

#define MAX_RULES 8
#define ALLOCATIONS MAX_RULES		/* its slot among the counts */
#define SAME_AS(name) __attribute__((alias(#name)))

enum call {
	OPEN, READ, PREAD, WRITE, PWRITE, FALLOCATE, FTRUNCATE, FSYNC, CLOSE, RENAME, LINKAT, UNLINK,
	N_ANY,
	MKDIR = N_ANY, STAT, CHMOD, READDIR, RANDOM, THREAD,
	N_CALLS
};

static const char *const call_names[N_CALLS] = {
	"open", "read", "pread", "write", "pwrite", "fallocate", "ftruncate", "fsync", "close",
	"rename", "linkat", "unlink", "mkdir", "stat", "chmod", "readdir", "random", "thread"
};

#define BIT(call) (1u << (call))
#define TRANSFERS (BIT(READ) | BIT(PREAD) | BIT(WRITE) | BIT(PWRITE))
/* the calls for which the manual lists EINTR */
#define INTERRUPTIBLE (TRANSFERS | BIT(OPEN) | BIT(FALLOCATE) | BIT(FTRUNCATE) | BIT(FSYNC) | \
		       BIT(CLOSE) | BIT(RANDOM))

enum action { FAIL, SHORT, EINTR_ALL, DELAY, RAISE };

struct rule {
	unsigned int calls;
	uint64_t n;
	bool onward;			/* the Nth call and all later ones */
	enum action action;
	long arg;			/* errno, byte count, milliseconds or signal */
};

struct op {
	enum call call;
	bool seen;			/* matches TERSOR_FAULT_PATH */
	size_t nbytes;			/* asked for; a rule may lower it */
	off_t off;
	int err;			/* injected errno, or 0 */
	char path[2][PATH_MAX];
};

static struct rule rules[MAX_RULES];
static int n_rules;
static unsigned int wanted_calls = BIT(N_ANY) - 1;	/* that are matched and logged: these, and those of rules */
static const char *path_filter;
static bool streams;
static int log_fd = -1;
static uint64_t malloc_n;
static bool malloc_forever;
static _Atomic uint64_t own_counts[MAX_RULES + 1];
static _Atomic uint64_t *counts = own_counts;
static __thread bool interrupted[MAX_RULES];

static const struct { const char *name; int value; } errnos[] = {
	{ "EIO", EIO }, { "ENOSPC", ENOSPC }, { "EDQUOT", EDQUOT }, { "EACCES", EACCES },
	{ "EMFILE", EMFILE }, { "ENFILE", ENFILE }, { "EINTR", EINTR }, { "EAGAIN", EAGAIN },
	{ "EXDEV", EXDEV }, { "EEXIST", EEXIST }, { "EINVAL", EINVAL }, { "ENOENT", ENOENT },
	{ "EPERM", EPERM }, { "EROFS", EROFS }, { "EFBIG", EFBIG }, { "ENOMEM", ENOMEM },
	{ "EOPNOTSUPP", EOPNOTSUPP }, { "ENOSYS", ENOSYS }, { "EISDIR", EISDIR }, { "ESTALE", ESTALE },
};

static const struct { const char *name; int value; } signals[] = {
	{ "kill", SIGKILL }, { "stop", SIGSTOP }, { "sigint", SIGINT }, { "sigterm", SIGTERM },
	{ "sighup", SIGHUP },
};

/* A misspelt rule must not look like a program without faults. */
static _Noreturn void bad(const char *what)
{
	static const char msg[] = "libfaults: cannot use ";

	syscall(SYS_write, 2, msg, sizeof(msg) - 1);
	syscall(SYS_write, 2, what, strlen(what));
	syscall(SYS_write, 2, "\n", 1);
	syscall(SYS_exit_group, 125);
	__builtin_unreachable();
}

static void parse_action(struct rule *r, const char *s)
{
	if (strncmp(s, "short=", 6) == 0) {
		r->action = SHORT;
		r->arg = atol(s + 6);
		return;
	}
	if (strcmp(s, "short1-all") == 0) {
		r->action = SHORT;
		r->arg = 1;
		r->onward = true;
		return;
	}
	if (strcmp(s, "eintr-all") == 0) {
		r->action = EINTR_ALL;
		r->onward = true;
		return;
	}
	if (strncmp(s, "delay=", 6) == 0) {
		r->action = DELAY;
		r->arg = atol(s + 6);
		return;
	}
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		if (strcmp(s, signals[i].name) == 0) {
			r->action = RAISE;
			r->arg = signals[i].value;
			return;
		}
	}
	for (size_t i = 0; i < sizeof(errnos) / sizeof(*errnos); i++) {
		if (strcmp(s, errnos[i].name) == 0) {
			r->action = FAIL;
			r->arg = errnos[i].value;
			return;
		}
	}
	bad(s);
}

static void parse_rule(char *s)
{
	struct rule *r = &rules[n_rules];
	char *n = strchr(s, ':');
	char *action = n ? strchr(n + 1, ':') : NULL;
	char *end;

	if (!action || n_rules == MAX_RULES)
		bad(s);
	*n++ = '\0';
	*action++ = '\0';
	if (strcmp(s, "any") == 0)
		r->calls = BIT(N_ANY) - 1;
	if (strcmp(s, "all") == 0)
		r->calls = BIT(N_CALLS) - 1;
	for (int i = 0; i < N_CALLS; i++)
		if (strcmp(s, call_names[i]) == 0)
			r->calls = BIT(i);
	r->n = strtoull(n, &end, 10);
	r->onward = *end == '+';
	if (!r->calls || r->n == 0 || end == n || end[r->onward] != '\0')
		bad(s);
	parse_action(r, action);
	wanted_calls |= r->calls;
	n_rules++;
}

/* Out of the way of the program's own descriptors, which it may number in a test. */
static int open_high(const char *path, int flags)
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0666);
	long high = fd < 0 ? -1 : syscall(SYS_fcntl, (int)fd, F_DUPFD_CLOEXEC, 200);

	if (high < 0)
		bad(path);
	syscall(SYS_close, (int)fd);
	return (int)high;
}

static void find_next(void);

__attribute__((constructor)) static void start(void)
{
	static char text[1024];
	const char *env = getenv("TERSOR_FAULT");
	char *save = NULL;

	find_next();
	if (env) {
		if (strlen(env) >= sizeof(text))
			bad(env);
		strcpy(text, env);
		for (char *s = strtok_r(text, ",", &save); s; s = strtok_r(NULL, ",", &save))
			parse_rule(s);
	}
	path_filter = getenv("TERSOR_FAULT_PATH");
	streams = getenv("TERSOR_FAULT_STREAMS") != NULL;
	env = getenv("TERSOR_FAULT_LOG");
	if (env)
		log_fd = open_high(env, O_WRONLY | O_CREAT | O_APPEND);
	env = getenv("TERSOR_FAULT_COUNT");
	if (env) {
		/* mapped, so that the counts survive SIGKILL */
		int fd = open_high(env, O_RDWR | O_CREAT);
		void *map;

		if (syscall(SYS_ftruncate, fd, (off_t)sizeof(own_counts)) != 0)
			bad(env);
		map = (void *)syscall(SYS_mmap, NULL, sizeof(own_counts), PROT_READ | PROT_WRITE,
				      MAP_SHARED, fd, (off_t)0);
		if (map == MAP_FAILED)
			bad(env);
		syscall(SYS_close, fd);
		counts = map;
	}
	env = getenv("TERSOR_FAULT_MALLOC");
	if (env) {
		char *end;

		malloc_n = strtoull(env, &end, 10);
		malloc_forever = strcmp(end, ":forever") == 0;
		if (malloc_n == 0 || (*end && !malloc_forever))
			bad(env);
	}
	counts[ALLOCATIONS] = 0;	/* those so far are not the program's */
}

static void path_of_fd(char *out, int fd)
{
	char link[64];
	long n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
	out[n < 0 ? 0 : n] = '\0';
	if (streams && path_filter && (fd == STDOUT_FILENO || strncmp(out, "pipe:", 5) == 0))
		snprintf(out, PATH_MAX, "%s", path_filter);
}

static void path_of_name(char *out, int dirfd, const char *name)
{
	size_t len;

	out[0] = '\0';
	if (name[0] != '/') {
		if (dirfd != AT_FDCWD)
			path_of_fd(out, dirfd);
		else if (syscall(SYS_getcwd, out, PATH_MAX) < 0)
			out[0] = '\0';
	}
	len = strlen(out);
	snprintf(out + len, PATH_MAX - len, "%s%s", name[0] == '/' ? "" : "/", name);
}

/*
 * Tab-separated: "> call path path2 offset nbytes injected-errno", where nbytes is what the rules
 * left of the request, and "< call path path2 offset result errno".  For open and rename the offset
 * is the flags.  The first twelve calls are logged, and those that a rule names.
 * A call has ended before its "<" line is written and has not begun before its ">" line is.
 */
static void put_line(const struct op *op, char mark, long result, int err)
{
	char line[2 * PATH_MAX + 128];
	int n;

	if (log_fd < 0)
		return;
	n = snprintf(line, sizeof(line), "%c\t%s\t%s\t%s\t%lld\t%ld\t%d\n", mark, call_names[op->call],
		     op->path[0], op->path[1], (long long)op->off, result, err);
	syscall(SYS_write, log_fd, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	syscall(SYS_nanosleep, &ts, NULL);
}

/* Apply the rules to a call whose paths are known; true if it must fail with op->err. */
static bool before(struct op *op)
{
	int sig = 0;
	long ms = 0;

	if (!(BIT(op->call) & wanted_calls))
		return false;
	op->seen = !path_filter || strstr(op->path[0], path_filter) || strstr(op->path[1], path_filter);
	if (!op->seen)
		return false;
	for (int i = 0; i < n_rules; i++) {
		const struct rule *r = &rules[i];
		uint64_t n;

		if (!(r->calls & BIT(op->call)))
			continue;
		n = atomic_fetch_add(&counts[i], 1) + 1;
		if (n != r->n && !(r->onward && n > r->n))
			continue;
		switch (r->action) {
		case FAIL:
			op->err = (int)r->arg;
			break;
		case SHORT:
			if ((BIT(op->call) & TRANSFERS) && op->nbytes > (size_t)r->arg)
				op->nbytes = (size_t)r->arg;
			break;
		case EINTR_ALL:
			if (!(BIT(op->call) & INTERRUPTIBLE))
				break;
			interrupted[i] = !interrupted[i];
			if (interrupted[i])
				op->err = EINTR;
			break;
		case DELAY:
			ms = r->arg;
			break;
		case RAISE:
			sig = (int)r->arg;
			break;
		}
	}
	put_line(op, '>', (long)op->nbytes, op->err);
	if (ms)
		sleep_ms(ms);
	if (sig)
		syscall(SYS_kill, getpid(), sig);
	return op->err != 0;
}

static bool before_fd(struct op *op, enum call call, int fd, size_t nbytes, off_t off)
{
	op->call = call;
	op->nbytes = nbytes;
	op->off = off;
	op->err = 0;
	op->seen = false;
	op->path[0][0] = op->path[1][0] = '\0';
	if (fd >= 0 && fd <= 2 && !(streams && fd == STDOUT_FILENO && call == WRITE))
		return false;
	if (path_filter || log_fd >= 0)
		path_of_fd(op->path[0], fd);
	if (log_fd >= 0 && (call == READ || call == WRITE))
		op->off = syscall(SYS_lseek, fd, (off_t)0, SEEK_CUR);
	return before(op);
}

static bool before_name_flags(struct op *op, enum call call, int dirfd, const char *name, int dirfd2,
			      const char *name2, unsigned int flags)
{
	op->call = call;
	op->nbytes = 0;
	op->off = flags;
	op->err = 0;
	op->path[0][0] = op->path[1][0] = '\0';
	if (path_filter || log_fd >= 0) {
		path_of_name(op->path[0], dirfd, name);
		if (name2)
			path_of_name(op->path[1], dirfd2, name2);
	}
	return before(op);
}

static bool before_name(struct op *op, enum call call, int dirfd, const char *name, int dirfd2,
			const char *name2)
{
	return before_name_flags(op, call, dirfd, name, dirfd2, name2, 0);
}

/* A call that concerns no file. */
static bool before_nothing(struct op *op, enum call call)
{
	*op = (struct op){ .call = call };
	snprintf(op->path[0], PATH_MAX, "%s", path_filter ? path_filter : "");
	return before(op);
}

static long after(struct op *op, long result)
{
	int err = op->err ? op->err : errno;

	if (op->seen)
		put_line(op, '<', result, result < 0 ? err : 0);
	errno = err;
	return result;
}

/* === open === */

static int do_open(int dirfd, const char *path, int flags, mode_t mode)
{
	struct op op;
	bool fail = before_name_flags(&op, OPEN, dirfd, path, AT_FDCWD, NULL, (unsigned int)flags);

	return (int)after(&op, fail ? -1 : syscall(SYS_openat, dirfd, path, flags, mode));
}

static mode_t mode_arg(int flags, va_list ap)
{
	bool creates = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;

	return creates ? va_arg(ap, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = mode_arg(flags, ap);
	va_end(ap);
	return do_open(AT_FDCWD, path, flags, mode);
}

int openat(int dirfd, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = mode_arg(flags, ap);
	va_end(ap);
	return do_open(dirfd, path, flags, mode);
}

int creat(const char *path, mode_t mode)
{
	return do_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

int __open_2(const char *path, int flags)
{
	return do_open(AT_FDCWD, path, flags, 0);
}

int __openat_2(int dirfd, const char *path, int flags)
{
	return do_open(dirfd, path, flags, 0);
}

int open64(const char *path, int flags, ...) SAME_AS(open);
int openat64(int dirfd, const char *path, int flags, ...) SAME_AS(openat);
int creat64(const char *path, mode_t mode) SAME_AS(creat);
int __open64_2(const char *path, int flags) SAME_AS(__open_2);
int __openat64_2(int dirfd, const char *path, int flags) SAME_AS(__openat_2);

/* === read and write === */

ssize_t read(int fd, void *buf, size_t n)
{
	struct op op;
	bool fail = before_fd(&op, READ, fd, n, 0);

	return after(&op, fail ? -1 : syscall(SYS_read, fd, buf, op.nbytes));
}

ssize_t pread(int fd, void *buf, size_t n, off_t off)
{
	struct op op;
	bool fail = before_fd(&op, PREAD, fd, n, off);

	return after(&op, fail ? -1 : syscall(SYS_pread64, fd, buf, op.nbytes, off));
}

ssize_t write(int fd, const void *buf, size_t n)
{
	struct op op;
	bool fail = before_fd(&op, WRITE, fd, n, 0);

	return after(&op, fail ? -1 : syscall(SYS_write, fd, buf, op.nbytes));
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t off)
{
	struct op op;
	bool fail = before_fd(&op, PWRITE, fd, n, off);

	return after(&op, fail ? -1 : syscall(SYS_pwrite64, fd, buf, op.nbytes, off));
}

ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
	if (n > room)
		abort();
	return read(fd, buf, n);
}

ssize_t __pread_chk(int fd, void *buf, size_t n, off_t off, size_t room)
{
	if (n > room)
		abort();
	return pread(fd, buf, n, off);
}

ssize_t pread64(int fd, void *buf, size_t n, off_t off) SAME_AS(pread);
ssize_t pwrite64(int fd, const void *buf, size_t n, off_t off) SAME_AS(pwrite);
ssize_t __pread64_chk(int fd, void *buf, size_t n, off_t off, size_t room) SAME_AS(__pread_chk);

/* A vectored call may always move less than asked: its first non-empty buffer is enough. */
static struct iovec first_buffer(const struct iovec *iov, int n_iov)
{
	static const struct iovec none;

	while (n_iov > 0 && iov->iov_len == 0) {
		iov++;
		n_iov--;
	}
	return n_iov > 0 ? *iov : none;
}

ssize_t readv(int fd, const struct iovec *iov, int n_iov)
{
	struct iovec v = first_buffer(iov, n_iov);

	return read(fd, v.iov_base, v.iov_len);
}

ssize_t writev(int fd, const struct iovec *iov, int n_iov)
{
	struct iovec v = first_buffer(iov, n_iov);

	return write(fd, v.iov_base, v.iov_len);
}

ssize_t preadv(int fd, const struct iovec *iov, int n_iov, off_t off)
{
	struct iovec v = first_buffer(iov, n_iov);

	return pread(fd, v.iov_base, v.iov_len, off);
}

ssize_t pwritev(int fd, const struct iovec *iov, int n_iov, off_t off)
{
	struct iovec v = first_buffer(iov, n_iov);

	return pwrite(fd, v.iov_base, v.iov_len, off);
}

ssize_t preadv64(int fd, const struct iovec *iov, int n_iov, off_t off) SAME_AS(preadv);
ssize_t pwritev64(int fd, const struct iovec *iov, int n_iov, off_t off) SAME_AS(pwritev);

/* === size and durability === */

int fallocate(int fd, int mode, off_t off, off_t len)
{
	struct op op;
	bool fail = before_fd(&op, FALLOCATE, fd, (size_t)len, off);

	return (int)after(&op, fail ? -1 : syscall(SYS_fallocate, fd, mode, off, len));
}

int posix_fallocate(int fd, off_t off, off_t len)
{
	int saved = errno, err;

	err = fallocate(fd, 0, off, len) < 0 ? errno : 0;
	errno = saved;
	return err;
}

int ftruncate(int fd, off_t len)
{
	struct op op;
	bool fail = before_fd(&op, FTRUNCATE, fd, (size_t)len, 0);

	return (int)after(&op, fail ? -1 : syscall(SYS_ftruncate, fd, len));
}

int fsync(int fd)
{
	struct op op;
	bool fail = before_fd(&op, FSYNC, fd, 0, 0);

	return (int)after(&op, fail ? -1 : syscall(SYS_fsync, fd));
}

int fallocate64(int fd, int mode, off_t off, off_t len) SAME_AS(fallocate);
int posix_fallocate64(int fd, off_t off, off_t len) SAME_AS(posix_fallocate);
int ftruncate64(int fd, off_t len) SAME_AS(ftruncate);
int fdatasync(int fd) SAME_AS(fsync);

/* Linux closes the descriptor whatever close() returns. */
int close(int fd)
{
	struct op op;
	bool fail = before_fd(&op, CLOSE, fd, 0, 0);
	long result = syscall(SYS_close, fd);

	return (int)after(&op, fail ? -1 : result);
}

/* === names === */

int renameat2(int dirfd, const char *from, int dirfd2, const char *to, unsigned int flags)
{
	struct op op;
	bool fail = before_name_flags(&op, RENAME, dirfd, from, dirfd2, to, flags);

	return (int)after(&op, fail ? -1 : syscall(SYS_renameat2, dirfd, from, dirfd2, to, flags));
}

int renameat(int dirfd, const char *from, int dirfd2, const char *to)
{
	return renameat2(dirfd, from, dirfd2, to, 0);
}

int rename(const char *from, const char *to)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int dirfd, const char *from, int dirfd2, const char *to, int flags)
{
	struct op op;
	bool fail = before_name(&op, LINKAT, dirfd, from, dirfd2, to);

	return (int)after(&op, fail ? -1 : syscall(SYS_linkat, dirfd, from, dirfd2, to, flags));
}

int link(const char *from, const char *to)
{
	return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int dirfd, const char *name, int flags)
{
	struct op op;
	bool fail = before_name(&op, UNLINK, dirfd, name, AT_FDCWD, NULL);

	return (int)after(&op, fail ? -1 : syscall(SYS_unlinkat, dirfd, name, flags));
}

int unlink(const char *name)
{
	return unlinkat(AT_FDCWD, name, 0);
}

int remove(const char *name)
{
	int result = unlink(name);

	return result < 0 && errno == EISDIR ? unlinkat(AT_FDCWD, name, AT_REMOVEDIR) : result;
}

int rmdir(const char *name)
{
	return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

int mkdirat(int dirfd, const char *name, mode_t mode)
{
	struct op op;
	bool fail = before_name(&op, MKDIR, dirfd, name, AT_FDCWD, NULL);

	return (int)after(&op, fail ? -1 : syscall(SYS_mkdirat, dirfd, name, mode));
}

int mkdir(const char *name, mode_t mode)
{
	return mkdirat(AT_FDCWD, name, mode);
}

/* === facts of files, and what has no file === */

/* The same function of the next library, for those whose system calls are not simple. */
#define NEXT(name) ({ static __typeof__(&name) f; if (!f) *(void **)&f = dlsym(RTLD_NEXT, #name); f; })

int fstatat(int dirfd, const char *name, struct stat *st, int flags)
{
	struct op op;
	bool fail = before_name(&op, STAT, dirfd, name, AT_FDCWD, NULL);

	return (int)after(&op, fail ? -1 : NEXT(fstatat)(dirfd, name, st, flags));
}

int stat(const char *name, struct stat *st)
{
	return fstatat(AT_FDCWD, name, st, 0);
}

int lstat(const char *name, struct stat *st)
{
	return fstatat(AT_FDCWD, name, st, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *st)
{
	struct op op;
	bool fail = before_fd(&op, STAT, fd, 0, 0);

	return (int)after(&op, fail ? -1 : NEXT(fstat)(fd, st));
}

int fstatfs(int fd, struct statfs *fs)
{
	struct op op;
	bool fail = before_fd(&op, STAT, fd, 0, 0);

	return (int)after(&op, fail ? -1 : NEXT(fstatfs)(fd, fs));
}

int fstatvfs(int fd, struct statvfs *fs)
{
	struct op op;
	bool fail = before_fd(&op, STAT, fd, 0, 0);

	return (int)after(&op, fail ? -1 : NEXT(fstatvfs)(fd, fs));
}

char *realpath(const char *name, char *out)
{
	struct op op;
	bool fail = before_name(&op, STAT, AT_FDCWD, name, AT_FDCWD, NULL);
	char *path = fail ? NULL : NEXT(realpath)(name, out);

	after(&op, path ? 0 : -1);
	return path;
}

int fchmodat(int dirfd, const char *name, mode_t mode, int flags)
{
	struct op op;
	bool fail = before_name(&op, CHMOD, dirfd, name, AT_FDCWD, NULL);

	return (int)after(&op, fail ? -1 : NEXT(fchmodat)(dirfd, name, mode, flags));
}

int chmod(const char *name, mode_t mode)
{
	return fchmodat(AT_FDCWD, name, mode, 0);
}

int fchmod(int fd, mode_t mode)
{
	struct op op;
	bool fail = before_fd(&op, CHMOD, fd, 0, 0);

	return (int)after(&op, fail ? -1 : syscall(SYS_fchmod, fd, mode));
}

int fchown(int fd, uid_t uid, gid_t gid)
{
	struct op op;
	bool fail = before_fd(&op, CHMOD, fd, 0, 0);

	return (int)after(&op, fail ? -1 : syscall(SYS_fchown, fd, uid, gid));
}

DIR *opendir(const char *name)
{
	struct op op;
	bool fail = before_name(&op, READDIR, AT_FDCWD, name, AT_FDCWD, NULL);
	DIR *dir = fail ? NULL : NEXT(opendir)(name);

	after(&op, dir ? 0 : -1);
	return dir;
}

/* As the manual has it: NULL and errno, or NULL and errno as it was. */
struct dirent *readdir(DIR *dir)
{
	struct op op;
	int saved = errno;
	bool fail = before_fd(&op, READDIR, dirfd(dir), 0, 0);
	struct dirent *entry;

	errno = saved;
	entry = fail ? NULL : NEXT(readdir)(dir);
	saved = errno;
	after(&op, fail ? -1 : 0);
	errno = fail ? op.err : saved;
	return entry;
}

ssize_t getdents64(int fd, void *buf, size_t n)
{
	struct op op;
	bool fail = before_fd(&op, READDIR, fd, 0, 0);

	return after(&op, fail ? -1 : syscall(SYS_getdents64, fd, buf, n));
}

ssize_t getrandom(void *buf, size_t n, unsigned int flags)
{
	struct op op;
	bool fail = before_nothing(&op, RANDOM);

	return after(&op, fail ? -1 : syscall(SYS_getrandom, buf, n, flags));
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	struct op op;
	bool fail = before_nothing(&op, THREAD);
	int err = fail ? op.err : NEXT(pthread_create)(thread, attr, run, arg);

	after(&op, err ? -1 : 0);
	return err;
}

/* The headers give these names other types, which on a 64-bit system are the same. */
#define ALSO(name) extern __typeof__(name) name##_too __asm__(#name "64") SAME_AS(name)

ALSO(stat);
ALSO(lstat);
ALSO(fstat);
ALSO(fstatat);
ALSO(fstatfs);
ALSO(fstatvfs);
ALSO(readdir);

/* === memory === */

/*
 * The next allocator in line is libc's, or that of a sanitizer, which must have started before it
 * can be looked up.  What is allocated up to then comes from an arena and is never given back.
 */
static struct {
	void *(*malloc)(size_t);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void *(*memalign)(size_t, size_t);
	void (*free)(void *);
} next;

static char arena[1 << 20] __attribute__((aligned(16)));
static _Atomic size_t arena_used;

static bool in_arena(const void *p)
{
	return (const char *)p >= arena && (const char *)p < arena + sizeof(arena);
}

static void *arena_alloc(size_t n)
{
	size_t at = atomic_fetch_add(&arena_used, (n + 15) & ~(size_t)15);

	return at + n <= sizeof(arena) ? arena + at : NULL;
}

/* Called once, before there are threads. */
static void find_next(void)
{
	*(void **)&next.malloc = dlsym(RTLD_NEXT, "malloc");
	*(void **)&next.calloc = dlsym(RTLD_NEXT, "calloc");
	*(void **)&next.realloc = dlsym(RTLD_NEXT, "realloc");
	*(void **)&next.memalign = dlsym(RTLD_NEXT, "memalign");
	*(void **)&next.free = dlsym(RTLD_NEXT, "free");
}

/*
 * Only main() is put to the test: the CUDA runtime's constructors, which run before it, do not
 * survive a failed allocation, and neither they nor the destructors are the program's.
 */
static _Atomic bool in_main;
static int (*program_main)(int, char **, char **);

static int run_main(int argc, char **argv, char **envp)
{
	int status;

	in_main = true;
	status = program_main(argc, argv, envp);
	in_main = false;
	return status;
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
		      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
	int (*start)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
		     void (*)(void), void *);

	*(void **)&start = dlsym(RTLD_NEXT, "__libc_start_main");
	program_main = main;
	return start(run_main, argc, argv, init, fini, rtld_fini, stack_end);
}

static bool out_of_memory(void)
{
	uint64_t n;

	if (!in_main)
		return false;
	n = atomic_fetch_add(&counts[ALLOCATIONS], 1) + 1;

	if (malloc_n == 0 || (n != malloc_n && !(malloc_forever && n > malloc_n)))
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t n)
{
	if (!next.free)
		return arena_alloc(n);
	return out_of_memory() ? NULL : next.malloc(n);
}

void *calloc(size_t n, size_t size)
{
	if (!next.free)
		return arena_alloc(n * size);	/* still zero: never used before */
	return out_of_memory() ? NULL : next.calloc(n, size);
}

void *realloc(void *old, size_t n)
{
	if (in_arena(old) || !next.free) {
		void *p = malloc(n);
		size_t room = (size_t)(arena + sizeof(arena) - (char *)old);

		return p && old ? memcpy(p, old, n < room ? n : room) : p;
	}
	return out_of_memory() ? NULL : next.realloc(old, n);
}

void *reallocarray(void *old, size_t n, size_t size)
{
	size_t nbytes;

	if (__builtin_mul_overflow(n, size, &nbytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(old, nbytes);
}

void *memalign(size_t align, size_t n)
{
	if (!next.free)
		return NULL;
	return out_of_memory() ? NULL : next.memalign(align, n);
}

void *aligned_alloc(size_t align, size_t n) SAME_AS(memalign);

int posix_memalign(void **p_ret, size_t align, size_t n)
{
	int saved = errno;
	void *p = memalign(align, n);

	errno = saved;
	if (!p)
		return ENOMEM;
	*p_ret = p;
	return 0;
}

void free(void *p)
{
	if (p && !in_arena(p) && next.free)
		next.free(p);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
	if ((flags & MAP_ANONYMOUS) && out_of_memory())
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, off);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off) SAME_AS(mmap);
