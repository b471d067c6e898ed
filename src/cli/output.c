/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: on standard output, or in files. */
#include "cli/output.h"

#include <stdio.h>
#include <string.h>

#include "io/file.h"
#include "report/render/format.h"
#include "text/json.h"

bool cli_wants_text(const struct cli_common *common)
{
	return common->quiet < 2 && !cli_fills_stdout(common);
}

static bool has_no_output(const struct cli_common *common)
{
	return common->dry_run && strcmp(common->output, TSR_STANDARD_OUTPUT) == 0;
}

struct tsr_cell cli_output_name(const struct cli_common *common, unsigned width)
{
	return tsr_format_name(has_no_output(common) ? "dry run" : common->output, width);
}

int cli_write_report(struct tsr_text *text, const char *path)
{
	struct tsr_outfile *file = NULL;
	struct tsr_err err;
	enum tsr_status status;

	if (text->failed) {
		tsr_text_free(text);
		return cli_fail(CLI_IO, "%s: out of memory for the report", path ? path : "stdout");
	}
	if (!path) {
		if (text->nbytes)
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

struct tsr_report cli_report(const struct cli_cmd *cmd, const struct cli_common *common,
			     const char *part)
{
	struct tsr_report r = { .wants_text = cli_wants_text(common),
				.wants_csv = common->csv.given,
				.wants_svg = common->svg,
				.wants_html = common->html,
				.wants_json = common->json.given,
				.verbose = common->verbose };

	if (r.wants_json)
		cli_json_begin_part(&r.json, cmd, part);
	return r;
}

int cli_end_report(struct tsr_report *r, const struct cli_common *common)
{
	const struct {
		struct tsr_text *text;
		bool wanted;
		const char *path;
	} all[] = {
		{ &r->text, r->wants_text, NULL },
		{ &r->csv, r->wants_csv, common->csv.value },
		{ &r->svg, r->wants_svg, common->svg },
		{ &r->html, r->wants_html, common->html },
	};
	int status = CLI_OK;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (all[i].wanted && status == CLI_OK)
			status = cli_write_report(all[i].text, all[i].path);
		tsr_text_free(all[i].text);
	}
	if (r->wants_json && status == CLI_OK)
		status = cli_json_end(&r->json, common);
	tsr_text_free(&r->json);
	return status;
}

unsigned cli_report_paths(const struct cli_common *common, const char *paths[4])
{
	const char *const all[] = { common->json.value, common->csv.value, common->svg,
				    common->html };
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (all[i])
			paths[n++] = all[i];
	}
	return n;
}

int cli_check_reports(const struct cli_cmd *cmd, const struct cli_common *common)
{
	const char *paths[4];
	const unsigned n = cli_report_paths(common, paths);

	for (unsigned i = 0; i < n; i++) {
		struct tsr_outfile *file = NULL;
		struct tsr_err err;

		if (tsr_outfile_create(paths[i], true, 0, &file, &err) != TSR_OK)
			return cli_usage(cmd, "cannot write a report: %s%s", err.msg,
					 cli_hint(&err));
		tsr_outfile_discard(file);
	}
	return CLI_OK;
}

/* --- JSON ----------------------------------------------------------------------------------- */

void cli_json_begin_part(struct tsr_text *json, const struct cli_cmd *cmd, const char *part)
{
	char schema[64];

	snprintf(schema, sizeof(schema), "tersor.%s%s%s.v1", cmd->name, part ? "-" : "",
		 part ? part : "");
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "schema", schema);
}

void cli_json_begin(struct tsr_text *json, const struct cli_cmd *cmd)
{
	cli_json_begin_part(json, cmd, NULL);
}

/*
 * JSON allows DEL and C1 controls in strings, but a report may be shown on a terminal: they become
 * \u00NN.  In UTF-8 they are 7f, and c2 followed by 80 to 9f.
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

void cli_json_output(struct tsr_text *json, const struct cli_common *common)
{
	tsr_json_put_string(json, "output", has_no_output(common) ? NULL : common->output);
	tsr_json_put_bool(json, "dry_run", common->dry_run);
}

void cli_json_inputs(struct tsr_text *json, const struct cli_common *common)
{
	tsr_json_put_strings(json, "inputs", common->operands.items, common->operands.n);
}

static void put_tensor(struct tsr_text *json, const struct tsr_tensor *t)
{
	tsr_json_put_string(json, "name", t->name);
	tsr_json_put_string(json, "kind", tsr_kind_name(t->kind));
	if (t->weight)
		tsr_json_put_string(json, "weight", t->weight);
	if (t->quantized)
		tsr_json_put_string(json, "quantized", t->quantized);
	tsr_json_put_string(json, "dtype", tsr_dtype_name(t->dtype));
	tsr_json_put_u64s(json, "shape", t->shape, t->rank);
	tsr_coding_put_json(&t->coding, json);
	if (t->narrow)
		tsr_json_put_string(json, "narrow", t->narrow);
	tsr_json_put_u64(json, "nbytes", tsr_tensor_nbytes(t));
}

void cli_json_tensors(struct tsr_text *json, const struct tsr_checkpoint *c,
		      void (*more)(struct tsr_text *json, const void *result, size_t i),
		      const void *result)
{
	tsr_json_open(json, "tensors", '[');
	for (size_t i = 0; i < c->ntensors; i++) {
		tsr_json_open(json, NULL, '{');
		put_tensor(json, &c->tensors[i]);
		if (more)
			more(json, result, i);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

void cli_json_measure(struct tsr_text *json, const struct tsr_measured *m)
{
	tsr_json_open(json, "error", '{');
	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++)
		tsr_json_put_double(json, tsr_metric_name((enum tsr_metric)i),
				    tsr_measured_value(m, (enum tsr_metric)i));
	tsr_json_put_u64(json, "exact", m->exact);
	tsr_json_put_u64(json, "flushed", m->flushed);
	tsr_json_put_u64(json, "sign_lost", m->sign_lost);
	tsr_json_put_u64(json, "overflow", m->overflow);
	tsr_json_put_u64(json, "nonfinite", m->nonfinite);
	tsr_json_close(json, '}');
}
