/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/hash.h"
#include "ckpt/checkpoint_model.h"
#include "format/shard_index.h"
#include "container/packed.h"
#include "container/tree.h"

void tsr_pack_plan_drop(struct tsr_pack_plan *p)
{
	for (size_t i = 0; i < p->nentries; i++)
		free(p->own[i].name);
	free(p->own);
	free(p->entries);
	free(p->offset);
	free(p->nbytes);
	free(p->shard_of);
	free(p->shards);
	free(p->meta);
	tsr_text_free(&p->index);
	tsr_outputs_free(&p->outputs);
	*p = (struct tsr_pack_plan){ .c = p->c,
				     .path = p->path,
				     .force = p->force,
				     .max_shard_nbytes = p->max_shard_nbytes };
}

/* --- Entries ------------------------------------------------------------------------------------ */

static enum tsr_status join_name(const struct tsr_pack_plan *p, const char *name,
				 const char *suffix, char **ret, struct tsr_err *err)
{
	const size_t name_len = strlen(name), suffix_len = strlen(suffix);

	if (name_len + suffix_len > TSR_NAME_MAX)
		return tsr_fail(
			err, TSR_E_LIMIT,
			"%s: tensor %.40s...: the name of its plane %s would be over the limit "
			"of %u bytes",
			p->c->path, name, suffix, TSR_NAME_MAX);
	*ret = malloc(name_len + suffix_len + 1);
	if (!*ret)
		return tsr_fail_nomem(err, p->path);
	memcpy(*ret, name, name_len);
	memcpy(*ret + name_len, suffix, suffix_len + 1);
	return TSR_OK;
}

static enum tsr_status add_entry(struct tsr_pack_plan *p, size_t tensor, unsigned plane,
				 struct tsr_err *err)
{
	const struct tsr_tensor *t = &p->c->tensors[tensor];
	const struct tsr_plane_desc *desc = t->coding.codec ? &t->coding.codec->planes[plane]
							    : NULL;
	struct tsr_st_entry *e = &p->entries[p->nentries];
	struct tsr_pack_own *own = &p->own[p->nentries];

	*e = (struct tsr_st_entry){ .name = t->name,
				    .dtype = t->dtype,
				    .rank = t->rank,
				    .shape = t->shape,
				    .nbytes = tsr_tensor_nbytes(t),
				    .tag = tensor * TSR_PLANES_MAX + plane };
	if (desc) {
		e->dtype = tsr_plane_dtype(&t->coding, plane);
		e->nbytes = tsr_plane_nbytes(&t->coding, plane, t->numel);
	}
	if (desc && desc->suffix[0]) {
		TSR_TRY(join_name(p, t->name, desc->suffix, &own->name, err));
		e->name = own->name;
	}
	if (desc && desc->unit != TSR_PER_ELEMENT) {
		own->count = tsr_plane_count(&t->coding, plane, t->numel);
		e->rank = 1;
		e->shape = &own->count;
	}
	p->nbytes[tensor] += e->nbytes;
	p->nentries++;
	return TSR_OK;
}

static enum tsr_status plan_entries(struct tsr_pack_plan *p, struct tsr_err *err)
{
	const size_t n = p->c->ntensors, room = n * TSR_PLANES_MAX + 1;

	p->entries = calloc(room, sizeof(*p->entries));
	p->own = calloc(room, sizeof(*p->own));
	p->offset = calloc(n + 1, sizeof(*p->offset));
	p->nbytes = calloc(n + 1, sizeof(*p->nbytes));
	p->shard_of = calloc(n + 1, sizeof(*p->shard_of));
	p->shards = calloc(n + 1, sizeof(*p->shards));
	if (!p->entries || !p->own || !p->offset || !p->nbytes || !p->shard_of || !p->shards)
		return tsr_fail_nomem(err, p->path);
	for (size_t i = 0; i < n; i++) {
		for (unsigned plane = 0; plane < p->c->tensors[i].nplanes; plane++)
			TSR_TRY(add_entry(p, i, plane, err));
	}
	return TSR_OK;
}

/* --- Shards ------------------------------------------------------------------------------------- */

