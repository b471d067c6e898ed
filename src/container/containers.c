/* SPDX-License-Identifier: Apache-2.0 */
/* The containers that are one file: safetensors, torch archives, NumPy arrays. */
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/fail.h"
#include "container/containers.h"
#include "ckpt/checkpoint_model.h"
#include "format/npy.h"
#include "container/packed.h"
#include "format/safetensors.h"
#include "torch/torch.h"
#include "format/zip.h"

/* The first input names the checkpoint's kind. */
static void set_container(struct tsr_checkpoint *c, enum tsr_container container)
{
	if (c->nfiles == 0)
		c->container = container;
}

/* --- safetensors ------------------------------------------------------------------------------ */

static bool has_meta(const struct tsr_st_contents *contents, const char *key)
{
	for (size_t i = 0; i < contents->nmeta; i++) {
		if (strcmp(contents->meta[i].key, key) == 0)
			return true;
	}
	return false;
}

/* To be freed; NULL when out of memory. */
static struct tsr_array *arrays_of(const struct tsr_st_contents *contents)
{
	struct tsr_array *arrays = calloc(contents->narrays + 1, sizeof(*arrays));

	for (size_t i = 0; arrays && i < contents->narrays; i++) {
		const struct tsr_st_entry *e = &contents->arrays[i];

		arrays[i] = (struct tsr_array){ .name = e->name,
						.dtype = e->dtype,
						.rank = e->rank,
						.shape = e->shape,
						.numel = e->numel,
						.nbytes = e->nbytes,
						.offset = e->offset,
						.own_name = true };
	}
	return arrays;
}

static enum tsr_status add_contents(struct tsr_checkpoint *c, unsigned file,
				    const struct tsr_st_contents *contents,
				    struct tsr_array *arrays, struct tsr_err *err)
{
	for (size_t i = 0; i < contents->narrays; i++) {
		arrays[i].file = file;
		TSR_TRY(tsr_build_array(c, &arrays[i], NULL, err));
	}
	for (size_t i = 0; i < contents->nmeta; i++)
		TSR_TRY(tsr_build_meta(c, contents->meta[i].key, contents->meta[i].value, err));
	return TSR_OK;
}

/* A packed file stands on its own: it is read apart, then its tensors are added. */
static enum tsr_status add_packed(struct tsr_checkpoint *c, unsigned file,
				  struct tsr_st_contents *contents, struct tsr_array *arrays,
				  struct tsr_err *err)
{
	struct tsr_checkpoint part = { .path = tsr_file_path(c->files[file]),
				       .arena = c->arena,
				       .narrays = contents->narrays,
				       .arrays = arrays,
				       .nmeta = contents->nmeta,
				       .meta = contents->meta };
	const size_t narrays = c->narrays;
	enum tsr_status status;

	status = tsr_packed_read(&part, contents->header, contents->header_nbytes, err);
	contents->nmeta = part.nmeta;
	if (status == TSR_OK && !c->packed && part.shard.number != 1)
		status = tsr_fail(err, TSR_E_UNSUPPORTED,
				  "%s: is shard %llu of %llu of a packed checkpoint; name its "
				  "*.index.json",
				  part.path, (unsigned long long)part.shard.number,
				  (unsigned long long)part.shard.count);
	if (status == TSR_OK && c->packed &&
	    (part.shard.set != c->shard.set || part.shard.count != c->shard.count ||
	     part.shard.number != c->shard.number + 1 || part.generation != c->generation ||
	     part.container != c->container))
		status = tsr_fail(err, TSR_E_FORMAT,
				  "%s: is not shard %llu of the checkpoint that the shards before "
				  "it belong to",
				  part.path, (unsigned long long)c->shard.number + 1);
	c->shard = part.shard;
	c->generation = part.generation;
	c->container = part.container;
	c->packed = true;
	if (status == TSR_OK)
		status = add_contents(c, file, contents, arrays, err);
	for (size_t i = 0; i < part.ntensors && status == TSR_OK; i++) {
		for (unsigned p = 0; p < part.tensors[i].nplanes; p++)
			part.tensors[i].plane[p] += narrays;
		status = tsr_build_tensor(c, &part.tensors[i], err);
	}
	free(part.tensors);
	return status;
}

enum tsr_status tsr_read_safetensors(struct tsr_checkpoint *c, struct tsr_file *f,
				     struct tsr_err *err)
{
	struct tsr_st_contents contents = { 0 };
	struct tsr_array *arrays = NULL;
	enum tsr_status status;
	unsigned file;

