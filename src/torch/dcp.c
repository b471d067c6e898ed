/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a directory of torch.distributed.checkpoint: its files, entries and tree. */
#include "torch/dcp.h"

#include "base/order.h"
#include "io/dir.h"
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "format/pickle.h"
#include "torch/dcp_read.h"
#include "torch/dcp_write.h"
#include "torch/torch_archive.h"

/* --- The directory -------------------------------------------------------------------------- */

static bool has_data(const char *directory)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir found = { 0 };

	return tsr_dir_list(directory, ".distcp", &found, NULL) == TSR_OK && found.n > 0;
}

bool tsr_dcp_looks_like(const char *directory)
{
	return tsr_dir_has_in(directory, ".metadata") ||
	       tsr_dir_has_in(directory, ".metadata.tmp") || has_data(directory);
}

static enum tsr_status check_committed(const char *directory, struct tsr_err *err)
{
	if (tsr_dir_has_in(directory, ".metadata"))
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: found no .metadata%s: the save did not finish, so the directory holds "
			"no checkpoint",
			directory,
			tsr_dir_has_in(directory, ".metadata.tmp") ? ", only .metadata.tmp" : "");
}

/* --- Data files ----------------------------------------------------------------------------- */

TSR_COMPARE_BY(by_file, struct tsr_dcp_part *, strcmp((*a)->file, (*b)->file),
	       tsr_order_then(TSR_ORDER((*a)->offset, (*b)->offset),
			      TSR_ORDER((*a)->nbytes, (*b)->nbytes)))

/* A part must lie in its file, after the part before it. */
static enum tsr_status check_extent(const struct tsr_dcp_reading *r, const struct tsr_dcp_part *p,
				    const struct tsr_dcp_part *before)
{
	const uint64_t size = tsr_file_size(r->c->files[p->index]);

	if (p->offset > size || p->nbytes > size - p->offset)
		return TSR_DCP_FAIL(r, TSR_E_FORMAT, p->fqn,
				    "found %" PRIu64 " bytes at offset %" PRIu64
				    " of %s, which has %" PRIu64 " (is this a mix of two saves?)",
				    p->nbytes, p->offset, p->file, size);
	if (before && p->offset - before->offset < before->nbytes)
		return TSR_DCP_FAIL(r, TSR_E_FORMAT, p->fqn,
				    "found it in bytes of %s that %.200s has too", p->file,
				    before->fqn);
	return TSR_OK;
}

/* Open each file once; @sorted are all parts by file and offset. */
static enum tsr_status open_files(struct tsr_dcp_reading *r, struct tsr_dcp_part **sorted)
{
	size_t nfiles = 0;

	for (size_t i = 0; i < r->m.nparts; i++) {
		struct tsr_dcp_part *p = sorted[i], *before = i ? sorted[i - 1] : NULL;
		struct tsr_file *f = NULL;

		if (before && strcmp(before->file, p->file) == 0) {
			p->index = before->index;
		} else {
			before = NULL;
			if (nfiles++ == TSR_DCP_FILES_MAX)
				return tsr_fail(r->err, TSR_E_LIMIT,
						"%s: names more files than the limit of %u",
						r->path, TSR_DCP_FILES_MAX);
			TSR_TRY(tsr_file_open_in(r->directory, p->file, r->follow, &f, r->err));
			TSR_TRY(tsr_build_file(r->c, f, &p->index, r->err));
		}
		TSR_TRY(check_extent(r, p, before));
	}
	return TSR_OK;
}

static enum tsr_status find_parts(struct tsr_dcp_reading *r)
{
	const size_t n = r->m.nparts;
	TSR_OWNED(free) struct tsr_dcp_part **sorted = NULL;

	TSR_TRY(TSR_NEW(&sorted, n + 1, r->err, r->path));
	for (size_t i = 0; i < n; i++)
		sorted[i] = &r->m.parts[i];
	qsort(sorted, n, sizeof(struct tsr_dcp_part *), by_file);
	return open_files(r, sorted);
}

/* --- Entries -------------------------------------------------------------------------------- */

/* An entry that no value stands for: its bytes are a tensor outside of the tree. */
static enum tsr_status carry_bytes(struct tsr_dcp_reading *r, const struct tsr_dcp_part *p,
				   const char *why)
{
	struct tsr_arena *arena = r->c->arena;
	uint64_t *shape = tsr_arena_alloc(arena, sizeof(*shape));
	struct tsr_array a = { .name = tsr_arena_string(arena, p->fqn),
			       .dtype = TSR_U8,
			       .rank = 1,
			       .shape = shape,
			       .file = p->index,
			       .offset = p->offset };
	size_t array;

	if (!shape || !a.name)
		return tsr_build_nomem(r->c, r->err);
	*shape = p->nbytes;
	TSR_TRY(tsr_build_array(r->c, &a, &array, r->err));
	if (!tsr_value_put_at(arena, r->unread, p->fqn, tsr_value_tensor(arena, array)))
		return tsr_build_nomem(r->c, r->err);
	r->c->nunchecked++;
	return tsr_build_note(r->c, r->err, "%s (its bytes are carried as they are, for a DCP)",
			      why);
}

