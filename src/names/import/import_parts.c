/* SPDX-License-Identifier: Apache-2.0 */
/* What the imports of other tools' states share: finding the parts of a tensor and joining them. */
#include "names/import/import_parts.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"

size_t tsr_import_find(const struct tsr_importing *m, const char *name, size_t len,
		       const char *suffix)
{
	const struct tsr_named *found = tsr_named_find_joined(m->by_name, m->c->narrays, name, len,
							      suffix);

	return found ? found->index : SIZE_MAX;
}

size_t tsr_import_stem(const char *name, const char *suffix)
{
	const size_t n = strlen(name), len = strlen(suffix);

	return n > len && strcmp(name + n - len, suffix) == 0 ? n - len : 0;
}

void tsr_import_join(struct tsr_importing *m, size_t first, size_t second, struct tsr_coding coding)
{
	m->coding[first] = coding;
	tsr_import_add(m, first, 1, second);
}

void tsr_import_add(struct tsr_importing *m, size_t first, unsigned plane, size_t i)
{
	m->rest[first][plane - 1] = i;
	m->part[i] = true;
}

uint32_t tsr_import_group(uint64_t n, uint64_t ngroups)
{
	for (uint32_t group = 1; group <= TSR_GROUP_MAX && ngroups; group *= 2) {
		if (n / group + (n % group != 0) == ngroups)
			return group;
	}
	return 0;
}

uint32_t tsr_import_block(const struct tsr_array *codes, const struct tsr_array *values)
{
	if (!values->numel || !codes->numel || codes->numel % values->numel ||
	    codes->numel / values->numel > TSR_GROUP_MAX)
		return 0;
	return (uint32_t)(codes->numel / values->numel);
}

enum tsr_status tsr_import_bad_scales(const struct tsr_importing *m, const struct tsr_array *codes,
				      const struct tsr_array *scales)
{
	return tsr_fail(m->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found %" PRIu64 " scales of %s for %" PRIu64
			" codes of %s, expected one per group",
			m->c->path, codes->name, scales->numel, tsr_dtype_name(scales->dtype),
			codes->numel, tsr_dtype_name(codes->dtype));
}
