/* SPDX-License-Identifier: Apache-2.0 */
/* Command line words that name codecs, scales, bounds and devices. */
#include "cli/coding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY_KIND (TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE)

struct codec_names {
	const struct tsr_codec *const *at;
	unsigned kinds;
};

static const char *next_codec(void *ctx)
{
	struct codec_names *names = ctx;

	while (*names->at && !((*names->at)->kinds & names->kinds))
		names->at++;
	return *names->at ? (*names->at++)->name : NULL;
}

int cli_parse_codec(const struct cli_cmd *cmd, const char *name, enum tsr_kind kind,
		    const struct tsr_codec **ret)
{
	struct codec_names names = { tsr_codecs(), (unsigned)kind };
	const char *near;

	*ret = tsr_codec_find(name);
	if (*ret && ((*ret)->kinds & kind))
		return CLI_OK;
	if (*ret)
		return cli_usage(cmd,
				 "codec '%s' is not for %s tensors; 'tersor codecs' lists them",
				 name, tsr_kind_name(kind));
	near = cli_nearest(name, next_codec, &names);
	if (near)
		return cli_usage(cmd, "unknown %s codec '%s'; did you mean '%s'?",
				 tsr_kind_name(kind), name, near);
	return cli_usage(cmd, "unknown %s codec '%s'; 'tersor codecs' lists them",
			 tsr_kind_name(kind), name);
}

int cli_parse_any_codec(const struct cli_cmd *cmd, const char *name)
{
	struct codec_names names = { tsr_codecs(), ANY_KIND };
	const char *near;

	if (tsr_codec_find(name))
		return CLI_OK;
	near = cli_nearest(name, next_codec, &names);
	if (near)
		return cli_usage(cmd, "unknown codec '%s'; did you mean '%s'?", name, near);
	return cli_usage(cmd, "unknown codec '%s'; 'tersor codecs' lists them", name);
}

int cli_parse_scale(const struct cli_cmd *cmd, const char *name, enum tsr_scale *ret)
{
	if (tsr_scale_find(name, ret))
		return CLI_OK;
	return cli_usage(cmd, "unknown scale format '%s', expected e8m8, f16 or f32", name);
}

int cli_parse_bounds(const struct cli_cmd *cmd, const char *option, const struct cli_list *list,
		     struct tsr_bound *ret)
{
	if (list->n > CLI_BOUNDS_MAX)
		return cli_usage(cmd, "option --%s: more than %d of them", option, CLI_BOUNDS_MAX);
	for (unsigned i = 0; i < list->n; i++) {
		const char *item = list->items[i], *equals = strchr(item, '=');
		char name[16], *end;

		if (!equals)
			return cli_usage(cmd, "option --%s: found '%s', expected METRIC=VALUE",
					 option, item);
		snprintf(name, sizeof(name), "%.*s", (int)(equals - item), item);
		if (!tsr_metric_find(name, &ret[i].metric))
			return cli_usage(
				cmd,
				"option --%s: unknown metric '%s', expected abs, ulp, rel, nmse or "
				"cosine",
				option, name);
		ret[i].limit = strtod(equals + 1, &end);
		if (!equals[1] || *end || !(ret[i].limit >= 0))
			return cli_usage(cmd,
					 "option --%s: found '%s', expected a value of 0 or more",
					 option, item);
	}
	return CLI_OK;
}

void cli_format_coding(char *out, size_t room, const struct tsr_coding *coding)
{
	if (!coding->codec)
		snprintf(out, room, "raw");
	else if (coding->codec->grouped)
		snprintf(out, room, "%s %s/%u", coding->codec->name, tsr_scale_name(coding->scale),
			 coding->group);
	else
		snprintf(out, room, "%s", coding->codec->name);
}
