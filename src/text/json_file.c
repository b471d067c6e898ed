/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "text/json.h"

enum tsr_status tsr_json_read_file(const struct tsr_file *f, uint64_t nbytes_max,
				   const struct tsr_json_rules *rules, struct tsr_json **ret,
				   struct tsr_err *err)
{
	const uint64_t nbytes = tsr_file_size(f);
	enum tsr_status status;
	char *text;

	if (nbytes > nbytes_max)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: %s of %" PRIu64 " bytes is over the limit of %" PRIu64,
				rules->file, rules->part, nbytes, nbytes_max);
	text = malloc((size_t)nbytes + 1);
	if (!text)
		return tsr_fail_nomem(err, rules->file);
	status = tsr_file_read(f, text, (size_t)nbytes, 0, err);
	if (status == TSR_OK)
		status = tsr_json_parse(text, (size_t)nbytes, rules, ret, err);
	free(text);
	return status;
}
