/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a weight update onto the model that it was made for. */
#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/checkpoint_model.h"
#include "io/dir.h"
#include "pack/open_checkpoint.h"
#include "pack/packing.h"

static enum tsr_status check_update(const struct tsr_checkpoint *c, struct tsr_err *err)
{
	if (!c->packed || !c->base)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is not a packed delta, expected an update of weights",
				c->path);
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		if (t->coding.codec)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: is packed as %s, expected an update of "
					"weights as they are",
					c->path, t->name, t->coding.codec->name);
	}
	return TSR_OK;
}

/* One plain file is replaced at once; anything else needs another name for its successor. */
static enum tsr_status check_in_place(const struct tsr_checkpoint *c, const char *model,
				      struct tsr_err *err)
{
	const struct tsr_checkpoint *base = c->base;

	if (base->packed || base->container != TSR_CONTAINER_SAFETENSORS || base->nfiles != 1 ||
	    tsr_dir_is(model))
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is not one plain safetensors file, which could be replaced; "
				"expected the name of an output",
				model);
	return TSR_OK;
}

static enum tsr_status apply(struct tsr_checkpoint *c, const char *model, const char *out,
			     const struct tsr_write_options *options, const struct tsr_run *run,
			     struct tsr_unpacking **ret, struct tsr_err *err)
{
	struct tsr_write_options o = *options;

	TSR_TRY(check_update(c, err));
	if (!out) {
		TSR_TRY(check_in_place(c, model, err));
		c->replaces_base = true;
		o.force = true;
		out = model;
	}
	o.container = TSR_CONTAINER_SAFETENSORS;
	return tsr_write_checkpoint(c, out, &o, run, ret, err);
}

enum tsr_status tsr_apply(const char *update, const char *model, const char *out,
			  const struct tsr_write_options *options, const struct tsr_run *run,
			  struct tsr_unpacking **ret, struct tsr_err *err)
{
	struct tsr_write_options o = tsr_write_defaults();
	struct tsr_open_options open = tsr_open_defaults();
	struct tsr_checkpoint *c = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_options_take(&open, o.open, err));
	open.base = model;
	open.run = run;
	status = tsr_checkpoint_open(&update, 1, &open, &c, err);
	/* The base is said already. */
	if (status != TSR_OK && err && err->hint == TSR_HINT_BASE)
		err->hint = TSR_HINT_NONE;
	TSR_TRY(status);
	status = apply(c, model, out, &o, run, ret, err);
	if (status != TSR_OK && status != TSR_E_DURABILITY)
		tsr_checkpoint_close(c);
	return status;
}
