/* SPDX-License-Identifier: Apache-2.0 */
/* The eps, betas and learning rate of a checkpoint's optimizer. */
#include "names/eps.h"

#include <math.h>

#include "format/value.h"

/* Dicts between the root and an optimizer: deeper ones are of something else. */
#define DEPTH_MAX 5u

/* One number that groups of parameters have. */
struct found {
	double value;
	unsigned n; /* of groups that have it, all the same */
	bool differ;
};

struct search {
	struct found eps, beta[2];
	double lr; /* the least that is positive */
};

static void take(struct found *f, const struct tsr_value *v)
{
	if (!v || v->type != TSR_VALUE_FLOAT)
		return;
	f->differ = f->differ || (f->n && tsr_value_real(v) != f->value);
	f->value = tsr_value_real(v);
	f->n++;
}

static void take_lr(struct search *s, const struct tsr_value *v)
{
	const double lr = v && v->type == TSR_VALUE_FLOAT ? tsr_value_real(v) : 0;

	if (lr > 0 && (!(s->lr > 0) || lr < s->lr))
		s->lr = lr;
}

static bool is_known(const struct found *f)
{
	return f->n && !f->differ && isfinite((float)f->value);
}

static void look_at_groups(struct search *s, const struct tsr_value *groups)
{
	for (size_t i = 0; tsr_value_is_list(groups) && i < groups->list.n; i++) {
		const struct tsr_value *betas = tsr_value_at(groups->list.items[i], "betas");

		take(&s->eps, tsr_value_at(groups->list.items[i], "eps"));
		take_lr(s, tsr_value_at(groups->list.items[i], "lr"));
		if (!betas || !tsr_value_is_list(betas) || betas->list.n != 2)
			continue;
		take(&s->beta[0], betas->list.items[0]);
		take(&s->beta[1], betas->list.items[1]);
	}
}

static void look_at(struct search *s, const struct tsr_value *v, unsigned depth)
{
	const struct tsr_value *dict = v ? tsr_value_mapping(v) : NULL;
	const struct tsr_value *groups = dict ? tsr_value_at(dict, "param_groups") : NULL;

	if (groups)
		look_at_groups(s, groups);
	for (size_t i = 1; dict && !groups && depth < DEPTH_MAX && i < dict->list.n; i += 2)
		look_at(s, dict->list.items[i], depth + 1);
}

static struct search search(const struct tsr_checkpoint *c)
{
	struct search s = { 0 };

	for (size_t i = 0; i < c->ntrees; i++)
		look_at(&s, c->trees[i], 0);
	return s;
}

float tsr_names_eps(const struct tsr_checkpoint *c, bool *known_ret)
{
	const struct search s = search(c);

	*known_ret = is_known(&s.eps) && s.eps.value > 0;
	return *known_ret ? (float)s.eps.value : TSR_UPDATE_EPS;
}

double tsr_names_lr(const struct tsr_checkpoint *c)
{
	const struct search s = search(c);

	return isfinite(s.lr) ? s.lr : 0;
}

bool tsr_names_betas(const struct tsr_checkpoint *c, double ret[2])
{
	const struct search s = search(c);

	for (unsigned i = 0; i < 2; i++) {
		if (!is_known(&s.beta[i]) || !(s.beta[i].value > 0 && s.beta[i].value < 1))
			return false;
	}
	ret[0] = s.beta[0].value;
	ret[1] = s.beta[1].value;
	return true;
}
