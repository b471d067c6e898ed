/* SPDX-License-Identifier: Apache-2.0 */
/* The packed format (docs/internals/format.md): what its reader and its writer share. */
#include "container/packed/packed.h"

#include <math.h>
#include <string.h>

#include "ckpt/coded/coded_plane.h"

static bool ends_in(const char *name, const char *suffix)
{
	const size_t len = strlen(name), n = strlen(suffix);

	return n && len >= n && strcmp(name + len - n, suffix) == 0;
}

static bool ends_in_plane(const char *name, const struct tsr_codec *codec)
{
	for (unsigned i = 0; i < codec->nplanes; i++) {
		if (ends_in(name, codec->planes[i].suffix))
			return true;
	}
	return false;
}

bool tsr_packed_name_reserved(const char *name)
{
	/* Every suffix has it, and hardly any name of a tensor. */
	if (!strstr(name, "::"))
		return false;
	if (ends_in(name, TSR_CODED_SUFFIX))
		return true;
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (ends_in_plane(name, *c))
			return true;
	}
	/* Other codecs have the suffixes of these. */
	return ends_in_plane(name, tsr_codec_find("blockmean")) ||
	       ends_in_plane(name, tsr_codec_find("lowrank16+linear8"));
}

unsigned tsr_packed_figure_nbytes(enum tsr_metric metric)
{
	return metric == TSR_METRIC_NMSE ? 7 : 3;
}

uint64_t tsr_packed_figure_bits(enum tsr_metric metric, double value)
{
	const unsigned shift = 64 - 8 * tsr_packed_figure_nbytes(metric);
	uint64_t bits;

	value = isfinite(value) ? value : INFINITY;
	memcpy(&bits, &value, sizeof(bits));
	return (bits + (UINT64_C(1) << (shift - 1)) - !(bits >> shift & 1)) >> shift;
}

double tsr_packed_figure(enum tsr_metric metric, uint64_t bits)
{
	double value;

	bits <<= 64 - 8 * tsr_packed_figure_nbytes(metric);
	memcpy(&value, &bits, sizeof(value));
	return value;
}

struct tsr_json_rules tsr_packed_rules(const char *path)
{
	return (struct tsr_json_rules){
		.file = path,
		.part = "packed metadata",
		.max_depth = 8,
		.max_values = TSR_PACKED_VALUES_MAX,
	};
}

const char *tsr_packed_find_check(const char *json)
{
	/* A key follows a bracket or comma; inside another string its quote follows a backslash. */
	static const char lead[] = "\"" TSR_PACKED_CHECK_KEY "\":\"";
	const char *at = strstr(json, lead);

	while (at && at > json && at[-1] == '\\')
		at = strstr(at + 1, lead);
	if (!at || strlen(at) < sizeof(lead) - 1 + 16)
		return NULL;
	return at + sizeof(lead) - 1;
}
