/* SPDX-License-Identifier: Apache-2.0 */
/* Results of two functions of one FP32 number, compared for a range of bit patterns. */
#include "sweep/results.h"

#include <string.h>

/* Results that are compared at once, as most are equal. */
#define RUN 256u

/* The bits of a result. */
static uint32_t bits_at(const void *results, size_t nbytes, size_t i)
{
	uint32_t bits = 0;

	memcpy(&bits, (const unsigned char *)results + i * nbytes, nbytes);
	return bits;
}

/* Sign bit and infinity of a type; no infinity: it is not a float. */
struct form {
	uint32_t sign, infinity;
};

static struct form form_of(enum tsr_dtype out)
{
	switch (out) {
	case TSR_F32:
		return (struct form){ 0x80000000u, 0x7f800000u };
	case TSR_BF16:
		return (struct form){ 0x8000u, 0x7f80u };
	case TSR_F16:
		return (struct form){ 0x8000u, 0x7c00u };
	default:
		return (struct form){ 0, 0 };
	}
}

static bool is_nan(const struct form *f, uint32_t bits)
{
	return f->infinity && (bits & ~f->sign) > f->infinity;
}

static int64_t place_of(const struct form *f, uint32_t bits)
{
	return bits & f->sign ? -(int64_t)(bits & ~f->sign) : (int64_t)bits;
}

/* Keep a differing result, unless there are enough with lower inputs. */
static void keep(struct tsr_results *f, const struct tsr_different *r)
{
	unsigned at = f->nfirst;

	while (at && f->first[at - 1].input > r->input)
		at--;
	if (at == TSR_RESULTS_FIRST)
		return;
	f->nfirst += f->nfirst < TSR_RESULTS_FIRST;
	memmove(&f->first[at + 1], &f->first[at], (f->nfirst - 1 - at) * sizeof(*f->first));
	f->first[at] = *r;
}

static void note_distance(struct tsr_results_row *row, uint64_t ulp, uint32_t input)
{
	const bool first = row->different == row->nan;

	if (first || ulp > row->max_ulp || (ulp == row->max_ulp && input < row->worst)) {
		row->max_ulp = ulp;
		row->worst = input;
	}
}

static void add_different(struct tsr_results *f, const struct form *form,
			  struct tsr_results_row *row, struct tsr_different *r)
{
	const bool nan = is_nan(form, r->found);
	int64_t distance;

	if (nan && is_nan(form, r->expected))
		return;
	r->nan = nan || is_nan(form, r->expected);
	distance = r->nan ? 0 : place_of(form, r->found) - place_of(form, r->expected);
	r->ulp = (uint64_t)(distance < 0 ? -distance : distance);
	if (!r->nan)
		note_distance(row, r->ulp, r->input);
	row->different++;
	row->nan += r->nan;
	keep(f, r);
}

void tsr_results_add(struct tsr_results *f, enum tsr_dtype out, uint32_t input, const void *found,
		     const void *expected, size_t n)
{
	struct tsr_results_row *row = &f->rows[input >> 23 & 0xff];
	const size_t nbytes = tsr_dtype_bits(out) / 8;
	const struct form form = form_of(out);

	row->count += n;
	for (size_t i = 0; i < n; i++) {
		const size_t at = i * nbytes, run = (n - i < RUN ? n - i : RUN) * nbytes;

		if (i % RUN == 0 &&
		    memcmp((const char *)found + at, (const char *)expected + at, run) == 0) {
			i += RUN - 1;
			continue;
		}
		struct tsr_different r = { .input = input + (uint32_t)i,
					   .found = bits_at(found, nbytes, i),
					   .expected = bits_at(expected, nbytes, i) };

		if (r.found != r.expected)
			add_different(f, &form, row, &r);
	}
}

static void add_row(struct tsr_results_row *into, const struct tsr_results_row *from)
{
	if (from->different > from->nan)
		note_distance(into, from->max_ulp, from->worst);
	into->count += from->count;
	into->different += from->different;
	into->nan += from->nan;
}

void tsr_results_merge(struct tsr_results *into, const struct tsr_results *from)
{
	for (unsigned e = 0; e < TSR_SWEEP_ROWS; e++)
		add_row(&into->rows[e], &from->rows[e]);
	for (unsigned i = 0; i < from->nfirst && i < TSR_RESULTS_FIRST; i++)
		keep(into, &from->first[i]);
}

struct tsr_results_row tsr_results_total(const struct tsr_results *f)
{
	struct tsr_results_row total = { 0 };

	for (unsigned e = 0; e < TSR_SWEEP_ROWS; e++)
		add_row(&total, &f->rows[e]);
	return total;
}
