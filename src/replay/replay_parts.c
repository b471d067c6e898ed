/* SPDX-License-Identifier: Apache-2.0 */
/* Replays in parts: which tiles a part has, and where it leaves their state. */
#include "replay/replay_parts.h"

#include "base/fail.h"
#include "ckpt/fingerprint.h"
#include "io/hash.h"

/* --- Tiles -------------------------------------------------------------------------------------- */

static uint64_t weigh_tile(void *ctx, uint64_t job)
{
	const struct tsr_replaying *r = *(const struct tsr_replaying *const *)ctx;

	return tsr_tiles_get(&r->tiles, job).n * sizeof(float);
}

enum tsr_status tsr_replay_run_tiles(struct tsr_pipeline pipeline, size_t found_at,
				     size_t found_nbytes, tsr_replay_restore_fn *restore)
{
	const struct tsr_replaying *r = *(const struct tsr_replaying *const *)pipeline.ctx;
	const struct tsr_parted parted = { .pipeline = &pipeline,
					   .what = r->c->path,
					   .weigh = weigh_tile,
					   .found_at = found_at,
					   .found_nbytes = found_nbytes,
					   .restore = restore,
					   .as_before = true };

	pipeline.njobs = r->tiles.njobs;
	return tsr_parted_run(&parted, r->run, r->err);
}

enum tsr_status tsr_replay_check_parts(const struct tsr_replaying *r)
{
	if (!r->run || !r->run->parts)
		return TSR_OK;
	if (r->options->dry_run)
		return tsr_part_refuse(r->run, "a plan without output", r->err);
	if (tsr_replay_looks(r->options))
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

/* --- The state ---------------------------------------------------------------------------------- */

struct keeping {
	struct tsr_replaying *r;
};

typedef enum tsr_status plane_fn(struct tsr_parts *parts, void *bytes, size_t nbytes,
				 uint64_t *hash, struct tsr_err *err);

/* Call @move for each plane of a tile; scratch memory of a job is their hashes. */
static enum tsr_status each_plane(const struct keeping *k, uint64_t *hashes, uint64_t job,
				  plane_fn *move, struct tsr_err *err)
{
	const struct tsr_tile tile = tsr_tiles_get(&k->r->tiles, job);
	const struct tsr_replay_param *p = &k->r->params[tile.tensor];

	for (unsigned i = 0; i < TSR_REPLAY_FP32; i++) {
		if (tsr_replay_has_array(k->r, p, i))
			TSR_TRY(move(k->r->run->parts,
				     p->array[i] + tsr_replay_array_nbytes(p, i, tile.first),
				     (size_t)tsr_replay_array_nbytes(p, i, tile.n), &hashes[i],
				     err));
	}
	return TSR_OK;
}

static enum tsr_status hash_plane(struct tsr_parts *parts, void *bytes, size_t nbytes,
				  uint64_t *hash, struct tsr_err *err)
{
	(void)parts, (void)err;
	*hash = tsr_hash(bytes, nbytes, 0);
	return TSR_OK;
}

static enum tsr_status put_plane(struct tsr_parts *parts, void *bytes, size_t nbytes,
				 uint64_t *hash, struct tsr_err *err)
{
	(void)hash;
	return tsr_part_put(parts, bytes, nbytes, err);
}

static enum tsr_status get_plane(struct tsr_parts *parts, void *bytes, size_t nbytes,
				 uint64_t *hash, struct tsr_err *err)
{
	return tsr_part_get(parts, bytes, nbytes, *hash, err);
}

static enum tsr_status keep_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	return each_plane(ctx, scratch, job, hash_plane, err);
}

static enum tsr_status keep_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	return each_plane(ctx, scratch, job, get_plane, err);
}

static enum tsr_status keep_finish(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	return each_plane(ctx, scratch, job, put_plane, err);
}

enum tsr_status tsr_replay_keep_state(struct tsr_replaying *r)
{
	struct keeping k = { .r = r };
	const struct tsr_pipeline pipeline = { .scratch_nbytes = TSR_REPLAY_FP32 * sizeof(uint64_t),
					       .work = keep_work,
					       .commit = keep_commit,
					       .finish = keep_finish,
					       .ctx = &k };

	return r->run && r->run->parts && r->nparams
		       ? tsr_replay_run_tiles(pipeline, 0, TSR_REPLAY_FP32 * sizeof(uint64_t), NULL)
		       : TSR_OK;
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
