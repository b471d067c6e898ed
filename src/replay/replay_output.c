/* SPDX-License-Identifier: Apache-2.0 */
/* The result: the checkpoint that was read, with its new state, which is in memory. */
#include "replay/stepping.h"

#include "base/fail.h"
#include "io/mapped.h"
#include "ckpt/piece_hash.h"
#include "ckpt/build.h"
#include "names/import/flashoptim_export.h"
#include "pack/open_checkpoint.h"
#include "pack/packing.h"
#include "replay/new_states.h"
#include "replay/replay_plan.h"

/* Whether the state goes into a packed file. */
static bool is_packed(const struct tsr_replaying *r)
{
	return !r->options->decode && tsr_replay_check_plain(r, "", NULL) != TSR_OK;
}

/* FlashOptim's state dict has all tensors in its own codecs, also those that are not stepped. */
static enum tsr_status check_flashoptim(const struct tsr_replaying *r)
{
	TSR_OWNED(free) bool *stepped = NULL;
	uint64_t bytewidth = 0;

	TSR_TRY(TSR_NEW(&stepped, r->c->ntensors + 1, r->err, r->c->path));
	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];

		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			if (p->tensor[slot] != SIZE_MAX)
				stepped[p->tensor[slot]] = p->coding[slot].codec;
			if (p->coding[slot].codec && !tsr_replay_is_f32(&p->coding[slot]))
				TSR_TRY(tsr_flashoptim_check(r->c->path, p->name, &p->coding[slot],
							     &bytewidth, r->err));
		}
	}
	for (size_t i = 0; i < r->c->ntensors; i++) {
		if (!stepped[i])
			TSR_TRY(tsr_flashoptim_check(r->c->path, r->c->tensors[i].name,
						     &r->c->tensors[i].coding, &bytewidth, r->err));
	}
	if (!bytewidth)
		return tsr_fail_hint(
			r->err, TSR_E_UNSUPPORTED, TSR_HINT_PACK_STATE,
			"%s: has no packed weights, expected some to write in FlashOptim's form",
			r->c->path);
	return TSR_OK;
}

enum tsr_status tsr_replay_check_form(const struct tsr_replaying *r, const char *out)
{
	const enum tsr_container container = r->options->container;

	if (r->options->to_flashoptim)
		return check_flashoptim(r);
	if (!is_packed(r) || container == TSR_CONTAINER_COUNT ||
	    container == TSR_CONTAINER_SAFETENSORS)
		return TSR_OK;
	return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_DECODE,
			     "%s: a packed state is a safetensors file, not %s", out,
			     tsr_container_name(container));
}

/* --- Planes ----------------------------------------------------------------------------------- */

static enum tsr_status place_plane(struct tsr_replaying *r, size_t tensor, unsigned plane,
				   const struct tsr_coding *coding, const unsigned char *memory)
{
	struct tsr_tensor *t = &r->c->tensors[tensor];
	struct tsr_array *a = &r->c->arrays[t->plane[plane]];
	uint64_t *count;

	a->dtype = tsr_plane_dtype(coding, plane);
	a->rank = t->rank;
	a->shape = t->shape;
	a->numel = tsr_plane_count(coding, plane, t->numel);
	a->nbytes = tsr_plane_nbytes(coding, plane, t->numel);
	if (coding->codec->planes[plane].unit != TSR_PER_ELEMENT) {
		TSR_TRY(TSR_ARENA_NEW(&count, 1, r->c->arena, tsr_build_nomem(r->c, r->err)));
		*count = a->numel;
		a->rank = 1;
		a->shape = count;
	}
	/* What is only planned is nowhere, and shares no bytes of a file with others. */
	a->memory = r->result->disk ? NULL : memory ? memory : (const unsigned char *)"";
	if (r->result->disk) {
		a->file = r->disk_file;
		a->offset = tsr_mapped_offset(r->result->disk, memory);
	}
	a->layout = NULL;
	a->coded = NULL;
	a->has_crc = false;
	return TSR_OK;
}

/* Of a packed file every hash is checked when it is read again. */
static enum tsr_status hash_planes(struct tsr_replaying *r, struct tsr_tensor *t,
				   unsigned char *const memory[])
{
	void *plane[TSR_PLANES_MAX];

	for (unsigned i = 0; i < t->nplanes; i++) {
		t->hash[i] = 0;
		plane[i] = memory[i];
		if (!memory[i] || !r->c->packed)
			return TSR_OK;
	}
	return tsr_plane_hashes_whole(t, plane, t->hash, r->c->path, r->err);
}

