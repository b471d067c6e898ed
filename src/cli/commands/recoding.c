/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files, directories of them and recordings whose planes are coded, or no longer. */
#include "cli/commands/recoding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "cli/directory_report.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/work.h"
#include "io/dir.h"
#include "io/temporary.h"
#include "pack/packing.h"
#include "report/render/format.h"
#include "tersor/recording.h"
#include "text/json.h"

enum tsr_coded_planes cli_coded_planes(const struct cli_optional *entropy)
{
	return entropy->value && strcmp(entropy->value, "states") == 0 ? TSR_CODED_STATES
								       : TSR_CODED_ALL;
}

void cli_put_coded(uint64_t nbytes, uint64_t plain_nbytes, bool dry_run)
{
	if (dry_run)
		printf("entropy coding: makes it smaller, by how much shows when it is done\n");
	else
		printf("entropy coding: %s before, %.1f%% of that\n",
		       tsr_format_bytes((double)plain_nbytes).text,
		       plain_nbytes ? 100.0 * (double)nbytes / (double)plain_nbytes : 100.0);
}

/* --- Deltas -------------------------------------------------------------------------------------- */

static const char *suffix_of(const struct tsr_tensor *t, unsigned plane)
{
	return t->coding.codec ? t->coding.codec->planes[plane].suffix : "";
}

static void print_planes(const struct tsr_checkpoint *source, const struct tsr_written_delta *d)
{
	for (size_t i = 0; i < source->ntensors; i++) {
		const struct tsr_tensor *t = &source->tensors[i];

		for (unsigned p = 0; p < t->nplanes; p++) {
			const struct tsr_written_plane *w = &d->planes[TSR_ARRAY_TAG(i, p)];

			if (w->nbytes)
				printf("  %-12s %10s  %s%s\n",
				       w->differs ? "differs" : "on its own",
				       tsr_format_bytes((double)w->nbytes).text,
				       tsr_format_name(t->name, 46).text, suffix_of(t, p));
		}
	}
}

void cli_put_delta(const struct cli_common *common, const struct tsr_checkpoint *source,
		   const struct tsr_written_delta *d)
{
	uint64_t nbytes[2] = { 0 };
	size_t n[2] = { 0 };

	if (!d->base.name)
		return;
	if (common->verbose)
		print_planes(source, d);
	for (size_t i = 0; i < source->ntensors * TSR_PLANES_MAX; i++) {
		nbytes[d->planes[i].differs] += d->planes[i].nbytes;
		n[d->planes[i].differs] += d->planes[i].nbytes != 0;
	}
	printf("delta to %s, number %u of its chain: %zu planes differ, %s",
	       tsr_format_name(d->base.name, 40).text, d->base.depth, n[1],
	       tsr_format_bytes((double)nbytes[1]).text);
	printf("; %zu stand on their own, %s\n", n[0], tsr_format_bytes((double)nbytes[0]).text);
}

static bool is_beside(const char *base, const char *out)
{
	char *directory = tsr_path_directory(out);
	char *path = directory ? tsr_path_join(directory, tsr_path_name(base)) : NULL;
	const bool beside = path && cli_same_file(path, base);

	free(path);
	free(directory);
	return beside;
}

