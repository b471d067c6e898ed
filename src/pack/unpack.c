/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a checkpoint out: decoded (unpack), or as it is in another container (convert). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/build.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/coded/deltas.h"
#include "io/dir.h"
#include "ckpt/fingerprint.h"
#include "ckpt/meta.h"
#include "ckpt/shared_views.h"
#include "names/import/flashoptim_export.h"
#include "container/shards/shard_cut.h"
#include "container/tree.h"
#include "container/writer.h"
#include "names/import/import_parts.h"
#include "pack/open_checkpoint.h"
#include "pack/as_dtype.h"
#include "pack/model_part.h"
#include "codec/narrow.h"
#include "pack/packing.h"
#include "pack/walk.h"
#include "parts/part.h"
#include "text/text.h"

struct writing {
	struct tsr_checkpoint *c; /* as it is written */
	struct tsr_checkpoint stored; /* the same, with the tensors as they are in its files */
	const struct tsr_write_options *options;
	const char *path;
	struct tsr_parts *parts; /* or NULL */
	uint64_t ninfinite; /* finite elements that another type made infinite */
	struct tsr_meta *meta;
	size_t nmeta;
	struct tsr_st_entry *arrays; /* one per tensor */
	struct tsr_writer *writer;
};

static void end_writing(struct writing *w)
{
	tsr_writer_free(w->writer);
	free(w->meta);
	free(w->arrays);
	free(w->stored.tensors);
}

struct tsr_write_options tsr_write_defaults(void)
{
	return (struct tsr_write_options){ .size = sizeof(struct tsr_write_options),
					   .container = TSR_CONTAINER_COUNT,
					   .as = TSR_DTYPE_COUNT };
}

/* --- Tiles ------------------------------------------------------------------------------------ */

/* What a tile's commit needs. */
struct found {
	uint64_t ninfinite;
	uint32_t crc; /* of what is written */
	uint32_t unused;
};

/* What a tile is written as. */
struct output {
	const void *data;
	size_t nbytes;
	uint64_t offset; /* in the tensor's bytes */
	_Alignas(64) unsigned char converted[]; /* 2 * TSR_TILE_NBYTES where types are changed */
};

static uint64_t bytes_as(const struct tsr_walked *t, uint64_t nbytes, enum tsr_dtype to)
{
	return nbytes * 8 / tsr_dtype_bits(t->tensor->dtype) * tsr_dtype_bits(to) / 8;
}

/* Whether a codec's narrow plane is its tensor rounded to nearest. */
static bool has_rounded(const struct tsr_codec *codec, enum tsr_dtype to)
{
	return codec->planes[0].dtype == to && !codec->grouped &&
	       (codec->correction == TSR_CORRECTION_NONE ||
		codec->correction == TSR_CORRECTION_ULP ||
		codec->correction == TSR_CORRECTION_FLOAT);
}

/*
 * Returns how many finite values become infinite.  Decoding and rounding again could give the neighbour of
 * what the packed file has.
 */
static uint64_t convert_tile(const struct tsr_walked *t, enum tsr_dtype to, struct output *o)
{
	const struct tsr_codec *codec = t->tensor->coding.codec;
	const enum tsr_dtype from = t->tensor->dtype;

	if (to == from)
		return 0;
	o->data = o->converted;
	if (!codec || !t->has_planes || !has_rounded(codec, to))
		return tsr_as_dtype(from, t->data, t->nbytes * 8 / tsr_dtype_bits(from), to,
				    o->converted);
	o->data = t->coder->plane[0];
	return 0;
}

static enum tsr_status prepare_tile(void *ctx, const struct tsr_walked *t, struct tsr_err *err)
{
	const struct writing *w = ctx;
	const enum tsr_dtype to = w->c->tensors[t->tile.tensor].dtype;
	struct output *o = t->extra;
	struct found *found = t->found;

	/* From here on the elements of decoded tensors are in their own dtype. */
	if (t->tensor->coding.codec)
		tsr_narrow_in_place(t->tensor->dtype, t->coder->m->x, t->tile.n);
	o->data = t->data;
	o->nbytes = (size_t)bytes_as(t, t->nbytes, to);
	o->offset = bytes_as(t, t->offset, to);
	found->ninfinite = convert_tile(t, to, o);
	return tsr_writer_sum(w->writer, TSR_ARRAY_TAG(t->tile.tensor, 0), o->data, o->nbytes,
			      o->offset, &found->crc, err);
}