/* Let a tensor have what is in these planes. */
static enum tsr_status place_tensor(struct tsr_replaying *r, size_t tensor,
				    const struct tsr_coding *coding, unsigned char *const memory[])
{
	const unsigned had = r->c->tensors[tensor].nplanes;
	struct tsr_tensor *t;

	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		const struct tsr_array new = { .name = r->c->tensors[tensor].name,
					       .dtype = TSR_U8 };

		/* The array of a plane is a new one if the tensor had fewer planes. */
		if (i >= had)
			TSR_TRY(tsr_build_array(r->c, &new, &r->c->tensors[tensor].plane[i],
						r->err));
		TSR_TRY(place_plane(r, tensor, i, coding, memory[i]));
	}
	t = &r->c->tensors[tensor];
	t->dtype = TSR_F32;
	t->nplanes = coding->codec->nplanes;
	t->coding = tsr_replay_is_f32(coding) ? (struct tsr_coding){ .group = 1 } : *coding;
	t->error = NULL;
	t->narrow = NULL;
	return hash_planes(r, t, memory);
}

static enum tsr_status place_param(struct tsr_replaying *r, const struct tsr_replay_param *p)
{
	const struct tsr_tile all = { .tensor = (size_t)(p - r->params), .n = (size_t)p->numel };
	const struct tsr_coding f32 = tsr_coding_default(tsr_codec_find("f32"));

	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		const struct tsr_coding *coding = &p->coding[slot];

		if (!coding->codec)
			continue;
		TSR_TRY(place_tensor(r, p->tensor[slot], coding, tsr_replay_planes(p, slot)));
		if (coding->codec->relative)
			r->c->tensors[p->tensor[slot]].beside =
				r->c->tensors[p->tensor[TSR_SLOT_VARIANCE]].name;
	}
	for (unsigned i = 0; i < TSR_BASES; i++) {
		if (p->side[i % 2])
			TSR_TRY(place_tensor(r, p->basis[i], &f32,
					     &p->array[TSR_REPLAY_BASES + i]));
	}
	tsr_replay_leave_tile(r, &all);
	return TSR_OK;
}

/* A state on disk is read from there as the tensors of any file. */
static enum tsr_status add_disk(struct tsr_replaying *r)
{
	struct tsr_file *f = NULL;

	if (!r->result->disk)
		return TSR_OK;
	TSR_TRY(tsr_mapped_file(r->result->disk, &f, r->err));
	return tsr_build_file(r->c, f, &r->disk_file, r->err);
}

enum tsr_status tsr_replay_place_state(struct tsr_replaying *r)
{
	TSR_TRY(add_disk(r));
	for (size_t i = 0; i < r->nparams; i++)
		TSR_TRY(place_param(r, &r->params[i]));
	return TSR_OK;
}

enum tsr_status tsr_replay_show_state(struct tsr_replaying *r)
{
	if (r->c->packed)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: is packed: found what a codec left, expected an FP32 state",
				r->c->path);
	TSR_TRY(tsr_replay_check_plain(r, "to look at after each step", r->err));
	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];

		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			if (p->coding[slot].codec && p->tensor[slot] == SIZE_MAX)
				return tsr_fail(r->err, TSR_E_UNSUPPORTED,
						"%s: tensor %.200s: has no %s yet, expected one to "
						"look at after each step",
						r->c->path, p->name,
						tsr_kind_name(tsr_slot_kind((enum tsr_slot)slot)));
		}
	}
	return tsr_replay_place_state(r);
}

/* --- Writing ---------------------------------------------------------------------------------- */

static bool is_lossy(const struct tsr_replaying *r)
{
	for (size_t i = 0; i < r->nparams; i++) {
		if (r->params[i].lossy)
			return true;
	}
	return false;
}

static bool *list_kept(const struct tsr_replaying *r)
{
	bool *kept = calloc(r->c->ntensors + 1, sizeof(*kept));

	for (size_t i = 0; kept && i < r->c->ntensors; i++)
		kept[i] = r->c->packed;
	for (size_t i = 0; kept && i < r->nparams; i++) {
		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			if (r->params[i].coding[slot].codec)
				kept[r->params[i].tensor[slot]] = true;
		}
	}
	return kept;
}

