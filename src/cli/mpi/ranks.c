/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a run, and what they tell each other: the only file that calls MPI. */
#include "cli/mpi/ranks.h"

#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void count_processors(MPI_Comm machine, struct ranks *ret)
{
	cpu_set_t *all = calloc((size_t)ret->n_on_machine, sizeof(*all)), set;
	int n, sharing = 0;
	unsigned mine;

	if (!all)
		ranks_abort(EXIT_FAILURE);
	CPU_ZERO(&set);
	n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
	/* How many ranks of this machine, this one included, may run on the same processors. */
	MPI_Allgather(&set, sizeof(set), MPI_BYTE, all, sizeof(set), MPI_BYTE, machine);
	for (int i = 0; i < ret->n_on_machine; i++)
		sharing += CPU_EQUAL(&all[i], &set);
	free(all);
	n /= sharing;
	mine = n > 0 ? (unsigned)n : 1;
	ret->threads = mine;
	MPI_Allreduce(&mine, &ret->threads_of_machine, 1, MPI_UNSIGNED, MPI_SUM, machine);
}

void ranks_start(int *argc, char ***argv, struct ranks *ret)
{
	MPI_Comm machine;
	int provided;

	/* The command runs in a thread of its own, which does not call MPI. */
	MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &ret->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ret->n);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
	MPI_Comm_rank(machine, &ret->on_machine);
	MPI_Comm_size(machine, &ret->n_on_machine);
	count_processors(machine, ret);
	MPI_Comm_free(&machine);
}

void ranks_end(void)
{
	MPI_Finalize();
}

void ranks_abort(int status)
{
	MPI_Abort(MPI_COMM_WORLD, status);
	abort();
}

int ranks_that_differs(const struct ranks *r, const char *text, size_t nbytes)
{
	char *first = calloc(1, nbytes);
	int differs, lowest;

	if (!first)
		ranks_abort(EXIT_FAILURE);
	if (r->rank == 0)
		memcpy(first, text, nbytes);
	MPI_Bcast(first, (int)nbytes, MPI_BYTE, 0, MPI_COMM_WORLD);
	differs = memcmp(first, text, nbytes) == 0 ? r->n : r->rank;
	free(first);
	MPI_Allreduce(&differs, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	return lowest;
}

/* MPI waits by polling, which takes the processor from the work. */
static void wait_for(MPI_Request requests[2])
{
	const struct timespec pause = { .tv_nsec = 2000000 };
	MPI_Status statuses[2];
	int ended = 0;

	while (MPI_Testall(2, requests, &ended, statuses) == MPI_SUCCESS && !ended)
		nanosleep(&pause, NULL);
}

void ranks_share(struct ranks_state *state)
{
	const uint64_t mine[3] = { state->done, state->total, state->nended };
	const uint64_t failed = state->failed;
	uint64_t sum[3];
	MPI_Request requests[2];

	MPI_Iallreduce(mine, sum, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
	MPI_Iallreduce(&failed, &state->failed, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD,
		       &requests[1]);
	wait_for(requests);
	state->done = sum[0];
	state->total = sum[1];
	state->nended = sum[2];
}

void ranks_gather_statuses(int status, int *ret)
{
	MPI_Gather(&status, 1, MPI_INT, ret, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

/* MPI counts in int: bytes go rank by rank, in pieces. */
#define PIECE_NBYTES ((uint64_t)1 << 30)

static void send_bytes(const char *bytes, uint64_t nbytes)
{
	MPI_Send(&nbytes, 1, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD);
	for (uint64_t at = 0; at < nbytes; at += PIECE_NBYTES) {
		const uint64_t n = nbytes - at < PIECE_NBYTES ? nbytes - at : PIECE_NBYTES;

		MPI_Send(bytes + at, (int)n, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
}

/* Behind @used bytes of @all, which is moved. */
static char *receive_bytes(int from, char *all, uint64_t used, uint64_t *nbytes)
{
	MPI_Recv(nbytes, 1, MPI_UINT64_T, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	all = realloc(all, used + *nbytes + 1);
	if (!all)
		ranks_abort(EXIT_FAILURE);
	for (uint64_t at = 0; at < *nbytes; at += PIECE_NBYTES) {
		const uint64_t n = *nbytes - at < PIECE_NBYTES ? *nbytes - at : PIECE_NBYTES;

		MPI_Recv(all + used + at, (int)n, MPI_BYTE, from, 0, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
	}
	return all;
}

char *ranks_gather(const struct ranks *r, const char *bytes, uint64_t nbytes, uint64_t *sizes)
{
	uint64_t used = nbytes;
	char *all;

	if (r->rank) {
		send_bytes(bytes, nbytes);
		return NULL;
	}
	all = malloc(nbytes + 1);
	if (!all)
		ranks_abort(EXIT_FAILURE);
	memcpy(all, bytes, nbytes);
	sizes[0] = nbytes;
	for (int i = 1; i < r->n; i++) {
		all = receive_bytes(i, all, used, &sizes[i]);
		used += sizes[i];
	}
	return all;
}

int ranks_from_first(int number)
{
	MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return number;
}
