/* SPDX-License-Identifier: Apache-2.0 */
/* What decoded tensors lost, as text and as JSON. */
#include "report/checkpoints/remarks.h"

static void put_count(struct tsr_text *out, bool *any, uint64_t n, const char *one,
		      const char *many)
{
	if (!n)
		return;
	tsr_text_printf(out, "%s%" PRIu64 " %s", *any ? ", " : "become zero: ", n,
			n == 1 ? one : many);
	*any = true;
}

static void put_unmeasured(struct tsr_text *out, uint64_t n, const char *why)
{
	if (n)
		tsr_text_printf(out, "updates not measured: variances %s: %" PRIu64 "\n", why, n);
}

void tsr_lost_put_text(const struct tsr_lost *l, struct tsr_text *out)
{
	bool any = false;

	put_count(out, &any, l->weights, "weight", "weights");
	put_count(out, &any, l->momenta, "momentum", "momenta");
	put_count(out, &any, l->variances, "variance", "variances");
	if (l->exposed)
		tsr_text_printf(out, " (%" PRIu64 " under a momentum that does not)", l->exposed);
	put_count(out, &any, l->others, "other value", "other values");
	tsr_text_puts(out, any ? "\n" : "");
	if (l->signs)
		tsr_text_printf(out, "lose the sign of zero: %s\n",
				tsr_format_number(l->signs, "value").text);
	if (l->nupdates) {
		if (l->eps_differs)
			tsr_text_puts(out, "updates m / (sqrt(v) + eps), eps of each file:\n");
		else
			tsr_text_printf(out, "updates m / (sqrt(v) + %.4g), eps %s:\n",
					(double)l->eps,
					l->eps_known ? "of the checkpoint" : "assumed");
		tsr_text_printf(out, "  largest |u| %.4g, was %.4g; NMSE at most %.1e",
				(double)l->max_after, (double)l->max_before, l->nmse);
		tsr_text_printf(out, l->nmse > 0 ? " in\n  %s\n" : "\n",
				tsr_format_name(l->worst, 76).text);
	}
	if (l->lr > 0)
		tsr_text_printf(out,
				"weights are rounded by at most %.2g steps at lr %.3g, in\n  %s\n",
				l->step, l->lr, tsr_format_name(l->step_worst, 76).text);
	if (l->undefined)
		tsr_text_printf(out, "  %" PRIu64 " updates are not finite and left out\n",
				l->undefined);
	put_unmeasured(out, l->alone, "that go with no momentum here");
	put_unmeasured(out, l->unlike, "with groups unlike those of their momentum");
}

void tsr_lost_put_json(const struct tsr_lost *l, struct tsr_text *json)
{
	tsr_json_open(json, "losses", '{');
	tsr_json_open(json, "zeroed", '{');
	tsr_json_put_u64(json, "weight", l->weights);
	tsr_json_put_u64(json, "momentum", l->momenta);
	tsr_json_put_u64(json, "variance", l->variances);
	tsr_json_put_u64(json, "other", l->others);
	tsr_json_put_u64(json, "variance_under_momentum", l->exposed);
	tsr_json_close(json, '}');
	tsr_json_put_u64(json, "signs_of_zero", l->signs);
	tsr_json_open(json, "updates", '{');
	tsr_json_put_u64(json, "measured", l->nupdates);
	tsr_json_put_u64(json, "not_measured", l->alone + l->unlike);
	tsr_json_put_double(json, "eps", l->eps_differs ? (double)NAN : (double)l->eps);
	tsr_json_put_bool(json, "eps_known", l->eps_known);
	if (l->nupdates) {
		tsr_json_put_double(json, "nmse", l->nmse);
		tsr_json_put_string(json, "grade",
				    tsr_finding_level_name(tsr_update_level(l->nmse)));
		tsr_json_put_u64(json, "bad", l->nbad);
		tsr_json_put_string(json, "worst", l->worst);
		tsr_json_put_double(json, "max_before", (double)l->max_before);
		tsr_json_put_double(json, "max_after", (double)l->max_after);
	}
	tsr_json_close(json, '}');
	if (l->lr > 0) {
		tsr_json_open(json, "weight_steps", '{');
		tsr_json_put_double(json, "lr", l->lr);
		tsr_json_put_double(json, "largest", l->step);
		tsr_json_put_string(json, "tensor", l->step_worst);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, '}');
}

void tsr_moments_put_json(const struct tsr_moments_found *f, struct tsr_text *json)
{
	tsr_json_open(json, "moments", '{');
	tsr_json_put_bool(json, "checked", f->nvariances && f->betas_known);
	tsr_json_put_u64(json, "variances", f->nvariances);
	if (f->betas_known)
		tsr_json_put_doubles(json, "betas", (const double[]){ f->beta1, f->beta2 }, 2);
	else
		tsr_json_put_string(json, "betas", NULL);
	if (!f->steps)
		tsr_json_put_double(json, "bound", f->bound);
	tsr_json_put_u64(json, "violations", f->all.n);
	tsr_json_put_bool(json, "faulty", tsr_moments_faulty(f));
	tsr_json_put_string(json, "tensor", f->all.n ? f->first->name : NULL);
	tsr_json_put_double(json, "element", f->all.n ? (double)f->all.element : (double)NAN);
	tsr_json_put_double(json, f->steps ? "variance_before" : "momentum",
			    f->all.n ? (double)f->all.m : (double)NAN);
	tsr_json_put_double(json, "variance", f->all.n ? (double)f->all.v : (double)NAN);
	tsr_json_close(json, '}');
}

void tsr_update_put(struct tsr_table *t, const struct tsr_update_measured *u)
{
	if (!u->n)
		return;
	TSR_CELL(t, "update.nmse", NULL, u->nmse);
	TSR_CELL(t, "update.max_before", NULL, (double)u->max_before);
	TSR_CELL(t, "update.max_after", NULL, (double)u->max_after);
	TSR_CELL(t, "update.exposed", NULL, u->exposed);
	TSR_CELL(t, "update.nonfinite", NULL, u->nonfinite);
	TSR_CELL(t, "update.overflow", NULL, u->overflow);
}
