/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of finding factors, each once per SIMD level; factors have rows of TSR_RANK elements. */
#ifndef TSR_LEARN_FACTOR_LOOPS_H
#define TSR_LEARN_FACTOR_LOOPS_H

#include <stddef.h>

#include "base/isa.h"

/*
 * @m has @nrows rows of @n elements.  project: y = m * w; y has @nrows rows, w has @n.  project_back:
 * z += m^T * y; z has @n rows.  Every operation is rounded, and elements are added in the order of columns or
 * of rows.
 */
typedef void tsr_project_fn(const float *m, size_t nrows, size_t n, const float *w, float *y);
TSR_ISA_DECLARE(tsr_project_fn, project)
TSR_ISA_DECLARE(tsr_project_fn, project_back)

#endif
