/* SPDX-License-Identifier: Apache-2.0 */
/* A piece of a plane, coded and decoded: its streams, and how each of them is stored. */
#include "entropy/entropy.h"

#include <stdlib.h>
#include <string.h>

#include "base/little_endian.h"
#include "base/platform.h"
#include "entropy/frequencies.h"
#include "entropy/rans_loops.h"

#define NSYMBOLS 256u

#define WORDS_NBYTES (2 * TSR_RANS_SEGMENT)

struct tsr_entropy {
	struct tsr_rans_encoder encoder;
	struct tsr_rans_decoder decoder;
	uint8_t words[TSR_RANS_MARGIN + WORDS_NBYTES];
	uint8_t streams[]; /* TSR_ENTROPY_PIECE for each byte of an element */
};

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

static size_t round_up(size_t nbytes)
{
	return (nbytes + 3) / 4 * 4;
}

size_t tsr_entropy_bound(struct tsr_entropy_kind kind, size_t n)
{
	return n ? kind.width * (4 + round_up(n)) : 0;
}

/* --- Encoding ------------------------------------------------------------------------------ */

static uint8_t *encode_words(const struct tsr_entropy *e, const uint8_t *symbols, size_t n,
			     uint32_t *states, uint8_t *end)
{
	static tsr_rans_encode_fn *const encode[] = TSR_ISA_VARIANTS(rans_encode);

	return encode[tsr_isa_level()](&e->encoder, symbols, n, states, end);
}

/* The segments of a stream to at most @room bytes; 0 if they do not fit. */
static size_t put_segments(struct tsr_entropy *e, const uint8_t *symbols, size_t n, uint8_t *to,
			   size_t room)
{
	const size_t nsegments = tsr_rans_count_segments((uint32_t)n);
	uint8_t *const end = e->words + sizeof(e->words);
	size_t used = round_up(2 * nsegments);

	if (used > room)
		return 0;
	memset(to, 0, used);
	for (size_t i = 0; i < nsegments; i++) {
		const size_t size = tsr_rans_segment_size((uint32_t)n, (uint32_t)i),
			     states_nbytes = 4 * tsr_rans_count_states((uint32_t)size);
		uint32_t states[TSR_RANS_LANES];
		const uint8_t *first;
		size_t words_nbytes;

		for (unsigned lane = 0; lane < TSR_RANS_LANES; lane++)
			states[lane] = TSR_RANS_LOW;
		first = encode_words(e, symbols + i * TSR_RANS_SEGMENT, size, states, end);
		words_nbytes = (size_t)(end - first);
		if (states_nbytes + round_up(words_nbytes) > room - used)
			return 0;
		tsr_put_le(to + 2 * i, words_nbytes / 2, 2);
		memcpy(to + used, states, states_nbytes);
		used += states_nbytes;
		memcpy(to + used, first, words_nbytes);
		memset(to + used + words_nbytes, 0, round_up(words_nbytes) - words_nbytes);
		used += round_up(words_nbytes);
	}
	return used;
}

static size_t put_raw(const uint8_t *symbols, size_t n, uint8_t *to)
{
	memcpy(to, symbols, n);
	memset(to + n, 0, round_up(n) - n);
	return round_up(n);
}

/* The body of a stream to @to, which has room for round_up(@n) bytes. */
static size_t put_stream(struct tsr_entropy *e, const uint8_t *symbols, size_t n, uint8_t *to,
			 enum tsr_rans_mode *mode)
{
	static tsr_rans_count_fn *const count_bytes[] = TSR_ISA_VARIANTS(rans_count);
	uint32_t count[NSYMBOLS];
	uint16_t freq[NSYMBOLS];
	uint8_t table[TSR_RANS_TABLE_NBYTES];
	size_t table_nbytes, segments_nbytes;

	count_bytes[tsr_isa_level()](symbols, n, count);
	if (count[symbols[0]] == n) {
		*mode = TSR_RANS_CONSTANT;
		tsr_put_le(to, symbols[0], 4);
		return 4;
	}
	*mode = TSR_RANS_RAW;
	tsr_rans_frequencies(count, TSR_RANS_BITS, freq);
	table_nbytes = tsr_rans_put_table(freq, table);
	if (!tsr_rans_is_worth((uint32_t)n, (uint32_t)table_nbytes,
			       tsr_rans_counts_cost(count, freq, TSR_RANS_BITS)))
		return put_raw(symbols, n, to);
	tsr_rans_encoder_table(freq, TSR_RANS_BITS, e->encoder.symbols);
	memcpy(to, table, table_nbytes);
	segments_nbytes = put_segments(e, symbols, n, to + table_nbytes, n - table_nbytes - 1);
	if (!segments_nbytes)
		return put_raw(symbols, n, to);
	*mode = TSR_RANS_CODED;
	return table_nbytes + segments_nbytes;
}

