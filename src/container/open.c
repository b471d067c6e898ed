/* SPDX-License-Identifier: Apache-2.0 */
/* Opening: what each input is, and how several become one checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "container/containers.h"
#include "names/import_states.h"
#include "names/state_dict.h"
#include "torch/dcp.h"
#include "container/packed.h"
#include "format/safetensors.h"
#include "torch/torch.h"
#include "format/zip.h"

/* --- One file --------------------------------------------------------------------------------- */

/* Bytes of a file that tell what it is. */
#define HEAD_NBYTES 512u

struct head {
	unsigned char bytes[HEAD_NBYTES];
	size_t n;
	uint64_t file_nbytes;
};

static enum tsr_status read_head(const struct tsr_file *f, struct head *h, struct tsr_err *err)
{
	h->file_nbytes = tsr_file_size(f);
	h->n = h->file_nbytes < HEAD_NBYTES ? (size_t)h->file_nbytes : HEAD_NBYTES;
	return tsr_file_read(f, h->bytes, h->n, 0, err);
}

static bool starts_with(const struct head *h, const char *magic, size_t n)
{
	return h->n >= n && memcmp(h->bytes, magic, n) == 0;
}

/* The first byte from @at on that is no space of JSON; 0 if there is none before @end. */
static unsigned char first_byte(const struct head *h, size_t at, size_t end)
{
	while (at < end && memchr(" \t\n\r", h->bytes[at], 4))
		at++;
	return at < end ? h->bytes[at] : 0;
}

/* By its framing: a length that fits, then an object. */
static bool is_safetensors(const struct head *h)
{
	uint64_t header = 0;
	size_t end;

	if (h->n < 8)
		return false;
	for (int i = 7; i >= 0; i--)
		header = header << 8 | h->bytes[i];
	if (header > TSR_ST_HEADER_MAX || header > h->file_nbytes - 8)
		return false;
	end = header < h->n - 8 ? 8 + (size_t)header : h->n;
	return first_byte(h, 8, end) == '{' || (end == h->n && !first_byte(h, 8, end));
}

/* JSON text, which is all that an index looks like. */
static bool is_index(const struct head *h)
{
	return !memchr(h->bytes, 0, h->n) && first_byte(h, 0, h->n) == '{';
}

/* An archive of arrays, or else one of torch.save. */
static enum tsr_status read_zip(struct tsr_checkpoint *c, struct tsr_file *f,
				const struct tsr_open_options *options, struct tsr_err *err)
{
	struct tsr_zip *z = NULL;
	const enum tsr_status status = tsr_zip_read(f, 0, tsr_file_size(f), tsr_file_path(f), &z,
						    err);
	bool arrays = false, pickle = false;

	if (status != TSR_OK) {
		tsr_file_close(f);
		return status;
	}
	for (size_t i = 0; i < z->nmembers; i++) {
		const char *name = z->members[i].name;
		const size_t len = strlen(name);

		arrays = arrays || (len > 4 && strcmp(name + len - 4, ".npy") == 0);
		pickle = pickle || (len > 9 && strcmp(name + len - 9, "/data.pkl") == 0);
	}
	arrays = z->nmembers == 0 || (arrays && !pickle);
	tsr_zip_free(z);
	return arrays ? tsr_read_npz(c, f, options->as, err) : tsr_read_torch(c, f, err);
}

enum tsr_status tsr_read_file(struct tsr_checkpoint *c, struct tsr_file *f, bool index_too,
			      const struct tsr_open_options *options, struct tsr_err *err)
{
	struct head head;
	const char *old;
	enum tsr_status status = read_head(f, &head, err);

	if (status != TSR_OK) {
		tsr_file_close(f);
		return status;
	}
	if (is_safetensors(&head))
		return tsr_read_safetensors(c, f, err);
	if (index_too && is_index(&head))
		return tsr_read_sharded(c, f, options, err);
	if (starts_with(&head, "PK\3\4", 4) || starts_with(&head, "PK\5\6", 4))
		return read_zip(c, f, options, err);
	if (starts_with(&head, "\x93NUMPY", 6))
		return tsr_read_npy(c, f, options->as, err);
	old = tsr_torch_old_kind(head.bytes, head.n);
	if (old) {
		status = tsr_fail(err, TSR_E_UNSUPPORTED, "%s: %s", tsr_file_path(f), old);
		tsr_file_close(f);
		return status;
	}
	return tsr_read_safetensors(c, f, err);
}

/* --- One input -------------------------------------------------------------------------------- */

static enum tsr_status read_path(struct tsr_checkpoint *c, const char *path,
				 const struct tsr_open_options *options, struct tsr_err *err)
{
	struct tsr_file *f = NULL;

	TSR_TRY(tsr_file_open(path, &f, err));
	if (!c->path)
		c->path = tsr_arena_copy(c->arena, path, strlen(path));
	if (!c->path) {
		tsr_file_close(f);
		return tsr_fail_nomem(err, path);
	}
	return tsr_read_file(c, f, true, options, err);
}

/* The one file of a directory that stands for all of it. */
static enum tsr_status find_in_directory(const char *directory, struct tsr_dir *found,
					 struct tsr_err *err)
{
	TSR_TRY(tsr_dir_list(directory, ".index.json", found, err));
	if (found->n > 1)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: ambiguous: found %s and %s; name the index that is meant",
				directory, found->names[0], found->names[1]);
	if (found->n == 1)
		return TSR_OK;
	tsr_dir_free(found);
	TSR_TRY(tsr_dir_list(directory, ".safetensors", found, err));
	if (found->n == 1)
		return TSR_OK;
	return tsr_fail(err, TSR_E_UNSUPPORTED,
			"%s: found a directory with %zu *.safetensors files and no index, expected "
			"a .metadata file, one *.index.json or one *.safetensors",
			directory, found->n);
}

