/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that are no plain values, which an output can carry: their pickle's instructions are written
 * back as they were, and nothing carries them out here.  The reader's policy says whether they are
 * carried, and a note names all of them that are.
 */
#include "base/fail.h"
#include "ckpt/build.h"
#include "format/value_walk.h"
#include "text/bytes.h"
#include "text/map.h"
#include "text/text.h"
#include "torch/torch_archive.h"

/* --- The policy --------------------------------------------------------------------------------- */

enum tsr_torch_verdict tsr_torch_judge(const struct tsr_checkpoint *c, const struct tsr_value *v)
{
	const struct tsr_value *global = v;

	while (global->type == TSR_VALUE_CALL)
		global = global->call.callee;
	/* What was left out can be neither called nor kept. */
	if (global->type == TSR_VALUE_NONE)
		return TSR_TORCH_DROP;
	if (v->type == TSR_VALUE_GLOBAL && tsr_torch_is_wrapper_class(v))
		return TSR_TORCH_KEEP;
	if (global->type != TSR_VALUE_GLOBAL || tsr_torch_is_tensor_like(v, global))
		return TSR_TORCH_REFUSE;
	if (tsr_torch_is_harmless(global) && (v == global || v->call.callee == global))
		return TSR_TORCH_KEEP;
	switch (c->opaque) {
	case TSR_OPAQUE_CARRY:
		return tsr_torch_is_dangerous(global) ? TSR_TORCH_REFUSE : TSR_TORCH_KEEP;
	case TSR_OPAQUE_DROP:
		return TSR_TORCH_DROP;
	case TSR_OPAQUE_REFUSE:
		break;
	}
	return TSR_TORCH_REFUSE;
}

/* --- What is carried ------------------------------------------------------------------------------ */

/* How much of the names a note shows. */
#define NAMES_NBYTES 600u

static bool is_same(const void *item, const void *key)
{
	const struct tsr_value *a = *(const struct tsr_value *const *)item, *b = key;

	return tsr_value_is_global(b, a->global.module, a->global.name);
}

/* What frameworks put into each of their checkpoints. */
static bool is_usual(const char *module, const char *name)
{
	static const char *const usual[][2] = {
		{ "deepspeed.runtime.fp16.loss_scaler", "LossScaler DynamicLossScaler" },
		{ "deepspeed.runtime.zero.config", "ZeroStageEnum" },
		{ "deepspeed.utils.tensor_fragment", "fragment_address" },
		{ "_io", "BytesIO" },
	};

	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++) {
		if (strcmp(usual[i][0], module) == 0 && tsr_is_word(usual[i][1], name))
			return true;
	}
	return false;
}

/* Add a global to the names; false when out of memory. */
static bool add_name(struct tsr_map *seen, const struct tsr_value *global, struct tsr_text *names,
		     bool *strange)
{
	const char *module = global->global.module, *name = global->global.name;
	const uint64_t hash = tsr_map_hash(seen, module, strlen(module), 0) ^
			      tsr_map_hash(seen, name, strlen(name), 1);
	const bool builtin = strcmp(module, "__builtin__") == 0;
	const bool fits = names->nbytes + strlen(module) + strlen(name) < NAMES_NBYTES;
	bool is_new;
	const struct tsr_value **item = tsr_map_put(seen, hash, global, &is_new);

	if (!item || !is_new)
		return item != NULL;
	*item = global;
	*strange |= !is_usual(module, name);
	if (fits)
		tsr_text_printf(names, "%s%s.%s", seen->n > 1 ? ", " : "",
				builtin ? "builtins" : module, name);
	return !names->failed;
}

static bool collect(struct tsr_checkpoint *c, struct tsr_value_walk *w, struct tsr_value *root,
		    struct tsr_map *seen, struct tsr_text *names, bool *strange)
{
	struct tsr_value *v;
	bool ok = true;

	w->root = root;
	w->n = 0;
	w->mark = TSR_MARK_OPAQUE;
	while (ok && (v = tsr_value_walk_next(w)) != NULL) {
		if (v->type == TSR_VALUE_GLOBAL && !tsr_torch_is_harmless(v))
			ok = add_name(seen, v, names, strange);
		if (v->type != TSR_VALUE_TENSOR || !v->tensor.wrapper)
			continue;
		c->nwrapped++;
		if (!tsr_torch_is_whole(v, &c->arrays[v->tensor.array]) && !c->nparts++)
			c->part = v;
	}
	return ok;
}

enum tsr_status tsr_torch_name_carried(struct tsr_checkpoint *c, struct tsr_err *err)
{
	TSR_SCOPED(tsr_map_free)
	struct tsr_map seen = { .item_nbytes = sizeof(struct tsr_value *), .same = is_same };
	TSR_OWNED(free) struct tsr_value_walk *w = calloc(1, sizeof(*w));
	TSR_SCOPED(tsr_text_free) struct tsr_text names = { 0 };
	bool ok = w != NULL, strange = false;

	for (size_t i = 0; ok && i < c->ntrees; i++)
		ok = collect(c, w, c->trees[i], &seen, &names, &strange);
	if (!ok)
		return tsr_fail_nomem(err, c->path);
	if (seen.n)
		TSR_TRY((strange ? tsr_build_note : tsr_build_remark)(
			c, err,
			"%.200s: carries Python objects as they are; Python imports "
			"and calls what makes them where weights_only=False loads "
			"them: %s (%zu in all)",
			c->path, names.bytes ? names.bytes : "...", seen.n));
	return TSR_OK;
}
