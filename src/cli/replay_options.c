/* SPDX-License-Identifier: Apache-2.0 */
/* What the options of `tersor replay` mean. */
#include "cli/words.h"

#include "cli/files.h"
#include "text/bytes.h"

/* --- Hyperparameters -------------------------------------------------------------------------- */

/* The hyperparameter that an option calls so. */
static int find_hyper(const struct cli_cmd *cmd, const char *option, const char *text,
		      enum tsr_hyper_name *ret)
{
	struct tsr_nearest nearest = { .wrong = text };
	char what[48];

	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
		*ret = (enum tsr_hyper_name)i;
		if (strcmp(tsr_hyper_name(*ret), text) == 0)
			return CLI_OK;
		tsr_nearest_offer(&nearest, tsr_hyper_name(*ret));
	}
	snprintf(what, sizeof(what), "option --%s: unknown name", option);
	return cli_unknown(cmd, what, &nearest, ", expected lr, momentum, beta2 or similar");
}

/* The options that are a hyperparameter. */
static int parse_hyper(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		       struct tsr_hyper *h)
{
	const struct {
		const char *option;
		enum tsr_hyper_name name;
		double value;
	} rows[] = {
		{ "lr", TSR_HYPER_LR, a->lr },
		{ "eps", TSR_HYPER_EPS, a->eps },
		{ "weight-decay", TSR_HYPER_WEIGHT_DECAY, a->weight_decay },
		{ "nesterov", TSR_HYPER_NESTEROV, 1 },
		{ "decouple-lr", TSR_HYPER_DECOUPLE_LR, 1 },
	};
	const char *betas = a->betas;
	char first[CLI_WORD_NBYTES];
	double beta1, beta2;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (cli_given(&a->common, rows[i].option))
			tsr_hyper_put(h, rows[i].name, rows[i].value);
	}
	if (!cli_next_word(&betas, first))
		return CLI_OK;
	if (!betas || !cli_parse_double(first, &beta1) || !cli_parse_double(betas, &beta2))
		return cli_usage(cmd, "option --betas: found '%s', expected two numbers B1,B2",
				 a->betas);
	tsr_hyper_put(h, TSR_HYPER_BETA1, beta1);
	tsr_hyper_put(h, TSR_HYPER_BETA2, beta2);
	return CLI_OK;
}

static int parse_optimizer(const struct cli_cmd *cmd, const struct cli_replay_args *a,
			   struct tsr_replay_options *o)
{
	const bool flashoptim = a->state && strcmp(a->state, "flashoptim") == 0;

	if (a->optimizer)
		tsr_optimizer_find(a->optimizer, &o->optimizer);
	for (unsigned i = 0; i < a->hyper.n; i++) {
		enum tsr_hyper_name name;
		char text[32];
		double value;

		if (!cli_split_setting(a->hyper.items[i], text, &value))
			return cli_usage(
				cmd, "option --hyper: found '%s', expected NAME=X with a number",
				a->hyper.items[i]);
		CLI_TRY(find_hyper(cmd, "hyper", text, &name));
		tsr_hyper_put(&o->hyper, name, value);
	}
	CLI_TRY(parse_hyper(cmd, a, &o->hyper));
	/* Only one state of FlashOptim's form implies an order; others are compared in one. */
	o->order_given = a->order || flashoptim;
	if (a->order)
		tsr_order_find(a->order, &o->order);
	else if (flashoptim)
		o->order = TSR_ORDER_FLASHOPTIM;
	if (a->schedule && tsr_hyper_is_set(&o->hyper, TSR_HYPER_LR))
		return cli_usage(cmd, "--schedule and a constant lr exclude each other");
	o->schedule = a->schedule;
	return CLI_OK;
}

/* --- State ------------------------------------------------------------------------------------ */

