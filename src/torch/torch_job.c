/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a running job: the pickle of a value whose tensors are in its memory. */
#include "base/fail.h"
#include "base/utf8.h"
#include "format/pickle.h"
#include "format/value_walk.h"
#include "torch/torch.h"
#include "torch/torch_archive.h"

/* Where the facts of each tensor begin. */
static enum tsr_status index_facts(const struct tsr_job_state *s, const uint64_t ***ret,
				   struct tsr_err *err)
{
	const uint64_t *at = s->facts;
	TSR_OWNED(free) const uint64_t **facts = NULL;

	TSR_TRY(TSR_NEW(&facts, s->ntensors + 1, err, s->name));
	for (size_t i = 0; i < s->ntensors; i++) {
		if (at[0] >= TSR_DTYPE_COUNT || at[1] > TSR_RANK_MAX)
			return tsr_fail(err, TSR_E_USAGE,
					"%s: tensor %zu: found type %" PRIu64 " and %" PRIu64
					" dimensions, expected a type of enum tsr_dtype and at "
					"most %u",
					s->name, i, at[0], at[1], TSR_RANK_MAX);
		facts[i] = at;
		at += 2 + 2 * at[1];
	}
	*ret = facts;
	facts = NULL;
	return TSR_OK;
}

/* A dict of tensors by name, as a safetensors file has them. */
static enum tsr_status add_named(struct tsr_torch_archive *a, const struct tsr_value *root)
{
	struct tsr_checkpoint *c = a->c;

	if (root->type != TSR_VALUE_DICT)
		return tsr_torch_fail(a, TSR_E_FORMAT, "", "found no dict of tensors by name");
	for (size_t i = 0; i + 1 < root->list.n; i += 2) {
		const struct tsr_value *key = root->list.items[i], *v = root->list.items[i + 1];
		char found[TSR_VALUE_DESCRIBED];
		struct tsr_torch_view view;
		struct tsr_array array;

		if (key->type != TSR_VALUE_STRING || key->text.nbytes > TSR_NAME_MAX ||
		    !tsr_utf8_is_string(key->text.bytes, key->text.nbytes))
			return tsr_torch_fail(a, TSR_E_FORMAT, "",
					      "found %s, expected names in UTF-8, without NUL and "
					      "within %u bytes",
					      tsr_value_describe(key, found), TSR_NAME_MAX);
		if (!tsr_torch_is_tensor(v))
			return tsr_torch_fail(a, TSR_E_FORMAT, key->text.bytes,
					      "found %s, expected a tensor",
					      tsr_value_describe(v, found));
		TSR_TRY(tsr_torch_view(a, v, key->text.bytes, &view));
		TSR_TRY(tsr_torch_array(c, &view, &array, a->err));
		array.name = key->text.bytes;
		array.stride = NULL; /* the job hands rows over */
		array.own_name = true;
		TSR_TRY(tsr_build_array(c, &array, NULL, a->err));
	}
	return TSR_OK;
}

static enum tsr_status read_state(struct tsr_torch_archive *a, const struct tsr_job_state *s)
{
	struct tsr_checkpoint *c = a->c;
	struct tsr_value *root = NULL;

	TSR_TRY(tsr_pickle_read(s->pickle, s->nbytes, s->name, c->arena, &root, a->err));
	tsr_build_container(c, s->named ? TSR_CONTAINER_SAFETENSORS : TSR_CONTAINER_TORCH);
	for (size_t i = 0; i < s->nmeta; i++) {
		const char *key = tsr_arena_string(c->arena, s->meta[i].key);
		const char *value = tsr_arena_string(c->arena, s->meta[i].value);

		if (!key || !value)
			return tsr_build_nomem(c, a->err);
		if (!tsr_utf8_is_string(key, strlen(key)) ||
		    !tsr_utf8_is_string(value, strlen(value)))
			return tsr_fail(a->err, TSR_E_USAGE,
					"%s: metadata %.200s: found other bytes than UTF-8",
					s->name, key);
		TSR_TRY(tsr_build_meta(c, key, value, a->err));
	}
	if (s->named)
		return add_named(a, root);
	TSR_TRY(tsr_torch_bind(a, root, ""));
	return tsr_build_tree(c, root, a->err);
}

enum tsr_status tsr_torch_read_job(struct tsr_checkpoint *c, const struct tsr_job_state *s,
				   struct tsr_err *err)
{
	TSR_OWNED(free) const uint64_t **facts = NULL;
	struct tsr_torch_archive a = {
		.c = c, .where = s->name, .err = err, .nfacts = s->ntensors
	};

	TSR_TRY(index_facts(s, &facts, err));
	a.facts = facts;
	return read_state(&a, s);
}
