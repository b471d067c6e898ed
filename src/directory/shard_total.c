/* SPDX-License-Identifier: Apache-2.0 */
/* The total_size in copies of Hugging Face indices: narrow weights take fewer bytes than the source's. */
#include "directory/shard_total.h"

#include "base/fail.h"
#include "base/little_endian.h"
#include "format/shard_index.h"
#include "io/dir.h"
#include "io/hash.h"

/* --- Correcting ------------------------------------------------------------------------------- */

/* The digits of the only "total_size" in a text, if they are @total. */
static bool find_total(const char *text, double total, size_t *at_ret, size_t *n_ret)
{
	static const char key[] = "\"total_size\"";
	const char *found = strstr(text, key), *at;
	char *end;

	if (!found || strstr(found + 1, key))
		return false;
	at = found + strlen(key);
	at += strspn(at, " \t\r\n");
	if (*at++ != ':')
		return false;
	at += strspn(at, " \t\r\n");
	*n_ret = strspn(at, "0123456789");
	*at_ret = (size_t)(at - text);
	return *n_ret && *n_ret <= TSR_TOTAL_DIGITS_MAX && strtod(at, &end) == total &&
	       end == at + *n_ret;
}

/* Bytes of data of a safetensors file below @out. */
static enum tsr_status data_nbytes(struct tsr_traversal *t, const char *path, uint64_t *ret)
{
	unsigned char length[8] = { 0 };
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(tsr_open_below(t, t->out, path, &f));
	*ret = tsr_file_size(f);
	if (*ret >= 8)
		TSR_TRY(tsr_file_read(f, length, 8, 0, t->err));
	*ret -= *ret >= 8 ? 8 : 0;
	*ret -= tsr_get_le(length, 8) <= *ret ? tsr_get_le(length, 8) : 0;
	return TSR_OK;
}

/* The bytes of data of all shards as they are stored; *narrow_ret: whether some have narrow weights. */
static enum tsr_status add_shards(struct tsr_traversal *t, const struct tsr_directory_entry *e,
				  const struct tsr_index *index, uint64_t *total_ret,
				  bool *narrow_ret)
{
	*total_ret = 0;
	*narrow_ret = false;
	for (size_t i = 0; i < index->nshards; i++) {
		const char *path = tsr_directory_beside(t->d, e, index->shards[i]);
		const struct tsr_directory_entry *shard;
		uint64_t nbytes;

		if (!path)
			return tsr_directory_nomem(t->d, t->err);
		shard = tsr_directory_find(t->d, path);
		/* Without the file itself, or with a shard that is not there, nothing can be said. */
		if (!shard || !shard->nstored || strcmp(shard->stored[0].path, path) != 0) {
			*narrow_ret = false;
			return TSR_OK;
		}
		*narrow_ret = *narrow_ret || shard->as == TSR_STORED_PACKED;
		TSR_TRY(data_nbytes(t, path, &nbytes));
		*total_ret += nbytes;
	}
	return TSR_OK;
}

/* The text of a file with the digits @is in place of @was at the entry's offset, to be freed. */
static enum tsr_status replace(const struct tsr_file *f, const struct tsr_directory_entry *e,
			       const char *was, const char *is, struct tsr_text *ret,
			       struct tsr_err *err)
{
	const size_t nbytes = (size_t)tsr_file_size(f), n = strlen(was);
	TSR_OWNED(free) char *text = NULL;

	TSR_TRY(tsr_file_load(f, TSR_INDEX_NBYTES_MAX, "an index", &text, err));
	if (e->total_at > nbytes || nbytes - e->total_at < n ||
	    memcmp(text + e->total_at, was, n) != 0)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: damaged: found no total_size of %s at offset %" PRIu64,
				tsr_file_path(f), was, e->total_at);
	tsr_text_put(ret, text, (size_t)e->total_at);
	tsr_text_puts(ret, is);
	tsr_text_put(ret, text + e->total_at + n, nbytes - (size_t)e->total_at - n);
	return TSR_OK;
}

/* Write other digits over those in the copy. */
static enum tsr_status edit(struct tsr_traversal *t, struct tsr_directory_entry *e,
			    const struct tsr_file *f, uint64_t total)
{
	struct tsr_stored_file *stored = (struct tsr_stored_file *)e->stored;
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };
	const char *path;

	e->total_is = tsr_arena_printf(t->d->arena, "%" PRIu64, total);
	if (!e->total_was || !e->total_is)
		return tsr_directory_nomem(t->d, t->err);
	TSR_TRY(tsr_traversal_path(t, t->out, e->path, &path));
	TSR_TRY(replace(f, e, e->total_was, e->total_is, &text, t->err));
	TSR_TRY(tsr_write_text(t, path, true, &text));
	stored->nbytes = text.nbytes;
	e->stored_nbytes = text.nbytes;
	return TSR_OK;
}

static enum tsr_status correct(struct tsr_traversal *t, struct tsr_directory_entry *e,
			       const struct tsr_file *f, const struct tsr_index *index)
{
	TSR_OWNED(free) char *text = NULL;
	uint64_t total;
	bool narrow;
	size_t at, n;

	TSR_TRY(add_shards(t, e, index, &total, &narrow));
	if (!narrow)
		return TSR_OK;
	TSR_TRY(tsr_file_load(f, TSR_INDEX_NBYTES_MAX, "an index", &text, t->err));
	if (!find_total(text, index->total, &at, &n))
		return TSR_OK;
	e->total_at = at;
	e->total_was = tsr_arena_printf(t->d->arena, "%.*s", (int)n, text + at);
	return edit(t, e, f, total);
}

enum tsr_status tsr_correct_totals(struct tsr_traversal *t)
{
	for (size_t i = 0; i < t->d->n; i++) {
		TSR_OWNED(tsr_index_free) struct tsr_index *index = NULL;
		TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
		struct tsr_directory_entry *e = &t->d->entries[i];

		if (e->as != TSR_STORED_COPY ||
		    !tsr_dir_name_ends_with(e->path, TSR_SHARD_INDEX_SUFFIX))
			continue;
		TSR_TRY(tsr_open_below(t, t->out, e->path, &f));
		/* What is no index of shards stays as it is. */
		if (tsr_index_read(f, &index, NULL) == TSR_OK && index->has_total)
			TSR_TRY(correct(t, e, f, index));
	}
	return TSR_OK;
}

enum tsr_status tsr_copy_original(struct tsr_traversal *t, const char *root,
				  const struct tsr_directory_entry *e, const char *to,
				  struct tsr_stored_file *ret)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	if (!e->total_was)
		return tsr_copy_file(t, root, e->path, to, ret);
	TSR_TRY(tsr_open_below(t, root, e->path, &f));
	TSR_TRY(replace(f, e, e->total_is, e->total_was, &text, t->err));
	if (to)
		TSR_TRY(tsr_write_text(t, to, false, &text));
	if (text.failed)
		return tsr_fail_nomem(t->err, tsr_file_path(f));
	ret->nbytes = text.nbytes;
	ret->hash = tsr_hash(text.bytes, text.nbytes, 0);
	return TSR_OK;
}
