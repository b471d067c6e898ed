/* SPDX-License-Identifier: Apache-2.0 */
/* What the imports of other tools' states share: finding the parts of a tensor and joining them. */
#include "names/import_parts.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "text/shape.h"
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
	m->second[first] = second;
	m->part[second] = true;
}

enum tsr_status tsr_import_weight(struct tsr_importing *m, size_t rest, const char *suffix,
				  const struct tsr_codec *(*codec)(enum tsr_dtype narrow,
								   enum tsr_dtype rest))
{
	const struct tsr_array *a = &m->c->arrays[rest];
	const size_t len = tsr_import_stem(a->name, suffix);
	const size_t weight = len ? tsr_import_find(m, a->name, len, "") : SIZE_MAX;
	const struct tsr_array *w;
	struct tsr_coding coding = { .group = 1 };

	if (weight == SIZE_MAX || m->coding[weight].codec)
		return TSR_OK;
	w = &m->c->arrays[weight];
	coding.codec = codec(w->dtype, a->dtype);
	if (!coding.codec)
		return TSR_OK;
	if (tsr_shape_compare(a->rank, a->shape, w->rank, w->shape) != 0)
		return tsr_fail(m->err, TSR_E_FORMAT,
				"%s: tensor %.200s: has another shape than its weight %.200s",
				m->c->path, a->name, w->name);
	tsr_import_join(m, weight, rest, coding);
	return TSR_OK;
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