/* Note the tensors that their codecs cannot hold any more: they are written raw. */
static enum tsr_status note_raw(struct tsr_replaying *r, const struct tsr_packing *packing)
{
	char reason[120];

	for (size_t i = 0; i < r->c->ntensors; i++) {
		if (packing->tensors[i].raw == TSR_RAW_NO)
			continue;
		tsr_raw_reason_text(&packing->tensors[i], reason, sizeof(reason));
		TSR_TRY(tsr_build_note(r->c, r->err, "%s: tensor %.200s: found %s, kept raw",
				       r->c->path, r->c->tensors[i].name, reason));
	}
	return TSR_OK;
}

/* The output has its name: what fails after that takes nothing back, and the message says so. */
static enum tsr_status written(struct tsr_replaying *r, const char *out, enum tsr_status after)
{
	if (after != TSR_E_NOMEM || r->options->dry_run)
		return after;
	return tsr_fail(r->err, TSR_E_DURABILITY,
			"%s: published and complete, but out of memory after that", out);
}

/* How states that are not stepped are packed: those without blocks stay as they are. */
static struct tsr_coding of_others(const struct tsr_coding *coding)
{
	return coding->codec && coding->codec->learned ? tsr_coding_default(tsr_codec_find("f32"))
						       : *coding;
}

static enum tsr_status write_packed(struct tsr_replaying *r, const char *out)
{
	const struct tsr_replay_options *o = r->options;
	struct tsr_pack_options pack = tsr_pack_defaults();
	struct tsr_pack_given given = { .n = r->c->ntensors,
					.generation = r->c->generation + is_lossy(r) };
	TSR_OWNED(tsr_packing_free) struct tsr_packing *packing = NULL;
	TSR_OWNED(free) bool *kept = list_kept(r);
	enum tsr_status status;

	if (!kept)
		return tsr_fail_nomem(r->err, out);
	given.kept = kept;
	given.named = true;
	/* Frozen weights, which the recording does not have, are packed like the others. */
	pack.weight = r->result->coding[TSR_SLOT_WEIGHT];
	pack.momentum = of_others(&r->result->coding[TSR_SLOT_MOMENTUM]);
	pack.variance = of_others(&r->result->coding[TSR_SLOT_VARIANCE]);
	pack.min_elements = 0;
	pack.force = o->force;
	pack.dry_run = o->dry_run;
	pack.max_shard_nbytes = o->max_shard_nbytes;
	status = tsr_pack_checkpoint(r->c, &given, out, &pack, r->run, &packing, r->err);
	if (packing) {
		r->result->out_nbytes = packing->header_nbytes + packing->data_nbytes;
		r->c->generation = packing->generation;
		packing->source = NULL;
		TSR_THEN(status, written(r, out, note_raw(r, packing)));
	}
	return status;
}

static enum tsr_status write_plain(struct tsr_replaying *r, const char *out)
{
	const struct tsr_replay_options *o = r->options;
	struct tsr_write_options write = tsr_write_defaults();
	TSR_OWNED(tsr_unpacking_free) struct tsr_unpacking *unpacking = NULL;

	write.container = o->container;
	write.flashoptim = o->to_flashoptim;
	write.max_shard_nbytes = o->max_shard_nbytes;
	write.force = o->force;
	write.dry_run = o->dry_run;
	r->c->generation += is_lossy(r);
	TSR_TRY(tsr_write_checkpoint(r->c, out, &write, r->run, &unpacking, r->err));
	if (unpacking) {
		r->result->out_nbytes = unpacking->nbytes;
		unpacking->source = NULL;
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_write(struct tsr_replaying *r, const char *out)
{
	const bool packed = is_packed(r);
	enum tsr_status status;

	TSR_TRY(tsr_replay_add_new_states(r));
	TSR_TRY(tsr_replay_place_state(r));
	TSR_TRY(tsr_replay_write_counts(r));
	status = packed ? write_packed(r, out) : write_plain(r, out);
	/* Writing may have changed the list of tensors. */
	if (tsr_is_written(status)) {
		const enum tsr_status after = tsr_build_index(r->c,
							      status == TSR_OK ? r->err : NULL);

		if (after != TSR_OK)
			tsr_build_no_index(r->c);
		TSR_THEN(status, written(r, out, after));
	}
	return status;
}
