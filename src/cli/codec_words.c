/* SPDX-License-Identifier: Apache-2.0 */
/* Words of the command line that name codecs, bounds and rules. */
#include "cli/operations.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"

int cli_parse_codec(const struct cli_cmd *cmd, const char *name, unsigned kinds,
		    const struct tsr_codec **ret)
{
	struct tsr_nearest nearest = { .wrong = name };
	/* "weight ", or nothing if any kind will do. */
	const bool one = (kinds & (kinds - 1)) == 0;
	char kind[32], what[64];

	*ret = tsr_codec_find(name);
	if (*ret && (*ret)->learned)
		return cli_usage(cmd, "codec '%s' is learned from the data, by pack --state gefen",
				 name);
	if (*ret && ((*ret)->kinds & kinds))
		return CLI_OK;
	snprintf(kind, sizeof(kind), "%s%s", one ? tsr_kind_name((enum tsr_kind)kinds) : "",
		 one ? " " : "");
	if (*ret)
		return cli_usage(cmd, "codec '%s' is not for %stensors; 'tersor codecs' lists them",
				 name, kind);
	snprintf(what, sizeof(what), "unknown %scodec", kind);
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if ((*c)->kinds & kinds)
			tsr_nearest_offer(&nearest, (*c)->name);
	}
	return cli_unknown(cmd, what, &nearest, "; 'tersor codecs' lists them");
}

int cli_parse_state(const struct cli_cmd *cmd, const char *name, struct tsr_coding *momentum,
		    struct tsr_coding *variance)
{
	const char *slash = strchr(name, '/');
	char first[CLI_WORD_NBYTES];

	const struct tsr_codec *m, *v;

	if (!slash)
		return tsr_state_form(name, momentum, variance) ? CLI_OK : CLI_USAGE;
	snprintf(first, sizeof(first), "%.*s", (int)(slash - name), name);
	CLI_TRY(cli_parse_codec(cmd, first, TSR_KIND_MOMENTUM, &m));
	CLI_TRY(cli_parse_codec(cmd, slash + 1, TSR_KIND_VARIANCE, &v));
	*momentum = tsr_coding_default(m);
	*variance = tsr_coding_default(v);
	return CLI_OK;
}

bool cli_parse_double(const char *text, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return *text && !*end && *ret - *ret == 0;
}

bool cli_split_setting(const char *item, char key[32], double *ret)
{
	const char *equals = strchr(item, '=');

	if (!equals || !cli_parse_double(equals + 1, ret))
		return false;
	snprintf(key, 32, "%.*s", (int)(equals - item), item);
	return true;
}

int cli_split_bounds(const struct cli_cmd *cmd, const struct cli_list *list,
		     char ret[CLI_BOUNDS_MAX][CLI_WORD_NBYTES], unsigned *n_ret)
{
	*n_ret = 0;
	for (unsigned i = 0; i < list->n; i++) {
		for (const char *at = list->items[i], *end; at; at = *end ? end + 1 : NULL) {
			end = at + strcspn(at, ",");
			while (*end && end[1 + strcspn(end + 1, "=,")] != '=')
				end += 1 + strcspn(end + 1, ",");
			if (*n_ret == CLI_BOUNDS_MAX)
				return cli_usage(cmd, "option --max-error: more than %d bounds",
						 CLI_BOUNDS_MAX);
			snprintf(ret[(*n_ret)++], CLI_WORD_NBYTES, "%.*s", (int)(end - at), at);
		}
	}
	return CLI_OK;
}

int cli_parse_bounds(const struct cli_cmd *cmd, const struct cli_list *list, bool updates,
		     struct tsr_bound *ret, unsigned *n_ret)
{
	char words[CLI_BOUNDS_MAX][CLI_WORD_NBYTES], name[32];

	CLI_TRY(cli_split_bounds(cmd, list, words, n_ret));
	for (unsigned i = 0; i < *n_ret; i++) {
		if (!cli_split_setting(words[i], name, &ret[i].limit) || ret[i].limit < 0)
			return cli_usage(cmd,
					 "option --max-error: found '%s', expected METRIC=VALUE "
					 "with 0 or more",
					 words[i]);
		if (!tsr_metric_find(name, &ret[i].metric) ||
		    (ret[i].metric > TSR_METRIC_COUNT && !updates))
			return cli_usage(cmd,
					 "option --max-error: unknown metric '%s', expected abs, "
					 "ulp, rel, nmse%s",
					 name,
					 updates ? ", cosine, update-nmse or weight-step"
						 : " or cosine");
	}
	return CLI_OK;
}

int cli_parse_rules(const struct cli_cmd *cmd, const struct cli_list *keep,
		    const struct cli_list *map, struct tsr_name_rule *ret, unsigned *n_ret)
{
	unsigned n = 0;

	if ((keep ? keep->n : 0) + map->n > CLI_RULES_MAX)
		return cli_usage(cmd, "more than %d --keep and --map options", CLI_RULES_MAX);
	for (unsigned i = 0; keep && i < keep->n; i++)
		ret[n++] = (struct tsr_name_rule){ keep->items[i], TSR_KIND_OTHER };
	for (unsigned i = 0; i < map->n; i++) {
		char *equals = strrchr((char *)map->items[i], '=');
		enum tsr_kind kind;

		if (!equals || !tsr_kind_find(equals + 1, &kind))
			return cli_usage(
				cmd,
				"option --map: found '%s', expected REGEX=KIND, KIND being "
				"weight, momentum, variance or other",
				map->items[i]);
		*equals = '\0';
		ret[n++] = (struct tsr_name_rule){ map->items[i], kind };
	}
	*n_ret = n;
	return CLI_OK;
}

/* --- Learning blocks and a codebook -------------------------------------------------------------- */

struct tsr_learn_options cli_learn_options(const struct cli_learning *learning)
{
	struct tsr_learn_options o = tsr_learn_defaults();

	if (learning->partition && strcmp(learning->partition, "variance") == 0)
		o.partition = TSR_PARTITION_VARIANCE;
	o.peer = learning->compat && strcmp(learning->compat, "gefen") == 0;
	o.few = learning->few;
	return o;
}

int cli_learn(const struct cli_learning *learning, const struct cli_common *common,
	      const struct cli_list *in, bool recorded, bool gradients, struct tsr_learned **ret)
{
	struct tsr_learn_options o = cli_learn_options(learning);
	TSR_OWNED(tsr_recording_close) struct tsr_recording *r = NULL;
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	enum tsr_status status;
	struct cli_work work;

	cli_work_start(&work, common, "learning");
	o.gradients = gradients || recorded;
	/* Of a recording the first step. */
	status = recorded ? tsr_recording_open(in->items[0], &common->open, &r, &work.err)
			  : tsr_checkpoint_open(in->items, in->n, &common->open, &c, &work.err);
	if (recorded)
		TSR_THEN(status, tsr_recording_open_step(r, 0, &c, &work.err));
	if (!o.gradients)
		TSR_THEN(status, tsr_names_assign(c, NULL, 0, &work.err));
	TSR_THEN(status, tsr_learn(c, &o, &work.run, ret, &work.err));
	return cli_work_end(&work, status) == TSR_OK ? CLI_OK : cli_error(&work.err);
}
