/* SPDX-License-Identifier: Apache-2.0 */
/* A momentum of Muon as a matrix: how far coding it moves the update that is made orthogonal from it. */
#include "pack/outcome/muon_matrix.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/read.h"
#include "codec/measuring.h"
#include "codec/narrow.h"
#include "step/orthogonal.h"

/* Elements of a matrix: a larger one takes minutes. */
#define MATRIX_MAX (UINT64_C(1) << 22)

static bool is_muon(const struct tsr_tensor *t)
{
	return t->orthogonal && t->kind == TSR_KIND_MOMENTUM && t->rank >= 2 && t->numel &&
	       t->numel <= MATRIX_MAX;
}

void tsr_muon_choose(const struct tsr_tensor *tensors, size_t n, double cost, double times,
		     bool *ret)
{
	size_t seen = 0, every;
	double all = 0;

	for (size_t i = 0; i < n; i++) {
		const struct tsr_tensor *t = &tensors[i];

		if (is_muon(t))
			all += times * tsr_orthogonal_cost((double)t->shape[0],
							   (double)(t->numel / t->shape[0]));
	}
	every = (size_t)(all / cost) + 1;
	for (size_t i = 0; i < n; i++)
		ret[i] = is_muon(&tensors[i]) && seen++ % every == 0;
}

enum tsr_status tsr_muon_matrix_open(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				     struct tsr_muon_matrix *ret, struct tsr_err *err)
{
	const size_t n = (size_t)t->numel, rows = (size_t)t->shape[0];
	TSR_SCOPED(tsr_muon_matrix_close)
	struct tsr_muon_matrix m = { .tensor = t, .n = n, .rows = rows };

	m.block = malloc(((3 + TSR_PLANES_MAX) * n + tsr_orthogonal_work(rows, n / rows)) *
			 sizeof(float));
	if (!m.block)
		return tsr_fail_nomem(err, t->name);
	m.momentum = m.block;
	m.before = m.momentum + n;
	m.after = m.before + n;
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		m.plane[i] = m.after + (1 + (size_t)i) * n;
	m.work = m.after + (1 + TSR_PLANES_MAX) * n;
	for (size_t first = 0, size; first < n; first += size) {
		size = n - first < TSR_READ_MAX ? n - first : TSR_READ_MAX;
		TSR_TRY(tsr_tensor_read_plain(c, t, first, size, m.after, m.momentum + first, err));
	}
	memcpy(m.before, m.momentum, n * sizeof(float));
	tsr_orthogonalize(m.before, rows, n / rows, m.work);
	*ret = m;
	m.block = NULL;
	return TSR_OK;
}

void tsr_muon_matrix_close(struct tsr_muon_matrix *m)
{
	free(m->block);
}

void tsr_muon_matrix_compare(struct tsr_muon_matrix *m, struct tsr_update_measure *ret)
{
	*ret = (struct tsr_update_measure){ 0 };
	tsr_orthogonalize(m->after, m->rows, m->n / m->rows, m->work);
	tsr_orthogonal_measure_add(ret, m->before, m->after, m->n);
}

void tsr_muon_matrix_measure(struct tsr_muon_matrix *m, const struct tsr_coding *coding,
			     struct tsr_update_measure *ret)
{
	struct tsr_encode_report ignored = { 0 };
	float *rest = m->momentum;

	*ret = (struct tsr_update_measure){ 0 };
	if (!coding) {
		tsr_orthogonal_measure_add(ret, m->before, m->before, m->n);
		return;
	}
	if (coding->codec->rank) {
		rest = m->plane[TSR_PLANES_MAX - 1];
		/* Nothing is read, as @coding has factors, so it cannot fail. */
		(void)tsr_tensor_products(NULL, m->tensor, coding, 0, m->n, m->work, NULL);
		memcpy(rest, m->momentum, m->n * sizeof(*rest));
		tsr_ratios_make(coding, rest, m->work, m->n);
	}
	coding->codec->encode(coding, rest, m->n, m->plane, &ignored);
	coding->codec->decode(coding, (const void *const *)m->plane, m->n, m->after);
	if (coding->codec->rank)
		tsr_ratios_undo(coding, m->after, m->work, m->n);
	tsr_round_to(m->tensor->dtype, m->after, m->n);
	tsr_muon_matrix_compare(m, ret);
}

static enum tsr_status measure_one(const struct tsr_checkpoint *stored, size_t i,
				   const struct tsr_coding *coding, struct tsr_update_measured *ret,
				   struct tsr_err *err)
{
	struct tsr_update_measure u;
	TSR_SCOPED(tsr_muon_matrix_close) struct tsr_muon_matrix m = { .n = 0 };

	if (!coding->codec || stored->tensors[i].coding.codec)
		return TSR_OK;
	TSR_TRY(tsr_muon_matrix_open(stored, &stored->tensors[i], &m, err));
	tsr_muon_matrix_measure(&m, coding, &u);
	*ret = tsr_update_measure_result(&u);
	return TSR_OK;
}

enum tsr_status tsr_muon_measure_all(const struct tsr_checkpoint *stored,
				     const struct tsr_checkpoint *wanted, const bool *skip,
				     struct tsr_packed_tensor *results, struct tsr_err *err)
{
	TSR_OWNED(free) bool *chosen = NULL;

	TSR_TRY(TSR_NEW(&chosen, wanted->ntensors + 1, err, stored->path));
	tsr_muon_choose(wanted->tensors, wanted->ntensors, TSR_MUON_COST, 2, chosen);
	for (size_t i = 0; i < wanted->ntensors; i++) {
		if (chosen[i] && !(skip && skip[i]))
			TSR_TRY(measure_one(stored, i, &wanted->tensors[i].coding,
					    &results[i].update, err));
	}
	return TSR_OK;
}
