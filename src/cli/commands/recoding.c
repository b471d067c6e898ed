/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files, directories of them and recordings whose planes are coded, or no longer. */
#include "cli/operations.h"

#include "cli/files.h"
#include "io/dir.h"

enum tsr_coded_planes cli_coded_planes(const struct cli_optional *entropy)
{
	if (!entropy->given)
		return TSR_CODED_NONE;
	return entropy->value && strcmp(entropy->value, "states") == 0 ? TSR_CODED_STATES
								       : TSR_CODED_ALL;
}

void cli_put_coded(struct tsr_text *out, uint64_t nbytes, uint64_t plain_nbytes, bool dry_run)
{
	if (dry_run)
		tsr_text_puts(out, "entropy coding: makes it smaller, by how much shows when it is "
				   "done\n");
	else
		tsr_text_printf(out, "entropy coding: %s before, %.1f%% of that\n",
				tsr_format_bytes((double)plain_nbytes).text,
				plain_nbytes ? 100.0 * (double)nbytes / (double)plain_nbytes
					     : 100.0);
}

/* --- Deltas -------------------------------------------------------------------------------------- */

void cli_report_delta(struct tsr_report *r, const struct tsr_checkpoint *source,
		      const struct tsr_written_delta *d)
{
	uint64_t nbytes[2] = { 0 };
	struct tsr_table t = { 0 };
	size_t n[2] = { 0 };

	if (!d->base.name)
		return;
	for (size_t i = 0; i < source->ntensors * TSR_PLANES_MAX; i++) {
		const struct tsr_written_plane *w = &d->planes[i];
		const struct tsr_tensor *x = &source->tensors[TSR_TAG_TENSOR(i)];
		const unsigned plane = TSR_TAG_PLANE(i);

		if (!w->nbytes)
			continue;
		nbytes[w->differs] += w->nbytes;
		n[w->differs]++;
		tsr_row(&t);
		TSR_CELL(&t, "tensor", NULL, x->name);
		TSR_CELL(&t, "plane", NULL, plane);
		TSR_CELL(&t, "-how", "plane:12", w->differs ? "differs" : "on its own");
		TSR_CELL(&t, "nbytes", "stored:10B", w->nbytes);
		TSR_CELL(&t, "-name", "of",
			 tsr_keepf(&t, "%s%s", tsr_format_name(x->name, 46).text,
				   x->coding.codec ? x->coding.codec->planes[plane].suffix : ""));
		TSR_CELL(&t, "differs", NULL, w->differs);
	}
	tsr_json_open(&r->json, "delta", '{');
	tsr_json_put_string(&r->json, "base", d->base.name);
	tsr_json_put_u64(&r->json, "depth", d->base.depth);
	tsr_report_rows(r, t, "planes", r->verbose ? "-how,nbytes,-name" : NULL);
	tsr_json_close(&r->json, '}');
	tsr_text_printf(&r->text, "delta to %s, number %u of its chain: %zu planes differ, %s",
			tsr_format_name(d->base.name, 40).text, d->base.depth, n[1],
			tsr_format_bytes((double)nbytes[1]).text);
	tsr_text_printf(&r->text, "; %zu stand on their own, %s\n", n[0],
			tsr_format_bytes((double)nbytes[0]).text);
}

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
	struct tsr_directory *d = NULL;
	struct tsr_err err = { 0 };
	int status = CLI_OK;

	if (!tsr_directory_is_packed(base))
		return CLI_OK;
	if (tsr_directory_open(base, &d, &err) != TSR_OK)
		return cli_error(&err);
	for (size_t i = 0; status == CLI_OK && (e = tsr_directory_entry(d, i)) != NULL; i++) {
		for (unsigned k = 0; k < e->nstored && e->as == TSR_STORED_PACKED; k++) {
			const char *path = e->stored[k].path;

			if (tsr_dir_name_ends_with(path, TSR_DIRECTORY_SUFFIX) != !model)
				continue;
			status = cli_usage(cmd,
					   "--delta: %s is a packed directory, and a base is one "
					   "file, such as %s/%s",
					   base, base, path);
			break;
		}
	}
	tsr_directory_close(d);
	return status;
}

/* --- Reports ------------------------------------------------------------------------------------- */

static void report(struct tsr_report *r, const struct cli_common *common,
		   const struct tsr_unpacking *u)
{
	uint64_t parameters = 0, before = 0;

	/* Elements of the weights: what bytes per parameter are relative to. */
	for (size_t i = 0; i < u->source->ntensors; i++) {
		const struct tsr_tensor *t = &u->source->tensors[i];

		parameters += t->kind == TSR_KIND_WEIGHT ? t->numel : 0;
		before += tsr_tensor_stored_nbytes(u->source, t);
	}
	cli_json_output(&r->json, common);
	tsr_json_put_u64(&r->json, "nbytes", u->nbytes);
	tsr_json_put_u64(&r->json, "plain_nbytes", u->plain_nbytes);
	tsr_json_put_u64(&r->json, "before_nbytes", before);
	tsr_json_put_u64(&r->json, "parameters", parameters);
	tsr_json_put_u64(&r->json, "generation", u->source->generation);
	tsr_text_printf(&r->text, "%s: packed, %zu tensors, %s%s", cli_output_name(common, 40).text,
			u->source->ntensors, tsr_format_bytes((double)u->nbytes).text,
			common->dry_run ? " planned before coding" : "");
	if (parameters && !common->dry_run)
		tsr_text_printf(&r->text, ", %.3f bytes per parameter, %.3f before",
				(double)u->nbytes / (double)parameters,
				(double)before / (double)parameters);
	tsr_text_puts(&r->text, "\n");
	cli_report_delta(r, u->source, &u->delta);
}

/* What tsr_recode() is given, and --strict. */
struct recoding {
	const struct tsr_recode_options *how;
	bool strict;
};

static int check(const struct cli_common *common, const void *options,
		 const struct tsr_unpacking *u)
{
	const struct recoding *r = options;

	return cli_check_delta(common, u->source, &u->delta, r->how->delta, r->strict);
}

int cli_recode(const struct cli_cmd *cmd, const struct cli_common *common,
	       struct tsr_recode_options *how, bool strict)
{
	static const struct cli_unpacking coding = { NULL, report, check };
	const char *path = common->operands.items[0];
	const struct recoding r = { how, strict };
	struct tsr_unpacking *u = NULL;
	enum tsr_status written;
	struct cli_work work;

	how->open = &common->open;
	how->force = common->force;
	how->dry_run = common->dry_run;
	if (tsr_directory_is_packed(path) || tsr_recording_probe(path))
		return cli_recode_files(cmd, common, how, strict);
	how->max_shard_nbytes = common->max_shard;
	CLI_TRY(cli_work_open(&work, cmd, common, "coding"));
	written = tsr_recode(path, common->output, how, &work.run, &u, &work.err);
	return cli_end_unpacking(cmd, common, &coding, &r, &work, written, u);
}
