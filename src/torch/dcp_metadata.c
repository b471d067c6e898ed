/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The .metadata of a directory of torch.distributed.checkpoint: a pickle of dataclasses.  Fields
 * that are not needed here are ignored.
 */
#include "torch/dcp_metadata.h"

#include "io/dir.h"
#include "base/fail.h"
#include "text/shape.h"
#include "text/text.h"
#include "text/text_numbers.h"
#include "base/utf8.h"
#include "format/pickle.h"
#include "torch/torch.h"
#include "torch/torch_archive.h"
#include "format/value_walk.h"

#define METADATA "torch.distributed.checkpoint.metadata"
#define FILESYSTEM "torch.distributed.checkpoint.filesystem"

/* Where torch kept TensorProperties before 2.3. */
#define OLD_PROPERTIES "torch.distributed._shard.sharded_tensor.metadata"

/* How many items of a list a message names. */
#define NAMED_MAX 4u

/* A file being read. */
struct reading {
	const char *path;
	struct tsr_dcp_metadata *m;
	struct tsr_text_numbers *names; /* of entries, parts and paths */
	struct tsr_err *err;
};

#define FAIL(r, code, name, ...) tsr_fail_in((r)->err, code, (r)->path, "", name, __VA_ARGS__)

/* --- Values --------------------------------------------------------------------------------- */

static enum tsr_status bad(const struct reading *r, const char *where, const struct tsr_value *v,
			   const char *expected)
{
	char text[TSR_VALUE_DESCRIBED];

	return FAIL(r, TSR_E_FORMAT, where, "found %s, expected %s",
		    v ? tsr_value_describe(v, text) : "nothing", expected);
}

static enum tsr_status nomem(const struct reading *r)
{
	if (!tsr_arena_full(r->m->arena))
		return tsr_fail_nomem(r->err, r->path);
	return tsr_fail(r->err, TSR_E_LIMIT,
			"%s: takes more memory than the limit of %" PRIu64 " MiB", r->path,
			TSR_BUILD_NBYTES_MAX >> 20);
}

static bool is_object(const struct tsr_value *v, const char *module, const char *name)
{
	return tsr_value_is_call(v, module, name) && v->call.is_new && !v->call.items;
}

/* The fields of an object; NULL if it is another or has none. */
static const struct tsr_value *fields_of(const struct tsr_value *v, const char *module,
					 const char *name)
{
	if (!is_object(v, module, name) || !v->call.state || v->call.state->type != TSR_VALUE_DICT)
		return NULL;
	return v->call.state;
}

/* A string that can be a C string: no NUL in it, no surrogates, not too long. */
static bool is_name(const struct tsr_value *v)
{
	return v && v->type == TSR_VALUE_STRING && v->text.nbytes <= TSR_NAME_MAX &&
	       tsr_utf8_is_string(v->text.bytes, v->text.nbytes);
}

/* The name in @v and its number; @what has it, and @where is what a message is about. */
static enum tsr_status read_name(const struct reading *r, const char *where, const char *what,
				 const struct tsr_value *v, const char **ret, size_t *number_ret)
{
	const size_t before = r->names->n;

	if (!v || v->type != TSR_VALUE_STRING || v->text.nbytes > TSR_NAME_MAX)
		return bad(r, where, v, what);
	if (!tsr_text_number(r->names, v->text.bytes, v->text.nbytes, number_ret))
		return nomem(r);
	if (*number_ret == before && !is_name(v))
		return bad(r, where, v, what);
	*ret = v->text.bytes;
	return TSR_OK;
}

/* A torch.Size: numbers of dimensions. */
static enum tsr_status read_size(const struct reading *r, const char *fqn, const char *what,
				 const struct tsr_value *v, const uint64_t **ret,
				 unsigned *rank_ret)
{
	const struct tsr_value *list = v;
	uint64_t *numbers;

	if (tsr_value_is_call(v, "torch", "Size") && v->call.args->list.n == 1)
		list = v->call.args->list.items[0];
	if (!list || (list->type != TSR_VALUE_TUPLE && list->type != TSR_VALUE_LIST))
		return bad(r, fqn, v, what);
	if (list->list.n > TSR_RANK_MAX)
		return FAIL(r, TSR_E_LIMIT, fqn, "%zu dimensions are over the limit of %u",
			    list->list.n, TSR_RANK_MAX);
	TSR_TRY(TSR_ARENA_NEW(&numbers, list->list.n, r->m->arena, nomem(r)));
	for (size_t i = 0; i < list->list.n; i++) {
		if (!tsr_value_get_u64(list->list.items[i], &numbers[i]) ||
		    numbers[i] > TSR_TORCH_DIM_MAX)
			return bad(r, fqn, list->list.items[i],
				   "an int from 0 to 2^48-1 as a size or offset");
	}
	*ret = numbers;
	*rank_ret = (unsigned)list->list.n;
	return TSR_OK;
}

