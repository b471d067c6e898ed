/* SPDX-License-Identifier: Apache-2.0 */
/* A packed file that is written, of tensors that are encoded or whose planes are copied. */
#include "pack/packed_output.h"

#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/fingerprint.h"
#include "ckpt/meta.h"
#include "container/tree.h"
#include "names/params/parameters.h"
#include "pack/new_delta_base.h"
#include "parts/part.h"

/* The source's metadata, with `format` set and the entries of a packed file. */
static enum tsr_status compose_meta(struct tsr_packed_output *o, size_t *n_ret, struct tsr_err *err)
{
	const struct tsr_meta ours[] = { { "format", "pt" },
					 { TSR_PACKED_KEY, "" },
					 { TSR_PACKED_CHECK_KEY, TSR_PACKED_CHECK_ZEROS },
					 { TSR_GENERATION_KEY, NULL } };

	return tsr_meta_replace(o->c, ours, sizeof(ours) / sizeof(*ours), &o->meta, n_ret, err);
}

/* What a loader expects beside the weights: the source's metadata, without what only we read. */
static enum tsr_status compose_weights_meta(struct tsr_packed_output *o, size_t *n_ret,
					    struct tsr_err *err)
{
	const struct tsr_meta ours[] = { { TSR_GENERATION_KEY, NULL },
					 { TSR_TREE_KEY, NULL },
					 { "format", "pt" } };
	const bool add_format = o->c->container != TSR_CONTAINER_SAFETENSORS &&
				!tsr_meta_find(o->c->meta, o->c->nmeta, "format");

	return tsr_meta_replace(o->c, ours, 2 + add_format, &o->weights_meta, n_ret, err);
}

enum tsr_status tsr_packed_output_open(struct tsr_packed_output *o, bool plain, struct tsr_err *err)
{
	if (!o->options->delta)
		return TSR_OK;
	return tsr_delta_base_open(o->options, plain, o->run, &o->base, &o->source.base, err);
}

enum tsr_status tsr_packed_output_find_model(struct tsr_packed_output *o, struct tsr_err *err)
{
	bool *model;

	if (!o->options->weights_out)
		return TSR_OK;
	TSR_TRY(TSR_ARENA_NEW(&model, o->c->ntensors + 2, o->c->arena, tsr_build_nomem(o->c, err)));
	o->source.model = model;
	return tsr_names_model(o->c, o->options->rules, o->options->nrules, model, err);
}

enum tsr_status tsr_packed_output_name_inputs(const struct tsr_packed_output *o,
					      const struct tsr_checkpoint *c, struct tsr_err *err)
{
	const struct tsr_checkpoint *const inputs[] = { c, o->base };

	if (o->options->dry_run)
		return tsr_part_refuse(o->run, "a plan without output", err);
	return tsr_inputs_name(inputs, 2, 0, o->run, err);
}

static void free_layout(struct tsr_packed_output *o)
{
	tsr_writer_free(o->writer);
	free(o->meta);
	free(o->weights_meta);
	o->writer = NULL;
	o->meta = o->weights_meta = NULL;
}

enum tsr_status tsr_packed_output_plan(struct tsr_packed_output *o, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = o->c;
	TSR_OWNED(free) struct tsr_st_entry *arrays = NULL;
	struct tsr_writer_plan plan = { .path = o->path,
					.container = TSR_CONTAINER_SAFETENSORS,
					.force = o->options->force,
					.max_shard_nbytes = o->options->max_shard_nbytes,
					.c = o->c,
					.keep_order = true,
					.packed = &o->source,
					.coded = o->options->coded,
					.base = o->base,
					.run = o->run,
					.part = o->run ? o->run->parts : NULL,
					.weights_path = o->options->weights_out };

	o->source = (struct tsr_packed_source){
		.kind = tsr_container_name(c->container),
		.format = tsr_meta_find(c->meta, c->nmeta, "format"),
		.order = o->options->meta_order ? c->meta_order : NULL,
		.norder = c->nmeta_order,
		.generation = TSR_GENERATION_MAX, /* room for any */
		.tensors = c->tensors,
		.ntensors = c->ntensors,
		.base = o->source.base,
		.model = o->source.model,
	};
	free_layout(o);
	TSR_TRY(tsr_packed_arrays(o->c, &arrays, &plan.narrays, err));
	TSR_TRY(compose_meta(o, &plan.nmeta, err));
	TSR_TRY(compose_weights_meta(o, &plan.nweights_meta, err));
	plan.arrays = arrays;
	plan.meta = o->meta;
	plan.weights_meta = o->weights_meta;
	return tsr_writer_new(&plan, &o->writer, err);
}

void tsr_packed_output_free(struct tsr_packed_output *o)
{
	free_layout(o);
	tsr_checkpoint_close(o->base);
}
