/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of what was saved is the model's state_dict(). */
#include "names/model_tree.h"

#include <string.h>

#include "names/optimizer_ids.h"

static bool holds_tensor(const struct tsr_value *v)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);

	if (!v)
		return false;
	if (v->type == TSR_VALUE_TENSOR)
		return true;
	if (!mapping && (v->type == TSR_VALUE_LIST || v->type == TSR_VALUE_TUPLE))
		mapping = v;
	for (size_t i = 0; mapping && i < mapping->list.n; i++) {
		if (holds_tensor(mapping->list.items[i]))
			return true;
	}
	return false;
}

static bool is_flat(const struct tsr_value *v)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);

	if (!mapping || mapping->list.n == 0)
		return false;
	for (size_t i = 0; i + 1 < mapping->list.n; i += 2) {
		if (mapping->list.items[i]->type != TSR_VALUE_STRING ||
		    mapping->list.items[i + 1]->type != TSR_VALUE_TENSOR)
			return false;
	}
	return true;
}

/* The value of a key that says model, or NULL. */
static struct tsr_value *model_by_key(const struct tsr_value *root)
{
	static const char *const keys[] = { "model", "state_dict", "model_state_dict", "module" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		struct tsr_value *v = tsr_value_at(root, keys[i]);

		if (tsr_value_mapping(v) && holds_tensor(v))
			return v;
	}
	return NULL;
}

/* The only flat mapping among the values of the root, or NULL. */
static struct tsr_value *only_flat(const struct tsr_value *mapping)
{
	struct tsr_value *found = NULL;

	for (size_t i = 0; i + 1 < mapping->list.n; i += 2) {
		if (!is_flat(mapping->list.items[i + 1]))
			continue;
		if (found)
			return NULL;
		found = mapping->list.items[i + 1];
	}
	return found;
}

/* --- Wrappers --------------------------------------------------------------------------------- */

/* An optimizer's state_dict(), also as torch.distributed flattens it: keys "state.NAME.exp_avg". */
static bool is_optimizer(const struct tsr_value *v)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);

	if (tsr_optim_is(v))
		return true;
	for (size_t i = 0; mapping && i + 1 < mapping->list.n; i += 2) {
		const struct tsr_value *key = mapping->list.items[i];

		if (key->type == TSR_VALUE_STRING && strncmp(key->text.bytes, "state.", 6) == 0 &&
		    mapping->list.items[i + 1]->type == TSR_VALUE_TENSOR)
			return true;
	}
	return false;
}

/* How deep wrappers are looked for. */
#define WRAPPERS_MAX 3u

static struct tsr_value **find_wrapper(const struct tsr_value *root, unsigned depth);

/* Whether a value has a model and an optimizer beside it, or is a wrapper of one that has. */
static bool has_both(struct tsr_value *v, unsigned depth)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);
	bool optimizer = false;

	if (!mapping || is_optimizer(v) || is_flat(v))
		return false;
	for (size_t i = 0; i + 1 < mapping->list.n; i += 2)
		optimizer = optimizer || is_optimizer(mapping->list.items[i + 1]);
	if (optimizer && (model_by_key(v) || only_flat(mapping)))
		return true;
	return depth < WRAPPERS_MAX && find_wrapper(v, depth + 1) != NULL;
}

static struct tsr_value **find_wrapper(const struct tsr_value *root, unsigned depth)
{
	const struct tsr_value *mapping = tsr_value_mapping(root);
	struct tsr_value **found = NULL;

	if (!mapping || is_optimizer(root) || is_flat(root) || model_by_key(root))
		return NULL;
	for (size_t i = 0; i + 1 < mapping->list.n; i += 2) {
		if (!has_both(mapping->list.items[i + 1], depth))
			continue;
		if (found)
			return NULL;
		found = &mapping->list.items[i];
	}
	return found;
}

struct tsr_value **tsr_model_wrapper(const struct tsr_value *root)
{
	return find_wrapper(root, 1);
}

/* --- The model -------------------------------------------------------------------------------- */

struct tsr_value *tsr_state_dict_model(struct tsr_value *root)
{
	struct tsr_value *inner = root, **wrapper, *model;
	const struct tsr_value *mapping;

	while ((wrapper = tsr_model_wrapper(inner)) != NULL)
		inner = wrapper[1];
	mapping = tsr_value_mapping(inner);
	if (!mapping || tsr_optim_is(inner))
		return NULL;
	if (is_flat(inner))
		return inner;
	model = model_by_key(inner);
	return model ? model : only_flat(mapping);
}