size_t tsr_entropy_encode(struct tsr_entropy *e, struct tsr_entropy_kind kind, const void *plain,
			  size_t n, void *coded)
{
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
		enum tsr_rans_mode mode;
		const size_t nbytes = put_stream(e, symbols, n, heads + used, &mode);

		tsr_put_le(heads + 4 * k, (uint64_t)nbytes << 8 | mode, 4);
		used += nbytes;
	}
	return used;
}

/* --- Decoding ------------------------------------------------------------------------------ */

static const char *get_segment(const struct tsr_entropy *e, const uint8_t *states_bytes,
			       size_t nwords, uint8_t *symbols, size_t n)
{
	static tsr_rans_decode_fn *const decode[] = TSR_ISA_VARIANTS(rans_decode);
	const size_t nstates = tsr_rans_count_states((uint32_t)n);
	uint32_t states[TSR_RANS_LANES];

	for (size_t lane = 0; lane < TSR_RANS_LANES; lane++)
		states[lane] = TSR_RANS_LOW;
	memcpy(states, states_bytes, 4 * nstates);
	for (size_t lane = 0; lane < nstates; lane++)
		if (states[lane] < TSR_RANS_LOW)
			return "a state is too small";
	if (!decode[tsr_isa_level()](&e->decoder, states_bytes + 4 * nstates, nwords, states,
				     symbols, n))
		return "a segment has another number of words";
	for (size_t lane = 0; lane < nstates; lane++)
		if (states[lane] != TSR_RANS_LOW)
			return "a state does not end where all begin";
	return NULL;
}

static const char *get_segments(struct tsr_entropy *e, const uint8_t *bytes, size_t nbytes,
				uint8_t *symbols, size_t n)
{
	const size_t nsegments = tsr_rans_count_segments((uint32_t)n);
	size_t used = round_up(2 * nsegments);

	if (nbytes < used)
		return "the sizes of segments end early";
	if (nsegments % 2 && tsr_get_le(bytes + 2 * nsegments, 2))
		return "bytes behind the sizes of segments are not zero";
	for (size_t i = 0; i < nsegments; i++) {
		const size_t size = tsr_rans_segment_size((uint32_t)n, (uint32_t)i),
			     states_nbytes = 4 * tsr_rans_count_states((uint32_t)size);
		const size_t nwords = (size_t)tsr_get_le(bytes + 2 * i, 2);
		const char *wrong;

		if (states_nbytes + round_up(2 * nwords) > nbytes - used)
			return "a segment ends early";
		wrong = get_segment(e, bytes + used, nwords, symbols + i * TSR_RANS_SEGMENT, size);
		if (wrong)
			return wrong;
		used += states_nbytes + round_up(2 * nwords);
		if (nwords % 2 && tsr_get_le(bytes + used - 2, 2))
			return "bytes behind the words of a segment are not zero";
	}
	return used == nbytes ? NULL : "there are bytes behind its last segment";
}

static const char *get_coded(struct tsr_entropy *e, const uint8_t *bytes, size_t nbytes,
			     uint8_t *symbols, size_t n)
{
	uint16_t freq[NSYMBOLS];
	size_t used;
	const char *wrong = tsr_rans_get_table(bytes, nbytes, TSR_RANS_BITS, freq, &used);

	if (wrong)
		return wrong;
	tsr_rans_decoder_table(freq, e->decoder.slots);
	return get_segments(e, bytes + used, nbytes - used, symbols, n);
}

static const char *get_raw(const uint8_t *bytes, size_t nbytes, uint8_t *symbols, size_t n)
{
	if (nbytes != round_up(n))
		return "a stream stored as it is has another size";
	for (size_t i = n; i < nbytes; i++)
		if (bytes[i])
			return "bytes behind a stream are not zero";
	if (memcmp(bytes, bytes + 1, n - 1) == 0)
		return "a stream of one symbol is stored as it is";
	memcpy(symbols, bytes, n);
	return NULL;
}

static const char *get_stream(struct tsr_entropy *e, unsigned mode, const uint8_t *bytes,
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
		wrong = get_stream(e, heads[4 * k], heads + used, size, symbols, n);
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