static enum tsr_status read_directory(struct tsr_checkpoint *c, const char *directory,
				      const struct tsr_open_options *options, struct tsr_err *err)
{
	struct tsr_dir found = { 0 };
	enum tsr_status status;
	char *path = NULL;

	if (tsr_dcp_looks_like(directory)) {
		if (!c->path) {
			c->path = tsr_arena_copy(c->arena, directory, strlen(directory));
			c->container = TSR_CONTAINER_DCP;
		}
		if (!c->path)
			return tsr_fail_nomem(err, directory);
		return tsr_dcp_read_links(c, directory, options->follow, err);
	}
	status = find_in_directory(directory, &found, err);
	if (status == TSR_OK) {
		const size_t n = strlen(directory) + strlen(found.names[0]) + 2;

		path = malloc(n);
		if (path) {
			strcpy(path, directory);
			strcat(path, "/");
			strcat(path, found.names[0]);
			status = read_path(c, path, options, err);
		} else {
			status = tsr_fail_nomem(err, directory);
		}
	}
	free(path);
	tsr_dir_free(&found);
	return status;
}

/* --- All inputs ------------------------------------------------------------------------------- */

static int meta_by_key(const void *va, const void *vb)
{
	const struct tsr_meta *a = va, *b = vb;

	return strcmp(a->key, b->key);
}

/* Sort the metadata of all files and drop what two of them agree on. */
static enum tsr_status join_meta(struct tsr_checkpoint *c, struct tsr_err *err)
{
	size_t kept = 0;

	if (c->nmeta)
		qsort(c->meta, c->nmeta, sizeof(*c->meta), meta_by_key);
	for (size_t i = 0; i < c->nmeta; i++) {
		if (!kept || strcmp(c->meta[kept - 1].key, c->meta[i].key) != 0)
			c->meta[kept++] = c->meta[i];
		else if (strcmp(c->meta[kept - 1].value, c->meta[i].value) != 0)
			return tsr_fail(
				err, TSR_E_FORMAT,
				"%s: __metadata__: the inputs differ in the value of %.200s",
				c->path, c->meta[i].key);
	}
	c->nmeta = kept;
	return TSR_OK;
}

/* What unpacking left behind: how often these values went through a lossy codec. */
static enum tsr_status read_generation(struct tsr_checkpoint *c, struct tsr_err *err)
{
	const char *text = NULL;
	unsigned long value;
	char *end;

	for (size_t i = 0; i < c->nmeta; i++) {
		if (strcmp(c->meta[i].key, TSR_GENERATION_KEY) == 0)
			text = c->meta[i].value;
	}
	if (!text)
		return TSR_OK;
	value = strtoul(text, &end, 10);
	if (*text < '1' || *text > '9' || *end || value > TSR_GENERATION_MAX)
		return tsr_fail(
			err, TSR_E_FORMAT,
			"%s: __metadata__: found %s %.40s, expected an integer from 1 to %u",
			c->path, TSR_GENERATION_KEY, text, TSR_GENERATION_MAX);
	c->generation = (unsigned)value;
	return TSR_OK;
}

static enum tsr_status read_all(struct tsr_checkpoint *c, const char *const *paths, unsigned npaths,
				const struct tsr_open_options *options, struct tsr_err *err)
{
	for (unsigned i = 0; i < npaths; i++) {
		if (tsr_dir_is(paths[i]))
			TSR_TRY(read_directory(c, paths[i], options, err));
		else
			TSR_TRY(read_path(c, paths[i], options, err));
		if (c->packed && npaths > 1)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: is a packed file, which cannot be joined with others",
					paths[i]);
	}
	if (c->packed && c->shard.number != c->shard.count)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is shard %llu of %llu of a packed checkpoint; name its "
				"*.index.json",
				c->path, (unsigned long long)c->shard.number,
				(unsigned long long)c->shard.count);
	TSR_TRY(join_meta(c, err));
	if (!c->packed) {
		TSR_TRY(read_generation(c, err));
		TSR_TRY(tsr_state_dict_name(c, options, err));
		TSR_TRY(tsr_import_states(c, options, err));
	}
	TSR_TRY(tsr_build_index(c, err));
	TSR_TRY(tsr_tree_restore(c, err));
	return tsr_build_index(c, err);
}

enum tsr_status tsr_checkpoint_open(const char *const *paths, unsigned npaths,
				    const struct tsr_open_options *options,
				    struct tsr_checkpoint **ret, struct tsr_err *err)
{
	const struct tsr_open_options defaults = tsr_open_defaults();
	struct tsr_checkpoint *c = calloc(1, sizeof(*c));
	enum tsr_status status;

	if (!c)
		return tsr_fail_nomem(err, paths[0]);
	c->arena = tsr_arena_new(TSR_BUILD_NBYTES_MAX);
	status = c->arena ? read_all(c, paths, npaths, options ? options : &defaults, err)
			  : tsr_fail_nomem(err, paths[0]);
	if (status != TSR_OK) {
		tsr_checkpoint_close(c);
		return status;
	}
	*ret = c;
	return TSR_OK;
}
