/* SPDX-License-Identifier: Apache-2.0 */
/* The codings that tables of papers compare. */
#include "audit/audit_presets.h"

#include "text/bytes.h"

/* A coding of a table; TSR_SCALE_COUNT: the codec's own scale. */
struct row {
	const char *codec;
	enum tsr_kind kind;
	enum tsr_scale scale;
	bool blocks; /* groups are Gefen's blocks */
};

#define M TSR_KIND_MOMENTUM
#define V TSR_KIND_VARIANCE
#define W TSR_KIND_WEIGHT
#define OWN TSR_SCALE_COUNT

/* Linear and companded codes, with FlashOptim's scales and with those of full range. */
static const struct row flashoptim_4[] = { { "linear8", M, TSR_SCALE_F16, false },
					   { "softsign8", M, TSR_SCALE_F16, false },
					   { "linear8", M, TSR_SCALE_E8M8, false },
					   { "softsign8", M, TSR_SCALE_E8M8, false },
					   { "ulinear8", V, TSR_SCALE_F16, false },
					   { "sqrt8", V, TSR_SCALE_F16, false },
					   { "ulinear8", V, TSR_SCALE_E8M8, false },
					   { "sqrt8", V, TSR_SCALE_E8M8, false },
					   { 0 } };

static const struct row coat_1[] = {
	{ "e4m3", M, OWN, false },  { "e4m3x", M, OWN, false }, { "e5m2", M, OWN, false },
	{ "e5m2x", M, OWN, false }, { "e4m3", V, OWN, false },	{ "e4m3x", V, OWN, false },
	{ "e5m2", V, OWN, false },  { "e5m2x", V, OWN, false }, { 0 }
};

static const struct row coat_9[] = { { "e4m3x", M, OWN, false }, { "dyn8", M, OWN, false },
				     { "e4m3", V, OWN, false },	 { "e4m3x", V, OWN, false },
				     { "e5m2", V, OWN, false },	 { "e5m2x", V, OWN, false },
				     { "dyn8", V, OWN, false },	 { 0 } };

/* Learned, uniform and dynamic codebooks in the same blocks. */
static const struct row gefen[] = { { "gefen8", M, OWN, false },
				    { "linear8", M, TSR_SCALE_F32, true },
				    { "dyn8", M, OWN, true },
				    { "blockmean", V, OWN, false },
				    { 0 } };

static const struct row extra_bits[] = {
	{ "fp16", W, OWN, false },	  { "bf16", W, OWN, false },
	{ "e5m2+trunc4", W, OWN, false }, { "e5m2+trunc8", W, OWN, false },
	{ "e5m2+sr8", W, OWN, false },	  { "e4m3+trunc4", W, OWN, false },
	{ "e4m3+trunc8", W, OWN, false }, { "fp16+trunc8", W, OWN, false },
	{ "bf16+trunc8", W, OWN, false }, { "bf16+trunc16", W, OWN, false },
	{ "bf16+ulp8", W, OWN, false },	  { 0 }
};

static unsigned fill(const struct row *rows, struct tsr_coding *ret)
{
	unsigned n = 0;

	for (; rows[n].codec; n++) {
		ret[n] = tsr_coding_with(tsr_codec_find(rows[n].codec), rows[n].scale, 0);
		ret[n].kind = rows[n].kind;
		if (rows[n].blocks)
			ret[n].group = 0;
	}
	return n;
}

unsigned tsr_audit_table_codings(const char *name, struct tsr_coding *ret)
{
	static const struct {
		const char *name;
		const struct row *rows;
	} tables[] = { { "flashoptim-4", flashoptim_4 },
		       { "coat-1", coat_1 },
		       { "coat-9", coat_9 },
		       { "gefen", gefen },
		       { "extra-bits", extra_bits } };

	return TSR_IS_AMONG(name, tables) ? fill(tables[TSR_NAME_INDEX(name, tables)].rows, ret)
					  : 0;
}
