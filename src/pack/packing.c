/* SPDX-License-Identifier: Apache-2.0 */
/* What a user of the library sees of a packing and an unpacking. */
#include "pack/packing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/checkpoint_model.h"

const struct tsr_checkpoint *tsr_packing_source(const struct tsr_packing *p)
{
	return p->source;
}

const struct tsr_packed_tensor *tsr_packing_tensor(const struct tsr_packing *p, size_t index)
{
	return index < p->source->ntensors ? &p->tensors[index] : NULL;
}

double tsr_packing_bound(const struct tsr_packing *p)
{
	return p->bound;
}

uint64_t tsr_packing_nbytes(const struct tsr_packing *p)
{
	return p->header_nbytes + p->data_nbytes;
}

uint64_t tsr_packing_plain_nbytes(const struct tsr_packing *p)
{
	return p->plain_nbytes;
}

unsigned tsr_packing_generation(const struct tsr_packing *p)
{
	return p->generation;
}

void tsr_raw_reason_text(const struct tsr_packed_tensor *t, char *text, size_t room)
{
	const struct tsr_measured *m = &t->measure;

	text[0] = '\0';
	switch (t->raw) {
	case TSR_RAW_NO:
		break;
	case TSR_RAW_NONFINITE:
		snprintf(text, room, "%" PRIu64 " non-finite value%s", m->nonfinite,
			 m->nonfinite == 1 ? "" : "s");
		break;
	case TSR_RAW_NEGATIVE:
		snprintf(text, room, "%" PRIu64 " negative variance%s", m->negative,
			 m->negative == 1 ? "" : "s");
		break;
	case TSR_RAW_OVERFLOW:
		snprintf(text, room,
			 "%" PRIu64 " values and %" PRIu64 " scales overflow the narrow format",
			 m->overflow + t->report.narrow_overflow, t->report.scale_overflow);
		break;
	case TSR_RAW_SMALL:
		snprintf(text, room, "few elements");
		break;
	case TSR_RAW_INTEGERS:
		snprintf(text, room, "only integers");
		break;
	case TSR_RAW_CHOICE:
		snprintf(text, room, "no codec within the bound");
		break;
	}
}

void tsr_packing_free(struct tsr_packing *p)
{
	if (!p)
		return;
	tsr_checkpoint_close(p->source);
	free(p->tensors);
	free(p->choices);
	tsr_written_delta_free(&p->delta);
	free(p);
}

const struct tsr_checkpoint *tsr_unpacking_source(const struct tsr_unpacking *u)
{
	return u->source;
}

enum tsr_container tsr_unpacking_container(const struct tsr_unpacking *u)
{
	return u->container;
}

uint64_t tsr_unpacking_nbytes(const struct tsr_unpacking *u)
{
	return u->nbytes;
}
