/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which known architectures define their parameters. */
#ifndef TSR_NAMES_ARCHITECTURES_H
#define TSR_NAMES_ARCHITECTURES_H

#include <stdbool.h>
#include <stddef.h>

#include "tersor/status.h"

/* How many there are, and what messages call them. */
size_t tsr_architecture_count(void);
const char *tsr_architecture_name(size_t architecture);

/*
 * Sort @n names of parameters into the order of an architecture: @order gets their indices.
 * *applies_ret is whether it knows each component that the order depends on; otherwise @order means
 * nothing.
 */
enum tsr_status tsr_architecture_sort(size_t architecture, const char *const *names, size_t n,
				      size_t *order, bool *applies_ret, struct tsr_err *err);

#endif
