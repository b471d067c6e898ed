/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and JSON of the files of a directory. */
#include "cli/operations.h"

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

static void put_file(struct tsr_table *t, const struct tsr_directory_entry *e, const char *lead)
{
	const bool packed = e->as == TSR_STORED_PACKED;

	tsr_row(t);
	TSR_CELL(t, "-state", ":7", e->fault ? lead : "ok");
	TSR_CELL(t, "path", "file:N", e->path);
	TSR_CELL(t, "stored", "stored:9", tsr_stored_as_name(e->as));
	TSR_CELL(t, "nbytes", "before:9B", e->nbytes);
	TSR_CELL(t, "stored_nbytes", "after:9B", e->stored_nbytes);
	if (packed) {
		TSR_CELL(t, "container", NULL, tsr_container_name(e->container));
		TSR_CELL(t, "generation", NULL, e->generation);
	}
	if (packed && e->container == TSR_CONTAINER_DCP)
		TSR_CELL(t, "-with", ":4|", "with the *.distcp files beside it");
	TSR_CELL(t, "reason", ":4|", e->reason);
	TSR_CELL(t, "fault", ":8|", e->fault);
	if (lead ? !e->fault : e->as == TSR_STORED_DIRECTORY)
		tsr_put_aside(t, lead ? TSR_TO_TEXT : TSR_TO_TEXT | TSR_TO_VERBOSE);
}

static void report(struct tsr_report *r, const struct tsr_directory *d, struct tsr_summary *totals,
		   const char *shown, const char *lead)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(d);
	const struct tsr_directory_entry *e;
	struct tsr_table t = { 0 };

	tsr_json_put_u64(&r->json, "packed", sizes.npacked);
	tsr_json_put_u64(&r->json, "copied", sizes.ncopied);
	tsr_json_put_u64(&r->json, "directories", sizes.ndirectories);
	tsr_json_put_u64(&r->json, "nbytes", sizes.nbytes);
	tsr_json_put_u64(&r->json, "stored_nbytes", sizes.stored_nbytes);
	tsr_json_put_u64(&r->json, "faults", tsr_directory_nfaults(d));
	if (totals)
		tsr_summary_put_json(totals, &r->json);
	for (size_t i = 0; (e = tsr_directory_entry(d, i)); i++)
		put_file(&t, e, lead);
	tsr_report_rows(r, t, "files", shown);
}

void cli_report_files(struct tsr_report *r, const struct tsr_directory *d,
		      struct tsr_summary *totals, const char *shown)
{
	report(r, d, totals, shown, NULL);
}

void cli_report_faults(struct tsr_report *r, const struct tsr_directory *d, const char *lead)
{
	report(r, d, NULL, lead ? "-state,path,fault" : NULL, lead);
}
