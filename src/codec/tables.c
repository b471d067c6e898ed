/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the tables of codes: of 8-bit floats, plain and with their range expanded, and of dyn8. */
#include "codec/tables.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>

#include "codec/logs_math.h"
#include "codec/power.h"

/* --- Rows -------------------------------------------------------------------------------------- */

/* A table that is being made. */
struct making {
	struct tsr_table_row *row;
	uint32_t *entry;
	uint32_t nrows, nentries, room; /* room for entries */
};

/*
 * What an element needs to have a code: t that is at least `from`, or only above it with `above` set, or
 * only if x is positive with `above_if_positive`.
 */
struct threshold {
	float from;
	bool above, above_if_positive;
};

/* The least key that passes a threshold.  It is at most that of 2^64 FLT_MAX / FLT_MAX. */
static uint32_t key_of(struct threshold t, float unit)
{
	const float from = t.from > 0.0f ? t.from : 0x1p-149f;
	const float least = t.above && t.from > 0.0f ? nextafterf(from, INFINITY) : from;

	return (tsr_bits_from_f32(least * unit) << 1) + t.above_if_positive;
}

/* Whether each bucket has at most one threshold behind its first key. */
static bool is_fine(const uint32_t *key, uint32_t ncodes, uint32_t shift)
{
	const uint32_t mask = (1u << shift) - 1;

	for (uint32_t c = 2; c < ncodes; c++) {
		if (key[c] >> shift == key[c - 1] >> shift && (key[c - 1] & mask))
			return false;
	}
	return true;
}

static void fill_buckets(struct making *m, struct tsr_table_row *row, const uint32_t *key,
			 uint32_t nbuckets)
{
	const uint32_t mask = (1u << row->shift) - 1;
	uint32_t code = 0;

	assert(m->nentries + nbuckets <= m->room);
	for (uint32_t i = 0; i < nbuckets; i++) {
		const uint32_t bucket = row->bucket + i;
		uint32_t carry = 1;

		while (code + 1 < row->ncodes && key[code + 1] <= bucket << row->shift)
			code++;
		if (code + 1 < row->ncodes && key[code + 1] >> row->shift == bucket)
			carry = (1u << 24) - (key[code + 1] & mask);
		m->entry[m->nentries++] = code << 24 | carry;
	}
}

/* A row whose values are there, and its thresholds from code 1 on. */
static void add_row(struct making *m, const struct threshold *threshold, uint32_t ncodes)
{
	struct tsr_table_row *row = &m->row[m->nrows++];
	uint32_t key[TSR_TABLE_CODES], last;

	row->ncodes = ncodes;
	row->unit = threshold[1].from < 0x1p-126f ? 0x1p64f : 1.0f;
	key[0] = 0;
	for (uint32_t c = 1; c < ncodes; c++) {
		const uint32_t own = key_of(threshold[c], row->unit);

		key[c] = own > key[c - 1] ? own : key[c - 1];
	}
	row->shift = 23;
	while (!is_fine(key, ncodes, row->shift))
		row->shift--;
	row->bucket = key[1] >> row->shift;
	row->bucket -= row->bucket > 0;
	last = (key[ncodes - 1] >> row->shift) + 1;
	row->lowest = tsr_f32_from_bits(row->bucket << row->shift >> 1);
	row->highest = tsr_f32_from_bits(last << row->shift >> 1);
	row->first = m->nentries;
	fill_buckets(m, row, key, last - row->bucket + 1);
}

/* --- 8-bit floats ------------------------------------------------------------------------------ */

const struct tsr_fp8_format tsr_fp8_e4m3 = { 3, 7, 127, false },
			    tsr_fp8_e5m2 = { 2, 15, 124, true };

