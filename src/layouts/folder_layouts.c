/* SPDX-License-Identifier: Apache-2.0 */
/* What frameworks write into directories, one row each: how it is recognised, how it is read. */
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "container/containers.h"
#include "layouts/folder.h"
#include "layouts/layouts.h"
#include "tersor/directory.h"
#include "text/text.h"
#include "torch/dcp.h"

/* --- What is in no layout ----------------------------------------------------------------------- */

/* Names for a message, of which there may be many. */
struct listing {
	struct tsr_text names;
	size_t n;
};

static void free_listing(struct listing *l)
{
	tsr_text_free(&l->names);
}

static void list_name(struct listing *l, const char *name, bool is_folder)
{
	if (l->names.nbytes < 200)
		tsr_text_printf(&l->names, "%s%.60s%s", l->n ? ", " : "", name,
				is_folder ? "/" : "");
	else if (l->names.nbytes < 300)
		tsr_text_puts(&l->names, ", ...");
	l->n++;
}

/* --- What was packed file by file ---------------------------------------------------------------- */

static bool detect_packed(const struct tsr_folder *d)
{
	return tsr_folder_has(d, TSR_DIRECTORY_INDEX);
}

static enum tsr_status refuse_packed(struct tsr_folder *d)
{
	TSR_SCOPED(free_listing) struct listing packed = { .n = 0 };

	for (size_t i = 0; i < d->names.n; i++) {
		if (tsr_dir_name_ends_with(d->names.names[i], TSR_DIRECTORY_SUFFIX))
			list_name(&packed, d->names.names[i], false);
	}
	return tsr_fail_hint(d->err, TSR_E_UNSUPPORTED, TSR_HINT_PACKED_DIRECTORY,
			     "%s: is a packed directory%s%.400s%s", d->path,
			     packed.n ? "; name a packed file in it (" : "",
			     packed.names.bytes ? packed.names.bytes : "", packed.n ? ")" : "");
}

/* The first that applies is used. */
static const struct tsr_folder_layout layouts[] = {
	{ detect_packed, refuse_packed },
	{ tsr_dcp_folder_detect, tsr_dcp_folder_read },
	{ tsr_fsdp_folder_detect, tsr_fsdp_folder_read },
	{ tsr_deepspeed_detect, tsr_deepspeed_read },
	{ tsr_megatron_detect, tsr_megatron_read },
	{ tsr_hugging_face_detect, tsr_hugging_face_read },
};

static bool is_layout(const struct tsr_folder *d)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		if (layouts[i].detect(d))
			return true;
	}
	return false;
}

/* What there is, and what of it is a checkpoint of its own. */
static void list_names(const struct tsr_folder *d, struct listing *all, struct listing *checkpoints)
{
	for (size_t i = 0; i < d->names.n; i++) {
		const char *name = d->names.names[i];
		const bool is_folder = tsr_folder_has_folder(d, name);
		TSR_SCOPED(tsr_folder_leave) struct tsr_folder child = { 0 };

		list_name(all, name, is_folder);
		if (is_folder && tsr_folder_enter(d, name, &child) == TSR_OK && is_layout(&child))
			list_name(checkpoints, name, true);
	}
}

static enum tsr_status refuse(const struct tsr_folder *d)
{
	TSR_SCOPED(free_listing) struct listing all = { .n = 0 };
	TSR_SCOPED(free_listing) struct listing checkpoints = { .n = 0 };

	TSR_TRY(tsr_foreign_refuse_directory(d->path, d->err));
	list_names(d, &all, &checkpoints);
	for (size_t i = 0; i < d->names.n; i++) {
		if (strstr(d->names.names[i], "_world_size_"))
			return tsr_fail(d->err, TSR_E_UNSUPPORTED,
					"%s: found the files of several ranks (%.400s), which have "
					"tensors of the same names; name those of one rank",
					d->path, all.names.bytes);
	}
	if (checkpoints.n)
		return tsr_fail(d->err, TSR_E_UNSUPPORTED,
				"%s: found checkpoints in directories of it (%.400s); name the one "
				"that is meant",
				d->path, checkpoints.names.bytes ? checkpoints.names.bytes : "?");
	return tsr_fail(d->err, TSR_E_UNSUPPORTED,
			"%s: found a directory in no layout that tersor knows (%.400s), expected "
			"a .metadata file, one *.index.json, one *.safetensors or a directory of "
			"DeepSpeed or Megatron; name the files that are meant",
			d->path, all.names.bytes ? all.names.bytes : "nothing in it");
}

/* --- Reading ------------------------------------------------------------------------------------ */

/*
 * Put what the trees from @first on hold into the root, so that the directory has one tree.  A tree that
 * lists its entries stays the root, if there is no other tree.
 */
static enum tsr_status join_trees(struct tsr_folder *d, size_t first)
{
	struct tsr_checkpoint *c = d->c;
	struct tsr_value *listing = NULL;

	for (size_t i = first; i < c->ntrees; i++) {
		const struct tsr_value *mapping = tsr_value_mapping(c->trees[i]);

		if (tsr_dcp_attribute(c->trees[i])) {
			listing = c->trees[i];
			if (c->ntrees > first + 1)
				return TSR_OK;
		}

		for (size_t k = 0; mapping && k + 1 < mapping->list.n; k += 2) {
			const struct tsr_value *key = mapping->list.items[k];

			if (key->type != TSR_VALUE_STRING || tsr_value_at(d->root, key->text.bytes))
				return TSR_OK;
		}
		if (!mapping)
			return TSR_OK;
	}
	for (size_t i = first; i < c->ntrees; i++) {
		const struct tsr_value *mapping = tsr_value_mapping(c->trees[i]);

		for (size_t k = 0; k + 1 < mapping->list.n; k += 2)
			TSR_TRY(tsr_folder_put(d, mapping->list.items[k]->text.bytes,
					       mapping->list.items[k + 1]));
	}
	c->ntrees = first;
	if (!listing)
		return TSR_OK;
	listing->call.items = d->root;
	d->root = listing;
	return TSR_OK;
}

static enum tsr_status read_layout(struct tsr_folder *d)
{
	const size_t ntrees = d->c->ntrees;

	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		if (!layouts[i].detect(d))
			continue;
		d->c->from_folder = true;
		TSR_TRY(layouts[i].read(d));
		TSR_TRY(join_trees(d, ntrees));
		TSR_TRY(tsr_folder_account(d));
		return tsr_value_mapping(d->root)->list.n ? tsr_build_tree(d->c, d->root, d->err)
							  : TSR_OK;
	}
	return refuse(d);
}

enum tsr_status tsr_folder_read(struct tsr_checkpoint *c, const char *path,
				const struct tsr_open_options *options, struct tsr_err *err)
{
	TSR_SCOPED(tsr_folder_leave)
	struct tsr_folder d = { .c = c, .options = options, .err = err };
	const bool is_first = !c->path;

	d.path = tsr_arena_string(c->arena, path);
	d.root = tsr_value_new(c->arena, TSR_VALUE_DICT);
	if (!d.path || !d.root)
		return tsr_build_nomem(c, err);
	if (is_first)
		c->path = d.path;
	TSR_TRY(tsr_dir_list(path, "", &d.names, err));
	TSR_TRY(TSR_NEW(&d.taken, d.names.n + 1, err, path));
	return read_layout(&d);
}
