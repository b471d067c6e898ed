/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of what does not go together; docs/replay.md has it in words. */
#include "step/combinations.h"

#include <stddef.h>

/* Kinds of codecs, by what a step has to know of them: a mask. */
enum {
	NONE = 1, /* the rule keeps no such part */
	EACH = 2, /* an element for itself, or with a scale for its group */
	RATIOS = 4, /* relative to the root of the variance */
	MEANS = 8, /* a variance for a whole block */
	FACTORS = 16, /* what the factors of a whole matrix leave of it */
	ANY = 31
};

#define ONE(optimizer) (1u << TSR_OPTIMIZER_##optimizer)
#define ALL ((1u << TSR_OPTIMIZER_COUNT) - 1)
#define ORDER(order) (1u << TSR_ORDER_##order)
#define ALL_ORDERS ((1u << TSR_ORDER_COUNT) - 1)

static const struct {
	unsigned optimizers, orders, momentum, variance; /* masks: all four have to match */
	const char *why;
} refusals[] = {
	{ ALL, ALL_ORDERS, FACTORS, ANY,
	  "a step changes the whole matrix that the codec has factors of; replay with another "
	  "codec "
	  "of momenta, such as softsign8, and pack the result" },
	{ ALL, ALL_ORDERS, RATIOS, MEANS,
	  "ratios are to the variance of each element, and a block has one" },
	{ ONE(GEFEN), ALL_ORDERS, RATIOS, ANY,
	  "the step uses the momentum as it is stored, before the variance that it is relative "
	  "to" },
	{ ALL, ORDER(GEFEN), RATIOS, ANY,
	  "the step uses the momentum as it is stored, before the variance that it is relative "
	  "to" },
	{ ONE(SOAP), ALL_ORDERS, RATIOS, ANY,
	  "ratios are to the variance of each element, which is in another basis" },
	{ ONE(SOAP), ALL_ORDERS, ANY, MEANS,
	  "there is no step by the means of blocks in other bases" },
	{ ONE(ADAM), ALL_ORDERS, ANY, MEANS,
	  "a step by the means of blocks decays weights apart from the gradient, as adamw does" },
	{ ALL, ALL_ORDERS & ~(ORDER(TORCH_CPU) | ORDER(GEFEN)), ANY, MEANS,
	  "that program's order of operations has no step by the means of blocks" },
};

static unsigned kind_of(const struct tsr_codec *codec)
{
	if (!codec)
		return NONE;
	if (codec->rank)
		return FACTORS;
	if (codec->relative)
		return RATIOS;
	return codec->learned && codec->kinds == TSR_KIND_VARIANCE ? MEANS : EACH;
}

const char *tsr_step_refusal(enum tsr_optimizer optimizer, enum tsr_order order,
			     const struct tsr_codec *momentum, const struct tsr_codec *variance)
{
	const unsigned m = kind_of(momentum), v = kind_of(variance);

	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		if (refusals[i].optimizers >> optimizer & refusals[i].orders >> order & 1 &&
		    refusals[i].momentum & m && refusals[i].variance & v)
			return refusals[i].why;
	}
	return NULL;
}
