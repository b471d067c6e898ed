/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of a store: files that are named by their hash and never change. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/order.h"
#include "text/text.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/file_calls.h"
#include "io/hash.h"
#include "store/store_data.h"

enum tsr_status tsr_store_path(const struct tsr_store *s, char **ret, struct tsr_err *err,
			       const char *fmt, ...)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text name = { 0 };
	va_list ap;

	va_start(ap, fmt);
	tsr_text_vprintf(&name, fmt, ap);
	va_end(ap);
	*ret = name.failed ? NULL : tsr_path_join(s->path, name.bytes);
	return *ret ? TSR_OK : tsr_fail_nomem(err, s->path);
}

/* --- Names ------------------------------------------------------------------------------------ */

struct tsr_object_text tsr_object_text(const struct tsr_object_id *id)
{
	struct tsr_object_text t;

	snprintf(t.text, sizeof(t.text), "%016" PRIx64 "%016" PRIx64, id->high, id->low);
	return t;
}

bool tsr_object_parse(const char *text, struct tsr_object_id *ret)
{
	char high[17] = { 0 };

	if (strlen(text) != TSR_OBJECT_DIGITS ||
	    strspn(text, "0123456789abcdef") != TSR_OBJECT_DIGITS)
		return false;
	memcpy(high, text, 16);
	*ret = (struct tsr_object_id){ .high = strtoull(high, NULL, 16),
				       .low = strtoull(text + 16, NULL, 16) };
	return true;
}

struct tsr_object_id tsr_object_name(const void *bytes, size_t nbytes)
{
	struct tsr_object_id id;

	tsr_hash128(bytes, nbytes, &id.low, &id.high);
	return id;
}

