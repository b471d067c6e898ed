/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint on disk consists of: its files, and where the tensors are in them. */
#include "store/sources.h"

#include <stdio.h>

#include "base/grow.h"
#include "base/order.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/layout.h"
#include "directory/directory_data.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/temporary.h"
#include "store/ranges.h"
#include "tersor/names.h"
#include "text/shape.h"

/* Tensors with less are left to the rest of their file. */
#define STATE_ELEMENTS_MIN 64
#define OTHER_NBYTES_MIN 4096

/* --- Files ------------------------------------------------------------------------------------ */

/* A single file is listed as the only one of its directory. */
static enum tsr_status list_file(struct tsr_store_source *source, struct tsr_err *err)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	struct tsr_node *node;

	TSR_TRY(tsr_file_open(source->path, &f, err));
	TSR_TRY(TSR_NEW(&node, 1, err, source->path));
	source->nodes = (struct tsr_nodes){ node, 1 };
	node->path = strdup(tsr_path_name(source->path));
	if (!node->path)
		return tsr_fail_nomem(err, source->path);
	node->nbytes = tsr_file_size(f);
	node->mtime_s = tsr_file_time(f);
	node->mtime_ns = (int64_t)tsr_file_nanoseconds(f);
	return tsr_node_mode(source->path, &node->mode, err);
}

static enum tsr_status list(struct tsr_store_source *source, struct tsr_err *err)
{
	source->is_file = !tsr_dir_is(source->path);
	source->directory = source->is_file ? tsr_path_directory(source->path)
					    : tsr_path_trim(source->path);
	if (!source->directory)
		return tsr_fail_nomem(err, source->path);
	return source->is_file ? list_file(source, err)
			       : tsr_nodes_list(source->path, source->follow, &source->nodes, err);
}

static enum tsr_status take_paths(const struct tsr_store_source *source, struct tsr_arena *arena,
				  struct tsr_snapshot *ret, struct tsr_err *err)
{
	ret->is_file = source->is_file;
	ret->npaths = source->nodes.n;
	TSR_TRY(TSR_ARENA_NEW(&ret->paths, ret->npaths, arena, tsr_fail_nomem(err, source->path)));
	for (size_t i = 0; i < ret->npaths; i++) {
		const struct tsr_node *node = &source->nodes.list[i];
		struct tsr_stored_path *p = &ret->paths[i];

		p->path = tsr_arena_string(arena, node->path);
		if (!p->path)
			return tsr_fail_nomem(err, source->path);
		if (!tsr_directory_path_is_valid(p->path))
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s/%s: a store does not hold files of such a name",
					source->directory, p->path);
		p->is_directory = node->is_directory;
		p->mode = node->mode;
		p->nbytes = node->is_directory ? 0 : node->nbytes;
		ret->info.nfiles += !p->is_directory;
		ret->info.nbytes += p->nbytes;
	}
	return TSR_OK;
}

static enum tsr_status open_file(const struct tsr_store_source *source, size_t file,
				 struct tsr_file **ret, struct tsr_err *err)
{
	const struct tsr_node *node = &source->nodes.list[file];
	TSR_OWNED(free) char *path = tsr_path_join(source->directory, node->path);
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	if (!path)
		return tsr_fail_nomem(err, source->path);
	TSR_TRY(tsr_file_open(path, &f, err));
	if (tsr_file_size(f) != node->nbytes || tsr_file_time(f) != node->mtime_s ||
	    (int64_t)tsr_file_nanoseconds(f) != node->mtime_ns)
		return tsr_fail(err, TSR_E_IO, "%s/%s: changed while it was read",
				source->directory, node->path);
	return TSR_GIVE(ret, f);
}

enum tsr_status tsr_source_read(const struct tsr_store_source *source, size_t file, void *bytes,
				size_t nbytes, uint64_t offset, struct tsr_err *err)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(open_file(source, file, &f, err));
	return tsr_file_read(f, bytes, nbytes, offset, err);
}

struct reading_rest {
	const struct tsr_file *f;
	uint8_t *bytes;
};

static enum tsr_status read_part(void *ctx, uint64_t offset, size_t at, size_t nbytes,
				 struct tsr_err *err)
{
	const struct reading_rest *r = ctx;

	return tsr_file_read(r->f, r->bytes + at, nbytes, offset, err);
}

enum tsr_status tsr_source_read_rest(const struct tsr_store_source *source,
				     const struct tsr_snapshot *s, size_t file, uint8_t *bytes,
				     size_t nbytes, uint64_t at, struct tsr_err *err)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(open_file(source, file, &f, err));
	return tsr_rest_each(&s->paths[file], at, nbytes, read_part,
			     &(struct reading_rest){ f, bytes }, err);
}

