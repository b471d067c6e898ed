/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the moments of a checkpoint can be Adam's: the betas that it says, and what was found. */
#include "pack/outcome/moments.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/build.h"
#include "names/eps.h"

/* From this share of elements on it is no damage. */
#define NOT_ADAM 0.01

struct tsr_moments_found tsr_moments_with(bool known, const double betas[2])
{
	struct tsr_moments_found f = { .betas_known = known, .bound = (double)INFINITY };

	if (!known)
		return f;
	f.beta1 = betas[0];
	f.beta2 = betas[1];
	f.bound = tsr_adam_bound(f.beta1, f.beta2);
	return f;
}

struct tsr_moments_found tsr_moments_begin(const struct tsr_checkpoint *c)
{
	double betas[2] = { 0 };
	const bool known = tsr_names_betas(c, betas);

	return tsr_moments_with(known, betas);
}

/* Whether the names that begin with @stem, of @length, have a tensor that is no state of Adam. */
static bool has_more(const struct tsr_checkpoint *c, const char *stem, size_t length)
{
	for (size_t i = tsr_checkpoint_from(c, stem, length); i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[c->tensor_by_name[i]];

		if (strncmp(t->name, stem, length) != 0)
			return false;
		if (t->kind == TSR_KIND_OTHER && t->numel > 1)
			return true;
	}
	return false;
}

bool tsr_moments_checked(const struct tsr_checkpoint *c, const struct tsr_tensor *m,
			 const struct tsr_tensor *v)
{
	const char *end = strrchr(v->name, '.');

	/* AdaBelief's is that about the momentum, which is no bound of it. */
	if (end && strstr(end, "exp_avg_var"))
		return false;
	return m->dtype == TSR_F32 && v->dtype == TSR_F32 && !m->coding.codec && !v->coding.codec &&
	       m->kind == TSR_KIND_MOMENTUM && v->kind == TSR_KIND_VARIANCE &&
	       !(end && has_more(c, v->name, (size_t)(end - v->name) + 1));
}

void tsr_moments_add(struct tsr_moments_found *f, const struct tsr_tensor *v,
		     const struct tsr_breach *breach)
{
	f->nvariances++;
	f->nelements += v->numel;
	if (breach->n && !f->all.n)
		f->first = v;
	tsr_breach_merge(&f->all, breach);
}

bool tsr_moments_faulty(const struct tsr_moments_found *f)
{
	return f->all.n && ((double)f->all.n <= NOT_ADAM * (double)f->nelements || f->all.n == 1);
}

void tsr_moments_text(const struct tsr_moments_found *f, char *text, size_t room)
{
	const double m = (double)f->all.m, v = (double)f->all.v;
	char more[80] = "";

	if (f->all.n > 1)
		snprintf(more, sizeof(more), "; %" PRIu64 " elements are like that", f->all.n);
	if (f->steps && v >= 0)
		snprintf(text, room,
			 "element %" PRIu64 " has variance %.4g, was %.4g; %" PRIu64
			 " steps with beta2 %.6g leave at least %.4g%s",
			 f->all.element, v, m, f->steps, f->beta2,
			 tsr_adam_floor(f->beta2, f->steps, f->all.m), more);
	else if (v < 0)
		snprintf(text, room, "element %" PRIu64 " has variance %.4g, which is negative%s",
			 f->all.element, v, more);
	else
		snprintf(text, room,
			 "element %" PRIu64 " has momentum %.4g and variance %.4g, a ratio of %.4g "
			 "to the root; Adam with betas %.6g, %.6g keeps it below %.4g%s",
			 f->all.element, m, v, fabs(m) / sqrt(v), f->beta1, f->beta2, f->bound,
			 more);
}

enum tsr_status tsr_moments_note(const struct tsr_moments_found *f, struct tsr_checkpoint *c,
				 bool strict, struct tsr_err *err)
{
	char text[400];

	if (f->nvariances && !f->betas_known)
		TSR_TRY(tsr_build_remark(c, err,
					 "%.200s: does not say its betas: whether its moments can "
					 "be Adam's was not checked",
					 c->path));
	if (!f->all.n)
		return TSR_OK;
	if (!tsr_moments_faulty(f)) {
		snprintf(text, sizeof(text), " with betas %.6g, %.6g", f->beta1, f->beta2);
		return tsr_build_remark(c, err,
					"%.200s: %" PRIu64 " of %" PRIu64 " moments are none of "
					"Adam%s: another optimizer, or other betas before",
					c->path, f->all.n, f->nelements,
					f->betas_known ? text : "");
	}
	tsr_moments_text(f, text, sizeof(text));
	if (strict)
		return tsr_fail(err, TSR_E_BOUND, "%s: tensor %.200s: %s", c->path, f->first->name,
				text);
	return tsr_build_note(c, err, "%.200s: tensor %.200s: %s", c->path, f->first->name, text);
}
