/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay has on a GPU, and the buffers by which bytes get there. */
#ifndef TSR_REPLAY_GPU_BUFFERS_H
#define TSR_REPLAY_GPU_BUFFERS_H

#include <pthread.h>

#include "base/pipeline.h"
#include "replay/on_gpu.h"
#include "gpu/gpu_work.h"

/* Threads that read; more would only take memory. */
#define TSR_REPLAY_READERS_MAX 12u

/* Buffers: one per job under way, and those that the GPU is not yet done with. */
#define TSR_REPLAY_IN_FLIGHT 4u
#define TSR_REPLAY_BUFFERS_MAX \
	(TSR_REPLAY_READERS_MAX + TSR_PIPELINE_WAITING + TSR_REPLAY_IN_FLIGHT)

enum tsr_replay_buffer_state { TSR_BUFFER_FREE, TSR_BUFFER_HELD, TSR_BUFFER_ON_ITS_WAY };

/* Host memory and as much on the GPU. */
struct tsr_replay_buffer {
	enum tsr_replay_buffer_state state;
	uint64_t ticket; /* of those on their way: the lower, the earlier */
	struct tsr_gpu_event *copied, *done;
	unsigned char *host, *device;
};

struct tsr_replay_planes {
	unsigned char *plane[TSR_PARTS][TSR_PLANES_MAX]; /* on the GPU */
};

struct tsr_replay_gpu {
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *copies, *steps;
	unsigned char *state;
	struct tsr_replay_planes *planes; /* per parameter */
	uint64_t *start; /* per parameter: its first chunk; one entry more at the end */
	struct tsr_step_report *reports; /* on the GPU: of a chunk at each step, and so on */
	struct tsr_step_report *found; /* the same, fetched */
	struct tsr_run run; /* how many threads read */
	unsigned nbuffers;
	uint64_t buffer_nbytes;
	unsigned char *host, *device; /* memory of the buffers */
	struct tsr_replay_buffer buffers[TSR_REPLAY_BUFFERS_MAX];
	uint64_t tickets;
	pthread_mutex_t lock; /* states of buffers; the stream while the state comes back */
	uint64_t next; /* the job to be committed next */
};

/*
 * A buffer that is free, or the one that is free next, once the GPU is done with it.  There are more
 * than jobs under way, each of which takes one.
 */
enum tsr_status tsr_replay_take_buffer(struct tsr_replay_gpu *g, struct tsr_replay_buffer **ret,
				       struct tsr_err *err);

/* Free again; or on its way, and free when its event `done`, which was recorded, is reached. */
void tsr_replay_give_buffer(struct tsr_replay_gpu *g, struct tsr_replay_buffer *b,
			    enum tsr_replay_buffer_state state);

/* Before a pipeline, when the GPU has nothing to do. */
void tsr_replay_begin_pass(struct tsr_replay_gpu *g);

#endif
