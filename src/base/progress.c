/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long work and its cancellation. */
#include "base/progress.h"

#include "base/fail.h"

enum tsr_status tsr_progress_add(struct tsr_progress *p, uint64_t nbytes, struct tsr_err *err)
{
	const struct tsr_run *run = p->run;

	p->done_nbytes += nbytes;
	if (run && run->progress && !run->progress(run->ctx, p->done_nbytes, p->total_nbytes))
		return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled", p->what);
	return TSR_OK;
}