/* A tensor's planes are in one file; a file takes tensors until the next would be too much. */
static void plan_shards(struct tsr_pack_plan *p)
{
	struct tsr_pack_shard *s = p->shards;

	p->nshards = 1;
	for (size_t i = 0; i < p->c->ntensors; i++) {
		if (p->max_shard_nbytes && i > s->first &&
		    (s->data_nbytes > p->max_shard_nbytes ||
		     p->nbytes[i] > p->max_shard_nbytes - s->data_nbytes)) {
			s++;
			p->nshards++;
			*s = (struct tsr_pack_shard){ .first = i,
						      .first_entry = s[-1].end_entry,
						      .end_entry = s[-1].end_entry };
		}
		s->end = i + 1;
		s->end_entry += p->c->tensors[i].nplanes;
		s->data_nbytes += p->nbytes[i];
		p->shard_of[i] = p->nshards - 1;
	}
}

/* --- Headers ------------------------------------------------------------------------------------ */

/* The metadata of the output: the source's, with `format` set, and our two entries, sorted. */
static enum tsr_status plan_meta(struct tsr_pack_plan *p, struct tsr_err *err)
{
	const struct tsr_meta ours[] = { { "format", "pt" },
					 { TSR_PACKED_KEY, NULL },
					 { TSR_PACKED_CHECK_KEY, TSR_PACKED_CHECK_ZEROS } };
	size_t next = 0;

	p->meta = calloc(p->c->nmeta + 3, sizeof(*p->meta));
	if (!p->meta)
		return tsr_fail_nomem(err, p->path);
	p->nmeta = 0;
	for (size_t i = 0; i < p->c->nmeta; i++) {
		const char *key = p->c->meta[i].key;

		while (next < 3 && strcmp(ours[next].key, key) < 0)
			p->meta[p->nmeta++] = ours[next++];
		if (strcmp(key, "format") != 0 && strcmp(key, TSR_GENERATION_KEY) != 0)
			p->meta[p->nmeta++] = p->c->meta[i];
	}
	while (next < 3)
		p->meta[p->nmeta++] = ours[next++];
	return TSR_OK;
}

/* What the shards of one checkpoint have in common: the hashes of all planes, in order. */
static uint64_t hash_of_all(const struct tsr_pack_plan *p)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < p->c->ntensors; i++) {
		for (unsigned plane = 0; plane < p->c->tensors[i].nplanes; plane++)
			hash = tsr_hash(&p->c->tensors[i].hash[plane], sizeof(uint64_t), hash);
	}
	return hash;
}

/* The header of a shard, as wide as it can get (@widest) or with the figures as they are. */
static enum tsr_status compose_header(struct tsr_pack_plan *p, const struct tsr_pack_shard *s,
				      unsigned generation, bool widest, struct tsr_text *header,
				      struct tsr_err *err)
{
	struct tsr_packed_source source = { .kind = tsr_container_name(p->c->container),
					    .generation = generation };
	struct tsr_text json = { 0 };
	struct tsr_meta *meta = NULL;
	enum tsr_status status;
	size_t n = 0;

	source.shard = (struct tsr_shard){ .number = (uint64_t)(s - p->shards) + 1,
					   .count = p->nshards,
					   .set = widest ? 0 : hash_of_all(p) };
	for (size_t i = 0; i < p->c->nmeta; i++) {
		if (strcmp(p->c->meta[i].key, "format") == 0)
			source.format = p->c->meta[i].value;
	}
	status = tsr_packed_compose(&source, p->c->tensors + s->first, s->end - s->first, widest,
				    p->path, &json, err);
	if (status == TSR_OK) {
		meta = calloc(p->nmeta + 1, sizeof(*meta));
		status = meta ? TSR_OK : tsr_fail_nomem(err, p->path);
	}
	for (size_t i = 0; i < p->nmeta && status == TSR_OK; i++) {
		/* What was saved around the tensors is in the first file only. */
		if (s != p->shards && strcmp(p->meta[i].key, TSR_TREE_KEY) == 0)
			continue;
		meta[n] = p->meta[i];
		if (strcmp(meta[n].key, TSR_PACKED_KEY) == 0)
			meta[n].value = json.bytes;
		n++;
	}
	if (status == TSR_OK)
		status = tsr_packed_header(p->entries + s->first_entry,
					   s->end_entry - s->first_entry, meta, n,
					   widest ? 0 : s->json_nbytes, p->path, header, err);
	tsr_text_free(&json);
	free(meta);
	return status;
}

