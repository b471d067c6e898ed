/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/output.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "text/json.h"
#include "tersor/escape.h"

void cli_format_bytes(char *out, size_t room, double nbytes)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB" };
	unsigned unit = 0;

	while (nbytes >= 999.5 && unit < 5) {
		nbytes /= 1000;
		unit++;
	}
	snprintf(out, room,
		 unit && nbytes < 9.995	  ? "%.2f %s"
		 : unit && nbytes < 99.95 ? "%.1f %s"
					  : "%.0f %s",
		 nbytes, units[unit]);
}

void cli_format_count(char *out, size_t room, uint64_t n)
{
	char digits[24];
	const int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);
	size_t at = 0;

	for (int i = 0; i < len && at + 2 < room; i++) {
		if (i && (len - i) % 3 == 0)
			out[at++] = ',';
		out[at++] = digits[i];
	}
	out[at] = '\0';
}

void cli_format_shape(char *out, size_t room, unsigned rank, const uint64_t *shape)
{
	size_t at = (size_t)snprintf(out, room, "[");

	for (unsigned d = 0; d < rank && at + 24 < room; d++)
		at += (size_t)snprintf(out + at, room - at, "%s%llu", d ? ", " : "",
				       (unsigned long long)shape[d]);
	snprintf(out + at, room - at, "]");
}

void cli_format_name(char *out, size_t room, const char *name, unsigned width)
{
	char safe[1024];
	size_t len;

	tsr_escape(safe, sizeof(safe), name);
	len = strlen(safe);
	if (len <= width)
		snprintf(out, room, "%s", safe);
	else
		snprintf(out, room, "%.*s..%s", (int)(width - 2) / 2, safe,
			 safe + len - (width - 2 - (width - 2) / 2));
}

bool cli_wants_text(const struct cli_common *common)
{
	return common->quiet < 2 && !(common->json.given && !common->json.value);
}

void cli_json_begin(struct tsr_text *json, const struct cli_cmd *cmd)
{
	char schema[64];

	snprintf(schema, sizeof(schema), "tersor.%s.v1", cmd->name);
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "schema", schema);
}

/*
 * A report may be shown on a terminal: DEL and C1 controls, which JSON allows in a string as they
 * are, become \u00NN.  In UTF-8 they are 7f, and c2 followed by 80 to 9f.
 */
static void escape_controls(struct tsr_text *json)
{
	struct tsr_text safe = { 0 };
	size_t start = 0;

	for (size_t i = 0; i < json->nbytes; i++) {
		const unsigned char c = (unsigned char)json->bytes[i];
		const unsigned char next = i + 1 < json->nbytes ? (unsigned char)json->bytes[i + 1]
								: 0;
		const bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0;

		if (c != 0x7f && !c1)
			continue;
		tsr_text_put(&safe, json->bytes + start, i - start);
		tsr_text_printf(&safe, "\\u%04x", c1 ? next : c);
		i += c1;
		start = i + 1;
	}
	tsr_text_put(&safe, json->bytes + start, json->nbytes - start);
	tsr_text_free(json);
	*json = safe;
}

int cli_json_end(struct tsr_text *json, const struct cli_common *common)
{
	tsr_json_close(json, '}');
	tsr_text_puts(json, "\n");
	if (!json->failed)
		escape_controls(json);
	return cli_write_report(json, common->json.value);
}

int cli_write_report(struct tsr_text *text, const char *path)
{
	struct tsr_outfile *file = NULL;
	struct tsr_err err;
	enum tsr_status status;

	if (text->failed) {
		tsr_text_free(text);
		return cli_fail(CLI_IO, "out of memory for the report");
	}
	if (!path) {
		fwrite(text->bytes, 1, text->nbytes, stdout);
		tsr_text_free(text);
		return CLI_OK;
	}
	status = tsr_outfile_create(path, true, text->nbytes, &file, &err);
	if (status == TSR_OK)
		status = tsr_outfile_write(file, text->bytes, text->nbytes, 0, &err);
	if (status == TSR_OK)
		status = tsr_outfile_publish(file, &err);
	else
		tsr_outfile_discard(file);
	tsr_text_free(text);
	return status == TSR_OK ? CLI_OK : cli_error(&err);
}

enum tsr_status cli_check_report(const char *path, struct tsr_err *err)
{
	struct tsr_outfile *file = NULL;
	const enum tsr_status status = tsr_outfile_create(path, true, 0, &file, err);

	if (status == TSR_OK)
		tsr_outfile_discard(file);
	return status;
}

void cli_json_tensor(struct tsr_text *json, const struct tsr_tensor *t)
{
	tsr_json_put_string(json, "name", t->name);
	tsr_json_put_string(json, "kind", tsr_kind_name(t->kind));
	if (t->weight)
		tsr_json_put_string(json, "weight", t->weight);
	tsr_json_put_string(json, "dtype", tsr_dtype_name(t->dtype));
	tsr_json_open(json, "shape", '[');
	for (unsigned d = 0; d < t->rank; d++)
		tsr_json_put_u64(json, NULL, t->shape[d]);
	tsr_json_close(json, ']');
	tsr_json_put_string(json, "codec", t->coding.codec ? t->coding.codec->name : "raw");
	if (t->coding.codec && t->coding.codec->grouped) {
		tsr_json_put_string(json, "scale", tsr_scale_name(t->coding.scale));
		tsr_json_put_u64(json, "group", t->coding.group);
	}
	if (t->coding.codec && t->coding.codec->stochastic)
		tsr_json_put_u64(json, "seed", t->coding.seed);
	tsr_json_put_u64(json, "nbytes", tsr_tensor_nbytes(t));
}

void cli_json_measure(struct tsr_text *json, const struct tsr_measure *m)
{
	tsr_json_open(json, "error", '{');
	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++)
		tsr_json_put_double(json, tsr_metric_name((enum tsr_metric)i),
				    tsr_measure_value(m, (enum tsr_metric)i));
	tsr_json_put_u64(json, "exact", m->exact);
	tsr_json_put_u64(json, "flushed", m->flushed);
	tsr_json_put_u64(json, "overflow", m->overflow);
	tsr_json_put_u64(json, "nonfinite", m->nonfinite);
	tsr_json_close(json, '}');
}