static enum tsr_status object_path(const struct tsr_store *s, const struct tsr_object_id *id,
				   char **ret, struct tsr_err *err)
{
	const struct tsr_object_text t = tsr_object_text(id);

	return tsr_store_path(s, ret, err, "objects/%.2s/%s", t.text, t.text + 2);
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* Give a new object its name unless another has it: errno EEXIST.  File systems without links replace it. */
static bool name_new(const char *temp, const char *path)
{
	return link(temp, path) == 0 ||
	       ((errno == EPERM || errno == ENOTSUP) && rename(temp, path) == 0);
}

/* The directory of an object is made when the first of its objects is. */
static bool make_folder_of(char *path)
{
	char *slash = strrchr(path, '/');
	bool made;

	*slash = '\0';
	made = mkdir(path, 0777) == 0 || errno == EEXIST;
	*slash = '/';
	return made;
}

static enum tsr_status write_new(const struct tsr_store *s, const char *temp, char *path,
				 const void *bytes, size_t nbytes, bool *is_new,
				 struct tsr_err *err)
{
	const int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	enum tsr_status status;

	if (fd < 0)
		return tsr_fail_errno(err, errno, "%s: cannot make an object", s->path);
	status = tsr_write_all(fd, s->path, "cannot write an object", bytes, nbytes, 0, err);
	if (close(fd) != 0 && status == TSR_OK)
		status = tsr_fail_errno(err, errno, "%s: cannot write an object", s->path);
	if (status == TSR_OK) {
		*is_new = name_new(temp, path) ||
			  (errno == ENOENT && make_folder_of(path) && name_new(temp, path));
		if (!*is_new && errno != EEXIST)
			status = tsr_fail_errno(err, errno, "%s: cannot name an object", s->path);
	}
	unlink(temp);
	return status;
}

enum tsr_status tsr_object_put(const struct tsr_store *s, const struct tsr_object_id *id,
			       const void *bytes, size_t nbytes, bool *is_new, struct tsr_err *err)
{
	static atomic_uint counter;
	TSR_OWNED(free) char *path = NULL;
	TSR_OWNED(free) char *temp = NULL;

	*is_new = false;
	TSR_TRY(object_path(s, id, &path, err));
	if (access(path, F_OK) == 0)
		return TSR_OK;
	TSR_TRY(tsr_store_path(s, &temp, err, "new/%ld.%u", (long)getpid(),
			       atomic_fetch_add(&counter, 1)));
	return write_new(s, temp, path, bytes, nbytes, is_new, err);
}

enum tsr_status tsr_objects_sync(const struct tsr_store *s, struct tsr_err *err)
{
	TSR_SCOPED(tsr_fd_close) int fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return tsr_fail_errno(err, errno, "%s: cannot open", s->path);
	if (syncfs(fd) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot sync", s->path);
	return TSR_OK;
}

enum tsr_status tsr_object_remove(const struct tsr_store *s, const struct tsr_object_id *id,
				  struct tsr_err *err)
{
	TSR_OWNED(free) char *path = NULL;

	TSR_TRY(object_path(s, id, &path, err));
	if (unlink(path) != 0 && errno != ENOENT)
		return tsr_fail_errno(err, errno, "%s: cannot remove", path);
	return TSR_OK;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static enum tsr_status check_name(const struct tsr_file *f, const struct tsr_object_id *id,
				  const uint8_t *bytes, size_t nbytes, struct tsr_err *err)
{
	const struct tsr_object_id found = tsr_object_name(bytes, nbytes);

	if (tsr_object_is(&found, id))
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT, "%s: damaged: its bytes have the hash %s",
			tsr_file_path(f), tsr_object_text(&found).text);
}

enum tsr_status tsr_object_get(const struct tsr_store *s, const struct tsr_object_id *id,
			       uint8_t *bytes, size_t *nbytes_ret, struct tsr_err *err)
{
	TSR_OWNED(free) char *path = NULL;
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(object_path(s, id, &path, err));
	if (access(path, F_OK) != 0 && errno == ENOENT)
		return tsr_fail(err, TSR_E_FORMAT, "%s: is missing from the store", path);
	TSR_TRY(tsr_file_open(path, &f, err));
	if (tsr_file_size(f) > TSR_OBJECT_MAX)
		return tsr_fail(err, TSR_E_FORMAT, "%s: damaged: it is larger than any object",
				path);
	*nbytes_ret = (size_t)tsr_file_size(f);
	TSR_TRY(tsr_file_read(f, bytes, *nbytes_ret, 0, err));
	return check_name(f, id, bytes, *nbytes_ret, err);
}

enum tsr_status tsr_object_reader_open(struct tsr_object_reader *r, bool with_bases,
				       struct tsr_err *err)
{
	bool failed;

	*r = (struct tsr_object_reader){ .coder = tsr_block_coder_new(),
					 .bytes = malloc(TSR_OBJECT_MAX) };
	failed = !r->coder || !r->bytes;
	for (unsigned i = 0; i < 2; i++) {
		r->y[i] = malloc((size_t)TSR_STORE_BLOCK * TSR_ENTROPY_WIDTH);
		r->version[i] = malloc(TSR_STORE_BLOCK * sizeof(float));
		r->base[i] = with_bases ? malloc(TSR_STORE_BLOCK * sizeof(float)) : NULL;
		failed = failed || !r->y[i] || !r->version[i] || (with_bases && !r->base[i]);
	}
	if (!failed)
		return TSR_OK;
	tsr_object_reader_close(r);
	return tsr_fail_nomem(err, "blocks of a store");
}

void tsr_object_reader_close(struct tsr_object_reader *r)
{
	tsr_block_coder_free(r->coder);
	free(r->bytes);
	for (unsigned i = 0; i < 2; i++) {
		free(r->y[i]);
		free(r->version[i]);
		free(r->base[i]);
	}
	*r = (struct tsr_object_reader){ .coder = NULL };
}

static enum tsr_status damaged(const struct tsr_store *s, const struct tsr_object_id *id,
			       const char *wrong, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_FORMAT, "%s: object %s: %s", s->path, tsr_object_text(id).text,
			wrong);
}

/* The versions that an object is decoded with, down to one that stands alone. */
static enum tsr_status find_chain(const struct tsr_store *s, struct tsr_object_reader *r,
				  struct tsr_object_id id, size_t *nbytes, struct tsr_err *err)
{
	struct tsr_object_head head = { .depth = TSR_STORE_CHAIN_MAX + 1 };
	unsigned depth;

	r->nchain = 0;
	do {
		const char *wrong;

		depth = head.depth;
		r->chain[r->nchain++] = id;
		TSR_TRY(tsr_object_get(s, &id, r->bytes, nbytes, err));
		wrong = tsr_object_head(r->bytes, *nbytes, &head);
		if (!wrong && head.depth >= depth)
			wrong = "its depth is not that of its base and one";
		if (wrong)
			return damaged(s, &id, wrong, err);
		id = head.base;
	} while (head.depth);
	return TSR_OK;
}

enum tsr_status tsr_object_read(const struct tsr_store *s, struct tsr_object_reader *r,
				const struct tsr_object_id *id, const struct tsr_block_of *of,
				struct tsr_err *err)
{
	const float *base = NULL;
	size_t nbytes;

	TSR_TRY(find_chain(s, r, *id, &nbytes, err));
	r->base_at[0] = r->nchain > TSR_STORE_CHAIN_MAX ? 1 : 0;
	r->base_at[1] = r->nchain > TSR_STORE_CHAIN_MAX ? TSR_STORE_CHAIN_MAX / 2 : 0;
	for (unsigned i = r->nchain; i-- > 0;) {
		void *const to[TSR_SLOTS] = { i ? r->version[i % 2] : r->y[0], i ? NULL : r->y[1] };
		const char *wrong;

		if (i + 1 < r->nchain)
			TSR_TRY(tsr_object_get(s, &r->chain[i], r->bytes, &nbytes, err));
		if (i && (of->slots != 1 || of->dtype != TSR_F32))
			return damaged(s, id, "only weights have earlier versions", err);
		wrong = tsr_block_decode(r->coder, of, r->bytes, nbytes, base, to);
		if (wrong)
			return damaged(s, &r->chain[i], wrong, err);
		base = to[0];
		for (unsigned k = 0; k < 2; k++)
			if (r->base[k] && i == r->base_at[k])
				memcpy(r->base[k], base, of->at.n * sizeof(*base));
	}
	return TSR_OK;
}

/* --- Listing ---------------------------------------------------------------------------------- */

static enum tsr_status list_one(struct tsr_store *s, const char *directory, const char *prefix,
				const char *name, struct tsr_err *err)
{
	TSR_OWNED(free) char *path = tsr_path_join(directory, name);
	struct tsr_known_object o = { .nbytes = 0 };
	struct tsr_object_text id;
	struct stat st;

	if (!path)
		return tsr_fail_nomem(err, s->path);
	snprintf(id.text, sizeof(id.text), "%s%.30s", prefix, name);
	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || strlen(name) != 30 ||
	    !tsr_object_parse(id.text, &o.id))
		return tsr_fail(err, TSR_E_FORMAT, "%s/%s: is no object of the store", directory,
				name);
	o.nbytes = (uint64_t)st.st_size;
	TSR_TRY(TSR_GROW(&s->objects, s->nobjects, err, s->path));
	s->objects[s->nobjects++] = o;
	return TSR_OK;
}