/*
 * What was saved as a Python object.  Of one that cannot be read only the bytes are carried, or nothing,
 * as the policy says: entries are independent, so no other is changed by it.
 */
static enum tsr_status read_object(struct tsr_dcp_reading *r, const struct tsr_dcp_part *p,
				   const char *where, struct tsr_value **ret)
{
	const size_t narrays = r->c->narrays;
	struct tsr_err reason = { .msg = "" };
	const enum tsr_status status = tsr_torch_read(r->c, p->index, p->offset, p->nbytes, where,
						      p->fqn, ret, &reason);

	if (status == TSR_E_UNSUPPORTED && r->c->opaque != TSR_OPAQUE_REFUSE) {
		r->c->narrays = narrays;
		if (r->c->opaque == TSR_OPAQUE_CARRY)
			return carry_bytes(r, p, reason.msg);
		r->c->left_out = true;
		return tsr_build_note(r->c, r->err, "%s (left out)", reason.msg);
	}
	if (status != TSR_OK && r->err)
		*r->err = reason;
	/* A tensor would be written as one. */
	if (status == TSR_OK && (*ret)->type == TSR_VALUE_TENSOR) {
		r->c->narrays = narrays;
		*ret = NULL;
		return carry_bytes(r, p, where);
	}
	return status;
}

static enum tsr_status read_bytes(struct tsr_dcp_reading *r, const struct tsr_dcp_entry *e,
				  struct tsr_value **ret)
{
	struct tsr_dcp_part *p = tsr_dcp_find_part(&r->m, e, NULL);
	TSR_OWNED(free) char *where = NULL;

	if (!p)
		return TSR_DCP_FAIL(r, TSR_E_FORMAT, e->fqn,
				    "found in state_dict_metadata, but not in storage_data");
	p->used = true;
	where = tsr_dcp_where(r, p);
	if (!where)
		return tsr_fail_nomem(r->err, r->path);
	return read_object(r, p, where, ret);
}

static enum tsr_status read_tensor(struct tsr_dcp_reading *r, const struct tsr_dcp_entry *e,
				   struct tsr_value **ret)
{
	struct tsr_value *v = tsr_value_new(r->c->arena, TSR_VALUE_TENSOR);

	if (!v)
		return tsr_build_nomem(r->c, r->err);
	*ret = v;
	return tsr_dcp_read_tensor(r, e, &v->tensor.array);
}

static enum tsr_status read_entries(struct tsr_dcp_reading *r, struct tsr_dcp_tree *t)
{
	r->ncomparisons = TSR_DCP_COMPARED_FREE;
	for (size_t i = 0; i < r->m.nentries; i++)
		r->ncomparisons += TSR_DCP_COMPARED_PER_CHUNK * r->m.entries[i].nboxes;
	for (size_t i = 0; i < r->m.nentries; i++) {
		const struct tsr_dcp_entry *e = &r->m.entries[i];
		struct tsr_value *v = NULL;

		TSR_TRY(e->bytes ? read_bytes(r, e, &v) : read_tensor(r, e, &v));
		if (v)
			TSR_TRY(tsr_dcp_tree_put(t, r, e, v));
	}
	for (size_t i = 0; i < r->m.nparts; i++) {
		if (!r->m.parts[i].used)
			return TSR_DCP_FAIL(r, TSR_E_FORMAT, r->m.parts[i].fqn,
					    "found in storage_data, but no chunk in "
					    "state_dict_metadata is stored there");
	}
	return TSR_OK;
}

/* --- What the values do not show ------------------------------------------------------------ */

/* The attribute of the root, in the arena of the checkpoint: the metadata's own goes with it. */
static enum tsr_status read_attribute(struct tsr_dcp_reading *r, struct tsr_value **ret)
{
	struct tsr_arena *arena = r->m.arena;
	struct tsr_value *dict = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *none = tsr_value_new(arena, TSR_VALUE_NONE), *paths = r->m.planner_data;
	TSR_SCOPED(tsr_text_free) struct tsr_text pickle = { 0 };

