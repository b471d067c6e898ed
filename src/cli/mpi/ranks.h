/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a run, and what they tell each other.  All ranks call every function, each from one thread. */
#ifndef TSR_CLI_MPI_RANKS_H
#define TSR_CLI_MPI_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ranks {
	int rank, n; /* this one, of n */
	int on_machine, n_on_machine; /* this one among those of its machine */
	unsigned
		threads; /* processors for this rank: its own, or its share of those it has with others */
	unsigned threads_of_machine; /* those of all its ranks: for what rank 0 does alone */
};

/* MPI starts, and the ranks are counted. */
void ranks_start(int *argc, char ***argv, struct ranks *ret);
void ranks_end(void);

/* The end of all ranks at once, for a rank that can't take part in what the others wait for. */
_Noreturn void ranks_abort(int status);

/*
 * The lowest rank to which rank 0's @text is not equal, or the number of ranks if all have it.
 * @text has at most @nbytes bytes, the same number on every rank.
 */
int ranks_that_differs(const struct ranks *r, const char *text, size_t nbytes);

/* What is known of the work of all ranks. */
struct ranks_state {
	uint64_t done, total; /* bytes; in: of this rank, out: of all */
	uint64_t nended; /* in: 1 if this rank's work has ended; out: how many have */
	uint64_t failed; /* in: this rank if its work failed, or UINT64_MAX; out: the lowest */
};

/* Sum up and compare the states of all ranks; sleeps while it waits for the others. */
void ranks_share(struct ranks_state *state);

/* On rank 0: the exit statuses of all ranks; @ret has room for one per rank. */
void ranks_gather_statuses(int status, int *ret);

/*
 * On rank 0: the bytes of all ranks one behind the other in their order, to be freed by the caller, and how
 * many each has: @sizes has room for one per rank.  On the others: NULL.
 */
char *ranks_gather(const struct ranks *r, const char *bytes, uint64_t nbytes, uint64_t *sizes);

/* Rank 0's number, on all ranks. */
int ranks_from_first(int number);

#endif
