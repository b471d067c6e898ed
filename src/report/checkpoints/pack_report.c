/* SPDX-License-Identifier: Apache-2.0 */
/* What pack, unpack, convert, apply and recoding say of what they wrote. */
#include "report/checkpoints/checkpoint_reports.h"

/* --- Planes that are coded, and deltas --------------------------------------------------------- */

/* A line: what coding gains, or in a dry run that it is not known. */
static void put_coded(struct tsr_text *out, uint64_t nbytes, uint64_t plain_nbytes, bool dry_run)
{
	if (dry_run)
		tsr_text_puts(out, "entropy coding: makes it smaller, by how much shows when it is "
				   "done\n");
	else
		tsr_text_printf(out, "entropy coding: %s before, %.1f%% of that\n",
				tsr_format_bytes((double)plain_nbytes).text,
				plain_nbytes ? 100.0 * (double)nbytes / (double)plain_nbytes
					     : 100.0);
}

/* What a delta's planes became, with -v each of them, and the member "delta"; nothing without one. */
static void put_delta(struct tsr_report *r, const struct tsr_checkpoint *source,
		      const struct tsr_written_delta *d)
{
	uint64_t nbytes[2] = { 0 };
	struct tsr_table t = { 0 };
	size_t n[2] = { 0 };

	if (!d->base.name)
		return;
	for (size_t i = 0; i < source->ntensors * TSR_PLANES_MAX; i++) {
		const struct tsr_written_plane *w = &d->planes[i];
		const struct tsr_tensor *x = &source->tensors[TSR_TAG_TENSOR(i)];
		const unsigned plane = TSR_TAG_PLANE(i);

		if (!w->nbytes)
			continue;
		nbytes[w->differs] += w->nbytes;
		n[w->differs]++;
		tsr_row(&t);
		TSR_CELL(&t, "tensor", NULL, x->name);
		TSR_CELL(&t, "plane", NULL, plane);
		TSR_CELL(&t, "-how", "plane:12", w->differs ? "differs" : "on its own");
		TSR_CELL(&t, "nbytes", "stored:10B", w->nbytes);
		TSR_CELL(&t, "-name", "of",
			 tsr_keepf(&t, "%s%s", tsr_format_name(x->name, 46).text,
				   x->coding.codec ? x->coding.codec->planes[plane].suffix : ""));
		TSR_CELL(&t, "differs", NULL, w->differs);
	}
	tsr_json_open(&r->json, "delta", '{');
	tsr_json_put_string(&r->json, "base", d->base.name);
	tsr_json_put_u64(&r->json, "depth", d->base.depth);
	tsr_report_rows(r, t, "planes", r->verbose ? "-how,nbytes,-name" : NULL);
	tsr_json_close(&r->json, '}');
	tsr_text_printf(&r->text, "delta to %s, number %u of its chain: %zu planes differ, %s",
			tsr_format_name(d->base.name, 40).text, d->base.depth, n[1],
			tsr_format_bytes((double)nbytes[1]).text);
	tsr_text_printf(&r->text, "; %zu stand on their own, %s\n", n[0],
			tsr_format_bytes((double)nbytes[0]).text);
}

/* --- Packed ------------------------------------------------------------------------------------ */

/* The size of the output, and what it is made of. */
static void put_size(struct tsr_report *r, const struct tsr_packing *p, const struct tsr_summary *s,
		     bool written, bool coded)
{
	const uint64_t out = p->header_nbytes + p->data_nbytes;

	tsr_text_printf(&r->text, "\n%s: %s%s, %.1f%% of the input's data",
			tsr_report_output(r, 40).text, tsr_format_bytes((double)out).text,
			r->dry_run ? " planned"
			: written  ? ""
				   : " not written",
			p->source_nbytes ? 100.0 * (double)out / (double)p->source_nbytes : 100.0);
	tsr_summary_put_per_parameter(s, ", ", "", &r->text);
	tsr_text_puts(&r->text, "\n");
	if (coded)
		put_coded(&r->text, out, p->plain_nbytes, r->dry_run);
	tsr_report_put_output(r);
	tsr_json_put_bool(&r->json, "written", written);
	tsr_json_put_u64(&r->json, "generation", p->generation);
	tsr_json_put_u64(&r->json, "header_nbytes", p->header_nbytes);
	tsr_json_put_u64(&r->json, "data_nbytes", p->data_nbytes);
	tsr_json_put_u64(&r->json, "plain_nbytes", p->plain_nbytes);
	put_delta(r, p->source, &p->delta);
}

