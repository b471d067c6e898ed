/* SPDX-License-Identifier: Apache-2.0 */
/* Packing a directory: files with tensors become packed files, others are copied. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "directory/plan.h"
#include "directory/dir_target.h"
#include "directory/shard_total.h"
#include "directory/stored.h"
#include "io/dir.h"
#include "names/name_rules.h"
#include "parts/part.h"

/* --- One file --------------------------------------------------------------------------------- */

/* Copy the file of an entry into the directory @out. */
static enum tsr_status copy(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
			    const char *out)
{
	const struct tsr_place_in from = { p->d->path, e->path, tsr_opens_links(p->options->open) };
	struct tsr_stored_file *stored = (struct tsr_stored_file *)e->stored;
	char *to = tsr_path_join(out, e->path);
	enum tsr_status status;

	if (!to)
		return tsr_fail_nomem(p->err, out);
	if (p->target.parts)
		(void)tsr_dir_remove_file(to);
	status = tsr_copy_file(&p->by_file, &from, to, stored, p->err);
	e->nbytes = stored->nbytes;
	e->stored_nbytes = stored->nbytes;
	if (status == TSR_OK)
		status = tsr_dir_set_mode(to, e->mode, p->err);
	free(to);
	return status;
}

static void remove_stored(const struct tsr_directory_entry *e, const char *out)
{
	for (unsigned i = 0; i < e->nstored; i++) {
		char *path = tsr_path_join(out, e->stored[i].path);

		if (path)
			(void)tsr_dir_remove_file(path);
		free(path);
	}
}

/* Copy the parts of a checkpoint that is not packed after all; the later ones have their turn. */
static enum tsr_status copy_parts(struct tsr_dir_packing *p,
				  const struct tsr_directory_entry *metadata, const char *out)
{
	if (metadata->container != TSR_CONTAINER_DCP)
		return TSR_OK;
	tsr_dir_settle_parts(p, metadata, TSR_STORED_COPY);
	for (struct tsr_directory_entry *e = p->d->entries; e != metadata; e++) {
		if (tsr_directory_is_part(metadata, e->path) && e->as == TSR_STORED_COPY)
			TSR_TRY(copy(p, e, out));
	}
	return TSR_OK;
}

/* Keep what packing made, or copy if it turned out not to be worth it. */
static enum tsr_status keep_or_copy(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
				    const char *out, const struct tsr_packing *packing)
{
	const char *reason;

	e->generation = tsr_packing_generation(packing);
	TSR_TRY(tsr_stored_finish(e, out, p->err));
	reason = tsr_dir_no_gain(p, e, packing);
	if (reason) {
		remove_stored(e, out);
		TSR_TRY(tsr_dir_plan_copy(p, e, reason));
		TSR_TRY(copy(p, e, out));
		TSR_TRY(copy_parts(p, e, out));
	}
	if (p->watch.packed)
		p->watch.packed(p->watch.ctx, e, packing);
	return TSR_OK;
}

static enum tsr_status run_pack(struct tsr_dir_packing *p, const char *from, const char *to,
				const char *weights_out, struct tsr_packing **ret)
{
	const struct tsr_pack_options o = tsr_dir_file_options(p, weights_out);
	const struct tsr_run *run = tsr_by_file_run(&p->by_file);

	return tsr_by_file_settle(&p->by_file, tsr_pack(&from, 1, to, &o, run, ret, p->err));
}

static enum tsr_status pack(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
			    const char *out)
{
	char *from = tsr_directory_source(p->d->path, e);
	char *to = tsr_path_join(out, tsr_opened_file(e)->path);
	char *weights = e->nstored > 1 ? tsr_path_join(out, e->stored[0].path) : NULL;
	struct tsr_packing *packing = NULL;
	enum tsr_status status;

	if (!from || !to || (e->nstored > 1 && !weights))
		status = tsr_fail_nomem(p->err, out);
	else
		status = run_pack(p, from, to, weights, &packing);
	if (status == TSR_OK && packing)
		status = keep_or_copy(p, e, out, packing);
	tsr_packing_free(packing);
	free(from);
	free(to);
	free(weights);
	return status;
}

/* --- The directory ---------------------------------------------------------------------------- */

static enum tsr_status write_entry(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
				   const char *out)
{
	enum tsr_status status;
	char *path;

	tsr_part_next_file(p->target.parts);
	TSR_TRY(tsr_by_file_next(
		&p->by_file, e->as == TSR_STORED_PART ? 0 : tsr_dir_source_nbytes(p, e), p->err));
	if (e->as == TSR_STORED_PACKED)
		return pack(p, e, out);
	/* Copies are of who joins the parts. */
	if (e->as == TSR_STORED_COPY)
		return tsr_part_is_one(p->target.parts) ? TSR_OK : copy(p, e, out);
	if (e->as == TSR_STORED_PART)
		return TSR_OK;
	path = tsr_path_join(out, e->path);
	status = path ? tsr_dir_make_in(&p->target, path, p->err) : tsr_fail_nomem(p->err, out);
	free(path);
	return status;
}