	set_container(c, TSR_CONTAINER_SAFETENSORS);
	TSR_TRY(tsr_build_file(c, f, &file, err));
	TSR_TRY(tsr_st_read(f, c->arena, &contents, err));
	arrays = arrays_of(&contents);
	if (!arrays)
		status = tsr_fail_nomem(err, tsr_file_path(f));
	else if (has_meta(&contents, TSR_PACKED_KEY))
		status = !c->narrays || c->packed
				 ? add_packed(c, file, &contents, arrays, err)
				 : tsr_fail(err, TSR_E_UNSUPPORTED,
					    "%s: is a packed file, which cannot be joined with "
					    "others",
					    tsr_file_path(f));
	else if (has_meta(&contents, TSR_PACKED_CHECK_KEY))
		status = tsr_fail(err, TSR_E_FORMAT, "%s: __metadata__: has %s without %s",
				  tsr_file_path(f), TSR_PACKED_CHECK_KEY, TSR_PACKED_KEY);
	else if (c->packed)
		status = tsr_fail(err, TSR_E_UNSUPPORTED,
				  "%s: is no packed file, unlike the inputs before it",
				  tsr_file_path(f));
	else
		status = add_contents(c, file, &contents, arrays, err);
	free(arrays);
	tsr_st_contents_free(&contents);
	return status;
}

/* --- torch.save ------------------------------------------------------------------------------- */

enum tsr_status tsr_read_torch(struct tsr_checkpoint *c, struct tsr_file *f, struct tsr_err *err)
{
	struct tsr_value *root = NULL;
	unsigned file;

	set_container(c, TSR_CONTAINER_TORCH);
	TSR_TRY(tsr_build_file(c, f, &file, err));
	TSR_TRY(tsr_torch_read(c, file, 0, tsr_file_size(f), tsr_file_path(f), "", &root, err));
	return tsr_build_tree(c, root, err);
}

/* --- NumPy ------------------------------------------------------------------------------------ */

static enum tsr_status add_npy(struct tsr_checkpoint *c, const struct tsr_npy_header *h,
			       const char *name, struct tsr_array *a, struct tsr_err *err)
{
	struct tsr_layout *layout;
	struct tsr_chunk *chunk;
	uint64_t *shape = tsr_arena_alloc(c->arena, 3 * h->rank * sizeof(*shape));
	uint64_t *start, *stride, step = 1;

	if (!shape)
		return tsr_build_nomem(c, err);
	if (h->rank)
		memcpy(shape, h->shape, h->rank * sizeof(*shape));
	a->name = name;
	a->dtype = h->dtype;
	a->rank = h->rank;
	a->shape = shape;
	a->own_name = true;
	if (!h->swapped && (!h->fortran_order || h->rank < 2))
		return tsr_build_array(c, a, NULL, err);
	layout = tsr_arena_alloc(c->arena, sizeof(*layout));
	chunk = tsr_arena_alloc(c->arena, sizeof(*chunk));
	if (!layout || !chunk)
		return tsr_build_nomem(c, err);
	start = shape + h->rank;
	stride = start + h->rank;
	for (unsigned i = 0; i < h->rank; i++) {
		const unsigned d = h->fortran_order ? i : h->rank - 1 - i;

		stride[d] = step;
		step *= h->shape[d];
	}
	*chunk = (struct tsr_chunk){ .start = start,
				     .size = shape,
				     .stride = stride,
				     .file = a->file,
				     .offset = a->offset,
				     .has_crc = a->has_crc,
				     .crc = a->crc,
				     .crc_offset = a->offset,
				     .crc_nbytes = h->nbytes };
	a->has_crc = false;
	*layout = (struct tsr_layout){ .nchunks = 1, .chunks = chunk, .swapped = h->swapped };
	a->layout = layout;
	return tsr_build_array(c, a, NULL, err);
}

/* The name of a file without directories and ".npy". */
static const char *stem_of(struct tsr_checkpoint *c, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const size_t len = strlen(name);
	const bool npy = len > 4 && strcmp(name + len - 4, ".npy") == 0;

	return tsr_arena_copy(c->arena, name, npy ? len - 4 : len);
}

enum tsr_status tsr_read_npy(struct tsr_checkpoint *c, struct tsr_file *f, enum tsr_dtype as,
			     struct tsr_err *err)
{
	const uint64_t size = tsr_file_size(f);
	const size_t n = size < TSR_NPY_HEADER_MAX ? (size_t)size : TSR_NPY_HEADER_MAX;
	struct tsr_npy_header header;
	struct tsr_array a = { 0 };
	enum tsr_status status;
	const char *name;
	char *head;

