/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/recording.h"

#include "base/fail.h"

bool tsr_recording_has_offsets(const struct tsr_checkpoint *part)
{
	(void)part;
	return false;
}

enum tsr_status tsr_recording_join(struct tsr_checkpoint **parts, size_t nparts,
				   struct tsr_checkpoint **ret, struct tsr_err *err)
{
	(void)nparts;
	(void)ret;
	return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: files of several ranks", parts[0]->path);
}
