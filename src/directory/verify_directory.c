/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a packed directory: every file, those that are missing, and those that do not belong. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "directory/by_file.h"
#include "directory/shard_total.h"
#include "directory/stored.h"
#include "parts/part.h"

struct verifying {
	struct tsr_directory *d;
	struct tsr_nodes nodes; /* what is in the packed directory */
	const char *original; /* the directory that was packed, or NULL */
	struct tsr_nodes sources; /* what is in that */
	const struct tsr_verify_options *options;
	struct tsr_directory_watch watch;
	struct tsr_by_file by_file;
	bool damaged;
	size_t nfiles, nother; /* files, and those that are not as in the original */
	struct tsr_err *err;
};

/* --- One file --------------------------------------------------------------------------------- */

/* A failure that is about this file becomes its fault; others end the work. */
static enum tsr_status take(struct verifying *v, struct tsr_directory_entry *e,
			    enum tsr_status status)
{
	status = tsr_by_file_settle(&v->by_file, status);
	if (status != TSR_E_FORMAT && status != TSR_E_BOUND && status != TSR_E_UNSUPPORTED)
		return status;
	v->damaged = v->damaged || status != TSR_E_BOUND;
	return tsr_directory_fault(v->d, e, v->err, "%s", v->err->msg);
}

/* Whether the original has this file in the size that was packed; if not, that is the fault. */
static enum tsr_status check_source(struct verifying *v, struct tsr_directory_entry *e, bool *ret)
{
	const struct tsr_node *source = tsr_nodes_find(&v->sources, e->path);

	*ret = source && !source->is_directory && source->nbytes == e->nbytes;
	if (*ret)
		return TSR_OK;
	v->nother++;
	if (!source || source->is_directory)
		return tsr_directory_fault(v->d, e, v->err, "%s has no such file", v->original);
	return tsr_directory_fault(v->d, e, v->err,
				   "the original has %" PRIu64
				   " bytes, the file that was packed %" PRIu64,
				   source->nbytes, e->nbytes);
}

static enum tsr_status verify_copy(struct verifying *v, struct tsr_directory_entry *e)
{
	const bool follow = tsr_opens_links(v->options->open);
	const struct tsr_place_in at = { v->d->path, e->path, follow };
	const struct tsr_place_in source = { v->original, e->path, follow };
	struct tsr_stored_file found = { 0 };
	enum tsr_status status;
	bool has = false;

	status = tsr_copy_original(&v->by_file, &at, e, NULL, &found, v->err);
	if (status != TSR_OK)
		return take(v, e, status);
	if (found.nbytes != e->nbytes || found.hash != e->stored[0].hash) {
		v->damaged = true;
		return tsr_directory_fault(v->d, e, v->err,
					   "damaged: found %" PRIu64
					   " bytes with the hash %016" PRIx64 ", expected %" PRIu64
					   " with %016" PRIx64,
					   found.nbytes, found.hash, e->nbytes, e->stored[0].hash);
	}
	if (v->original)
		TSR_TRY(check_source(v, e, &has));
	if (!has)
		return TSR_OK;
	TSR_TRY(tsr_copy_file(&v->by_file, &source, NULL, &found, v->err));
	if (found.hash == e->stored[0].hash)
		return TSR_OK;
	v->nother++;
	return tsr_directory_fault(v->d, e, v->err, "differs from the original");
}

/* What the index says of a packed file and its header says, too. */
static enum tsr_status check_entry(const struct verifying *v, const struct tsr_directory_entry *e,
				   const struct tsr_checkpoint *c)
{
	const unsigned generation = tsr_checkpoint_generation(c);
	const enum tsr_container container = tsr_checkpoint_container(c);

	if (e->generation == generation && e->container == container)
		return TSR_OK;
	return tsr_fail(v->err, TSR_E_FORMAT,
			"the index is wrong: found generation %u of a %s file in the packed file, "
			"the index says %u of a %s file",
			generation, tsr_container_name(container), e->generation,
			tsr_container_name(e->container));
}

static enum tsr_status run_verify(struct verifying *v, struct tsr_directory_entry *e,
				  const char *path, const char *source)
{
	struct tsr_verify_options o = *v->options;
	struct tsr_verification *verification = NULL;
	enum tsr_status status;

	o.against = source ? &source : NULL;
	o.nagainst = source != NULL;
	if (!source)
		o.nbounds = 0;
	status = tsr_verify(path, &o, tsr_by_file_run(&v->by_file), &verification, v->err);
	if (verification && v->watch.verified)
		v->watch.verified(v->watch.ctx, e, verification);
	v->nother += source && status == TSR_E_BOUND;
	if (status == TSR_OK)
		status = check_entry(v, e, tsr_verification_checked(verification));
	tsr_verification_free(verification);
	return take(v, e, status);
}

