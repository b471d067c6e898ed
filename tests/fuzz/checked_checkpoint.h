/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_CHECKED_CHECKPOINT_H
#define TSR_TESTS_CHECKED_CHECKPOINT_H

/* What must hold of a checkpoint that a reader filled. */
#include "io/file.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/layout.h"
#include "format/value.h"
#include "small_zip.h"

/* Arrays up to this size are read. */
#define READ_MAX (1u << 22)

static inline struct tsr_checkpoint *empty_checkpoint(void)
{
	struct tsr_checkpoint *c = calloc(1, sizeof(*c));

	REQUIRE(c != NULL);
	c->path = "FUZZ";
	c->opaque = TSR_OPAQUE_REFUSE;
	c->arena = tsr_arena_new((size_t)1 << 30);
	REQUIRE(c->arena != NULL);
	return c;
}

/* All elements are in the files: reading them goes well, but that deflated ones may turn out to be damaged. */
static inline void check_array(const struct tsr_checkpoint *c, const struct tsr_array *a)
{
	struct tsr_err err = { 0 };
	enum tsr_status status;
	unsigned char *bytes;

	REQUIRE(a->rank <= TSR_RANK_MAX && a->dtype < TSR_DTYPE_COUNT && a->name != NULL);
	REQUIRE(!(a->layout && a->has_crc));
	if (!a->layout && a->nbytes)
		REQUIRE(a->offset <= tsr_file_size(c->files[a->file]) &&
			a->nbytes <= tsr_file_size(c->files[a->file]) - a->offset);
	if (a->nbytes > READ_MAX)
		return;
	bytes = malloc(a->nbytes + 1);
	REQUIRE(bytes != NULL);
	status = tsr_array_read(c, a, 0, (size_t)a->nbytes, bytes, &err);
	REQUIRE(status == TSR_OK || (status == TSR_E_FORMAT && strstr(err.msg, ": member ")));
	free(bytes);
}

/* Tensors are arrays that there are, and nothing is left of storages and calls for tensors. */
static inline void check_value(const struct tsr_checkpoint *c, const struct tsr_value *v)
{
	if (!v)
		return;
	REQUIRE(v->type != TSR_VALUE_PERSISTENT);
	REQUIRE(!tsr_value_is_call(v, "torch._utils", "_rebuild_tensor_v2"));
	REQUIRE(c->opaque == TSR_OPAQUE_CARRY || v->type != TSR_VALUE_GLOBAL ||
		strcmp(v->global.module, "posix") != 0);
	if (v->type == TSR_VALUE_TENSOR)
		REQUIRE(v->tensor.array < c->narrays);
	for (size_t i = 0; i < tsr_value_nchildren(v); i++)
		check_value(c, tsr_value_child(v, i));
}

static inline void check_checkpoint(const struct tsr_checkpoint *c, const struct tsr_value *root)
{
	for (size_t i = 0; i < c->narrays; i++)
		check_array(c, &c->arrays[i]);
	REQUIRE(tsr_value_check(root, "FUZZ", NULL) == TSR_OK);
	check_value(c, root);
}

#endif