/* What a state, or without one (NULL) the other options, name. */
static int parse_coding(const struct cli_cmd *cmd, const struct cli_replay_args *a,
			const char *state, struct tsr_coding coding[TSR_SLOTS])
{
	const bool fp32 = state && strcmp(state, "fp32") == 0;
	enum tsr_scale scale = TSR_SCALE_COUNT;
	bool learned = false, grouped = false, had = false, refused = false;
	double number;

	for (unsigned p = 0; fp32 && p < TSR_SLOTS; p++)
		coding[p] = tsr_coding_default(tsr_codec_find("f32"));
	if (state && !fp32) {
		coding[TSR_SLOT_WEIGHT] = tsr_pack_defaults().weight;
		CLI_TRY(cli_parse_state(cmd, state, &coding[TSR_SLOT_MOMENTUM],
					&coding[TSR_SLOT_VARIANCE]));
	}
	if (a->codec[TSR_SLOT_MOMENTUM] && cli_parse_double(a->codec[TSR_SLOT_MOMENTUM], &number))
		return cli_usage(cmd,
				 "option --momentum: found a number, expected a codec; the "
				 "hyperparameter is --hyper momentum=%s",
				 a->codec[TSR_SLOT_MOMENTUM]);
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const enum tsr_kind kind = tsr_slot_kind((enum tsr_slot)p);
		const struct tsr_codec *codec = a->codec[p] ? tsr_codec_find(a->codec[p]) : NULL;

		if (a->codec[p] && (!codec || !codec->learned || !(codec->kinds & kind)))
			CLI_TRY(cli_parse_codec(cmd, a->codec[p], kind, &codec));
		if (codec && coding[p].codec)
			coding[p].codec = codec;
		else if (codec)
			coding[p] = tsr_coding_default(codec);
		learned = learned || (coding[p].codec && coding[p].codec->learned);
	}
	if (a->scale)
		tsr_scale_find(a->scale, &scale);
	if ((a->scale || a->group) && learned)
		return cli_usage(cmd,
				 "--scale and --group do not go with gefen8 and blockmean, whose "
				 "blocks are learned");
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		if (!coding[p].codec)
			continue;
		coding[p] = tsr_coding_with(coding[p].codec, a->scale ? scale : coding[p].scale,
					    (uint32_t)a->group);
		*(coding[p].scale == scale ? &had : &refused) |= coding[p].codec->grouped;
		coding[p].seed = a->seed;
		grouped = grouped || coding[p].codec->grouped;
	}
	if ((a->scale || a->group) && !grouped)
		return cli_usage(
			cmd, "--scale and --group need a codec with groups; --state, --momentum "
			     "or --variance names it");
	if (a->scale && refused && !had)
		return cli_usage(cmd, "--scale %s needs a codec with such scales", a->scale);
	if (a->seed &&
	    !(coding[TSR_SLOT_WEIGHT].codec && coding[TSR_SLOT_WEIGHT].codec->stochastic))
		return cli_usage(cmd, "--seed needs --weights bf16+sr<k> or fp16+sr<k>");
	return CLI_OK;
}

/* "flash,tight": states that are compared side by side. */
static int parse_forms(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		       struct cli_replay_parsed *ret)
{
	snprintf(ret->words, sizeof(ret->words), "%s", a->state);
	for (char *rest = ret->words, *word; (word = strsep(&rest, ",")); ret->nforms++) {
		if (ret->nforms == TSR_REPLAY_FORMS_MAX)
			return cli_usage(cmd, "option --state: found '%s', expected at most %u",
					 a->state, TSR_REPLAY_FORMS_MAX);
		for (unsigned i = 0; i < ret->nforms; i++) {
			if (strcmp(ret->forms[i].name, word) == 0)
				return cli_usage(cmd, "option --state: found %s twice", word);
		}
		ret->forms[ret->nforms].name = word;
		CLI_TRY(parse_coding(cmd, a, word, ret->forms[ret->nforms].coding));
	}
	if (a->common.output || a->check_numerics)
		return cli_usage(cmd,
				 "several states are compared: leave %s out, or name one state",
				 a->common.output ? "-o" : "--check-numerics");
	ret->options.compare = true;
	return CLI_OK;
}

/* --- Variants: all combinations of values of hyperparameters ------------------------------------ */

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
	return find_hyper(cmd, "vary", text, name_ret);
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

