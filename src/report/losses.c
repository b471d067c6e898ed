/* SPDX-License-Identifier: Apache-2.0 */
/* What decoded tensors lost: values that became zero, signs of zeros, and updates that changed. */
#include "report/losses.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "compare/comparison.h"
#include "pack/packing.h"
#include "report/format.h"
#include "text/json.h"

static void add_zeroed(struct tsr_losses *l, enum tsr_kind kind, uint64_t n)
{
	switch (kind) {
	case TSR_KIND_WEIGHT:
		l->weights += n;
		break;
	case TSR_KIND_MOMENTUM:
		l->momenta += n;
		break;
	case TSR_KIND_VARIANCE:
		l->variances += n;
		break;
	case TSR_KIND_OTHER:
		l->others += n;
		break;
	}
}

static void add_update(struct tsr_losses *l, const char *name, const struct tsr_update_measured *u)
{
	const double nmse = u->nmse;

	/* Written so that NaN is the largest. */
	if (!l->nupdates || !(nmse <= l->nmse)) {
		snprintf(l->worst, sizeof(l->worst), "%s", name);
		l->nmse = nmse;
	}
	l->nupdates++;
	l->exposed += u->exposed;
	l->undefined += u->nonfinite;
	l->max_before = u->max_before > l->max_before ? u->max_before : l->max_before;
	l->max_after = u->max_after > l->max_after ? u->max_after : l->max_after;
}

/* Add a tensor; @m: NULL if it is stored as it is; @u: as in struct tsr_packed_tensor. */
static void add(struct tsr_losses *l, const struct tsr_tensor *t, const struct tsr_measured *m,
		const struct tsr_update_measured *u)
{
	if (m) {
		add_zeroed(l, t->kind, m->flushed);
		l->signs += m->sign_lost;
	}
	if (u->n)
		add_update(l, t->name, u);
	else if (m && t->kind == TSR_KIND_VARIANCE && m->exact != m->n)
		*(t->partner ? &l->unlike : &l->alone) += 1;
}

struct tsr_losses tsr_losses_of_packing(const struct tsr_packing *p)
{
	struct tsr_losses l = { .eps = p->eps, .eps_known = p->eps_known };

	for (size_t i = 0; i < p->source->ntensors; i++) {
		const struct tsr_tensor *t = &p->source->tensors[i];

		add(&l, t, t->coding.codec ? &p->tensors[i].measure : NULL, &p->tensors[i].update);
	}
	return l;
}

struct tsr_losses tsr_losses_of_verification(const struct tsr_verification *v)
{
	struct tsr_losses l = { .eps = v->eps, .eps_known = v->eps_known };

	for (size_t i = 0; i < v->checked->ntensors; i++) {
		const struct tsr_tensor *t = &v->checked->tensors[i];

		add(&l, t, t->coding.codec ? &v->tensors[i].measure : NULL, &v->tensors[i].update);
	}
	return l;
}

/* An eps counts where updates were measured with it. */
static void merge_eps(struct tsr_losses *into, const struct tsr_losses *from)
{
	if (!into->nupdates) {
		into->eps = from->eps;
		into->eps_known = from->eps_known;
		into->eps_differs = from->eps_differs;
	} else if (from->nupdates) {
		into->eps_differs |= from->eps_differs || from->eps != into->eps ||
				     from->eps_known != into->eps_known;
	}
}

void tsr_losses_merge(struct tsr_losses *into, const struct tsr_losses *from)
{
	merge_eps(into, from);
	if (from->nupdates && (!into->nupdates || !(from->nmse <= into->nmse))) {
		memcpy(into->worst, from->worst, sizeof(into->worst));
		into->nmse = from->nmse;
	}
	into->weights += from->weights;
	into->momenta += from->momenta;
	into->variances += from->variances;
	into->others += from->others;
	into->exposed += from->exposed;
	into->signs += from->signs;
	into->nupdates += from->nupdates;
	into->alone += from->alone;
	into->unlike += from->unlike;
	into->undefined += from->undefined;
	into->max_before = from->max_before > into->max_before ? from->max_before
							       : into->max_before;
	into->max_after = from->max_after > into->max_after ? from->max_after : into->max_after;
}

static void put_count(struct tsr_text *out, bool *any, uint64_t n, const char *one,
		      const char *many)
{
	if (!n)
		return;
	tsr_text_printf(out, "%s%" PRIu64 " %s", *any ? ", " : "become zero: ", n,
			n == 1 ? one : many);
	*any = true;
}

static void put_zeroed(const struct tsr_losses *l, struct tsr_text *out)
{
	bool any = false;

	put_count(out, &any, l->weights, "weight", "weights");
	put_count(out, &any, l->momenta, "momentum", "momenta");
	put_count(out, &any, l->variances, "variance", "variances");
	if (l->exposed)
		tsr_text_printf(out, " (%" PRIu64 " under a momentum that does not)", l->exposed);
	put_count(out, &any, l->others, "other value", "other values");
	tsr_text_puts(out, any ? "\n" : "");
}

static void put_unmeasured(struct tsr_text *out, uint64_t n, const char *why)
{
	if (n)
		tsr_text_printf(out, "updates not measured: variances %s: %" PRIu64 "\n", why, n);
}

void tsr_losses_put_text(const struct tsr_losses *l, struct tsr_text *out)
{
	put_zeroed(l, out);
	if (l->signs)
		tsr_text_printf(out, "lose the sign of zero: %" PRIu64 " value%s\n", l->signs,
				l->signs == 1 ? "" : "s");
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
	if (l->undefined)
		tsr_text_printf(out, "  %" PRIu64 " updates are not finite and left out\n",
				l->undefined);
	put_unmeasured(out, l->alone, "that go with no momentum here");
	put_unmeasured(out, l->unlike, "with groups unlike those of their momentum");
}

void tsr_losses_put_json(const struct tsr_losses *l, struct tsr_text *json)
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
		tsr_json_put_string(json, "worst", l->worst);
		tsr_json_put_double(json, "max_before", (double)l->max_before);
		tsr_json_put_double(json, "max_after", (double)l->max_after);
	}
	tsr_json_close(json, '}');
	tsr_json_close(json, '}');
}

void tsr_update_put_json(const struct tsr_update_measured *u, struct tsr_text *json)
{
	if (!u->n)
		return;
	tsr_json_open(json, "update", '{');
	tsr_json_put_double(json, "nmse", u->nmse);
	tsr_json_put_double(json, "max_before", (double)u->max_before);
	tsr_json_put_double(json, "max_after", (double)u->max_after);
	tsr_json_put_u64(json, "exposed", u->exposed);
	tsr_json_put_u64(json, "nonfinite", u->nonfinite);
	tsr_json_put_u64(json, "overflow", u->overflow);
	tsr_json_close(json, '}');
}