/* Whether the original has all parts of a checkpoint; those that it lacks have faults of their own. */
static bool has_parts(const struct verifying *v, const struct tsr_directory_entry *metadata)
{
	for (size_t i = 0; i < v->d->n; i++) {
		const struct tsr_directory_entry *e = &v->d->entries[i];

		if (e->as == TSR_STORED_PART && tsr_directory_is_part(metadata, e->path) &&
		    !tsr_nodes_find(&v->sources, e->path))
			return false;
	}
	return true;
}

static enum tsr_status verify_packed(struct verifying *v, struct tsr_directory_entry *e)
{
	char *path, *source = NULL;
	enum tsr_status status;
	bool has = false;

	status = tsr_check_stored(v->d, e, tsr_opens_links(v->options->open), v->err);
	if (status != TSR_OK)
		return take(v, e, status);
	if (v->original)
		TSR_TRY(check_source(v, e, &has));
	if (e->container == TSR_CONTAINER_DCP)
		has = has && has_parts(v, e);
	path = tsr_path_join(v->d->path, tsr_opened_file(e)->path);
	source = has ? tsr_directory_source(v->original, e) : NULL;
	if (!path || (has && !source))
		status = tsr_fail_nomem(v->err, v->d->path);
	else
		status = run_verify(v, e, path, source);
	free(path);
	free(source);
	return status;
}

static bool has_stored(const struct verifying *v, const struct tsr_directory_entry *e)
{
	for (unsigned i = 0; i < e->nstored; i++) {
		const struct tsr_node *node = tsr_nodes_find(&v->nodes, e->stored[i].path);

		if (!node || node->is_directory)
			return false;
	}
	return true;
}

static enum tsr_status verify_entry(struct verifying *v, struct tsr_directory_entry *e)
{
	const struct tsr_node *node = tsr_nodes_find(&v->nodes, e->path);
	const bool is_directory = e->as == TSR_STORED_DIRECTORY;
	bool has;

	tsr_part_next_file(tsr_by_file_parts(&v->by_file));
	TSR_TRY(tsr_by_file_next(&v->by_file, e->stored_nbytes, v->err));
	v->nfiles += !is_directory;
	if (e->as == TSR_STORED_PART)
		return v->original ? check_source(v, e, &has) : TSR_OK;
	if (is_directory ? !node || !node->is_directory : !has_stored(v, e)) {
		v->damaged = true;
		return tsr_directory_fault(v->d, e, v->err, "is missing");
	}
	if (is_directory)
		return TSR_OK;
	if (e->as == TSR_STORED_PACKED)
		return verify_packed(v, e);
	/* Copies are of who joins the parts. */
	return tsr_part_is_one(tsr_by_file_parts(&v->by_file)) ? TSR_OK : verify_copy(v, e);
}

/* --- What does not belong --------------------------------------------------------------------- */

/* Add an entry, behind those of the index, for something that it lacks. */
static enum tsr_status add_extra(struct verifying *v, const struct tsr_node *node,
				 const char *fault)
{
	struct tsr_directory *d = v->d;
	struct tsr_directory_entry *e = &d->entries[d->n];

	*e = (struct tsr_directory_entry){
		.path = tsr_directory_join(d, node->path, ""),
		.as = node->is_directory ? TSR_STORED_DIRECTORY : TSR_STORED_COPY,
		.mode = node->mode,
		.nbytes = node->nbytes,
	};
	if (!e->path)
		return tsr_directory_nomem(d, v->err);
	d->n++;
	return tsr_directory_fault(d, e, v->err, "%s", fault);
}

static enum tsr_status add_extras(struct verifying *v, const char *const *known, size_t n)
{
	const size_t room = v->d->n + v->nodes.n + v->sources.n;
	const size_t nentries = v->d->n;
	struct tsr_directory_entry *entries = tsr_arena_alloc(v->d->arena,
							      (room + 1) * sizeof(*entries));

