/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CLI_CODING_H
#define TSR_CLI_CODING_H

#include "cli/cli.h"
#include "tersor/compare.h"
#include "tersor/codec.h"

/* Look up a codec for this kind; on failure say what is wrong and return CLI_USAGE. */
int cli_parse_codec(const struct cli_cmd *cmd, const char *name, enum tsr_kind kind,
		    const struct tsr_codec **ret);
int cli_parse_any_codec(const struct cli_cmd *cmd, const char *name);
int cli_parse_scale(const struct cli_cmd *cmd, const char *name, enum tsr_scale *ret);

/* Items of the form METRIC=VALUE; `ret` has room for all of them. */
int cli_parse_bounds(const struct cli_cmd *cmd, const char *option, const struct cli_list *list,
		     struct tsr_bound *ret);

/* The most --max-error or --tol options. */
#define CLI_BOUNDS_MAX 16

/* "bf16+ulp8", or with a scale "softsign8 e8m8/32", into `out`. */
void cli_format_coding(char *out, size_t room, const struct tsr_coding *coding);

#endif
