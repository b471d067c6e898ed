/* SPDX-License-Identifier: Apache-2.0 */
/* What inspect says of a checkpoint, from its headers. */
#include "report/checkpoints/checkpoint_reports.h"

#include "torch/torch.h"

/* The bytes of all arrays if no plane were entropy coded; 0 if none is. */
static uint64_t plain_nbytes(const struct tsr_checkpoint *c)
{
	uint64_t nbytes = 0;
	bool coded = false;

	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		for (unsigned p = t->narrow ? 1 : 0; p < t->nplanes; p++) {
			nbytes += c->arrays[t->plane[p]].nbytes;
			coded = coded || c->arrays[t->plane[p]].coded;
		}
	}
	return coded ? nbytes : 0;
}

/* What a rank has of tensors that are spread over several. */
static void put_parts(struct tsr_text *out, const struct tsr_checkpoint *c)
{
	struct tsr_text text = { 0 };

	if (!c->nparts)
		return;
	tsr_torch_describe_part(c->part, &text);
	for (size_t i = 0; i < c->ntensors; i++) {
		if (c->tensors[i].plane[0] == c->part->tensor.array)
			tsr_text_printf(out, "%zu of them are one rank's parts: %s is %s\n",
					c->nparts, tsr_format_name(c->tensors[i].name, 60).text,
					text.failed ? "?" : text.bytes);
	}
	tsr_text_free(&text);
}

static void put_head(struct tsr_text *out, const struct tsr_checkpoint *c)
{
	tsr_text_printf(out, "%s: %s%s%s, %zu tensors", tsr_format_name(c->path, 50).text,
			c->packed ? "packed " : "", tsr_container_name(c->container),
			c->coded ? " with compressed states" : "", c->ntensors);
	if (c->generation)
		tsr_text_printf(out, ", %s",
				tsr_format_number(c->generation, "lossy generation").text);
	if (c->weights)
		tsr_text_printf(out, ", weights in %s", tsr_format_name(c->weights, 50).text);
	if (plain_nbytes(c))
		tsr_text_printf(out, ", entropy coded: %s of data before",
				tsr_format_bytes((double)plain_nbytes(c)).text);
	tsr_text_puts(out, "\n");
}

/* The chain of a delta. */
static void put_bases(struct tsr_report *r, const struct tsr_checkpoint *c)
{
	struct tsr_table t = { 0 };

	for (; c->base; c = c->base) {
		tsr_row(&t);
		TSR_CELL(&t, "file", NULL, c->base->path);
		TSR_CELL(&t, "set", NULL, tsr_keepf(&t, "%016" PRIx64, c->base_name.set));
		TSR_CELL(&t, "depth", NULL, c->base_name.depth);
		tsr_text_printf(&r->text, "delta at depth %u to %s\n", c->base_name.depth,
				tsr_format_name(c->base->path, 60).text);
	}
	if (t.nrows)
		tsr_table_put_json(&t, "bases", &r->json);
	tsr_table_free(&t);
}

void tsr_checkpoint_report(const struct tsr_checkpoint *c, struct tsr_report *r)
{
	struct tsr_summary s = { 0 };
	struct tsr_table t = { 0 };

	tsr_summary_add_all(&s, c);
	for (size_t i = 0; (r->wants_json || r->verbose) && i < c->ntensors; i++) {
		const struct tsr_tensor *x = &c->tensors[i];

		tsr_tensor_put(&t, x);
		TSR_CELL(&t, "-form", "stored as",
			 x->coding.codec ? x->coding.codec->name : tsr_dtype_name(x->dtype));
		TSR_CELL(&t, "stored_nbytes", "stored:8B", tsr_tensor_stored_nbytes(c, x));
		if (x->error)
			tsr_errors_put(&t, x->error->value);
	}
	tsr_json_put_string(&r->json, "kind",
			    c->packed ? "packed" : tsr_container_name(c->container));
	tsr_json_put_string(&r->json, "container", tsr_container_name(c->container));
	tsr_json_put_u64(&r->json, "generation", c->generation);
	if (c->nparts)
		tsr_json_put_u64(&r->json, "parts", c->nparts);
	if (c->weights)
		tsr_json_put_string(&r->json, "weights", c->weights);
	if (plain_nbytes(c))
		tsr_json_put_u64(&r->json, "plain_nbytes", plain_nbytes(c));
	put_head(&r->text, c);
	put_bases(r, c);
	put_parts(&r->text, c);
	tsr_report_gap(r);
	tsr_json_open(&r->json, "metadata", '{');
	for (size_t i = 0; i < c->nmeta; i++) {
		tsr_json_put_string(&r->json, c->meta[i].key, c->meta[i].value);
		if (r->verbose)
			tsr_text_printf(&r->text, "  %s = %s\n",
					tsr_format_name(c->meta[i].key, 24).text,
					tsr_format_name(c->meta[i].value, 48).text);
	}
	tsr_json_close(&r->json, '}');
	if (r->verbose) {
		tsr_report_lines(r, &t, "name,kind,-form,shape,stored_nbytes,-quantized");
		tsr_report_gap(r);
	}
	tsr_summary_put_table(&s, r);
	tsr_summary_put_json(&s, &r->json);
	tsr_summary_put_per_parameter(&s, "\n", "\n", &r->text);
	tsr_summary_put_remarks(&s, &r->text);
	tsr_report_rows(r, t, "tensors", NULL);
}
