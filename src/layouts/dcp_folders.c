/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of torch.distributed.checkpoint, and those that Accelerate's FSDP is made of. */
#include "base/fail.h"
#include "ckpt/build.h"
#include "io/temporary.h"
#include "layouts/folder.h"
#include "layouts/layouts.h"
#include "text/named.h"
#include "torch/dcp.h"

/* --- One directory ------------------------------------------------------------------------------ */

/* .metadata says which data files count, @files: others are of an earlier save, or of ranks without data. */
static enum tsr_status account_for(struct tsr_folder *d, const struct tsr_named *files, size_t n)
{
	const char *first = NULL;
	size_t nleft = 0;
	struct tsr_file *f;

	for (size_t i = 0; i < d->names.n; i++) {
		const char *name = d->names.names[i];
		bool empty = false;

		if (!tsr_dir_name_ends_with(name, ".distcp"))
			continue;
		d->taken[i] = true;
		if (tsr_named_find(files, n, name))
			continue;
		/* Ranks without data may leave files without contents. */
		f = NULL;
		TSR_TRY(tsr_file_open_in(d->path, name, d->options->follow, &f, d->err));
		empty = tsr_file_size(f) == 0;
		tsr_file_close(f);
		first = first || empty ? first : name;
		nleft += !empty;
	}
	if (!nleft)
		return TSR_OK;
	return tsr_build_note(
		d->c, d->err,
		"%s: %.200s is not named by .metadata (%zu such *.distcp in all); left "
		"out",
		d->path, first, nleft);
}

/* What is saved once beside the tensors of all ranks: by Megatron's torch_dist, and by Lightning. */
static const struct {
	const char *file, *key;
} beside[] = { { "common.pt", "common" }, { "meta.pt", "meta" } };

static enum tsr_status read_dcp(struct tsr_folder *d, void *ctx)
{
	const unsigned first = d->c->nfiles;
	size_t n;
	TSR_OWNED(free) struct tsr_named *files = NULL;

	(void)ctx;
	if (!first)
		d->c->container = TSR_CONTAINER_DCP;
	TSR_TRY(tsr_dcp_read_links(d->c, d->path, d->options->follow, d->err));
	n = d->c->nfiles - first;
	TSR_TRY(TSR_NEW(&files, n + 1, d->err, d->path));
	for (size_t i = 0; i < n; i++) {
		files[i] = (struct tsr_named){ tsr_path_name(tsr_file_path(d->c->files[first + i])),
					       i };
	}
	tsr_named_sort(files, n);
	return account_for(d, files, n);
}

bool tsr_dcp_folder_detect(const struct tsr_folder *d)
{
	return tsr_dcp_looks_like(d->path);
}

enum tsr_status tsr_dcp_folder_read(struct tsr_folder *d)
{
	TSR_TRY(read_dcp(d, NULL));
	for (size_t i = 0; i < sizeof(beside) / sizeof(*beside); i++) {
		struct tsr_value *v = NULL;

		if (!tsr_folder_has(d, beside[i].file))
			continue;
		TSR_TRY(tsr_folder_torch(d, beside[i].file, &v));
		TSR_TRY(tsr_folder_put(d, beside[i].key, v));
	}
	return tsr_folder_states(d);
}

/* --- Directories of Accelerate ------------------------------------------------------------------ */

bool tsr_fsdp_folder_detect(const struct tsr_folder *d)
{
	for (size_t i = 0; i < d->names.n; i++) {
		if (tsr_folder_numbered(d->names.names[i], "pytorch_model_fsdp_", ""))
			return true;
	}
	return false;
}

enum tsr_status tsr_fsdp_folder_read(struct tsr_folder *d)
{
	for (size_t i = 0; i < d->names.n; i++) {
		const char *name = d->names.names[i];

		if (tsr_folder_numbered(name, "pytorch_model_fsdp_", "") ||
		    tsr_folder_numbered(name, "optimizer_", ""))
			TSR_TRY(tsr_folder_within(d, name, read_dcp, NULL));
	}
	return tsr_folder_states(d);
}