	if (!entries)
		return tsr_directory_nomem(v->d, v->err);
	memcpy(entries, v->d->entries, nentries * sizeof(*entries));
	v->d->entries = entries;
	for (size_t i = 0; i < v->nodes.n; i++) {
		if (!tsr_directory_knows(known, n, v->nodes.list[i].path))
			TSR_TRY(add_extra(v, &v->nodes.list[i], "is not in the index"));
	}
	for (size_t i = 0; i < v->sources.n; i++) {
		const struct tsr_directory of_index = { .entries = entries, .n = nentries };

		if (!tsr_directory_find(&of_index, v->sources.list[i].path))
			TSR_TRY(add_extra(v, &v->sources.list[i], "is only in the original"));
	}
	return TSR_OK;
}

/* --- The directory ---------------------------------------------------------------------------- */

/* Most files are not those of the original: then it is another directory, which is said first. */
static enum tsr_status remark(struct verifying *v)
{
	if (!v->original || !v->nother || 2 * v->nother < v->nfiles)
		return TSR_OK;
	v->d->remark = tsr_directory_text(
		v->d,
		"%s is not the directory that %s was packed from: %zu of %zu "
		"files are missing or different",
		v->original, v->d->path, v->nother, v->nfiles);
	return v->d->remark ? TSR_OK : tsr_directory_nomem(v->d, v->err);
}

static enum tsr_status summarize(struct verifying *v)
{
	const struct tsr_directory *d = v->d;
	size_t i = 0;

	if (!d->nfaults)
		return TSR_OK;
	while (!d->entries[i].fault)
		i++;
	if (d->remark)
		return tsr_fail(v->err, v->damaged ? TSR_E_FORMAT : TSR_E_BOUND, "%s", d->remark);
	return tsr_fail(v->err, v->damaged ? TSR_E_FORMAT : TSR_E_BOUND,
			"%s: %zu of %zu entries at fault; %.200s: %s", d->path, d->nfaults, d->n,
			d->entries[i].path, d->entries[i].fault);
}

static enum tsr_status verify_all(struct verifying *v, const struct tsr_run *run)
{
	const char **known;
	enum tsr_status status;
	uint64_t total = 0;
	size_t nknown = 0;

	TSR_TRY(tsr_nodes_list(v->d->path, tsr_opens_links(v->options->open), &v->nodes, v->err));
	if (v->original)
		TSR_TRY(tsr_nodes_list(v->original, tsr_opens_links(v->options->open), &v->sources,
				       v->err));
	for (size_t i = 0; i < v->d->n; i++)
		total += v->d->entries[i].stored_nbytes;
	tsr_by_file_start(&v->by_file, run, v->d->path, total);
	for (size_t i = 0; i < v->d->n; i++)
		TSR_TRY(verify_entry(v, &v->d->entries[i]));
	tsr_part_end_files(tsr_by_file_parts(&v->by_file));
	TSR_TRY(tsr_part_end(tsr_by_file_parts(&v->by_file), v->err));
	known = tsr_directory_known(v->d, &nknown);
	status = known ? add_extras(v, known, nknown) : tsr_fail_nomem(v->err, v->d->path);
	free(known);
	TSR_TRY(status);
	return remark(v);
}

static enum tsr_status check_original(const struct tsr_verify_options *o, struct tsr_err *err)
{
	if (o->nagainst > 1)
		return tsr_fail(err, TSR_E_USAGE, "%s: expected one directory as the original",
				o->against[1]);
	if (o->nagainst && tsr_directory_is_packed(o->against[0]))
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is a packed directory, expected the original", o->against[0]);
	return TSR_OK;
}

enum tsr_status tsr_verify_directory(const char *path, const struct tsr_verify_options *options,
				     const struct tsr_directory_watch *watch,
				     const struct tsr_run *run, struct tsr_directory **ret,
				     struct tsr_err *err)
{
	struct tsr_verify_options o = tsr_verify_defaults();
	struct tsr_open_options open;
	struct tsr_err own = { 0 };
	struct verifying v = { .options = &o,
			       .watch = tsr_directory_watch_defaults(),
			       .err = err ? err : &own };
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_directory_open_options(&open, o.open, err));
	o.open = &open;
	TSR_TRY(tsr_options_take(&v.watch, watch, err));
	TSR_TRY(check_original(&o, err));
	v.original = o.nagainst ? o.against[0] : NULL;
	TSR_TRY(tsr_directory_open(path, &v.d, err));
	status = verify_all(&v, run);
	tsr_nodes_free(&v.nodes);
	tsr_nodes_free(&v.sources);
	if (status != TSR_OK) {
		tsr_directory_close(v.d);
		return status;
	}
	*ret = v.d;
	return summarize(&v);
}
