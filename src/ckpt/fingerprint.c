/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the inputs of a command from others, from their headers alone. */
#include "ckpt/fingerprint.h"

#include <string.h>

#include "io/file.h"
#include "io/hash.h"

static uint64_t add_text(uint64_t hash, const char *text)
{
	return tsr_hash(text, strlen(text) + 1, hash);
}

static uint64_t add_array(uint64_t hash, const struct tsr_array *a)
{
	const uint64_t numbers[] = { a->dtype, a->rank,	  a->nbytes,
				     a->file,  a->offset, a->has_crc ? a->crc : 0 };

	hash = add_text(hash, a->name);
	hash = tsr_hash(numbers, sizeof(numbers), hash);
	return a->rank ? tsr_hash(a->shape, a->rank * sizeof(*a->shape), hash) : hash;
}

uint64_t tsr_checkpoint_fingerprint(const struct tsr_checkpoint *c, uint64_t seed)
{
	uint64_t hash = seed;

	for (unsigned f = 0; f < c->nfiles; f++) {
		const uint64_t numbers[] = { tsr_file_size(c->files[f]),
					     (uint64_t)tsr_file_time(c->files[f]) };

		hash = tsr_hash(numbers, sizeof(numbers), hash);
	}
	for (size_t i = 0; i < c->narrays; i++)
		hash = add_array(hash, &c->arrays[i]);
	for (size_t i = 0; c->packed && i < c->ntensors; i++)
		hash = tsr_hash(c->tensors[i].hash, sizeof(c->tensors[i].hash), hash);
	for (size_t i = 0; i < c->nmeta; i++)
		hash = add_text(add_text(hash, c->meta[i].key), c->meta[i].value);
	return c->base ? tsr_checkpoint_fingerprint(c->base, hash) : hash;
}
