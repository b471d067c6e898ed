/* SPDX-License-Identifier: Apache-2.0 */
/* The total_size in copies of Hugging Face indices: narrow weights take fewer bytes than the source's. */
#include "directory/shard_total.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
static enum tsr_status data_nbytes(const char *out, const char *path, uint64_t *ret,
				   struct tsr_err *err)
{
	const struct tsr_place_in at = { out, path, false };
	unsigned char length[8] = { 0 };
	struct tsr_file *f = NULL;
	enum tsr_status status = TSR_OK;

	TSR_TRY(tsr_open_below(&at, &f, err));
	*ret = tsr_file_size(f);
	if (*ret >= 8)
		status = tsr_file_read(f, length, 8, 0, err);
	*ret -= *ret >= 8 ? 8 : 0;
	*ret -= tsr_get_le(length, 8) <= *ret ? tsr_get_le(length, 8) : 0;
	tsr_file_close(f);
	return status;
}

/* The bytes of data of all shards as they are stored; *narrow_ret: whether some have narrow weights. */
static enum tsr_status add_shards(struct tsr_directory *d, const struct tsr_directory_entry *e,
				  const struct tsr_index *index, const char *out,
				  uint64_t *total_ret, bool *narrow_ret, struct tsr_err *err)
{
	*total_ret = 0;
	*narrow_ret = false;
	for (size_t i = 0; i < index->nshards; i++) {
		const char *path = tsr_directory_beside(d, e, index->shards[i]);
		const struct tsr_directory_entry *shard;
		uint64_t nbytes;

		if (!path)
			return tsr_directory_nomem(d, err);
		shard = tsr_directory_find(d, path);
		/* Without the file itself, or with a shard that is not there, nothing can be said. */
		if (!shard || !shard->nstored || strcmp(shard->stored[0].path, path) != 0) {
			*narrow_ret = false;
			return TSR_OK;
		}
		*narrow_ret = *narrow_ret || shard->as == TSR_STORED_PACKED;
		TSR_TRY(data_nbytes(out, path, &nbytes, err));
		*total_ret += nbytes;
	}
	return TSR_OK;
}

/* Write @text with other digits at e->total_at over the copy. */
static enum tsr_status write_edited(struct tsr_directory_entry *e, const char *out,
				    const char *text, size_t nbytes, struct tsr_by_file *b,
				    struct tsr_err *err)
{
	const size_t at = (size_t)e->total_at, was = strlen(e->total_was), is = strlen(e->total_is);
	char *path = tsr_path_join(out, e->path);
	struct tsr_outfile *f = NULL;
	enum tsr_status status;

	if (!path)
		return tsr_fail_nomem(err, out);
	status = tsr_outfile_create(path, true, nbytes - was + is, &f, err);
	if (status == TSR_OK)
		status = tsr_outfile_write(f, text, at, 0, err);
	if (status == TSR_OK)
		status = tsr_outfile_write(f, e->total_is, is, at, err);
	if (status == TSR_OK)
		status = tsr_outfile_write(f, text + at + was, nbytes - at - was, at + is, err);
	if (status == TSR_OK)
		status = tsr_by_file_settle(b, tsr_outfile_publish(f, err));
	else
		tsr_outfile_discard(f);
	free(path);
	return status;
}

static enum tsr_status edit(struct tsr_directory *d, struct tsr_directory_entry *e, const char *out,
			    const struct tsr_file *f, const struct tsr_index *index,
			    struct tsr_by_file *b, struct tsr_err *err)
{
	struct tsr_stored_file *stored = (struct tsr_stored_file *)e->stored;
	enum tsr_status status;
	char *text = NULL;
	size_t at, n;
	uint64_t total;
	bool narrow;

