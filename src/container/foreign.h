/* SPDX-License-Identifier: Apache-2.0 */
/* Files and directories of other programs that are known, but not read. */
#ifndef TSR_CONTAINER_FOREIGN_H
#define TSR_CONTAINER_FOREIGN_H

#include "container/file_head.h"

/*
 * TSR_E_UNSUPPORTED with what the file is and what to do, by its content; TSR_E_FORMAT for a pointer to a
 * file that is elsewhere; TSR_OK if it is not known.
 */
enum tsr_status tsr_foreign_refuse(const struct tsr_file *f, const struct tsr_file_head *head,
				   struct tsr_err *err);

/* The same of a directory, by the names in it. */
enum tsr_status tsr_foreign_refuse_directory(const char *directory, struct tsr_err *err);

#endif
