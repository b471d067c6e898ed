/* SPDX-License-Identifier: Apache-2.0 */
/* A recording with its gradients entropy coded, or plain again, file by file under the same names. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/checkpoint_model.h"
#include "directory/by_file.h"
#include "directory/dir_target.h"
#include "directory/stored.h"
#include "io/dir.h"
#include "pack/packing.h"
#include "recording/recording_data.h"

struct recoding {
	struct tsr_recording_data *recording;
	struct tsr_directory *d; /* an entry for each node below the recording */
	const struct tsr_recode_options *options;
	struct tsr_directory_watch watch;
	struct tsr_by_file by_file;
	struct tsr_err *err;
};

/* --- What becomes of a file --------------------------------------------------------------------- */

/* A gradient is a gradient, whatever it is called: nothing may be lost. */
static bool is_lossless(const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		if (c->tensors[i].coding.codec)
			return false;
	}
	return true;
}

/* Why a file of gradients is only copied; NULL: it is worth a try. */
static const char *why_not(const struct recoding *r, const struct tsr_checkpoint *c)
{
	if (c->container != TSR_CONTAINER_SAFETENSORS)
		return "not safetensors";
	if (r->options->coded != TSR_CODED_NONE)
		return c->packed ? "packed already" : NULL;
	if (!c->packed)
		return "plain already";
	return is_lossless(c) ? NULL : "packed in a codec with loss";
}

static enum tsr_status look(struct recoding *r, struct tsr_directory_entry *e, const char *path)
{
	struct tsr_checkpoint *c = NULL;
	const char *why;

	TSR_TRY(tsr_checkpoint_open(&path, 1, &r->recording->options, &c, r->err));
	why = why_not(r, c);
	if (why)
		e->reason = why;
	else
		e->as = TSR_STORED_PACKED;
	e->container = c->container;
	tsr_checkpoint_close(c);
	return TSR_OK;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of all files of steps, sorted, to be freed. */
static enum tsr_status list_files(const struct recoding *r, const char ***ret, size_t *n_ret)
{
	const struct tsr_recording *recording = &r->recording->pub;
	size_t n = 0;

	for (size_t i = 0; i < recording->nsteps; i++)
		n += recording->steps[i].nfiles;
	*ret = calloc(n + 1, sizeof(**ret));
	if (!*ret)
		return tsr_fail_nomem(r->err, recording->path);
	*n_ret = 0;
	for (size_t i = 0; i < recording->nsteps; i++) {
		for (size_t k = 0; k < recording->steps[i].nfiles; k++)
			(*ret)[(*n_ret)++] = recording->steps[i].files[k];
	}
	qsort(*ret, *n_ret, sizeof(**ret), compare_names);
	return TSR_OK;
}

static enum tsr_status plan_entry(struct recoding *r, const struct tsr_node *node,
				  const char *const *files, size_t nfiles)
{
	struct tsr_directory_entry *e = &r->d->entries[r->d->n++];
	char *path;
	enum tsr_status status;

	*e = (struct tsr_directory_entry){ .path = tsr_directory_join(r->d, node->path, ""),
					   .as = node->is_directory ? TSR_STORED_DIRECTORY
								    : TSR_STORED_COPY,
					   .mode = node->mode,
					   .nbytes = node->nbytes,
					   .stored_nbytes = node->nbytes };
	if (!e->path)
		return tsr_directory_nomem(r->d, r->err);
	if (node->is_directory || !bsearch(&e->path, files, nfiles, sizeof(*files), compare_names))
		return TSR_OK;
	path = tsr_path_join(r->d->path, e->path);
	status = path ? look(r, e, path) : tsr_fail_nomem(r->err, r->d->path);
	free(path);
	return status;
}

static enum tsr_status plan(struct recoding *r)
{
	const char *path = r->recording->pub.path, **files = NULL;
	struct tsr_nodes nodes = { 0 };
	enum tsr_status status;
	size_t nfiles = 0;

	TSR_TRY(tsr_nodes_list(path, r->recording->options.follow, &nodes, r->err));
	status = tsr_directory_new(path, nodes.n, &r->d, r->err);
	if (status == TSR_OK)
		status = tsr_node_mode(path, &r->d->mode, r->err);
	if (status == TSR_OK)
		status = list_files(r, &files, &nfiles);
	for (size_t i = 0; i < nodes.n && status == TSR_OK; i++)
		status = plan_entry(r, &nodes.list[i], files, nfiles);
	free(files);
	tsr_nodes_free(&nodes);
	return status;
}

/* --- One file ----------------------------------------------------------------------------------- */

static enum tsr_status copy(struct recoding *r, struct tsr_directory_entry *e, const char *to)
{
	const struct tsr_place_in from = { r->d->path, e->path, r->recording->options.follow };
	struct tsr_stored_file copied = { 0 };

	e->as = TSR_STORED_COPY;
	TSR_TRY(tsr_copy_file(&r->by_file, &from, to, &copied, r->err));
	e->stored_nbytes = copied.nbytes;
	return TSR_OK;
}

static enum tsr_status pack(struct recoding *r, const char *from, const char *to,
			    struct tsr_packing **ret)
{
	const struct tsr_name_rule raw = { ".*", TSR_KIND_OTHER };
	struct tsr_pack_options o = tsr_pack_defaults();
	bool matched = false;

