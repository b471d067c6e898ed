/* SPDX-License-Identifier: Apache-2.0 */
/* What is to become of each file of a directory: packed, or copied and why. */
#include "directory/plan.h"

#include "base/fail.h"
#include "directory/traversal.h"
#include "directory/copying.h"
#include "directory/shard_total.h"
#include "directory/stored.h"
#include "ckpt/checkpoint_model.h"
#include "container/containers.h"
#include "io/dir.h"
#include "io/temporary.h"

enum tsr_status tsr_dir_file_options(struct tsr_dir_packing *p, const struct tsr_directory_entry *e,
				     const char *weights_out, struct tsr_pack_options *ret)
{
	*ret = *p->options;
	ret->dry_run = false;
	ret->force = false;
	ret->weights_out = weights_out;
	return tsr_bases_find(&p->t, e, &ret->delta, &ret->base_levels);
}

/* --- Quantized models ------------------------------------------------------------------------- */

static bool has_quantized(const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		if (c->tensors[i].quantized)
			return true;
	}
	return false;
}

/* A weight and its scales may be in different shards.  An index that cannot be read names none. */
static enum tsr_status find_quantized_shards(struct tsr_dir_packing *p, const char *index)
{
	const struct tsr_directory_entry e = { .path = index };
	struct tsr_checkpoint *c = NULL;
	enum tsr_status status;
	const char *full;

	TSR_TRY(tsr_traversal_path(&p->t, p->t.d->path, index, &full));
	status = tsr_checkpoint_open(&full, 1, p->options->open, &c, NULL);
	if (status == TSR_OK)
		status = tsr_names_assign(c, NULL, 0, NULL);
	for (unsigned i = 0; status == TSR_OK && has_quantized(c) && i < c->nfiles; i++) {
		const char *name = tsr_path_name(tsr_file_path(c->files[i]));
		const char *shard = tsr_directory_beside(p->t.d, &e, name);
		const struct tsr_node *node = shard ? tsr_nodes_find(&p->t.nodes, shard) : NULL;

		status = shard ? TSR_OK : TSR_E_NOMEM;
		if (node)
			p->quantized[node - p->t.nodes.list] = true;
	}
	tsr_checkpoint_close(c);
	return status == TSR_E_NOMEM ? tsr_directory_nomem(p->t.d, p->t.err) : TSR_OK;
}

static enum tsr_status find_quantized(struct tsr_dir_packing *p)
{
	TSR_TRY(TSR_ARENA_NEW(&p->quantized, p->t.nodes.n, p->t.d->arena,
			      tsr_directory_nomem(p->t.d, p->t.err)));
	for (size_t i = 0; i < p->t.nodes.n; i++) {
		const char *path = p->t.nodes.list[i].path;

		if (tsr_dir_name_ends_with(path, TSR_SHARD_INDEX_SUFFIX))
			TSR_TRY(find_quantized_shards(p, path));
	}
	return TSR_OK;
}

/*
 * Loaders convert the weights of a model to the type that its config.json says, but not those of a quantized
 * one: with some of them narrow it would compute otherwise, or not at all.
 */
static bool is_quantized(const struct tsr_dir_packing *p, const struct tsr_directory_entry *e,
			 const struct tsr_checkpoint *c)
{
	return p->options->coded != TSR_CODED_ALL &&
	       (p->quantized[e - p->t.d->entries] ||
		(tsr_stored_as_model(c, TSR_CODED_NONE) && has_quantized(c)));
}

enum tsr_status tsr_dir_plan_copy(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
				  const char *reason)
{
	struct tsr_stored_file *stored;

	TSR_TRY(TSR_ARENA_NEW(&stored, 1, p->t.d->arena, tsr_directory_nomem(p->t.d, p->t.err)));
	*stored = (struct tsr_stored_file){ .path = e->path, .nbytes = e->nbytes };
	e->as = TSR_STORED_COPY;
	e->stored = stored;
	e->nstored = 1;
	e->stored_nbytes = e->nbytes;
	e->generation = 0;
	e->reason = reason;
	return TSR_OK;
}

/* --- Which files hold tensors ----------------------------------------------------------------- */

/* Files with these names hold tensors, or are damaged; others if their content shows it. */
static bool is_named_so(const char *path)
{
	static const char *const ends[] = { ".safetensors", ".pt", ".pth", ".npz", ".npy" };

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		if (tsr_dir_name_ends_with(path, ends[i]))
			return true;
	}
	return false;
}

