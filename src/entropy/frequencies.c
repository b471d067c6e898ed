/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of coded streams: frequencies from counts, their bytes, and what the loops look symbols up in. */
#include "entropy/frequencies.h"

#include <pthread.h>
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

/*
 * A search for a scale: between one whose frequencies sum to at most @total and one whose do not.  Those
 * counts whose frequency is the same at both have it at all scales between, and are done with.
 */
struct search {
	uint64_t low, high;
	uint32_t sum; /* of what is done with */
	unsigned n; /* others: */
	uint32_t count[NSYMBOLS], at_low[NSYMBOLS], at_high[NSYMBOLS];
};

/* The shares of @n counts at a scale, and their sum. */
static uint32_t find_shares(const uint32_t *count, unsigned n, uint64_t t, uint32_t *share)
{
	static tsr_rans_shares_fn *const shares[] = TSR_ISA_VARIANTS(rans_shares);

	return shares[tsr_isa_level()](count, n, t, share);
}

/* Tighten the bracket with this scale.  Returns the shortfall of its sum. */
static int64_t search_bound(struct search *f, const struct present *p, uint32_t total, uint64_t t)
{
	uint32_t share[NSYMBOLS];
	const int64_t left = (int64_t)total - find_shares(p->count, p->n, t, share);

	if (left >= 0 && t > f->low)
		f->low = t;
	else if (left < 0 && t < f->high)
		f->high = t;
	return left;
}

/*
 * From one at which no rounding makes them too many to one at which they are too many however they are
 * rounded; then a few that are likely to be close, since sums grow nearly as scales do.
 */
static void search_begin(struct search *f, const struct present *p, uint32_t total)
{
	const int64_t one = (int64_t)((UINT64_C(1) << TSR_RANS_SCALE_BITS) / p->sum);
	uint32_t at_low[NSYMBOLS], at_high[NSYMBOLS];
	int64_t t = (int64_t)(((uint64_t)total << TSR_RANS_SCALE_BITS) / p->sum);

	f->low = ((uint64_t)(total - p->n) << TSR_RANS_SCALE_BITS) / p->sum;
	f->high = ((uint64_t)(total + p->n) << TSR_RANS_SCALE_BITS) / p->sum + 1;
	for (unsigned i = 0; i < 2; i++)
		t += one * search_bound(f, p, total, (uint64_t)t);
	for (int i = -2; i <= 2; i += 4)
		search_bound(f, p, total, (uint64_t)(t + i * one));
	f->sum = 0;
	f->n = 0;
	find_shares(p->count, p->n, f->low, at_low);
	find_shares(p->count, p->n, f->high, at_high);
	for (unsigned i = 0; i < p->n; i++) {
		const bool same = at_low[i] == at_high[i];

		f->count[f->n] = p->count[i];
		f->at_low[f->n] = at_low[i];
		f->at_high[f->n] = at_high[i];
		f->n += !same;
		f->sum += at_low[i] & (uint32_t)-same; /* nobody could foresee a branch */
	}
}

/* Go on with one half. */
static void search_halve(struct search *f, uint32_t total)
{
	const uint64_t middle = f->low + (f->high - f->low) / 2;
	uint32_t at_middle[NSYMBOLS];
	unsigned n = 0;
	bool raise;

	raise = f->sum + find_shares(f->count, f->n, middle, at_middle) <= total;
	*(raise ? &f->low : &f->high) = middle;
	for (unsigned i = 0; i < f->n; i++) {
		const uint32_t low = raise ? at_middle[i] : f->at_low[i];
		const uint32_t high = raise ? f->at_high[i] : at_middle[i];

		f->count[n] = f->count[i];
		f->at_low[n] = low;
		f->at_high[n] = high;
		n += low != high;
		f->sum += low & (uint32_t) - (low == high);
	}
	f->n = n;
}

/* The largest scale whose frequencies sum to at most @total. */
static uint64_t find_scale(const struct present *p, uint32_t total)
{
	struct search f;

	search_begin(&f, p, total);
	while (f.high - f.low > 1)
		search_halve(&f, total);
	return f.low;
}

static void apportion(const struct present *p, unsigned bits, uint16_t *freq)
{
	const uint64_t t = find_scale(p, 1u << bits);
	uint32_t share[NSYMBOLS];
	uint32_t left = (1u << bits) - find_shares(p->count, p->n, t, share);

	memset(freq, 0, NSYMBOLS * sizeof(*freq));
	/* What is left goes to the first of those that the next scale would raise. */
	for (unsigned i = 0; i < p->n; i++) {
		const uint32_t raised = left ? tsr_rans_share(p->count[i], t + 1) : share[i];

		left -= raised - share[i];
		freq[p->symbol[i]] = (uint16_t)raised;
	}
}

void tsr_rans_frequencies(const uint32_t *count, unsigned bits, uint16_t *freq)
{
	struct present p;

	find_present(count, &p);
	apportion(&p, bits, freq);
}

void tsr_rans_frequencies_of(const uint32_t *count, uint16_t *freq)
{
	struct present p;

	find_present(count, &p);
	if (p.n > 1) {
		apportion(&p, TSR_RANS_BITS, freq);
		return;
	}
	memset(freq, 0, NSYMBOLS * sizeof(*freq));
	freq[p.symbol[0]] = (1u << TSR_RANS_BITS) - 1;
	freq[p.symbol[0] ^ 1] = 1;
}

/* --- What is the same for all tables ----------------------------------------------------------- */

/* By frequency: what a symbol costs, and how states are divided. */
static uint16_t costs[1 << TSR_RANS_BITS];
static struct tsr_rans_symbol divisions[1 << TSR_RANS_BITS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Twice the frequency costs one bit less. */
static void make_once(void)
{
	for (uint32_t f = 1; f < 1u << TSR_RANS_BITS; f++) {
		costs[f] = (uint16_t)(f % 2 ? tsr_rans_cost(f, TSR_RANS_BITS)
					    : costs[f / 2] - 256u);
		divisions[f] = tsr_rans_symbol_of(f, 0, TSR_RANS_BITS);
	}
}

uint64_t tsr_rans_counts_cost(const uint32_t *count, const uint16_t *freq)
{
	uint64_t cost = 0;

	pthread_once(&once, make_once);
	for (unsigned s = 0; s < NSYMBOLS; s++)
		cost += (uint64_t)count[s] * costs[freq[s]];
	return cost;
}

void tsr_rans_encoder_table(const uint16_t *freq, struct tsr_rans_symbol *symbols)
{
	uint32_t start = 0;

	pthread_once(&once, make_once);
	for (unsigned s = 0; s < NSYMBOLS; start += freq[s++]) {
		symbols[s] = divisions[freq[s]];
		symbols[s].rest |= freq[s] ? start << 8 : 0;
	}
}

/* --- Tables as they are stored ----------------------------------------------------------------- */

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

/* --- What the loops look up -------------------------------------------------------------------- */

void tsr_rans_decoder_table(const uint16_t *freq, uint32_t *slots)
{
	for (unsigned s = 0; s < NSYMBOLS; slots += freq[s++]) {
		const uint32_t first = tsr_rans_entry(s, freq[s], 0);

		/* A few at once, in any number of which the last ones are the next symbol's. */
		for (uint32_t place = 0; place < freq[s]; place += TSR_RANS_SLOTS_MORE)
			for (uint32_t k = 0; k < TSR_RANS_SLOTS_MORE; k++)
				slots[place + k] = first + ((place + k) << 8);
	}
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
				move_word(d->move[lanes], from++, 2 * lane);
	}
}