static int parse_vary(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		      struct cli_replay_parsed *ret)
{
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

/* --- Steps ------------------------------------------------------------------------------------ */

static bool parse_step(const char *text, size_t n, uint64_t *ret)
{
	return tsr_digits(text, n, TSR_JSON_INT_MAX, ret) && *ret > 0;
}

/* "401..416", "401..", "..416" or "401". */
static int parse_steps(const struct cli_cmd *cmd, const char *steps, struct tsr_replay_options *o)
{
	const char *dots = steps ? strstr(steps, "..") : NULL;
	bool ok;

	if (!steps)
		return CLI_OK;
	if (!dots) {
		ok = parse_step(steps, strlen(steps), &o->first_step);
		o->last_step = o->first_step;
	} else {
		ok = (dots == steps || parse_step(steps, (size_t)(dots - steps), &o->first_step)) &&
		     (!dots[2] || parse_step(dots + 2, strlen(dots + 2), &o->last_step));
	}
	if (!ok || (o->first_step && o->last_step && o->first_step > o->last_step))
		return cli_usage(cmd, "option --steps: found '%s', expected A..B with A up to B",
				 steps);
	return CLI_OK;
}

static int parse_modes(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		       struct tsr_replay_options *o)
{
	if (a->on_nonfinite && strcmp(a->on_nonfinite, "skip") == 0)
		o->on_nonfinite = TSR_NONFINITE_SKIP;
	if (a->on_missing && strcmp(a->on_missing, "fail") == 0)
		o->on_missing = TSR_MISSING_FAIL;
	o->count = a->count;
	o->has_count = cli_given(&a->common, "count") != NULL;
	o->zero_state = a->zero_state;
	o->compare = o->compare || cli_given(&a->common, "compare max-error csv svg html");
	o->check_numerics = a->check_numerics;
	o->state_dir = a->state_on_disk;
	return parse_steps(cmd, a->steps, o);
}

/* --- All of it -------------------------------------------------------------------------------- */

int cli_replay_parse(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		     struct cli_replay_parsed *ret)
{
	const struct cli_common *common = &a->common;
	struct tsr_replay_options *o = &ret->options;
	char words[CLI_BOUNDS_MAX][CLI_WORD_NBYTES];
	struct tsr_write_options write;

	*o = tsr_replay_defaults();
	ret->nforms = 0;
	o->dry_run = common->dry_run;
	o->open = &common->open;
	CLI_TRY(parse_optimizer(cmd, a, o));
	o->keep_scales = a->scale != NULL;
	ret->learn = cli_learn_options(&a->learning);
	o->learn = &ret->learn;
	CLI_TRY(a->state && strchr(a->state, ',') ? parse_forms(cmd, a, ret)
						  : parse_coding(cmd, a, a->state, o->coding));
	if (a->vary.n)
		CLI_TRY(parse_vary(cmd, a, ret));
	CLI_TRY(parse_modes(cmd, a, o));
	CLI_TRY(cli_split_bounds(cmd, &a->max_error, words, &o->ngates));
	for (unsigned i = 0; i < o->ngates; i++) {
		char name[32];
		struct tsr_nearest nearest = { .wrong = name };
		struct tsr_gate *gate = &ret->gates[i];

		if (!cli_split_setting(words[i], name, &gate->limit) || gate->limit < 0)
			return cli_usage(
				cmd,
				"option --max-error: found '%s', expected FIGURE=VALUE with 0 or "
				"more",
				words[i]);
		for (unsigned k = 0; k < TSR_FIGURE_COUNT; k++)
			tsr_nearest_offer(&nearest, tsr_figure_name((enum tsr_figure_name)k));
		if (!tsr_figure_find(name, &gate->figure))
			return cli_unknown(cmd, "option --max-error: unknown figure", &nearest,
					   ", expected update-nmse or similar");
	}
	o->gates = ret->gates;
	o->rules = ret->rules;
	CLI_TRY(cli_parse_rules(cmd, NULL, &a->map, ret->rules, &o->nrules));
	if (!common->output)
		return CLI_OK;
	write = cli_write_options(common, a->to);
	o->container = write.container;
	o->to_flashoptim = write.flashoptim;
	o->decode = a->to != NULL;
	o->max_shard_nbytes = write.max_shard_nbytes;
	o->force = write.force;
	return CLI_OK;
}
