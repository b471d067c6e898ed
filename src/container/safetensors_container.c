/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files, packed or not: reading one, and writing one or several shards with an index. */
#include "base/fail.h"
#include "io/dir.h"
#include "io/temporary.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/meta.h"
#include "container/containers.h"
#include "container/packed/packed_read.h"
#include "container/packed/packed_write.h"
#include "container/shards/shard_cut.h"
#include "container/tree.h"
#include "container/writer_layout.h"
#include "format/safetensors.h"
#include "format/shard_index.h"

/* By its framing: a length that fits, then an object. */
bool tsr_safetensors_detect(const struct tsr_file_head *head)
{
	uint64_t header = 0;
	size_t end;

	if (head->n < 8)
		return false;
	for (int i = 7; i >= 0; i--)
		header = header << 8 | head->bytes[i];
	if (header > TSR_ST_HEADER_MAX || header > head->file_nbytes - 8)
		return false;
	end = header < head->n - 8 ? 8 + (size_t)header : head->n;
	return tsr_file_head_json(head, 8, end) == '{' ||
	       (end == head->n && !tsr_file_head_json(head, 8, end));
}

/* --- Reading ------------------------------------------------------------------------------------ */

static bool has_meta(const struct tsr_st_contents *contents, const char *key)
{
	return tsr_meta_find(contents->meta, contents->nmeta, key) != NULL;
}

/* Add the arrays of file number @file. */
static enum tsr_status add_arrays(struct tsr_checkpoint *c, const struct tsr_st_contents *contents,
				  unsigned file, struct tsr_err *err)
{
	for (size_t i = 0; i < contents->narrays; i++) {
		const struct tsr_st_entry *e = &contents->arrays[i];
		const struct tsr_array a = { .name = e->name,
					     .dtype = e->dtype,
					     .rank = e->rank,
					     .shape = e->shape,
					     .file = file,
					     .offset = e->offset,
					     .own_name = true };

		TSR_TRY(tsr_build_array(c, &a, NULL, err));
	}
	return TSR_OK;
}

static enum tsr_status add_meta(struct tsr_checkpoint *c, const struct tsr_meta *meta, size_t nmeta,
				struct tsr_err *err)
{
	for (size_t i = 0; i < nmeta; i++) {
		const size_t len = strlen(meta[i].value);
		const char *value = len < TSR_ST_META_LARGE
					    ? meta[i].value
					    : tsr_arena_copy(c->arena, meta[i].value, len);

		if (!value)
			return tsr_build_nomem(c, err);
		TSR_TRY(tsr_build_meta(c, meta[i].key, value, err));
	}
	return TSR_OK;
}

static enum tsr_status open_weights(const char *path, const char *name, bool follow,
				    struct tsr_file **ret, struct tsr_err *err)
{
	TSR_OWNED(free) char *directory = tsr_path_directory(path);
	TSR_OWNED(free) char *beside = directory ? tsr_path_join(directory, name) : NULL;

	if (!beside)
		return tsr_fail_nomem(err, path);
	if (!tsr_dir_has(beside))
		return tsr_fail(err, TSR_E_IO,
				"%s: its weights are in %s beside it, which is missing", path,
				name);
	return tsr_file_open_in(directory, name, follow, ret, err);
}

/* Add the arrays of the file that has the weights of the packed file @path. */
static enum tsr_status read_weights(struct tsr_checkpoint *c, const char *path, const char *name,
				    bool follow, struct tsr_err *err)
{
	TSR_SCOPED(tsr_st_contents_free) struct tsr_st_contents contents = { 0 };
	struct tsr_file *f = NULL;
	unsigned file;

	TSR_TRY(open_weights(path, name, follow, &f, err));
	TSR_TRY(tsr_build_file(c, f, &file, err));
	TSR_TRY(tsr_st_read(f, c->arena, &contents, err));
	if (has_meta(&contents, TSR_PACKED_KEY) || has_meta(&contents, TSR_PACKED_CHECK_KEY))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: is a packed file, expected the weights of %s beside it",
				tsr_file_path(f), path);
	return add_arrays(c, &contents, file, err);
}

/* Whether a packed file may be the next of a checkpoint. */
static enum tsr_status check_shard(const struct tsr_checkpoint *c,
				   const struct tsr_checkpoint *part, struct tsr_err *err)
{
	if (!c->packed && part->shard.number != 1)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is shard %" PRIu64 " of %" PRIu64
				" of a packed checkpoint; name its *.index.json",
				part->path, part->shard.number, part->shard.count);
	if (c->packed && (part->shard.set != c->shard.set || part->shard.count != c->shard.count ||
			  part->shard.number != c->shard.number + 1 ||
			  part->generation != c->generation || part->container != c->container))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: is not shard %" PRIu64
				" of the checkpoint that the shards before it belong to",
				part->path, c->shard.number + 1);
	return TSR_OK;
}

