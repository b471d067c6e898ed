/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a directory: opened, copied and hashed. */
#include "directory/copying.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "container/containers.h"
#include "format/safetensors.h"
#include "io/hash.h"

#define BUFFER_NBYTES (UINT64_C(1) << 20)

enum tsr_status tsr_open_below(struct tsr_traversal *t, const char *root, const char *name,
			       struct tsr_file **ret)
{
	const char *path, *slash, *directory;

	TSR_TRY(tsr_traversal_path(t, root, name, &path));
	slash = strrchr(path, '/');
	directory = tsr_arena_copy(t->scratch, path, (size_t)(slash - path));
	if (!directory)
		return tsr_fail_nomem(t->err, root);
	return tsr_file_open_in(*directory ? directory : "/", slash + 1,
				root != t->out && t->follow, ret, t->err);
}

enum tsr_status tsr_probe_below(struct tsr_traversal *t, const char *root, const char *name,
				bool *ret)
{
	struct tsr_file *f = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_open_below(t, root, name, &f));
	status = tsr_container_probe(f, ret, t->err);
	tsr_file_close(f);
	return status;
}

struct copying {
	struct tsr_traversal *t;
	const struct tsr_file *from;
	struct tsr_outfile *to; /* NULL: only hash */
	struct tsr_hasher *hasher;
	char *buffer;
};

static enum tsr_status copy_bytes(const struct copying *c)
{
	const uint64_t nbytes = tsr_file_size(c->from);
	struct tsr_err *err = c->t->err;

	for (uint64_t at = 0; at < nbytes;) {
		const uint64_t left = nbytes - at;
		const size_t n = (size_t)(left < BUFFER_NBYTES ? left : BUFFER_NBYTES);

		TSR_TRY(tsr_file_read(c->from, c->buffer, n, at, err));
		tsr_hasher_add(c->hasher, c->buffer, n);
		if (c->to)
			TSR_TRY(tsr_outfile_write(c->to, c->buffer, n, at, err));
		at += n;
		TSR_TRY(tsr_traversal_at(c->t, at, nbytes));
	}
	return tsr_file_check_unchanged(c->from, err);
}

static enum tsr_status copy_open(struct tsr_traversal *t, const struct tsr_file *from,
				 const char *to, struct tsr_stored_file *ret)
{
	struct copying c = { .t = t, .from = from };
	enum tsr_status status = TSR_OK;

	c.hasher = tsr_hasher_new();
	c.buffer = malloc(BUFFER_NBYTES);
	if (!c.hasher || !c.buffer)
		status = tsr_fail_nomem(t->err, tsr_file_path(from));
	if (status == TSR_OK && to)
		status = tsr_outfile_create(to, false, tsr_file_size(from), &c.to, t->err);
	if (status == TSR_OK)
		status = copy_bytes(&c);
	if (status == TSR_OK) {
		ret->nbytes = tsr_file_size(from);
		ret->hash = tsr_hasher_value(c.hasher);
	}
	if (status == TSR_OK && c.to)
		status = tsr_traversal_settle(t, tsr_outfile_publish(c.to, t->err));
	else
		tsr_outfile_discard(c.to);
	tsr_hasher_free(c.hasher);
	free(c.buffer);
	return status;
}

enum tsr_status tsr_copy_file(struct tsr_traversal *t, const char *root, const char *name,
			      const char *to, struct tsr_stored_file *ret)
{
	struct tsr_file *f = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_open_below(t, root, name, &f));
	status = copy_open(t, f, to, ret);
	tsr_file_close(f);
	return status;
}

enum tsr_status tsr_write_text(struct tsr_traversal *t, const char *to, bool force,
			       const struct tsr_text *text)
{
	struct tsr_outfile *f = NULL;
	enum tsr_status status;

	if (text->failed)
		return tsr_fail_nomem(t->err, to);
	status = tsr_outfile_create(to, force, text->nbytes, &f, t->err);
	if (status == TSR_OK)
		status = tsr_outfile_write(f, text->bytes, text->nbytes, 0, t->err);
	if (status == TSR_OK)
		return tsr_traversal_settle(t, tsr_outfile_publish(f, t->err));
	tsr_outfile_discard(f);
	return status;
}

enum tsr_status tsr_check_copy(struct tsr_traversal *t, const struct tsr_directory_entry *e,
			       const struct tsr_stored_file *found)
{
	if (found->nbytes == e->nbytes && found->hash == e->stored[0].hash)
		return TSR_OK;
	return tsr_fail(t->err, TSR_E_FORMAT,
			"%s/%s: damaged: found %" PRIu64 " bytes with the hash %016" PRIx64
			", expected %" PRIu64 " with %016" PRIx64,
			t->d->path, e->path, found->nbytes, found->hash, e->nbytes,
			e->stored[0].hash);
}

static enum tsr_status hash_header(const struct tsr_file *f, struct tsr_stored_file *ret,
				   struct tsr_err *err)
{
	unsigned char length[8];
	uint64_t nbytes;
	enum tsr_status status;
	char *header;

	ret->nbytes = tsr_file_size(f);
	TSR_TRY(tsr_file_read(f, length, ret->nbytes < 8 ? (size_t)ret->nbytes : 8, 0, err));
	nbytes = ret->nbytes < 8 ? UINT64_MAX : tsr_get_le(length, 8);
	if (nbytes > TSR_ST_HEADER_MAX || nbytes + 8 > ret->nbytes)
		return tsr_fail(err, TSR_E_FORMAT, "%s: is no packed file", tsr_file_path(f));
	header = malloc((size_t)nbytes + 8);
	if (!header)
		return tsr_fail_nomem(err, tsr_file_path(f));
	status = tsr_file_read(f, header, (size_t)nbytes + 8, 0, err);
	if (status == TSR_OK)
		ret->hash = tsr_hash(header, (size_t)nbytes + 8, 0);
	free(header);
	return status;
}

enum tsr_status tsr_hash_header(struct tsr_traversal *t, const char *root, const char *name,
				struct tsr_stored_file *ret)
{
	struct tsr_file *f = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_open_below(t, root, name, &f));
	status = hash_header(f, ret, t->err);
	tsr_file_close(f);
	return status;
}
