/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is a file without a name, for what is larger than memory. */
#include "io/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/file_calls.h"
#include "io/page_cache.h"

#define ALIGN 64u

struct tsr_mapped {
	int fd;
	char *what, *directory;
	unsigned char *base;
	uint64_t nbytes, used;
	size_t page;
	struct tsr_trail *trail;
};

/* Where the file system cannot reserve, zeros do. */
static enum tsr_status write_zeros(const struct tsr_mapped *m, struct tsr_err *err)
{
	static const unsigned char zeros[1 << 16];
	enum tsr_status status = TSR_OK;

	for (uint64_t at = 0; at < m->nbytes && status == TSR_OK; at += sizeof(zeros)) {
		const uint64_t left = m->nbytes - at;

		status = tsr_write_all(m->fd, m->what, "cannot reserve room for the state", zeros,
				       left < sizeof(zeros) ? (size_t)left : sizeof(zeros), at,
				       err);
	}
	return status;
}

static enum tsr_status reserve(const struct tsr_mapped *m, struct tsr_err *err)
{
	int failed;

	do {
		failed = fallocate(m->fd, 0, 0, (off_t)m->nbytes);
	} while (failed && errno == EINTR);
	if (failed && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
		return write_zeros(m, err);
	if (failed)
		return tsr_fail_errno(err, errno, "%s: cannot reserve %" PRIu64 " bytes in %s",
				      m->what, m->nbytes, m->directory);
	return TSR_OK;
}

static enum tsr_status start(struct tsr_mapped *m, struct tsr_err *err)
{
	void *base;

	if (!m->what || !m->directory)
		return tsr_fail_nomem(err, m->what ? m->what : "state");
	m->fd = tsr_nameless_open(m->directory);
	if (m->fd < 0)
		return tsr_fail_errno(err, errno, "%s: cannot make a scratch file in %s", m->what,
				      m->directory);
	TSR_TRY(reserve(m, err));
	base = mmap(NULL, m->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (base == MAP_FAILED)
		return tsr_fail_errno(err, errno, "%s: cannot map %" PRIu64 " bytes in %s", m->what,
				      m->nbytes, m->directory);
	m->base = base;
	return TSR_OK;
}

enum tsr_status tsr_mapped_new(const char *directory, const char *what, uint64_t nbytes,
			       struct tsr_mapped **ret, struct tsr_err *err)
{
	struct tsr_mapped *m = NULL;
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&m, 1, err, what));
	*m = (struct tsr_mapped){ .fd = -1,
				  .what = strdup(what),
				  .directory = strdup(directory),
				  .nbytes = nbytes ? nbytes : 1,
				  .page = (size_t)sysconf(_SC_PAGESIZE),
				  .trail = tsr_trail_new() };
	status = start(m, err);
	return TSR_MADE(status, ret, m, tsr_mapped_free);
}

void *tsr_mapped_take(struct tsr_mapped *m, uint64_t nbytes)
{
	const uint64_t at = (m->used + ALIGN - 1) / ALIGN * ALIGN;

	if (at > m->nbytes || nbytes > m->nbytes - at)
		return NULL;
	m->used = at + nbytes;
	return m->base + at;
}

void tsr_mapped_leave(struct tsr_mapped *m, const void *at, size_t nbytes)
{
	const uint64_t offset = tsr_mapped_offset(m, at);
	const uint64_t first = (offset + m->page - 1) / m->page * m->page;
	const uint64_t end = (offset + nbytes) / m->page * m->page;

	if (end <= first)
		return;
	/* What was written stays in the file, first in its cache; the pages leave this process. */
	(void)madvise(m->base + first, end - first, MADV_DONTNEED);
	tsr_trail_written(m->trail, m->fd, first, end - first);
}

enum tsr_status tsr_mapped_file(const struct tsr_mapped *m, struct tsr_file **ret,
				struct tsr_err *err)
{
	return tsr_file_take_scratch(fcntl(m->fd, F_DUPFD_CLOEXEC, 0), m->what, m->directory, ret,
				     err);
}

uint64_t tsr_mapped_offset(const struct tsr_mapped *m, const void *at)
{
	return (uint64_t)((const unsigned char *)at - m->base);
}

void tsr_mapped_free(struct tsr_mapped *m)
{
	if (!m)
		return;
	if (m->base)
		munmap(m->base, m->nbytes);
	if (m->fd >= 0)
		close(m->fd);
	tsr_trail_free(m->trail);
	free(m->what);
	free(m->directory);
	free(m);
}