static enum tsr_status commit_tile(void *ctx, const struct tsr_walked *t, struct tsr_err *err)
{
	struct writing *w = ctx;
	const struct found *found = t->found;
	const enum tsr_dtype to = w->c->tensors[t->tile.tensor].dtype;

	(void)err;
	w->ninfinite += found->ninfinite;
	tsr_writer_commit(w->writer, TSR_ARRAY_TAG(t->tile.tensor, 0), bytes_as(t, t->nbytes, to),
			  found->crc);
	return TSR_OK;
}

static enum tsr_status write_tile(void *ctx, const struct tsr_walked *t, struct tsr_err *err)
{
	const struct writing *w = ctx;
	const struct output *o = t->extra;

	return tsr_writer_put(w->writer, TSR_ARRAY_TAG(t->tile.tensor, 0), o->data, o->nbytes,
			      o->offset, err);
}

/* --- The plan ---------------------------------------------------------------------------------- */

static bool has_meta(const struct tsr_checkpoint *c, const char *key)
{
	return tsr_meta_find(c->meta, c->nmeta, key) != NULL;
}

/* The source's metadata, the `format` that PyTorch's users expect, and the lossy generations. */
static enum tsr_status compose_meta(struct writing *w, struct tsr_err *err)
{
	struct tsr_checkpoint *c = w->c;
	const bool add_format = c->container != TSR_CONTAINER_SAFETENSORS && !has_meta(c, "format");
	struct tsr_meta ours[] = { { TSR_GENERATION_KEY, NULL }, { "format", "pt" } };
	char text[16];

	if (c->generation) {
		snprintf(text, sizeof(text), "%u", c->generation);
		ours[0].value = tsr_arena_string(c->arena, text);
		if (!ours[0].value)
			return tsr_build_nomem(c, err);
	}
	TSR_TRY(tsr_meta_replace(c, ours, 1 + add_format, &w->meta, &w->nmeta, err));
	if (!c->packed || !c->meta_order || c->nmeta_order != w->nmeta)
		return TSR_OK;
	return tsr_meta_arrange(c, &w->meta, w->nmeta, c->meta_order, err);
}

/* NumPy has no names for these types: their elements are opaque bytes there. */
static enum tsr_status note_types(struct writing *w, struct tsr_err *err)
{
	size_t n = 0;

	for (size_t i = 0; i < w->c->ntensors; i++) {
		const enum tsr_dtype dtype = w->c->tensors[i].dtype;

		n += dtype == TSR_BF16 || (dtype >= TSR_F8_E5M2 && dtype <= TSR_F8_E5M2FNUZ);
	}
	if (!n)
		return TSR_OK;
	return tsr_build_note(
		w->c, err,
		"%s: NumPy has no name for the type of %zu tensor%s; readers must be told it",
		w->path, n, n == 1 ? "" : "s");
}

enum { NAMES_NOTED = 8 };

/* Only PyTorch's files say in which order the elements of a tensor lie, and the tree for tersor alone. */
static enum tsr_status note_strides(struct writing *w, enum tsr_container container,
				    struct tsr_err *err)
{
	struct tsr_checkpoint *const c = w->c;
	TSR_SCOPED(tsr_text_free) struct tsr_text names = { 0 };
	size_t n = 0;

	if (container == TSR_CONTAINER_TORCH || container == TSR_CONTAINER_DCP)
		return TSR_OK;
	for (size_t i = 0; i < c->ntensors; i++) {
		if (c->arrays[c->tensors[i].plane[0]].stride && n++ < NAMES_NOTED)
			tsr_text_printf(&names, "%s%.100s", n > 1 ? ", " : "", c->tensors[i].name);
	}
	if (n)
		TSR_TRY(tsr_build_note(c, err,
				       "%s: only .pt and DCP keep a memory format, such as "
				       "channels_last; here %zu "
				       "tensor%s row-major: %s%s",
				       w->path, n, n == 1 ? " is" : "s are",
				       names.failed ? "(out of memory)" : names.bytes,
				       n > NAMES_NOTED ? ", ..." : ""));
	return TSR_OK;
}