enum tsr_status tsr_source_check_unchanged(const struct tsr_store_source *source,
					   struct tsr_err *err)
{
	for (size_t i = 0; source->is_file && i < source->nodes.n; i++) {
		TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

		TSR_TRY(open_file(source, i, &f, err));
	}
	return source->is_file ? TSR_OK
			       : tsr_nodes_check_unchanged(&source->nodes, source->path,
							   source->follow, err);
}

void tsr_source_close(struct tsr_store_source *source)
{
	tsr_nodes_free(&source->nodes);
	free(source->directory);
}

/* --- Tensors ---------------------------------------------------------------------------------- */

/* Elements that are one run of bytes in a file. */
struct run {
	unsigned file;
	uint64_t offset, n;
	uint32_t columns, phase;
};

struct finding {
	const struct tsr_checkpoint *c;
	const struct tsr_store_source *source;
	struct tsr_arena *arena;
	struct tsr_snapshot *to;
	uint32_t *
		file; /* which path of the snapshot each file of the checkpoint is, or UINT32_MAX */
	struct tsr_err *err;
};

static uint32_t columns_of(uint64_t n)
{
	return n > 1 && n <= 0xffffff ? (uint32_t)n : 0;
}

/* The size of the dimension whose elements are beside each other. */
static uint32_t inner(unsigned rank, const uint64_t *size, const uint64_t *stride)
{
	for (unsigned i = 0; rank > 1 && i < rank; i++)
		if (stride[i] == 1 && size[i] > 1)
			return columns_of(size[i]);
	return 0;
}

static unsigned count_runs(const struct tsr_array *a)
{
	const struct tsr_layout *l = a->layout;

	if (a->memory || a->coded || (l && (l->swapped || l->bf16_integers || l->integers_bf16)))
		return 0;
	return l ? (unsigned)l->nchunks : 1;
}

/* The run number @i of an array; false if it is none. */
static bool get_run(const struct tsr_array *a, unsigned i, struct run *ret)
{
	const struct tsr_chunk *chunk = a->layout ? &a->layout->chunks[i] : NULL;
	const unsigned rank = chunk && a->layout->flat ? 1 : a->rank;

	if (!chunk) {
		*ret = (struct run){ a->file, a->offset, a->numel, 0, 0 };
		ret->columns = a->stride  ? inner(rank, a->shape, a->stride)
			       : rank > 1 ? columns_of(a->shape[rank - 1])
					  : 0;
		return true;
	}
	*ret = (struct run){ .file = chunk->file, .offset = chunk->offset };
	if (!tsr_strides_are_dense(rank, chunk->size, chunk->stride) ||
	    !tsr_shape_numel(rank, chunk->size, &ret->n))
		return false;
	ret->columns = inner(rank, chunk->size, chunk->stride);
	if (a->layout->flat && a->rank > 1) {
		ret->columns = columns_of(a->shape[a->rank - 1]);
		ret->phase = ret->columns ? (uint32_t)(chunk->start[0] % ret->columns) : 0;
	}
	return true;
}

static bool is_state(const struct tsr_tensor *t)
{
	return t->dtype == TSR_F32 && t->kind != TSR_KIND_OTHER && !t->quantized;
}

static const struct tsr_array *array_of(const struct finding *f, const struct tsr_tensor *t)
{
	return &f->c->arrays[t->plane[0]];
}

/* Make room for one more tensor. */
static struct tsr_stored_tensor *more(struct finding *f)
{
	struct tsr_snapshot *s = f->to;

	if (!tsr_arena_room(f->arena, &s->tensors, s->ntensors, sizeof(*s->tensors)))
		return NULL;
	s->tensors[s->ntensors] = (struct tsr_stored_tensor){ .slots = 0 };
	return &s->tensors[s->ntensors++];
}

static bool put_slot(const struct finding *f, struct tsr_stored_tensor *x,
		     const struct tsr_tensor *t, const struct run *run)
{
	const unsigned i = x->slots++;

	x->name[i] = tsr_arena_string(f->arena, t->name);
	x->kind[i] = is_state(t) ? t->kind : TSR_KIND_OTHER;
	x->file[i] = f->file[run->file];
	x->offset[i] = run->offset;
	return x->name[i];
}