struct tsr_fp8_value tsr_fp8_value(struct tsr_fp8_format f, uint32_t code)
{
	const int field = (int)(code >> f.fraction);
	const unsigned rest = code & ((1u << f.fraction) - 1);
	const struct tsr_fp8_value v = { rest + (field ? 1u << f.fraction : 0),
					 (field ? field : 1) - f.bias - f.fraction };

	return v;
}

/* Halfway between a code, not 0, and the one before: that one's last place is the finer of the two. */
static struct tsr_fp8_value middle_below(struct tsr_fp8_format f, uint32_t code)
{
	const struct tsr_fp8_value v = tsr_fp8_value(f, code - 1);

	return (struct tsr_fp8_value){ 2 * v.whole + 1, v.exponent - 1 };
}

static tsr_fixed64 log2_of(struct tsr_fp8_value v)
{
	return tsr_fixed64_log2(v.whole) + v.exponent * TSR_FIXED64_1;
}

/* Values of codes that are no numbers. */
static void put_specials(struct tsr_fp8_format f, float *value)
{
	for (uint32_t c = f.ncodes; c < 128; c++)
		value[c] = f.infinite && c == f.ncodes ? INFINITY : tsr_f32_from_bits(0x7fc00000u);
}

static float negative(float x)
{
	return tsr_f32_from_bits(tsr_bits_from_f32(x) ^ TSR_F32_SIGN);
}

/* The values of bytes with a sign. */
static void put_negative(float *value)
{
	for (uint32_t c = 0; c < 128; c++)
		value[128 + c] = negative(value[c]);
}

/* RN((v / largest)^(16/j)); with j = 0 v itself. */
static float value_of(struct tsr_fp8_format f, struct tsr_fp8_value v, int j)
{
	const tsr_fixed64 below = log2_of(tsr_fp8_value(f, f.ncodes - 1)) - log2_of(v);

	return j ? tsr_exp2_rounded(-(16 * below / j)) : ldexpf((float)v.whole, v.exponent);
}

static void add_fp8(struct making *m, struct tsr_fp8_format f, int j)
{
	struct threshold threshold[TSR_TABLE_CODES] = { { 0.0f, false, false } };
	float *value = m->row[m->nrows].value;

	value[0] = 0.0f;
	put_specials(f, value);
	for (uint32_t c = 1; c < f.ncodes; c++) {
		value[c] = value_of(f, tsr_fp8_value(f, c), j);
		threshold[c] = (struct threshold){ value_of(f, middle_below(f, c), j), c & 1,
						   false };
	}
	put_negative(value);
	add_row(m, threshold, f.ncodes);
}

/*
 * What a group with this exponent may range over: RN((7/16 R)^(16/j)), R the largest over the least
 * value, which is 7 2^a, so that 7/16 R = 49 2^b.
 */
static float bound_of(struct tsr_fp8_format f, int j)
{
	const tsr_fixed64 ratio = log2_of(tsr_fp8_value(f, f.ncodes - 1)) -
				  log2_of(tsr_fp8_value(f, 1));
	const float bound = tsr_exp2_rounded(16 *
					     (ratio + tsr_fixed64_log2(7) - 4 * TSR_FIXED64_1) / j);

	return bound < INFINITY ? bound : 0x1.fffffep127f;
}

/* --- dyn8 -------------------------------------------------------------------------------------- */

/* Boundary @k of @n equal intervals of [0.1, 1]: counted from the nearer end, rounded once. */
static float boundary(int k, int n)
{
	const double step = (double)((1.0f - 0.1f) / (float)n);

	return k < (n + 1) / 2 ? (float)((double)0.1f + k * step) : (float)(1 - (n - k) * step);
}

/*
 * The map of create_dynamic_map() of bitsandbytes without its negative half: in each of 7 decades the
 * middles of equal intervals, twice as many as in the one below; and 0 and 1.  Returns how many.
 */
