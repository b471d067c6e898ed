/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names as tables show them to people. */
#include "report/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tersor/escape.h"
#include "text/json.h"

void tsr_format_bytes(char out[TSR_BYTES_ROOM], double nbytes)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB" };
	unsigned unit = 0;

	while (nbytes >= 999.5 && unit < 5) {
		nbytes /= 1000;
		unit++;
	}
	snprintf(out, TSR_BYTES_ROOM,
		 unit && nbytes < 9.995	  ? "%.2f %s"
		 : unit && nbytes < 99.95 ? "%.1f %s"
					  : "%.0f %s",
		 nbytes, units[unit]);
}

void tsr_format_count(char out[TSR_COUNT_ROOM], uint64_t n)
{
	char digits[24];
	const int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*out++ = ',';
		*out++ = digits[i];
	}
	*out = '\0';
}

void tsr_format_percent(char out[TSR_PERCENT_ROOM], uint64_t part, uint64_t whole)
{
	const double percent = whole ? 100.0 * (double)part / (double)whole : 0;

	if (!whole)
		snprintf(out, TSR_PERCENT_ROOM, "-");
	else if (part == whole || !part)
		snprintf(out, TSR_PERCENT_ROOM, "%s", part ? "100" : "0");
	else
		snprintf(out, TSR_PERCENT_ROOM, "%.4f",
			 percent > 99.9999  ? 99.9999
			 : percent < 0.0001 ? 0.0001
					    : percent);
}

void tsr_format_name(char out[TSR_NAME_ROOM], const char *name, unsigned width)
{
	char safe[1024];
	size_t len;

	tsr_escape(safe, sizeof(safe), name);
	len = strlen(safe);
	width = width < TSR_NAME_ROOM ? width : TSR_NAME_ROOM - 1;
	if (len <= width)
		memcpy(out, safe, len + 1);
	else
		snprintf(out, TSR_NAME_ROOM, "%.*s..%s", (int)(width - 2) / 2, safe,
			 safe + len - (width - 2 - (width - 2) / 2));
}

char *tsr_escaped(struct tsr_text *out, const char *name)
{
	const size_t room = 4 * strlen(name) + 1;
	char *safe = malloc(room);

	if (safe)
		tsr_escape(safe, room, name);
	else
		out->failed = true;
	return safe;
}

void tsr_format_coding(char out[TSR_CODING_ROOM], const struct tsr_coding *coding)
{
	const char *name = coding->codec ? coding->codec->name : "raw";

	if (coding->codec && coding->codec->grouped)
		snprintf(out, TSR_CODING_ROOM, "%s %s/%u", name, tsr_scale_name(coding->scale),
			 coding->group);
	else
		snprintf(out, TSR_CODING_ROOM, "%s", name);
}

void tsr_coding_put_json(const struct tsr_coding *coding, struct tsr_text *json)
{
	const struct tsr_codec *codec = coding->codec;

	tsr_json_put_string(json, "codec", codec ? codec->name : "raw");
	if (codec && codec->grouped) {
		tsr_json_put_string(json, "scale", tsr_scale_name(coding->scale));
		tsr_json_put_u64(json, "group", coding->group);
	}
	if (codec && codec->stochastic)
		tsr_json_put_u64(json, "seed", coding->seed);
}

void tsr_put_wrapped(struct tsr_text *out, const char *words, unsigned column, unsigned indent)
{
	bool first = true;

	while (*words) {
		const unsigned len = (unsigned)strcspn(words, " ");

		if (!first && column + 1 + len > TSR_COLUMNS) {
			tsr_text_printf(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (!first) {
			tsr_text_puts(out, " ");
			column++;
		}
		tsr_text_printf(out, "%.*s", (int)len, words);
		column += len;
		words += len;
		words += *words == ' ';
		first = false;
	}
	tsr_text_puts(out, "\n");
}
