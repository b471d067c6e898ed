/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_DCP_MAKE_H
#define TSR_TESTS_DCP_MAKE_H

/* Directories as torch.distributed.checkpoint writes them, put together opcode by opcode. */
#include "torch/dcp.h"
#include "torch_make.h"

#define META "torch.distributed.checkpoint.metadata"
#define FILES "torch.distributed.checkpoint.filesystem"
#define DATA_FILE "__0_0.distcp"

/* A box of a tensor; where its numbers are left out, what is stored is what the metadata says. */
struct box {
	int64_t start[2], size[2];
	bool transposed; /* how its elements lie in the blob */
	bool swapped; /* big-endian */
	int64_t stored_start[2]; /* in storage_data, if not the same */
	bool elsewhere; /* use stored_start */
	int64_t blob_rows; /* of the blob, if not size[0] */
	const char *class; /* of the blob's storage: of 4 bytes */
	const char *file; /* as storage_data has it */
	int64_t offset_by, length_by; /* added to what is true */
	const char *more; /* opcodes of more fields of its _StorageInfo: keys and values */
	unsigned times; /* that storage_data has it, if not 1; 9: not at all */
	bool no_blob; /* an empty place in the file */
};

struct dcp {
	char path[64];
	struct tsr_text data, entries, storage, planner; /* opcodes, but for data */
	bool has_planner;
	struct tsr_text metadata; /* of this instead, if not empty */
};

static inline UNUSED struct dcp new_dcp(void)
{
	struct dcp d = { .path = "/tmp/tersor-dcp-XXXXXX" };

	assert_non_null(mkdtemp(d.path));
	return d;
}

static inline UNUSED void put_file(const struct dcp *d, const char *name, const void *bytes,
				   size_t n)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", d->path, name);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_true(!n || fwrite(bytes, 1, n, f) == n);
	assert_int_equal(fclose(f), 0);
}

static inline UNUSED void drop_file(const struct dcp *d, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", d->path, name);
	unlink(path);
}

static inline UNUSED void drop_dcp(struct dcp *d)
{
	drop_file(d, DATA_FILE);
	drop_file(d, ".metadata");
	drop_file(d, ".metadata.tmp");
	assert_int_equal(rmdir(d->path), 0);
}

/* --- Blobs ---------------------------------------------------------------------------------- */

static struct archive blob; /* large */

static inline UNUSED void put_blob(struct dcp *d, struct saved *s)
{
	build_saved(&blob, s);
	tsr_text_put(&d->data, (const char *)blob.bytes, blob.nbytes);
}

/* The elements of a box: each is its number in a tensor that is @columns wide. */
static inline UNUSED void put_box(struct dcp *d, const struct box *b, size_t rank, int64_t columns)
{
	static uint32_t numbers[1 << 16];
	const int64_t rows = b->blob_rows ? b->blob_rows : rank ? b->size[0] : 1;
	const int64_t width = rank > 1 ? b->size[1] : 1;
	const size_t nbytes = (size_t)(rows * width) * 4;
	struct spec spec = { .numel = rows * width, .rank = rank, .class = b->class };
	struct saved s = { .byteorder = b->swapped ? "big" : NULL };

	assert_true(nbytes <= sizeof(numbers));
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t c = 0; c < width; c++) {
			const float x = (float)((b->start[0] + r) * columns + b->start[1] + c);
			const uint32_t bits = bits_of(x);

			numbers[b->transposed ? c * rows + r : r * width + c] =
				b->swapped ? __builtin_bswap32(bits) : bits;
		}
	}
	spec.shape[0] = rows;
	spec.shape[1] = width;
	spec.stride[0] = b->transposed ? 1 : width;
	spec.stride[1] = b->transposed ? rows : 1;
	op_tensor(&s.ops, &spec);
	add_storage(&s, "r/data/0", numbers, nbytes);
	put_blob(d, &s);
}

/* --- Metadata ------------------------------------------------------------------------------- */

static inline UNUSED void op_new(struct tsr_text *t, const char *module, const char *name)
{
	op_global(t, module, name);
	OP(t, ")\201");
}

static inline UNUSED void put_storage(struct dcp *d, const char *fqn, const int64_t *start,
				      size_t rank, const char *file, int64_t offset, int64_t length,
				      const char *more)
{
	op_new(&d->storage, META, "MetadataIndex");
	OP(&d->storage, "}(");
	op_string(&d->storage, "fqn");
	op_string(&d->storage, fqn);
	op_string(&d->storage, "index");
	OP(&d->storage, "N");
	if (start) {
		op_string(&d->storage, "offset");
		op_size(&d->storage, start, rank);
	}
	OP(&d->storage, "ub");
	op_new(&d->storage, FILES, "_StorageInfo");
	OP(&d->storage, "}(");
	op_string(&d->storage, "relative_path");
	op_string(&d->storage, file);
	op_string(&d->storage, "offset");
	op_int(&d->storage, offset);
	op_string(&d->storage, "length");
	op_int(&d->storage, length);
	tsr_text_puts(&d->storage, more ? more : "");
	OP(&d->storage, "ub");
}

