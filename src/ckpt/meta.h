/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of `__metadata__`: finding, sorting and replacing them. */
#ifndef TSR_CKPT_META_H
#define TSR_CKPT_META_H

#include "ckpt/checkpoint_model.h"
#include "text/json.h"

/* The value of the entry with this key, or NULL. */
const char *tsr_meta_find(const struct tsr_meta *meta, size_t n, const char *key);

/* Sort entries by their keys. */
void tsr_meta_sort(struct tsr_meta *meta, size_t n);

/*
 * Where the entries stand, in the order of their keys, in the arena of @c; *ret stays NULL if they are
 * sorted.
 */
enum tsr_status tsr_meta_order(struct tsr_checkpoint *c, const struct tsr_meta *meta, size_t n,
			       const size_t **ret, struct tsr_err *err);

/* Take such an order from a list, each number once, or NULL; false if it is something else. */
bool tsr_meta_read_order(struct tsr_checkpoint *c, const struct tsr_json *list);

/* Put @n sorted entries where @order says, into an array that takes the place of *@meta, which is freed. */
enum tsr_status tsr_meta_arrange(const struct tsr_checkpoint *c, struct tsr_meta **meta, size_t n,
				 const size_t *order, struct tsr_err *err);

/*
 * The metadata of a checkpoint with the @n entries @with instead of its own of these keys; those whose
 * value is NULL are only left out.  Sorted, to be freed; texts are borrowed.
 */
enum tsr_status tsr_meta_replace(const struct tsr_checkpoint *c, const struct tsr_meta *with,
				 size_t n, struct tsr_meta **ret, size_t *n_ret,
				 struct tsr_err *err);

#endif
