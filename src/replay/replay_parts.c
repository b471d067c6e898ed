/* SPDX-License-Identifier: Apache-2.0 */
/* Replays in parts: which tiles a part has, and where it leaves their state. */
#include "replay/replay_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/fingerprint.h"
#include "io/file.h"
#include "io/hash.h"

/* --- Tiles -------------------------------------------------------------------------------------- */

static uint64_t weigh_tile(void *ctx, uint64_t job)
{
	const struct tsr_replaying *r = *(const struct tsr_replaying *const *)ctx;

	return tsr_tiles_get(&r->tiles, job).n * sizeof(float);
}

enum tsr_status tsr_replay_run_tiles(const struct tsr_pipeline *pipeline,
				     void (*found)(void *ctx, void *scratch, uint64_t job,
						   struct tsr_outcome *o))
{
	const struct tsr_replaying *r = *(const struct tsr_replaying *const *)pipeline->ctx;
	const struct tsr_parted parted = { .pipeline = pipeline,
					   .what = r->c->path,
					   .weigh = weigh_tile,
					   .found = found,
					   .as_before = true };

	return tsr_parted_run(&parted, r->run, r->err);
}

enum tsr_status tsr_replay_check_parts(const struct tsr_replaying *r)
{
	if (!r->run || !r->run->parts)
		return TSR_OK;
	if (r->options->dry_run)
		return tsr_part_refuse(r->run, "a plan without output", r->err);
	if (r->options->each_step)
		return tsr_part_refuse(r->run, "a state that is looked at after every step",
				       r->err);
	if (r->options->ngpus > 0)
		return tsr_part_refuse(r->run, "a replay on a GPU", r->err);
	return TSR_OK;
}

enum tsr_status tsr_replay_name_steps(const struct tsr_replaying *r,
				      struct tsr_checkpoint *const steps[], unsigned n)
{
	const struct tsr_checkpoint *const first[] = { r->c };
	const size_t ngroups = r->result->ngroups;
	uint64_t hash;

	if (!r->run || !r->run->parts)
		return TSR_OK;
	/* These can be of a schedule or of the recording's manifest, whose files are none of a checkpoint. */
	hash = tsr_hash(r->result->lr, r->result->nsteps * ngroups * sizeof(double),
			n ? tsr_part_id(r->run->parts) : ngroups);
	for (size_t i = 0; i < ngroups; i++)
		hash = tsr_hash(r->result->hyper[i].value, sizeof(r->result->hyper[i].value), hash);
	return tsr_inputs_name(n ? (const struct tsr_checkpoint *const *)steps : first, n ? n : 1,
			       hash, r->run, r->err);
}

/* --- Figures ------------------------------------------------------------------------------------ */

/* Of a state that is not kept there is nothing. */
static void put_measure(struct tsr_measure *m, struct tsr_outcome *o)
{
	bool any = m->n != 0;

	tsr_outcome_bool(o, &any);
	if (any)
		tsr_outcome_measure(o, m);
}

void tsr_compare_outcome(struct tsr_compare *c, struct tsr_outcome *o)
{
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		put_measure(&c->state[part], o);
		put_measure(&c->quant[part], o);
	}
	put_measure(&c->update, o);
	put_measure(&c->update_quant, o);
	tsr_outcome_doubles(o, c->norm, TSR_MEASURE_LANES);
	tsr_outcome_u64(o, &c->stalled);
	tsr_outcome_u64(o, &c->underflow);
}

/* --- The state ---------------------------------------------------------------------------------- */

/* The planes of all parameters, one after the other in one file. */
struct keeping {
	struct tsr_replaying *r;
	uint64_t *at; /* per parameter: where its planes begin */
	uint64_t nbytes;
	struct tsr_outfile *out; /* of a part */
	struct tsr_file *in; /* of who joins */
};

/* Scratch memory of a job. */
struct kept {
	uint64_t hash; /* of the tile's planes, one after the other */
};

/* A run of bytes of a tile: in memory, and in the file. */
struct stretch {
	unsigned char *bytes;
	size_t nbytes;
	uint64_t offset;
};

typedef enum tsr_status stretch_fn(const struct keeping *k, const struct stretch *s,
				   struct tsr_err *err);

/* Call @move for each plane of a tile, and chain the hashes of what is there then. */
static enum tsr_status each_stretch(const struct keeping *k, uint64_t job, stretch_fn *move,
				    uint64_t *hash, struct tsr_err *err)
{
	const struct tsr_tile tile = tsr_tiles_get(&k->r->tiles, job);
	const struct tsr_replay_param *p = &k->r->params[tile.tensor];
	uint64_t offset = k->at[tile.tensor];

	*hash = 0;
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		const struct tsr_coding *coding = &p->coding[part];

		for (unsigned i = 0; coding->codec && i < coding->codec->nplanes; i++) {
			const uint64_t first = tsr_plane_nbytes(coding, i, tile.first);
			const struct stretch s = {
				.bytes = p->plane[part][i] + first,
				.nbytes = (size_t)tsr_plane_nbytes(coding, i, tile.n),
				.offset = offset + first,
			};

			TSR_TRY(move(k, &s, err));
			*hash = tsr_hash(s.bytes, s.nbytes, *hash);
			offset += tsr_plane_nbytes(coding, i, p->numel);
		}
	}
	return TSR_OK;
}

