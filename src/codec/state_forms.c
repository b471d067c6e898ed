/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs of momenta and variances that the name of an optimizer's state stands for. */
#include "codec/state_forms.h"

#include <string.h>

static const struct {
	const char *name, *momentum, *variance;
} forms[] = {
	{ "flash", "softsign8", "sqrt8" },  { "flashoptim", "softsign8", "sqrt8" },
	{ "tight", "ratio8", "log8" },	    { "coat", "e4m3x", "e4m3x" },
	{ "bitsandbytes", "dyn8", "dyn8" }, { "gefen", "gefen8", "blockmean" },
	{ "fine", "ratio9", "log7" },	    { "four", "ratio4", "log4" },
};

#define NFORMS (sizeof(forms) / sizeof(*forms))

bool tsr_state_form(const char *name, struct tsr_coding *momentum, struct tsr_coding *variance)
{
	for (size_t i = 0; i < NFORMS; i++) {
		if (strcmp(forms[i].name, name) != 0)
			continue;
		*momentum = tsr_coding_default(tsr_codec_find(forms[i].momentum));
		*variance = tsr_coding_default(tsr_codec_find(forms[i].variance));
		if (strcmp(name, "flashoptim") == 0)
			momentum->scale = variance->scale = TSR_SCALE_F16;
		return true;
	}
	return false;
}

const char *tsr_state_form_at(unsigned i)
{
	return i < NFORMS ? forms[i].name : NULL;
}
