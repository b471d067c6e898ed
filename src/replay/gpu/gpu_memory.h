/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay has on GPUs: the state, and buffers by which bytes get there and back. */
#ifndef TSR_REPLAY_GPU_MEMORY_H
#define TSR_REPLAY_GPU_MEMORY_H

#include <pthread.h>

#include "gpu/gpu_work.h"
#include "replay/window.h"

/* Threads that read for a GPU; more would only take memory. */
#define TSR_REPLAY_READERS_MAX 12u

/*
 * Buffers of a GPU: one per job in flight, and those that it still uses.  All steps of a tile come one
 * after the other, to one GPU: of several, each has enough for two tiles, so that it goes on while others
 * get theirs.
 */
#define TSR_REPLAY_IN_FLIGHT 4u
#define TSR_REPLAY_IN_FLIGHT_OF_SEVERAL (TSR_REPLAY_IN_FLIGHT + 2 * TSR_REPLAY_WINDOW)

enum tsr_replay_buffer_state { TSR_BUFFER_FREE, TSR_BUFFER_HELD, TSR_BUFFER_IN_FLIGHT };

/* Host memory and as much on the GPU. */
struct tsr_replay_buffer {
	enum tsr_replay_buffer_state state;
	uint64_t ticket; /* of those in flight: the lower, the earlier */
	struct tsr_gpu_event *copied, *done;
	unsigned char *host, *device;
};

/* Where a GPU has a tile: the arrays of its state. */
struct tsr_replay_on_gpu {
	unsigned char *array[TSR_REPLAY_ARRAYS];
};

/* What a GPU has of one of the states that are stepped. */
struct tsr_replay_gpu_state {
	unsigned char *memory;
	struct tsr_replay_on_gpu *tiles; /* per tile that is dealt to it */
	struct tsr_step_report *reports; /* on the GPU: of a tile at each step, and so on */
	struct tsr_step_report *found; /* the same, fetched */
	struct tsr_compare *sums; /* on the GPU: per parameter; NULL without a comparison */
	struct tsr_compare *compared; /* the same, fetched */
};

/* One GPU. */
struct tsr_replay_gpu {
	unsigned index;
	uint64_t numel; /* elements of the tiles that it has */
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *copies, *steps;
	struct tsr_replay_gpu_state
		*states; /* of the replay and of those that also take its steps */
	unsigned char *host, *device; /* memory of the buffers */
	unsigned nbuffers;
	struct tsr_replay_buffer *buffers;
	uint64_t tickets;
	pthread_mutex_t lock; /* states of buffers; the stream while the state comes back */
};

/* Those of a replay; a tile of the state is on one of them. */
struct tsr_replay_gpus {
	struct tsr_replaying *first;
	unsigned n;
	struct tsr_replay_gpu *each; /* behind this */
	unsigned nstates;
	struct tsr_tiles tiles; /* of parameters; longer than on the CPU */
	unsigned *owner; /* per tile */
	uint64_t buffer_nbytes;
	struct tsr_run run; /* how many threads read */
	uint64_t next; /* the job to be committed next */
};

/* The GPU that has a tile. */
static inline struct tsr_replay_gpu *tsr_replay_owner(const struct tsr_replay_gpus *gpus,
						      uint64_t tile)
{
	return &gpus->each[gpus->owner[tile]];
}

/* TSR_E_USAGE if the options ask for GPUs, and for what only the CPU does. */
enum tsr_status tsr_replay_gpu_check(const struct tsr_replaying *r);

/*
 * Take the GPUs that the options ask for, and all memory on them that the replay needs; sets r->gpus,
 * NULL for the CPU.  The state must have been planned.
 *
 * Return: TSR_E_NOMEM if the state does not fit; TSR_E_IO if the GPU cannot be used.
 */
enum tsr_status tsr_replay_gpu_open(struct tsr_replaying *r);

/* Waits until the GPUs have finished.  NULL is allowed. */
void tsr_replay_gpu_close(struct tsr_replay_gpus *gpus);

/*
 * A free buffer, or the next one that the GPU finishes with.  Each job in flight takes one, and there
 * are more buffers than such jobs.
 */
enum tsr_status tsr_replay_take_buffer(struct tsr_replay_gpu *g, struct tsr_replay_buffer **ret,
				       struct tsr_err *err);

/* Free again; or in flight, and free once its event `done`, which was recorded, is reached. */
void tsr_replay_give_buffer(struct tsr_replay_gpu *g, struct tsr_replay_buffer *b,
			    enum tsr_replay_buffer_state state);

/* Call this before a pipeline, when the GPUs are idle. */
void tsr_replay_begin_pass(struct tsr_replay_gpus *gpus);

/* Copy the loaded state to the GPUs, and back after the last step; nothing without r->gpus. */
enum tsr_status tsr_replay_gpu_put_state(struct tsr_replaying *r);
enum tsr_status tsr_replay_gpu_get_state(struct tsr_replaying *r);

#endif
