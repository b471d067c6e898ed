/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a checkpoint that are copies of others: masters, and averages such as an EMA. */
#ifndef TSR_REPORT_COPIES_H
#define TSR_REPORT_COPIES_H

#include "report/summary.h"

/* Take the copies among the tensors of a checkpoint, which @s has, out of its parameters. */
enum tsr_status tsr_summary_add_copies(struct tsr_summary *s, const struct tsr_checkpoint *c,
				       struct tsr_err *err);

/*
 * The same for what the files of a directory have together, after the last of them: flat partitions of
 * an optimizer that hold as many elements as the models, and at most 1% of padding.
 */
void tsr_summary_add_flat_copies(struct tsr_summary *s);

#endif
