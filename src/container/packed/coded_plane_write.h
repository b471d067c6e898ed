/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the arrays of packed files piece by piece, once their planes are complete: coded or as they are. */
#ifndef TSR_CONTAINER_PACKED_CODED_PLANE_WRITE_H
#define TSR_CONTAINER_PACKED_CODED_PLANE_WRITE_H

#include "container/writer_layout.h"

/*
 * Write all arrays of a writer of packed files, whose outputs are created, from its spool or else from the
 * files of the checkpoint, those that its plan says coded.  Their places, sizes and names are then the final
 * ones, and the headers have their final length.  TSR_E_FORMAT if a plane does not have its hash.
 */
enum tsr_status tsr_coded_write(struct tsr_writer *w, const struct tsr_run *run,
				struct tsr_err *err);

#endif
