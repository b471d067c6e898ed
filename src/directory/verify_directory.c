/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a packed directory: every file, those that are missing, and those that do not belong. */
#include "base/fail.h"
#include "base/option_size.h"
#include "compare/comparison.h"
#include "directory/shard_total.h"
#include "directory/stored.h"
#include "parts/part.h"

struct verifying {
	struct tsr_traversal t;
	const char *original; /* the directory that was packed, or NULL */
	struct tsr_nodes sources; /* what is in that */
	const struct tsr_verify_options *options;
	bool damaged;
	size_t nfiles, nother; /* files, and those that are not as in the original */
};

/* --- One file --------------------------------------------------------------------------------- */

/* A failure that is about this file becomes its fault; others end the work. */
static enum tsr_status take(struct verifying *v, struct tsr_directory_entry *e,
			    enum tsr_status status)
{
	status = tsr_traversal_settle(&v->t, status);
	if (status != TSR_E_FORMAT && status != TSR_E_BOUND && status != TSR_E_UNSUPPORTED)
		return status;
	v->damaged = v->damaged || status != TSR_E_BOUND;
	return tsr_traversal_fault(&v->t, e, "%s", v->t.err->msg);
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
		return tsr_traversal_fault(&v->t, e, "%s has no such file", v->original);
	return tsr_traversal_fault(
		&v->t, e, "the original has %" PRIu64 " bytes, the file that was packed %" PRIu64,
		source->nbytes, e->nbytes);
}

static enum tsr_status verify_copy(struct verifying *v, struct tsr_directory_entry *e)
{
	struct tsr_stored_file found = { 0 };
	enum tsr_status status;
	bool has = false;

	status = tsr_copy_original(&v->t, v->t.d->path, e, NULL, &found);
	if (status == TSR_OK)
		status = tsr_check_copy(&v->t, e, &found);
	if (status != TSR_OK)
		return take(v, e, status);
	if (v->original)
		TSR_TRY(check_source(v, e, &has));
	if (!has)
		return TSR_OK;
	TSR_TRY(tsr_copy_file(&v->t, v->original, e->path, NULL, &found));
	if (found.hash == e->stored[0].hash)
		return TSR_OK;
	v->nother++;
	return tsr_traversal_fault(&v->t, e, "differs from the original");
}

/* What the index says of a packed file and its header says, too. */
static enum tsr_status check_entry(const struct verifying *v, const struct tsr_directory_entry *e,
				   const struct tsr_checkpoint *c)
{
	const unsigned generation = tsr_checkpoint_generation(c);
	const enum tsr_container container = tsr_checkpoint_container(c);

	if (e->generation == generation && e->container == container)
		return TSR_OK;
	return tsr_fail(v->t.err, TSR_E_FORMAT,
			"the index is wrong: found generation %u of a %s file in the packed file, "
			"the index says %u of a %s file",
			generation, tsr_container_name(container), e->generation,
			tsr_container_name(e->container));
}

static enum tsr_status run_verify(struct verifying *v, struct tsr_directory_entry *e,
				  const char *path, const char *source)
{
	TSR_OWNED(tsr_verification_free) struct tsr_verification *verification = NULL;
	struct tsr_verify_options o = *v->options;
	enum tsr_status status;

	o.against = source ? &source : NULL;
	o.nagainst = source != NULL;
	if (!source)
		o.nbounds = 0;
	status = tsr_verify(path, &o, tsr_traversal_run(&v->t), &verification, v->t.err);
	if (verification && v->t.watch.verified)
		v->t.watch.verified(v->t.watch.ctx, e, verification);
	v->nother += source && status == TSR_E_BOUND;
	TSR_THEN(status, check_entry(v, e, tsr_verification_checked(verification)));
	return take(v, e, status);
}

/* Whether the original has all parts of a checkpoint; those that it lacks have faults of their own. */
static bool has_parts(const struct verifying *v, const struct tsr_directory_entry *metadata)
{
	for (size_t i = 0; i < v->t.d->n; i++) {
		const struct tsr_directory_entry *e = &v->t.d->entries[i];

		if (e->as == TSR_STORED_PART && tsr_directory_is_part(metadata, e->path) &&
		    !tsr_nodes_find(&v->sources, e->path))
			return false;
	}
	return true;
}

static enum tsr_status verify_packed(struct verifying *v, struct tsr_directory_entry *e)
{
	const char *path, *source = NULL;
	enum tsr_status status;
	bool has = false;

	status = tsr_check_stored(&v->t, e);
	if (status != TSR_OK)
		return take(v, e, status);
	if (v->original)
		TSR_TRY(check_source(v, e, &has));
	if (e->container == TSR_CONTAINER_DCP)
		has = has && has_parts(v, e);
	TSR_TRY(tsr_traversal_path(&v->t, v->t.d->path, tsr_opened_file(e)->path, &path));
	if (has)
		TSR_TRY(tsr_traversal_path(&v->t, v->original, e->path, &source));
	return run_verify(v, e, path, source);
}

