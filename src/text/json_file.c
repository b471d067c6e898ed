/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON text that is a whole file. */
#include "base/fail.h"
#include "text/json.h"

enum tsr_status tsr_json_read_file(const struct tsr_file *f, uint64_t nbytes_max,
				   const struct tsr_json_rules *rules, struct tsr_json **ret,
				   struct tsr_err *err)
{
	TSR_OWNED(free) char *text = NULL;

	TSR_TRY(tsr_file_load(f, nbytes_max, rules->part, &text, err));
	return tsr_json_parse(text, (size_t)tsr_file_size(f), rules, ret, err);
}
