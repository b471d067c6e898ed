/* SPDX-License-Identifier: Apache-2.0 */
/* Files of signatures, as they are and with hashes put right: opened, read, and compared with themselves. */
#include <stdlib.h>
#include <string.h>

#include "base/little_endian.h"
#include "fuzz.h"
#include "io/hash.h"
#include "memory_files.h"
#include "recording/recording_data.h"
#include "recording/signature_file.h"
#include "tersor/bisect.h"

static const char path[] = MEMORY "/run.tsig";

static void check_tensor(const struct tsr_signed_tensor *t)
{
	REQUIRE(t->name[0] && t->of[0] && strlen(t->name) <= TSR_NAME_MAX);
	REQUIRE(t->dtype < TSR_DTYPE_COUNT && t->rank <= TSR_RANK_MAX);
}

/* Steps of a file that was opened can still be damaged, but the last one. */
static void try_steps(struct tsr_signatures *s)
{
	const struct tsr_signed_step *step;
	struct tsr_err err;

	for (uint64_t i = 0; i < s->nsteps; i++) {
		const enum tsr_status status = tsr_signatures_read(s, i, &step, &err);

		if (status != TSR_OK)
			check_refusal(status, &err);
		else
			REQUIRE(step->step <= TSR_STEP_MAX);
	}
}

static void try_file(void)
{
	struct tsr_signatures *s = NULL;
	struct tsr_bisect *b = NULL;
	struct tsr_err err;
	enum tsr_status status = tsr_signatures_open(path, &s, &err);

	if (status != TSR_OK) {
		check_refusal(status, &err);
		REQUIRE(!s && !strchr(err.msg, '\n'));
		return;
	}
	REQUIRE(s->ntensors > 0 && s->rank < s->nranks && s->run->ngroups > 0);
	for (size_t i = 0; i < s->ntensors; i++)
		check_tensor(&s->tensors[i]);
	try_steps(s);
	tsr_signatures_close(s);
	status = tsr_bisect(path, path, NULL, NULL, &b, &err);
	if (status != TSR_OK) {
		check_refusal(status, &err);
		REQUIRE(!b && !strchr(err.msg, '\n'));
		return;
	}
	REQUIRE(b->cause == TSR_BISECT_EQUAL && !b->ndiffering && !b->nhypers);
	REQUIRE(b->nsteps == b->side[0].nsteps);
	tsr_bisect_free(b);
}

/* The size of the head is what is left of it, if it says more; and hashes of all are right. */
static void repair(uint8_t *data, size_t size)
{
	struct tsr_signatures *s = NULL;
	uint64_t nbytes, at;
	size_t step;

	memcpy(data, TSR_SIGNATURES_MAGIC, 8);
	nbytes = tsr_get_le(data + 8, 8);
	if (nbytes > size - TSR_SIGNATURES_HEAD_AT)
		nbytes = size - TSR_SIGNATURES_HEAD_AT;
	tsr_put_le(data + 8, nbytes, 8);
	tsr_put_le(data + 16, tsr_hash(data + TSR_SIGNATURES_HEAD_AT, nbytes, 0), 8);
	REQUIRE(memory_put(path, data, size));
	if (tsr_signatures_open(path, &s, NULL) != TSR_OK)
		return;
	step = tsr_signed_step_nbytes(s->run->ngroups, s->ntensors);
	tsr_signatures_close(s);
	for (at = TSR_SIGNATURES_HEAD_AT + nbytes; size - at >= step; at += step)
		tsr_put_le(data + at + step - 8, tsr_hash(data + at, step - 8, 0), 8);
}

const struct cost_bounds fuzz_cost = { 1000000, 200, 8 << 20, 3000 };

void fuzz_input(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + 1);

	REQUIRE(copy && memory_put(path, data, size));
	try_file();
	if (size >= TSR_SIGNATURES_HEAD_AT) {
		memcpy(copy, data, size);
		repair(copy, size);
		REQUIRE(memory_put(path, copy, size));
		try_file();
	}
	free(copy);
}
