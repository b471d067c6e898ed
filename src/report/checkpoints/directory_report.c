/* SPDX-License-Identifier: Apache-2.0 */
/* What commands say of a directory that is packed file by file. */
#include "report/checkpoints/directory_report.h"

#include "container/containers.h"
#include "io/file.h"

#define FAULT_COLUMNS "-state,path,fault"

struct tsr_directory_sizes tsr_directory_sizes(const struct tsr_directory *d)
{
	struct tsr_directory_sizes sizes = { .stored_nbytes = tsr_directory_index_nbytes(d) };
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

/*
 * The members that count files, "totals" and "by_kind" unless @totals is NULL, and "files"; in text the
 * columns @shown of the files, NULL: none.  @lead: lines are about faults, and say so; with -v of all files.
 */
static void put_files(struct tsr_report *r, const struct tsr_directory *d,
		      const struct tsr_summary *totals, const char *shown, const char *lead)
{
	const struct tsr_directory_sizes sizes = tsr_directory_sizes(d);
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

/* The table of files, and that of the tensors in them. */
static void put_tables(const struct tsr_directory_found *f, struct tsr_report *r)
{
	put_files(r, f->d, &f->summary, "path,stored,nbytes,stored_nbytes,-with,reason", NULL);
	tsr_report_gap(r);
	if (!f->summary.nrows)
		return;
	tsr_summary_put_table(&f->summary, r);
	tsr_summary_put_remarks(&f->summary, &r->text);
	tsr_report_gap(r);
}

/* How many files are deltas. */
static void put_deltas(const struct tsr_directory_found *f, struct tsr_report *r)
{
	const size_t npacked = tsr_directory_sizes(f->d).npacked;

	if (!f->delta || r->dry_run || !f->done)
		return;
	tsr_json_open(&r->json, "delta", '{');
	tsr_json_put_string(&r->json, "base", f->delta);
	tsr_json_put_u64(&r->json, "files", f->ndeltas);
	tsr_json_close(&r->json, '}');
	tsr_text_printf(&r->text, "delta to %s: %zu of %zu packed files differ from theirs\n",
			tsr_format_name(f->delta, 40).text, f->ndeltas, npacked);
}

void tsr_packed_directory_report(const struct tsr_directory_found *f, struct tsr_report *r)
{
	const struct tsr_directory_sizes sizes = tsr_directory_sizes(f->d);

	tsr_report_put_output(r);
	tsr_lost_put_json(&f->summary.lost, &r->json);
	tsr_choices_put_json(&f->summary.choices, &r->json);
	put_tables(f, r);
	tsr_text_printf(&r->text, "%s: %zu packed, %zu copied; %s", tsr_report_output(r, 30).text,
			sizes.npacked, sizes.ncopied, tsr_format_bytes((double)sizes.nbytes).text);
	/* Of a plan with coded planes nothing knows the outcome. */
	tsr_text_printf(
		&r->text, " to %s%s, %.1f%%\n", tsr_format_bytes((double)sizes.stored_nbytes).text,
		!r->dry_run ? ""
		: f->coded  ? " planned before coding"
			    : " planned",
		sizes.nbytes ? 100.0 * (double)sizes.stored_nbytes / (double)sizes.nbytes : 100.0);
	tsr_summary_put_per_parameter(&f->summary, "", "\n", &r->text);
	tsr_summary_put_worst(&f->summary, "largest error", &r->text);
	tsr_lost_put_text(&f->summary.lost, &r->text);
	tsr_choices_put_text(&f->summary.choices, &r->text);
	if (!f->done || sizes.npacked)
		put_deltas(f, r);
}

void tsr_inspected_directory_report(const struct tsr_directory_found *f, struct tsr_report *r)
{
	const struct tsr_directory_sizes sizes = tsr_directory_sizes(f->d);

	tsr_text_printf(&r->text, "%s: packed directory, %zu packed, %zu copied\n\n",
			tsr_format_name(tsr_directory_path(f->d), 30).text, sizes.npacked,
			sizes.ncopied);
	put_tables(f, r);
	tsr_text_printf(&r->text, "%s to %s", tsr_format_bytes((double)sizes.nbytes).text,
			tsr_format_bytes((double)sizes.stored_nbytes).text);
	tsr_summary_put_per_parameter(&f->summary, ", ", "", &r->text);
	tsr_text_puts(&r->text, "\n");
}

/* "OUT: 3 files unpacked, 2 copied" */
static void put_count(const struct tsr_directory_found *f, const char *what, struct tsr_report *r)
{
	const struct tsr_directory_sizes sizes = tsr_directory_sizes(f->d);

	tsr_text_printf(&r->text, "%s: %s %s, %zu copied", tsr_report_output(r, 40).text,
			tsr_format_number(sizes.npacked, "file").text, what, sizes.ncopied);
}

void tsr_unpacked_directory_report(const struct tsr_directory_found *f, struct tsr_report *r)
{
	tsr_report_put_output(r);
	put_files(r, f->d, NULL, r->verbose ? "path,stored,nbytes" : NULL, NULL);
	put_count(f, "unpacked", r);
	tsr_text_printf(&r->text, ", %s%s\n",
			tsr_format_bytes((double)tsr_directory_sizes(f->d).nbytes).text,
			r->dry_run ? " planned" : "");
	tsr_summary_put_worst(&f->summary, "  largest error when it was packed", &r->text);
}

void tsr_recoded_directory_report(const struct tsr_directory_found *f, struct tsr_report *r)
{
	tsr_report_put_output(r);
	tsr_json_put_u64(&r->json, "gradients", f->elements);
	put_files(r, f->d, NULL, r->verbose ? "path,stored,stored_nbytes,reason" : NULL, NULL);
	put_count(f, f->coded ? "coded" : "plain", r);
	tsr_text_printf(&r->text, "; %s%s\n",
			tsr_format_bytes((double)tsr_directory_sizes(f->d).stored_nbytes).text,
			r->dry_run ? " planned before coding" : "");
	if (f->elements)
		tsr_text_printf(&r->text, "%.3f bytes per element of the gradients, %.3f before\n",
				(double)f->after / (double)f->elements,
				(double)f->before / (double)f->elements);
	put_deltas(f, r);
}

void tsr_verified_directory_report(const struct tsr_directory_found *f, struct tsr_report *r)
{
	const struct tsr_directory_sizes sizes = tsr_directory_sizes(f->d);
	const char *remark = tsr_directory_remark(f->d);
	const size_t nfaults = tsr_directory_nfaults(f->d);

	tsr_json_put_string(&r->json, "remark", tsr_directory_remark(f->d));
	if (f->against)
		tsr_lost_put_json(&f->summary.lost, &r->json);
	if (remark)
		tsr_text_printf(&r->text, "%s\n", remark);
	put_files(r, f->d, NULL, remark && !r->verbose ? NULL : FAULT_COLUMNS, "FAULT");
	tsr_text_printf(&r->text, "%s: %s and %zu cop%s, %s read\n",
			tsr_format_name(tsr_directory_path(f->d), 40).text,
			tsr_format_number(sizes.npacked, "packed file").text, sizes.ncopied,
			sizes.ncopied == 1 ? "y" : "ies",
			tsr_format_bytes((double)sizes.stored_nbytes).text);
	if (nfaults)
		tsr_text_printf(&r->text, "  %zu at fault\n", nfaults);
	else
		tsr_text_puts(&r->text,
			      "  every file is there and has the hashes that were recorded\n");
	if (f->against && !nfaults)
		tsr_text_puts(&r->text, "  copies and raw tensors equal the original's, errors are "
					"as recorded\n");
	if (f->against)
		tsr_lost_put_text(&f->summary.lost, &r->text);
}

void tsr_other_files_report(const struct tsr_directory *d, struct tsr_report *r)
{
	const size_t n = tsr_directory_sizes(d).ncopied, nfaults = tsr_directory_nfaults(d);

	put_files(r, d, NULL, FAULT_COLUMNS, "differs");
	if (n || nfaults)
		tsr_text_printf(&r->text, "%s compared: %zu differ\n",
				tsr_format_number(n, "other file").text, nfaults);
}

void tsr_compared_directory_report(const struct tsr_directory_found *f, struct tsr_report *r)
{
	const struct tsr_directory_sizes sizes = tsr_directory_sizes(f->d);
	const size_t n = sizes.npacked + sizes.ncopied, nfaults = tsr_directory_nfaults(f->d);

	tsr_json_put_string(&r->json, "remark", tsr_directory_remark(f->d));
	tsr_text_puts(&r->text, f->lines.bytes ? f->lines.bytes : "");
	put_files(r, f->d, NULL, FAULT_COLUMNS, "differs");
	tsr_text_printf(&r->text, "%s compared: %zu differ\n", tsr_format_number(n, "file").text,
			nfaults);
	r->differs = nfaults;
}

/* --- Nothing packed -------------------------------------------------------------------------------- */

void tsr_nothing_packed_put_why(const struct tsr_kept_raw *kept, const struct tsr_directory *d,
				struct tsr_text *out)
{
	const char *root = d ? tsr_directory_path(d) : NULL;
	const struct tsr_directory_entry *e, *largest = NULL; /* of the files with a reason */
	struct tsr_err err = { 0 };
	/* The directory, or one in it, may be a checkpoint of a program that is known, but not read. */
	bool foreign = d && tsr_foreign_refuse_directory(root, &err) != TSR_OK;

	for (size_t i = 0; d && (e = tsr_directory_entry(d, i)); i++) {
		char *path = foreign || e->as != TSR_STORED_DIRECTORY
				     ? NULL
				     : tsr_path_join(root, e->path);

		foreign = foreign || (path && tsr_foreign_refuse_directory(path, &err) != TSR_OK);
		free(path);
		if (e->reason && (!largest || e->nbytes > largest->nbytes))
			largest = e;
	}
	if (foreign)
		tsr_text_puts(out, err.msg);
	else if (!d ||
		 (kept->nbytes && !kept->packed_nbytes && largest->nbytes / 2 <= kept->nbytes))
		tsr_kept_raw_put_why(kept, out);
	else if (largest)
		tsr_text_printf(out, "%s: %s%s", largest->path, largest->reason,
				kept->packed_nbytes ? "; --entropy makes more files smaller" : "");
	else
		tsr_text_puts(out, "no file in it holds tensors that tersor reads");
}