static uint32_t fill_dynamic(float *value, int intervals)
{
	static const float decade[7] = { 1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f };
	uint32_t count = 0;

	value[count++] = 0.0f;
	for (unsigned i = 0; i < 7; i++, intervals *= 2) {
		for (int k = 0; k < intervals; k++) {
			const float ends = boundary(k, intervals) + boundary(k + 1, intervals);

			value[count++] = ends / 2 * decade[i];
		}
	}
	value[count++] = 1.0f;
	return count;
}

/* The nearest of these values; ties go to the lower one, which is the larger magnitude if negative. */
static void add_nearest(struct making *m, const float *from, uint32_t ncodes)
{
	struct threshold threshold[TSR_TABLE_CODES] = { { 0.0f, false, false } };
	float *value = m->row[m->nrows].value;

	value[0] = 0.0f;
	for (uint32_t c = 1; c < ncodes; c++) {
		const double middle = ((double)from[c - 1] + (double)from[c]) / 2;
		const float nearest = (float)middle;

		value[c] = from[c];
		threshold[c] = (struct threshold){ nearest, (double)nearest < middle,
						   (double)nearest == middle };
	}
	/* Of the row with a sign, bytes below the middle. */
	for (uint32_t c = 1; c < 128 && ncodes <= 129; c++)
		value[256 - c] = negative(value[c]);
	add_row(m, threshold, ncodes);
}

/* --- log<k> ------------------------------------------------------------------------------------ */

/* So many half steps below the scale, of which a range of so many quarters of an octave has 2 @nsteps. */
static float below_one(int quarters, int nsteps, int half_steps)
{
	return tsr_exp2_rounded(-(half_steps * quarters * TSR_FIXED64_1 / (2 * 4 * nsteps)));
}

/* Code c is last - c steps below the scale, and begins half a step below that. */
static void add_log(struct making *m, int quarters, int last)
{
	struct threshold threshold[TSR_TABLE_CODES] = { { 0.0f, false, false } };
	float *value = m->row[m->nrows].value;

	value[0] = 0.0f;
	for (int c = 1; c <= last; c++) {
		const float from = below_one(quarters, last - 1, 2 * (last - c) + 1);

		value[c] = below_one(quarters, last - 1, 2 * (last - c));
		threshold[c] = (struct threshold){ from, false, false };
	}
	add_row(m, threshold, (uint32_t)last + 1);
}

/* --- All of them ------------------------------------------------------------------------------- */

#define PLAIN_ENTRIES 160u
#define EXPANDED_ENTRIES (TSR_TABLE_ROWS * 336u)
#define DYNAMIC_ENTRIES 4352u
#define LOG_ENTRIES(bits) (TSR_LOG_RANGES * (1200u >> (8 - (bits))))

static struct tsr_tables tables[TSR_TABLES_COUNT];
static pthread_once_t once[TSR_TABLES_COUNT] = { PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT,
						 PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT,
						 PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT,
						 PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT,
						 PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT };

static void publish(enum tsr_table_set set, const struct making *m, const float *bound)
{
	tables[set] = (struct tsr_tables){ .row = m->row,
					   .entry = m->entry,
					   .bound = bound,
					   .nrows = m->nrows,
					   .nentries = m->nentries };
}

static void make_plain(enum tsr_table_set set, struct tsr_fp8_format f, struct making m)
{
	add_fp8(&m, f, 0);
	publish(set, &m, NULL);
}

static void make_expanded(enum tsr_table_set set, struct tsr_fp8_format f, struct making m,
			  float *bound)
{
	/* Zeros only: whatever the codes are, every value is 0. */
	m.row[0] = (struct tsr_table_row){ .unit = 1.0f, .shift = 1, .ncodes = 1 };
	put_negative(m.row[0].value);
	m.entry[0] = 1;
	m.nrows = m.nentries = 1;
	bound[0] = INFINITY;
	for (int j = 1; j < (int)TSR_TABLE_ROWS; j++) {
		bound[j] = bound_of(f, j);
		add_fp8(&m, f, j);
	}
	publish(set, &m, bound);
}

