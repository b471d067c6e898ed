/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that DeepSpeed saves: `latest` names the one with the files of all ranks. */
#include "base/fail.h"
#include "layouts/layouts.h"
#include "layouts/folder.h"
#include "layouts/zero.h"

/* --- One checkpoint ----------------------------------------------------------------------------- */

static bool is_checkpoint(const struct tsr_folder *d)
{
	for (size_t i = 0; i < d->names.n; i++) {
		if (tsr_dir_name_ends_with(d->names.names[i], "_model_states.pt") ||
		    tsr_dir_name_ends_with(d->names.names[i], "optim_states.pt"))
			return true;
	}
	return false;
}

bool tsr_deepspeed_detect(const struct tsr_folder *d)
{
	return is_checkpoint(d) || tsr_folder_has(d, "latest") ||
	       tsr_folder_has(d, "latest_universal");
}

/* Without optimizer files there are no partitions: the model's file is all there is. */
static enum tsr_status put_file(struct tsr_zero *z)
{
	const struct tsr_value *mapping = tsr_value_mapping(z->model[0]);

	if (z->nmodels > 1)
		return tsr_fail(z->d->err, TSR_E_FORMAT,
				"%s: found %zu files of model states and none of optimizer states, "
				"expected as many of each",
				z->d->path, z->nmodels);
	return tsr_folder_set_all(z->d, z->d->root, mapping);
}

static enum tsr_status read_checkpoint(struct tsr_folder *d, void *ctx)
{
	TSR_SCOPED(tsr_zero_free) struct tsr_zero z = { 0 };

	(void)ctx;
	if (tsr_universal_is(d))
		return tsr_universal_read(d);
	TSR_TRY(tsr_zero_read(d, false, &z));
	z.narrays = d->c->narrays - z.first;
	if (!z.nranks)
		return put_file(&z);
	TSR_TRY(tsr_zero_join(&z));
	TSR_TRY(tsr_zero_put(&z));
	return tsr_keep_reached(d->c, z.first, d->root, d->err);
}

/* --- The directory above ------------------------------------------------------------------------ */

/* A directory that holds one. */
static bool is_other(const struct tsr_folder *d, const char *name)
{
	TSR_SCOPED(tsr_folder_leave) struct tsr_folder child = { 0 };

	return tsr_folder_has_folder(d, name) && tsr_folder_enter(d, name, &child) == TSR_OK &&
	       is_checkpoint(&child);
}

/* Transformers and Accelerate write the model in 16 bits beside DeepSpeed's directory. */
static bool is_copy(const char *name)
{
	return tsr_dir_name_ends_with(name, ".safetensors") ||
	       tsr_dir_name_ends_with(name, ".index.json") ||
	       (strncmp(name, "pytorch_model", 13) == 0 && tsr_dir_name_ends_with(name, ".bin"));
}

static enum tsr_status skip_copies(struct tsr_folder *d)
{
	const char *copy = NULL;
	size_t n = 0;

	for (size_t i = 0; i < d->names.n; i++) {
		if (d->taken[i] || !is_copy(d->names.names[i]))
			continue;
		d->taken[i] = true;
		copy = copy ? copy : d->names.names[i];
		n++;
	}
	if (!n)
		return TSR_OK;
	return tsr_build_remark(
		d->c, d->err,
		"%.200s: weights are those of DeepSpeed's directory; %.100s (%zu files "
		"in all) is taken for a copy of them and left out",
		d->path, copy, n);
}

enum tsr_status tsr_deepspeed_read(struct tsr_folder *d)
{
	const bool has_latest = tsr_folder_has(d, "latest");
	const char *tag;

	if (is_checkpoint(d))
		return read_checkpoint(d, NULL);
	TSR_TRY(tsr_folder_line(d, has_latest ? "latest" : "latest_universal", &tag));
	if (has_latest && tsr_folder_has(d, "latest_universal"))
		d->taken[tsr_folder_find(d, "latest_universal")] = true;
	TSR_TRY(tsr_folder_within(d, tag, read_checkpoint, NULL));
	TSR_TRY(tsr_folder_skip_others(d, tag, is_other));
	TSR_TRY(skip_copies(d));
	return tsr_folder_states(d);
}