/* Name what the container cannot hold. */
static enum tsr_status note_lost(struct writing *w, enum tsr_container container,
				 struct tsr_err *err)
{
	struct tsr_checkpoint *c = w->c;
	const size_t nmeta = c->nmeta - has_meta(c, TSR_GENERATION_KEY) - has_meta(c, "format");

	if (container != TSR_CONTAINER_SAFETENSORS && nmeta)
		TSR_TRY(tsr_build_note(c, err,
				       "%s: %zu entr%s left out: __metadata__ has no place there",
				       w->path, nmeta, nmeta == 1 ? "y is" : "ies are"));
	if ((container == TSR_CONTAINER_NPZ || container == TSR_CONTAINER_NPY) && c->ntrees)
		TSR_TRY(tsr_build_note(c, err,
				       "%s: what was saved besides tensors is left out, and "
				       "nesting is only in the names",
				       w->path));
	if (container == TSR_CONTAINER_NPZ || container == TSR_CONTAINER_NPY)
		TSR_TRY(note_types(w, err));
	return note_strides(w, container, err);
}

/* Remember how tensors are stored before their types change. */
static enum tsr_status change_types(struct writing *w, struct tsr_err *err)
{
	struct tsr_checkpoint *c = w->c;

	if (c->nwrapped && (w->options->as != TSR_DTYPE_COUNT || w->options->flashoptim))
		return tsr_fail(
			err, TSR_E_UNSUPPORTED,
			"%s: found DTensors, which say in several places what type they have, "
			"expected plain tensors for another type",
			c->path);
	w->stored = *c;
	TSR_TRY(TSR_NEW(&w->stored.tensors, c->ntensors + 1, err, w->path));
	for (size_t i = 0; i < c->ntensors; i++) {
		w->stored.tensors[i] = c->tensors[i];
		if (w->options->as != TSR_DTYPE_COUNT && tsr_takes_dtype(&c->tensors[i]))
			c->tensors[i].dtype = w->options->as;
	}
	return TSR_OK;
}

/* What was saved by torch is read with FlashOptim's states in it: no other tensor may look like one. */
static enum tsr_status check_names(const struct tsr_checkpoint *c, enum tsr_container container,
				   struct tsr_err *err)
{
	if ((container != TSR_CONTAINER_TORCH && container != TSR_CONTAINER_DCP) || c->ntrees)
		return TSR_OK;
	return tsr_flashoptim_check_names(c, tsr_container_name(container), err);
}

/* Onto a model in shards: in its place, or in a directory of its own. */
static bool like_base(const struct writing *w)
{
	const struct tsr_checkpoint *c = w->c;

	return c->base && tsr_shards_are(c->base) && !w->options->max_shard_nbytes &&
	       (c->replaces_base || tsr_dir_name_ends_with(w->path, "/"));
}

static enum tsr_status plan(struct writing *w, enum tsr_container container, struct tsr_err *err)
{
	struct tsr_checkpoint *c = w->c;
	struct tsr_writer_plan p = { .path = w->path,
				     .container = container,
				     .force = w->options->force,
				     .max_shard_nbytes = w->options->max_shard_nbytes,
				     .like = like_base(w) ? c->base : NULL,
				     .c = c,
				     .keep_order = c->container == TSR_CONTAINER_SAFETENSORS,
				     .generation = c->generation,
				     .part = w->parts };

	if (w->options->strict)
		TSR_TRY(tsr_checkpoint_check_strict(c, err));
	TSR_TRY(check_names(c, container, err));
	TSR_TRY(note_lost(w, container, err));
	TSR_TRY(tsr_note_shared_views(c, err));
	if (container == TSR_CONTAINER_SAFETENSORS) {
		TSR_TRY(tsr_tree_attach(c, err));
		TSR_TRY(tsr_build_index(c, err));
		TSR_TRY(compose_meta(w, err));
		p.meta = w->meta;
		p.nmeta = w->nmeta;
	}
	TSR_TRY(change_types(w, err));
	TSR_TRY(TSR_NEW(&w->arrays, c->ntensors + 1, err, w->path));
	for (size_t i = 0; i < c->ntensors; i++)
		w->arrays[i] = tsr_stored_array(&c->tensors[i], TSR_ARRAY_TAG(i, 0));
	p.arrays = w->arrays;
	p.narrays = c->ntensors;
	return tsr_writer_new(&p, &w->writer, err);
}

