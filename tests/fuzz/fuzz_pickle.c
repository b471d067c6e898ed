/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a pickle.  What is read can be written unless it holds a persistent object; what was
 * written can be read, and is written as the same bytes again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/pickle.h"
#include "fuzz.h"
#include "mutate.h"

/* Reads what was written and writes it again. */
static void check_written(const struct tsr_text *written)
{
	struct tsr_arena *arena = tsr_arena_new((size_t)1 << 30);
	struct tsr_text again = { 0 };
	struct tsr_value *v;

	if (!arena ||
	    tsr_pickle_read(written->bytes, written->nbytes, "AGAIN", arena, &v, NULL) != TSR_OK ||
	    tsr_pickle_write(v, NULL, "AGAIN", &again, NULL) != TSR_OK ||
	    again.nbytes != written->nbytes ||
	    memcmp(again.bytes, written->bytes, again.nbytes) != 0)
		abort();
	tsr_text_free(&again);
	tsr_arena_free(arena);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t room, unsigned seed)
{
	struct buffer b = { data, nbytes, room };

	mutate_seed(seed);
	mutate_pickle(&b);
	return b.nbytes;
}

const struct cost_bounds fuzz_cost = { 6000000, 250, 4 << 20, 400 };

void fuzz_input(const uint8_t *bytes, size_t nbytes)
{
	struct tsr_arena *arena = tsr_arena_new((size_t)1 << 30);
	struct tsr_text written = { 0 };
	struct tsr_value *v = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status status;

	if (!arena)
		abort();
	status = tsr_pickle_read(bytes, nbytes, "FUZZ", arena, &v, &err);
	if ((status == TSR_OK) != (v != NULL) || err.code != status)
		abort();
	if (status == TSR_OK) {
		status = tsr_pickle_write(v, NULL, "FUZZ", &written, &err);
		if (status == TSR_OK)
			check_written(&written);
		else if (status != TSR_E_UNSUPPORTED)
			abort();
	}
	tsr_text_free(&written);
	tsr_arena_free(arena);
}
