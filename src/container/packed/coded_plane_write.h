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

/* --- Which planes of packed files are coded, and the order of their arrays -------------------- */

/* The least that a plane has to gain by being coded, in bytes: what its longer name and its index take. */
#define TSR_CODED_GAIN 32u

/*
 * Set w->coded_nbytes of the planes that are coded, unless a trial says otherwise, to more than they can
 * take.  Returns the most bytes of a coded piece of them, but for differences.
 */
size_t tsr_coded_choose_planes(struct tsr_writer *w);

/* Whether both planes of a tensor are coded, and together where that takes fewer bytes. */
bool tsr_coded_is_joined(const struct tsr_writer *w, size_t tag);

/* Whether a plane is coded to see what it gains, before headers are laid out: the planes of short pieces. */
bool tsr_coded_is_tried(const struct tsr_writer *w, const struct tsr_st_entry *e);

/* What the elements of a plane are, packed or raw. */
enum tsr_dtype tsr_coded_plane_dtype(const struct tsr_tensor *t, size_t tag);

/* The order of the arrays of all files, and headers with room for the sizes of coded ones. */
enum tsr_status tsr_coded_lay_out(struct tsr_writer *w, struct tsr_err *err);

#endif
