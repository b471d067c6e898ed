/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and JSON of the files of a directory. */
#include "cli/directory_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/output.h"
#include "report/render/format.h"
#include "text/json.h"

/* Columns of the name of a file. */
#define NAME_WIDTH 49

void cli_directory_keep_worst(struct cli_directory_totals *totals, const char *path)
{
	struct tsr_summary *s = &totals->summary;

	if (s->total.worst && s->total.worst != &totals->worst) {
		snprintf(totals->worst_name, sizeof(totals->worst_name), "%s",
			 s->total.worst->name);
		snprintf(totals->worst_file, sizeof(totals->worst_file), "%s", path);
		totals->worst = (struct tsr_tensor){ .name = totals->worst_name };
		s->total.worst = &totals->worst;
	}
	for (unsigned i = 0; i < s->nrows; i++) {
		const struct tsr_codec *codec = s->rows[i].coding.codec;

		/* A codec with a table of its own ends with its checkpoint. */
		s->rows[i].coding.codec = codec ? tsr_codec_find(codec->name) : NULL;
		if (s->rows[i].worst)
			s->rows[i].worst = &totals->worst;
	}
}

struct cli_directory_sizes cli_directory_sizes(const struct tsr_directory *d)
{
	struct cli_directory_sizes sizes = { .stored_nbytes = tsr_directory_index_nbytes(d) };
	const struct tsr_directory_entry *e;

	for (size_t i = 0; (e = tsr_directory_entry(d, i)); i++) {
		sizes.nbytes += e->nbytes;
		sizes.stored_nbytes += e->stored_nbytes;
		sizes.npacked += e->as == TSR_STORED_PACKED;
		sizes.ncopied += e->as == TSR_STORED_COPY;
		sizes.ndirectories += e->as == TSR_STORED_DIRECTORY;
	}
	return sizes;
}

/* A name that has no room in its column has a line of its own. */
static void put_line(struct tsr_text *out, const struct tsr_directory_entry *e)
{
	const struct tsr_cell name = tsr_format_name(e->path, TSR_COLUMNS - 1);
	const bool fits = strlen(name.text) <= NAME_WIDTH;

	if (e->as == TSR_STORED_DIRECTORY)
		return;
	if (!fits)
		tsr_text_printf(out, "%s\n", name.text);
	tsr_text_printf(out, "%-*s %-9s %9s %9s\n", NAME_WIDTH, fits ? name.text : "",
			tsr_stored_as_name(e->as), tsr_format_bytes((double)e->nbytes).text,
			tsr_format_bytes((double)e->stored_nbytes).text);
	if (e->as == TSR_STORED_PACKED && e->container == TSR_CONTAINER_DCP)
		tsr_text_puts(out, "    with the *.distcp files beside it\n");
	if (!e->reason)
		return;
	tsr_text_puts(out, "    ");
	tsr_put_wrapped(out, e->reason, 4, 4);
}

int cli_directory_print(const struct tsr_directory *d, struct cli_directory_totals *totals)
{
	const struct tsr_directory_entry *e;
	struct tsr_text table = { 0 };

	tsr_text_printf(&table, "%-*s %-9s %9s %9s\n", NAME_WIDTH, "file", "stored", "before",
			"after");
	for (size_t i = 0; (e = tsr_directory_entry(d, i)); i++)
		put_line(&table, e);
	tsr_text_puts(&table, "\n");
	if (totals->summary.nrows) {
		tsr_summary_put_table(&totals->summary, &table);
		tsr_summary_put_remarks(&totals->summary, &table);
		tsr_text_puts(&table, "\n");
	}
	return cli_write_report(&table, NULL);
}

void cli_print_losses(const struct tsr_losses *losses)
{
	struct tsr_text lines = { 0 };

	tsr_losses_put_text(losses, &lines);
	(void)cli_write_report(&lines, NULL);
}

void cli_directory_print_faults(const struct cli_common *common, const struct tsr_directory *d,
				const char *lead)
{
	const struct tsr_directory_entry *e;
	struct tsr_text out = { 0 };

	for (size_t i = 0; (e = tsr_directory_entry(d, i)); i++) {
		if (!e->fault && !common->verbose)
			continue;
		tsr_text_printf(&out, "%-7s %s\n", e->fault ? lead : "ok",
				tsr_format_name(e->path, 70).text);
		if (!e->fault)
			continue;
		tsr_text_puts(&out, "        ");
		tsr_put_wrapped(&out, e->fault, 8, 8);
	}
	if (out.nbytes)
		cli_write_report(&out, NULL);
}

static void put_entry(struct tsr_text *json, const struct tsr_directory_entry *e)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "path", e->path);
	tsr_json_put_string(json, "stored", tsr_stored_as_name(e->as));
	tsr_json_put_u64(json, "nbytes", e->nbytes);
	tsr_json_put_u64(json, "stored_nbytes", e->stored_nbytes);
	if (e->as == TSR_STORED_PACKED) {
		tsr_json_put_string(json, "container", tsr_container_name(e->container));
		tsr_json_put_u64(json, "generation", e->generation);
	}
	tsr_json_put_string(json, "reason", e->reason);
	tsr_json_put_string(json, "fault", e->fault);
	tsr_json_close(json, '}');
}

void cli_directory_put_json(struct tsr_text *json, const struct tsr_directory *d,
			    struct cli_directory_totals *totals)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(d);
	const struct tsr_directory_entry *e;

	tsr_json_put_u64(json, "packed", sizes.npacked);
	tsr_json_put_u64(json, "copied", sizes.ncopied);
	tsr_json_put_u64(json, "directories", sizes.ndirectories);
	tsr_json_put_u64(json, "nbytes", sizes.nbytes);
	tsr_json_put_u64(json, "stored_nbytes", sizes.stored_nbytes);
	tsr_json_put_u64(json, "faults", tsr_directory_nfaults(d));
	if (totals)
		tsr_summary_put_json(&totals->summary, json);
	tsr_json_open(json, "files", '[');
	for (size_t i = 0; (e = tsr_directory_entry(d, i)); i++)
		put_entry(json, e);
	tsr_json_close(json, ']');
}
