/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole checkpoints: the input is the files of a directory (tree.h), which is opened as one, or the first of
 * them, which is.  What opens has names, kinds and elements, and is written as one container or packed.
 */
#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"
#include "fuzz.h"
#include "memory_files.h"
#include "outputs.h"
#include "tersor/names.h"
#include "tree.h"

#define IN MEMORY "/in"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t room, unsigned seed)
{
	return tree_mutate(data, nbytes, room, seed);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t na, const uint8_t *b, size_t nb,
				 uint8_t *out, size_t room, unsigned seed)
{
	return tree_cross(a, na, b, nb, out, room, seed);
}

/* --- Open ------------------------------------------------------------------------------------- */

static struct tsr_open_options open_options(unsigned bits)
{
	struct tsr_open_options o = tsr_open_defaults();

	o.follow = bits & 1;
	o.as_stored = bits >> 1 & 1;
	o.opaque = (enum tsr_opaque)(bits >> 2 & 3);
	o.numbered = bits >> 4 & 1;
	o.parts = bits >> 5 & 1;
	return o;
}

static void check_array(const struct tsr_checkpoint *c, const struct tsr_array *a)
{
	uint64_t nbits;

	REQUIRE((a->layout || a->file < c->nfiles) && a->rank <= TSR_RANK_MAX &&
		a->dtype < TSR_DTYPE_COUNT);
	REQUIRE(!__builtin_mul_overflow(a->numel, (uint64_t)tsr_dtype_bits(a->dtype), &nbits));
	REQUIRE(nbits % 8 == 0 && a->nbytes == nbits / 8);
}

/* The start and the end. */
static void read_tensor(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	static struct tsr_read_scratch scratch;
	const size_t n = t->numel < 40 ? (size_t)t->numel : 40;
	float x[40];

	if (!n || !tsr_tensor_has_f32(t))
		return;
	(void)tsr_tensor_read_f32(c, t, 0, n, &scratch, x, NULL);
	(void)tsr_tensor_read_f32(c, t, t->numel - n, n, &scratch, x, NULL);
}

static void check_tensor(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	REQUIRE(tsr_checkpoint_find(c, t->name) == t && strlen(t->name) <= TSR_NAME_MAX);
	REQUIRE(t->dtype < TSR_DTYPE_COUNT && t->rank <= TSR_RANK_MAX);
	REQUIRE(t->nplanes >= 1 && t->nplanes <= TSR_PLANES_MAX);
	for (unsigned i = 0; i < t->nplanes; i++)
		REQUIRE(t->plane[i] < c->narrays);
	read_tensor(c, t);
}

static void check_kinds(struct tsr_checkpoint *c)
{
	struct tsr_err err;
	const enum tsr_status status = tsr_names_assign(c, NULL, 0, &err);

	if (status != TSR_OK) {
		check_refusal(status, &err);
		return;
	}
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const struct tsr_tensor *w = t->weight ? tsr_checkpoint_find(c, t->weight) : NULL;

		REQUIRE(t->kind <= TSR_KIND_VARIANCE);
		REQUIRE(!w || t->kind == TSR_KIND_OTHER || w->numel == t->numel);
	}
}

/* How many tensors it has; SIZE_MAX: it is refused. */
static size_t open_it(const char *path, const struct tsr_open_options *options)
{
	const char *const paths[] = { path };
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	size_t n;
	const enum tsr_status status = tsr_checkpoint_open(paths, 1, options, &c, &err);

	if (status != TSR_OK) {
		check_refusal(status, &err);
		REQUIRE(!c);
		return SIZE_MAX;
	}
	for (size_t i = 0; i < c->narrays; i++)
		check_array(c, &c->arrays[i]);
	for (size_t i = 0; i < c->ntensors; i++)
		check_tensor(c, &c->tensors[i]);
	for (size_t i = 0; i < tsr_checkpoint_nnotes(c); i++)
		REQUIRE(!strchr(tsr_checkpoint_note(c, i), '\n'));
	check_kinds(c);
	n = c->ntensors;
	tsr_checkpoint_close(c);
	return n;
}

/* --- Write ------------------------------------------------------------------------------------ */

static void write_it(const char *path, size_t ntensors, unsigned what,
		     const struct tsr_open_options *open)
{
	if (what % 8 < TSR_CONTAINER_COUNT)
		convert_to((enum tsr_container)(what % 8), what & 8 ? 256 : 0, path, ntensors,
			   open);
	else if (what % 8 == 7)
		pack_and_unpack(path, ntensors, open);
}

const struct cost_bounds fuzz_cost = { 6000000, 150, 48 << 20, 4000 };

void fuzz_input(const uint8_t *data, size_t nbytes)
{
	static struct tree t;
	struct tsr_open_options options;
	char path[300] = IN;
	size_t ntensors;

	tree_parse(&t, data, nbytes);
	if (!t.n)
		return;
	tree_write(&t, IN);
	options = open_options(t.options[0]);
	if (t.options[0] & 0x80) {
		memcpy(path + strlen(path), "/", 2);
		strncat(path, (const char *)t.files[0].path, t.files[0].npath);
	}
	ntensors = open_it(path, &options);
	if (ntensors != SIZE_MAX)
		write_it(path, ntensors, t.options[1], &options);
}