	o.rules = &raw;
	o.nrules = 1;
	o.rules_matched = &matched;
	o.open = &r->recording->options;
	o.coded = TSR_CODED_ALL;
	o.meta_order = true;
	return tsr_by_file_settle(
		&r->by_file, tsr_pack(&from, 1, to, &o, tsr_by_file_run(&r->by_file), ret, r->err));
}

/* Whether what was coded is worth keeping: the reason if it is not. */
static enum tsr_status judge(struct recoding *r, struct tsr_directory_entry *e, const char *to,
			     const struct tsr_packing *packing)
{
	const struct tsr_place_in from = { r->d->path, e->path, r->recording->options.follow };
	struct tsr_file *f = NULL;
	enum tsr_status status;
	bool same = false;

	e->stored_nbytes = tsr_packing_nbytes(packing);
	if (e->stored_nbytes >= e->nbytes) {
		e->reason = "coding does not make it smaller";
		return TSR_OK;
	}
	TSR_TRY(tsr_open_below(&from, &f, r->err));
	status = tsr_unpacks_to(to, &r->recording->options, f, &same, r->err);
	tsr_file_close(f);
	if (!same)
		e->reason = "its header would not come back as it is";
	return status;
}

static enum tsr_status code(struct recoding *r, struct tsr_directory_entry *e, const char *from,
			    const char *to)
{
	struct tsr_packing *packing = NULL;
	enum tsr_status status = pack(r, from, to, &packing);

	if (status == TSR_OK)
		status = judge(r, e, to, packing);
	if (status == TSR_OK && e->reason) {
		(void)tsr_dir_remove_file(to);
		status = copy(r, e, to);
	}
	if (status == TSR_OK && !e->reason && r->watch.packed)
		r->watch.packed(r->watch.ctx, e, packing);
	tsr_packing_free(packing);
	return status;
}

static enum tsr_status decode(struct recoding *r, struct tsr_directory_entry *e, const char *from,
			      const char *to)
{
	struct tsr_write_options o = tsr_write_defaults();
	struct tsr_unpacking *u = NULL;

	o.open = &r->recording->options;
	o.container = TSR_CONTAINER_SAFETENSORS;
	TSR_TRY(tsr_by_file_settle(
		&r->by_file, tsr_unpack(from, to, &o, tsr_by_file_run(&r->by_file), &u, r->err)));
	e->stored_nbytes = tsr_unpacking_nbytes(u);
	if (r->watch.unpacked)
		r->watch.unpacked(r->watch.ctx, e, u);
	tsr_unpacking_free(u);
	return TSR_OK;
}

/* --- The directory ------------------------------------------------------------------------------ */

static enum tsr_status write_file(struct recoding *r, struct tsr_directory_entry *e, const char *to)
{
	char *from = tsr_path_join(r->d->path, e->path);
	enum tsr_status status;

	if (!from)
		return tsr_fail_nomem(r->err, r->d->path);
	if (e->as != TSR_STORED_PACKED)
		status = copy(r, e, to);
	else if (r->options->coded == TSR_CODED_NONE)
		status = decode(r, e, from, to);
	else
		status = code(r, e, from, to);
	if (status == TSR_OK)
		status = tsr_dir_set_mode(to, e->mode, r->err);
	free(from);
	return status;
}

static enum tsr_status write_all(struct recoding *r, const char *out)
{
	for (size_t i = 0; i < r->d->n; i++) {
		struct tsr_directory_entry *e = &r->d->entries[i];
		enum tsr_status status;
		char *to;

		TSR_TRY(tsr_by_file_next(&r->by_file, e->nbytes, r->err));
		to = tsr_path_join(out, e->path);
		if (!to)
			return tsr_fail_nomem(r->err, out);
		status = e->as == TSR_STORED_DIRECTORY ? tsr_dir_make(to, r->err)
						       : write_file(r, e, to);
		free(to);
		TSR_TRY(status);
	}
	return tsr_by_file_next(&r->by_file, 0, r->err);
}

static enum tsr_status run_recoding(struct recoding *r, const char *out, const struct tsr_run *run)
{
	const struct tsr_dir_target target = { .path = out, .force = r->options->force };
	struct tsr_outdir *made = NULL;
	enum tsr_status status;
	uint64_t nbytes = 0;

	TSR_TRY(plan(r));
	for (size_t i = 0; i < r->d->n; i++)
		nbytes += r->d->entries[i].nbytes;
	TSR_TRY(tsr_dir_check_target(r->d, &target, nbytes, r->err));
	if (r->options->dry_run)
		return TSR_OK;
	tsr_by_file_start(&r->by_file, run, r->d->path, nbytes);
	TSR_TRY(tsr_dir_start(r->d, &target, &made, r->err));
	status = write_all(r, tsr_outdir_path(made));
	return tsr_dir_end(r->d, &target, made, status, r->err);
}

enum tsr_status tsr_recode_recording(const char *path, const char *out,
				     const struct tsr_recode_options *options,
				     const struct tsr_directory_watch *watch,
				     const struct tsr_run *run, struct tsr_directory **ret,
				     struct tsr_err *err)
{
	struct tsr_recode_options o = tsr_recode_defaults();
	struct recoding r = { .options = &o, .watch = tsr_directory_watch_defaults(), .err = err };
	struct tsr_recording *recording = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_options_take(&r.watch, watch, err));
	if (o.max_shard_nbytes || o.weights_out || o.coded == TSR_CODED_STATES)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: is a recording: its files stay files, coded whole or plain",
				path);
	TSR_TRY(tsr_recording_open(path, o.open, &recording, err));
	r.recording = (struct tsr_recording_data *)recording;
	status = run_recoding(&r, out, run);
	if (status == TSR_OK)
		status = tsr_directory_durability(out, r.by_file.doubt, err);
	tsr_recording_close(recording);
	if (status == TSR_OK || status == TSR_E_DURABILITY)
		*ret = r.d;
	else
		tsr_directory_close(r.d);
	return status;
}
