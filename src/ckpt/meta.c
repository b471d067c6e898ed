/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of `__metadata__`: finding, sorting and replacing them. */
#include "ckpt/meta.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static const struct tsr_meta *find(const struct tsr_meta *meta, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(meta[i].key, key) == 0)
			return &meta[i];
	}
	return NULL;
}

const char *tsr_meta_find(const struct tsr_meta *meta, size_t n, const char *key)
{
	const struct tsr_meta *found = find(meta, n, key);

	return found ? found->value : NULL;
}

static int by_key(const void *va, const void *vb)
{
	const struct tsr_meta *a = va, *b = vb;

	return strcmp(a->key, b->key);
}

void tsr_meta_sort(struct tsr_meta *meta, size_t n)
{
	if (n)
		qsort(meta, n, sizeof(*meta), by_key);
}

enum tsr_status tsr_meta_replace(const struct tsr_checkpoint *c, const struct tsr_meta *with,
				 size_t n, struct tsr_meta **ret, size_t *n_ret,
				 struct tsr_err *err)
{
	struct tsr_meta *meta = calloc(c->nmeta + n + 1, sizeof(*meta));
	size_t count = 0;

	if (!meta)
		return tsr_fail_nomem(err, c->path);
	for (size_t i = 0; i < c->nmeta; i++) {
		if (!find(with, n, c->meta[i].key))
			meta[count++] = c->meta[i];
	}
	for (size_t i = 0; i < n; i++) {
		if (with[i].value)
			meta[count++] = with[i];
	}
	tsr_meta_sort(meta, count);
	*ret = meta;
	*n_ret = count;
	return TSR_OK;
}
