/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run costs, in numbers that do not depend on the machine: linked into build/counted/tersor, whose
 * parsers gcc's -fsanitize-coverage=trace-pc makes call us at every branch.  At exit one line goes to the
 * file that TERSOR_COUNTS names: operations, the most bytes allocated at a time, and all bytes allocated.
 *
 * A branch is an operation, and so are 16 bytes that a function of the C library looks at, copies, reads
 * or inflates; formatting a text is 64 and those of its length.  Memory is what malloc() gives to the tool and its libraries.
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <zlib.h>

static uint64_t operations, allocated, most, total;

static void add(uint64_t *to, uint64_t n)
{
	__atomic_add_fetch(to, n, __ATOMIC_RELAXED);
}

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
	add(&operations, 1);
}

static void count_bytes(size_t n)
{
	add(&operations, 1 + n / 16);
}

/* --- Functions over bytes: the linker's --wrap sends the calls of the tool here ------------------- */

#define WRAP(type, name, ...) \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

WRAP(void *, memcpy, void *to, const void *from, size_t n)
{
	count_bytes(n);
	return __real_memcpy(to, from, n);
}

WRAP(void *, memmove, void *to, const void *from, size_t n)
{
	count_bytes(n);
	return __real_memmove(to, from, n);
}

WRAP(void *, memset, void *to, int c, size_t n)
{
	count_bytes(n);
	return __real_memset(to, c, n);
}

static size_t common(const char *a, const char *b, size_t n, int text)
{
	size_t i = 0;

	while (i < n && a[i] == b[i] && (a[i] || !text))
		i++;
	return i;
}

WRAP(int, memcmp, const void *a, const void *b, size_t n)
{
	count_bytes(common(a, b, n, 0));
	return __real_memcmp(a, b, n);
}

WRAP(int, strcmp, const char *a, const char *b)
{
	count_bytes(common(a, b, SIZE_MAX, 1));
	return __real_strcmp(a, b);
}

WRAP(int, strncmp, const char *a, const char *b, size_t n)
{
	count_bytes(common(a, b, n, 1));
	return __real_strncmp(a, b, n);
}

WRAP(size_t, strlen, const char *s)
{
	const size_t n = __real_strlen(s);

	count_bytes(n);
	return n;
}

WRAP(char *, strchr, const char *s, int c)
{
	char *found = __real_strchr(s, c);

	count_bytes(found ? (size_t)(found - s) : __real_strlen(s));
	return found;
}

WRAP(char *, strrchr, const char *s, int c)
{
	count_bytes(__real_strlen(s));
	return __real_strrchr(s, c);
}

WRAP(char *, strstr, const char *s, const char *what)
{
	count_bytes(__real_strlen(s));
	return __real_strstr(s, what);
}

WRAP(void *, memchr, const void *s, int c, size_t n)
{
	const char *found = __real_memchr(s, c, n);

	count_bytes(found ? (size_t)(found - (const char *)s) : n);
	return (void *)found;
}

WRAP(ssize_t, pread, int fd, void *buf, size_t n, off_t at)
{
	count_bytes(n);
	return __real_pread(fd, buf, n, at);
}

WRAP(ssize_t, pwrite, int fd, const void *buf, size_t n, off_t at)
{
	count_bytes(n);
	return __real_pwrite(fd, buf, n, at);
}

WRAP(int, inflate, z_stream *z, int flush)
{
	const uLong before = z->total_out;
	const int code = __real_inflate(z, flush);

	count_bytes(z->total_out - before);
	return code;
}

WRAP(uint64_t, tsr_hash, const void *bytes, size_t n, uint64_t seed)
{
	count_bytes(n);
	return __real_tsr_hash(bytes, n, seed);
}

static int count_text(int n)
{
	count_bytes(n > 0 ? 16 * 64 + (size_t)n : 0);
	return n;
}

WRAP(int, vsnprintf, char *to, size_t room, const char *format, va_list args)
{
	return count_text(__real_vsnprintf(to, room, format, args));
}

int __wrap_snprintf(char *to, size_t room, const char *format, ...);
int __wrap_snprintf(char *to, size_t room, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = __real_vsnprintf(to, room, format, args);
	va_end(args);
	return count_text(n);
}

/* --- Memory: instead of the C library's, which goes on under its other names ---------------------- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

static void *given(void *p)
{
	const uint64_t n = p ? malloc_usable_size(p) : 0;
	const uint64_t now = __atomic_add_fetch(&allocated, n, __ATOMIC_RELAXED);
	uint64_t before = __atomic_load_n(&most, __ATOMIC_RELAXED);

	add(&total, n);
	while (now > before && !__atomic_compare_exchange_n(&most, &before, now, 1,
							    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return p;
}

static void taken(void *p)
{
	if (p)
		__atomic_sub_fetch(&allocated, malloc_usable_size(p), __ATOMIC_RELAXED);
}

void *malloc(size_t n)
{
	return given(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
	return given(__libc_calloc(n, size));
}

/* What cannot grow stays, and is counted once more. */
void *realloc(void *p, size_t n)
{
	void *moved;

	taken(p);
	moved = given(__libc_realloc(p, n));
	if (!moved && n)
		given(p);
	return moved;
}

void free(void *p)
{
	taken(p);
	__libc_free(p);
}

int posix_memalign(void **ret, size_t alignment, size_t n)
{
	void *p = given(__libc_memalign(alignment, n));

	if (!p)
		return 12; /* ENOMEM */
	*ret = p;
	return 0;
}

void *aligned_alloc(size_t alignment, size_t n)
{
	return given(__libc_memalign(alignment, n));
}

/* --- The figures ---------------------------------------------------------------------------------- */

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("TERSOR_COUNTS");
	char line[96];
	int fd, n;

	if (!path)
		return;
	n = snprintf(line, sizeof(line), "%llu %llu %llu\n", (unsigned long long)operations,
		     (unsigned long long)most, (unsigned long long)total);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
}
