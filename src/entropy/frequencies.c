/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of coded streams: frequencies from counts, their bytes, and what the loops look symbols up in. */
#include "entropy/frequencies.h"

#include <string.h>

#include "base/little_endian.h"

#define NSYMBOLS 256u

/* The counts that are not 0. */
struct present {
	unsigned n;
	uint8_t symbol[NSYMBOLS];
	uint32_t count[NSYMBOLS];
	uint64_t sum;
};

static void find_present(const uint32_t *count, struct present *p)
{
	p->n = 0;
	p->sum = 0;
	for (unsigned s = 0; s < NSYMBOLS; s++) {
		if (!count[s])
			continue;
		p->symbol[p->n] = (uint8_t)s;
		p->count[p->n++] = count[s];
		p->sum += count[s];
	}
}

static uint32_t sum_at(const struct present *p, uint64_t t)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < p->n; i++)
		sum += tsr_rans_share(p->count[i], t);
	return sum;
}

/*
 * The largest scale whose frequencies sum to at most @total: by bisection between one at which no
 * rounding makes them too many and one at which they are too many however they are rounded.
 */
static uint64_t find_scale(const struct present *p, uint32_t total)
{
	uint64_t low = ((uint64_t)(total - p->n) << TSR_RANS_SCALE_BITS) / p->sum;
	uint64_t high = ((uint64_t)(total + p->n) << TSR_RANS_SCALE_BITS) / p->sum + 1;

	while (high - low > 1) {
		const uint64_t middle = low + (high - low) / 2;

		if (sum_at(p, middle) <= total)
			low = middle;
		else
			high = middle;
	}
	return low;
}

void tsr_rans_frequencies(const uint32_t *count, unsigned bits, uint16_t *freq)
{
	const uint32_t total = 1u << bits;
	struct present p;
	uint64_t t;
	uint32_t left;

	find_present(count, &p);
	t = find_scale(&p, total);
	left = total - sum_at(&p, t);
	memset(freq, 0, NSYMBOLS * sizeof(*freq));
	/* What is left goes to the first of those that the next scale would raise. */
	for (unsigned i = 0; i < p.n; i++) {
		const uint32_t share = tsr_rans_share(p.count[i], t);
		const uint32_t raised = left ? tsr_rans_share(p.count[i], t + 1) : share;

		left -= raised - share;
		freq[p.symbol[i]] = (uint16_t)raised;
	}
}

void tsr_rans_frequencies_of(const uint32_t *count, uint16_t *freq)
{
	struct present p;

	find_present(count, &p);
	if (p.n > 1) {
		tsr_rans_frequencies(count, TSR_RANS_BITS, freq);
		return;
	}
	memset(freq, 0, NSYMBOLS * sizeof(*freq));
	freq[p.symbol[0]] = (1u << TSR_RANS_BITS) - 1;
	freq[p.symbol[0] ^ 1] = 1;
}

uint64_t tsr_rans_counts_cost(const uint32_t *count, const uint16_t *freq, unsigned bits)
{
	uint64_t cost = 0;

	for (unsigned s = 0; s < NSYMBOLS; s++)
		if (count[s])
			cost += (uint64_t)count[s] * tsr_rans_cost(freq[s], bits);
	return cost;
}

size_t tsr_rans_put_table(const uint16_t *freq, uint8_t *bytes)
{
	unsigned first = 0, last = NSYMBOLS - 1, width;
	uint32_t largest = 0, pending = 0, npending = 0;
	uint8_t *to = bytes + 4;

	while (!freq[first])
		first++;
	while (!freq[last])
		last--;
	for (unsigned s = first; s <= last; s++)
		largest = freq[s] > largest ? freq[s] : largest;
	width = tsr_rans_number_width(largest);
	bytes[0] = (uint8_t)first;
	bytes[1] = (uint8_t)last;
	bytes[2] = (uint8_t)width;
	bytes[3] = 0;
	for (unsigned s = first; s <= last; s++) {
		pending |= (uint32_t)freq[s] << npending;
		for (npending += width; npending >= 8; npending -= 8, pending >>= 8)
			*to++ = (uint8_t)pending;
	}
	if (npending)
		*to++ = (uint8_t)pending;
	while ((to - bytes) % 4)
		*to++ = 0;
	return (size_t)(to - bytes);
}

const char *tsr_rans_get_table(const uint8_t *bytes, size_t nbytes, unsigned bits, uint16_t *freq,
			       size_t *used)
{
	unsigned first, last, width, at = 0;
	uint32_t largest = 0, sum = 0;
	size_t nnumbers;

	if (nbytes < 4)
		return "a table ends early";
	first = bytes[0];
	last = bytes[1];
	width = bytes[2];
	if (first >= last || width < 1 || width > bits || bytes[3])
		return "the head of a table is none";
	nnumbers = ((last - first + 1) * width + 7) / 8;
	*used = 4 + (nnumbers + 3) / 4 * 4;
	if (nbytes < *used)
		return "a table ends early";
	memset(freq, 0, NSYMBOLS * sizeof(*freq));
	for (unsigned s = first; s <= last; s++, at += width) {
		const size_t left = nnumbers - at / 8;
		const uint64_t word = tsr_get_le(bytes + 4 + at / 8, left < 3 ? left : 3);

		freq[s] = (uint16_t)(word >> at % 8 & ((1u << width) - 1));
		largest = freq[s] > largest ? freq[s] : largest;
		sum += freq[s];
	}
	if (sum != 1u << bits)
		return "the frequencies of a table have another sum";
	if (!freq[first] || !freq[last] || tsr_rans_number_width(largest) != width)
		return "a table is stored wider than it is";
	if (tsr_get_le(bytes + *used - 4, 4) >> (at - 8 * (*used - 8)))
		return "bits behind a table are not zero";
	return NULL;
}

void tsr_rans_encoder_table(const uint16_t *freq, unsigned bits, struct tsr_rans_symbol *symbols)
{
	uint32_t start = 0;

	for (unsigned s = 0; s < NSYMBOLS; start += freq[s++])
		symbols[s] = freq[s] ? tsr_rans_symbol_of(freq[s], start, bits)
				     : (struct tsr_rans_symbol){ 0 };
}

void tsr_rans_decoder_table(const uint16_t *freq, uint32_t *slots)
{
	for (unsigned s = 0; s < NSYMBOLS; s++)
		for (uint32_t place = 0; place < freq[s]; place++)
			*slots++ = tsr_rans_entry(s, freq[s], place);
}

/* Byte moves as of PSHUFB: word @from to place @to. */
static void move_word(uint8_t *move, unsigned from, unsigned to)
{
	move[2 * to] = (uint8_t)(2 * from);
	move[2 * to + 1] = (uint8_t)(2 * from + 1);
}

void tsr_rans_encoder_moves(struct tsr_rans_encoder *e)
{
	memset(e->move, 0x80, sizeof(e->move));
	for (unsigned lanes = 0; lanes < 256; lanes++) {
		unsigned to = 8;

		for (unsigned lane = 8; lane-- > 0;)
			if (lanes >> lane & 1)
				move_word(e->move[lanes], lane, --to);
	}
}

void tsr_rans_decoder_moves(struct tsr_rans_decoder *d)
{
	memset(d->move, 0x80, sizeof(d->move));
	for (unsigned lanes = 0; lanes < 256; lanes++) {
		unsigned from = 0;

		for (unsigned lane = 0; lane < 8; lane++)
			if (lanes >> lane & 1)
				move_word(d->move[lanes], from++, lane);
	}
}
