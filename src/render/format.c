/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names as tables show them to people. */
#include "render/format.h"

#include "tersor/escape.h"
#include "text/shape.h"

struct tsr_cell tsr_format_bytes(double nbytes)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB" };
	struct tsr_cell out;
	unsigned unit = 0;

	while (nbytes >= 999.5 && unit < 5) {
		nbytes /= 1000;
		unit++;
	}
	snprintf(out.text, sizeof(out.text),
		 unit && nbytes < 9.995	  ? "%.2f %s"
		 : unit && nbytes < 99.95 ? "%.1f %s"
					  : "%.0f %s",
		 nbytes, units[unit]);
	return out;
}

struct tsr_cell tsr_format_ulp(double ulp)
{
	struct tsr_cell out;

	snprintf(out.text, sizeof(out.text), "%.0f", ulp);
	if (ulp >= 0x1p28)
		snprintf(out.text, sizeof(out.text), "at zero");
	return out;
}

struct tsr_cell tsr_format_count(uint64_t n)
{
	char digits[24];
	const int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
	struct tsr_cell out;
	char *to = out.text;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
	return out;
}

struct tsr_cell tsr_format_number(uint64_t n, const char *one)
{
	struct tsr_cell out;

	snprintf(out.text, sizeof(out.text), "%" PRIu64 " %s%s", n, one, n == 1 ? "" : "s");
	return out;
}

struct tsr_cell tsr_format_name(const char *name, unsigned width)
{
	struct tsr_cell out;
	char safe[1024];
	size_t len;

	tsr_escape(safe, sizeof(safe), name);
	len = strlen(safe);
	width = width < sizeof(out.text) ? width : sizeof(out.text) - 1;
	if (len <= width)
		memcpy(out.text, safe, len + 1);
	else
		snprintf(out.text, sizeof(out.text), "%.*s..%s", (int)(width - 2) / 2, safe,
			 safe + len - (width - 2 - (width - 2) / 2));
	return out;
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

void tsr_csv_put_name(const char *name, struct tsr_text *csv)
{
	char *safe = tsr_escaped(csv, name);
	const char *text, *quote;

	if (!safe)
		return;
	/* Spreadsheets take what begins so for a formula; an apostrophe makes it text. */
	text = *safe && strchr("=+-@", *safe) ? "'" : "";
	quote = strpbrk(safe, ",\"") ? "\"" : "";

	tsr_text_puts(csv, quote);
	tsr_text_puts(csv, text);
	for (const char *c = safe; *c; c++)
		tsr_text_put(csv, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
	tsr_text_puts(csv, quote);
	free(safe);
}

struct tsr_cell tsr_format_shape(unsigned rank, const uint64_t *shape)
{
	struct tsr_cell out;

	tsr_shape_text(out.text, 64, rank, shape);
	return out;
}

struct tsr_cell tsr_format_coding(const struct tsr_coding *coding)
{
	const char *name = coding->codec ? coding->codec->name : "raw";
	struct tsr_cell out;

	if (coding->codec && coding->codec->grouped)
		snprintf(out.text, sizeof(out.text), "%s %s/%u", name,
			 tsr_scale_name(coding->scale), coding->group);
	else
		snprintf(out.text, sizeof(out.text), "%s", name);
	return out;
}

void tsr_put_wrapped(struct tsr_text *out, const char *words, unsigned column, unsigned indent)
{
	bool first = true;

	while (*words && *words != '\n') {
		const unsigned len = (unsigned)strcspn(words, " \n");

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
		words += *words != '\0';
		first = false;
	}
	tsr_text_puts(out, "\n");
}
