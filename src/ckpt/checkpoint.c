/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that is open: closing it, finding tensors, reading arrays. */
#include "base/arena.h"
#include "base/fail.h"
#include "io/file.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/decoders.h"
#include "ckpt/unproven.h"

const char *tsr_container_name(enum tsr_container container)
{
	static const char *const names[TSR_CONTAINER_COUNT] = {
		[TSR_CONTAINER_SAFETENSORS] = "safetensors",
		[TSR_CONTAINER_TORCH] = "pt",
		[TSR_CONTAINER_DCP] = "dcp",
		[TSR_CONTAINER_NPZ] = "npz",
		[TSR_CONTAINER_NPY] = "npy",
	};

	return names[container];
}

bool tsr_container_find(const char *name, enum tsr_container *ret)
{
	unsigned i = 0;

	while (i < TSR_CONTAINER_COUNT && strcmp(tsr_container_name((enum tsr_container)i), name))
		i++;
	*ret = (enum tsr_container)i;
	return i < TSR_CONTAINER_COUNT;
}

struct tsr_open_options tsr_open_defaults(void)
{
	return (struct tsr_open_options){ .size = sizeof(struct tsr_open_options),
					  .as = TSR_DTYPE_COUNT };
}

void tsr_checkpoint_close(struct tsr_checkpoint *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < c->nfiles; i++)
		tsr_file_close(c->files[i]);
	free(c->files);
	free(c->tensors);
	free(c->tensor_by_name);
	free(c->arrays);
	free(c->meta);
	free(c->trees);
	free(c->notes);
	tsr_decoding_free(c->decoding);
	tsr_unproven_free(c->unproven);
	tsr_checkpoint_close(c->base);
	tsr_arena_free(c->arena);
	tsr_arena_free(c->factors);
	free(c);
}

size_t tsr_checkpoint_from(const struct tsr_checkpoint *c, const char *start, size_t n)
{
	size_t low = 0, high = c->tensor_by_name ? c->ntensors : 0;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (strncmp(c->tensors[c->tensor_by_name[mid]].name, start, n) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct tsr_tensor *tsr_checkpoint_find(const struct tsr_checkpoint *c, const char *name)
{
	const size_t at = tsr_checkpoint_from(c, name, strlen(name) + 1);
	const struct tsr_tensor *t = c->tensor_by_name && at < c->ntensors
					     ? &c->tensors[c->tensor_by_name[at]]
					     : NULL;

	return t && strcmp(t->name, name) == 0 ? t : NULL;
}

enum tsr_status tsr_checkpoint_check_strict(const struct tsr_checkpoint *c, struct tsr_err *err)
{
	if (c->nunchecked)
		return tsr_fail_hint(err, TSR_E_FORMAT, TSR_HINT_STRICT,
				     "%s: found %zu records without a checksum, expected none",
				     c->path, c->nunchecked);
	if (c->nunused)
		return tsr_fail_hint(err, TSR_E_FORMAT, TSR_HINT_STRICT,
				     "%s: member %.200s is part of nothing (%zu in all), expected "
				     "no such members",
				     c->path, c->unused, c->nunused);
	return TSR_OK;
}

enum tsr_status tsr_checkpoint_check_unchanged(const struct tsr_checkpoint *c, struct tsr_err *err)
{
	for (; c; c = c->base) {
		for (unsigned i = 0; i < c->nfiles; i++)
			TSR_TRY(tsr_file_check_unchanged(c->files[i], err));
	}
	return TSR_OK;
}
