/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of tensors: their size, their order, and what messages say of them. */
#ifndef TSR_TEXT_SHAPE_H
#define TSR_TEXT_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "[2, 3]", or as many dimensions as @room bytes hold. */
void tsr_shape_text(char *out, size_t room, unsigned rank, const uint64_t *shape);

/* The product of all dimensions; false if it overflows, even if a later dimension is 0. */
bool tsr_shape_numel(unsigned rank, const uint64_t *shape, uint64_t *ret);

/*
 * Whether a shape can be that of what is left of a tensor by row, by column or projected: one number, or
 * fewer elements and a dimension that is the tensor's.
 */
bool tsr_shape_is_reduced(unsigned rank, const uint64_t *shape, unsigned of_rank,
			  const uint64_t *of_shape);

/* As strcmp(): by rank, then by the first dimension that differs. */
int tsr_shape_compare(unsigned rank_a, const uint64_t *a, unsigned rank_b, const uint64_t *b);

/* The same in memory of its own, for an argument of a message. */
struct tsr_shape_words {
	char text[200];
};
static inline struct tsr_shape_words tsr_shape_words(unsigned rank, const uint64_t *shape)
{
	struct tsr_shape_words words;

	tsr_shape_text(words.text, sizeof(words.text), rank, shape);
	return words;
}

#endif
