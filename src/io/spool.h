/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs that can be read once, in order: standard input, FIFOs and sockets. */
#ifndef TSR_IO_SPOOL_H
#define TSR_IO_SPOOL_H

#include "io/file.h"

/* The most that is read of such an input: as much disk as it may take in $TMPDIR. */
#define TSR_SPOOL_NBYTES_MAX (UINT64_C(1) << 40)

/*
 * tsr_file_open() for a path that the user gave.  A stream is read to its end into a scratch file
 * first: TSR_E_LIMIT beyond the limit, TSR_E_CANCELLED if a signal came while waiting.  The path
 * TSR_STANDARD_INPUT is this process's own.
 */
enum tsr_status tsr_spool_open(const char *path, struct tsr_file **ret, struct tsr_err *err);

#endif
