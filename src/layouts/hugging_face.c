/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of Transformers, Accelerate and PEFT: weights, an optimizer and other states. */
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "container/containers.h"
#include "layouts/folder.h"
#include "layouts/layouts.h"

/* --- Which file has the weights ----------------------------------------------------------------- */

/* Weights of torch.save: other files of this kind are states. */
static const char *const torch_weights[] = { "pytorch_model.bin", "pytorch_model_fsdp.bin",
					     "adapter_model.bin" };

/* How many names end in @suffix; *first_ret and *second_ret: the first two. */
static size_t count(const struct tsr_folder *d, const char *suffix, const char **first_ret,
		    const char **second_ret)
{
	size_t n = 0;

	for (size_t i = 0; i < d->names.n; i++) {
		const char *name = d->names.names[i];

		if (!tsr_dir_name_ends_with(name, suffix))
			continue;
		if (n++ < 2)
			*(n == 1 ? first_ret : second_ret) = name;
	}
	return n;
}

static enum tsr_status ambiguous(const struct tsr_folder *d, const char *first, const char *second,
				 const char *what)
{
	return tsr_fail(d->err, TSR_E_UNSUPPORTED,
			"%s: ambiguous: found %.255s and %.255s; name the %s that is meant",
			d->path, first, second, what);
}

/* Whether a file is one of those that DCP's writer made of one model on several ranks. */
static bool is_part(const struct tsr_folder *d, const char *name)
{
	TSR_OWNED(free) char *path = tsr_path_join(d->path, name);

	return path && tsr_hf_parts_named(path);
}

/* The name of the file that stands for all weights; NULL: none. */
static enum tsr_status find_weights(const struct tsr_folder *d, const char **ret)
{
	const char *first = NULL, *second = NULL;
	size_t n = count(d, ".index.json", &first, &second);

	*ret = NULL;
	if (n > 1)
		return ambiguous(d, first, second, "index");
	if (!n)
		n = count(d, ".safetensors", &first, &second);
	if (n > 1 && is_part(d, first))
		return tsr_hf_parts_refuse(d->path, d->err);
	if (n > 1)
		return ambiguous(d, first, second, "file");
	for (size_t i = 0; !n && i < sizeof(torch_weights) / sizeof(*torch_weights); i++) {
		if (tsr_folder_has(d, torch_weights[i]))
			first = torch_weights[i];
	}
	*ret = first;
	return TSR_OK;
}

bool tsr_hugging_face_detect(const struct tsr_folder *d)
{
	const char *name = NULL;

	return find_weights(d, &name) != TSR_OK || name;
}

/* --- Weights ------------------------------------------------------------------------------------ */

static enum tsr_status read_index(struct tsr_folder *d, const char *name)
{
	struct tsr_file *f = NULL;

	TSR_TRY(tsr_file_open_in(d->path, name, d->options->follow, &f, d->err));
	return tsr_sharded_read(d->c, f, d->options, d->err);
}

/* A mapping from the names of the weights to them. */
static enum tsr_status make_model(struct tsr_folder *d, size_t first_array, size_t first_tree,
				  struct tsr_value **ret)
{
	struct tsr_checkpoint *c = d->c;
	struct tsr_value *model = tsr_value_new(c->arena, TSR_VALUE_DICT);

	for (size_t i = first_array; i < c->narrays; i++) {
		if (c->arrays[i].own_name && !tsr_value_put_at(c->arena, model, c->arrays[i].name,
							       tsr_value_tensor(c->arena, i)))
			return tsr_build_nomem(c, d->err);
	}
	/* Shards of torch.save are mappings. */
	for (size_t i = first_tree; i < c->ntrees; i++) {
		const struct tsr_value *mapping = tsr_value_mapping(c->trees[i]);

		if (mapping)
			TSR_TRY(tsr_folder_set_all(d, model, mapping));
	}
	c->ntrees = first_tree;
	*ret = model;
	return TSR_OK;
}

/* A directory of weights alone stands for their file. */
static enum tsr_status name_file(const struct tsr_folder *d, const char *name)
{
	TSR_OWNED(free) char *path = tsr_path_join(d->path, name);

	if (path)
		d->c->path = tsr_arena_string(d->c->arena, path);
	return path && d->c->path ? TSR_OK : tsr_build_nomem(d->c, d->err);
}

enum tsr_status tsr_hugging_face_read(struct tsr_folder *d)
{
	const size_t first_array = d->c->narrays, first_tree = d->c->ntrees;
	const char *weights = NULL;
	struct tsr_value *model = NULL;

	TSR_TRY(find_weights(d, &weights));
	if (d->c->path == d->path && !tsr_folder_has_states(d))
		TSR_TRY(name_file(d, weights));
	TSR_TRY(tsr_dir_name_ends_with(weights, ".index.json") ? read_index(d, weights)
							       : tsr_folder_add(d, weights));
	if (d->c->packed || !tsr_folder_has_states(d))
		return TSR_OK;
	TSR_TRY(make_model(d, first_array, first_tree, &model));
	TSR_TRY(tsr_folder_put(d, "model", model));
	return tsr_folder_states(d);
}
