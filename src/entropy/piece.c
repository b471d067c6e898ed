/* SPDX-License-Identifier: Apache-2.0 */
/* A piece of a plane, coded and decoded: its streams, and how each of them is stored. */
#include "entropy/entropy.h"

#include <stdlib.h>
#include <string.h>

#include "base/little_endian.h"
#include "entropy/segments.h"

struct tsr_entropy_kind tsr_entropy_kind(enum tsr_dtype dtype)
{
	const unsigned bits = tsr_dtype_bits(dtype);

	return (struct tsr_entropy_kind){
		.width = bits % 8 ? 0 : bits / 8,
		.rotated = dtype == TSR_BF16 || dtype == TSR_F32,
	};
}

struct tsr_entropy *tsr_entropy_new(unsigned width)
{
	const size_t streams_nbytes = width > 1 ? (size_t)width * TSR_ENTROPY_PIECE : 0;
	struct tsr_entropy *e = malloc(sizeof(*e) + streams_nbytes);

	if (e) {
		tsr_rans_encoder_moves(&e->encoder);
		tsr_rans_decoder_moves(&e->decoder);
	}
	return e;
}

void tsr_entropy_free(struct tsr_entropy *e)
{
	free(e);
}

size_t tsr_entropy_bound(struct tsr_entropy_kind kind, size_t n)
{
	return n ? kind.width * (4 + tsr_rans_padded(n)) : 0;
}

/* --- Encoding ------------------------------------------------------------------------------ */

static size_t put_raw(const uint8_t *symbols, size_t n, uint8_t *to)
{
	memcpy(to, symbols, n);
	memset(to + n, 0, tsr_rans_padded(n) - n);
	return tsr_rans_padded(n);
}

size_t tsr_rans_put_stream(struct tsr_entropy *e, const uint8_t *symbols, const uint32_t *count,
			   size_t n, uint8_t *to, enum tsr_rans_mode *mode)
{
	uint16_t freq[TSR_RANS_SYMBOLS];
	uint8_t table[TSR_RANS_TABLE_NBYTES];
	size_t table_nbytes, segments_nbytes;

	if (count[symbols[0]] == n) {
		*mode = TSR_RANS_CONSTANT;
		tsr_put_le(to, symbols[0], 4);
		return 4;
	}
	*mode = TSR_RANS_RAW;
	tsr_rans_frequencies(count, TSR_RANS_BITS, freq);
	table_nbytes = tsr_rans_put_table(freq, table);
	if (!tsr_rans_is_worth((uint32_t)n, (uint32_t)table_nbytes,
			       tsr_rans_counts_cost(count, freq)))
		return put_raw(symbols, n, to);
	tsr_rans_encoder_table(freq, e->encoder.symbols);
	memcpy(to, table, table_nbytes);
	segments_nbytes = tsr_rans_put_segments(e, NULL, symbols, n, to + table_nbytes,
						n - table_nbytes - 1);
	if (!segments_nbytes)
		return put_raw(symbols, n, to);
	*mode = TSR_RANS_CODED;
	return table_nbytes + segments_nbytes;
}

size_t tsr_entropy_encode(struct tsr_entropy *e, struct tsr_entropy_kind kind, const void *plain,
			  size_t n, void *coded)
{
	static tsr_rans_count_fn *const count_bytes[] = TSR_ISA_VARIANTS(rans_count);
	static tsr_rans_split_fn *const split[] = TSR_ISA_VARIANTS(rans_split);
	uint8_t *const heads = coded;
	size_t used = 4 * kind.width;

	if (!n)
		return 0;
	if (kind.width > 1)
		split[tsr_isa_level()](kind, plain, n, e->streams);
	for (unsigned k = 0; k < kind.width; k++) {
		const uint8_t *symbols = kind.width > 1 ? e->streams + k * TSR_ENTROPY_PIECE
							: plain;
		uint32_t count[TSR_RANS_SYMBOLS];
		enum tsr_rans_mode mode;
		size_t nbytes;

		count_bytes[tsr_isa_level()](symbols, n, count);
		nbytes = tsr_rans_put_stream(e, symbols, count, n, heads + used, &mode);
		tsr_put_le(heads + 4 * k, (uint64_t)nbytes << 8 | mode, 4);
		used += nbytes;
	}
	return used;
}

/* --- Decoding ------------------------------------------------------------------------------ */

static const char *get_coded(struct tsr_entropy *e, const uint8_t *bytes, size_t nbytes,
			     uint8_t *symbols, size_t n)
{
	uint16_t freq[TSR_RANS_SYMBOLS];
	size_t used;
	const char *wrong = tsr_rans_get_table(bytes, nbytes, TSR_RANS_BITS, freq, &used);

	if (wrong)
		return wrong;
	tsr_rans_decoder_table(freq, e->decoder.slots);
	return tsr_rans_get_segments(e, NULL, bytes + used, nbytes - used, symbols, n);
}

static const char *get_raw(const uint8_t *bytes, size_t nbytes, uint8_t *symbols, size_t n)
{
	if (nbytes != tsr_rans_padded(n))
		return "a stream stored as it is has another size";
	for (size_t i = n; i < nbytes; i++)
		if (bytes[i])
			return "bytes behind a stream are not zero";
	if (memcmp(bytes, bytes + 1, n - 1) == 0)
		return "a stream of one symbol is stored as it is";
	memcpy(symbols, bytes, n);
	return NULL;
}

const char *tsr_rans_get_stream(struct tsr_entropy *e, unsigned mode, const uint8_t *bytes,
				size_t nbytes, uint8_t *symbols, size_t n)
{
	switch (mode) {
	case TSR_RANS_RAW:
		return get_raw(bytes, nbytes, symbols, n);
	case TSR_RANS_CONSTANT:
		if (nbytes != 4 || tsr_get_le(bytes, 4) > UINT8_MAX)
			return "a stream of one symbol has more than it";
		memset(symbols, bytes[0], n);
		return NULL;
	case TSR_RANS_CODED:
		if (nbytes >= n)
			return "a coded stream is not smaller than its symbols";
		return get_coded(e, bytes, nbytes, symbols, n);
	default:
		return "a stream is stored in a way that is not known";
	}
}

const char *tsr_entropy_decode(struct tsr_entropy *e, struct tsr_entropy_kind kind,
			       const void *coded, size_t nbytes, void *plain, size_t n)
{
	static tsr_rans_merge_fn *const merge[] = TSR_ISA_VARIANTS(rans_merge);
	const uint8_t *const heads = coded;
	size_t used = 4 * kind.width;

	if (!n)
		return nbytes ? "it has bytes without elements" : NULL;
	if (nbytes < used)
		return "the heads of its streams end early";
	for (unsigned k = 0; k < kind.width; k++) {
		const size_t size = (size_t)tsr_get_le(heads + 4 * k + 1, 3);
		uint8_t *symbols = kind.width > 1 ? e->streams + k * TSR_ENTROPY_PIECE : plain;
		const char *wrong;

		if (size % 4 || size > nbytes - used)
			return "a stream ends early";
		wrong = tsr_rans_get_stream(e, heads[4 * k], heads + used, size, symbols, n);
		if (wrong)
			return wrong;
		used += size;
	}
	if (used != nbytes)
		return "there are bytes behind its last stream";
	if (kind.width > 1)
		merge[tsr_isa_level()](kind, e->streams, n, plain);
	return NULL;
}