static enum tsr_status holds_tensors(struct tsr_dir_packing *p, const char *path, bool *ret)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	bool is_index = false;

	TSR_TRY(tsr_open_below(&p->t, p->t.d->path, path, &f));
	TSR_TRY(tsr_container_probe(f, ret, p->t.err));
	if (!*ret && is_named_so(path)) {
		TSR_TRY(tsr_sharded_detect(f, &is_index, p->t.err));
		*ret = !is_index;
	}
	return TSR_OK;
}

/* Why a packed file cannot stand beside the others; NULL: it can. */
static const char *no_name_for(const struct tsr_dir_packing *p, const struct tsr_directory_entry *e)
{
	const char *packed;

	if (strlen(tsr_path_name(e->path)) + strlen(TSR_DIRECTORY_SUFFIX) > TSR_FILE_NAME_MAX)
		return "its name is too long to add " TSR_DIRECTORY_SUFFIX;
	if (e->container == TSR_CONTAINER_DCP) {
		packed = tsr_directory_beside(p->t.d, e, TSR_DIRECTORY_DCP);
		return packed && tsr_nodes_find(&p->t.nodes, packed)
			       ? "another file beside it is called " TSR_DIRECTORY_DCP
			       : NULL;
	}
	packed = tsr_arena_printf(p->t.d->arena, "%s" TSR_DIRECTORY_SUFFIX, e->path);
	if (packed && tsr_nodes_find(&p->t.nodes, packed))
		return "another file has its name with " TSR_DIRECTORY_SUFFIX;
	return NULL;
}

/* --- What packing would give ------------------------------------------------------------------ */

/* Whether a tensor of it has a codec. */
static bool packs_any(const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		if (c->tensors[i].coding.codec)
			return true;
	}
	return false;
}

/* Why the outcome of packing is not worth keeping whatever its size is; NULL: it may be. */
static const char *no_use(const struct tsr_dir_packing *p, const struct tsr_packing *packing)
{
	const struct tsr_checkpoint *c = tsr_packing_source(packing);

	if (!tsr_checkpoint_ntensors(c))
		return "has no tensors";
	if (c->coded)
		return "has states that another tool compressed already";
	/* Entropy coding makes tensors smaller that have no codec. */
	if (p->options->coded == TSR_CODED_NONE && !packs_any(c))
		return "has no weights or states to pack";
	if (c->left_out)
		return "has an object that is not supported, which packing would leave out";
	if (c->nunused)
		return "has records that belong to no tensor, which packing would leave out";
	return NULL;
}

const char *tsr_dir_no_gain(const struct tsr_dir_packing *p, const struct tsr_directory_entry *e,
			    const struct tsr_packing *packing)
{
	const char *reason = no_use(p, packing);

	if (reason || tsr_packing_nbytes(packing) < tsr_traversal_source_nbytes(&p->t, e))
		return reason;
	return packs_any(tsr_packing_source(packing)) ? "would not become smaller"
						      : "has no weights or states to pack";
}

/* The message of a failure without the path that it begins with. */
static const char *reason_of(const struct tsr_dir_packing *p, const char *full)
{
	const char *msg = p->t.err->msg;
	const size_t n = strlen(full);

	if (strncmp(msg, full, n) == 0 && strncmp(msg + n, ": ", 2) == 0)
		msg += n + 2;
	return tsr_arena_string(p->t.d->arena, msg);
}

/* Pack without writing.  *packing_ret is NULL if the file is of a kind that cannot be packed. */
static enum tsr_status try_packing(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
				   const char *full, struct tsr_packing **packing_ret)
{
	struct tsr_pack_options o;
	enum tsr_status status;
	const char *out;

	TSR_TRY(tsr_dir_file_options(p, e, NULL, &o));
	/* Nothing is written, and nothing is there: the name only has to be one that could be. */
	TSR_TRY(tsr_traversal_path(&p->t, p->t.d->path, e->stored[0].path, &out));
	o.dry_run = true;
	/* What is chosen shows when the file is packed, and is not worth reading it twice. */
	if (!p->options->dry_run)
		o.choice = NULL;
	status = tsr_pack(&full, 1, out, &o, NULL, packing_ret, p->t.err);
	if (status != TSR_E_UNSUPPORTED || p->options->strict)
		return status;
	e->reason = reason_of(p, full);
	return e->reason ? TSR_OK : tsr_directory_nomem(p->t.d, p->t.err);
}

