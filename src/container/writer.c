/* SPDX-License-Identifier: Apache-2.0 */
#include "container/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "format/shard_index.h"
#include "format/npy.h"
#include "container/packed.h"
#include "container/tree.h"
#include "format/zip.h"
#include "container/outputs.h"

/* Where a tensor goes. */
struct place {
	size_t file;
	uint64_t offset; /* of its data in that file */
	size_t entry; /* in an archive */
	uint32_t header_crc; /* of what stands in front of the data in its member of an .npz */
};

struct writer_file {
	uint64_t nbytes;
	struct tsr_text header; /* at the start; empty for archives */
};

struct tsr_writer {
	struct tsr_container_plan plan;
	struct tsr_st_entry *entries; /* in the order of the output; tag: the tensor */
	struct place *places; /* per tensor */
	size_t nfiles;
	struct writer_file *files;
	struct tsr_outputs outputs;
	struct tsr_text index;
	size_t *order; /* tensors in the order of their storages in a torch archive */
	size_t nzip, zip_room;
	struct tsr_zip_entry *zip;
	char **names; /* of the members; owned */
	struct tsr_text *heads; /* per member: what stands in front of the tensor's data */
	uint64_t total_nbytes;
};

/* --- safetensors ------------------------------------------------------------------------------- */

static void list_entries(struct tsr_writer *w)
{
	const struct tsr_checkpoint *c = w->plan.c;

	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		w->entries[i] = (struct tsr_st_entry){ .name = t->name,
						       .dtype = t->dtype,
						       .rank = t->rank,
						       .shape = t->shape,
						       .nbytes = tsr_tensor_nbytes(t),
						       .tag = i };
	}
	if (!w->plan.keep_order)
		tsr_st_sort(w->entries, c->ntensors);
}

/* The first entry that does not go into the shard that starts at @first any more. */
static size_t end_of_shard(const struct tsr_writer *w, size_t first)
{
	const uint64_t max = w->plan.max_shard_nbytes;
	uint64_t nbytes = 0;
	size_t i = first;

	while (i < w->plan.c->ntensors &&
	       (i == first || !max || w->entries[i].nbytes <= max - (nbytes < max ? nbytes : max)))
		nbytes += w->entries[i++].nbytes;
	return i;
}

/* What was saved around the tensors is in the first file only. */
static enum tsr_status compose_header(const struct tsr_writer *w, bool with_tree, size_t first,
				      size_t end, struct tsr_text *header, struct tsr_err *err)
{
	struct tsr_meta *meta = calloc(w->plan.nmeta + 1, sizeof(*meta));
	size_t n = 0;

	if (!meta)
		return tsr_fail_nomem(err, w->plan.path);
	for (size_t i = 0; i < w->plan.nmeta; i++) {
		if (with_tree || strcmp(w->plan.meta[i].key, TSR_TREE_KEY) != 0)
			meta[n++] = w->plan.meta[i];
	}
	tsr_st_compose(w->entries + first, end - first, meta, n, header);
	free(meta);
	return header->failed ? tsr_fail_nomem(err, w->plan.path) : TSR_OK;
}

static enum tsr_status plan_shard(struct tsr_writer *w, size_t file, size_t first, size_t end,
				  struct tsr_err *err)
{
	struct writer_file *f = &w->files[file];
	const uint64_t data = tsr_st_layout(w->entries + first, end - first);

	TSR_TRY(compose_header(w, file == 0, first, end, &f->header, err));
	TSR_TRY(tsr_st_frame(&f->header, f->header.nbytes, w->plan.path, err));
	f->nbytes = f->header.nbytes + data;
	for (size_t i = first; i < end; i++)
		w->places[w->entries[i].tag] = (struct place){
			.file = file, .offset = f->header.nbytes + w->entries[i].offset
		};
	return TSR_OK;
}

static enum tsr_status compose_index(struct tsr_writer *w, struct tsr_err *err)
{
	const size_t n = w->plan.c->ntensors;
	const char **names = calloc(2 * n + 1, sizeof(*names)), **shards = names + n;
	uint64_t total = 0;

	if (!names)
		return tsr_fail_nomem(err, w->plan.path);
	for (size_t i = 0; i < n; i++) {
		names[i] = w->plan.c->tensors[i].name;
		shards[i] = tsr_outputs_name(&w->outputs, w->places[i].file);
		total += tsr_tensor_nbytes(&w->plan.c->tensors[i]);
	}
	tsr_index_compose(names, shards, n, total, &w->index);
	free(names);
	return w->index.failed ? tsr_fail_nomem(err, w->plan.path) : TSR_OK;
}

