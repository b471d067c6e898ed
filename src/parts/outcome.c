/* SPDX-License-Identifier: Apache-2.0 */
/* What a job found, as a line of numbers: hexadecimal, with a blank between two; floats by their bits. */
#include "parts/outcome.h"

#include <inttypes.h>
#include <string.h>

#include "tersor/codec.h"

/* --- Numbers ------------------------------------------------------------------------------------ */

/* What a digit counts, and 1; 0: no digit.  Reports have many millions of them. */
static const unsigned char digits[256] = {
	['0'] = 1,  ['1'] = 2,	['2'] = 3,  ['3'] = 4,	['4'] = 5,  ['5'] = 6,
	['6'] = 7,  ['7'] = 8,	['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
	['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
};

/* Up to 16 digits, then a blank or the end. */
static uint64_t read_number(struct tsr_outcome *o)
{
	const char *at = o->from;
	uint64_t x = 0;
	unsigned n = 0;

	for (unsigned digit; n < 16 && (digit = digits[(unsigned char)at[n]]); n++)
		x = x << 4 | (digit - 1);
	at += n;
	if (o->failed || n == 0 || (*at && *at != ' ') || (*at == ' ' && !at[1])) {
		o->failed = true;
		return 0;
	}
	o->from = *at ? at + 1 : at;
	return x;
}

void tsr_outcome_u64(struct tsr_outcome *o, uint64_t *x)
{
	if (!o->into)
		*x = read_number(o);
	else
		tsr_text_printf(o->into, "%s%" PRIx64, o->begun ? " " : "", *x);
	o->begun = true;
}

void tsr_outcome_u64s(struct tsr_outcome *o, uint64_t *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		tsr_outcome_u64(o, &x[i]);
}

void tsr_outcome_size(struct tsr_outcome *o, size_t *x)
{
	uint64_t wide = *x;

	tsr_outcome_u64(o, &wide);
	o->failed = o->failed || wide > SIZE_MAX;
	*x = (size_t)wide;
}

void tsr_outcome_u32(struct tsr_outcome *o, uint32_t *x)
{
	uint64_t wide = *x;

	tsr_outcome_u64(o, &wide);
	o->failed = o->failed || wide > UINT32_MAX;
	*x = (uint32_t)wide;
}

void tsr_outcome_bool(struct tsr_outcome *o, bool *x)
{
	uint64_t wide = *x;

	tsr_outcome_u64(o, &wide);
	o->failed = o->failed || wide > 1;
	*x = wide != 0;
}

void tsr_outcome_float(struct tsr_outcome *o, float *x)
{
	uint32_t bits;

	memcpy(&bits, x, sizeof(bits));
	tsr_outcome_u32(o, &bits);
	memcpy(x, &bits, sizeof(bits));
}

void tsr_outcome_double(struct tsr_outcome *o, double *x)
{
	uint64_t bits;

	memcpy(&bits, x, sizeof(bits));
	tsr_outcome_u64(o, &bits);
	memcpy(x, &bits, sizeof(bits));
}

void tsr_outcome_doubles(struct tsr_outcome *o, double *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		tsr_outcome_double(o, &x[i]);
}

bool tsr_outcome_is_complete(const struct tsr_outcome *o)
{
	return !o->failed && !*o->from;
}

/* --- Structs ------------------------------------------------------------------------------------ */

void tsr_outcome_measure(struct tsr_outcome *o, struct tsr_measure *m)
{
	tsr_outcome_u64(o, &m->n);
	tsr_outcome_u64(o, &m->exact);
	tsr_outcome_u64(o, &m->nonfinite);
	tsr_outcome_u64(o, &m->negative);
	tsr_outcome_u64(o, &m->overflow);
	tsr_outcome_u64(o, &m->flushed);
	tsr_outcome_u64(o, &m->sign_lost);
	tsr_outcome_u64(o, &m->zeros);
	tsr_outcome_u32(o, &m->max_ulp);
	tsr_outcome_float(o, &m->max_abs);
	tsr_outcome_doubles(o, m->sum_rel, TSR_MEASURE_LANES);
	tsr_outcome_doubles(o, m->sum_xx, TSR_MEASURE_LANES);
	tsr_outcome_doubles(o, m->sum_dd, TSR_MEASURE_LANES);
	tsr_outcome_doubles(o, m->sum_xd, TSR_MEASURE_LANES);
}

void tsr_outcome_update(struct tsr_outcome *o, struct tsr_update_measure *u)
{
	tsr_outcome_u64(o, &u->n);
	tsr_outcome_u64(o, &u->nonfinite);
	tsr_outcome_u64(o, &u->overflow);
	tsr_outcome_u64(o, &u->exposed);
	tsr_outcome_float(o, &u->max_before);
	tsr_outcome_float(o, &u->max_after);
	tsr_outcome_doubles(o, u->sum_uu, TSR_MEASURE_LANES);
	tsr_outcome_doubles(o, u->sum_dd, TSR_MEASURE_LANES);
}

void tsr_outcome_report(struct tsr_outcome *o, struct tsr_encode_report *r)
{
	tsr_outcome_u64(o, &r->scale_underflow);
	tsr_outcome_u64(o, &r->scale_overflow);
	tsr_outcome_u64(o, &r->narrow_overflow);
}
