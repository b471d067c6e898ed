/* SPDX-License-Identifier: Apache-2.0 */
/* The same packed checkpoint with other planes coded: what it decodes to, hashes and figures stay. */
#include <stdlib.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/build.h"
#include "ckpt/fingerprint.h"
#include "ckpt/meta.h"
#include "container/packed/packed_write.h"
#include "container/tree.h"
#include "container/writer.h"
#include "names/params/parameters.h"
#include "pack/new_delta_base.h"
#include "pack/open_checkpoint.h"
#include "pack/packed_meta.h"
#include "pack/packing.h"
#include "parts/part.h"

struct recoding {
	struct tsr_checkpoint *c;
	const struct tsr_recode_options *options;
	const struct tsr_run *run;
	const char *path;
	struct tsr_packed_source source;
	struct tsr_checkpoint *base; /* of a delta, or NULL */
	struct tsr_base_name base_name;
	bool *model;
	struct tsr_st_entry *arrays;
	size_t narrays;
	struct tsr_meta *meta, *weights_meta;
	struct tsr_writer *writer;
	struct tsr_err *err;
};

struct tsr_recode_options tsr_recode_defaults(void)
{
	return (struct tsr_recode_options){ .size = sizeof(struct tsr_recode_options) };
}

/* What is the model's own, before the tree is a tensor too, which is not. */
static enum tsr_status find_model(struct recoding *r)
{
	TSR_TRY(TSR_ARENA_NEW(&r->model, r->c->ntensors + 2, r->c->arena,
			      tsr_build_nomem(r->c, r->err)));
	return tsr_names_model(r->c, NULL, 0, r->model, r->err);
}

static enum tsr_status plan(struct recoding *r)
{
	const struct tsr_recode_options *o = r->options;
	struct tsr_writer_plan plan = { .path = r->path,
					.container = TSR_CONTAINER_SAFETENSORS,
					.force = o->force,
					.max_shard_nbytes = o->max_shard_nbytes,
					.c = r->c,
					.keep_order = true,
					.packed = &r->source,
					.coded = o->coded,
					.base = r->base,
					.run = r->run,
					.part = r->run ? r->run->parts : NULL,
					.weights_path = o->weights_out };

	r->source = (struct tsr_packed_source){
		.kind = tsr_container_name(r->c->container),
		.format = tsr_meta_find(r->c->meta, r->c->nmeta, "format"),
		.order = r->c->meta_order,
		.norder = r->c->nmeta_order,
		.generation = TSR_GENERATION_MAX,
		.tensors = r->c->tensors,
		.ntensors = r->c->ntensors,
		.base = r->base_name,
		.model = r->model,
	};
	TSR_TRY(tsr_packed_arrays(r->c, &r->arrays, &r->narrays, r->err));
	TSR_TRY(tsr_packed_meta(r->c, &r->meta, &plan.nmeta, r->err));
	TSR_TRY(tsr_packed_weights_meta(r->c, &r->weights_meta, &plan.nweights_meta, r->err));
	plan.arrays = r->arrays;
	plan.narrays = r->narrays;
	plan.meta = r->meta;
	plan.weights_meta = r->weights_meta;
	return tsr_writer_new(&plan, &r->writer, r->err);
}

static enum tsr_status write_out(struct recoding *r)
{
	if (r->options->dry_run)
		return tsr_writer_check(r->writer, r->err);
	r->source.generation = r->c->generation;
	TSR_TRY(tsr_writer_copy(r->writer, r->err));
	TSR_TRY(tsr_checkpoint_check_unchanged(r->c, r->err));
	return tsr_writer_publish(r->writer, r->err);
}

/* What all parts must have. */
static enum tsr_status name_inputs(const struct recoding *r)
{
	const struct tsr_checkpoint *const inputs[] = { r->c, r->base };

	if (r->options->dry_run)
		return tsr_part_refuse(r->run, "a plan without output", r->err);
	return tsr_inputs_name(inputs, 2, 0, r->run, r->err);
}

static enum tsr_status run_recoding(struct recoding *r, struct tsr_unpacking *u)
{
	const struct tsr_recode_options *o = r->options;
	const struct tsr_delta_options delta = { o->delta, o->max_chain, o->base_levels, false,
						 o->open };
	enum tsr_status status;

	if (o->delta)
		TSR_TRY(tsr_delta_base_open(&delta, r->run, &r->base, &r->base_name, r->err));
	if (o->weights_out)
		TSR_TRY(find_model(r));
	TSR_TRY(name_inputs(r));
	TSR_TRY(tsr_tree_attach(r->c, r->err));
	TSR_TRY(tsr_build_index(r->c, r->err));
	TSR_TRY(plan(r));
	u->plain_nbytes = tsr_writer_nbytes(r->writer);
	if (!r->options->dry_run)
		TSR_TRY(tsr_written_delta_init(&u->delta, &r->base_name, r->c->ntensors, r->err));
	status = write_out(r);
	u->nbytes = tsr_writer_nbytes(r->writer);
	tsr_written_delta_take(&u->delta, r->writer, r->c->ntensors);
	return status;
}

static void free_recoding(struct recoding *r)
{
	tsr_writer_free(r->writer);
	tsr_checkpoint_close(r->base);
	free(r->arrays);
	free(r->meta);
	free(r->weights_meta);
}

enum tsr_status tsr_recode_checkpoint(struct tsr_checkpoint *c, const char *out,
				      const struct tsr_recode_options *options,
				      const struct tsr_run *run, struct tsr_unpacking **ret,
				      struct tsr_err *err)
{
	struct recoding r = { .c = c, .options = options, .run = run, .path = out, .err = err };
	struct tsr_unpacking *u = NULL;
	enum tsr_status status;

	struct tsr_recode_options o = *options;

	TSR_TRY(TSR_NEW(&u, 1, err, out));
	if (o.delta && o.coded == TSR_CODED_NONE)
		o.coded = TSR_CODED_ALL;
	r.options = &o;
	u->source = c;
	u->container = TSR_CONTAINER_SAFETENSORS;
	status = run_recoding(&r, u);
	free_recoding(&r);
	if (status == TSR_OK || status == TSR_E_DURABILITY)
		*ret = u;
	else {
		tsr_written_delta_free(&u->delta);
		free(u);
	}
	return status;
}

enum tsr_status tsr_recode(const char *path, const char *out,
			   const struct tsr_recode_options *options, const struct tsr_run *run,
			   struct tsr_unpacking **ret, struct tsr_err *err)
{
	struct tsr_recode_options o = tsr_recode_defaults();
	struct tsr_checkpoint *c = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_checkpoint_open(&path, 1, o.open, &c, err));
	status = c->packed ? tsr_recode_checkpoint(c, out, &o, run, ret, err)
			   : tsr_fail_hint(err, TSR_E_UNSUPPORTED, TSR_HINT_PACK_CODED,
					   "%s: is not a packed file", path);
	if (!tsr_is_written(status))
		tsr_checkpoint_close(c);
	return status;
}