static enum tsr_status plan_safetensors(struct tsr_writer *w, struct tsr_err *err)
{
	const size_t n = w->plan.c->ntensors;
	size_t first = 0;

	list_entries(w);
	do {
		first = end_of_shard(w, first);
		w->nfiles++;
	} while (first < n);
	w->files = calloc(w->nfiles, sizeof(*w->files));
	if (!w->files)
		return tsr_fail_nomem(err, w->plan.path);
	first = 0;
	for (size_t i = 0; i < w->nfiles; i++) {
		const size_t end = end_of_shard(w, first);

		TSR_TRY(plan_shard(w, i, first, end, err));
		first = end;
	}
	TSR_TRY(tsr_outputs_plan(&w->outputs, w->plan.path, w->plan.force, w->nfiles, err));
	return w->nfiles > 1 ? compose_index(w, err) : TSR_OK;
}

/* --- Archives ---------------------------------------------------------------------------------- */

static enum tsr_status one_file(struct tsr_writer *w, struct tsr_err *err)
{
	w->nfiles = 1;
	w->files = calloc(1, sizeof(*w->files));
	if (!w->files)
		return tsr_fail_nomem(err, w->plan.path);
	return tsr_outputs_plan(&w->outputs, w->plan.path, w->plan.force, 1, err);
}

static enum tsr_status room_for_members(struct tsr_writer *w, size_t n, struct tsr_err *err)
{
	w->zip_room = n;
	w->zip = calloc(n, sizeof(*w->zip));
	w->names = calloc(n, sizeof(char *));
	w->heads = calloc(n, sizeof(*w->heads));
	return w->zip && w->names && w->heads ? TSR_OK : tsr_fail_nomem(err, w->plan.path);
}

/* A member named PREFIX NAME SUFFIX. */
static enum tsr_status add_member(struct tsr_writer *w, const char *prefix, const char *name,
				  const char *suffix, uint64_t nbytes, unsigned align,
				  struct tsr_err *err)
{
	struct tsr_text text = { 0 };

	tsr_text_puts(&text, prefix);
	tsr_text_puts(&text, name);
	tsr_text_puts(&text, suffix);
	if (text.failed)
		return tsr_fail_nomem(err, w->plan.path);
	if (text.nbytes > UINT16_MAX) {
		tsr_text_free(&text);
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: tensor %.40s...: its name is over the limit of a zip archive",
				w->plan.path, name);
	}
	w->names[w->nzip] = text.bytes;
	w->zip[w->nzip++] = (struct tsr_zip_entry){ .name = text.bytes,
						    .nbytes = nbytes,
						    .align = align };
	return TSR_OK;
}

/* A member whose contents are known now: they are its head, and it has no tensor. */
static enum tsr_status add_text(struct tsr_writer *w, const char *name, struct tsr_text *text,
				struct tsr_err *err)
{
	const size_t i = w->nzip;

	TSR_TRY(add_member(w, "archive/", name, "", text->nbytes, 64, err));
	w->zip[i].crc = tsr_crc32(0, text->bytes, text->nbytes);
	w->heads[i] = *text;
	*text = (struct tsr_text){ 0 };
	return TSR_OK;
}

static enum tsr_status add_word(struct tsr_writer *w, const char *name, const char *word,
				struct tsr_err *err)
{
	struct tsr_text text = { 0 };

	tsr_text_puts(&text, word);
	return text.failed ? tsr_fail_nomem(err, w->plan.path) : add_text(w, name, &text, err);
}

static enum tsr_status compose_pickle(struct tsr_writer *w, char *const *keys, struct tsr_err *err)
{
	struct tsr_text pickle = { 0 };
	enum tsr_status status = tsr_tree_compose(w->plan.c, (const char *const *)keys, &pickle,
						  err);

	if (status == TSR_OK)
		status = add_text(w, "data.pkl", &pickle, err);
	tsr_text_free(&pickle);
	return status;
}

static enum tsr_status add_pickle(struct tsr_writer *w, struct tsr_err *err)
{
	const size_t n = w->plan.c->ntensors;
	char **keys = calloc(n + 1, sizeof(char *)), *digits = malloc(24 * (n + 1));
	enum tsr_status status = TSR_OK;