/* Add the runs of a tensor, or those of a momentum and its variance. */
static enum tsr_status add(struct finding *f, const struct tsr_tensor *t,
			   const struct tsr_tensor *variance)
{
	const unsigned n = count_runs(array_of(f, t));

	for (unsigned i = 0; i < n; i++) {
		struct tsr_stored_tensor *x;
		struct run run, other;
		const uint64_t least = is_state(t)
					       ? STATE_ELEMENTS_MIN
					       : OTHER_NBYTES_MIN / (tsr_dtype_bits(t->dtype) / 8);

		if (!get_run(array_of(f, t), i, &run) || f->file[run.file] == UINT32_MAX ||
		    run.n < least)
			continue;
		if (variance && !get_run(array_of(f, variance), i, &other))
			continue;
		x = more(f);
		if (!x)
			return tsr_fail_nomem(f->err, f->source->path);
		x->chunk = i;
		x->dtype = t->dtype;
		x->n = run.n;
		x->columns = run.columns;
		x->phase = run.phase;
		if (!put_slot(f, x, t, &run) || (variance && !put_slot(f, x, variance, &other)))
			return tsr_fail_nomem(f->err, f->source->path);
	}
	return TSR_OK;
}

/* Whether a momentum and its variance are cut in the same way, in files that are there. */
static bool are_alike(const struct finding *f, const struct tsr_tensor *a,
		      const struct tsr_tensor *b)
{
	const unsigned n = count_runs(array_of(f, a));

	if (!is_state(a) || !is_state(b) || n != count_runs(array_of(f, b)))
		return false;
	for (unsigned i = 0; i < n; i++) {
		struct run x, y;

		if (!get_run(array_of(f, a), i, &x) || !get_run(array_of(f, b), i, &y) ||
		    x.n != y.n || x.columns != y.columns || x.phase != y.phase ||
		    f->file[x.file] == UINT32_MAX || f->file[y.file] == UINT32_MAX)
			return false;
	}
	return true;
}

static const struct tsr_tensor *partner(const struct finding *f, const struct tsr_tensor *t)
{
	const struct tsr_tensor *p = t->partner ? &f->c->tensors[t->partner - 1] : NULL;

	return p && (t->kind == TSR_KIND_MOMENTUM ? are_alike(f, t, p) : are_alike(f, p, t)) ? p
											     : NULL;
}

static enum tsr_status add_all(struct finding *f)
{
	for (size_t i = 0; i < f->c->ntensors; i++) {
		const struct tsr_tensor *t = &f->c->tensors[i];
		const struct tsr_tensor *p = partner(f, t);

		if (t->coding.codec || t->nplanes != 1 || tsr_dtype_bits(t->dtype) % 8 ||
		    (p && t->kind == TSR_KIND_VARIANCE))
			continue;
		TSR_TRY(add(f, t, p));
	}
	return TSR_OK;
}

/* --- Overlaps --------------------------------------------------------------------------------- */

struct claim {
	uint64_t offset, nbytes;
	uint32_t file;
	size_t tensor;
};

TSR_COMPARE_BY(by_place, struct claim, TSR_ORDER(a->file, b->file),
	       tsr_order_then(TSR_ORDER(a->offset, b->offset), TSR_ORDER(b->nbytes, a->nbytes)))

/* Leave out tensors that share bytes with an earlier one, as tied weights do. */
static enum tsr_status drop_overlaps(struct finding *f)
{
	struct tsr_snapshot *s = f->to;
	TSR_OWNED(free) struct claim *claims = NULL;
	size_t n = 0, kept = 0;
	uint64_t end = 0;

	TSR_TRY(TSR_NEW(&claims, 2 * s->ntensors + 1, f->err, f->source->path));
	for (size_t i = 0; i < s->ntensors; i++)
		for (unsigned k = 0; k < s->tensors[i].slots; k++)
			claims[n++] = (struct claim){
				s->tensors[i].offset[k],
				s->tensors[i].n * tsr_dtype_bits(s->tensors[i].dtype) / 8,
				s->tensors[i].file[k], i
			};
	qsort(claims, n, sizeof(*claims), by_place);
	for (size_t i = 0; i < n; i++) {
		const bool same = i && claims[i].file == claims[i - 1].file;

		if (same && claims[i].offset < end)
			s->tensors[claims[i].tensor].n = 0;
		else
			end = claims[i].offset + claims[i].nbytes;
	}
	for (size_t i = 0; i < s->ntensors; i++)
		if (s->tensors[i].n)
			s->tensors[kept++] = s->tensors[i];
	s->ntensors = kept;
	return TSR_OK;
}

/* --- Opening ---------------------------------------------------------------------------------- */

/* Which listed file a file of the checkpoint is; scratch files and others outside are none. */
static enum tsr_status match_files(struct finding *f)
{
	const size_t length = strlen(f->source->directory);