static bool has_stored(const struct verifying *v, const struct tsr_directory_entry *e)
{
	for (unsigned i = 0; i < e->nstored; i++) {
		const struct tsr_node *node = tsr_nodes_find(&v->t.nodes, e->stored[i].path);

		if (!node || node->is_directory)
			return false;
	}
	return true;
}

static enum tsr_status verify_entry(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	struct verifying *v = (struct verifying *)t;
	const struct tsr_node *node = tsr_nodes_find(&t->nodes, e->path);
	const bool is_directory = e->as == TSR_STORED_DIRECTORY;
	bool has;

	v->nfiles += !is_directory;
	if (e->as == TSR_STORED_PART)
		return v->original ? check_source(v, e, &has) : TSR_OK;
	if (is_directory ? !node || !node->is_directory : !has_stored(v, e)) {
		v->damaged = true;
		return tsr_traversal_fault(t, e, "is missing");
	}
	if (is_directory)
		return TSR_OK;
	if (e->as == TSR_STORED_PACKED)
		return verify_packed(v, e);
	/* The joining process verifies the copies. */
	return tsr_part_is_one(tsr_traversal_parts(t)) ? TSR_OK : verify_copy(v, e);
}

/* --- What does not belong --------------------------------------------------------------------- */

/* Add an entry, behind those of the index, for something that it lacks. */
static enum tsr_status add_extra(struct verifying *v, const struct tsr_node *node,
				 const char *fault)
{
	struct tsr_directory *d = v->t.d;
	struct tsr_directory_entry *e = &d->entries[d->n];

	TSR_TRY(tsr_directory_add(d, node, v->t.err));
	e->stored_nbytes = 0;
	return tsr_traversal_fault(&v->t, e, "%s", fault);
}

static enum tsr_status add_extras(struct verifying *v, const struct tsr_named *known, size_t n)
{
	const size_t room = v->t.d->n + v->t.nodes.n + v->sources.n;
	const size_t nentries = v->t.d->n;
	struct tsr_directory_entry *entries;

	TSR_TRY(TSR_ARENA_NEW(&entries, room + 1, v->t.d->arena,
			      tsr_directory_nomem(v->t.d, v->t.err)));
	memcpy(entries, v->t.d->entries, nentries * sizeof(*entries));
	v->t.d->entries = entries;
	for (size_t i = 0; i < v->t.nodes.n; i++) {
		if (!tsr_named_find(known, n, v->t.nodes.list[i].path))
			TSR_TRY(add_extra(v, &v->t.nodes.list[i], "is not in the index"));
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
	v->t.d->remark = tsr_arena_printf(
		v->t.d->arena,
		"%s is not the directory that %s was packed from: %zu of %zu "
		"files are missing or different",
		v->original, v->t.d->path, v->nother, v->nfiles);
	return v->t.d->remark ? TSR_OK : tsr_directory_nomem(v->t.d, v->t.err);
}

static enum tsr_status summarize(struct verifying *v)
{
	const struct tsr_directory *d = v->t.d;
	size_t i = 0;

	if (!d->nfaults)
		return TSR_OK;
	while (!d->entries[i].fault)
		i++;
	if (d->remark)
		return tsr_fail(v->t.err, v->damaged ? TSR_E_FORMAT : TSR_E_BOUND, "%s", d->remark);
	return tsr_fail(v->t.err, v->damaged ? TSR_E_FORMAT : TSR_E_BOUND,
			"%s: %zu of %zu entries at fault; %.200s: %s", d->path, d->nfaults, d->n,
			d->entries[i].path, d->entries[i].fault);
}

static enum tsr_status verify_all(struct verifying *v, const struct tsr_run *run)
{
	TSR_OWNED(free) struct tsr_named *known = NULL;
	struct tsr_traversal *t = &v->t;
	size_t nknown = 0;

	TSR_TRY(tsr_nodes_list(t->d->path, t->follow, &t->nodes, t->err));
	if (v->original)
		TSR_TRY(tsr_nodes_list(v->original, t->follow, &v->sources, t->err));
	tsr_traversal_start(t, run, false);
	TSR_TRY(tsr_traversal_each(t, verify_entry));
	known = tsr_directory_known(t->d, &nknown);
	if (!known)
		return tsr_fail_nomem(t->err, t->d->path);
	TSR_TRY(add_extras(v, known, nknown));
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
	struct verifying v = { .t.packed = true, .options = &o };
	struct tsr_open_options open;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_stored_open_options(&open, o.open, err));
	o.open = &open;
	TSR_TRY(check_original(&o, err));
	v.t.follow = open.follow;
	v.original = o.nagainst ? o.against[0] : NULL;
	status = tsr_traversal_open(&v.t, path, watch, err);
	if (status == TSR_OK)
		status = verify_all(&v, run);
	tsr_nodes_free(&v.sources);
	status = tsr_traversal_end(&v.t, status, ret);
	return status == TSR_OK ? summarize(&v) : status;
}
