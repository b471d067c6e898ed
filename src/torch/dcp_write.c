/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a directory of torch.distributed.checkpoint: the archives of its entries and .metadata. */
#include "torch/dcp_write.h"

#include <stdio.h>

#include "base/grow.h"
#include "torch/torch.h"

#define METADATA "torch.distributed.checkpoint.metadata"
#define FILESYSTEM "torch.distributed.checkpoint.filesystem"

/* Of the layout of directories, as PyTorch has it. */
#define DCP_VERSION "1.0.0"

/* --- Archives ------------------------------------------------------------------------------- */

enum tsr_status tsr_dcp_archiving_init(struct tsr_dcp_archiving *a,
				       const struct tsr_dcp_items *items, struct tsr_err *err)
{
	struct tsr_checkpoint *c = items->c;

	*a = (struct tsr_dcp_archiving){ .c = c, .path = items->path };
	TSR_TRY(TSR_NEW(&a->tensor_of, c->narrays + 1, err, items->path));
	TSR_TRY(TSR_NEW(&a->last, c->narrays + 1, err, items->path));
	tsr_build_by_array(c, a->tensor_of);
	return tsr_torch_describe(c, NULL, &a->tensors, err);
}

void tsr_dcp_archiving_free(struct tsr_dcp_archiving *a)
{
	free(a->tensors);
	free(a->tensor_of);
	free(a->last);
	free(a->found);
}

/* The tensors in the value of item @i, each once. */
static enum tsr_status find_tensors(struct tsr_dcp_archiving *a, const struct tsr_value *v,
				    size_t i, struct tsr_err *err)
{
	const size_t n = tsr_value_nchildren(v);

	for (size_t k = 0; k < n; k++) {
		const struct tsr_value *child = tsr_value_child(v, k);

		if (child)
			TSR_TRY(find_tensors(a, child, i, err));
	}
	if (v->type != TSR_VALUE_TENSOR || a->last[v->tensor.array] == i + 1)
		return TSR_OK;
	a->last[v->tensor.array] = i + 1;
	if (a->tensor_of[v->tensor.array] == SIZE_MAX)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: array %.200s is in what was saved, but is no tensor of it",
				a->path, a->c->arrays[v->tensor.array].name);
	TSR_TRY(TSR_GROW(&a->found, a->n, err, a->path));
	a->found[a->n++] = a->tensor_of[v->tensor.array];
	return TSR_OK;
}

enum tsr_status tsr_dcp_archive(struct tsr_dcp_archiving *a, struct tsr_dcp_items *items, size_t i,
				unsigned generation, struct tsr_zip_members *ret,
				struct tsr_err *err)
{
	const struct tsr_value *v = items->items[i].value;
	/* A tensor is stored by itself, not as the parameter that it may be. */
	struct tsr_value tensor = { .type = TSR_VALUE_TENSOR };

	if (v->type == TSR_VALUE_TENSOR) {
		tensor.tensor.array = v->tensor.array;
		v = &tensor;
	}
	a->n = 0;
	TSR_TRY(find_tensors(a, v, i, err));
	if (items->items[i].unread) {
		items->items[i].nbytes = tsr_tensor_nbytes(&a->c->tensors[a->found[0]]);
		return TSR_OK;
	}
	TSR_TRY(tsr_zip_members_init(ret, a->n + 4, items->path, err));
	TSR_TRY(tsr_torch_add_archive(a->c, v, a->tensors, a->found, a->n, generation, a->path, ret,
				      err));
	items->items[i].nbytes = tsr_zip_layout(ret->entries, ret->n);
	items->items[i].tensor = v == &tensor ? &a->c->tensors[a->found[0]] : NULL;
	return TSR_OK;
}

/* --- Values of .metadata -------------------------------------------------------------------- */

/* What is composed, and the values that many entries share.  NULL is what memory was not there for. */
struct composing {
	struct tsr_arena *arena;
	struct tsr_value *no_args, *size_class, *none, *no, *layout, *memory_format;
	struct tsr_value *tensor_class, *bytes_class, *properties_class, *chunk_class;
	struct tsr_value *index_class, *storage_class, *first;
	struct tsr_value *dtypes[TSR_DTYPE_COUNT];
	struct tsr_value *file_name; /* of file number `file` */
	size_t file;
};

static struct tsr_value *call_of(struct composing *m, struct tsr_value *callee,
				 struct tsr_value *arg)
{
	struct tsr_value *v = tsr_value_new(m->arena, TSR_VALUE_CALL);
	struct tsr_value *args = tsr_value_new(m->arena, TSR_VALUE_TUPLE);

	if (!v || !callee || !tsr_value_add(m->arena, args, arg))
		return NULL;
	v->call.callee = callee;
	v->call.args = args;
	return v;
}

