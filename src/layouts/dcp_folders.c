/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of torch.distributed.checkpoint, and those that Accelerate's FSDP is made of. */
#include <string.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "layouts/folder.h"
#include "layouts/layouts.h"
#include "torch/dcp.h"

/* --- One directory ------------------------------------------------------------------------------ */

/* .metadata says which data files count: others are of an earlier save, or of ranks without data. */
static void take_data_files(struct tsr_folder *d)
{
	for (size_t i = 0; i < d->names.n; i++)
		d->taken[i] = d->taken[i] || tsr_dir_name_ends_with(d->names.names[i], ".distcp");
}

/* What is saved once beside the tensors of all ranks: by Megatron's torch_dist, and by Lightning. */
static const struct {
	const char *file, *key;
} beside[] = { { "common.pt", "common" }, { "meta.pt", "meta" } };

static enum tsr_status read_beside(struct tsr_folder *d)
{
	for (size_t i = 0; i < sizeof(beside) / sizeof(*beside); i++) {
		struct tsr_value *v = NULL;

		if (!tsr_folder_has(d, beside[i].file))
			continue;
		TSR_TRY(tsr_folder_torch(d, beside[i].file, &v));
		TSR_TRY(tsr_folder_put(d, beside[i].key, v));
	}
	return TSR_OK;
}

static enum tsr_status read_dcp(struct tsr_folder *d)
{
	if (!d->c->nfiles)
		d->c->container = TSR_CONTAINER_DCP;
	TSR_TRY(tsr_dcp_read_links(d->c, d->path, d->options->follow, d->err));
	take_data_files(d);
	return TSR_OK;
}

bool tsr_dcp_folder_detect(const struct tsr_folder *d)
{
	return tsr_dcp_looks_like(d->path);
}

enum tsr_status tsr_dcp_folder_read(struct tsr_folder *d)
{
	TSR_TRY(read_dcp(d));
	TSR_TRY(read_beside(d));
	return tsr_folder_states(d);
}

/* --- Directories of Accelerate ------------------------------------------------------------------ */

static bool is_part(const char *name)
{
	return tsr_folder_numbered(name, "pytorch_model_fsdp_", "", NULL) ||
	       tsr_folder_numbered(name, "optimizer_", "", NULL);
}

bool tsr_fsdp_folder_detect(const struct tsr_folder *d)
{
	for (size_t i = 0; i < d->names.n; i++) {
		if (tsr_folder_numbered(d->names.names[i], "pytorch_model_fsdp_", "", NULL))
			return true;
	}
	return false;
}

static enum tsr_status read_part(struct tsr_folder *d, const char *name)
{
	struct tsr_folder part;
	enum tsr_status status = tsr_folder_enter(d, name, &part);

	if (status == TSR_OK)
		status = read_dcp(&part);
	if (status == TSR_OK)
		status = tsr_folder_account(&part);
	tsr_folder_leave(&part);
	return status;
}

enum tsr_status tsr_fsdp_folder_read(struct tsr_folder *d)
{
	for (size_t i = 0; i < d->names.n; i++) {
		if (!is_part(d->names.names[i]))
			continue;
		TSR_TRY(read_part(d, d->names.names[i]));
		d->taken[i] = true;
	}
	return tsr_folder_states(d);
}
