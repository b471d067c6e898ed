/* SPDX-License-Identifier: Apache-2.0 */
/* Which codecs a packing chose by their errors. */
#include "pack/outcome/chosen.h"

static void count(struct tsr_choices *s, const struct tsr_codec *codec)
{
	unsigned i = 0;

	while (i < s->n && s->by[i].codec != codec)
		i++;
	if (i == TSR_CHOICES_MAX)
		return;
	s->n += i == s->n;
	s->by[i].codec = codec;
	s->by[i].ntensors++;
}

void tsr_choices_add(struct tsr_choices *s, const struct tsr_packing *p)
{
	const struct tsr_checkpoint *c = tsr_packing_source(p);
	const struct tsr_tensor *t;

	for (size_t i = 0; (t = tsr_checkpoint_tensor(c, i)); i++) {
		const struct tsr_choice *choice = tsr_packing_tensor(p, i)->choice;

		if (!choice || !choice->ntried)
			continue;
		if (t->coding.codec)
			count(s, t->coding.codec);
		else
			s->nraw++;
		if (t->coding.codec && choice->metric != TSR_METRIC_WEIGHT_STEP &&
		    choice->error > s->largest)
			s->largest = choice->error;
	}
	if (tsr_packing_bound(p) > s->bound)
		s->bound = tsr_packing_bound(p);
}
