/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: on standard output, or in files. */
#include "cli/files.h"

#include <unistd.h>

#include "io/dir.h"
#include "io/temporary.h"

bool cli_wants_text(const struct cli_common *common)
{
	return common->quiet < 2 && !cli_fills_stdout(common);
}

/* How the grades look on a terminal: they are coloured where they stand as words of their own. */
static const struct {
	const char *word, *color;
} grades[] = { { "fine", "32" }, { "watch", "33" }, { "bad", "31" }, { "FAULT", "31" } };

static void color_grades(const struct cli_common *common, struct tsr_text *text)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
	const bool terminal = isatty(STDOUT_FILENO) && !(no && *no) &&
			      !(term && strcmp(term, "dumb") == 0);
	struct tsr_text out = { 0 };
	size_t n;

	if (text->failed || !text->nbytes ||
	    !(common->color && strcmp(common->color, "auto") != 0 ? common->color[0] == 'a'
								  : terminal))
		return;
	for (const char *at = text->bytes; *at; at += n) {
		size_t i = 0;

		n = strcspn(at, " \n:");
		while (i < sizeof(grades) / sizeof(*grades) &&
		       (strlen(grades[i].word) != n || memcmp(at, grades[i].word, n) != 0))
			i++;
		if (i < sizeof(grades) / sizeof(*grades))
			tsr_text_printf(&out, "\033[%sm%s\033[0m", grades[i].color, grades[i].word);
		else
			tsr_text_printf(&out, "%.*s", (int)n, at);
		tsr_text_printf(&out, "%.*s", (int)strspn(at + n, " \n:"), at + n);
		n += strspn(at + n, " \n:");
	}
	tsr_text_free(text);
	*text = out;
}

int cli_print_report(const struct cli_common *common, struct tsr_text *text)
{
	color_grades(common, text);
	return cli_write_report(text, NULL);
}

int cli_write_report(struct tsr_text *text, const char *path)
{
	enum tsr_status status;
	struct tsr_err err;

	if (text->failed) {
		tsr_text_free(text);
		return cli_fail(CLI_IO,
				"%s: out of memory for the report; an output that it is about is "
				"published",
				path ? path : "stdout");
	}
	if (!path) {
		if (text->nbytes)
			fwrite(text->bytes, 1, text->nbytes, stdout);
		tsr_text_free(text);
		return CLI_OK;
	}
	status = tsr_outfile_write_whole(path, true, text->bytes, text->nbytes, &err);
	tsr_text_free(text);
	return status == TSR_OK ? CLI_OK : cli_error(&err);
}

unsigned cli_report_paths(const struct cli_common *common, const char *paths[CLI_NREPORTS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < CLI_NREPORTS; i++) {
		if (common->report[i].value)
			paths[n++] = common->report[i].value;
	}
	return n;
}

static void warn_of_extension(const struct cli_common *common, const char *path,
			      const char *extension, const char *format)
{
	if (path && strcmp(path, TSR_STANDARD_OUTPUT) != 0 && strchr(tsr_path_name(path), '.') &&
	    !tsr_dir_name_ends_with(path, extension))
		cli_warn(common, "%s: is written as %s", path, format);
}

int cli_check_reports(const struct cli_common *common)
{
	const char *paths[CLI_NREPORTS];
	const unsigned n = cli_report_paths(common, paths);

	for (unsigned i = 0; i < n; i++) {
		struct tsr_outfile *file = NULL;
		struct tsr_err err;

		if (tsr_outfile_create(paths[i], true, 0, &file, &err) != TSR_OK)
			return cli_error(&err);
		tsr_outfile_discard(file);
	}
	return CLI_OK;
}

/* --- JSON ----------------------------------------------------------------------------------- */

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

struct tsr_report cli_report(const struct cli_cmd *cmd, const struct cli_common *common,
			     const char *part)
{
	struct tsr_report r = { .wants_text = cli_wants_text(common),
				.wants_csv = common->report[CLI_CSV].given,
				.wants_svg = common->report[CLI_SVG].value,
				.wants_html = common->report[CLI_HTML].value,
				.wants_json = common->report[CLI_JSON].given,
				.verbose = common->verbose,
				.output = common->output,
				.dry_run = common->dry_run };
	char schema[64];

	if (r.dry_run && r.output && strcmp(r.output, TSR_STANDARD_OUTPUT) == 0)
		r.output = NULL;
	snprintf(schema, sizeof(schema), "tersor.%s%s%s.v1", cmd->name, part ? "-" : "",
		 part ? part : "");
	tsr_json_open(&r.json, NULL, '{');
	tsr_json_put_string(&r.json, "schema", schema);
	if (*cmd->operands && *cmd->operands != '[')
		tsr_json_put_strings(&r.json, "inputs", common->operands.items, common->operands.n);
	return r;
}

int cli_end_report(struct tsr_report *r, const struct cli_common *common)
{
	const struct {
		struct tsr_text *text;
		bool wanted;
		const char *path;
	} all[] = {
		{ &r->csv, r->wants_csv, common->report[CLI_CSV].value },
		{ &r->svg, r->wants_svg, common->report[CLI_SVG].value },
		{ &r->html, r->wants_html, common->report[CLI_HTML].value },
		{ &r->json, r->wants_json, common->report[CLI_JSON].value },
	};
	int status = r->wants_text ? cli_print_report(common, &r->text) : CLI_OK;

	tsr_text_free(&r->text);
	warn_of_extension(common, common->report[CLI_SVG].value, ".svg", "SVG");
	warn_of_extension(common, common->report[CLI_HTML].value, ".html", "HTML");
	tsr_json_close(&r->json, '}');
	tsr_text_puts(&r->json, "\n");
	if (r->wants_json && !r->json.failed)
		escape_controls(&r->json);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (all[i].wanted && status == CLI_OK)
			status = cli_write_report(all[i].text, all[i].path);
		tsr_text_free(all[i].text);
	}
	return status == CLI_OK && r->differs ? CLI_DIFFERS : status;
}