/* An object of a class with its state, which may be NULL on purpose if @bare. */
static struct tsr_value *object_of(struct composing *m, struct tsr_value *class,
				   struct tsr_value *state, bool bare)
{
	struct tsr_value *v = tsr_value_new(m->arena, TSR_VALUE_CALL);

	if (!v || !class || (!state && !bare))
		return NULL;
	v->call.callee = class;
	v->call.args = m->no_args;
	v->call.is_new = true;
	v->call.state = state;
	return v;
}

/* torch.Size of dimensions; @shape NULL: zeros. */
static struct tsr_value *size_of(struct composing *m, unsigned rank, const uint64_t *shape)
{
	struct tsr_value *tuple = tsr_value_new(m->arena, TSR_VALUE_TUPLE);

	for (unsigned d = 0; d < rank; d++) {
		if (!tsr_value_add(m->arena, tuple,
				   tsr_value_int(m->arena, shape ? (int64_t)shape[d] : 0)))
			return NULL;
	}
	return call_of(m, m->size_class, tuple);
}

/* The values that entries share.  A failure shows when they are used. */
static void make_shared(struct composing *m)
{
	struct tsr_value *get_layout = tsr_value_global(m->arena, "torch.serialization",
							"_get_layout");
	struct tsr_value *encoding = tsr_value_global(m->arena, METADATA, "_MEM_FORMAT_ENCODING");

	m->no_args = tsr_value_new(m->arena, TSR_VALUE_TUPLE);
	m->none = tsr_value_new(m->arena, TSR_VALUE_NONE);
	m->no = tsr_value_bool(m->arena, false);
	m->first = tsr_value_int(m->arena, 0);
	m->size_class = tsr_value_global(m->arena, "torch", "Size");
	m->layout = call_of(m, get_layout, tsr_value_string(m->arena, "torch.strided"));
	m->memory_format = call_of(m, encoding, m->first);
	m->tensor_class = tsr_value_global(m->arena, METADATA, "TensorStorageMetadata");
	m->bytes_class = tsr_value_global(m->arena, METADATA, "BytesStorageMetadata");
	m->properties_class = tsr_value_global(m->arena, METADATA, "TensorProperties");
	m->chunk_class = tsr_value_global(m->arena, METADATA, "ChunkStorageMetadata");
	m->index_class = tsr_value_global(m->arena, METADATA, "MetadataIndex");
	m->storage_class = tsr_value_global(m->arena, FILESYSTEM, "_StorageInfo");
}

/* --- Entries of .metadata ------------------------------------------------------------------- */

/* Five fields: every version of PyTorch reads these; newer ones write the strides too. */
static struct tsr_value *properties_of(struct composing *m, enum tsr_dtype dtype)
{
	struct tsr_value *state = tsr_value_new(m->arena, TSR_VALUE_TUPLE);

	if (!m->dtypes[dtype])
		m->dtypes[dtype] = tsr_value_global(m->arena, "torch",
						    tsr_torch_dtype(dtype)->name);
	if (!tsr_value_add(m->arena, state, m->dtypes[dtype]) ||
	    !tsr_value_add(m->arena, state, m->layout) || !tsr_value_add(m->arena, state, m->no) ||
	    !tsr_value_add(m->arena, state, m->memory_format) ||
	    !tsr_value_add(m->arena, state, m->no))
		return NULL;
	return object_of(m, m->properties_class, state, false);
}

/* A tensor is one chunk. */
static struct tsr_value *describe_tensor(struct composing *m, const struct tsr_tensor *t)
{
	struct tsr_value *chunk = tsr_value_new(m->arena, TSR_VALUE_DICT);
	struct tsr_value *chunks = tsr_value_new(m->arena, TSR_VALUE_LIST);
	struct tsr_value *fields = tsr_value_new(m->arena, TSR_VALUE_DICT);

	if (!tsr_value_put_at(m->arena, chunk, "offsets", size_of(m, t->rank, NULL)) ||
	    !tsr_value_put_at(m->arena, chunk, "sizes", size_of(m, t->rank, t->shape)) ||
	    !tsr_value_add(m->arena, chunks, object_of(m, m->chunk_class, chunk, false)) ||
	    !tsr_value_put_at(m->arena, fields, "properties", properties_of(m, t->dtype)) ||
	    !tsr_value_put_at(m->arena, fields, "size", size_of(m, t->rank, t->shape)) ||
	    !tsr_value_put_at(m->arena, fields, "chunks", chunks))
		return NULL;
	return object_of(m, m->tensor_class, fields, false);
}

