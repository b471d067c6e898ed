/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a directory: opened, copied and hashed. */
#include "directory/copying.h"

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
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(tsr_open_below(t, root, name, &f));
	return tsr_container_probe(f, ret, t->err);
}

/* @to is NULL: only hash. */
static enum tsr_status copy_bytes(struct tsr_traversal *t, const struct tsr_file *from,
				  struct tsr_outfile *to, struct tsr_stored_file *ret)
{
	TSR_OWNED(tsr_hasher_free) struct tsr_hasher *hasher = tsr_hasher_new();
	TSR_OWNED(free) char *buffer = malloc(BUFFER_NBYTES);

	if (!hasher || !buffer)
		return tsr_fail_nomem(t->err, tsr_file_path(from));
	ret->nbytes = tsr_file_size(from);
	for (uint64_t at = 0; at < ret->nbytes;) {
		const uint64_t left = ret->nbytes - at;
		const size_t n = (size_t)(left < BUFFER_NBYTES ? left : BUFFER_NBYTES);

		TSR_TRY(tsr_file_read(from, buffer, n, at, t->err));
		tsr_hasher_add(hasher, buffer, n);
		if (to)
			TSR_TRY(tsr_outfile_write(to, buffer, n, at, t->err));
		at += n;
		TSR_TRY(tsr_traversal_at(t, at, ret->nbytes));
	}
	ret->hash = tsr_hasher_value(hasher);
	return tsr_file_check_unchanged(from, t->err);
}

enum tsr_status tsr_copy_file(struct tsr_traversal *t, const char *root, const char *name,
			      const char *to, struct tsr_stored_file *ret)
{
	TSR_OWNED(tsr_outfile_discard) struct tsr_outfile *out = NULL;
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(tsr_open_below(t, root, name, &f));
	if (to)
		TSR_TRY(tsr_outfile_create(to, false, tsr_file_size(f), &out, t->err));
	TSR_TRY(copy_bytes(t, f, out, ret));
	return to ? tsr_traversal_settle(t, tsr_outfile_publish(&out, t->err)) : TSR_OK;
}

enum tsr_status tsr_write_text(struct tsr_traversal *t, const char *to, bool force,
			       const struct tsr_text *text)
{
	if (text->failed)
		return tsr_fail_nomem(t->err, to);
	return tsr_traversal_settle(
		t, tsr_outfile_write_whole(to, force, text->bytes, text->nbytes, t->err));
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

enum tsr_status tsr_hash_header(struct tsr_traversal *t, const char *root, const char *name,
				struct tsr_stored_file *ret)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	TSR_OWNED(free) char *header = NULL;
	unsigned char length[8];
	uint64_t nbytes;

	TSR_TRY(tsr_open_below(t, root, name, &f));
	ret->nbytes = tsr_file_size(f);
	TSR_TRY(tsr_file_read(f, length, ret->nbytes < 8 ? (size_t)ret->nbytes : 8, 0, t->err));
	nbytes = ret->nbytes < 8 ? UINT64_MAX : tsr_get_le(length, 8);
	if (nbytes > TSR_ST_HEADER_MAX || nbytes + 8 > ret->nbytes)
		return tsr_fail(t->err, TSR_E_FORMAT, "%s: is no packed file", tsr_file_path(f));
	TSR_TRY(TSR_NEW(&header, (size_t)nbytes + 8, t->err, tsr_file_path(f)));
	TSR_TRY(tsr_file_read(f, header, (size_t)nbytes + 8, 0, t->err));
	ret->hash = tsr_hash(header, (size_t)nbytes + 8, 0);
	return TSR_OK;
}