/* Read what a packed file describes into @part, which has its metadata; its arrays begin at @first. */
static enum tsr_status read_packed(struct tsr_checkpoint *c, struct tsr_checkpoint *part,
				   struct tsr_st_contents *st, bool follow, size_t first,
				   struct tsr_err *err)
{
	TSR_OWNED(tsr_json_free) struct tsr_json *text = NULL;
	const size_t nown = c->narrays - first;
	const char *weights = NULL;

	TSR_TRY(tsr_packed_read(part, st->header, st->header_nbytes, &text, &weights, err));
	tsr_st_drop_header(st);
	TSR_TRY(check_shard(c, part, err));
	if (weights) {
		TSR_TRY(read_weights(c, part->path, weights, follow, err));
		c->weights = tsr_arena_string(c->arena, weights);
		if (!c->weights)
			return tsr_build_nomem(c, err);
	}
	part->files = c->files;
	part->arrays = c->arrays ? c->arrays + first : NULL;
	part->narrays = c->narrays - first;
	return tsr_packed_read_tensors(part, nown, text, err);
}

/* All files of a delta that have coded planes name the same base. */
static enum tsr_status take_base(struct tsr_checkpoint *c, const struct tsr_checkpoint *part,
				 struct tsr_err *err)
{
	const struct tsr_base_name *a = &c->base_name, *b = &part->base_name;

	if (!b->name)
		return TSR_OK;
	if (a->name && (strcmp(a->name, b->name) != 0 || a->set != b->set || a->depth != b->depth))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: names another base than the shards before it", part->path);
	c->base_name = *b;
	return TSR_OK;
}

/* A packed file describes itself: read it as a checkpoint of its own, then add its tensors. */
static enum tsr_status add_packed(struct tsr_checkpoint *c, const char *path,
				  struct tsr_st_contents *st, bool follow, size_t first,
				  struct tsr_err *err)
{
	struct tsr_checkpoint part = { .path = path,
				       .arena = c->arena,
				       .nmeta = st->nmeta,
				       .meta = st->meta,
				       .decoding = c->decoding };
	enum tsr_status status = read_packed(c, &part, st, follow, first, err);

	st->nmeta = part.nmeta;
	c->shard = part.shard;
	c->generation = part.generation;
	c->meta_order = part.meta_order;
	c->nmeta_order = part.nmeta_order;
	c->container = part.container;
	c->packed = true;
	c->decoding = part.decoding;
	TSR_THEN(status, take_base(c, &part, err));
	TSR_THEN(status, add_meta(c, part.meta, part.nmeta, err));
	for (size_t i = 0; i < part.ntensors; i++)
		for (unsigned p = 0; p < part.tensors[i].nplanes; p++)
			part.tensors[i].plane[p] += first;
	TSR_THEN(status, tsr_coded_link(c, part.tensors, part.ntensors, err));
	for (size_t i = 0; i < part.ntensors && status == TSR_OK; i++)
		status = tsr_build_tensor(c, &part.tensors[i], err);
	free(part.tensors);
	return status;
}

/* Where the file has its metadata; that of several files is joined. */
static enum tsr_status keep_order(struct tsr_checkpoint *c, const struct tsr_st_contents *st,
				  struct tsr_err *err)
{
	c->meta_order = NULL;
	c->nmeta_order = st->nmeta;
	return c->nfiles == 1 ? tsr_meta_order(c, st->meta, st->nmeta, &c->meta_order, err)
			      : TSR_OK;
}

static enum tsr_status add_file(struct tsr_checkpoint *c, const char *path,
				struct tsr_st_contents *st, bool follow, size_t first,
				struct tsr_err *err)
{
	if (has_meta(st, TSR_PACKED_KEY) && first && !c->packed)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is a packed file, which cannot be joined with others", path);
	if (has_meta(st, TSR_PACKED_KEY))
		return add_packed(c, path, st, follow, first, err);
	if (has_meta(st, TSR_PACKED_CHECK_KEY))
		return tsr_fail(err, TSR_E_FORMAT, "%s: __metadata__: has %s without %s", path,
				TSR_PACKED_CHECK_KEY, TSR_PACKED_KEY);
	if (c->packed)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is not a packed file, but earlier inputs are", path);
	TSR_TRY(keep_order(c, st, err));
	return add_meta(c, st->meta, st->nmeta, err);
}