static struct tsr_value *index_of(struct composing *m, const struct tsr_dcp_item *item)
{
	const struct tsr_tensor *t = item->tensor;
	struct tsr_value *fields = tsr_value_new(m->arena, TSR_VALUE_DICT);

	if (!tsr_value_put_at(m->arena, fields, "fqn", tsr_value_string(m->arena, item->fqn)) ||
	    !tsr_value_put_at(m->arena, fields, "index", t ? m->first : m->none) ||
	    (t && !tsr_value_put_at(m->arena, fields, "offset", size_of(m, t->rank, NULL))))
		return NULL;
	return object_of(m, m->index_class, fields, false);
}

static struct tsr_value *place_of(struct composing *m, const struct tsr_dcp_item *item)
{
	struct tsr_value *fields = tsr_value_new(m->arena, TSR_VALUE_DICT);
	char name[40];

	snprintf(name, sizeof(name), TSR_DCP_FILE_NAME, item->file);
	if (!m->file_name || m->file != item->file)
		m->file_name = tsr_value_string(m->arena, name);
	m->file = item->file;
	if (!tsr_value_put_at(m->arena, fields, "relative_path", m->file_name) ||
	    !tsr_value_put_at(m->arena, fields, "offset",
			      tsr_value_int(m->arena, (int64_t)item->offset)) ||
	    !tsr_value_put_at(m->arena, fields, "length",
			      tsr_value_int(m->arena, (int64_t)item->nbytes)))
		return NULL;
	return object_of(m, m->storage_class, fields, false);
}

/* --- The file ------------------------------------------------------------------------------- */

static bool list_items(struct composing *m, const struct tsr_dcp_items *items,
		       struct tsr_value *listed, struct tsr_value *paths, struct tsr_value *stored)
{
	bool ok = true;

	for (size_t i = 0; i < items->n && ok; i++) {
		const struct tsr_dcp_item *item = &items->items[i];
		struct tsr_value *name = tsr_value_string(m->arena, item->fqn);
		struct tsr_value *path = (struct tsr_value *)(uintptr_t)item->path;
		struct tsr_value *what = item->tensor ? describe_tensor(m, item->tensor)
						      : object_of(m, m->bytes_class, NULL, true);

		ok = tsr_value_put(m->arena, listed, name, what) &&
		     (!path || tsr_value_put(m->arena, paths, name, path)) &&
		     tsr_value_put(m->arena, stored, index_of(m, item), place_of(m, item));
	}
	return ok;
}

/* NULL when out of memory. */
static struct tsr_value *compose(struct composing *m, const struct tsr_dcp_items *items)
{
	struct tsr_value *listed = tsr_value_new(m->arena, TSR_VALUE_DICT);
	struct tsr_value *paths = tsr_value_new(m->arena, TSR_VALUE_DICT);
	struct tsr_value *stored = tsr_value_new(m->arena, TSR_VALUE_DICT);
	struct tsr_value *fields = tsr_value_new(m->arena, TSR_VALUE_DICT);

	make_shared(m);
	if (!paths || !list_items(m, items, listed, paths, stored) ||
	    !tsr_value_put_at(m->arena, fields, "state_dict_metadata", listed) ||
	    !tsr_value_put_at(m->arena, fields, "planner_data",
			      paths->list.n || !items->n ? paths : m->none) ||
	    !tsr_value_put_at(m->arena, fields, "storage_data", stored) ||
	    !tsr_value_put_at(m->arena, fields, "storage_meta", m->none) ||
	    !tsr_value_put_at(m->arena, fields, "version",
			      tsr_value_string(m->arena, DCP_VERSION)) ||
	    (items->mcore_data &&
	     !tsr_value_put_at(m->arena, fields, "mcore_data", items->mcore_data)))
		return NULL;
	return object_of(m, tsr_value_global(m->arena, METADATA, "Metadata"), fields, false);
}

enum tsr_status tsr_dcp_compose_metadata(const struct tsr_dcp_items *items, struct tsr_text *out,
					 struct tsr_err *err)
{
	struct composing m = { .arena = tsr_arena_new(TSR_BUILD_NBYTES_MAX) };
	struct tsr_value *root = m.arena ? compose(&m, items) : NULL;
	enum tsr_status status;

	if (root)
		status = tsr_pickle_write(root, NULL, items->path, out, err);
	else if (m.arena && tsr_arena_full(m.arena))
		status = tsr_fail(err, TSR_E_LIMIT,
				  "%s: .metadata takes more memory than the limit of %" PRIu64
				  " MiB",
				  items->path, TSR_BUILD_NBYTES_MAX >> 20);
	else
		status = tsr_fail_nomem(err, items->path);
	tsr_arena_free(m.arena);
	if (status == TSR_OK && out->failed)
		status = tsr_fail_nomem(err, items->path);
	return status;
}
