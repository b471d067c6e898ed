/* SPDX-License-Identifier: Apache-2.0 */
/* The same packed checkpoint with other planes coded: what it decodes to, hashes and figures stay. */
#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/build.h"
#include "container/tree.h"
#include "pack/open_checkpoint.h"
#include "pack/packed_output.h"
#include "pack/packing.h"

struct recoding {
	struct tsr_checkpoint *c;
	struct tsr_packed_output out;
	struct tsr_err *err;
};

struct tsr_recode_options tsr_recode_defaults(void)
{
	return (struct tsr_recode_options){ .size = sizeof(struct tsr_recode_options) };
}

static enum tsr_status write_out(struct recoding *r)
{
	if (r->out.options->dry_run)
		return tsr_writer_check(r->out.writer, r->err);
	r->out.source.generation = r->c->generation;
	TSR_TRY(tsr_writer_copy(r->out.writer, r->err));
	TSR_TRY(tsr_checkpoint_check_unchanged(r->c, r->err));
	return tsr_writer_publish(r->out.writer, r->err);
}

static enum tsr_status run_recoding(struct recoding *r, struct tsr_unpacking *u)
{
	enum tsr_status status;

	TSR_TRY(tsr_packed_output_open(&r->out, false, r->err));
	TSR_TRY(tsr_packed_output_find_model(&r->out, r->err));
	TSR_TRY(tsr_packed_output_name_inputs(&r->out, r->c, r->err));
	TSR_TRY(tsr_tree_attach(r->c, r->err));
	TSR_TRY(tsr_build_index(r->c, r->err));
	TSR_TRY(tsr_packed_output_plan(&r->out, r->err));
	u->plain_nbytes = tsr_writer_nbytes(r->out.writer);
	if (!r->out.options->dry_run)
		TSR_TRY(tsr_written_delta_init(&u->delta, &r->out.source.base, r->c->ntensors,
					       r->err));
	status = write_out(r);
	u->nbytes = tsr_writer_nbytes(r->out.writer);
	tsr_written_delta_take(&u->delta, r->out.writer, r->c->ntensors);
	return status;
}

enum tsr_status tsr_recode_checkpoint(struct tsr_checkpoint *c, const char *out,
				      const struct tsr_recode_options *options,
				      const struct tsr_run *run, struct tsr_unpacking **ret,
				      struct tsr_err *err)
{
	const struct tsr_pack_options o = {
		.coded = options->delta && options->coded == TSR_CODED_NONE ? TSR_CODED_ALL
									    : options->coded,
		.max_shard_nbytes = options->max_shard_nbytes,
		.weights_out = options->weights_out,
		.open = options->open,
		.force = options->force,
		.dry_run = options->dry_run,
		.delta = options->delta,
		.max_chain = options->max_chain,
		.base_levels = options->base_levels,
		.meta_order = true,
	};
	struct recoding r = { .c = c, .out = { c, &o, run, out, .base = NULL }, .err = err };
	TSR_OWNED(free) struct tsr_unpacking *u = NULL;
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&u, 1, err, out));
	u->source = c;
	u->container = TSR_CONTAINER_SAFETENSORS;
	status = run_recoding(&r, u);
	tsr_packed_output_free(&r.out);
	if (tsr_is_written(status)) {
		*ret = u;
		u = NULL;
	} else {
		tsr_written_delta_free(&u->delta);
	}
	return status;
}

enum tsr_status tsr_recode(const char *path, const char *out,
			   const struct tsr_recode_options *options, const struct tsr_run *run,
			   struct tsr_unpacking **ret, struct tsr_err *err)
{
	struct tsr_recode_options o = tsr_recode_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_checkpoint_open(&path, 1, o.open, &c, err));
	status = c->packed ? tsr_recode_checkpoint(c, out, &o, run, ret, err)
			   : tsr_fail_hint(err, TSR_E_UNSUPPORTED, TSR_HINT_PACK_CODED,
					   "%s: is not a packed file", path);
	c = tsr_is_written(status) ? NULL : c;
	return status;
}
