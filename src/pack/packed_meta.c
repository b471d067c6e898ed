/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of packed files and of the files with their weights. */
#include "pack/packed_meta.h"

#include "ckpt/build.h"
#include "ckpt/meta.h"
#include "container/packed/packed.h"
#include "container/tree.h"

enum tsr_status tsr_packed_meta(const struct tsr_checkpoint *c, struct tsr_meta **ret,
				size_t *n_ret, struct tsr_err *err)
{
	const struct tsr_meta ours[] = { { "format", "pt" },
					 { TSR_PACKED_KEY, "" },
					 { TSR_PACKED_CHECK_KEY, TSR_PACKED_CHECK_ZEROS },
					 { TSR_GENERATION_KEY, NULL } };

	return tsr_meta_replace(c, ours, sizeof(ours) / sizeof(*ours), ret, n_ret, err);
}

enum tsr_status tsr_packed_weights_meta(const struct tsr_checkpoint *c, struct tsr_meta **ret,
					size_t *n_ret, struct tsr_err *err)
{
	const struct tsr_meta ours[] = { { TSR_GENERATION_KEY, NULL },
					 { TSR_TREE_KEY, NULL },
					 { "format", "pt" } };
	const bool add_format = c->container != TSR_CONTAINER_SAFETENSORS &&
				!tsr_meta_find(c->meta, c->nmeta, "format");

	return tsr_meta_replace(c, ours, 2 + add_format, ret, n_ret, err);
}