	if (!keys || !digits)
		status = tsr_fail_nomem(err, w->plan.path);
	for (size_t i = 0; i < n && status == TSR_OK; i++) {
		keys[w->order[i]] = digits + 24 * i;
		snprintf(digits + 24 * i, 24, "%zu", i);
	}
	if (status == TSR_OK)
		status = compose_pickle(w, keys, err);
	free(keys);
	free(digits);
	return status;
}

/*
 * The order that PyTorch writes: the value, then the storages, then the version.  It does not look
 * at records that it does not know, so lossy generations are one of those.
 */
static enum tsr_status plan_torch(struct tsr_writer *w, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->plan.c;
	char key[24];

	TSR_TRY(one_file(w, err));
	TSR_TRY(room_for_members(w, c->ntensors + 4, err));
	w->order = calloc(c->ntensors + 1, sizeof(*w->order));
	if (!w->order)
		return tsr_fail_nomem(err, w->plan.path);
	TSR_TRY(tsr_tree_order(w->plan.c, w->order, err));
	TSR_TRY(add_pickle(w, err));
	TSR_TRY(add_word(w, "byteorder", "little", err));
	for (size_t i = 0; i < c->ntensors; i++) {
		const size_t tensor = w->order[i];

		snprintf(key, sizeof(key), "%zu", i);
		w->places[tensor].entry = w->nzip;
		TSR_TRY(add_member(w, "archive/data/", key, "",
				   tsr_tensor_nbytes(&c->tensors[tensor]), 64, err));
	}
	TSR_TRY(add_word(w, "version", "3\n", err));
	if (w->plan.generation) {
		snprintf(key, sizeof(key), "%u", w->plan.generation);
		TSR_TRY(add_word(w, TSR_GENERATION_KEY, key, err));
	}
	w->files[0].nbytes = tsr_zip_layout(w->zip, w->nzip);
	for (size_t i = 0; i < c->ntensors; i++)
		w->places[i].offset = w->zip[w->places[i].entry].offset;
	return TSR_OK;
}

static enum tsr_status compose_npy(struct tsr_writer *w, size_t tensor, struct tsr_text *head,
				   struct tsr_err *err)
{
	const struct tsr_tensor *t = &w->plan.c->tensors[tensor];
	struct tsr_text where = { 0 };
	enum tsr_status status;

	tsr_text_printf(&where, "%s: tensor %.200s", w->plan.path, t->name);
	if (where.failed)
		return tsr_fail_nomem(err, w->plan.path);
	status = tsr_npy_compose(t->dtype, t->rank, t->shape, where.bytes, head, err);
	tsr_text_free(&where);
	if (status == TSR_OK && head->failed)
		status = tsr_fail_nomem(err, w->plan.path);
	return status;
}

static enum tsr_status plan_npz(struct tsr_writer *w, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->plan.c;

	TSR_TRY(one_file(w, err));
	TSR_TRY(room_for_members(w, c->ntensors + 1, err));
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		struct tsr_text *head = &w->heads[i];

		TSR_TRY(compose_npy(w, i, head, err));
		TSR_TRY(add_member(w, "", t->name, ".npy", head->nbytes + tsr_tensor_nbytes(t), 64,
				   err));
		w->places[i] = (struct place){
			.entry = i, .header_crc = tsr_crc32(0, head->bytes, head->nbytes)
		};
	}
	w->files[0].nbytes = tsr_zip_layout(w->zip, w->nzip);
	for (size_t i = 0; i < c->ntensors; i++)
		w->places[i].offset = w->zip[i].offset + w->heads[i].nbytes;
	return TSR_OK;
}

static enum tsr_status plan_npy(struct tsr_writer *w, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = w->plan.c;

	if (c->ntensors != 1)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: found %zu tensors, expected 1: an .npy file holds one array; "
				"write .npz",
				w->plan.path, c->ntensors);
	TSR_TRY(one_file(w, err));
	TSR_TRY(compose_npy(w, 0, &w->files[0].header, err));
	w->places[0].offset = w->files[0].header.nbytes;
	w->files[0].nbytes = w->files[0].header.nbytes + tsr_tensor_nbytes(&c->tensors[0]);
	return TSR_OK;
}

/* --- Common ------------------------------------------------------------------------------------ */

static enum tsr_status plan(struct tsr_writer *w, struct tsr_err *err)
{
	switch (w->plan.container) {
	case TSR_CONTAINER_SAFETENSORS:
		return plan_safetensors(w, err);
	case TSR_CONTAINER_TORCH:
		return plan_torch(w, err);
	case TSR_CONTAINER_NPZ:
		return plan_npz(w, err);
	case TSR_CONTAINER_NPY:
		return plan_npy(w, err);
	default:
		return tsr_fail(err, TSR_E_USAGE, "%s: cannot write a %s", w->plan.path,
				tsr_container_name(w->plan.container));
	}
}

