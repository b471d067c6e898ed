/* SPDX-License-Identifier: Apache-2.0 */
#include "tersor/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "ckpt/packed.h"
#include "ckpt/safetensors.h"

/* Move the arrays and metadata of one file to the end of those of the checkpoint. */
static enum tsr_status append(struct tsr_checkpoint *c, unsigned file, struct tsr_st_contents *from,
			      struct tsr_err *err)
{
	const size_t narrays = c->narrays + from->narrays, nmeta = c->nmeta + from->nmeta;
	struct tsr_array *arrays = realloc(c->arrays, (narrays + 1) * sizeof(*arrays));
	struct tsr_meta *meta;

	if (!arrays)
		return tsr_fail_nomem(err, c->path);
	c->arrays = arrays;
	meta = realloc(c->meta, (nmeta + 1) * sizeof(*meta));
	if (!meta)
		return tsr_fail_nomem(err, c->path);
	c->meta = meta;
	for (size_t i = 0; i < from->narrays; i++) {
		arrays[c->narrays] = from->arrays[i];
		arrays[c->narrays++].file = file;
	}
	for (size_t i = 0; i < from->nmeta; i++)
		meta[c->nmeta++] = from->meta[i];
	from->narrays = from->nmeta = 0;
	return TSR_OK;
}

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
		if (kept && strcmp(c->meta[kept - 1].key, c->meta[i].key) == 0) {
			const bool same = strcmp(c->meta[kept - 1].value, c->meta[i].value) == 0;

			if (!same)
				return tsr_fail(err, TSR_E_FORMAT,
						"%s: __metadata__: the inputs differ in the value "
						"of %.200s",
						c->path, c->meta[i].key);
			free(c->meta[i].key);
			free(c->meta[i].value);
			c->meta[i] = (struct tsr_meta){ 0 };
			continue;
		}
		if (kept != i) {
			c->meta[kept] = c->meta[i];
			c->meta[i] = (struct tsr_meta){ 0 };
		}
		kept++;
	}
	c->nmeta = kept;
	return TSR_OK;
}

static const char *find_meta(const struct tsr_checkpoint *c, const char *key)
{
	for (size_t i = 0; i < c->nmeta; i++) {
		if (strcmp(c->meta[i].key, key) == 0)
			return c->meta[i].value;
	}
	return NULL;
}

/* What unpacking left behind: how often these values went through a lossy codec. */
static enum tsr_status read_generation(struct tsr_checkpoint *c, struct tsr_err *err)
{
	const char *text = find_meta(c, TSR_GENERATION_KEY);
	unsigned long value;
	char *end;

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

static enum tsr_status tensors_from_arrays(struct tsr_checkpoint *c, struct tsr_err *err)
{
	c->tensors = calloc(c->narrays + 1, sizeof(*c->tensors));
	if (!c->tensors)
		return tsr_fail_nomem(err, c->path);
	for (size_t i = 0; i < c->narrays; i++) {
		const struct tsr_array *a = &c->arrays[i];
		char *name = strdup(a->name);

		if (!name)
			return tsr_fail_nomem(err, c->path);
		c->tensors[c->ntensors++] = (struct tsr_tensor){
			.name = name,
			.dtype = a->dtype,
			.rank = a->rank,
			.shape = a->shape,
			.numel = a->numel,
			.coding = { .group = 1 },
			.nplanes = 1,
			.plane = { i },
		};
	}
	return TSR_OK;
}

static int compare_tensors(const void *va, const void *vb, void *tensors)
{
	const struct tsr_tensor *t = tensors;

	return strcmp(t[*(const size_t *)va].name, t[*(const size_t *)vb].name);
}

static enum tsr_status index_names(struct tsr_checkpoint *c, struct tsr_err *err)
{
	size_t *by_name = calloc(c->ntensors + 1, sizeof(*by_name));

	if (!by_name)
		return tsr_fail_nomem(err, c->path);
	c->tensor_by_name = by_name;
	for (size_t i = 0; i < c->ntensors; i++)
		by_name[i] = i;
	qsort_r(by_name, c->ntensors, sizeof(*by_name), compare_tensors, c->tensors);
	for (size_t i = 1; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[by_name[i]];
		const struct tsr_array *a = &c->arrays[t->plane[0]];

		if (strcmp(t->name, c->tensors[by_name[i - 1]].name) == 0)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: tensor %.200s: found in more than one input",
					tsr_file_path(c->files[a->file]), t->name);
	}
	return TSR_OK;
}

