/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/device.h"

#include <stdlib.h>

#include "base/fail.h"
#include "tersor/gpu.h"

struct tsr_replay_device {
	const struct tsr_replaying *r;
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *stream;
	void *(*plane)[TSR_PARTS][TSR_PLANES_MAX]; /* per parameter */
	void *grad; /* of one piece */
	size_t nentries;
	struct tsr_step_report *reports; /* on the GPU */
	struct tsr_step_report *found; /* what they were at the end of the window */
};

void *tsr_replay_device_plane(const struct tsr_replay_device *d, size_t param, unsigned part,
			      unsigned plane)
{
	return d->plane[param][part][plane];
}

/* --- State ------------------------------------------------------------------------------------ */

/* Copy every plane to the GPU, or back. */
static enum tsr_status copy_param(struct tsr_replay_device *d, size_t param, bool back,
				  struct tsr_err *err)
{
	const struct tsr_replay_param *p = &d->r->params[param];

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		const struct tsr_coding *coding = &p->coding[part];

		for (unsigned i = 0; coding->codec && i < coding->codec->nplanes; i++) {
			const uint64_t nbytes = tsr_plane_nbytes(coding, i, p->numel);
			void *device = d->plane[param][part][i];

			TSR_TRY(back ? tsr_gpu_get(d->stream, p->plane[part][i], device, nbytes,
						   err)
				     : tsr_gpu_put(d->stream, device, p->plane[part][i], nbytes,
						   err));
		}
	}
	return TSR_OK;
}

static enum tsr_status copy_state(struct tsr_replay_device *d, bool back, struct tsr_err *err)
{
	const struct tsr_run *run = d->r->run;

	for (size_t i = 0; i < d->r->nparams; i++) {
		TSR_TRY(copy_param(d, i, back, err));
		if (run && run->progress &&
		    !run->progress(run->ctx, d->r->done_nbytes, d->r->total_nbytes + 1))
			return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled",
					d->r->recording->path);
	}
	return tsr_gpu_sync(d->stream, err);
}

enum tsr_status tsr_replay_device_fetch(struct tsr_replay_device *d, struct tsr_err *err)
{
	return copy_state(d, true, err);
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static enum tsr_status allocate_param(struct tsr_replay_device *d, size_t param,
				      struct tsr_err *err)
{
	const struct tsr_replay_param *p = &d->r->params[param];

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		const struct tsr_coding *coding = &p->coding[part];

		for (unsigned i = 0; coding->codec && i < coding->codec->nplanes; i++)
			TSR_TRY(tsr_gpu_alloc(d->gpu, tsr_plane_nbytes(coding, i, p->numel) + 1,
					      "the state", &d->plane[param][part][i], err));
	}
	return TSR_OK;
}

static enum tsr_status allocate(struct tsr_replay_device *d, struct tsr_err *err)
{
	const struct tsr_replaying *r = d->r;
	uint64_t longest = 0;
	void *memory = NULL;

	d->nentries = TSR_REPLAY_WINDOW * r->nparams;
	d->plane = calloc(r->nparams + 1, sizeof(*d->plane));
	d->found = calloc(d->nentries + 1, sizeof(*d->found));
	if (!d->plane || !d->found)
		return tsr_fail_nomem(err, r->c->path);
	for (size_t i = 0; i < r->nparams; i++) {
		const uint64_t n = r->params[i].piece;

		TSR_TRY(allocate_param(d, i, err));
		longest = n > longest ? n : longest;
	}
	TSR_TRY(tsr_gpu_alloc(d->gpu, longest * sizeof(float), "a gradient", &d->grad, err));
	TSR_TRY(tsr_gpu_alloc(d->gpu, (d->nentries + 1) * sizeof(*d->reports), "reports", &memory,
			      err));
	d->reports = memory;
	return TSR_OK;
}

enum tsr_status tsr_replay_device_open(const struct tsr_replaying *r,
				       struct tsr_replay_device **ret, struct tsr_err *err)
{
	struct tsr_replay_device *d = calloc(1, sizeof(*d));
	enum tsr_status status;

	if (!d)
		return tsr_fail_nomem(err, r->c->path);
	d->r = r;
	status = tsr_gpu_open((unsigned)r->options->gpu, &d->gpu, err);
	if (status == TSR_OK)
		status = tsr_gpu_stream_new(d->gpu, &d->stream, err);
	if (status == TSR_OK)
		status = allocate(d, err);
	if (status == TSR_OK)
		status = copy_state(d, false, err);
	if (status != TSR_OK) {
		tsr_replay_device_close(d);
		return status;
	}
	*ret = d;
	return TSR_OK;
}

void tsr_replay_device_close(struct tsr_replay_device *d)
{
	if (!d)
		return;
	tsr_gpu_stream_free(d->stream);
	for (size_t i = 0; d->plane && i < d->r->nparams; i++) {
		for (unsigned part = 0; part < TSR_PARTS; part++) {
			for (unsigned plane = 0; plane < TSR_PLANES_MAX; plane++) {
				if (d->plane[i][part][plane])
					tsr_gpu_free(d->gpu, d->plane[i][part][plane]);
			}
		}
	}
	if (d->grad)
		tsr_gpu_free(d->gpu, d->grad);
	if (d->reports)
		tsr_gpu_free(d->gpu, d->reports);
	tsr_gpu_close(d->gpu);
	free(d->plane);
	free(d->found);
	free(d);
}

/* --- Windows ---------------------------------------------------------------------------------- */

enum tsr_status tsr_replay_device_begin(struct tsr_replay_device *d, struct tsr_err *err)
{
	return tsr_gpu_zero(d->stream, d->reports, d->nentries * sizeof(*d->reports), err);
}

enum tsr_status tsr_replay_device_step(struct tsr_replay_device *d, size_t entry,
				       const struct tsr_step *at, const void *grad,
				       size_t grad_nbytes, uint64_t n, struct tsr_err *err)
{
	/* In one stream: a gradient comes when the step before it is done with its memory. */
	TSR_TRY(tsr_gpu_put(d->stream, d->grad, grad, grad_nbytes, err));
	return tsr_gpu_step(d->stream, at, d->grad, n, &d->reports[entry], err);
}

enum tsr_status tsr_replay_device_end(struct tsr_replay_device *d,
				      const struct tsr_step_report **reports_ret,
				      struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_get(d->stream, d->found, d->reports, d->nentries * sizeof(*d->found), err));
	TSR_TRY(tsr_gpu_sync(d->stream, err));
	*reports_ret = d->found;
	return TSR_OK;
}
