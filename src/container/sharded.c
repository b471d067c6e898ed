/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint in shards and their index, as the Hugging Face libraries write it. */
#include "base/fail.h"
#include "ckpt/meta.h"
#include "io/temporary.h"
#include "container/containers.h"
#include "format/shard_index.h"

struct sharded {
	struct tsr_checkpoint *c;
	const struct tsr_open_options *options;
	const char *path; /* of the index */
	char *directory;
	const struct tsr_index *index;
	bool *found; /* per entry */
	uint64_t nbytes;
	struct tsr_err *err;
};

static enum tsr_status check_tensor(struct sharded *s, const char *name, size_t shard)
{
	const struct tsr_named *entry = tsr_named_find(s->index->entries, s->index->nentries, name);

	if (!entry)
		return tsr_fail(s->err, TSR_E_FORMAT,
				"%s: tensor %.200s: found in %s, expected it in the weight_map "
				"(a shard of another checkpoint?)",
				s->path, name, s->index->shards[shard]);
	if (entry->index != shard)
		return tsr_fail(s->err, TSR_E_FORMAT,
				"%s: tensor %.200s: found in %s, expected in %s", s->path, name,
				s->index->shards[shard], s->index->shards[entry->index]);
	s->found[entry - s->index->entries] = true;
	return TSR_OK;
}

/* A shard of torch.save is one flat mapping from names to tensors. */
static enum tsr_status check_mapping(struct sharded *s, const struct tsr_value *root, size_t shard)
{
	const struct tsr_value *mapping = tsr_value_mapping(root);

	if (!mapping)
		return tsr_fail(s->err, TSR_E_FORMAT,
				"%s: %s: is not a mapping from names to tensors", s->path,
				s->index->shards[shard]);
	for (size_t i = 0; i + 1 < mapping->list.n; i += 2) {
		const struct tsr_value *key = mapping->list.items[i];

		if (mapping->list.items[i + 1]->type != TSR_VALUE_TENSOR)
			continue;
		if (key->type != TSR_VALUE_STRING)
			return tsr_fail(s->err, TSR_E_FORMAT,
					"%s: %s: has a tensor whose key is not text", s->path,
					s->index->shards[shard]);
		TSR_TRY(check_tensor(s, key->text.bytes, shard));
	}
	return TSR_OK;
}

static enum tsr_status read_shard(struct sharded *s, size_t shard)
{
	struct tsr_checkpoint *c = s->c;
	const size_t narrays = c->narrays, ntrees = c->ntrees;
	struct tsr_file *f = NULL;

	TSR_TRY(tsr_file_open_in(s->directory, s->index->shards[shard], s->options->follow, &f,
				 s->err));
	TSR_TRY(tsr_container_read(c, f, s->options, s->err));
	for (size_t i = narrays; i < c->narrays; i++) {
		s->nbytes += tsr_array_stored_nbytes(&c->arrays[i]);
		if (c->ntrees == ntrees)
			TSR_TRY(check_tensor(s, c->arrays[i].name, shard));
	}
	if (c->ntrees > ntrees)
		TSR_TRY(check_mapping(s, c->trees[ntrees], shard));
	return TSR_OK;
}

/*
 * Metadata in which shards differ is about each shard (torch.distributed writes where its part
 * belongs), and says nothing of the whole.  @first: how much there was before the shards.
 */
static enum tsr_status join_meta(struct sharded *s, size_t first)
{
	struct tsr_checkpoint *c = s->c;
	size_t kept = first, end;

	if (c->nmeta > first)
		tsr_meta_sort(c->meta + first, c->nmeta - first);
	for (size_t i = first; i < c->nmeta; i = end) {
		const struct tsr_meta m = c->meta[i];
		bool differs = false;

		for (end = i + 1; end < c->nmeta && strcmp(c->meta[end].key, m.key) == 0; end++)
			differs = differs || strcmp(c->meta[end].value, m.value) != 0;
		if (differs && c->packed)
			return tsr_fail(
				s->err, TSR_E_FORMAT,
				"%s: the shards differ in the metadata %.100s, expected one "
				"packed checkpoint",
				s->path, m.key);
		if (!differs)
			c->meta[kept++] = m;
		else
			TSR_TRY(tsr_build_note(
				c, s->err,
				"%s: the shards differ in the metadata %.100s, which "
				"is left out",
				s->path, m.key));
	}
	c->nmeta = kept;
	return TSR_OK;
}

static enum tsr_status check_total(struct sharded *s)
{
	const double found = (double)s->nbytes;

	if (!s->index->has_total)
		return tsr_build_note(s->c, s->err, "%s: has no total_size", s->path);
	if (s->index->total == found)
		return TSR_OK;
	return tsr_build_note(s->c, s->err, "%s: found total_size %.17g, expected %.17g", s->path,
			      s->index->total, found);
}

static enum tsr_status read_all(struct sharded *s)
{
	const size_t nmeta = s->c->nmeta;

	for (size_t i = 0; i < s->index->nshards; i++)
		TSR_TRY(read_shard(s, i));
	for (size_t i = 0; i < s->index->nentries; i++) {
		const struct tsr_named *e = &s->index->entries[i];

		if (!s->found[i])
			return tsr_fail(s->err, TSR_E_FORMAT,
					"%s: tensor %.200s: not found in %s, where the weight_map "
					"has it",
					s->path, e->name, s->index->shards[e->index]);
	}
	TSR_TRY(join_meta(s, nmeta));
	return check_total(s);
}

enum tsr_status tsr_sharded_detect(const struct tsr_file *f, bool *is_ret, struct tsr_err *err)
{
	struct tsr_file_head head;

	TSR_TRY(tsr_file_head_read(f, &head, err));
	/* JSON text, which is all that an index looks like. */
	*is_ret = !memchr(head.bytes, 0, head.n) && tsr_file_head_json(&head, 0, head.n) == '{';
	return TSR_OK;
}

static enum tsr_status read_index(struct sharded *s, const struct tsr_file *f)
{
	TSR_OWNED(tsr_index_free) struct tsr_index *index = NULL;
	TSR_OWNED(free) char *directory = tsr_path_directory(s->path);
	TSR_OWNED(free) bool *found = NULL;

	TSR_TRY(tsr_index_read(f, &index, s->err));
	if (!directory)
		return tsr_fail_nomem(s->err, s->path);
	TSR_TRY(TSR_NEW(&found, index->nentries + 1, s->err, s->path));
	s->index = index;
	s->directory = directory;
	s->found = found;
	return read_all(s);
}

enum tsr_status tsr_sharded_read(struct tsr_checkpoint *c, struct tsr_file *f,
				 const struct tsr_open_options *options, struct tsr_err *err)
{
	struct sharded s = { .c = c, .options = options, .path = tsr_file_path(f), .err = err };
	const enum tsr_status status = read_index(&s, f);
	unsigned file;

	if (status != TSR_OK) {
		tsr_file_close(f);
		return status;
	}
	return tsr_build_file(c, f, &file, err);
}
