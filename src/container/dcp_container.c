/* SPDX-License-Identifier: Apache-2.0 */
/* Laying out a directory of torch.distributed.checkpoint: the file and the place of each entry. */
#include "base/fail.h"
#include "container/containers.h"
#include "container/writer_layout.h"
#include "torch/dcp_write.h"

#define INDEX ".metadata"

/* --- Files -------------------------------------------------------------------------------------- */

/* Divide the entries among files of at most max_shard_nbytes, if one alone is not larger. */
static size_t divide(struct tsr_writer *w, struct tsr_dcp_items *items)
{
	const uint64_t most = w->plan.max_shard_nbytes;
	uint64_t at = 0;
	size_t file = 0;

	for (size_t i = 0; i < items->n; i++) {
		struct tsr_dcp_item *item = &items->items[i];

		if (most && at && item->nbytes > (at < most ? most - at : 0)) {
			file++;
			at = 0;
		}
		item->file = file;
		item->offset = at;
		at += item->nbytes;
		w->archives[i].file = file;
		w->archives[i].zip.base = item->offset;
	}
	return file + 1;
}

static enum tsr_status name_files(struct tsr_writer *w, size_t n, struct tsr_err *err)
{
	const char **names;

	TSR_TRY(TSR_TAKE(&names, n, w->arena, err, w->plan.path));
	for (size_t i = 0; i < n; i++) {
		names[i] = tsr_arena_printf(w->arena, TSR_DCP_FILE_NAME, i);
		if (!names[i])
			return tsr_fail_nomem(err, w->plan.path);
	}
	return tsr_outputs_plan_directory(&w->outputs, w->plan.path, w->plan.force, INDEX, names, n,
					  err);
}

static enum tsr_status add_files(struct tsr_writer *w, struct tsr_dcp_items *items,
				 struct tsr_err *err)
{
	const size_t n = divide(w, items);

	TSR_TRY(TSR_TAKE(&w->files, n, w->arena, err, w->plan.path));
	w->nfiles = n;
	for (size_t i = 0; i < items->n; i++)
		w->files[items->items[i].file].nbytes += items->items[i].nbytes;
	return name_files(w, n, err);
}

/* --- Places ------------------------------------------------------------------------------------- */

/* A tensor that was found in several entries is stored in each. */
static enum tsr_status add_place(struct tsr_writer *w, size_t tag, bool *placed,
				 const struct tsr_place *place, struct tsr_err *err)
{
	struct tsr_place *places;
	size_t last = tag;

	if (!placed[tag]) {
		placed[tag] = true;
		w->places[tag] = *place;
		return TSR_OK;
	}
	places = tsr_arena_grow(w->arena, w->places, w->nplaces * sizeof(*places),
				(w->nplaces + 1) * sizeof(*places));
	if (!places)
		return tsr_fail_nomem(err, w->plan.path);
	w->places = places;
	while (places[last].next)
		last = places[last].next;
	places[last].next = (uint32_t)w->nplaces;
	places[w->nplaces++] = *place;
	return TSR_OK;
}

/* Archives, and for each of them the tensors in it; places follow when the archives have theirs. */
static enum tsr_status add_archive(struct tsr_writer *w, struct tsr_dcp_archiving *a,
				   struct tsr_dcp_items *items, size_t i, bool *placed,
				   struct tsr_err *err)
{
	const unsigned generation = i == 0 ? w->plan.generation : 0;

	TSR_TRY(tsr_dcp_archive(a, items, i, generation, &w->archives[i].zip, err));
	for (size_t k = 0; k < a->n; k++) {
		const uint32_t member = (uint32_t)(TSR_DCP_DATA_MEMBER + k);
		const struct tsr_place place = { .archive = (uint32_t)i,
						 .member = items->items[i].unread ? 0 : member };

		TSR_TRY(add_place(w, TSR_ARRAY_TAG(a->found[k], 0), placed, &place, err));
	}
	return TSR_OK;
}

static enum tsr_status add_archives(struct tsr_writer *w, struct tsr_dcp_items *items,
				    struct tsr_err *err)
{
	TSR_OWNED(free) bool *placed = NULL;
	TSR_SCOPED(tsr_dcp_archiving_free) struct tsr_dcp_archiving a = { 0 };

	TSR_TRY(TSR_NEW(&placed, w->ntags + 1, err, w->plan.path));
	TSR_TRY(tsr_writer_add_archives(w, items->n, err));
	TSR_TRY(tsr_dcp_archiving_init(&a, items, err));
	for (size_t i = 0; i < items->n; i++)
		TSR_TRY(add_archive(w, &a, items, i, placed, err));
	return TSR_OK;
}

static void set_offsets(struct tsr_writer *w)
{
	for (size_t i = 0; i < w->nplaces; i++) {
		struct tsr_place *p = &w->places[i];
		const struct tsr_writer_archive *a = &w->archives[p->archive];

		if (!p->member && a->zip.n)
			continue;
		p->file = (uint32_t)a->file;
		p->offset = a->zip.n ? tsr_zip_members_data(&a->zip, p->member) : a->zip.base;
	}
}

/* --- The directory ------------------------------------------------------------------------------ */

static enum tsr_status note_lost(const struct tsr_dcp_items *items, struct tsr_err *err)
{
	if (items->nempty)
		TSR_TRY(tsr_build_note(
			items->c, err,
			"%s: %zu empty dict%s left out: torch.distributed.checkpoint "
			"has no place for %s",
			items->path, items->nempty, items->nempty == 1 ? " is" : "s are",
			items->nempty == 1 ? "it" : "them"));
	if (items->nattributed)
		TSR_TRY(tsr_build_note(items->c, err,
				       "%s: the attributes of %zu tensor%s are left out: "
				       "torch.distributed.checkpoint has no place for them",
				       items->path, items->nattributed,
				       items->nattributed == 1 ? "" : "s"));
	if (items->nnumbered)
		TSR_TRY(tsr_build_note(items->c, err,
				       "%s: %zu key%s that %s int%s made text, as "
				       "torch.distributed.checkpoint does",
				       items->path, items->nnumbered,
				       items->nnumbered == 1 ? "" : "s",
				       items->nnumbered == 1 ? "was an" : "were",
				       items->nnumbered == 1 ? " is" : "s are"));
	return TSR_OK;
}

static void free_items(struct tsr_dcp_items *items)
{
	free(items->items);
}

enum tsr_status tsr_dcp_lay_out(struct tsr_writer *w, struct tsr_err *err)
{
	TSR_SCOPED(free_items) struct tsr_dcp_items items = { 0 };

	TSR_TRY(tsr_dcp_flatten(w->plan.c, NULL, w->plan.path, &items, err));
	TSR_TRY(note_lost(&items, err));
	TSR_TRY(add_archives(w, &items, err));
	TSR_TRY(add_files(w, &items, err));
	set_offsets(w);
	TSR_TRY(tsr_dcp_compose_metadata(&items, &w->index, err));
	w->index_nbytes = w->index.nbytes;
	return TSR_OK;
}