/* --- Tensors -------------------------------------------------------------------------------- */

/* The tuple (dtype, layout, requires_grad, memory format, pin_memory). */
static enum tsr_status read_properties(const struct reading *r, struct tsr_dcp_entry *e,
				       const struct tsr_value *v)
{
	const bool known = is_object(v, METADATA, "TensorProperties") ||
			   is_object(v, OLD_PROPERTIES, "TensorProperties");
	const struct tsr_value *state = known ? v->call.state : NULL, *layout;
	const struct tsr_torch_dtype *dtype;
	char text[TSR_VALUE_DESCRIBED];

	/* Newer ones have the strides too, which the tensors themselves say as well. */
	if (!state || state->type != TSR_VALUE_TUPLE || state->list.n < 5 || state->list.n > 6)
		return bad(r, e->fqn, v, "TensorProperties with 5 or 6 fields");
	layout = state->list.items[1];
	if (!tsr_value_is_call(layout, "torch.serialization", "_get_layout") ||
	    layout->call.args->list.n != 1 ||
	    !tsr_value_is_string(layout->call.args->list.items[0], "torch.strided"))
		return FAIL(r, TSR_E_UNSUPPORTED, e->fqn,
			    "found a tensor that is not strided (sparse?)");
	dtype = tsr_torch_dtype_by_value(state->list.items[0]);
	if (!dtype)
		return FAIL(r, TSR_E_UNSUPPORTED, e->fqn,
			    "found type %s, expected one that safetensors knows",
			    tsr_value_describe(state->list.items[0], text));
	e->dtype = dtype->dtype;
	return TSR_OK;
}

/* A box that lies in the tensor. */
static enum tsr_status read_box(const struct reading *r, const struct tsr_dcp_entry *e,
				const struct tsr_value *v, struct tsr_dcp_box *ret)
{
	const struct tsr_value *fields = fields_of(v, METADATA, "ChunkStorageMetadata");
	unsigned nstarts = 0, nsizes = 0;

	if (!fields)
		return bad(r, e->fqn, v, "a ChunkStorageMetadata with its fields");
	TSR_TRY(read_size(r, e->fqn, "a torch.Size as offsets of a chunk",
			  tsr_value_at(fields, "offsets"), &ret->start, &nstarts));
	TSR_TRY(read_size(r, e->fqn, "a torch.Size as sizes of a chunk",
			  tsr_value_at(fields, "sizes"), &ret->size, &nsizes));
	if (nstarts != e->rank || nsizes != e->rank)
		return FAIL(r, TSR_E_FORMAT, e->fqn,
			    "found a chunk with %u offsets and %u sizes, expected %u", nstarts,
			    nsizes, e->rank);
	for (unsigned d = 0; d < e->rank; d++) {
		if (ret->start[d] > e->shape[d] || ret->size[d] > e->shape[d] - ret->start[d])
			return FAIL(r, TSR_E_FORMAT, e->fqn,
				    "found a chunk of %" PRIu64 " at %" PRIu64
				    " in dimension %u, expected it within %" PRIu64,
				    ret->size[d], ret->start[d], d, e->shape[d]);
	}
	return TSR_OK;
}

