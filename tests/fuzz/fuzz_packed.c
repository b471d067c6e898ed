/* SPDX-License-Identifier: Apache-2.0 */
/* A whole checkpoint file, first of all a packed one: the input is such a file. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"
#include "fuzz.h"
#include "memory_files.h"
#include "packed_repair.h"

static void check_array(const struct tsr_checkpoint *c, const struct tsr_array *a)
{
	uint64_t nbits;

	REQUIRE((a->layout || a->file < c->nfiles) && a->rank <= TSR_RANK_MAX);
	REQUIRE(!__builtin_mul_overflow(a->numel, (uint64_t)tsr_dtype_bits(a->dtype), &nbits));
	REQUIRE(nbits % 8 == 0 && a->nbytes == nbits / 8);
}

/* Whether reading can find that data is damaged: in other containers, and where planes are coded. */
static bool may_be_damaged(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	for (unsigned i = 0; i < t->nplanes; i++) {
		if (c->arrays[t->plane[i]].coded)
			return true;
	}
	return c->container != TSR_CONTAINER_SAFETENSORS;
}

/* Decode the start, an odd place and the end. */
static void read_tensor(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	static struct tsr_read_scratch scratch;
	static float x[300];
	const uint64_t n = t->numel < 300 ? t->numel : 300;
	const uint64_t starts[] = { 0, t->numel / 3, t->numel - n };

	if (!n || !tsr_tensor_has_f32(t))
		return;
	for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		const uint64_t left = t->numel - starts[i];
		const enum tsr_status status = tsr_tensor_read_f32(
			c, t, starts[i], (size_t)(left < n ? left : n), &scratch, x, NULL);

		REQUIRE(status == TSR_OK || (status == TSR_E_FORMAT && may_be_damaged(c, t)));
	}
}

static void check_tensor(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	REQUIRE(tsr_checkpoint_find(c, t->name) == t);
	REQUIRE(t->dtype < TSR_DTYPE_COUNT && t->rank <= TSR_RANK_MAX);
	REQUIRE(t->coding.group >= 1 && t->coding.group <= TSR_GROUP_MAX);
	REQUIRE(t->nplanes >= 1 && t->nplanes <= TSR_PLANES_MAX);
	for (unsigned i = 0; i < t->nplanes; i++) {
		const struct tsr_array *a = &c->arrays[t->plane[i]];

		REQUIRE(t->plane[i] < c->narrays);
		if (!t->coding.codec)
			continue;
		REQUIRE(a->nbytes == tsr_plane_nbytes(&t->coding, i, t->numel));
		REQUIRE(!c->packed || a->dtype == tsr_plane_dtype(&t->coding, i));
	}
	read_tensor(c, t);
}

static void check_checkpoint(const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->narrays; i++)
		check_array(c, &c->arrays[i]);
	for (size_t i = 0; i < c->ntensors; i++)
		check_tensor(c, &c->tensors[i]);
}

/* Returns the size that the file should have had, if that was all that was wrong; else 0. */
static uint64_t open_file(const void *bytes, size_t n, uint64_t nbytes)
{
	static const char path[] = MEMORY "/input";
	static const char *const paths[] = { path };
	struct tsr_checkpoint *c = NULL;
	uint64_t right = 0;
	struct tsr_err err;

	REQUIRE(memory_put(path, bytes, n));
	memory_set_size(path, nbytes);
	if (tsr_checkpoint_open(paths, 1, NULL, &c, &err) == TSR_OK) {
		check_checkpoint(c);
		tsr_checkpoint_close(c);
	} else {
		REQUIRE(!c);
		right = right_size(err.msg, nbytes);
	}
	return right;
}

/* Mutations seldom keep the check and the lengths right: try the input as it is, then repaired. */
/* Of a file with coded planes up to 12 pieces are held, in 8 MiB each that are seldom touched; and that twice. */
const struct cost_bounds fuzz_cost = { 1000000, 100, 200 << 20, 300 };

void fuzz_input(const uint8_t *data, size_t size)
{
	char *copy;
	uint64_t right;

	open_file(data, size, size);
	if (size < 8)
		return;
	copy = malloc(size + 1);
	REQUIRE(copy);
	memcpy(copy, data, size);
	repair_check(copy + 8, repair_length(copy, size));
	right = open_file(copy, size, size);
	if (right && right < UINT64_C(1) << 48)
		open_file(copy, right < size ? (size_t)right : size, right);
	free(copy);
}
