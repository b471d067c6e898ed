/* SPDX-License-Identifier: Apache-2.0 */
/* What verify says of a file. */
#include "report/checkpoints/checkpoint_reports.h"

/* Tensors at fault that are listed without -v. */
#define FAULTS_SHOWN 5u

/* Rows for all tensors, of which text has those at fault, or with -v all. */
static struct tsr_table list_tensors(const struct tsr_report *r, const struct tsr_verification *v,
				     uint64_t *nfaults_ret)
{
	struct tsr_table t = { 0 };

	*nfaults_ret = 0;
	for (size_t i = 0; i < v->checked->ntensors; i++) {
		const struct tsr_verified_tensor *x = &v->tensors[i];

		*nfaults_ret += x->fault != NULL;
		if (!r->wants_json && !r->verbose && !x->fault)
			continue;
		tsr_tensor_put(&t, &v->checked->tensors[i]);
		TSR_CELL(&t, "-state", ":7", x->fault ? "FAULT" : "ok");
		TSR_CELL(&t, "nonfinite", NULL, x->nonfinite);
		TSR_CELL(&t, "fault", ":8|", x->fault);
		if (v->original && x->measure.n)
			tsr_measured_put(&t, &x->measure);
		tsr_update_put(&t, &x->update);
		tsr_put_aside(&t, !x->fault || *nfaults_ret > FAULTS_SHOWN ? TSR_TO_TEXT : 0);
	}
	return t;
}

/* What was checked of the file as a whole. */
static void put_checks(struct tsr_text *out, const struct tsr_verification *v)
{
	const struct tsr_checkpoint *c = v->checked;
	uint64_t planes = 0, nbytes = 0, nonfinite = 0;

	for (size_t i = 0; i < c->ntensors; i++) {
		planes += c->tensors[i].nplanes;
		nbytes += tsr_tensor_stored_nbytes(c, &c->tensors[i]);
		nonfinite += v->tensors[i].nonfinite;
	}
	tsr_text_printf(out, "%s: %zu tensors, %s read\n", tsr_format_name(c->path, 40).text,
			c->ntensors, tsr_format_bytes((double)nbytes).text);
	if (c->packed)
		tsr_text_printf(out, "  %" PRIu64 " planes have the hash that was recorded\n",
				planes);
	else if (v->nchecksums)
		tsr_text_printf(out, "  %" PRIu64 " records have the CRC-32 that was recorded\n",
				v->nchecksums);
	else
		tsr_text_puts(out, "  no hashes in this format: the data itself cannot be "
				   "checked\n");
	tsr_text_printf(out, "  %" PRIu64 " non-finite values\n", nonfinite);
	if (v->nfaults)
		tsr_text_printf(out, "  %s at fault\n",
				tsr_format_number(v->nfaults, "tensor").text);
	else if (v->original && !v->besides.ndiffering)
		tsr_text_puts(out, "  raw tensors equal the original's, errors are as recorded\n");
}

/* The lines and members that describe one file. */
void tsr_verification_report(const struct tsr_verification *v, const struct tsr_lost *lost,
			     struct tsr_report *r)
{
	const struct tsr_checkpoint *c = v->checked;
	uint64_t nfaults;
	struct tsr_table tensors = list_tensors(r, v, &nfaults);

	tsr_json_put_string(&r->json, "file", c->path);
	tsr_json_put_string(&r->json, "kind",
			    c->packed ? "packed" : tsr_container_name(c->container));
	tsr_json_put_u64(&r->json, "checksums", v->nchecksums);
	tsr_json_put_u64(&r->json, "unchecked", c->nunchecked);
	tsr_json_put_bool(&r->json, "hashes_checked", c->packed);
	tsr_json_put_u64(&r->json, "faults", v->nfaults);
	tsr_moments_put_json(&v->moments, &r->json);
	tsr_report_lines(r, &tensors, "-state,name,fault");
	if (!r->verbose && nfaults > FAULTS_SHOWN)
		tsr_text_printf(&r->text, "FAULT   and %" PRIu64 " more tensors (-v lists all)\n",
				nfaults - FAULTS_SHOWN);
	put_checks(&r->text, v);
	if (v->original) {
		tsr_lost_put_json(lost, &r->json);
		tsr_besides_put_json(&v->besides, &r->json);
		tsr_besides_put_text(&v->besides, r->verbose, &r->text);
		tsr_lost_put_text(lost, &r->text);
	}
	tsr_report_rows(r, tensors, "tensors", NULL);
}