static enum tsr_status read_tensor(const struct reading *r, struct tsr_dcp_entry *e,
				   const struct tsr_value *fields)
{
	const struct tsr_value *chunks = tsr_value_at(fields, "chunks");

	TSR_TRY(read_properties(r, e, tsr_value_at(fields, "properties")));
	TSR_TRY(read_size(r, e->fqn, "a torch.Size as its size", tsr_value_at(fields, "size"),
			  &e->shape, &e->rank));
	if (!chunks || chunks->type != TSR_VALUE_LIST)
		return bad(r, e->fqn, chunks, "a list of chunks");
	if (chunks->list.n > TSR_DCP_CHUNKS_MAX)
		return FAIL(r, TSR_E_LIMIT, e->fqn, "%zu chunks are over the limit of %u",
			    chunks->list.n, TSR_DCP_CHUNKS_MAX);
	TSR_TRY(TSR_ARENA_NEW(&e->boxes, chunks->list.n, r->m->arena, nomem(r)));
	for (size_t i = 0; i < chunks->list.n; i++)
		TSR_TRY(read_box(r, e, chunks->list.items[i], &e->boxes[i]));
	e->nboxes = chunks->list.n;
	return TSR_OK;
}

/* --- Entries -------------------------------------------------------------------------------- */

static enum tsr_status read_entry(const struct reading *r, const struct tsr_value *key,
				  const struct tsr_value *v)
{
	struct tsr_dcp_entry *e = &r->m->entries[r->m->nentries++];
	const struct tsr_value *fields;

	TSR_TRY(read_name(r, "state_dict_metadata", "a name", key, &e->fqn, &e->name));
	fields = fields_of(v, METADATA, "TensorStorageMetadata");
	if (fields)
		return read_tensor(r, e, fields);
	e->bytes = true;
	/* It has no fields; some versions of Python say so, others say nothing. */
	if (!is_object(v, METADATA, "BytesStorageMetadata") ||
	    (v->call.state && (v->call.state->type != TSR_VALUE_DICT || v->call.state->list.n)))
		return bad(r, e->fqn, v, "a TensorStorageMetadata or BytesStorageMetadata");
	return TSR_OK;
}

static enum tsr_status read_entries(const struct reading *r, const struct tsr_value *dict)
{
	if (!dict || dict->type != TSR_VALUE_DICT)
		return bad(r, "state_dict_metadata", dict, "a dict");
	TSR_TRY(TSR_ARENA_NEW(&r->m->entries, dict->list.n / 2, r->m->arena, nomem(r)));
	for (size_t i = 0; i + 1 < dict->list.n; i += 2)
		TSR_TRY(read_entry(r, dict->list.items[i], dict->list.items[i + 1]));
	/* Names are numbered as they are met, and these are the first. */
	for (size_t i = 0; i < r->m->nentries; i++) {
		if (r->m->entries[i].name != i)
			return FAIL(r, TSR_E_FORMAT, r->m->entries[i].fqn,
				    "found more than once in state_dict_metadata");
	}
	return TSR_OK;
}

/* --- Parts ---------------------------------------------------------------------------------- */

/* Only bytes that were stored without a transformation can be read. */
static enum tsr_status check_transforms(const struct reading *r, const struct tsr_dcp_part *p,
					const struct tsr_value *v)
{
	char text[TSR_VALUE_DESCRIBED];
	TSR_SCOPED(tsr_text_free) struct tsr_text names = { 0 };

	if (!v || v->type == TSR_VALUE_NONE || (tsr_value_is_list(v) && !v->list.n))
		return TSR_OK;
	if (!tsr_value_is_list(v))
		tsr_text_puts(&names, tsr_value_describe(v, text));
	for (size_t i = 0; tsr_value_is_list(v) && i < v->list.n && i < NAMED_MAX; i++)
		tsr_text_printf(&names, "%s%s", i ? ", " : "",
				tsr_value_describe(v->list.items[i], text));
	return names.failed ? tsr_fail_nomem(r->err, r->path)
			    : FAIL(r, TSR_E_UNSUPPORTED, p->fqn,
				   "found transform_descriptors (%s), expected data that is "
				   "neither compressed nor otherwise transformed",
				   names.bytes);
}

static enum tsr_status read_index(const struct reading *r, struct tsr_dcp_part *p,
				  const struct tsr_value *v)
{
	const struct tsr_value *fields = fields_of(v, METADATA, "MetadataIndex");
	const struct tsr_value *start = tsr_value_at(fields, "offset");

	TSR_TRY(read_name(r, "storage_data", "a MetadataIndex with a name",
			  tsr_value_at(fields, "fqn"), &p->fqn, &p->name));
	p->has_start = start && start->type != TSR_VALUE_NONE;
	if (!p->has_start)
		return TSR_OK;
	return read_size(r, p->fqn, "a torch.Size as offset of its MetadataIndex", start, &p->start,
			 &p->rank);
}

