/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of `__metadata__`: finding, sorting and replacing them. */
#include "ckpt/meta.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/order.h"

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

TSR_COMPARE(by_key, struct tsr_meta, strcmp(a->key, b->key))

void tsr_meta_sort(struct tsr_meta *meta, size_t n)
{
	if (n)
		qsort(meta, n, sizeof(*meta), by_key);
}

enum tsr_status tsr_meta_order(struct tsr_checkpoint *c, const struct tsr_meta *meta, size_t n,
			       const size_t **ret, struct tsr_err *err)
{
	TSR_OWNED(free) struct tsr_meta *sorted = NULL;
	size_t *order;
	bool moved = false;

	TSR_TRY(TSR_NEW(&sorted, n + 1, err, c->path));
	TSR_TRY(TSR_TAKE(&order, n + 1, c->arena, err, c->path));
	/* A value is where its entry stood: keys may be alike. */
	for (size_t i = 0; i < n; i++)
		sorted[i] = (struct tsr_meta){ meta[i].key, (const char *)&meta[i] };
	tsr_meta_sort(sorted, n);
	for (size_t i = 0; i < n; i++) {
		order[i] = (size_t)((const struct tsr_meta *)(const void *)sorted[i].value - meta);
		moved = moved || order[i] != i;
	}
	if (moved)
		*ret = order;
	return TSR_OK;
}

bool tsr_meta_read_order(struct tsr_checkpoint *c, const struct tsr_json *list)
{
	const size_t n = tsr_json_size(list);
	size_t *order, *taken;
	uint64_t at;

	if (!list)
		return true;
	if (!tsr_json_is_list(list))
		return false;
	order = tsr_arena_alloc(c->arena, (2 * n + 1) * sizeof(*order));
	if (!order)
		return false;
	taken = order + n;
	memset(taken, 0, n * sizeof(*taken));
	c->meta_order = order;
	c->nmeta_order = n;
	for (const struct tsr_json *i = tsr_json_first(list); i; i = tsr_json_next(i)) {
		if (!tsr_json_u64(i, &at) || at >= n || taken[at])
			return false;
		taken[at] = 1;
		*order++ = (size_t)at;
	}
	return true;
}

enum tsr_status tsr_meta_arrange(const struct tsr_checkpoint *c, struct tsr_meta **meta, size_t n,
				 const size_t *order, struct tsr_err *err)
{
	struct tsr_meta *arranged = NULL;

	TSR_TRY(TSR_NEW(&arranged, n + 1, err, c->path));
	for (size_t i = 0; i < n; i++)
		arranged[order[i]] = (*meta)[i];
	free(*meta);
	*meta = arranged;
	return TSR_OK;
}

enum tsr_status tsr_meta_replace(const struct tsr_checkpoint *c, const struct tsr_meta *with,
				 size_t n, struct tsr_meta **ret, size_t *n_ret,
				 struct tsr_err *err)
{
	struct tsr_meta *meta = NULL;
	size_t count = 0;

	TSR_TRY(TSR_NEW(&meta, c->nmeta + n + 1, err, c->path));
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