	if (!tsr_value_put_at(arena, dict, "planner_data", paths ? paths : none) ||
	    (r->m.mcore_data && !tsr_value_put_at(arena, dict, "mcore_data", r->m.mcore_data)))
		return tsr_build_nomem(r->c, r->err);
	TSR_TRY(tsr_pickle_write(dict, NULL, r->path, &pickle, r->err));
	if (pickle.failed)
		return tsr_fail_nomem(r->err, r->path);
	return tsr_pickle_read(pickle.bytes, pickle.nbytes, r->path, r->c->arena, ret, r->err);
}

/* The items of @root in an OrderedDict with the attribute. */
static enum tsr_status with_attribute(struct tsr_dcp_reading *r, struct tsr_value *root,
				      struct tsr_value **ret)
{
	struct tsr_arena *arena = r->c->arena;
	struct tsr_value *v = tsr_value_new(arena, TSR_VALUE_CALL), *attribute = NULL;

	TSR_TRY(read_attribute(r, &attribute));
	if (!v || (r->unread->list.n && !tsr_value_put_at(arena, attribute, "unread", r->unread)))
		return tsr_build_nomem(r->c, r->err);
	v->call.callee = tsr_value_global(arena, "collections", "OrderedDict");
	v->call.args = tsr_value_new(arena, TSR_VALUE_TUPLE);
	v->call.items = root;
	v->call.state = tsr_value_new(arena, TSR_VALUE_DICT);
	if (!v->call.callee || !v->call.args ||
	    !tsr_value_put_at(arena, v->call.state, TSR_DCP_ATTRIBUTE, attribute))
		return tsr_build_nomem(r->c, r->err);
	*ret = v;
	return TSR_OK;
}

/* Whether the values have the same entries with the attribute of @listed as without, in @plain. */
static enum tsr_status is_usual(struct tsr_dcp_reading *r, struct tsr_value *listed,
				struct tsr_value *plain, bool *ret)
{
	struct tsr_dcp_items a = { 0 }, b = { 0 };
	enum tsr_status status = tsr_dcp_flatten(r->c, listed, r->path, &a, NULL);

	TSR_THEN(status, tsr_dcp_flatten(r->c, plain, r->path, &b, NULL));
	*ret = status == TSR_OK && a.n == b.n;
	for (size_t i = 0; i < a.n && *ret; i++)
		*ret = a.items[i].path && a.items[i].value == b.items[i].value &&
		       strcmp(a.items[i].fqn, b.items[i].fqn) == 0;
	free(a.items);
	free(b.items);
	return status == TSR_E_NOMEM ? tsr_fail_nomem(r->err, r->path) : TSR_OK;
}

/* What dcp.save() makes of the nesting needs no attribute. */
static enum tsr_status keep_entries(struct tsr_dcp_reading *r, struct tsr_value **root)
{
	struct tsr_value *listed = NULL;
	bool usual = false;

	TSR_TRY(with_attribute(r, *root, &listed));
	if (r->m.planner_data && r->m.planner_data->type == TSR_VALUE_DICT && !r->m.mcore_data &&
	    !r->unread->list.n)
		TSR_TRY(is_usual(r, listed, *root, &usual));
	*root = usual ? *root : listed;
	return TSR_OK;
}

static enum tsr_status read_tree(struct tsr_dcp_reading *r)
{
	TSR_OWNED(tsr_dcp_tree_free) struct tsr_dcp_tree *t = tsr_dcp_tree_new(r->c->arena);
	struct tsr_value *root = NULL;

	r->unread = tsr_value_new(r->c->arena, TSR_VALUE_DICT);
	if (!t || !r->unread)
		return tsr_build_nomem(r->c, r->err);
	TSR_TRY(read_entries(r, t));
	TSR_TRY(tsr_dcp_tree_finish(t, r, &root));
	TSR_TRY(keep_entries(r, &root));
	return tsr_build_tree(r->c, root, r->err);
}

/* .metadata becomes a file of the checkpoint too, so that a change of it is noticed. */
static enum tsr_status read_directory(struct tsr_dcp_reading *r)
{
	struct tsr_file *f = NULL;
	unsigned file;

	TSR_TRY(check_committed(r->directory, r->err));
	TSR_TRY(tsr_file_open_in(r->directory, ".metadata", r->follow, &f, r->err));
	TSR_TRY(tsr_build_file(r->c, f, &file, r->err));
	r->path = tsr_file_path(f);
	TSR_TRY(tsr_dcp_metadata_read(f, &r->m, r->err));
	TSR_TRY(find_parts(r));
	return read_tree(r);
}

enum tsr_status tsr_dcp_read_links(struct tsr_checkpoint *c, const char *directory, bool follow,
				   struct tsr_err *err)
{
	struct tsr_dcp_reading r = { .c = c, .directory = directory, .follow = follow, .err = err };
	const enum tsr_status status = read_directory(&r);

	tsr_dcp_metadata_free(&r.m);
	return status;
}
