/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of the containers use to fill a checkpoint. */
#include "ckpt/build.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/grow.h"
#include "ckpt/checkpoint_model.h"

enum tsr_status tsr_build_nomem(struct tsr_checkpoint *c, struct tsr_err *err)
{
	size_t limit;

	if (!tsr_arena_full(c->arena))
		return tsr_fail_nomem(err, c->path);
	limit = tsr_arena_limit(c->arena, 0);
	tsr_arena_limit(c->arena, limit);
	return tsr_fail(err, TSR_E_LIMIT,
			"%s: names and values take more memory than the limit of %zu MiB", c->path,
			limit >> 20);
}

/* The more the files have, the more it may take to say what is in them. */
static void allow_for(struct tsr_checkpoint *c, uint64_t nbytes)
{
	const size_t limit = tsr_arena_limit(c->arena, 0), most = (size_t)TSR_BUILD_NBYTES_MAX;
	const size_t left = limit < most ? most - limit : 0;

	tsr_arena_limit(c->arena, nbytes < left / TSR_BUILD_NBYTES_PER_BYTE
					  ? limit + TSR_BUILD_NBYTES_PER_BYTE * (size_t)nbytes
					  : limit + left);
}

enum tsr_status tsr_build_charge_name(struct tsr_checkpoint *c, size_t nbytes, struct tsr_err *err)
{
	uint64_t over;

	c->names_nbytes += nbytes;
	if (c->names_nbytes <= TSR_BUILD_NAMES_FREE)
		return TSR_OK;
	over = c->names_nbytes - TSR_BUILD_NAMES_FREE;
	for (unsigned i = 0; i < c->nfiles; i++) {
		const uint64_t allowed = tsr_file_size(c->files[i]);

		if (over / TSR_BUILD_NAMES_PER_BYTE <= allowed)
			return TSR_OK;
		over -= TSR_BUILD_NAMES_PER_BYTE * allowed;
	}
	return tsr_fail(err, TSR_E_LIMIT,
			"%s: the names of its tensors and parameters are over the limit of %" PRIu64
			" MiB and %u bytes for each byte of its files",
			c->path, TSR_BUILD_NAMES_FREE >> 20, TSR_BUILD_NAMES_PER_BYTE);
}

void tsr_build_container(struct tsr_checkpoint *c, enum tsr_container container)
{
	if (c->nfiles == 0)
		c->container = container;
}

enum tsr_status tsr_build_file(struct tsr_checkpoint *c, struct tsr_file *f, unsigned *index_ret,
			       struct tsr_err *err)
{
	if (!tsr_grow(&c->files, c->nfiles, sizeof(struct tsr_file *))) {
		tsr_file_close(f);
		return tsr_fail_nomem(err, c->path);
	}
	allow_for(c, tsr_file_size(f));
	*index_ret = c->nfiles;
	c->files[c->nfiles++] = f;
	return TSR_OK;
}

static enum tsr_status measure(const struct tsr_checkpoint *c, struct tsr_array *a,
			       struct tsr_err *err)
{
	uint64_t nbits;
	bool overflow = false;

	a->numel = 1;
	for (unsigned d = 0; d < a->rank; d++)
		overflow |= __builtin_mul_overflow(a->numel, a->shape[d], &a->numel);
	overflow |= __builtin_mul_overflow(a->numel, (uint64_t)tsr_dtype_bits(a->dtype), &nbits);
	if (overflow)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: tensor %.200s: shape is over the limit of 2^64 bits", c->path,
				a->name);
	a->nbytes = nbits / 8;
	return TSR_OK;
}

enum tsr_status tsr_build_array(struct tsr_checkpoint *c, const struct tsr_array *a,
				size_t *index_ret, struct tsr_err *err)
{
	TSR_TRY(TSR_GROW(&c->arrays, c->narrays, err, c->path));
	c->arrays[c->narrays] = *a;
	TSR_TRY(measure(c, &c->arrays[c->narrays], err));
	if (index_ret)
		*index_ret = c->narrays;
	c->narrays++;
	return TSR_OK;
}