	set_container(c, TSR_CONTAINER_NPY);
	TSR_TRY(tsr_build_file(c, f, &a.file, err));
	head = malloc(n + 1);
	if (!head)
		return tsr_fail_nomem(err, tsr_file_path(f));
	status = tsr_file_read(f, head, n, 0, err);
	if (status == TSR_OK)
		status = tsr_npy_parse(head, n, size, as, tsr_file_path(f), &header, err);
	free(head);
	if (status != TSR_OK)
		return status;
	a.offset = header.data_offset;
	name = stem_of(c, tsr_file_path(f));
	return name ? add_npy(c, &header, name, &a, err) : tsr_build_nomem(c, err);
}

/* A deflated member is laid out in a scratch file, where it can be read from any place. */
static enum tsr_status inflate_member(struct tsr_checkpoint *c, const struct tsr_file *f,
				      const struct tsr_zip_member *m, struct tsr_array *a,
				      struct tsr_err *err)
{
	const char *path = tsr_file_path(f);
	struct tsr_file *scratch = NULL;

	TSR_TRY(tsr_file_scratch(path, &scratch, err));
	TSR_TRY(tsr_build_file(c, scratch, &a->file, err));
	a->offset = 0;
	return tsr_zip_inflate(f, m, scratch, path, err);
}

/* The checksum of the data alone, from that of the member and the header in front of the data. */
static void set_data_crc(struct tsr_checkpoint *c, const struct tsr_zip_member *m, const char *head,
			 const struct tsr_npy_header *header, struct tsr_array *a)
{
	const uint32_t before = tsr_crc32(0, head, header->data_offset);

	c->nunchecked += !m->has_crc;
	a->has_crc = m->has_crc;
	a->crc = m->crc ^ tsr_crc32_combine(before, 0, header->nbytes);
}

static enum tsr_status add_member(struct tsr_checkpoint *c, unsigned file,
				  const struct tsr_zip_member *m, enum tsr_dtype as, char *head,
				  struct tsr_err *err)
{
	const char *path = tsr_file_path(c->files[file]);
	const size_t len = strlen(m->name);
	const bool npy = len > 4 && strcmp(m->name + len - 4, ".npy") == 0;
	const char *name = npy ? tsr_arena_copy(c->arena, m->name, len - 4) : NULL;
	struct tsr_array a = { .file = file, .offset = m->offset };
	struct tsr_npy_header header;
	struct tsr_text where = { 0 };
	enum tsr_status status;
	size_t got;

	if (!npy)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: found a member %.200s among arrays, expected NAME.npy", path,
				m->name);
	if (!name)
		return tsr_build_nomem(c, err);
	tsr_text_printf(&where, "%s: %.200s", path, m->name);
	if (where.failed)
		return tsr_fail_nomem(err, path);
	status = tsr_zip_peek(c->files[file], m, head, TSR_NPY_HEADER_MAX, &got, where.bytes, err);
	if (status == TSR_OK)
		status = tsr_npy_parse(head, got, m->nbytes, as, where.bytes, &header, err);
	if (status == TSR_OK && m->deflated)
		status = inflate_member(c, c->files[file], m, &a, err);
	tsr_text_free(&where);
	if (status != TSR_OK)
		return status;
	if (!m->deflated)
		set_data_crc(c, m, head, &header, &a);
	a.offset += header.data_offset;
	return add_npy(c, &header, name, &a, err);
}

enum tsr_status tsr_read_npz(struct tsr_checkpoint *c, struct tsr_file *f, enum tsr_dtype as,
			     struct tsr_err *err)
{
	struct tsr_zip *z = NULL;
	enum tsr_status status;
	unsigned file;
	char *head;

	set_container(c, TSR_CONTAINER_NPZ);
	TSR_TRY(tsr_build_file(c, f, &file, err));
	TSR_TRY(tsr_zip_read(f, 0, tsr_file_size(f), tsr_file_path(f), &z, err));
	head = malloc(TSR_NPY_HEADER_MAX);
	status = head ? TSR_OK : tsr_fail_nomem(err, tsr_file_path(f));
	for (size_t i = 0; i < z->nmembers && status == TSR_OK; i++)
		status = add_member(c, file, &z->members[i], as, head, err);
	free(head);
	tsr_zip_free(z);
	return status;
}
