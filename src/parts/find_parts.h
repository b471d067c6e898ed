/* SPDX-License-Identifier: Apache-2.0 */
/* Finding all parts of a job, by the names of their reports. */
#ifndef TSR_PARTS_FIND_PARTS_H
#define TSR_PARTS_FIND_PARTS_H

#include "parts/part_report.h"

/* "PATH.part-NUMBER-of-COUNT.bin", to be freed. */
enum tsr_status tsr_part_report_path(const char *path, unsigned number, unsigned count, char **ret,
				     struct tsr_err *err);

/* The reports beside @path, as many as there are parts, in their order; to be freed also on failure. */
enum tsr_status tsr_part_reports_find(const char *path, struct tsr_part_report **ret,
				      unsigned *n_ret, struct tsr_err *err);

#endif
