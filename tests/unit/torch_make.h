/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_TORCH_MAKE_H
#define TSR_TESTS_TORCH_MAKE_H

/* What torch.save writes, put together by hand: pickles opcode by opcode, and archives of them. */
#include "ckpt/checkpoint_model.h"
#include "text/text.h"
#include "ckpt/build.h"
#include "torch/torch.h"
#include "zip_make.h"

/* --- Opcodes -------------------------------------------------------------------------------- */

#define OP(t, literal) tsr_text_put(t, literal, sizeof(literal) - 1)

static inline UNUSED void op_string(struct tsr_text *t, const char *s)
{
	unsigned char length[4];

	set_le(length, strlen(s), 4);
	OP(t, "X");
	tsr_text_put(t, (const char *)length, 4);
	tsr_text_puts(t, s);
}

static inline UNUSED void op_int(struct tsr_text *t, int64_t value)
{
	unsigned char bytes[8];

	set_le(bytes, (uint64_t)value, 8);
	OP(t, "\212\010");
	tsr_text_put(t, (const char *)bytes, 8);
}

static inline UNUSED void op_global(struct tsr_text *t, const char *module, const char *name)
{
	tsr_text_printf(t, "c%s\n%s\n", module, name);
}

static inline UNUSED void op_ints(struct tsr_text *t, const int64_t *values, size_t n)
{
	OP(t, "(");
	for (size_t i = 0; i < n; i++)
		op_int(t, values[i]);
	OP(t, "t");
}

/* torch.Size(values) */
static inline UNUSED void op_size(struct tsr_text *t, const int64_t *values, size_t n)
{
	op_global(t, "torch", "Size");
	op_ints(t, values, n);
	OP(t, "\205R");
}

#define DIMS_MAX 4

/* A tensor; what is left out is as torch has it for a tensor of floats in record 0. */
struct spec {
	const char *class, *module; /* of the storage */
	const char *key;
	int64_t numel; /* of the storage */
	int64_t offset;
	size_t rank;
	int64_t shape[DIMS_MAX], stride[DIMS_MAX];
	const char *dtype; /* makes it a _rebuild_tensor_v3 */
	const char *hooks; /* opcodes */
	const char *requires_grad; /* opcode */
	const char *metadata; /* opcodes; NULL: none */
};

