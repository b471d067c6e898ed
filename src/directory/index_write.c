/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the index of a packed directory (docs/internals/format.md). */
#include <stdio.h>

#include "base/fail.h"
#include "directory/copying.h"
#include "directory/directory_data.h"
#include "io/hash.h"
#include "tersor/version.h"
#include "text/json.h"

static void put_hex(struct tsr_text *t, const char *key, uint64_t value)
{
	char text[TSR_INDEX_HEX + 1];

	snprintf(text, sizeof(text), "%016" PRIx64, value);
	tsr_json_put_string(t, key, text);
}

static void put_stored(struct tsr_text *t, const struct tsr_directory_entry *e)
{
	tsr_json_open(t, "files", '[');
	for (unsigned i = 0; i < e->nstored; i++) {
		tsr_json_open(t, NULL, '{');
		tsr_json_put_string(t, "path", e->stored[i].path);
		tsr_json_put_u64(t, "nbytes", e->stored[i].nbytes);
		put_hex(t, "header", e->stored[i].hash);
		tsr_json_close(t, '}');
	}
	tsr_json_close(t, ']');
}

static void put_entry(struct tsr_text *t, const struct tsr_directory_entry *e)
{
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", e->mode & 0777);
	tsr_json_open(t, NULL, '{');
	tsr_json_put_string(t, "path", e->path);
	tsr_json_put_string(t, "as", tsr_stored_as_name(e->as));
	tsr_json_put_string(t, "mode", mode);
	if (e->as != TSR_STORED_DIRECTORY)
		tsr_json_put_u64(t, "nbytes", e->nbytes);
	if (e->as == TSR_STORED_COPY)
		put_hex(t, "xxh3", e->stored[0].hash);
	if (e->total_was) {
		tsr_json_open(t, "total_size", '{');
		tsr_json_put_u64(t, "at", e->total_at);
		tsr_json_put_string(t, "was", e->total_was);
		tsr_json_put_string(t, "is", e->total_is);
		tsr_json_close(t, '}');
	}
	if (e->reason)
		tsr_json_put_string(t, "reason", e->reason);
	if (e->as == TSR_STORED_PACKED) {
		tsr_json_put_string(t, "kind", tsr_container_name(e->container));
		tsr_json_put_u64(t, "generation", e->generation);
		put_stored(t, e);
	}
	tsr_json_close(t, '}');
}

static enum tsr_status compose(struct tsr_directory *d, struct tsr_text *t, struct tsr_err *err)
{
	char mode[8], hex[TSR_INDEX_HEX + 1];

	snprintf(mode, sizeof(mode), "%04o", d->mode & 0777);
	tsr_json_open(t, NULL, '{');
	tsr_json_put_u64(t, "tersor_directory", TSR_INDEX_VERSION);
	tsr_json_put_string(t, "tool", "tersor " TSR_VERSION);
	tsr_json_put_string(t, "mode", mode);
	tsr_json_open(t, "entries", '[');
	for (size_t i = 0; i < d->n; i++)
		put_entry(t, &d->entries[i]);
	tsr_json_close(t, ']');
	tsr_json_put_string(t, "check", TSR_INDEX_ZEROS);
	tsr_json_close(t, '}');
	tsr_text_puts(t, "\n");
	if (t->failed)
		return tsr_fail_nomem(err, d->path);
	if (t->nbytes > TSR_DIRECTORY_INDEX_NBYTES_MAX)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: has more names than an index of %" PRIu64 " bytes holds",
				d->path, TSR_DIRECTORY_INDEX_NBYTES_MAX);
	snprintf(hex, sizeof(hex), "%016" PRIx64, tsr_hash(t->bytes, t->nbytes, 0));
	memcpy(t->bytes + t->nbytes - TSR_INDEX_HEX - strlen(TSR_INDEX_END), hex, TSR_INDEX_HEX);
	return TSR_OK;
}

enum tsr_status tsr_directory_measure_index(struct tsr_directory *d, struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };
	const enum tsr_status status = compose(d, &text, err);

	d->index_nbytes = text.nbytes;
	return status;
}

enum tsr_status tsr_directory_write_index(struct tsr_traversal *t, const char *path)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };

	TSR_TRY(compose(t->d, &text, t->err));
	t->d->index_nbytes = text.nbytes;
	return tsr_write_text(t, path, false, &text);
}
