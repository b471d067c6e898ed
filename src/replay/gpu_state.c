/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a replay: to a GPU and back, in pieces, by all threads. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "replay/gpu_buffers.h"

/* A plane, and the job that begins it. */
struct move {
	unsigned char *host, *device;
	uint64_t nbytes, first_job;
};

struct moving {
	struct tsr_replaying *r;
	struct tsr_replay_gpu *g;
	struct move *moves;
	size_t n;
	uint64_t njobs;
};

/* One thread's job. */
struct move_job {
	struct tsr_replay_buffer *buffer;
	unsigned char *host, *device;
	size_t nbytes;
};

static void add_move(struct moving *m, unsigned char *host, unsigned char *device, uint64_t nbytes)
{
	if (!nbytes)
		return;
	m->moves[m->n++] = (struct move){ host, device, nbytes, m->njobs };
	m->njobs += (nbytes - 1) / m->g->buffer_nbytes + 1;
}

static enum tsr_status plan_moves(struct moving *m)
{
	const struct tsr_replaying *r = m->r;

	m->moves = calloc(r->nparams * TSR_PARTS * TSR_PLANES_MAX + 1, sizeof(*m->moves));
	if (!m->moves)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];

		for (unsigned part = 0; part < TSR_PARTS; part++) {
			const struct tsr_coding *coding = &p->coding[part];

			for (unsigned k = 0; coding->codec && k < coding->codec->nplanes; k++)
				add_move(m, p->plane[part][k], m->g->planes[i].plane[part][k],
					 tsr_plane_nbytes(coding, k, p->numel));
		}
	}
	return TSR_OK;
}

static enum tsr_status begin_move(const struct moving *m, struct move_job *j, uint64_t job,
				  struct tsr_err *err)
{
	size_t low = 0, high = m->n - 1;
	uint64_t at;

	while (low < high) {
		const size_t mid = low + (high - low + 1) / 2;

		if (m->moves[mid].first_job <= job)
			low = mid;
		else
			high = mid - 1;
	}
	at = (job - m->moves[low].first_job) * m->g->buffer_nbytes;
	j->host = m->moves[low].host + at;
	j->device = m->moves[low].device + at;
	j->nbytes = (size_t)(m->moves[low].nbytes - at);
	if (j->nbytes > m->g->buffer_nbytes)
		j->nbytes = (size_t)m->g->buffer_nbytes;
	return tsr_replay_take_buffer(m->g, &j->buffer, err);
}

static enum tsr_status put_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct moving *m = ctx;
	struct move_job *j = scratch;

	TSR_TRY(begin_move(m, j, job, err));
	memcpy(j->buffer->host, j->host, j->nbytes);
	return TSR_OK;
}

static enum tsr_status move_progress(const struct moving *m, struct tsr_err *err)
{
	const struct tsr_replaying *r = m->r;

	if (r->run && r->run->progress &&
	    !r->run->progress(r->run->ctx, r->done_nbytes, r->total_nbytes ? r->total_nbytes : 1))
		return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled", r->recording->path);
	return TSR_OK;
}

static enum tsr_status put_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct moving *m = ctx;
	const struct move_job *j = scratch;
	struct tsr_replay_gpu *g = m->g;

	(void)job;
	TSR_TRY(tsr_gpu_put(g->copies, j->device, j->buffer->host, j->nbytes, err));
	TSR_TRY(tsr_gpu_record(g->copies, j->buffer->done, err));
	tsr_replay_give_buffer(g, j->buffer, TSR_BUFFER_ON_ITS_WAY);
	return move_progress(m, err);
}

static enum tsr_status start_get(struct tsr_replay_gpu *g, const struct move_job *j,
				 struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_get(g->copies, j->buffer->host, j->device, j->nbytes, err));
	return tsr_gpu_record(g->copies, j->buffer->done, err);
}

static enum tsr_status get_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct moving *m = ctx;
	struct move_job *j = scratch;
	enum tsr_status status;

	TSR_TRY(begin_move(m, j, job, err));
	pthread_mutex_lock(&m->g->lock);
	status = start_get(m->g, j, err);
	pthread_mutex_unlock(&m->g->lock);
	if (status == TSR_OK)
		status = tsr_gpu_reach(j->buffer->done, err);
	if (status == TSR_OK)
		memcpy(j->host, j->buffer->host, j->nbytes);
	tsr_replay_give_buffer(m->g, j->buffer, TSR_BUFFER_FREE);
	return status;
}

static enum tsr_status get_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	(void)scratch;
	(void)job;
	return move_progress(ctx, err);
}

static enum tsr_status move_state(struct tsr_replaying *r, bool put)
{
	struct moving m = { .r = r, .g = r->gpu };
	struct tsr_pipeline pipeline = { .scratch_nbytes = sizeof(struct move_job),
					 .work = put ? put_work : get_work,
					 .commit = put ? put_commit : get_commit,
					 .ctx = &m };
	enum tsr_status status;

	if (!r->gpu)
		return TSR_OK;
	status = plan_moves(&m);
	pipeline.njobs = m.njobs;
	tsr_replay_begin_pass(m.g);
	if (status == TSR_OK && m.njobs)
		status = tsr_pipeline_run(&pipeline, &m.g->run, r->err);
	if (status == TSR_OK)
		status = tsr_gpu_sync(m.g->copies, r->err);
	free(m.moves);
	return status;
}

enum tsr_status tsr_replay_gpu_put_state(struct tsr_replaying *r)
{
	return move_state(r, true);
}

enum tsr_status tsr_replay_gpu_get_state(struct tsr_replaying *r)
{
	return move_state(r, false);
}
