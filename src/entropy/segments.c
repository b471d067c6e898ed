/* SPDX-License-Identifier: Apache-2.0 */
/* The segments of a coded stream: the sizes of all, then states and words of each. */
#include "entropy/segments.h"

#include <string.h>

#include "base/little_endian.h"
#include "base/platform.h"

static uint8_t *encode_words(const struct tsr_entropy *e, const uint8_t *tables,
			     const uint8_t *symbols, size_t n, uint32_t *states, uint8_t *end)
{
	static tsr_rans_encode_fn *const encode[] = TSR_ISA_VARIANTS(rans_encode);
	static tsr_rans_encode_contexts_fn *const encode_contexts[] = TSR_ISA_VARIANTS(
		rans_encode_contexts);

	if (!tables)
		return encode[tsr_isa_level()](&e->encoder, symbols, n, states, end);
	return encode_contexts[tsr_isa_level()](&e->encoder, tables, symbols, n, states, end);
}

size_t tsr_rans_put_segments(struct tsr_entropy *e, const uint8_t *tables, const uint8_t *symbols,
			     size_t n, uint8_t *to, size_t room)
{
	const size_t nsegments = tsr_rans_count_segments((uint32_t)n);
	uint8_t *const end = e->words + sizeof(e->words);
	size_t used = tsr_rans_padded(2 * nsegments);

	if (used > room)
		return 0;
	memset(to, 0, used);
	for (size_t i = 0; i < nsegments; i++) {
		const size_t at = i * TSR_RANS_SEGMENT;
		const size_t size = tsr_rans_segment_size((uint32_t)n, (uint32_t)i),
			     states_nbytes = 4 * tsr_rans_count_states((uint32_t)size);
		uint32_t states[TSR_RANS_LANES];
		const uint8_t *first;
		size_t words_nbytes;

		for (unsigned lane = 0; lane < TSR_RANS_LANES; lane++)
			states[lane] = TSR_RANS_LOW;
		first = encode_words(e, tables ? tables + at : NULL, symbols + at, size, states,
				     end);
		words_nbytes = (size_t)(end - first);
		if (states_nbytes + tsr_rans_padded(words_nbytes) > room - used)
			return 0;
		tsr_put_le(to + 2 * i, words_nbytes / 2, 2);
		memcpy(to + used, states, states_nbytes);
		used += states_nbytes;
		memcpy(to + used, first, words_nbytes);
		memset(to + used + words_nbytes, 0, tsr_rans_padded(words_nbytes) - words_nbytes);
		used += tsr_rans_padded(words_nbytes);
	}
	return used;
}

static bool decode_words(const struct tsr_entropy *e, const uint8_t *contexts, const uint8_t *words,
			 size_t nwords, uint32_t *states, uint8_t *symbols, size_t n)
{
	static tsr_rans_decode_fn *const decode[] = TSR_ISA_VARIANTS(rans_decode);
	static tsr_rans_decode_contexts_fn *const decode_contexts[] = TSR_ISA_VARIANTS(
		rans_decode_contexts);

	if (!contexts)
		return decode[tsr_isa_level()](&e->decoder, words, nwords, states, symbols, n);
	return decode_contexts[tsr_isa_level()](&e->decoder, contexts, words, nwords, states,
						symbols, n);
}

static const char *get_segment(const struct tsr_entropy *e, const uint8_t *contexts,
			       const uint8_t *states_bytes, size_t nwords, uint8_t *symbols,
			       size_t n)
{
	const size_t nstates = tsr_rans_count_states((uint32_t)n);
	uint32_t states[TSR_RANS_LANES];

	for (size_t lane = 0; lane < TSR_RANS_LANES; lane++)
		states[lane] = TSR_RANS_LOW;
	memcpy(states, states_bytes, 4 * nstates);
	for (size_t lane = 0; lane < nstates; lane++)
		if (states[lane] < TSR_RANS_LOW)
			return "a state is too small";
	if (!decode_words(e, contexts, states_bytes + 4 * nstates, nwords, states, symbols, n))
		return "a segment has another number of words";
	for (size_t lane = 0; lane < nstates; lane++)
		if (states[lane] != TSR_RANS_LOW)
			return "a state does not end where all begin";
	return NULL;
}

const char *tsr_rans_get_segments(struct tsr_entropy *e, const uint8_t *contexts,
				  const uint8_t *bytes, size_t nbytes, uint8_t *symbols, size_t n)
{
	const size_t nsegments = tsr_rans_count_segments((uint32_t)n);
	size_t used = tsr_rans_padded(2 * nsegments);

	if (nbytes < used)
		return "the sizes of segments end early";
	if (nsegments % 2 && tsr_get_le(bytes + 2 * nsegments, 2))
		return "bytes behind the sizes of segments are not zero";
	for (size_t i = 0; i < nsegments; i++) {
		const size_t at = i * TSR_RANS_SEGMENT;
		const size_t size = tsr_rans_segment_size((uint32_t)n, (uint32_t)i),
			     states_nbytes = 4 * tsr_rans_count_states((uint32_t)size);
		const size_t nwords = (size_t)tsr_get_le(bytes + 2 * i, 2);
		const char *wrong;

		if (states_nbytes + tsr_rans_padded(2 * nwords) > nbytes - used)
			return "a segment ends early";
		wrong = get_segment(e, contexts ? contexts + at : NULL, bytes + used, nwords,
				    symbols + at, size);
		if (wrong)
			return wrong;
		used += states_nbytes + tsr_rans_padded(2 * nwords);
		if (nwords % 2 && tsr_get_le(bytes + used - 2, 2))
			return "bytes behind the words of a segment are not zero";
	}
	return used == nbytes ? NULL : "there are bytes behind its last segment";
}