void tsr_packing_report(const struct tsr_packing *p, const struct tsr_pack_options *o, bool model,
			bool written, struct tsr_report *r)
{
	struct tsr_summary s = { 0 };
	struct tsr_kept_raw kept = { 0 };
	struct tsr_table t = { 0 };
	char reason[120];

	tsr_summary_add_packing(&s, p);
	tsr_kept_raw_add(&kept, p);
	for (size_t i = 0; (r->wants_json || r->verbose) && i < p->source->ntensors; i++) {
		const struct tsr_tensor *x = &p->source->tensors[i];
		const struct tsr_packed_tensor *as = &p->tensors[i];

		tsr_tensor_put(&t, x);
		TSR_CELL(&t, "stored_nbytes", NULL, as->nbytes);
		tsr_raw_reason_text(as, reason, sizeof(reason));
		TSR_CELL(&t, "raw_reason", NULL,
			 as->raw != TSR_RAW_NO ? tsr_keep(&t, reason) : NULL);
		if (x->coding.codec && as->measure.n) {
			TSR_CELL(&t, "scale_underflow", NULL, as->report.scale_underflow);
			tsr_measured_put(&t, &as->measure);
		}
		tsr_update_put(&t, &as->update);
		if (as->weight_step >= 0 && p->lr > 0)
			TSR_CELL(&t, "weight_step", NULL, as->weight_step);
		tsr_choice_put(&t, as->choice, &x->coding);
	}
	if (r->verbose) {
		tsr_report_lines(
			r, &t, "name,shape,-coding,error.nmse,-weight,-quantized,-narrow,-choice");
		tsr_report_gap(r);
	}
	tsr_summary_put_table(&s, r);
	put_size(r, p, &s, written, o->coded != TSR_CODED_NONE);
	tsr_summary_put_worst(&s, "largest error", &r->text);
	tsr_lost_put_text(&s.lost, &r->text);
	tsr_choices_put_text(&s.choices, &r->text);
	tsr_summary_put_remarks(&s, &r->text);
	if (!model)
		tsr_kept_raw_put_text(&kept, &r->text);
	tsr_summary_put_json(&s, &r->json);
	tsr_lost_put_json(&s.lost, &r->json);
	tsr_moments_put_json(&p->moments, &r->json);
	tsr_choices_put_json(&s.choices, &r->json);
	tsr_kept_raw_put_json(&kept, &r->json);
	tsr_report_rows(r, t, "tensors", NULL);
}

/* --- Written again ----------------------------------------------------------------------------- */

void tsr_recoding_report(struct tsr_report *r, const struct tsr_unpacking *u)
{
	uint64_t parameters = 0, before = 0;

	/* Elements of the weights: what bytes per parameter are relative to. */
	for (size_t i = 0; i < u->source->ntensors; i++) {
		const struct tsr_tensor *t = &u->source->tensors[i];

		parameters += t->kind == TSR_KIND_WEIGHT ? t->numel : 0;
	}
	for (unsigned i = 0; i < u->source->nfiles; i++)
		before += tsr_file_size(u->source->files[i]);
	tsr_report_put_output(r);
	tsr_json_put_u64(&r->json, "nbytes", u->nbytes);
	tsr_json_put_u64(&r->json, "plain_nbytes", u->plain_nbytes);
	tsr_json_put_u64(&r->json, "before_nbytes", before);
	tsr_json_put_u64(&r->json, "parameters", parameters);
	tsr_json_put_u64(&r->json, "generation", u->source->generation);
	tsr_text_printf(&r->text, "%s: packed, %zu tensors, %s%s", tsr_report_output(r, 40).text,
			u->source->ntensors, tsr_format_bytes((double)u->nbytes).text,
			r->dry_run ? " planned before coding" : "");
	if (parameters && !r->dry_run)
		tsr_text_printf(&r->text, ", %.3f bytes per parameter, %.3f before",
				(double)u->nbytes / (double)parameters,
				(double)before / (double)parameters);
	tsr_text_puts(&r->text, "\n");
	put_delta(r, u->source, &u->delta);
}

void tsr_unpacking_report(struct tsr_report *r, const struct tsr_unpacking *u)
{
	const unsigned generation = u->source->generation;
	struct tsr_summary summary = { 0 };

	tsr_report_put_output(r);
	tsr_json_put_u64(&r->json, "generation", generation);
	tsr_json_put_u64(&r->json, "nbytes", u->nbytes);
	tsr_text_printf(&r->text, "%s: %zu tensors, %s%s", tsr_report_output(r, 40).text,
			u->source->ntensors, tsr_format_bytes((double)u->nbytes).text,
			r->dry_run ? " planned" : "");
	if (generation)
		tsr_text_printf(&r->text, ", %s",
				tsr_format_number(generation, "lossy generation").text);
	tsr_text_puts(&r->text, "\n");
	tsr_summary_add_all(&summary, u->source);
	tsr_summary_put_worst(&summary, "  largest error when it was packed", &r->text);
}

void tsr_conversion_report(struct tsr_report *r, const struct tsr_unpacking *u)
{
	const char *to = tsr_container_name(u->container);

	tsr_report_put_output(r);
	tsr_json_put_string(&r->json, "from", tsr_container_name(u->source->container));
	tsr_json_put_string(&r->json, "to", to);
	tsr_json_put_u64(&r->json, "nbytes", u->nbytes);
	tsr_json_put_u64(&r->json, "unchecked", u->source->nunchecked);
	tsr_json_put_strings(&r->json, "notes", (const char *const *)u->source->notes,
			     u->source->nnotes);
	tsr_text_printf(&r->text, "%s: %s, %zu tensors, %s%s\n", tsr_report_output(r, 40).text, to,
			u->source->ntensors, tsr_format_bytes((double)u->nbytes).text,
			r->dry_run ? " planned" : "");
}

void tsr_apply_report(struct tsr_report *r, const struct tsr_unpacking *u)
{
	tsr_json_put_string(&r->json, "output", r->output);
	tsr_json_put_bool(&r->json, "in_place", u->source->replaces_base);
	tsr_json_put_bool(&r->json, "dry_run", r->dry_run);
	tsr_json_put_u64(&r->json, "nbytes", u->nbytes);
	tsr_text_printf(&r->text, "%s: %zu tensors, %s%s\n", tsr_report_output(r, 40).text,
			u->source->ntensors, tsr_format_bytes((double)u->nbytes).text,
			r->dry_run ? " planned" : "");
}
