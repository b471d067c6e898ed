/* SPDX-License-Identifier: Apache-2.0 */
/* Packing the model alone, as loaders take it: small updates of the weights that others serve. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/build.h"
#include "io/atomic_dir.h"
#include "names/params/parameters.h"
#include "pack/as_dtype.h"
#include "pack/open_checkpoint.h"
#include "pack/packing.h"
#include "text/text.h"

/* Whether this is the model and nothing else, in the types that are asked for. */
static enum tsr_status is_model(struct tsr_checkpoint *c, enum tsr_dtype as, bool *ret,
				struct tsr_err *err)
{
	TSR_OWNED(free) bool *model = NULL;

	TSR_TRY(TSR_NEW(&model, c->ntensors + 1, err, c->path));
	TSR_TRY(tsr_names_model(c, NULL, 0, model, err));
	*ret = c->container == TSR_CONTAINER_SAFETENSORS && !c->packed && !c->ntrees;
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const bool rounded = as != TSR_DTYPE_COUNT && as != t->dtype && tsr_takes_dtype(t);

		*ret = *ret && model[i] && !rounded;
	}
	return TSR_OK;
}

/* Raw, with the order of its metadata, so that bytes come back. */
static enum tsr_status pack(struct tsr_checkpoint *c, const char *out,
			    const struct tsr_pack_options *options, const struct tsr_run *run,
			    struct tsr_packing **ret, struct tsr_err *err)
{
	const struct tsr_name_rule raw = { ".*", TSR_KIND_OTHER };
	const struct tsr_pack_given given = { .plain_base = true };
	struct tsr_pack_options o = *options;
	bool matched = false;

	o.rules = &raw;
	o.nrules = 1;
	o.rules_matched = &matched;
	o.meta_order = true;
	return tsr_pack_checkpoint(c, &given, out, &o, run, ret, err);
}

/* Open the model that was written to @path, with what was to say of it. */
static enum tsr_status open_written(const char *path, const struct tsr_checkpoint *from,
				    struct tsr_checkpoint **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;

	TSR_TRY(tsr_checkpoint_open(&path, 1, NULL, &c, err));
	for (size_t i = 0; i < from->nnotes; i++)
		TSR_TRY(tsr_build_note(c, err, "%s", from->notes[i]));
	return TSR_GIVE(ret, c);
}

/* Write the model of @c into a directory that is removed again, and pack that. */
static enum tsr_status pack_written(struct tsr_checkpoint *c, const char *folder, const char *out,
				    const struct tsr_pack_options *o, const struct tsr_run *run,
				    struct tsr_packing **ret, struct tsr_err *err)
{
	struct tsr_write_options how = tsr_write_defaults();
	TSR_OWNED(free) struct tsr_unpacking *u = NULL; /* its source is @c */
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *model = NULL;
	TSR_OWNED(free) char *path = tsr_path_join(folder, "model.safetensors");
	enum tsr_status status;

	if (!path)
		return tsr_fail_nomem(err, out);
	how.container = TSR_CONTAINER_SAFETENSORS;
	how.only_model = true;
	how.as = o->as;
	TSR_TRY(tsr_write_checkpoint(c, path, &how, run, &u, err));
	TSR_TRY(open_written(path, c, &model, err));
	status = pack(model, out, o, run, ret, err);
	if (tsr_is_packed(status))
		model = NULL;
	return status;
}

static enum tsr_status pack_other(struct tsr_checkpoint *c, const char *out,
				  const struct tsr_pack_options *o, const struct tsr_run *run,
				  struct tsr_packing **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_outdir_discard) struct tsr_outdir *made = NULL;
	TSR_SCOPED(tsr_text_free) struct tsr_text path = { 0 };

	if (o->dry_run)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is not the model alone in the types that are asked for, which "
				"would have to be written first",
				c->path);
	if (strcmp(out, TSR_STANDARD_OUTPUT) == 0)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: is not the model alone in the types that are asked for; "
				"expected the name of a file for the output",
				c->path);
	tsr_text_printf(&path, "%s.model", out);
	if (path.failed)
		return tsr_fail_nomem(err, out);
	TSR_TRY(tsr_outdir_create(path.bytes, &(struct tsr_outdir_rule){ false }, &made, err));
	return pack_written(c, tsr_outdir_path(made), out, o, run, ret, err);
}

enum tsr_status tsr_pack_model(const char *const *paths, unsigned npaths, const char *out,
			       const struct tsr_pack_options *options, const struct tsr_run *run,
			       struct tsr_packing **ret, struct tsr_err *err)
{
	struct tsr_pack_options o = tsr_pack_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	enum tsr_status status;
	bool as_it_is = false;

	TSR_TRY(tsr_options_take(&o, options, err));
	if (o.delta && o.coded == TSR_CODED_NONE)
		o.coded = TSR_CODED_ALL;
	TSR_TRY(tsr_checkpoint_open(paths, npaths, o.open, &c, err));
	TSR_TRY(is_model(c, o.as, &as_it_is, err));
	if (!as_it_is)
		return pack_other(c, out, &o, run, ret, err);
	status = pack(c, out, &o, run, ret, err);
	if (tsr_is_packed(status))
		c = NULL;
	return status;
}
