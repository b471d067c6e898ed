/* SPDX-License-Identifier: Apache-2.0 */
/* The eps that a checkpoint's optimizer divides with. */
#include "names/eps.h"

#include <math.h>

#include "format/value.h"

/* Dicts between the root and an optimizer: deeper ones are of something else. */
#define DEPTH_MAX 5u

struct search {
	double eps;
	unsigned n; /* of groups that have one, all the same */
	bool differ;
};

static void look_at_groups(struct search *s, const struct tsr_value *groups)
{
	for (size_t i = 0; tsr_value_is_list(groups) && i < groups->list.n; i++) {
		const struct tsr_value *eps = tsr_value_at(groups->list.items[i], "eps");

		if (!eps || eps->type != TSR_VALUE_FLOAT)
			continue;
		s->differ = s->differ || (s->n && tsr_value_real(eps) != s->eps);
		s->eps = tsr_value_real(eps);
		s->n++;
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

float tsr_names_eps(const struct tsr_checkpoint *c, bool *known_ret)
{
	struct search s = { 0 };

	for (size_t i = 0; i < c->ntrees; i++)
		look_at(&s, c->trees[i], 0);
	*known_ret = s.n && !s.differ && s.eps > 0 && isfinite((float)s.eps);
	return *known_ret ? (float)s.eps : TSR_UPDATE_EPS;
}
