/* SPDX-License-Identifier: Apache-2.0 */
/* What --vary of `tersor replay` means: all combinations of values of hyperparameters. */
#include "cli/words.h"

/* NAME=X,X,...: its name is cut off and found, and *values_ret is what follows it. */
static int parse_name(const struct cli_cmd *cmd, const char *item, enum tsr_hyper_name *name_ret,
		      const char **values_ret)
{
	const char *equals = strchr(item, '=');
	char text[32];

	if (!equals || equals == item)
		return cli_usage(cmd, "option --vary: found '%s', expected NAME=X,X,...", item);
	snprintf(text, sizeof(text), "%.*s", (int)(equals - item), item);
	*values_ret = equals + 1;
	return cli_parse_hyper(cmd, "vary", text, name_ret);
}

/* Each variant so far with each of the values. */
static int multiply(const struct cli_cmd *cmd, const char *item, struct cli_replay_parsed *ret)
{
	const unsigned before = ret->nforms;
	struct tsr_replay_form was[TSR_REPLAY_FORMS_MAX];
	enum tsr_hyper_name name = TSR_HYPER_LR;
	char word[CLI_WORD_NBYTES], names[TSR_REPLAY_FORMS_MAX][CLI_VARIANT_NBYTES];
	const char *values;
	double value;

	CLI_TRY(parse_name(cmd, item, &name, &values));
	if (tsr_hyper_is_set(&ret->forms[before - 1].hyper, name))
		return cli_usage(cmd, "option --vary: found %s twice", tsr_hyper_name(name));
	memcpy(was, ret->forms, sizeof(was));
	memcpy(names, ret->names, sizeof(names));
	ret->nforms = 1;
	/* The first is as recorded; a single one so far is nothing to vary. */
	while (cli_next_word(&values, word)) {
		if (!cli_parse_double(word, &value))
			return cli_usage(cmd, "option --vary: found '%s', expected a number", word);
		for (unsigned i = before > 1 ? 1 : 0; i < before; i++) {
			const unsigned to = ret->nforms++;

			if (to == TSR_REPLAY_FORMS_MAX)
				return cli_usage(cmd,
						 "option --vary: found more than %u combinations",
						 TSR_REPLAY_FORMS_MAX - 1);
			ret->forms[to] = was[i];
			tsr_hyper_put(&ret->forms[to].hyper, name, value);
			snprintf(ret->names[to], sizeof(ret->names[to]), "%.60s%s%.20s=%.40s",
				 i ? names[i] : "", i ? " " : "", tsr_hyper_name(name), word);
		}
	}
	return CLI_OK;
}

int cli_parse_vary(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		   struct cli_replay_parsed *ret)
{
	const char *device = a->common.device;

	if (device && strncmp(device, "cuda", 4) == 0)
		return cli_usage(cmd, "--vary runs on the CPU: leave --device out");
	ret->nforms = 1;
	snprintf(ret->names[0], sizeof(ret->names[0]), "as recorded");
	ret->forms[0] = (struct tsr_replay_form){ .name = NULL };
	for (unsigned p = 0; p < TSR_SLOTS; p++)
		ret->forms[0].coding[p] = tsr_coding_default(tsr_codec_find("f32"));
	for (unsigned i = 0; i < a->vary.n; i++)
		CLI_TRY(multiply(cmd, a->vary.items[i], ret));
	for (unsigned i = 0; i < ret->nforms; i++)
		ret->forms[i].name = ret->names[i];
	ret->options.compare = true;
	return CLI_OK;
}