/* The tables of an 8-bit float: as it is, and with its range expanded. */
#define DEFINE_FP8(id, ID, decode) \
	static void make_##id(void) \
	{ \
		static struct tsr_table_row row[1]; \
		static uint32_t entry[PLAIN_ENTRIES]; \
\
		make_plain(TSR_TABLES_##ID, decode, \
			   (struct making){ row, entry, 0, 0, PLAIN_ENTRIES }); \
	} \
\
	static void make_##id##x(void) \
	{ \
		static struct tsr_table_row row[TSR_TABLE_ROWS]; \
		static uint32_t entry[EXPANDED_ENTRIES]; \
		static float bound[TSR_TABLE_ROWS]; \
\
		make_expanded(TSR_TABLES_##ID##X, decode, \
			      (struct making){ row, entry, 0, 0, EXPANDED_ENTRIES }, bound); \
	}

DEFINE_FP8(e4m3, E4M3, tsr_fp8_e4m3)
DEFINE_FP8(e5m2, E5M2, tsr_fp8_e5m2)

static void make_dynamic(void)
{
	static struct tsr_table_row row[2];
	static uint32_t entry[DYNAMIC_ENTRIES];
	struct making m = { row, entry, 0, 0, DYNAMIC_ENTRIES };
	float value[TSR_TABLE_CODES];

	for (int intervals = 1; intervals <= 2; intervals++)
		add_nearest(&m, value, fill_dynamic(value, intervals));
	publish(TSR_TABLES_DYNAMIC, &m, NULL);
}

/*
 * The tables of codes of @bits bits, whose ranges end at @most quarters of an octave: with few codes it is
 * better to keep the large roots than to reach the small ones.
 */
static void make_logs(enum tsr_table_set set, unsigned bits, int most, struct making m,
		      float *reach)
{
	static const int quarters[TSR_LOG_RANGES] = { 1,  2,  3,  4,  6,  8,  10, 12,
						      16, 20, 24, 32, 40, 52, 68, 96 };

	for (unsigned p = 0; p < TSR_LOG_RANGES; p++) {
		const int range = quarters[p] < most ? quarters[p] : most;

		reach[p] = tsr_exp2_rounded(-(range * TSR_FIXED64_1 / 4));
		add_log(&m, range, (1 << bits) - 1);
	}
	publish(set, &m, reach);
}

#define DEFINE_LOG(bits, most) \
	static void make_log##bits(void) \
	{ \
		static struct tsr_table_row row[TSR_LOG_RANGES]; \
		static uint32_t entry[LOG_ENTRIES(bits)]; \
		static float reach[TSR_TABLE_ROWS]; \
\
		make_logs(TSR_TABLES_LOG##bits, bits, most, \
			  (struct making){ row, entry, 0, 0, LOG_ENTRIES(bits) }, reach); \
	}

DEFINE_LOG(8, 96)
DEFINE_LOG(7, 52)
DEFINE_LOG(6, 52)
DEFINE_LOG(4, 40)
DEFINE_LOG(3, 24)

const struct tsr_tables *tsr_tables_get(enum tsr_table_set set)
{
	static void (*const make[TSR_TABLES_COUNT])(void) = {
		[TSR_TABLES_E4M3] = make_e4m3,	     [TSR_TABLES_E5M2] = make_e5m2,
		[TSR_TABLES_E4M3X] = make_e4m3x,     [TSR_TABLES_E5M2X] = make_e5m2x,
		[TSR_TABLES_DYNAMIC] = make_dynamic, [TSR_TABLES_LOG8] = make_log8,
		[TSR_TABLES_LOG7] = make_log7,	     [TSR_TABLES_LOG6] = make_log6,
		[TSR_TABLES_LOG4] = make_log4,	     [TSR_TABLES_LOG3] = make_log3,
	};

	pthread_once(&once[set], make[set]);
	return &tables[set];
}