static enum tsr_status read_file(struct tsr_checkpoint *c, const char *path, bool alone,
				 struct tsr_err *err)
{
	struct tsr_st_contents contents = { 0 };
	const unsigned file = c->nfiles;
	enum tsr_status status;

	TSR_TRY(tsr_file_open(path, &c->files[file], err));
	c->nfiles++;
	TSR_TRY(tsr_st_read(c->files[file], &contents, err));
	if (file == 0)
		c->path = tsr_file_path(c->files[0]);
	status = append(c, file, &contents, err);
	if (status == TSR_OK)
		status = join_meta(c, err);
	if (status == TSR_OK && find_meta(c, TSR_PACKED_KEY)) {
		c->packed = true;
		if (alone)
			status = tsr_packed_read(c, contents.header, contents.header_nbytes, err);
		else
			status = tsr_fail(
				err, TSR_E_UNSUPPORTED,
				"%s: is a packed file, which cannot be joined with others", path);
	} else if (status == TSR_OK && find_meta(c, TSR_PACKED_CHECK_KEY)) {
		status = tsr_fail(err, TSR_E_FORMAT, "%s: __metadata__: has %s without %s", path,
				  TSR_PACKED_CHECK_KEY, TSR_PACKED_KEY);
	}
	tsr_st_contents_free(&contents);
	return status;
}

enum tsr_status tsr_checkpoint_open(const char *const *paths, unsigned npaths,
				    struct tsr_checkpoint **ret, struct tsr_err *err)
{
	struct tsr_checkpoint *c = calloc(1, sizeof(*c));
	enum tsr_status status = TSR_OK;

	if (!c)
		return tsr_fail_nomem(err, paths[0]);
	c->path = paths[0];
	c->files = calloc(npaths, sizeof(struct tsr_file *));
	if (!c->files)
		status = tsr_fail_nomem(err, paths[0]);
	for (unsigned i = 0; i < npaths && status == TSR_OK; i++)
		status = read_file(c, paths[i], npaths == 1, err);
	if (status == TSR_OK && !c->packed)
		status = read_generation(c, err);
	if (status == TSR_OK && !c->packed)
		status = tensors_from_arrays(c, err);
	if (status == TSR_OK)
		status = index_names(c, err);
	if (status != TSR_OK) {
		tsr_checkpoint_close(c);
		return status;
	}
	*ret = c;
	return TSR_OK;
}

void tsr_checkpoint_close(struct tsr_checkpoint *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->ntensors; i++)
		free((char *)c->tensors[i].name);
	for (size_t i = 0; i < c->narrays; i++) {
		free(c->arrays[i].name);
		free(c->arrays[i].shape);
	}
	for (size_t i = 0; i < c->nmeta; i++) {
		free(c->meta[i].key);
		free(c->meta[i].value);
	}
	for (unsigned i = 0; i < c->nfiles; i++)
		tsr_file_close(c->files[i]);
	free(c->files);
	free(c->tensors);
	free(c->tensor_by_name);
	free(c->arrays);
	free(c->meta);
	free(c);
}

const struct tsr_tensor *tsr_checkpoint_find(const struct tsr_checkpoint *c, const char *name)
{
	size_t low = 0, high = c->ntensors;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;
		const struct tsr_tensor *t = &c->tensors[c->tensor_by_name[mid]];
		const int order = strcmp(t->name, name);

		if (order == 0)
			return t;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

enum tsr_status tsr_array_read(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t offset, size_t nbytes, void *buf, struct tsr_err *err)
{
	return tsr_file_read(c->files[a->file], buf, nbytes, a->offset + offset, err);
}

enum tsr_status tsr_checkpoint_check_unchanged(const struct tsr_checkpoint *c, struct tsr_err *err)
{
	for (unsigned i = 0; i < c->nfiles; i++)
		TSR_TRY(tsr_file_check_unchanged(c->files[i], err));
	return TSR_OK;
}

uint64_t tsr_tensor_stored_nbytes(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < t->nplanes; i++)
		total += c->arrays[t->plane[i]].nbytes;
	return total;
}

uint64_t tsr_tensor_nbytes(const struct tsr_tensor *t)
{
	return t->numel * tsr_dtype_bits(t->dtype) / 8;
}

bool tsr_tensor_same_shape(const struct tsr_tensor *a, const struct tsr_tensor *b)
{
	return a->rank == b->rank &&
	       (!a->rank || memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) == 0);
}
