/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of a checkpoint, or of all files of a directory, by kind and codec. */
#include "compare/totals.h"

#include <stdio.h>

#include "ckpt/checkpoint_model.h"
#include "pack/packing.h"

/* Whether it has the largest error so far. */
static bool add(struct tsr_summary_row *r, const struct tsr_tensor *t, uint64_t stored_nbytes,
		double nmse)
{
	r->ntensors++;
	r->nelements += t->numel;
	r->nbytes += tsr_tensor_nbytes(t);
	r->stored_nbytes += stored_nbytes;
	if (!(nmse >= 0) || (r->measured && nmse <= r->worst_nmse))
		return false;
	r->measured = true;
	r->worst_nmse = nmse;
	return true;
}

static void add_tensor(struct tsr_summary *s, const struct tsr_tensor *t, uint64_t stored_nbytes,
		       double nmse)
{
	/* A codec with a table of its own ends with its checkpoint. */
	const struct tsr_codec *codec = t->coding.codec ? tsr_codec_find(t->coding.codec->name)
							: NULL;
	unsigned i = 0;

	while (i < s->nrows && (s->rows[i].kind != t->kind || s->rows[i].coding.codec != codec ||
				s->rows[i].coding.scale != t->coding.scale ||
				s->rows[i].coding.group != t->coding.group))
		i++;
	if (i == s->nrows && s->nrows < TSR_SUMMARY_ROWS_MAX) {
		s->rows[s->nrows] = (struct tsr_summary_row){ .kind = t->kind,
							      .coding = t->coding };
		s->rows[s->nrows++].coding.codec = codec;
	}
	add(&s->rows[i < TSR_SUMMARY_ROWS_MAX ? i : TSR_SUMMARY_ROWS_MAX - 1], t, stored_nbytes,
	    nmse);
	if (add(&s->total, t, stored_nbytes, nmse)) {
		snprintf(s->worst, sizeof(s->worst), "%s", t->name);
		snprintf(s->worst_file, sizeof(s->worst_file), "%s", s->file ? s->file : "");
	}
	if (t->quantized)
		add(&s->quantized, t, stored_nbytes, nmse);
}

void tsr_summary_add_all(struct tsr_summary *s, const struct tsr_checkpoint *c)
{
	const struct tsr_tensor *t;

	for (size_t i = 0; (t = tsr_checkpoint_tensor(c, i)); i++)
		add_tensor(s, t, tsr_tensor_stored_nbytes(c, t),
			   t->error ? t->error->value[TSR_METRIC_NMSE] : -1);
	for (unsigned i = 0; i < c->nfiles; i++)
		s->files_nbytes += tsr_file_size(c->files[i]);
	(void)tsr_copies_add(&s->copies, c, NULL);
}

void tsr_summary_add_packing(struct tsr_summary *s, const struct tsr_packing *p)
{
	const struct tsr_lost lost = tsr_lost_in_packing(p);

	for (size_t i = 0; i < p->source->ntensors; i++) {
		const struct tsr_tensor *t = &p->source->tensors[i];
		const struct tsr_measured *m = &p->tensors[i].measure;
		double nmse = -1;

		if (t->coding.codec && m->n)
			nmse = m->exact == m->n ? 0 : m->nmse;
		add_tensor(s, t, p->tensors[i].nbytes, nmse);
	}
	s->files_nbytes += p->header_nbytes + p->data_nbytes;
	tsr_choices_add(&s->choices, p);
	tsr_lost_merge(&s->lost, &lost);
	(void)tsr_copies_add(&s->copies, p->source, NULL);
}

static uint64_t count_kind(const struct tsr_summary *s, enum tsr_kind kind)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < s->nrows; i++)
		n += s->rows[i].kind == kind ? s->rows[i].nelements : 0;
	return n;
}

uint64_t tsr_summary_parameters(const struct tsr_summary *s)
{
	const uint64_t weights = count_kind(s, TSR_KIND_WEIGHT) - s->copies.nelements;

	return weights ? weights : count_kind(s, TSR_KIND_MOMENTUM);
}

double tsr_summary_bytes_per_parameter(const struct tsr_summary *s)
{
	const uint64_t n = tsr_summary_parameters(s);

	return n ? (double)s->files_nbytes / (double)n : 0;
}
