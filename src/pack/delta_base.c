/* SPDX-License-Identifier: Apache-2.0 */
/* The base of a delta that is to be written. */
#include "pack/delta_base.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/deltas.h"
#include "io/dir.h"
#include "pack/packing.h"
#include "tersor/pack.h"

static enum tsr_status check(const struct tsr_checkpoint *base, const char *path,
			     unsigned max_chain, bool plain, const struct tsr_base_name *name,
			     struct tsr_err *err)
{
	if (!base->packed && !plain)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is not a packed file, which a delta can have for its base",
				path);
	if (name->depth > max_chain)
		return tsr_fail_hint(err, TSR_E_LIMIT, TSR_HINT_CHAIN,
				     "%s: a delta to it would be number %u of a chain, over the "
				     "limit of %u",
				     path, name->depth, max_chain);
	if (!tsr_dir_is_name(name->name))
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: found a path that does not end in a name, expected one", path);
	return TSR_OK;
}

enum tsr_status tsr_delta_base_open(const char *path, unsigned max_chain, bool plain,
				    const struct tsr_open_options *options,
				    const struct tsr_run *run, struct tsr_checkpoint **ret,
				    struct tsr_base_name *name_ret, struct tsr_err *err)
{
	struct tsr_open_options o = options ? *options : tsr_open_defaults();
	const char *slash = strrchr(path, '/');
	struct tsr_checkpoint *base = NULL;
	enum tsr_status status;

	o.base = NULL;
	o.run = run;
	if (!max_chain)
		max_chain = TSR_CHAIN_DEFAULT;
	if (max_chain > TSR_CHAIN_MAX)
		max_chain = TSR_CHAIN_MAX;
	TSR_TRY(tsr_checkpoint_open(&path, 1, &o, &base, err));
	status = base->packed || !plain ? TSR_OK : tsr_plain_set(base, run, err);
	*name_ret = (struct tsr_base_name){ .name = slash ? slash + 1 : path,
					    .set = base->set,
					    .depth = base->base_name.depth + 1 };
	if (status == TSR_OK)
		status = check(base, path, max_chain, plain, name_ret, err);
	if (status != TSR_OK) {
		tsr_checkpoint_close(base);
		return status;
	}
	*ret = base;
	return TSR_OK;
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

void tsr_written_delta_free(struct tsr_written_delta *d)
{
	free(d->name);
	free(d->planes);
}