static enum tsr_status write_out(struct writing *w, const struct tsr_run *run, struct tsr_err *err)
{
	const size_t converted = w->options->as != TSR_DTYPE_COUNT ? 2 * TSR_TILE_NBYTES : 0;
	const struct tsr_walk walk = { .c = &w->stored,
				       .found_nbytes = sizeof(struct found),
				       .extra_nbytes = sizeof(struct output) + converted,
				       .in_parts = true,
				       .work = prepare_tile,
				       .commit = commit_tile,
				       .finish = write_tile,
				       .ctx = w };
	enum tsr_status status;

	if (w->options->dry_run)
		return tsr_writer_check(w->writer, err);
	TSR_TRY(tsr_writer_create(w->writer, err));
	status = tsr_walk_run(&walk, run, err);
	TSR_TRY(tsr_delta_prove(w->c, status, run, err));
	TSR_TRY(tsr_writer_end_part(w->writer, err));
	if (w->ninfinite)
		TSR_TRY(tsr_build_note(w->c, err,
				       "%s: %" PRIu64 " finite value%s became infinite in %s",
				       w->path, w->ninfinite, w->ninfinite == 1 ? "" : "s",
				       tsr_dtype_name(w->options->as)));
	return tsr_writer_publish(w->writer, err);
}

/* A DCP is a directory, so it comes back as one only where the output is named as one. */
static enum tsr_container choose(const struct tsr_write_options *o, const struct tsr_checkpoint *c,
				 const char *path)
{
	if (o->flashoptim)
		return TSR_CONTAINER_TORCH;
	if (o->container != TSR_CONTAINER_COUNT)
		return o->container;
	if (c->container == TSR_CONTAINER_DCP && !tsr_dir_name_ends_with(path, "/"))
		return TSR_CONTAINER_TORCH;
	return c->container;
}

/* Planes are written as arrays of their own, so their hashes are checked beforehand. */
static enum tsr_status arrange(struct tsr_checkpoint *c, const struct tsr_write_options *options,
			       const struct tsr_run *run, struct tsr_err *err)
{
	const struct tsr_walk walk = { .c = c };

	if (!options->dry_run)
		TSR_TRY(tsr_walk_run(&walk, run, err));
	return tsr_flashoptim_arrange(c, err);
}

static enum tsr_status check_options(const struct tsr_write_options *o, const char *path,
				     struct tsr_err *err)
{
	if (o->only_model && o->flashoptim)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: a model alone is no state dict of FlashOptim", path);
	if (o->as == TSR_DTYPE_COUNT)
		return TSR_OK;
	if (!o->only_model || (o->as != TSR_F32 && o->as != TSR_BF16 && o->as != TSR_F16))
		return tsr_fail(err, TSR_E_USAGE,
				"%s: only a model alone is written in another type: F32, BF16 or "
				"F16",
				path);
	return TSR_OK;
}

/* Whether the base has what the delta differs from: said before anything is created, and in a plan. */
static enum tsr_status check_delta(struct tsr_checkpoint *c, const struct tsr_run *run,
				   struct tsr_err *err)
{
	const enum tsr_status status = tsr_coded_check_whole(c, err);

	return status == TSR_OK ? TSR_OK : tsr_delta_prove(c, status, run, err);
}

static enum tsr_status run_writing(struct writing *w, struct tsr_unpacking *u,
				   const struct tsr_run *run, struct tsr_err *err)
{
	const struct tsr_write_options *o = w->options;

	TSR_TRY(tsr_inputs_name((const struct tsr_checkpoint *const[]){ u->source }, 1, 0, run,
				err));
	u->container = choose(o, u->source, w->path);
	/* Kinds are only for the report here, so what is ambiguous does not matter. */
	(void)tsr_names_assign(u->source, NULL, 0, NULL);
	if (o->flashoptim)
		TSR_TRY(arrange(u->source, o, run, err));
	if (o->only_model)
		TSR_TRY(tsr_model_part(u->source, u->container, err));
	TSR_TRY(check_delta(u->source, run, err));
	TSR_TRY(plan(w, u->container, err));
	u->nbytes = tsr_writer_nbytes(w->writer);
	return write_out(w, run, err);
}