	TSR_TRY(TSR_ARENA_NEW(&f->file, (f->c->nfiles + 1), f->arena,
			      tsr_fail_nomem(f->err, f->source->path)));
	for (unsigned i = 0; i < f->c->nfiles; i++) {
		const char *path = tsr_file_path(f->c->files[i]), *name = path;
		const struct tsr_node *node;

		f->file[i] = UINT32_MAX;
		if (f->source->is_file)
			name = tsr_path_name(path);
		else if (strncmp(path, f->source->directory, length) == 0)
			name = path + length + strspn(path + length, "/");
		node = tsr_nodes_find(&f->source->nodes, name);
		/* The check fails if the path is that of this very file. */
		if (node && !node->is_directory &&
		    tsr_file_check_not(f->c->files[i], path, NULL) != TSR_OK)
			f->file[i] = (uint32_t)(node - f->source->nodes.list);
	}
	return TSR_OK;
}

static enum tsr_status find_tensors(struct finding *f, char note[TSR_ERR_MAX])
{
	struct tsr_open_options o = tsr_open_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	struct tsr_err why = { .msg = "" };
	enum tsr_status status;

	o.follow = f->source->follow;
	o.numbered = true;
	o.parts = true;
	o.opaque = TSR_OPAQUE_CARRY;
	status = tsr_checkpoint_open(&f->source->path, 1, &o, &c, &why);
	if (status == TSR_OK && !tsr_checkpoint_is_packed(c))
		status = tsr_names_assign(c, NULL, 0, &why);
	if (status == TSR_E_NOMEM || status == TSR_E_IO || status == TSR_E_CANCELLED)
		return tsr_fail(f->err, status, "%s", why.msg);
	if (status != TSR_OK) {
		snprintf(note, TSR_ERR_MAX, "%s", why.msg);
		return TSR_OK;
	}
	f->c = c;
	f->to->eps = c->eps > 0 ? c->eps : TSR_EPS_DEFAULT;
	TSR_TRY(match_files(f));
	TSR_TRY(add_all(f));
	return drop_overlaps(f);
}

static enum tsr_status allocate(struct tsr_arena *arena, struct tsr_snapshot *s, const char *path,
				struct tsr_err *err)
{
	for (size_t i = 0; i < s->ntensors; i++) {
		struct tsr_stored_tensor *t = &s->tensors[i];

		TSR_TRY(TSR_ARENA_NEW(&t->objects, tsr_entropy_pieces(t->n), arena,
				      tsr_fail_nomem(err, path)));
		if (t->kind[0] == TSR_KIND_WEIGHT)
			s->info.nparameters += t->n;
	}
	for (size_t i = 0; i < s->npaths; i++) {
		struct tsr_stored_path *p = &s->paths[i];

		TSR_TRY(TSR_ARENA_NEW(&p->rest, tsr_entropy_pieces(p->rest_nbytes), arena,
				      tsr_fail_nomem(err, path)));
	}
	return TSR_OK;
}

/* Headers of larger files are not looked for: they hold what no tensor of training state has. */
#define REST_MAX (UINT64_C(256) << 20)

static enum tsr_status find_crcs(const struct tsr_store_source *source, struct tsr_arena *arena,
				 struct tsr_snapshot *s, size_t file, struct tsr_err *err)
{
	struct tsr_stored_path *p = &s->paths[file];
	TSR_OWNED(free) uint8_t *bytes = NULL;

	if (!p->nranges || !p->rest_nbytes || p->rest_nbytes > REST_MAX)
		return TSR_OK;
	TSR_TRY(TSR_NEW(&bytes, (size_t)p->rest_nbytes, err, source->path));
	TSR_TRY(tsr_source_read_rest(source, s, file, bytes, (size_t)p->rest_nbytes, 0, err));
	return tsr_find_crcs(arena, p, bytes, err);
}

enum tsr_status tsr_source_open(struct tsr_store_source *source, const char *path, bool follow,
				struct tsr_arena *arena, struct tsr_snapshot *ret,
				char note[TSR_ERR_MAX], struct tsr_err *err)
{
	struct finding f = { .source = source, .arena = arena, .to = ret, .err = err };

	*source = (struct tsr_store_source){ .path = path, .follow = follow };
	*note = '\0';
	TSR_TRY(list(source, err));
	TSR_TRY(take_paths(source, arena, ret, err));
	TSR_TRY(find_tensors(&f, note));
	TSR_TRY(tsr_snapshot_find_rest(arena, ret, path, err));
	TSR_TRY(allocate(arena, ret, path, err));
	for (size_t i = 0; i < ret->npaths; i++)
		TSR_TRY(find_crcs(source, arena, ret, i, err));
	return TSR_OK;
}
