/* SPDX-License-Identifier: Apache-2.0 */
/* An archive of torch.save as tensors and plain values: each view of a storage is one array. */
#include "base/fail.h"
#include "text/map.h"
#include "ckpt/checkpoint_model.h"
#include "torch/torch.h"
#include "torch/torch_archive.h"

/* --- Arrays, each view once ----------------------------------------------------------------- */

/* A view that has an array. */
struct seen {
	const struct tsr_torch_archive *archive;
	size_t array;
	size_t member;
	uint64_t first;
	const uint64_t *shape, *stride; /* the array's; NULL: contiguous */
};

/* The pass over a value. */
struct binding {
	struct tsr_torch_archive *a;
	const char *prefix;
	struct tsr_map views; /* of struct seen */
	uint64_t nbytes; /* of the tensors so far */
	size_t nloose; /* views with gaps, or with elements twice */
	const char *loose; /* the name of the first */
};

static uint64_t hash_view(struct tsr_map *views, const struct tsr_torch_view *v)
{
	const uint64_t facts[] = { v->member, v->dtype, v->rank, v->first };
	const uint64_t hash = tsr_map_hash(views, v->shape, v->rank * sizeof(*v->shape),
					   tsr_map_hash(views, facts, sizeof(facts), 0));

	return tsr_map_hash(views, v->stride, v->rank * sizeof(*v->stride), hash);
}

static bool is_seen(const void *item, const void *key)
{
	const struct seen *s = item;
	const struct tsr_torch_view *v = key;
	const struct tsr_array *a = &s->archive->c->arrays[s->array];
	const size_t nbytes = v->rank * sizeof(*v->shape);

	return s->member == v->member && s->first == v->first && a->dtype == v->dtype &&
	       a->rank == v->rank && (!nbytes || memcmp(s->shape, v->shape, nbytes) == 0) &&
	       (s->stride ? !nbytes || memcmp(s->stride, v->stride, nbytes) == 0 : v->contiguous);
}

static enum tsr_status add_array(struct binding *b, const struct tsr_torch_view *v, const char *at,
				 struct seen *s)
{
	struct tsr_checkpoint *c = b->a->c;
	struct tsr_array array;

	TSR_TRY(tsr_torch_array(c, v, &array, b->a->err));
	array.name = tsr_arena_printf(c->arena, "%s%s%s", b->prefix, *b->prefix && *at ? "." : "",
				      at);
	if (!array.name)
		return tsr_build_nomem(c, b->a->err);
	TSR_TRY(tsr_build_array(c, &array, &s->array, b->a->err));
	if (!v->contiguous && !array.stride && !b->nloose++)
		b->loose = array.name;
	s->archive = b->a;
	s->member = v->member;
	s->first = v->first;
	s->shape = array.shape;
	s->stride = array.layout ? array.layout->chunks->stride : NULL;
	return TSR_OK;
}

/* The array of a view: one that is there already, or a new one. */
static enum tsr_status find_array(struct binding *b, const struct tsr_torch_view *v, const char *at,
				  size_t *ret)
{
	const uint64_t hash = hash_view(&b->views, v);
	bool is_new;
	struct seen *s = tsr_map_put(&b->views, hash, v, &is_new);

	if (!s)
		return tsr_fail_nomem(b->a->err, b->a->where);
	if (is_new) {
		TSR_TRY(add_array(b, v, at, s));
		if (__builtin_add_overflow(b->nbytes, v->nbytes, &b->nbytes))
			b->nbytes = UINT64_MAX;
	}
	*ret = s->array;
	return TSR_OK;
}

static void free_views(struct binding *b)
{
	tsr_map_free(&b->views);
}

static enum tsr_status find_tensor(void *ctx, const struct tsr_value *call, const char *at,
				   struct tsr_value *ret)
{
	struct binding *b = ctx;
	struct tsr_torch_view view;

	TSR_TRY(tsr_torch_view(b->a, call, at, &view));
	ret->tensor.requires_grad = view.requires_grad;
	ret->tensor.parameter = view.parameter;
	return find_array(b, &view, at, &ret->tensor.array);
}

/* All tensors together, like each one, are limited to a multiple of what is stored. */
static enum tsr_status check_total(const struct binding *b)
{
	const struct tsr_torch_archive *a = b->a;
	uint64_t most = TSR_TORCH_EXPANSION_FREE_ALL;

	if (!a->zip)
		return TSR_OK;
	for (size_t i = 0; i < a->zip->nmembers; i++) {
		uint64_t more;

		if (__builtin_mul_overflow(a->records[i].nbytes, (uint64_t)TSR_TORCH_EXPANSION_MAX,
					   &more) ||
		    __builtin_add_overflow(most, more, &most))
			return TSR_OK;
	}
	if (b->nbytes <= most)
		return TSR_OK;
	return tsr_fail(
		a->err, TSR_E_LIMIT,
		"%s: tensors of %" PRIu64
		" bytes together are over the limit of %u times what is stored and 64 MiB, %" PRIu64
		" bytes",
		a->where, b->nbytes, TSR_TORCH_EXPANSION_MAX, most);
}