static enum tsr_status write_all(struct tsr_dir_packing *p, const char *out)
{
	for (size_t i = 0; i < p->d->n; i++)
		TSR_TRY(write_entry(p, &p->d->entries[i], out));
	tsr_part_end_files(p->target.parts);
	TSR_TRY(tsr_part_end(p->target.parts, p->err));
	TSR_TRY(tsr_dir_remove_index(&p->target, out, p->err));
	TSR_TRY(tsr_correct_totals(p->d, out, &p->by_file, p->err));
	TSR_TRY(tsr_by_file_settle(&p->by_file, tsr_directory_write_index(p->d, out, p->err)));
	TSR_TRY(tsr_nodes_check_unchanged(&p->nodes, p->d->path, tsr_opens_links(p->options->open),
					  p->err));
	return tsr_by_file_next(&p->by_file, 0, p->err);
}

/* Bytes to read, and to write. */
static enum tsr_status add_up(struct tsr_dir_packing *p, uint64_t *in, uint64_t *out)
{
	TSR_TRY(tsr_directory_measure_index(p->d, p->err));
	*in = 0;
	*out = p->d->index_nbytes;
	for (size_t i = 0; i < p->d->n; i++) {
		*in += p->d->entries[i].nbytes;
		*out += p->d->entries[i].stored_nbytes;
	}
	return TSR_OK;
}

static enum tsr_status run_packing(struct tsr_dir_packing *p, const char *out,
				   const struct tsr_run *run)
{
	uint64_t nbytes_in, nbytes_out;
	struct tsr_outdir *made = NULL;
	enum tsr_status status;

	p->target = (struct tsr_dir_target){ out, true, p->options->force,
					     run ? run->parts : NULL };
	TSR_TRY(tsr_dir_check_target(p->d, &p->target, 0, p->err));
	tsr_by_file_start(&p->by_file, run, p->d->path, 0);
	TSR_TRY(tsr_dir_plan(p));
	if (p->options->strict && p->options->rules_matched)
		TSR_TRY(tsr_name_rules_strict(p->options->rules, p->options->nrules,
					      p->options->rules_matched, p->d->path, p->err));
	TSR_TRY(add_up(p, &nbytes_in, &nbytes_out));
	TSR_TRY(tsr_dir_check_target(p->d, &p->target, nbytes_out, p->err));
	if (p->options->dry_run)
		return TSR_OK;
	tsr_by_file_start(&p->by_file, run, p->d->path, nbytes_in);
	TSR_TRY(tsr_dir_start(p->d, &p->target, &made, p->err));
	status = write_all(p, tsr_outdir_path(made));
	return tsr_dir_end(p->d, &p->target, made, status, p->err);
}

static enum tsr_status check_input(const char *path, const struct tsr_pack_options *o,
				   struct tsr_err *err)
{
	if (!tsr_dir_is(path))
		return tsr_fail(err, TSR_E_USAGE, "%s: is not a directory", path);
	if (o->max_shard_nbytes)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: files of a packed directory are not split into shards", path);
	if (o->choice && o->choice->max_nbytes)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: a number of bytes is for one packed file; each file of a "
				"directory has its own",
				path);
	if (tsr_directory_is_packed(path))
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: has a file " TSR_DIRECTORY_INDEX
				", so it is a packed directory already",
				path);
	return TSR_OK;
}

enum tsr_status tsr_pack_directory(const char *path, const char *out,
				   const struct tsr_pack_options *options,
				   const struct tsr_directory_watch *watch,
				   const struct tsr_run *run, struct tsr_directory **ret,
				   struct tsr_err *err)
{
	struct tsr_pack_options o = tsr_pack_defaults();
	struct tsr_open_options open;
	struct tsr_err own = { 0 };
	struct tsr_dir_packing p = { .options = &o,
				     .watch = tsr_directory_watch_defaults(),
				     .err = err ? err : &own };
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_directory_open_options(&open, o.open, err));
	o.open = &open;
	TSR_TRY(tsr_options_take(&p.watch, watch, err));
	TSR_TRY(check_input(path, &o, err));
	TSR_TRY(tsr_nodes_list(path, tsr_opens_links(o.open), &p.nodes, err));
	status = tsr_directory_new(path, p.nodes.n, &p.d, err);
	if (status == TSR_OK)
		status = tsr_node_mode(path, &p.d->mode, err);
	if (status == TSR_OK)
		status = run_packing(&p, out, run);
	if (status == TSR_OK)
		status = tsr_directory_durability(out, p.by_file.doubt, err);
	tsr_nodes_free(&p.nodes);
	if (status == TSR_OK || status == TSR_E_DURABILITY)
		*ret = p.d;
	else
		tsr_directory_close(p.d);
	return status;
}
