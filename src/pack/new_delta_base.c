/* SPDX-License-Identifier: Apache-2.0 */
/* The base of a delta that is being written; that of a delta that is read: layouts/open_base.c. */
#include "pack/new_delta_base.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/coded/deltas.h"
#include "pack/packing.h"

/* Where the last @n names of a path begin. */
static const char *last_names(const char *path, unsigned n)
{
	const char *at = path + strlen(path);

	while (n && at > path) {
		at--;
		n -= at == path || at[-1] == '/';
	}
	return at;
}

/* How a delta names it. */
static enum tsr_status name_base(struct tsr_checkpoint *base,
				 const struct tsr_pack_options *options, struct tsr_base_name *ret,
				 struct tsr_err *err)
{
	const char *path = last_names(options->delta, options->base_levels + 1);
	const size_t up = 3 * (size_t)options->base_levels;
	char *name = tsr_arena_alloc(base->arena, up + strlen(path) + 1);
	unsigned levels;

	if (!name)
		return tsr_fail_nomem(err, options->delta);
	for (size_t i = 0; i < up; i += 3)
		memcpy(name + i, "../", 3);
	memcpy(name + up, path, strlen(path) + 1);
	*ret = (struct tsr_base_name){ .name = name,
				       .set = base->set,
				       .depth = base->base_name.depth + 1 };
	if (tsr_base_name_is_valid(name, &levels))
		return TSR_OK;
	return tsr_fail(err, TSR_E_UNSUPPORTED,
			"%s: found a path that does not end in %u names, expected them",
			options->delta, options->base_levels + 1);
}

static enum tsr_status check(const struct tsr_checkpoint *base,
			     const struct tsr_pack_options *options, bool plain,
			     struct tsr_err *err)
{
	const unsigned depth = base->base_name.depth + 1;
	unsigned max_chain = options->max_chain ? options->max_chain : TSR_CHAIN_DEFAULT;

	if (max_chain > TSR_CHAIN_MAX)
		max_chain = TSR_CHAIN_MAX;
	if (!base->packed && !plain)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is not a packed file, which a delta can have for its base",
				options->delta);
	if (depth > max_chain)
		return tsr_fail_hint(err, TSR_E_LIMIT, TSR_HINT_CHAIN,
				     "%s: a delta to it would be number %u of a chain, over the "
				     "limit of %u",
				     options->delta, depth, max_chain);
	return TSR_OK;
}

enum tsr_status tsr_delta_base_open(const struct tsr_pack_options *options, bool plain,
				    const struct tsr_run *run, struct tsr_checkpoint **ret,
				    struct tsr_base_name *name_ret, struct tsr_err *err)
{
	struct tsr_open_options o = options->open ? *options->open : tsr_open_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *base = NULL;

	o.base = NULL;
	o.run = run;
	TSR_TRY(tsr_checkpoint_open(&options->delta, 1, &o, &base, err));
	if (!base->packed && plain)
		TSR_TRY(tsr_plain_set(base, run, err));
	TSR_TRY(check(base, options, plain, err));
	TSR_TRY(name_base(base, options, name_ret, err));
	return TSR_GIVE(ret, base);
}

enum tsr_status tsr_delta_base_fits(const struct tsr_checkpoint *base,
				    const struct tsr_checkpoint *c, struct tsr_err *err)
{
	bool fits = c->ntensors == 0;

	if (!base || base->packed)
		return TSR_OK;
	for (size_t i = 0; i < c->ntensors && !fits; i++)
		fits = tsr_delta_old(base, &c->tensors[i], 0) != NULL;
	if (fits)
		return TSR_OK;
	return tsr_fail_hint(err, TSR_E_UNSUPPORTED, TSR_HINT_PACK_BASE,
			     "%s: has no tensor with the name, shape and type of one of the %zu "
			     "that are to be packed",
			     base->path, c->ntensors);
}

enum tsr_status tsr_written_delta_init(struct tsr_written_delta *d,
				       const struct tsr_base_name *base, size_t ntensors,
				       struct tsr_err *err)
{
	if (!base->name)
		return TSR_OK;
	d->name = strdup(base->name);
	d->planes = calloc((ntensors + 1) * TSR_PLANES_MAX, sizeof(*d->planes));
	if (!d->name || !d->planes)
		return tsr_fail_nomem(err, base->name);
	d->base = *base;
	d->base.name = d->name;
	return TSR_OK;
}

void tsr_written_delta_take(struct tsr_written_delta *d, const struct tsr_writer *w,
			    size_t ntensors)
{
	if (d->planes)
		tsr_writer_planes(w, ntensors, d->planes);
}

bool tsr_written_delta_differs(const struct tsr_written_delta *d, size_t ntensors)
{
	for (size_t i = 0; d->planes && i < ntensors * TSR_PLANES_MAX; i++) {
		if (d->planes[i].differs)
			return true;
	}
	return false;
}

void tsr_written_delta_free(struct tsr_written_delta *d)
{
	free(d->name);
	free(d->planes);
}