static enum tsr_status read_part(const struct reading *r, const struct tsr_value *key,
				 const struct tsr_value *v)
{
	struct tsr_dcp_part *p = &r->m->parts[r->m->nparts++];
	const struct tsr_value *fields = fields_of(v, FILESYSTEM, "_StorageInfo"), *file;

	TSR_TRY(read_index(r, p, key));
	if (!fields)
		return bad(r, p->fqn, v, "a _StorageInfo with its fields");
	TSR_TRY(check_transforms(r, p, tsr_value_at(fields, "transform_descriptors")));
	file = tsr_value_at(fields, "relative_path");
	if (!is_name(file) || !tsr_dir_is_name(file->text.bytes))
		return bad(r, p->fqn, file, "the name of a file without directories");
	p->file = file->text.bytes;
	if (tsr_dir_name_ends_with(p->file, ".safetensors"))
		return FAIL(r, TSR_E_UNSUPPORTED, p->fqn,
			    "found data in %s, expected .distcp files; give the safetensors files "
			    "themselves",
			    p->file);
	if (!tsr_value_get_u64(tsr_value_at(fields, "offset"), &p->offset))
		return bad(r, p->fqn, tsr_value_at(fields, "offset"), "an offset from 0 to 2^64-1");
	if (!tsr_value_get_u64(tsr_value_at(fields, "length"), &p->nbytes))
		return bad(r, p->fqn, tsr_value_at(fields, "length"), "a length from 0 to 2^64-1");
	return TSR_OK;
}

static int compare_parts(const void *va, const void *vb)
{
	const struct tsr_dcp_part *a = va, *b = vb;

	if (a->name != b->name)
		return a->name < b->name ? -1 : 1;
	if (a->has_start != b->has_start)
		return a->has_start ? 1 : -1;
	return a->start == b->start ? 0 : tsr_shape_compare(a->rank, a->start, b->rank, b->start);
}

static enum tsr_status read_parts(const struct reading *r, const struct tsr_value *dict)
{
	struct tsr_dcp_metadata *m = r->m;

	if (!dict || dict->type != TSR_VALUE_DICT)
		return bad(r, "storage_data", dict, "a dict");
	TSR_TRY(TSR_ARENA_NEW(&m->parts, dict->list.n / 2, m->arena, nomem(r)));
	for (size_t i = 0; i + 1 < dict->list.n; i += 2)
		TSR_TRY(read_part(r, dict->list.items[i], dict->list.items[i + 1]));
	qsort(m->parts, m->nparts, sizeof(*m->parts), compare_parts);
	for (size_t i = 1; i < m->nparts; i++) {
		if (compare_parts(&m->parts[i - 1], &m->parts[i]) == 0)
			return FAIL(r, TSR_E_FORMAT, m->parts[i].fqn,
				    "found the same chunk more than once in storage_data");
	}
	return TSR_OK;
}

struct tsr_dcp_part *tsr_dcp_find_part(const struct tsr_dcp_metadata *m,
				       const struct tsr_dcp_entry *e, const uint64_t *start)
{
	const struct tsr_dcp_part key = { .name = e->name,
					  .has_start = start != NULL,
					  .rank = start ? e->rank : 0,
					  .start = start };

	return bsearch(&key, m->parts, m->nparts, sizeof(*m->parts), compare_parts);
}

/* --- Paths ---------------------------------------------------------------------------------- */

bool tsr_dcp_is_path(const struct tsr_value *v)
{
	uint64_t index;

	if (v->type != TSR_VALUE_TUPLE || !v->list.n || v->list.n > TSR_VALUE_DEPTH_MAX)
		return false;
	for (size_t i = 0; i < v->list.n; i++) {
		const struct tsr_value *key = v->list.items[i];

		if (key->type != TSR_VALUE_STRING && !tsr_value_get_u64(key, &index))
			return false;
	}
	return true;
}

static enum tsr_status read_paths(const struct reading *r, const struct tsr_value *dict)
{
	const size_t n = dict && dict->type == TSR_VALUE_DICT ? dict->list.n / 2 : 0;
	struct tsr_dcp_metadata *m = r->m;
	bool *seen; /* per name */