int cli_check_delta(const struct cli_common *common, const struct tsr_checkpoint *source,
		    const struct tsr_written_delta *d, const char *base, bool strict)
{
	if (!d->base.name || common->dry_run)
		return CLI_OK;
	if (base && strcmp(common->output, TSR_STANDARD_OUTPUT) != 0 &&
	    !is_beside(base, common->output))
		cli_warn(common,
			 "%s: its base is not beside it: move it to where %s is, or read it with "
			 "--base",
			 common->output, base);
	for (size_t i = 0; i < source->ntensors * TSR_PLANES_MAX; i++) {
		if (d->planes[i].differs)
			return CLI_OK;
	}
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

void cli_json_delta(struct tsr_text *json, const struct tsr_checkpoint *source,
		    const struct tsr_written_delta *d)
{
	if (!d->base.name)
		return;
	tsr_json_open(json, "delta", '{');
	tsr_json_put_string(json, "base", d->base.name);
	tsr_json_put_u64(json, "depth", d->base.depth);
	tsr_json_open(json, "planes", '[');
	for (size_t i = 0; i < source->ntensors * TSR_PLANES_MAX; i++) {
		const struct tsr_tensor *t = &source->tensors[TSR_TAG_TENSOR(i)];

		if (!d->planes[i].nbytes)
			continue;
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "tensor", t->name);
		tsr_json_put_u64(json, "plane", TSR_TAG_PLANE(i));
		tsr_json_put_u64(json, "nbytes", d->planes[i].nbytes);
		tsr_json_put_bool(json, "differs", d->planes[i].differs);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

/* --- Reports ------------------------------------------------------------------------------------- */

/* Elements of the weights: what bytes per parameter are relative to. */
static uint64_t count_parameters(const struct tsr_checkpoint *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->ntensors; i++)
		n += c->tensors[i].kind == TSR_KIND_WEIGHT ? c->tensors[i].numel : 0;
	return n;
}

static uint64_t stored_nbytes(const struct tsr_checkpoint *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->ntensors; i++)
		n += tsr_tensor_stored_nbytes(c, &c->tensors[i]);
	return n;
}

static void print_report(const struct cli_common *common, const struct tsr_unpacking *u)
{
	const uint64_t parameters = count_parameters(u->source);

	printf("%s: packed, %zu tensors, %s%s", cli_output_name(common, 40).text,
	       u->source->ntensors, tsr_format_bytes((double)u->nbytes).text,
	       common->dry_run ? " planned before coding" : "");
	if (parameters && !common->dry_run)
		printf(", %.3f bytes per parameter, %.3f before",
		       (double)u->nbytes / (double)parameters,
		       (double)stored_nbytes(u->source) / (double)parameters);
	printf("\n");
	cli_put_delta(common, u->source, &u->delta);
}

static int report_json(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_unpacking *u)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	cli_json_inputs(&json, common);
	cli_json_output(&json, common);
	tsr_json_put_u64(&json, "nbytes", u->nbytes);
	tsr_json_put_u64(&json, "plain_nbytes", u->plain_nbytes);
	tsr_json_put_u64(&json, "before_nbytes", stored_nbytes(u->source));
	tsr_json_put_u64(&json, "parameters", count_parameters(u->source));
	tsr_json_put_u64(&json, "generation", u->source->generation);
	cli_json_delta(&json, u->source, &u->delta);
	cli_json_tensors(&json, u->source, NULL, NULL);
	return cli_json_end(&json, common);
}

int cli_recode(const struct cli_cmd *cmd, const struct cli_common *common,
	       struct tsr_recode_options *how, bool strict)
{
	struct tsr_unpacking *u = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status written;
	struct cli_work work;
	int status = CLI_OK, checked;

	how->max_shard_nbytes = common->max_shard;
	how->open = &common->open;
	how->force = common->force;
	how->dry_run = common->dry_run;
	CLI_TRY(cli_work_open(&work, cmd, common, "coding"));
	written = tsr_recode(common->operands.items[0], common->output, how, &work.run, &u, &err);
	cli_work_end(&work);
	if (!u)
		return cli_error(&err);
	cli_warn_notes(common, u->source);
	checked = cli_check_delta(common, u->source, &u->delta, how->delta, strict);
	if (cli_wants_text(common))
		print_report(common, u);
	if (common->json.given)
		status = report_json(cmd, common, u);
	tsr_unpacking_free(u);
	if (written != TSR_OK)
		return cli_error(&err);
	return status == CLI_OK ? checked : status;
}

/* --- Directories and recordings ----------------------------------------------------------------- */

struct many {
	const struct cli_common *common;
	uint64_t n; /* parameters, or elements of gradients, of the files that were written again */
	uint64_t nbytes, stored_nbytes; /* of these files */
};

static void add_entry(struct many *m, const struct tsr_directory_entry *e, uint64_t n)
{
	m->n += n;
	m->nbytes += e->nbytes;
	m->stored_nbytes += e->stored_nbytes;
}

/* A step of a recording. */
static void on_packed(void *ctx, const struct tsr_directory_entry *e, const struct tsr_packing *p)
{
	uint64_t n = 0;

	for (size_t i = 0; i < p->source->ntensors; i++)
		n += p->source->tensors[i].numel;
	add_entry(ctx, e, n);
}