enum tsr_status tsr_build_tensor(struct tsr_checkpoint *c, const struct tsr_tensor *t,
				 struct tsr_err *err)
{
	TSR_TRY(TSR_GROW(&c->tensors, c->ntensors, err, c->path));
	c->tensors[c->ntensors++] = *t;
	return TSR_OK;
}

void tsr_build_drop_tensors(struct tsr_checkpoint *c)
{
	free(c->tensors);
	free(c->tensor_by_name);
	c->tensors = NULL;
	c->tensor_by_name = NULL;
	c->ntensors = 0;
}

enum tsr_status tsr_build_meta(struct tsr_checkpoint *c, const char *key, const char *value,
			       struct tsr_err *err)
{
	TSR_TRY(TSR_GROW(&c->meta, c->nmeta, err, c->path));
	c->meta[c->nmeta++] = (struct tsr_meta){ key, value };
	return TSR_OK;
}

enum tsr_status tsr_build_tree(struct tsr_checkpoint *c, struct tsr_value *root,
			       struct tsr_err *err)
{
	TSR_TRY(TSR_GROW(&c->trees, c->ntrees, err, c->path));
	c->trees[c->ntrees++] = root;
	return TSR_OK;
}

static enum tsr_status add_note(struct tsr_checkpoint *c, struct tsr_err *err, const char *fmt,
				va_list args)
{
	char text[TSR_ERR_MAX];
	struct tsr_err escaped;

	TSR_TRY(TSR_GROW(&c->notes, c->nnotes, err, c->path));
	vsnprintf(text, sizeof(text), fmt, args);
	tsr_fail(&escaped, TSR_OK, "%s", text);
	c->notes[c->nnotes] = tsr_arena_string(c->arena, escaped.msg);
	if (!c->notes[c->nnotes])
		return tsr_build_nomem(c, err);
	c->nnotes++;
	return TSR_OK;
}

enum tsr_status tsr_build_note(struct tsr_checkpoint *c, struct tsr_err *err, const char *fmt, ...)
{
	enum tsr_status status;
	va_list args;

	va_start(args, fmt);
	status = add_note(c, err, fmt, args);
	va_end(args);
	return status;
}

enum tsr_status tsr_build_remark(struct tsr_checkpoint *c, struct tsr_err *err, const char *fmt,
				 ...)
{
	enum tsr_status status;
	va_list args;

	va_start(args, fmt);
	status = add_note(c, err, fmt, args);
	va_end(args);
	if (status == TSR_OK && c->nnotes <= 64)
		c->remarks |= UINT64_C(1) << (c->nnotes - 1);
	return status;
}

static int compare_tensors(const void *va, const void *vb, void *tensors)
{
	const struct tsr_tensor *t = tensors;

	return strcmp(t[*(const size_t *)va].name, t[*(const size_t *)vb].name);
}

void tsr_build_by_array(const struct tsr_checkpoint *c, size_t *ret)
{
	for (size_t i = 0; i < c->narrays; i++)
		ret[i] = SIZE_MAX;
	for (size_t i = 0; i < c->ntensors; i++)
		ret[c->tensors[i].plane[0]] = i;
}

void tsr_build_no_index(struct tsr_checkpoint *c)
{
	free(c->tensor_by_name);
	c->tensor_by_name = NULL;
}

enum tsr_status tsr_build_index(struct tsr_checkpoint *c, struct tsr_err *err)
{
	size_t *by_name = NULL;

	TSR_TRY(TSR_NEW(&by_name, c->ntensors + 1, err, c->path));
	free(c->tensor_by_name);
	c->tensor_by_name = by_name;
	for (size_t i = 0; i < c->ntensors; i++)
		by_name[i] = i;
	qsort_r(by_name, c->ntensors, sizeof(*by_name), compare_tensors, c->tensors);
	for (size_t i = 1; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[by_name[i]];

		if (strcmp(t->name, c->tensors[by_name[i - 1]].name) == 0)
			return tsr_fail(err, TSR_E_FORMAT, "%s: tensor %.200s: found twice",
					c->path, t->name);
	}
	return TSR_OK;
}

const char *tsr_array_path(const struct tsr_checkpoint *c, const struct tsr_array *a)
{
	return a->file < c->nfiles ? tsr_file_path(c->files[a->file]) : c->path;
}