/* The *.distcp files beside a .metadata that it does not name, and that hold something, would be left out. */
static const char *unnamed_parts(const struct tsr_dir_packing *p,
				 const struct tsr_directory_entry *e,
				 const struct tsr_checkpoint *c)
{
	size_t nbeside = 0, nread = 0;

	if (c->container != TSR_CONTAINER_DCP)
		return NULL;
	for (size_t i = 0; i < p->t.nodes.n; i++) {
		const struct tsr_node *node = &p->t.nodes.list[i];

		nbeside += node->nbytes && tsr_directory_is_part(e, node->path);
	}
	for (unsigned i = 0; i < c->nfiles; i++)
		nread += tsr_file_size(c->files[i]) &&
			 tsr_dir_name_ends_with(tsr_file_path(c->files[i]), ".distcp");
	return nread < nbeside ? "has *.distcp files beside it that it does not name" : NULL;
}

/* Plan to pack the file; where that is not possible or gives nothing, to copy it. */
static enum tsr_status plan_packing(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
				    const char *full)
{
	TSR_OWNED(tsr_packing_free) struct tsr_packing *packing = NULL;
	const char *reason;
	bool two;

	TSR_TRY(tsr_stored_list(p->t.d, e, false, p->t.err));
	TSR_TRY(try_packing(p, e, full, &packing));
	if (!packing)
		return tsr_dir_plan_copy(p, e, e->reason);
	e->container = tsr_checkpoint_container(tsr_packing_source(packing));
	e->generation = tsr_packing_generation(packing);
	e->stored_nbytes = tsr_packing_nbytes(packing);
	/* How small coding makes it shows when the file is packed. */
	reason = p->options->coded == TSR_CODED_NONE ? tsr_dir_no_gain(p, e, packing)
						     : no_use(p, packing);
	if (!reason)
		reason = unnamed_parts(p, e, tsr_packing_source(packing));
	if (!reason && is_quantized(p, e, tsr_packing_source(packing)))
		reason = "is a quantized model, which is opened in the types that it has";
	two = tsr_stored_as_model(tsr_packing_source(packing), p->options->coded);
	TSR_TRY(reason ? tsr_dir_plan_copy(p, e, reason)
		       : tsr_stored_list(p->t.d, e, two, p->t.err));
	if (p->t.watch.packed && (reason || p->options->dry_run))
		p->t.watch.packed(p->t.watch.ctx, e, packing);
	return TSR_OK;
}

static enum tsr_status plan_file(struct tsr_dir_packing *p, struct tsr_directory_entry *e)
{
	const char *reason = NULL, *full;
	bool holds = e->container == TSR_CONTAINER_DCP;

	if (!holds && !tsr_dir_name_ends_with(e->path, ".distcp"))
		TSR_TRY(holds_tensors(p, e->path, &holds));
	else if (!holds && e->as != TSR_STORED_PART)
		reason = "has no .metadata beside it: the save did not finish";
	if (holds)
		reason = no_name_for(p, e);
	if (!holds || reason)
		return tsr_dir_plan_copy(p, e, reason);
	TSR_TRY(tsr_traversal_path(&p->t, p->t.d->path, e->path, &full));
	return plan_packing(p, e, full);
}

void tsr_dir_settle_parts(struct tsr_dir_packing *p, const struct tsr_directory_entry *metadata,
			  enum tsr_stored_as as)
{
	for (size_t i = 0; i < p->t.d->n; i++) {
		struct tsr_directory_entry *e = &p->t.d->entries[i];

		if (!tsr_directory_is_part(metadata, e->path) || e->as == TSR_STORED_DIRECTORY)
			continue;
		e->as = as;
		e->nstored = as == TSR_STORED_PART ? 0 : 1;
		e->stored_nbytes = as == TSR_STORED_PART ? 0 : e->nbytes;
	}
}

enum tsr_status tsr_dir_plan(struct tsr_traversal *t)
{
	struct tsr_dir_packing *p = (struct tsr_dir_packing *)t;

	TSR_TRY(tsr_directory_check_paths(t->d, t->err));
	TSR_TRY(find_quantized(p));
	tsr_directory_find_parts(t->d);
	for (size_t i = 0; i < t->d->n; i++) {
		struct tsr_directory_entry *e = &t->d->entries[i];

		TSR_TRY(tsr_traversal_next(t, 0));
		if (e->as != TSR_STORED_DIRECTORY)
			TSR_TRY(plan_file(p, e));
	}
	for (size_t i = 0; i < t->d->n; i++) {
		const struct tsr_directory_entry *e = &t->d->entries[i];

		if (e->as == TSR_STORED_PACKED && e->container == TSR_CONTAINER_DCP)
			tsr_dir_settle_parts(p, e, TSR_STORED_PART);
	}
	return tsr_directory_measure_index(t->d, t->err);
}