enum tsr_status tsr_writer_plan(const struct tsr_container_plan *p, struct tsr_writer **ret,
				struct tsr_err *err)
{
	struct tsr_writer *w = calloc(1, sizeof(*w));
	enum tsr_status status;

	if (!w)
		return tsr_fail_nomem(err, p->path);
	w->plan = *p;
	w->entries = calloc(p->c->ntensors + 1, sizeof(*w->entries));
	w->places = calloc(p->c->ntensors + 1, sizeof(*w->places));
	status = w->entries && w->places ? plan(w, err) : tsr_fail_nomem(err, p->path);
	if (status != TSR_OK) {
		tsr_writer_free(w);
		return status;
	}
	for (size_t i = 0; i < w->nfiles; i++)
		w->total_nbytes += w->files[i].nbytes;
	w->total_nbytes += w->index.nbytes;
	*ret = w;
	return TSR_OK;
}

uint64_t tsr_writer_nbytes(const struct tsr_writer *w)
{
	return w->total_nbytes;
}

enum tsr_status tsr_writer_check(const struct tsr_writer *w, struct tsr_err *err)
{
	return tsr_outputs_check(&w->outputs, w->plan.c, err);
}

enum tsr_status tsr_writer_create(struct tsr_writer *w, struct tsr_err *err)
{
	uint64_t *nbytes = calloc(w->nfiles, sizeof(*nbytes));
	enum tsr_status status = tsr_writer_check(w, err);

	if (!nbytes)
		return tsr_fail_nomem(err, w->plan.path);
	for (size_t i = 0; i < w->nfiles; i++)
		nbytes[i] = w->files[i].nbytes;
	if (status == TSR_OK)
		status = tsr_outputs_create(&w->outputs, nbytes, err);
	free(nbytes);
	return status;
}

enum tsr_status tsr_writer_put(struct tsr_writer *w, size_t tensor, const void *bytes,
			       size_t nbytes, uint64_t offset, struct tsr_err *err)
{
	const struct place *p = &w->places[tensor];

	return tsr_outfile_write(w->outputs.files[p->file], bytes, nbytes, p->offset + offset, err);
}

bool tsr_writer_wants_crc(const struct tsr_writer *w)
{
	return w->nzip > 0;
}

void tsr_writer_set_crc(struct tsr_writer *w, size_t tensor, uint32_t crc)
{
	const struct place *p = &w->places[tensor];

	w->zip[p->entry].crc = tsr_crc32_combine(p->header_crc, crc,
						 tsr_tensor_nbytes(&w->plan.c->tensors[tensor]));
}

static enum tsr_status write_headers(struct tsr_writer *w, struct tsr_err *err)
{
	for (size_t i = 0; i < w->nfiles; i++) {
		const struct tsr_text *header = &w->files[i].header;

		if (header->nbytes)
			TSR_TRY(tsr_outfile_write(w->outputs.files[i], header->bytes,
						  header->nbytes, 0, err));
	}
	for (size_t i = 0; i < w->nzip; i++) {
		const struct tsr_text *head = &w->heads[i];

		if (head->nbytes)
			TSR_TRY(tsr_outfile_write(w->outputs.files[0], head->bytes, head->nbytes,
						  w->zip[i].offset, err));
	}
	return w->nzip ? tsr_zip_write_headers(w->outputs.files[0], w->zip, w->nzip, err) : TSR_OK;
}

enum tsr_status tsr_writer_publish(struct tsr_writer *w, struct tsr_err *err)
{
	TSR_TRY(write_headers(w, err));
	return tsr_outputs_publish(&w->outputs, w->nfiles > 1 ? &w->index : NULL, err);
}

void tsr_writer_free(struct tsr_writer *w)
{
	if (!w)
		return;
	tsr_outputs_free(&w->outputs);
	for (size_t i = 0; w->files && i < w->nfiles; i++)
		tsr_text_free(&w->files[i].header);
	for (size_t i = 0; i < w->nzip; i++)
		free(w->names[i]);
	for (size_t i = 0; w->heads && i < w->zip_room; i++)
		tsr_text_free(&w->heads[i]);
	tsr_text_free(&w->index);
	free(w->files);
	free(w->zip);
	free(w->names);
	free(w->heads);
	free(w->order);
	free(w->entries);
	free(w->places);
	free(w);
}
