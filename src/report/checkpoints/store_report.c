/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a store and its snapshots. */
#include "report/checkpoints/store_report.h"

/* An error of a snapshot, "-" if it has none. */
static double error_of(double e)
{
	return e < 0 ? NAN : e;
}

static void put_snapshot(struct tsr_table *t, const struct tsr_snapshot_info *i)
{
	tsr_row(t);
	TSR_CELL(t, "step", "step", i->step);
	TSR_CELL(t, "name", "name:n", i->name);
	TSR_CELL(t, "tier", "tier", tsr_keep(t, i->tier.name));
	TSR_CELL(t, "alone_nbytes", "alone:B", (double)i->alone_nbytes);
	TSR_CELL(t, "shared_nbytes", "shared:B", (double)i->shared_nbytes);
	TSR_CELL(t, "nbytes", "of:B", (double)i->nbytes);
	TSR_CELL(t, "errors.weight", "weights\n/ moved:.1e", error_of(i->errors.weight));
	TSR_CELL(t, "errors.weight_ulps", "BF16\nULPs:.2g", error_of(i->errors.weight_ulps));
	TSR_CELL(t, "errors.update", "update\nNMSE:.1e", error_of(i->errors.update));
	TSR_CELL(t, "errors.variance", "root v\nNMSE:.1e", error_of(i->errors.variance));
	TSR_CELL(t, "depth", NULL, (uint64_t)i->depth);
	TSR_CELL(t, "nfiles", NULL, i->nfiles);
	TSR_CELL(t, "nparameters", NULL, i->nparameters);
}

#define ERROR_COLUMNS "errors.weight,errors.weight_ulps,errors.update,errors.variance"
#define SNAPSHOT_COLUMNS "step,name,tier,alone_nbytes,shared_nbytes," ERROR_COLUMNS

/* A snapshot by itself: the errors of its training state, if it lost anything of one. */
static void report_snapshot(struct tsr_report *r, const struct tsr_snapshot_info *i)
{
	struct tsr_table t = { 0 };

	put_snapshot(&t, i);
	if (i->tier.as != TSR_STORE_LOSSLESS && i->errors.weight_ulps >= 0)
		tsr_report_lines(r, &t, ERROR_COLUMNS);
	tsr_table_end_members(t, &r->json);
}

void tsr_store_added_report(const char *store, const struct tsr_store_added *added,
			    struct tsr_report *r)
{
	const struct tsr_snapshot_info *i = &added->info;

	tsr_report_say(r, TSR_TO_TEXT, "%s: step %" PRIu64 ", tier %s: %s, %s in %s", store,
		       i->step, i->tier.name, tsr_format_number(i->nfiles, "file").text,
		       tsr_format_bytes((double)i->nbytes).text,
		       tsr_format_bytes((double)added->new_nbytes).text);
	if (i->nparameters)
		tsr_report_say(r, TSR_TO_TEXT,
			       "%.2f bytes per parameter; %s of %s are weights, momenta and "
			       "variances in FP32",
			       (double)added->new_nbytes / (double)i->nparameters,
			       tsr_format_bytes((double)added->nlossy).text,
			       tsr_format_bytes((double)(added->nlossy + added->nother)).text);
	report_snapshot(r, i);
	tsr_json_put_u64(&r->json, "new_nbytes", added->new_nbytes);
	tsr_json_put_u64(&r->json, "state_nbytes", added->nlossy);
	tsr_json_put_u64(&r->json, "other_nbytes", added->nother);
	tsr_json_put_u64(&r->json, "objects", added->nobjects);
	tsr_json_put_string(&r->json, "note", added->has_note ? added->note : NULL);
}

void tsr_store_list_report(const struct tsr_store *s, struct tsr_report *r)
{
	const struct tsr_snapshot_info *info;
	struct tsr_table t = { 0 };
	uint64_t unused;

	for (size_t i = 0; (info = tsr_store_snapshot(s, i)); i++)
		put_snapshot(&t, info);
	tsr_json_put_u64(&r->json, "nbytes", tsr_store_nbytes(s, &unused));
	tsr_json_put_u64(&r->json, "unused_nbytes", unused);
	tsr_report_rows(r, t, "snapshots", SNAPSHOT_COLUMNS);
}

void tsr_store_usage_report(const char *store, const struct tsr_store *s, struct tsr_report *r)
{
	const struct tsr_snapshot_info *info;
	uint64_t unused, held = 0, parameters = 0;
	const uint64_t nbytes = tsr_store_nbytes(s, &unused);
	size_t n = 0;

	for (; (info = tsr_store_snapshot(s, n)); n++) {
		held += info->nbytes;
		parameters += info->nparameters;
	}
	tsr_report_say(r, TSR_TO_TEXT, "%s: %s for %zu snapshots of %s", store,
		       tsr_format_bytes((double)nbytes).text, n,
		       tsr_format_bytes((double)held).text);
	if (parameters)
		tsr_report_say(r, TSR_TO_TEXT, "%.2f bytes per parameter and snapshot",
			       (double)nbytes / (double)parameters);
	if (unused)
		tsr_report_say(r, TSR_TO_TEXT,
			       "%s are needed by no snapshot; store thin removes them",
			       tsr_format_bytes((double)unused).text);
	tsr_json_put_u64(&r->json, "snapshots", n);
	tsr_json_put_u64(&r->json, "nbytes", nbytes);
	tsr_json_put_u64(&r->json, "unused_nbytes", unused);
	tsr_json_put_u64(&r->json, "checkpoint_nbytes", held);
}