	if (!dict || dict->type == TSR_VALUE_NONE)
		return TSR_OK;
	if (dict->type != TSR_VALUE_DICT)
		return bad(r, "planner_data", dict, "a dict");
	TSR_TRY(TSR_ARENA_NEW(&seen, r->names->n + n, m->arena, nomem(r)));
	for (size_t i = 0; i < n; i++) {
		const struct tsr_value *path = dict->list.items[2 * i + 1];
		const char *fqn;
		size_t name;

		TSR_TRY(read_name(r, "planner_data", "a name", dict->list.items[2 * i], &fqn,
				  &name));
		if (!tsr_dcp_is_path(path))
			return bad(r, fqn, path,
				   "its path: a tuple of 1 to 200 keys, each a string or a list "
				   "index");
		if (seen[name])
			return FAIL(r, TSR_E_FORMAT, fqn, "found more than once in planner_data");
		seen[name] = true;
		if (name < m->nentries)
			m->entries[name].path = path;
	}
	return TSR_OK;
}

/* --- The file ------------------------------------------------------------------------------- */

static bool is_known_global(const struct tsr_value *v)
{
	return v->type == TSR_VALUE_GLOBAL &&
	       (strncmp(v->global.module, "torch.distributed.", 18) == 0 ||
		strncmp(v->global.module, "megatron.core.dist_checkpointing.", 33) == 0 ||
		tsr_torch_is_harmless(v));
}

static bool is_known(const struct tsr_value *v)
{
	if (v->type == TSR_VALUE_CALL)
		return is_known_global(v->call.callee);
	if (v->type == TSR_VALUE_GLOBAL)
		return is_known_global(v);
	return v->type != TSR_VALUE_PERSISTENT;
}

/* Nothing here is ever called, but what torch would call on loading must not go unnoticed. */
static enum tsr_status check_globals(const struct reading *r, struct tsr_value *root)
{
	struct tsr_value_walk *w;
	char text[TSR_VALUE_DESCRIBED], at[256];
	struct tsr_value *v;

	TSR_TRY(TSR_NEW(&w, 1, r->err, r->path));
	w->root = root;
	w->mark = TSR_MARK_DCP;
	do {
		v = tsr_value_walk_next(w);
	} while (v && is_known(v));
	tsr_value_walk_path(w, at, sizeof(at));
	free(w);
	if (!v)
		return TSR_OK;
	return tsr_fail(r->err, TSR_E_UNSUPPORTED,
			"%s: %s: found %s, expected only classes of torch.distributed and plain "
			"values; nothing was executed",
			r->path, *at ? at : "the root", tsr_value_describe(v, text));
}

static enum tsr_status interpret(const struct reading *r, struct tsr_value *root)
{
	const struct tsr_value *fields = fields_of(root, METADATA, "Metadata");

	TSR_TRY(check_globals(r, root));
	if (!fields)
		return bad(r, "the root", root, "a " METADATA ".Metadata with its fields");
	TSR_TRY(read_entries(r, tsr_value_at(fields, "state_dict_metadata")));
	TSR_TRY(read_parts(r, tsr_value_at(fields, "storage_data")));
	r->m->planner_data = tsr_value_at(fields, "planner_data");
	r->m->mcore_data = tsr_value_at(fields, "mcore_data");
	return read_paths(r, r->m->planner_data);
}

enum tsr_status tsr_dcp_metadata_read(const struct tsr_file *f, struct tsr_dcp_metadata *ret,
				      struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_numbers_free) struct tsr_text_numbers names = { 0 };
	const struct reading r = { tsr_file_path(f), ret, &names, err };
	TSR_OWNED(free) char *bytes = NULL;
	struct tsr_value *root = NULL;

	*ret = (struct tsr_dcp_metadata){ .arena = tsr_arena_new(TSR_BUILD_NBYTES_MAX) };
	if (!ret->arena)
		return tsr_fail_nomem(err, r.path);
	TSR_TRY(tsr_file_load(f, TSR_DCP_METADATA_MAX, "metadata", &bytes, err));
	TSR_TRY(tsr_pickle_read(bytes, (size_t)tsr_file_size(f), r.path, ret->arena, &root, err));
	return interpret(&r, root);
}

void tsr_dcp_metadata_free(struct tsr_dcp_metadata *m)
{
	tsr_arena_free(m->arena);
	*m = (struct tsr_dcp_metadata){ 0 };
}
