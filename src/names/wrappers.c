/* SPDX-License-Identifier: Apache-2.0 */
/* Wrappers around model and optimizer, in flat names. */
#include "names/wrappers.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/order.h"
#include "text/bytes.h"

static const char *const optimizers[] = { "optim.", "optimizer." };
static const char *const models[] = { "model.", "module." };

#define NKEYS 2u

static const char *after_any(const char *name, const char *const keys[NKEYS])
{
	for (size_t i = 0; i < NKEYS; i++) {
		const size_t len = strlen(keys[i]);

		if (strncmp(name, keys[i], len) == 0)
			return name + len;
	}
	return NULL;
}

/* What stands in front of "optim.state." in a name; its length is 0 if nothing does. */
static struct tsr_wrapper wrapper_of(const char *name)
{
	for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
		const char *tree = after_any(dot + 1, optimizers);

		if (tree && strncmp(tree, "state.", 6) == 0)
			return (struct tsr_wrapper){ name, (size_t)(dot + 1 - name) };
	}
	return (struct tsr_wrapper){ name, 0 };
}

TSR_COMPARE(compare, struct tsr_wrapper, tsr_compare_bytes(a->text, a->len, b->text, b->len))

/* Whether a tensor's name begins with the wrapper and @key. */
static bool begins_any(const struct tsr_checkpoint *c, const struct tsr_wrapper *w, const char *key)
{
	size_t low = 0, high = c->ntensors;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		const char *name = c->tensors[c->tensor_by_name[middle]].name;
		int order = strncmp(name, w->text, w->len);

		if (!order)
			order = strncmp(name + w->len, key, strlen(key));
		if (!order)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* Names that begin alike stand side by side, so only the last one can be there already. */
enum tsr_status tsr_wrappers_find(const struct tsr_checkpoint *c, struct tsr_arena *arena,
				  struct tsr_wrappers *ret, struct tsr_err *err)
{
	ret->n = 0;
	TSR_TRY(TSR_TAKE(&ret->list, c->ntensors + 1, arena, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_wrapper w = wrapper_of(c->tensors[c->tensor_by_name[i]].name);

		if (!w.len || (ret->n && compare(&ret->list[ret->n - 1], &w) == 0))
			continue;
		if (begins_any(c, &w, models[0]) || begins_any(c, &w, models[1]))
			ret->list[ret->n++] = w;
	}
	if (ret->n)
		qsort(ret->list, ret->n, sizeof(*ret->list), compare);
	return TSR_OK;
}

size_t tsr_wrappers_len(const struct tsr_wrappers *w, const char *name)
{
	const char *dot = w->n ? strchr(name, '.') : NULL;

	for (; dot; dot = strchr(dot + 1, '.')) {
		const struct tsr_wrapper key = { name, (size_t)(dot + 1 - name) };

		if ((after_any(dot + 1, optimizers) || after_any(dot + 1, models)) &&
		    bsearch(&key, w->list, w->n, sizeof(*w->list), compare))
			return key.len;
	}
	return 0;
}