static inline UNUSED void put_chunk(struct dcp *d, const char *fqn, const struct box *b,
				    size_t rank, int64_t columns)
{
	const int64_t offset = (int64_t)d->data.nbytes;
	const unsigned times = b->times == 9 ? 0 : b->times ? b->times : 1;

	op_new(&d->entries, META, "ChunkStorageMetadata");
	OP(&d->entries, "}(");
	op_string(&d->entries, "offsets");
	op_size(&d->entries, b->start, rank);
	op_string(&d->entries, "sizes");
	op_size(&d->entries, b->size, rank);
	OP(&d->entries, "ub");
	if (!b->no_blob)
		put_box(d, b, rank, columns);
	for (unsigned i = 0; i < times; i++)
		put_storage(d, fqn, b->elsewhere ? b->stored_start : b->start, rank,
			    b->file ? b->file : DATA_FILE, offset + b->offset_by,
			    (int64_t)d->data.nbytes - offset + b->length_by, b->more);
}

/* A tensor of up to 2 dimensions; @dtype: what the metadata says. */
static inline UNUSED void put_tensor(struct dcp *d, const char *fqn, size_t rank,
				     const int64_t *shape, const char *dtype,
				     const struct box *boxes, size_t n)
{
	op_string(&d->entries, fqn);
	op_new(&d->entries, META, "TensorStorageMetadata");
	OP(&d->entries, "}(");
	op_string(&d->entries, "properties");
	op_new(&d->entries, META, "TensorProperties");
	OP(&d->entries, "(");
	op_global(&d->entries, "torch", dtype);
	OP(&d->entries, "ctorch.serialization\n_get_layout\nU\15torch.strided\205R\211");
	OP(&d->entries, "c" META "\n_MEM_FORMAT_ENCODING\nK\0\205R\211tb");
	op_string(&d->entries, "size");
	op_size(&d->entries, shape, rank);
	op_string(&d->entries, "chunks");
	OP(&d->entries, "](");
	for (size_t i = 0; i < n; i++)
		put_chunk(d, fqn, &boxes[i], rank, rank > 1 ? shape[1] : 1);
	OP(&d->entries, "eub");
}

/* One without boxes to think of: a vector in one chunk. */
static inline UNUSED void put_vector(struct dcp *d, const char *fqn, int64_t n)
{
	const struct box b = { .size = { n } };

	put_tensor(d, fqn, 1, &n, "float32", &b, 1);
}

/* What was saved as a Python object. */
static inline UNUSED void put_saved(struct dcp *d, const char *fqn, struct saved *s)
{
	const int64_t offset = (int64_t)d->data.nbytes;

	put_blob(d, s);
	op_string(&d->entries, fqn);
	op_new(&d->entries, META, "BytesStorageMetadata");
	put_storage(d, fqn, NULL, 0, DATA_FILE, offset, (int64_t)d->data.nbytes - offset, NULL);
}

/* The same, of opcodes. */
static inline UNUSED void put_object(struct dcp *d, const char *fqn, const char *ops)
{
	struct saved s = { .version = "3\n" };

	tsr_text_puts(&s.ops, ops);
	put_saved(d, fqn, &s);
}

/* @path: opcodes of the tuple of keys. */
static inline UNUSED void put_path(struct dcp *d, const char *fqn, const char *path)
{
	d->has_planner = true;
	op_string(&d->planner, fqn);
	tsr_text_puts(&d->planner, path);
}

static inline UNUSED void put_part(struct tsr_text *t, const char *name, struct tsr_text *ops)
{
	op_string(t, name);
	OP(t, "}(");
	tsr_text_put(t, ops->bytes ? ops->bytes : "", ops->nbytes);
	OP(t, "u");
	tsr_text_free(ops);
}

/* Write the files. */
static inline UNUSED void finish_dcp(struct dcp *d)
{
	struct tsr_text t = { 0 };

	OP(&t, "\200\002");
	op_new(&t, META, "Metadata");
	OP(&t, "}(");
	put_part(&t, "state_dict_metadata", &d->entries);
	put_part(&t, "storage_data", &d->storage);
	if (d->has_planner)
		put_part(&t, "planner_data", &d->planner);
	OP(&t, "ub.");
	assert_false(t.failed || d->data.failed);
	put_file(d, ".metadata", t.bytes, t.nbytes);
	put_file(d, DATA_FILE, d->data.bytes, d->data.nbytes);
	tsr_text_free(&t);
	tsr_text_free(&d->data);
}

/* --- Reading -------------------------------------------------------------------------------- */

static inline UNUSED struct tsr_checkpoint *read_dcp(struct dcp *d)
{
	struct tsr_checkpoint *c = new_checkpoint();
	struct tsr_err err = { 0 };

	c->opaque = TSR_OPAQUE_DROP;
	finish_dcp(d);
	if (tsr_dcp_read_links(c, d->path, false, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	drop_dcp(d);
	return c;
}

static inline UNUSED void expect_dcp_refused(struct dcp *d, enum tsr_status want, const char *word)
{
	struct tsr_checkpoint *c = new_checkpoint();
	struct tsr_err err = { 0 };
	enum tsr_status status;

	finish_dcp(d);
	status = tsr_dcp_read_links(c, d->path, false, &err);
	if (status != want || !strstr(err.msg, word) || strncmp(err.msg, d->path, 22) != 0)
		fail_msg("status %d, expected %d with \"%s\": %s", (int)status, (int)want, word,
			 err.msg);
	assert_int_equal(err.code, want);
	tsr_checkpoint_close(c);
	drop_dcp(d);
}

#endif
