/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files, directories of them and recordings whose planes are coded, or no longer. */
#include "cli/operations.h"

#include "io/dir.h"
#include "report/checkpoints/checkpoint_reports.h"

enum tsr_coded_planes cli_coded_planes(const struct cli_optional *entropy)
{
	if (!entropy->given)
		return TSR_CODED_NONE;
	return entropy->value && strcmp(entropy->value, "states") == 0 ? TSR_CODED_STATES
								       : TSR_CODED_ALL;
}

/* --- Deltas -------------------------------------------------------------------------------------- */

int cli_check_delta(const struct cli_common *common, const struct tsr_checkpoint *source,
		    const struct tsr_written_delta *d, const char *base, bool strict)
{
	if (!d->base.name || common->dry_run)
		return CLI_OK;
	if (base)
		cli_warn_not_beside(common, base);
	if (tsr_written_delta_differs(d, source->ntensors))
		return CLI_OK;
	cli_warn(common,
		 "%s: is no smaller than without --delta: %s has no plane of the same tensor, "
		 "shape and coding from which a plane differs little",
		 common->output, d->base.name);
	return strict ? CLI_DIFFERS : CLI_OK;
}

int cli_check_base(const struct cli_cmd *cmd, const char *base, bool model)
{
	const struct tsr_directory_entry *e;
	TSR_OWNED(tsr_directory_close) struct tsr_directory *d = NULL;
	struct tsr_err err = { 0 };

	if (!tsr_directory_is_packed(base))
		return CLI_OK;
	if (tsr_directory_open(base, &d, &err) != TSR_OK)
		return cli_error(&err);
	for (size_t i = 0; (e = tsr_directory_entry(d, i)) != NULL; i++) {
		for (unsigned k = 0; k < e->nstored && e->as == TSR_STORED_PACKED; k++) {
			const char *path = e->stored[k].path;

			if (tsr_dir_name_ends_with(path, TSR_DIRECTORY_SUFFIX) == !model)
				return cli_usage(cmd,
						 "--delta: %s is a packed directory, and a base is "
						 "one file, such as %s/%s",
						 base, base, path);
		}
	}
	return CLI_OK;
}

/* --- Recoding ------------------------------------------------------------------------------------ */

int cli_recode(const struct cli_cmd *cmd, const struct cli_common *common,
	       struct tsr_recode_options *how, bool strict)
{
	struct cli_unpacking done = { .report = tsr_recoding_report };
	const char *path = common->operands.items[0];
	struct cli_work work;

	how->open = &common->open;
	how->force = common->force;
	how->dry_run = common->dry_run;
	if (tsr_directory_is_packed(path) || tsr_recording_probe(path))
		return cli_recode_files(cmd, common, how, strict);
	how->max_shard_nbytes = common->max_shard;
	CLI_TRY(cli_work_open(&work, cmd, common, "coding"));
	done.written = cli_work_end(
		&work, tsr_recode(path, common->output, how, &work.run, &done.u, &work.err));
	done.err = &work.err;
	done.differs = done.u && cli_check_delta(common, done.u->source, &done.u->delta, how->delta,
						 strict) != CLI_OK;
	return cli_end_unpacking(cmd, common, &done);
}