static void on_unpacked(void *ctx, const struct tsr_directory_entry *e,
			const struct tsr_unpacking *u)
{
	struct many *m = ctx;

	(void)e;
	cli_warn_notes(m->common, u->source);
}

static void print_files(const struct cli_common *common, const struct tsr_directory *d,
			const struct many *m, const char *what)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(d);
	const struct tsr_directory_entry *e;

	for (size_t i = 0; common->verbose && (e = tsr_directory_entry(d, i)); i++) {
		if (e->as == TSR_STORED_PACKED || e->as == TSR_STORED_COPY)
			printf("  %-46s %-8s %8s%s%s\n", tsr_format_name(e->path, 46).text,
			       e->as == TSR_STORED_PACKED ? what : "copied",
			       tsr_format_bytes((double)e->stored_nbytes).text,
			       e->reason ? "  " : "", e->reason ? e->reason : "");
	}
	printf("%s: %zu file%s %s, %zu copied; %s%s\n", cli_output_name(common, 40).text,
	       sizes.npacked, sizes.npacked == 1 ? "" : "s", what, sizes.ncopied,
	       tsr_format_bytes((double)sizes.stored_nbytes).text,
	       common->dry_run ? " planned before coding" : "");
	if (m->n)
		printf("%.3f bytes per element of the gradients, %.3f before\n",
		       (double)m->stored_nbytes / (double)m->n, (double)m->nbytes / (double)m->n);
}

/* Files of gradients that stay as they were, when others do not. */
static void warn_copied(const struct cli_common *common, const struct tsr_directory *d)
{
	const struct tsr_directory_entry *e, *first = NULL;
	size_t n = 0;

	for (size_t i = 0; (e = tsr_directory_entry(d, i)); i++) {
		if (e->as == TSR_STORED_COPY && e->reason && !n++)
			first = e;
	}
	if (n)
		cli_warn(common, "%s: %zu file%s of gradients copied as %s, %s: %s",
			 tsr_directory_path(d), n, n == 1 ? "" : "s", n == 1 ? "it is" : "they are",
			 first->path, first->reason);
}

static int report_files(const struct cli_cmd *cmd, const struct many *m,
			const struct tsr_directory *d, const char *what)
{
	struct tsr_text json = { 0 };

	if (cli_wants_text(m->common))
		print_files(m->common, d, m, what);
	if (!m->common->json.given)
		return CLI_OK;
	cli_json_begin_part(&json, cmd, "directory");
	cli_json_inputs(&json, m->common);
	cli_json_output(&json, m->common);
	tsr_json_put_u64(&json, "gradients", m->n);
	cli_directory_put_json(&json, d, NULL);
	return cli_json_end(&json, m->common);
}

int cli_recode_files(const struct cli_cmd *cmd, const struct cli_common *common,
		     struct tsr_recode_options *how)
{
	const char *path = common->operands.items[0];
	const bool packed = tsr_directory_is_packed(path);
	struct many m = { .common = common };
	const struct tsr_directory_watch watch = {
		.size = sizeof(watch), .ctx = &m, .packed = on_packed, .unpacked = on_unpacked
	};
	struct tsr_directory *d = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status written;
	struct cli_work work;
	int status;

	if (common->max_shard)
		return cli_usage(cmd, "--max-shard-size splits one packed file, not a directory");
	how->open = &common->open;
	how->force = common->force;
	how->dry_run = common->dry_run;
	CLI_TRY(cli_work_open(&work, cmd, common, "coding"));
	written = packed ? tsr_recode_directory(path, common->output, how, &watch, &work.run, &d,
						&err)
			 : tsr_recode_recording(path, common->output, how, &watch, &work.run, &d,
						&err);
	cli_work_end(&work);
	if (!d)
		return cli_error(&err);
	if (!packed)
		warn_copied(common, d);
	if (tsr_directory_remark(d))
		cli_warn(common, "%s", tsr_directory_remark(d));
	status = report_files(cmd, &m, d, how->coded == TSR_CODED_NONE ? "plain" : "coded");
	tsr_directory_close(d);
	return written == TSR_OK ? status : cli_error(&err);
}
