/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the inputs of a command from others, by their headers and by what is read of them. */
#include "ckpt/fingerprint.h"

#include "base/fail.h"
#include "io/file.h"
#include "io/hash.h"
#include "parts/part.h"

/* Whole elements of every type, and where they may begin: 3 bytes are four of 6 bits. */
#define SAMPLE_NBYTES 96u
#define SAMPLE_ALIGN 24u

/* Samples of all arrays together, and of each at least one: more take seconds where a file system is slow. */
#define SAMPLES 4096u

/* --- Headers ------------------------------------------------------------------------------------ */

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

static uint64_t add_headers(uint64_t hash, const struct tsr_checkpoint *c)
{
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
	return hash;
}

/* --- Bytes -------------------------------------------------------------------------------------- */

/* Whether headers do not tell the bytes of an array: who reads others finds no wrong checksum. */
static bool is_unnamed(const struct tsr_checkpoint *c, const struct tsr_array *a)
{
	return !c->packed && a->nbytes && (!a->has_crc || a->layout);
}

static enum tsr_status add_samples(uint64_t *hash, const struct tsr_checkpoint *c,
				   struct tsr_err *err)
{
	const uint64_t many = SAMPLES / (c->narrays + 1) + 1;
	unsigned char bytes[SAMPLE_NBYTES];

	for (size_t i = 0; i < c->narrays; i++) {
		const struct tsr_array *a = &c->arrays[i];
		const uint64_t all = a->nbytes / SAMPLE_NBYTES + 1, n = many < all ? many : all;

		for (uint64_t k = 0; k < n && is_unnamed(c, a); k++) {
			const uint64_t middle = a->nbytes / (2 * n) * (2 * k + 1);
			const uint64_t at = middle - middle % SAMPLE_ALIGN, left = a->nbytes - at;
			const size_t size = left < SAMPLE_NBYTES ? (size_t)left : SAMPLE_NBYTES;

			TSR_TRY(tsr_array_read(c, a, at, size, bytes, err));
			*hash = tsr_hash(bytes, size, *hash);
		}
	}
	return TSR_OK;
}

/* The fractions of seconds are kept by few copies: none where a file has none. */
static void add_times(uint64_t *times, bool *lacking, const struct tsr_checkpoint *c)
{
	for (unsigned f = 0; f < c->nfiles; f++) {
		const uint64_t ns = tsr_file_nanoseconds(c->files[f]);

		*lacking = *lacking || !ns;
		*times = tsr_hash(&ns, sizeof(ns), *times);
	}
}

enum tsr_status tsr_inputs_name(const struct tsr_checkpoint *const c[], size_t n, uint64_t seed,
				const struct tsr_run *run, struct tsr_err *err)
{
	struct tsr_part_inputs inputs = { .all = seed };
	bool lacking = false;

	if (!run || !run->parts)
		return TSR_OK;
	for (size_t i = 0; i < n; i++) {
		for (const struct tsr_checkpoint *one = c[i]; one; one = one->base) {
			inputs.all = add_headers(inputs.all, one);
			TSR_TRY(add_samples(&inputs.all, one, err));
			add_times(&inputs.times, &lacking, one);
		}
	}
	inputs.times = lacking ? 0 : inputs.times;
	return tsr_part_inputs(run->parts, &inputs, err);
}