enum tsr_status tsr_safetensors_read(struct tsr_checkpoint *c, struct tsr_file *f,
				     const struct tsr_open_options *options, struct tsr_err *err)
{
	TSR_SCOPED(tsr_st_contents_free) struct tsr_st_contents st = { 0 };
	const size_t first = c->narrays;
	unsigned file;

	tsr_build_container(c, TSR_CONTAINER_SAFETENSORS);
	TSR_TRY(tsr_build_file(c, f, &file, err));
	TSR_TRY(tsr_st_read(f, c->arena, &st, err));
	if (!options->parts)
		TSR_TRY(tsr_hf_parts_check(tsr_file_path(f), st.meta, st.nmeta, err));
	if (has_meta(&st, TSR_PACKED_KEY))
		tsr_st_sort_by_tag(st.arrays, st.narrays);
	TSR_TRY(add_arrays(c, &st, file, err));
	return add_file(c, tsr_file_path(f), &st, options->follow, first, err);
}

/* --- Shards ------------------------------------------------------------------------------------- */

/* Packed files say what each file is of the whole. */
static enum tsr_status compose_packed(const struct tsr_writer *w, const struct tsr_writer_file *f,
				      struct tsr_meta *meta, size_t nmeta, struct tsr_text *header,
				      uint64_t json_nbytes, struct tsr_err *err)
{
	const bool pair = w->plan.weights_path != NULL;
	const struct tsr_packed_shard shard = { .number = (uint64_t)(f - w->files) + 1,
						.count = pair ? 1 : w->nfiles,
						.first = f->first_tensor,
						.end = f->end_tensor,
						.weights = pair ? tsr_outputs_name(&w->outputs, 0)
								: NULL,
						.coded = f->coded };

	return tsr_packed_header(w->plan.packed, &shard, w->arrays + f->first, f->end - f->first,
				 meta, nmeta, json_nbytes, w->plan.path, header, err);
}

enum tsr_status tsr_safetensors_compose(struct tsr_writer *w, const struct tsr_writer_file *f,
					uint64_t json_nbytes, struct tsr_text *header,
					struct tsr_err *err)
{
	const struct tsr_meta *from = f->plain ? w->plan.weights_meta : w->plan.meta;
	const size_t from_n = f->plain ? w->plan.nweights_meta : w->plan.nmeta;
	TSR_OWNED(free) struct tsr_meta *meta = NULL;
	size_t n = 0;

	TSR_TRY(TSR_NEW(&meta, from_n + 1, err, w->plan.path));
	/* What was saved around the tensors is in the first file only; one of weights has its own. */
	for (size_t i = 0; i < from_n; i++) {
		if (f == w->files || w->plan.weights_path || strcmp(from[i].key, TSR_TREE_KEY) != 0)
			meta[n++] = from[i];
	}
	if (w->plan.packed && !f->plain) {
		TSR_TRY(compose_packed(w, f, meta, n, header, json_nbytes, err));
	} else {
		tsr_st_compose(w->arrays + f->first, f->end - f->first, meta, n, header);
		TSR_TRY(header->failed ? tsr_fail_nomem(err, w->plan.path)
				       : tsr_st_frame(header, header->nbytes, w->plan.path, err));
	}
	return TSR_OK;
}

static enum tsr_status lay_out_shard(struct tsr_writer *w, struct tsr_writer_file *f,
				     struct tsr_err *err)
{
	struct tsr_st_entry *arrays = w->arrays + f->first;
	const size_t n = f->end - f->first;
	uint64_t data;

	if (n && !w->plan.weights_path) {
		f->first_tensor = TSR_TAG_TENSOR(arrays[0].tag);
		f->end_tensor = TSR_TAG_TENSOR(arrays[n - 1].tag) + 1;
	}
	if (w->plan.weights_path)
		f->end_tensor = w->plan.packed->ntensors;
	/* Each packed file is sorted by itself; in other shards the order goes on. */
	if (w->plan.packed)
		tsr_st_sort(arrays, n);
	data = tsr_st_layout(arrays, n);
	TSR_TRY(tsr_safetensors_compose(w, f, 0, &f->header, err));
	f->header_nbytes = f->header.nbytes;
	f->nbytes = f->header_nbytes + data;
	/* That of a packed file is composed again when the figures in it are known. */
	if (w->plan.packed)
		tsr_text_free(&f->header);
	for (size_t i = 0; i < n; i++)
		w->places[arrays[i].tag] = (struct tsr_place){ .file = (uint32_t)(f - w->files),
							       .offset = f->header_nbytes +
									 arrays[i].offset };
	return TSR_OK;
}

enum tsr_status tsr_safetensors_compose_index(struct tsr_writer *w, struct tsr_err *err)
{
	const size_t n = w->plan.narrays;
	TSR_OWNED(free) const char **names = NULL;