enum tsr_status tsr_write_checkpoint(struct tsr_checkpoint *c, const char *out,
				     const struct tsr_write_options *options,
				     const struct tsr_run *run, struct tsr_unpacking **ret,
				     struct tsr_err *err)
{
	TSR_SCOPED(end_writing)
	struct writing w = {
		.c = c, .options = options, .path = out, .parts = run ? run->parts : NULL
	};
	TSR_OWNED(free) struct tsr_unpacking *u = NULL;
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&u, 1, err, out));
	u->source = c;
	status = run_writing(&w, u, run, err);
	if (tsr_is_written(status)) {
		*ret = u;
		u = NULL;
	}
	return status;
}

/* --- The two commands --------------------------------------------------------------------------- */

enum tsr_status tsr_unpack(const char *path, const char *out,
			   const struct tsr_write_options *options, const struct tsr_run *run,
			   struct tsr_unpacking **ret, struct tsr_err *err)
{
	struct tsr_write_options o = tsr_write_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(check_options(&o, out, err));
	TSR_TRY(tsr_checkpoint_open(&path, 1, o.open, &c, err));
	if (!c->packed && !c->coded)
		return tsr_fail_hint(err, TSR_E_UNSUPPORTED, TSR_HINT_PACK,
				     "%s: is not a packed file", path);
	status = tsr_write_checkpoint(c, out, &o, run, ret, err);
	c = tsr_is_written(status) ? NULL : c;
	return status;
}

enum tsr_status tsr_convert(const char *const *paths, unsigned npaths, const char *out,
			    const struct tsr_write_options *options, const struct tsr_run *run,
			    struct tsr_unpacking **ret, struct tsr_err *err)
{
	struct tsr_write_options o = tsr_write_defaults();
	struct tsr_open_options open = tsr_open_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_options_take(&open, o.open, err));
	open.as_stored = !o.flashoptim;
	TSR_TRY(tsr_checkpoint_open(paths, npaths, &open, &c, err));
	if (c->packed && !o.flashoptim)
		return tsr_fail_hint(err, TSR_E_UNSUPPORTED, TSR_HINT_UNPACK,
				     "%s: is a packed file", paths[0]);
	status = tsr_write_checkpoint(c, out, &o, run, ret, err);
	c = tsr_is_written(status) ? NULL : c;
	return status;
}

/* --- Whether a file comes back as it was --------------------------------------------------------- */

static enum tsr_status compare_header(const struct tsr_writer *writer, const struct tsr_file *f,
				      bool *ret, struct tsr_err *err)
{
	const struct tsr_text *header = tsr_writer_header(writer);
	TSR_OWNED(free) char *found = NULL;

	*ret = false;
	if (!header || tsr_writer_nbytes(writer) != tsr_file_size(f))
		return TSR_OK;
	TSR_TRY(TSR_NEW(&found, header->nbytes + 1, err, tsr_file_path(f)));
	TSR_TRY(tsr_file_read(f, found, header->nbytes, 0, err));
	*ret = memcmp(found, header->bytes, header->nbytes) == 0;
	return TSR_OK;
}

enum tsr_status tsr_unpacks_to(const char *path, const struct tsr_open_options *open,
			       const struct tsr_file *original, bool *ret, struct tsr_err *err)
{
	struct tsr_write_options o = tsr_write_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	TSR_SCOPED(end_writing) struct writing w = { .options = &o, .path = path };

	o.force = true;
	TSR_TRY(tsr_checkpoint_open(&path, 1, open, &c, err));
	w.c = c;
	TSR_TRY(plan(&w, c->container, err));
	return compare_header(w.writer, original, ret, err);
}

void tsr_unpacking_free(struct tsr_unpacking *u)
{
	if (!u)
		return;
	tsr_checkpoint_close(u->source);
	tsr_written_delta_free(&u->delta);
	free(u);
}