static enum tsr_status write_stretch(const struct keeping *k, const struct stretch *s,
				     struct tsr_err *err)
{
	return tsr_outfile_write(k->out, s->bytes, s->nbytes, s->offset, err);
}

static enum tsr_status read_stretch(const struct keeping *k, const struct stretch *s,
				    struct tsr_err *err)
{
	return tsr_file_read(k->in, s->bytes, s->nbytes, s->offset, err);
}

static enum tsr_status keep_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct kept *kept = scratch;

	return each_stretch(ctx, job, write_stretch, &kept->hash, err);
}

static void keep_found(void *ctx, void *scratch, uint64_t job, struct tsr_outcome *o)
{
	struct kept *kept = scratch;

	(void)ctx;
	(void)job;
	tsr_outcome_u64(o, &kept->hash);
}

static enum tsr_status keep_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct keeping *k = ctx;
	const struct kept *kept = scratch;
	uint64_t hash;

	TSR_TRY(each_stretch(k, job, read_stretch, &hash, err));
	if (hash == kept->hash)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: tensor %.200s: found a state with the hash %016llx, expected "
			"%016llx, which a part wrote",
			tsr_file_path(k->in),
			k->r->params[tsr_tiles_get(&k->r->tiles, job).tensor].name,
			(unsigned long long)hash, (unsigned long long)kept->hash);
}

static enum tsr_status place_all(struct keeping *k)
{
	k->at = calloc(k->r->nparams + 1, sizeof(*k->at));
	if (!k->at)
		return tsr_fail_nomem(k->r->err, k->r->c->path);
	for (size_t i = 0; i < k->r->nparams; i++) {
		const struct tsr_replay_param *p = &k->r->params[i];

		k->at[i] = k->nbytes;
		for (unsigned part = 0; part < TSR_PARTS; part++) {
			const struct tsr_coding *coding = &p->coding[part];

			for (unsigned j = 0; coding->codec && j < coding->codec->nplanes; j++)
				k->nbytes += tsr_plane_nbytes(coding, j, p->numel);
		}
	}
	return TSR_OK;
}

/* Meet the other parts in the file; who joins reads it, and has it removed at the end. */
static enum tsr_status open_file(struct keeping *k, const char *out)
{
	struct tsr_parts *parts = k->r->run->parts;
	const bool joins = tsr_part_joins(parts);
	enum tsr_status status;
	char *path;

	TSR_TRY(tsr_outfile_meet(out, true, k->nbytes, tsr_part_id(parts), joins, &k->out,
				 k->r->err));
	path = tsr_outfile_temporary(k->out);
	if (!path)
		return tsr_fail_nomem(k->r->err, out);
	status = tsr_part_meet(parts, path, k->nbytes, tsr_outfile_mark(k->out), k->r->err);
	if (status == TSR_OK && joins)
		status = tsr_file_open(path, &k->in, k->r->err);
	free(path);
	return status;
}

static enum tsr_status keep_tiles(struct keeping *k, const char *out)
{
	const struct tsr_pipeline pipeline = { .njobs = k->r->tiles.njobs,
					       .scratch_nbytes = sizeof(struct kept),
					       .work = keep_work,
					       .commit = keep_commit,
					       .ctx = k };

	TSR_TRY(place_all(k));
	TSR_TRY(open_file(k, out));
	return k->r->nparams ? tsr_replay_run_tiles(&pipeline, keep_found) : TSR_OK;
}

enum tsr_status tsr_replay_keep_state(struct tsr_replaying *r, const char *out)
{
	struct keeping k = { .r = r };
	enum tsr_status status;

	if (!out || !r->run || !r->run->parts)
		return TSR_OK;
	status = keep_tiles(&k, out);
	if (status == TSR_OK && tsr_part_is_one(r->run->parts)) {
		status = tsr_outfile_leave(k.out, r->err);
		k.out = NULL;
	}
	tsr_outfile_discard(k.out);
	tsr_file_close(k.in);
	free(k.at);
	return status;
}

enum tsr_status tsr_replay_end_part(struct tsr_replaying *r)
{
	if (!r->run || !r->run->parts)
		return TSR_OK;
	TSR_TRY(tsr_part_end(r->run->parts, r->err));
	r->whole = *r->run;
	r->whole.parts = NULL;
	r->run = &r->whole;
	return TSR_OK;
}
