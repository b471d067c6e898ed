/* SPDX-License-Identifier: Apache-2.0 */
/* Which codecs a packing chose by their errors. */
#ifndef TSR_PACK_CHOSEN_H
#define TSR_PACK_CHOSEN_H

#include "tersor/pack.h"

#define TSR_CHOICES_MAX 64

struct tsr_choices {
	struct {
		const struct tsr_codec *codec;
		uint64_t ntensors;
	} by[TSR_CHOICES_MAX];
	unsigned n;
	double bound; /* that was kept to; the largest of several packings */
	double largest; /* error of what was chosen */
	uint64_t nraw; /* tensors that no codec was chosen for */
};

void tsr_choices_add(struct tsr_choices *s, const struct tsr_packing *p);

#endif
