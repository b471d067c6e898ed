/* SPDX-License-Identifier: Apache-2.0 */
/* What describes a tensor in the tables of reports, and how far its values are from what they were. */
#include "report/checkpoints/remarks.h"

/* What a tensor belongs to: a member, if it belongs to anything, and a line. */
static void put_of(struct tsr_table *t, const char *key, const char *line, const char *what,
		   const char *name)
{
	if (!name)
		return;
	TSR_CELL(t, key, NULL, name);
	TSR_CELL(t, line, ":4|", tsr_keepf(t, "%s %s", what, tsr_format_name(name, 60).text));
}

void tsr_tensor_put(struct tsr_table *t, const struct tsr_tensor *x)
{
	tsr_row(t);
	TSR_CELL(t, "name", "tensor:n", x->name);
	TSR_CELL(t, "kind", "kind", tsr_kind_name(x->kind));
	put_of(t, "weight", "-weight", tsr_keepf(t, "%s of", tsr_kind_name(x->kind)), x->weight);
	put_of(t, "quantized", "-quantized", "of the quantized", x->quantized);
	TSR_CELL(t, "dtype", "dtype", tsr_dtype_name(x->dtype));
	tsr_cell_shape(t, "shape", "shape", x->rank, x->shape);
	tsr_cell_coding(t, &x->coding);
	TSR_CELL(t, "-coding", "stored as", tsr_keep(t, tsr_format_coding(&x->coding).text));
	put_of(t, "narrow", "-narrow", "master of", x->narrow);
	TSR_CELL(t, "nbytes", NULL, tsr_tensor_nbytes(x));
}

static const char *const metric_keys[TSR_METRIC_COUNT] = {
	[TSR_METRIC_MAX_ABS] = "error.abs",   [TSR_METRIC_MAX_ULP] = "error.ulp",
	[TSR_METRIC_MEAN_REL] = "error.rel",  [TSR_METRIC_NMSE] = "error.nmse",
	[TSR_METRIC_COSINE] = "error.cosine",
};

void tsr_errors_put(struct tsr_table *t, const double error[TSR_METRIC_COUNT])
{
	static const char *const shown[TSR_METRIC_COUNT] = {
		[TSR_METRIC_MAX_ABS] = "max abs:9.2e",
		[TSR_METRIC_MAX_ULP] = "max ULP:U",
		[TSR_METRIC_MEAN_REL] = "mean rel:9.2e",
		[TSR_METRIC_NMSE] = "NMSE:7.1e",
	};

	for (unsigned m = 0; m < TSR_METRIC_COUNT; m++)
		TSR_CELL(t, metric_keys[m], shown[m],
			 m == TSR_METRIC_COSINE ? 1 - error[m] : error[m]);
}

void tsr_measured_put(struct tsr_table *t, const struct tsr_measured *m)
{
	double error[TSR_METRIC_COUNT];

	for (enum tsr_metric i = 0; i < TSR_METRIC_COUNT; i++)
		error[i] = tsr_measured_error(m, i);
	tsr_errors_put(t, error);
	TSR_CELL(t, "error.exact", NULL, m->exact);
	TSR_CELL(t, "error.flushed", NULL, m->flushed);
	TSR_CELL(t, "error.sign_lost", NULL, m->sign_lost);
	TSR_CELL(t, "error.overflow", NULL, m->overflow);
	TSR_CELL(t, "error.nonfinite", NULL, m->nonfinite);
}