	TSR_TRY(TSR_NEW(&names, 2 * n + 1, err, w->plan.path));
	for (size_t i = 0; i < n; i++) {
		names[i] = w->arrays[i].name;
		names[n + i] = tsr_outputs_name(&w->outputs, w->places[w->arrays[i].tag].file);
	}
	tsr_index_compose(names, names + n, n, tsr_writer_data_nbytes(w), &w->index);
	return w->index.failed ? tsr_fail_nomem(err, w->plan.path) : TSR_OK;
}

enum tsr_status tsr_safetensors_index(struct tsr_writer *w, struct tsr_err *err)
{
	if (w->plan.weights_path || (w->nfiles == 1 && !w->plan.like))
		return TSR_OK;
	TSR_TRY(tsr_safetensors_compose_index(w, err));
	w->index_nbytes = w->index.nbytes;
	tsr_text_free(&w->index);
	return TSR_OK;
}

/* A plain file with what loaders of the model take, then the packed file with the rest. */
static enum tsr_status lay_out_pair(struct tsr_writer *w, struct tsr_err *err)
{
	const struct tsr_st_entry *from = w->plan.arrays;
	size_t n = 0, nweights = 0;

	if (w->plan.max_shard_nbytes)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: a packed file with its weights in %s cannot be in shards",
				w->plan.path, w->plan.weights_path);
	for (unsigned rest = 0; rest < 2; rest++) {
		for (size_t i = 0; i < w->plan.narrays; i++) {
			const size_t tag = from[i].tag;

			if (tsr_packed_is_weight(w->plan.packed, TSR_TAG_TENSOR(tag),
						 TSR_TAG_PLANE(tag)) == !rest)
				w->arrays[n++] = from[i];
		}
		if (!rest)
			nweights = n;
	}
	TSR_TRY(tsr_writer_add_files(w, 2, err));
	w->files[0].plain = true;
	w->files[0].end = w->files[1].first = nweights;
	w->files[1].end = n;
	TSR_TRY(lay_out_shard(w, &w->files[0], err));
	return lay_out_shard(w, &w->files[1], err);
}

/* What the reader would refuse, or take for something else. */
static enum tsr_status check_names(const struct tsr_writer *w, struct tsr_err *err)
{
	for (size_t i = 0; i < w->plan.narrays; i++) {
		const char *name = w->plan.arrays[i].name;

		if (strlen(name) > TSR_NAME_MAX)
			return tsr_fail(
				err, TSR_E_LIMIT,
				"%s: tensor %.40s...: name of %zu bytes is over the limit of %u",
				w->plan.path, name, strlen(name), TSR_NAME_MAX);
		if (strcmp(name, "__metadata__") == 0)
			return tsr_fail(
				err, TSR_E_UNSUPPORTED,
				"%s: tensor %s: found the name under which safetensors has its "
				"metadata, expected another",
				w->plan.path, name);
	}
	return TSR_OK;
}

/* An output of one file by its name may need several: then its name must be one that shards can have. */
static enum tsr_status add_shards(struct tsr_writer *w, const struct tsr_shard_cuts *cuts,
				  struct tsr_err *err)
{
	const size_t len = strlen(w->plan.path), ext = strlen(".safetensors");

	w->header_full = cuts->by_header;
	if (cuts->by_header && (len < ext || strcmp(w->plan.path + len - ext, ".safetensors") != 0))
		return tsr_fail(
			err, TSR_E_LIMIT,
			"%s: one header of all its %zu arrays would be over the limits of "
			"%" PRIu64 " bytes and %u values, and the name of an output in shards "
			"must end in .safetensors",
			w->plan.path, w->plan.narrays, TSR_ST_HEADER_MAX, TSR_ST_VALUES_MAX);
	return tsr_writer_add_files(w, cuts->nfiles, err);
}

enum tsr_status tsr_safetensors_lay_out(struct tsr_writer *w, struct tsr_err *err)
{
	struct tsr_shard_cuts cuts;

	TSR_TRY(check_names(w, err));
	if (w->plan.weights_path)
		return lay_out_pair(w, err);
	if (!w->plan.keep_order)
		tsr_st_sort(w->arrays, w->plan.narrays);
	if (w->plan.like) {
		TSR_TRY(tsr_shards_keep(w, &cuts, err));
	} else {
		TSR_TRY(tsr_shards_cut(w, &cuts, err));
		TSR_TRY(add_shards(w, &cuts, err));
	}
	for (size_t i = 0; i < cuts.nfiles; i++) {
		w->files[i].first = i ? cuts.ends[i - 1] : 0;
		w->files[i].end = cuts.ends[i];
		TSR_TRY(lay_out_shard(w, &w->files[i], err));
	}
	return tsr_safetensors_index(w, err);
}