void tsr_store_written_report(const struct tsr_snapshot_info *info, struct tsr_report *r)
{
	tsr_report_say(r, TSR_TO_TEXT, "%s: step %" PRIu64 ", tier %s, %s, %s",
		       tsr_report_output(r, 40).text, info->step, info->tier.name,
		       tsr_format_number(info->nfiles, "file").text,
		       tsr_format_bytes((double)info->nbytes).text);
	tsr_json_put_string(&r->json, "output", r->output);
	report_snapshot(r, info);
}

/* --- Faults --------------------------------------------------------------------------------------- */

void tsr_store_put_fault(void *table, const char *what)
{
	struct tsr_table *t = table;

	tsr_row(t);
	TSR_CELL(t, "fault", NULL, tsr_keep(t, what));
}

void tsr_store_verified_report(const char *store, const struct tsr_store *s,
			       struct tsr_table faults, struct tsr_report *r)
{
	const bool intact = !faults.nrows && !faults.failed;
	size_t n = 0;

	for (size_t i = 0; i < faults.nrows && !faults.failed; i++)
		tsr_report_say(r, TSR_TO_TEXT, "FAULT %s", tsr_field_at(&faults, i, 0)->string);
	while (tsr_store_snapshot(s, n))
		n++;
	tsr_json_put_u64(&r->json, "snapshots", n);
	tsr_json_put_u64(&r->json, "nbytes", tsr_store_nbytes(s, NULL));
	tsr_json_put_bool(&r->json, "intact", intact);
	tsr_table_end_json(faults, "faults", &r->json);
	if (intact)
		tsr_report_say(r, TSR_TO_TEXT, "%s: %zu snapshots, %s: intact", store, n,
			       tsr_format_bytes((double)tsr_store_nbytes(s, NULL)).text);
}

/* --- Differences, and what is thinned --------------------------------------------------------------- */

void tsr_store_put_difference(void *table, const struct tsr_store_difference *d)
{
	struct tsr_table *t = table;

	tsr_row(t);
	TSR_CELL(t, "name", "tensor:n", tsr_keep(t, d->name));
	TSR_CELL(t, "elements", "elements:,", d->nelements);
	TSR_CELL(t, "different", "different:,", d->nother);
	TSR_CELL(t, "moved", "moved\nrms:.2e", d->moved);
	TSR_CELL(t, "relative", "of its\nrms:.2e", d->rms > 0 ? d->moved / d->rms : NAN);
}

void tsr_store_compared_report(const struct tsr_store_compared *c, struct tsr_table t,
			       struct tsr_report *r)
{
	tsr_report_rows(r, t, "tensors", "name,elements,different,moved,relative");
	tsr_report_say(r, TSR_TO_TEXT,
		       "%" PRIu64 " of %" PRIu64 " tensors of training state differ; %" PRIu64
		       " of %" PRIu64 " files differ beside them; %" PRIu64 " are in one only",
		       c->nother, c->ntensors, c->nother_files, c->nfiles, c->nonly);
	tsr_json_put_u64(&r->json, "compared", c->ntensors);
	tsr_json_put_u64(&r->json, "different", c->nother);
	tsr_json_put_u64(&r->json, "files", c->nfiles);
	tsr_json_put_u64(&r->json, "different_files", c->nother_files);
	tsr_json_put_u64(&r->json, "in_one_only", c->nonly);
	r->differs = c->nother || c->nother_files || c->nonly;
}

void tsr_store_put_change(void *table, const struct tsr_snapshot_info *before,
			  enum tsr_store_change change, const struct tsr_store_tier *tier)
{
	static const char *const words[] = { "keep", "store coarser", "drop" };
	struct tsr_table *t = table;

	tsr_row(t);
	TSR_CELL(t, "step", "step", before->step);
	TSR_CELL(t, "name", "name:n", tsr_keep(t, before->name));
	TSR_CELL(t, "from", "tier", tsr_keep(t, before->tier.name));
	TSR_CELL(t, "change", "change", words[change]);
	TSR_CELL(t, "to", "to", change == TSR_STORE_DROPPED ? "-" : tsr_keep(t, tier->name));
	TSR_CELL(t, "alone_nbytes", "alone:B", (double)before->alone_nbytes);
}

void tsr_store_thinned_report(const char *store, const struct tsr_store *s, struct tsr_table t,
			      uint64_t freed, struct tsr_report *r)
{
	tsr_report_rows(r, t, "snapshots", "step,name,from,change,to,alone_nbytes");
	if (r->dry_run)
		tsr_report_say(r, TSR_TO_TEXT,
			       "planned: would free at most %s, less what coarser versions take",
			       tsr_format_bytes((double)freed).text);
	else
		tsr_report_say(r, TSR_TO_TEXT, "%s: freed %s, %s are left", store,
			       tsr_format_bytes((double)freed).text,
			       tsr_format_bytes((double)tsr_store_nbytes(s, NULL)).text);
	tsr_json_put_bool(&r->json, "dry_run", r->dry_run);
	tsr_json_put_u64(&r->json, "freed_nbytes", freed);
}