	TSR_TRY(add_shards(d, e, index, out, &total, &narrow, err));
	if (!narrow)
		return TSR_OK;
	TSR_TRY(tsr_file_load(f, TSR_INDEX_NBYTES_MAX, "an index", &text, err));
	status = TSR_OK;
	if (find_total(text, index->total, &at, &n)) {
		e->total_at = at;
		e->total_was = tsr_directory_text(d, "%.*s", (int)n, text + at);
		e->total_is = tsr_directory_text(d, "%" PRIu64, total);
		status = e->total_was && e->total_is
				 ? write_edited(e, out, text, (size_t)tsr_file_size(f), b, err)
				 : tsr_directory_nomem(d, err);
		if (status == TSR_OK) {
			stored->nbytes = e->nbytes - n + strlen(e->total_is);
			e->stored_nbytes = stored->nbytes;
		}
	}
	free(text);
	return status;
}

enum tsr_status tsr_correct_totals(struct tsr_directory *d, const char *out, struct tsr_by_file *b,
				   struct tsr_err *err)
{
	for (size_t i = 0; i < d->n; i++) {
		struct tsr_directory_entry *e = &d->entries[i];
		const struct tsr_place_in at = { out, e->path, false };
		struct tsr_index *index = NULL;
		struct tsr_file *f = NULL;
		enum tsr_status status = TSR_OK;

		if (e->as != TSR_STORED_COPY ||
		    !tsr_dir_name_ends_with(e->path, TSR_SHARD_INDEX_SUFFIX))
			continue;
		TSR_TRY(tsr_open_below(&at, &f, err));
		/* What is no index of shards stays as it is. */
		if (tsr_index_read(f, &index, NULL) == TSR_OK && index->has_total)
			status = edit(d, e, out, f, index, b, err);
		tsr_index_free(index);
		tsr_file_close(f);
		TSR_TRY(status);
	}
	return TSR_OK;
}

/* --- Restoring -------------------------------------------------------------------------------- */

static enum tsr_status write_text(const char *to, const char *text, size_t nbytes,
				  struct tsr_by_file *b, struct tsr_err *err)
{
	struct tsr_outfile *f = NULL;
	enum tsr_status status = tsr_outfile_create(to, false, nbytes, &f, err);

	if (status == TSR_OK)
		status = tsr_outfile_write(f, text, nbytes, 0, err);
	if (status == TSR_OK)
		return tsr_by_file_settle(b, tsr_outfile_publish(f, err));
	tsr_outfile_discard(f);
	return status;
}

/* The text with the source's digits, in *ret, to be freed. */
static enum tsr_status restore(const struct tsr_file *f, const struct tsr_directory_entry *e,
			       struct tsr_text *ret, struct tsr_err *err)
{
	const size_t nbytes = (size_t)tsr_file_size(f), is = strlen(e->total_is);
	char *text = NULL;

	TSR_TRY(tsr_file_load(f, TSR_INDEX_NBYTES_MAX, "an index", &text, err));
	if (e->total_at > nbytes || nbytes - e->total_at < is ||
	    memcmp(text + e->total_at, e->total_is, is) != 0) {
		free(text);
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: damaged: found no total_size of %s at offset %" PRIu64,
				tsr_file_path(f), e->total_is, e->total_at);
	}
	tsr_text_put(ret, text, (size_t)e->total_at);
	tsr_text_puts(ret, e->total_was);
	tsr_text_put(ret, text + e->total_at + is, nbytes - (size_t)e->total_at - is);
	free(text);
	return ret->failed ? tsr_fail_nomem(err, tsr_file_path(f)) : TSR_OK;
}

enum tsr_status tsr_copy_original(struct tsr_by_file *b, const struct tsr_place_in *from,
				  const struct tsr_directory_entry *e, const char *to,
				  struct tsr_stored_file *ret, struct tsr_err *err)
{
	struct tsr_text text = { 0 };
	struct tsr_file *f = NULL;
	enum tsr_status status;

	if (!e->total_was)
		return tsr_copy_file(b, from, to, ret, err);
	TSR_TRY(tsr_open_below(from, &f, err));
	status = restore(f, e, &text, err);
	if (status == TSR_OK) {
		ret->nbytes = text.nbytes;
		ret->hash = tsr_hash(text.bytes, text.nbytes, 0);
	}
	if (status == TSR_OK && to)
		status = write_text(to, text.bytes, text.nbytes, b, err);
	tsr_text_free(&text);
	tsr_file_close(f);
	return status;
}