static enum tsr_status plan_shard(struct tsr_pack_plan *p, struct tsr_pack_shard *s,
				  struct tsr_err *err)
{
	struct tsr_st_entry *entries = p->entries + s->first_entry;
	const size_t n = s->end_entry - s->first_entry;
	struct tsr_text header = { 0 };
	enum tsr_status status;

	tsr_st_sort(entries, n);
	s->data_nbytes = tsr_st_layout(entries, n);
	status = compose_header(p, s, p->c->generation, true, &header, err);
	s->header_nbytes = header.nbytes;
	s->json_nbytes = header.nbytes - 8;
	tsr_text_free(&header);
	for (size_t i = 0; i < n; i++)
		p->offset[entries[i].tag / TSR_PLANES_MAX][entries[i].tag % TSR_PLANES_MAX] =
			s->header_nbytes + entries[i].offset;
	return status;
}

static enum tsr_status compose_index(struct tsr_pack_plan *p, struct tsr_err *err)
{
	const char **names = calloc(2 * p->nentries + 1, sizeof(*names));
	const char **files = names + p->nentries;

	if (!names)
		return tsr_fail_nomem(err, p->path);
	for (size_t i = 0; i < p->nentries; i++) {
		names[i] = p->entries[i].name;
		files[i] = tsr_outputs_name(&p->outputs,
					    p->shard_of[p->entries[i].tag / TSR_PLANES_MAX]);
	}
	tsr_index_compose(names, files, p->nentries, tsr_pack_plan_data_nbytes(p), &p->index);
	free(names);
	return p->index.failed ? tsr_fail_nomem(err, p->path) : TSR_OK;
}

/* --- All of it ----------------------------------------------------------------------------------- */

enum tsr_status tsr_pack_plan_make(struct tsr_pack_plan *p, struct tsr_err *err)
{
	tsr_pack_plan_drop(p);
	TSR_TRY(plan_entries(p, err));
	plan_shards(p);
	TSR_TRY(plan_meta(p, err));
	for (size_t i = 0; i < p->nshards; i++)
		TSR_TRY(plan_shard(p, &p->shards[i], err));
	TSR_TRY(tsr_outputs_plan(&p->outputs, p->path, p->force, p->nshards, err));
	return p->nshards > 1 ? compose_index(p, err) : TSR_OK;
}

uint64_t tsr_pack_plan_header_nbytes(const struct tsr_pack_plan *p)
{
	uint64_t total = p->index.nbytes;

	for (size_t i = 0; i < p->nshards; i++)
		total += p->shards[i].header_nbytes;
	return total;
}

uint64_t tsr_pack_plan_data_nbytes(const struct tsr_pack_plan *p)
{
	uint64_t total = 0;

	for (size_t i = 0; i < p->nshards; i++)
		total += p->shards[i].data_nbytes;
	return total;
}

enum tsr_status tsr_pack_plan_create(struct tsr_pack_plan *p, struct tsr_err *err)
{
	uint64_t *nbytes = calloc(p->nshards, sizeof(*nbytes));
	enum tsr_status status;

	if (!nbytes)
		return tsr_fail_nomem(err, p->path);
	for (size_t i = 0; i < p->nshards; i++)
		nbytes[i] = p->shards[i].header_nbytes + p->shards[i].data_nbytes;
	status = tsr_outputs_create(&p->outputs, nbytes, err);
	free(nbytes);
	return status;
}

enum tsr_status tsr_pack_plan_write_headers(struct tsr_pack_plan *p, unsigned generation,
					    struct tsr_err *err)
{
	for (size_t i = 0; i < p->nshards; i++) {
		struct tsr_text header = { 0 };
		enum tsr_status status = compose_header(p, &p->shards[i], generation, false,
							&header, err);

		if (status == TSR_OK)
			status = tsr_outfile_write(p->outputs.files[i], header.bytes, header.nbytes,
						   0, err);
		tsr_text_free(&header);
		TSR_TRY(status);
	}
	return TSR_OK;
}
