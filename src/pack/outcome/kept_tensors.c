/* SPDX-License-Identifier: Apache-2.0 */
/* What a packing left as it was, and why. */
#include "pack/outcome/kept_tensors.h"

#include <stdio.h>
#include <string.h>

#include "names/aliases.h"

static enum tsr_kept class_of(const struct tsr_tensor *t, enum tsr_raw_reason raw)
{
	switch (raw) {
	case TSR_RAW_SMALL:
		return TSR_KEPT_SMALL;
	case TSR_RAW_INTEGERS:
		return TSR_KEPT_INTEGERS;
	case TSR_RAW_CHOICE:
		return TSR_KEPT_CHOICE;
	case TSR_RAW_NONFINITE:
	case TSR_RAW_NEGATIVE:
	case TSR_RAW_OVERFLOW:
		return TSR_KEPT_VALUES;
	case TSR_RAW_NO:
		break;
	}
	if (t->quantized)
		return TSR_KEPT_QUANTIZED;
	if (t->dtype != TSR_F32)
		return TSR_KEPT_DTYPE;
	if (!t->field || !t->rank)
		return TSR_KEPT_OTHER;
	return tsr_alias_is_factor(t) ? TSR_KEPT_FACTOR : TSR_KEPT_STATE;
}

/* "GG" of "GG.0", once. */
static void add_field(struct tsr_kept_raw *k, const char *field)
{
	size_t n = strlen(field), digits = n;
	char text[sizeof(k->fields[0])];

	while (digits && strchr("0123456789", field[digits - 1]))
		digits--;
	if (digits > 1 && field[digits - 1] == '.')
		n = digits - 1;
	snprintf(text, sizeof(text), "%.*s", (int)(n < sizeof(text) ? n : sizeof(text)), field);
	for (unsigned i = 0; i < k->nfields; i++) {
		if (strcmp(k->fields[i], text) == 0)
			return;
	}
	if (k->nfields < TSR_KEPT_FIELDS_MAX)
		memcpy(k->fields[k->nfields++], text, sizeof(text));
}

void tsr_kept_raw_add(struct tsr_kept_raw *k, const struct tsr_packing *p)
{
	const struct tsr_checkpoint *c = tsr_packing_source(p);

	for (size_t i = 0; i < tsr_checkpoint_ntensors(c); i++) {
		const struct tsr_tensor *t = tsr_checkpoint_tensor(c, i);
		const uint64_t nbytes = tsr_tensor_nbytes(t);
		enum tsr_kept class;

		k->nbytes += nbytes;
		if (t->coding.codec) {
			k->packed_nbytes += nbytes;
			continue;
		}
		if (!nbytes)
			continue;
		class = class_of(t, tsr_packing_tensor(p, i)->raw);
		k->by[class].ntensors++;
		k->by[class].nbytes += nbytes;
		if (class == TSR_KEPT_DTYPE)
			k->dtype_nbytes[t->dtype] += nbytes;
		if (class == TSR_KEPT_STATE)
			add_field(k, t->field);
	}
}
