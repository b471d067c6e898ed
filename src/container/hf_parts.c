/* SPDX-License-Identifier: Apache-2.0 */
/* Files of DCP's Hugging Face writer that hold one rank's parts of tensors. */
#include "container/containers.h"

#include <stdio.h>

#include "base/fail.h"
#include "ckpt/meta.h"
#include "io/dir.h"
#include "io/temporary.h"
#include "text/json.h"

#define VALUES_MAX 2000000u

/* Whether any tensor begins elsewhere than at the start; text that is no JSON says nothing. */
static enum tsr_status find_offset(const char *path, const char *text, bool *ret,
				   struct tsr_err *err)
{
	const struct tsr_json_rules rules = {
		.file = TSR_OFFSETS_KEY, .part = "text", .max_depth = 4, .max_values = VALUES_MAX
	};
	TSR_OWNED(tsr_json_free) struct tsr_json *root = NULL;
	const enum tsr_status status = tsr_json_parse(text, strlen(text), &rules, &root, NULL);
	const struct tsr_json *t = status == TSR_OK ? tsr_json_first(root) : NULL;

	*ret = false;
	if (status == TSR_E_NOMEM)
		return tsr_fail_nomem(err, path);
	for (; t && !*ret; t = tsr_json_next(t)) {
		const struct tsr_json *list = tsr_json_get(t, "saved_offsets");
		const struct tsr_json *at = list ? tsr_json_first(list) : NULL;
		uint64_t offset;

		for (; at && !*ret; at = tsr_json_next(at))
			*ret = tsr_json_u64(at, &offset) && offset;
	}
	return TSR_OK;
}

/* "shard-00001-model-...": the first rank's parts begin at the start, so only the second file tells. */
bool tsr_hf_parts_named(const char *path)
{
	static const char *const numbers[] = { "shard-00001-", "shard-00002-" };
	const char *name = tsr_path_name(path);
	char *directory = tsr_path_directory(path), *other = NULL;
	bool found = false;

	for (unsigned i = 0; i < 2 && directory; i++) {
		if (strncmp(name, numbers[i], strlen(numbers[i])) != 0 ||
		    asprintf(&other, "%s%s", numbers[1 - i], name + strlen(numbers[i])) < 0)
			continue;
		found = tsr_dir_has_in(directory, other);
		free(other);
	}
	free(directory);
	return found;
}

enum tsr_status tsr_hf_parts_refuse(const char *path, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_UNSUPPORTED,
			"%s: holds parts of tensors, as one of several ranks saved them "
			"(" TSR_OFFSETS_KEY
			"), expected whole ones; consolidate_safetensors_files of "
			"torch.distributed.checkpoint joins them",
			path);
}

enum tsr_status tsr_hf_parts_check(const char *path, const struct tsr_meta *meta, size_t nmeta,
				   struct tsr_err *err)
{
	const char *offsets = tsr_meta_find(meta, nmeta, TSR_OFFSETS_KEY);
	bool found = false;

	if (!offsets)
		return TSR_OK;
	TSR_TRY(find_offset(path, offsets, &found, err));
	return found || tsr_hf_parts_named(path) ? tsr_hf_parts_refuse(path, err) : TSR_OK;
}