enum tsr_status tsr_torch_bind(struct tsr_torch_archive *a, struct tsr_value *root,
			       const char *prefix)
{
	TSR_SCOPED(free_views) struct binding b = { .a = a, .prefix = prefix };
	struct tsr_torch_numpy numpy = { .n = 0 };

	b.views = (struct tsr_map){ .item_nbytes = sizeof(struct seen), .same = is_seen };
	TSR_TRY(tsr_torch_bind_with(a, root, find_tensor, &b, &numpy));
	TSR_TRY(check_total(&b));
	if (b.nloose)
		TSR_TRY(tsr_build_note(
			a->c, a->err,
			"%.200s: tensor %.200s: is a view with gaps or repeated elements, "
			"and becomes row-major without them (%zu in all)",
			a->where, b.loose, b.nloose));
	if (!numpy.n)
		return TSR_OK;
	return tsr_build_remark(
		a->c, a->err,
		"%.200s: %s: a NumPy value is kept as it is, not as a tensor (%zu in all)",
		a->where, *numpy.at ? numpy.at : "the root", numpy.n);
}

/* --- A whole archive ------------------------------------------------------------------------ */

static enum tsr_status note_unused(struct tsr_torch_archive *a)
{
	size_t n = 0, first = 0;

	for (size_t i = a->zip->nmembers; i--;) {
		if (a->used[i])
			continue;
		first = i;
		n++;
	}
	a->c->nunused += n;
	if (!n)
		return TSR_OK;
	a->c->unused = tsr_arena_string(a->c->arena, a->zip->members[first].name);
	if (!a->c->unused)
		return tsr_build_nomem(a->c, a->err);
	return tsr_build_note(a->c, a->err,
			      "%.200s: member %.200s is part of no tensor (%zu in all)", a->where,
			      a->zip->members[first].name, n);
}

/* How often the values went through a lossy codec: tersor keeps it in a record of its own. */
static enum tsr_status read_generation(struct tsr_torch_archive *a)
{
	const struct tsr_zip_member *m = tsr_torch_find(a, TSR_GENERATION_KEY);
	TSR_OWNED(free) void *text = NULL;
	const char *copy;

	if (!m)
		return TSR_OK;
	a->used[m - a->zip->members] = true;
	TSR_TRY(tsr_zip_load(a->c->files[a->file], m, 16, a->where, &text, a->err));
	copy = tsr_arena_copy(a->c->arena, text, m->nbytes);
	if (!copy)
		return tsr_build_nomem(a->c, a->err);
	return tsr_build_meta(a->c, TSR_GENERATION_KEY, copy, a->err);
}

enum tsr_status tsr_torch_read(struct tsr_checkpoint *c, unsigned file, uint64_t base,
			       uint64_t nbytes, const char *where, const char *prefix,
			       struct tsr_value **root_ret, struct tsr_err *err)
{
	TSR_SCOPED(tsr_torch_close)
	struct tsr_torch_archive a = { .c = c, .file = file, .where = where, .err = err };
	struct tsr_value *root = NULL;

	TSR_TRY(tsr_torch_open(&a, base, nbytes));
	TSR_TRY(tsr_torch_load(&a, c->arena, &root));
	TSR_TRY(tsr_torch_bind(&a, root, prefix));
	TSR_TRY(read_generation(&a));
	TSR_TRY(note_unused(&a));
	*root_ret = root;
	return TSR_OK;
}

enum tsr_status tsr_torch_read_tensor(struct tsr_checkpoint *c, unsigned file, uint64_t base,
				      uint64_t nbytes, const char *where,
				      struct tsr_torch_view *ret, struct tsr_err *err)
{
	TSR_SCOPED(tsr_torch_close)
	struct tsr_torch_archive a = { .c = c, .file = file, .where = where, .err = err };
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(TSR_BUILD_NBYTES_MAX);
	struct tsr_value *root = NULL;

	if (!arena)
		return tsr_fail_nomem(err, where);
	TSR_TRY(tsr_torch_open(&a, base, nbytes));
	TSR_TRY(tsr_torch_load(&a, arena, &root));
	if (!tsr_torch_is_tensor(root))
		TSR_TRY(tsr_torch_fail(&a, TSR_E_FORMAT, "", "found no tensor, expected just one"));
	TSR_TRY(tsr_torch_view(&a, root, "", ret));
	return read_generation(&a);
}