TSR_COMPARE_BY(by_id, struct tsr_known_object, TSR_ORDER(a->id.high, b->id.high),
	       TSR_ORDER(a->id.low, b->id.low))

struct tsr_known_object *tsr_objects_find(const struct tsr_store *s, const struct tsr_object_id *id)
{
	const struct tsr_known_object key = { .id = *id };

	return s->nobjects ? bsearch(&key, s->objects, s->nobjects, sizeof(key), by_id) : NULL;
}

static enum tsr_status list_directory(struct tsr_store *s, const char *path, const char *prefix,
				      struct tsr_err *err)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir names = { 0 };

	TSR_TRY(tsr_dir_list(path, "", &names, err));
	for (size_t i = 0; i < names.n; i++)
		TSR_TRY(list_one(s, path, prefix, names.names[i], err));
	return TSR_OK;
}

enum tsr_status tsr_objects_list(struct tsr_store *s, struct tsr_err *err)
{
	free(s->objects);
	s->objects = NULL;
	s->nobjects = 0;
	for (unsigned i = 0; i < 256; i++) {
		TSR_OWNED(free) char *path = NULL;
		char prefix[3];

		TSR_TRY(tsr_store_path(s, &path, err, "objects/%02x", i));
		snprintf(prefix, sizeof(prefix), "%02x", i);
		if (tsr_dir_is(path))
			TSR_TRY(list_directory(s, path, prefix, err));
	}
	if (s->nobjects)
		qsort(s->objects, s->nobjects, sizeof(*s->objects), by_id);
	return TSR_OK;
}