static inline UNUSED void op_tensor(struct tsr_text *t, const struct spec *s)
{
	op_global(t, "torch._utils", s->dtype ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
	OP(t, "((");
	op_string(t, "storage");
	op_global(t, s->module ? s->module : "torch", s->class ? s->class : "FloatStorage");
	op_string(t, s->key ? s->key : "0");
	op_string(t, "cpu");
	op_int(t, s->numel);
	OP(t, "tQ");
	op_int(t, s->offset);
	op_ints(t, s->shape, s->rank);
	op_ints(t, s->stride, s->rank);
	tsr_text_puts(t, s->requires_grad ? s->requires_grad : "\211");
	tsr_text_puts(t, s->hooks ? s->hooks : "ccollections\nOrderedDict\n)R");
	if (s->dtype)
		op_global(t, "torch", s->dtype);
	if (s->metadata)
		tsr_text_puts(t, s->metadata);
	OP(t, "tR");
}

/* --- Archives ------------------------------------------------------------------------------- */

#define STORAGES_MAX 3

/* A file of torch.save: its pickle is opcodes between PROTO and STOP. */
struct saved {
	struct tsr_text ops;
	size_t nstorages;
	struct item storages[STORAGES_MAX]; /* names: "r/data/0" and so on */
	const char *version, *byteorder; /* NULL: "3\n"; none */
};

static inline UNUSED void add_storage(struct saved *s, const char *name, const void *data,
				      size_t nbytes)
{
	assert_true(s->nstorages < STORAGES_MAX);
	s->storages[s->nstorages++] = (struct item){ .name = name,
						     .data = data,
						     .nbytes = nbytes,
						     .flags = 0x800,
						     .descriptor = 16,
						     .pad = 9 };
}

/* Frees the opcodes. */
static inline UNUSED void build_saved(struct archive *a, struct saved *s)
{
	struct item items[STORAGES_MAX + 3] = { { 0 } };
	struct tsr_text pickle = { 0 };
	size_t n = 0;

	OP(&pickle, "\200\002");
	tsr_text_put(&pickle, s->ops.bytes ? s->ops.bytes : "", s->ops.nbytes);
	OP(&pickle, ".");
	assert_false(pickle.failed || s->ops.failed);
	items[n++] = (struct item){ .name = "r/data.pkl",
				    .data = pickle.bytes,
				    .nbytes = pickle.nbytes };
	for (size_t i = 0; i < s->nstorages; i++)
		items[n++] = s->storages[i];
	if (s->byteorder)
		items[n++] = (struct item){ .name = "r/byteorder",
					    .data = s->byteorder,
					    .nbytes = strlen(s->byteorder) };
	items[n++] = (struct item){ .name = "r/version",
				    .data = s->version ? s->version : "3\n",
				    .nbytes = strlen(s->version ? s->version : "3\n") };
	build(a, items, n, true);
	tsr_text_free(&pickle);
	tsr_text_free(&s->ops);
}

/* --- Checkpoints ---------------------------------------------------------------------------- */

static inline UNUSED struct tsr_checkpoint *new_checkpoint(void)
{
	struct tsr_checkpoint *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->path = WHERE;
	c->opaque = TSR_OPAQUE_REFUSE;
	c->arena = tsr_arena_new(TSR_BUILD_NBYTES_MAX);
	assert_non_null(c->arena);
	return c;
}

/* All elements of an array, to be freed; read in pieces that are whole elements. */
static inline UNUSED unsigned char *elements_of(const struct tsr_checkpoint *c,
						const struct tsr_array *a, uint64_t piece)
{
	const uint64_t item = tsr_dtype_bits(a->dtype) / 8;
	unsigned char *bytes = malloc(a->nbytes + 1);
	struct tsr_err err = { 0 };

	assert_non_null(bytes);
	for (uint64_t at = 0; at < a->nbytes; at += piece * item) {
		const uint64_t left = a->nbytes - at;
		const uint64_t n = left < piece * item ? left : piece * item;

		if (tsr_array_read(c, a, at, n, bytes + at, &err) != TSR_OK)
			fail_msg("%s", err.msg);
	}
	return bytes;
}

/* --- One archive as one file ---------------------------------------------------------------- */

static struct archive archive; /* large */

#define FLOATS 64
static float floats[FLOATS];

/* A .pt with one tensor as its root. */
static inline UNUSED struct saved one_tensor(const struct spec *s)
{
	struct saved saved = { .ops = { 0 } };

	op_tensor(&saved.ops, s);
	add_storage(&saved, "r/data/0", floats, sizeof(floats));
	return saved;
}

/* Read an archive that stands behind @base bytes of a file, with as many behind it. */
static inline UNUSED enum tsr_status read_at(struct tsr_checkpoint *c, size_t base,
					     struct tsr_value **root, struct tsr_err *err)
{
	unsigned char *bytes = calloc(1, archive.nbytes + 2 * base);
	unsigned file;
	int fd;

	assert_non_null(bytes);
	memcpy(bytes + base, archive.bytes, archive.nbytes);
	fd = memory_file(bytes, archive.nbytes + 2 * base);
	free(bytes);
	assert_int_equal(tsr_build_file(c, open_fd(fd), &file, err), TSR_OK);
	close(fd);
	return tsr_torch_read(c, file, base, archive.nbytes, WHERE, "", root, err);
}

static inline UNUSED struct tsr_checkpoint *read_saved(struct saved *s, struct tsr_value **root)
{
	struct tsr_checkpoint *c = new_checkpoint();
	struct tsr_err err = { 0 };

	build_saved(&archive, s);
	if (read_at(c, 0, root, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return c;
}

/* Refused, with a message that has the words, and nothing given back. */
static inline UNUSED void expect_not_read(struct saved *s, enum tsr_status want, const char *word)
{
	struct tsr_checkpoint *c = new_checkpoint();
	struct tsr_value *root = NULL;
	struct tsr_err err = { 0 };

	build_saved(&archive, s);
	expect_status(read_at(c, 0, &root, &err), want, &err, word);
	assert_null(root);
	assert_int_equal(read_at(c, 0, &root, NULL), want);
	tsr_checkpoint_close(c);
}

/* Set-up: all sorts of floats. */
static inline UNUSED int fill(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (size_t i = 0; i < FLOATS; i++)
		floats[i] = float_of(random_u32(&seed));
	return 0;
}

/* A view of the floats. */
#define VIEW(...) \
	{ \
		.numel = FLOATS, __VA_ARGS__ \
	}

#endif
