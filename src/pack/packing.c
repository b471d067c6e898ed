/* SPDX-License-Identifier: Apache-2.0 */
/* What a user of the library sees of a packing and an unpacking. */
#include "pack/packing.h"

#include "ckpt/checkpoint_model.h"

const struct tsr_checkpoint *tsr_packing_source(const struct tsr_packing *p)
{
	return p->source;
}

const struct tsr_packed_tensor *tsr_packing_tensor(const struct tsr_packing *p, size_t index)
{
	return index < p->source->ntensors ? &p->tensors[index] : NULL;
}

uint64_t tsr_packing_nbytes(const struct tsr_packing *p)
{
	return p->header_nbytes + p->data_nbytes;
}

unsigned tsr_packing_generation(const struct tsr_packing *p)
{
	return p->generation;
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
