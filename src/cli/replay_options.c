/* SPDX-License-Identifier: Apache-2.0 */
/* What the words of `tersor replay` mean. */
#include "cli/replay_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/coding.h"

static bool parse_number(const char *text, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return *text && !*end && *ret - *ret == 0;
}

/* --- Hyperparameters -------------------------------------------------------------------------- */

static int put_number(const struct cli_cmd *cmd, const char *option, const char *text,
		      enum tsr_hyper_name name, struct tsr_hyper *h)
{
	double value;

	if (!text)
		return CLI_OK;
	if (!parse_number(text, &value))
		return cli_usage(cmd, "option --%s: found '%s', expected a number", option, text);
	tsr_hyper_put(h, name, value);
	return CLI_OK;
}

static int parse_betas(const struct cli_cmd *cmd, const char *betas, struct tsr_hyper *h)
{
	const char *comma = betas ? strchr(betas, ',') : NULL;
	double beta1, beta2;
	char first[64];

	if (!betas)
		return CLI_OK;
	snprintf(first, sizeof(first), "%.*s", (int)(comma ? comma - betas : 0), betas);
	if (!comma || !parse_number(first, &beta1) || !parse_number(comma + 1, &beta2))
		return cli_usage(cmd, "option --betas: found '%s', expected two numbers B1,B2",
				 betas);
	tsr_hyper_put(h, TSR_HYPER_BETA1, beta1);
	tsr_hyper_put(h, TSR_HYPER_BETA2, beta2);
	return CLI_OK;
}

static const char *next_hyper(void *ctx)
{
	unsigned *i = ctx;

	return *i < TSR_HYPER_COUNT ? tsr_hyper_name((enum tsr_hyper_name)(*i)++) : NULL;
}

static int parse_hyper(const struct cli_cmd *cmd, const char *item, struct tsr_hyper *h)
{
	const char *equals = strchr(item, '='), *near;
	unsigned name = 0;
	double value;
	char text[32];

	if (!equals || !parse_number(equals + 1, &value))
		return cli_usage(cmd, "option --hyper: found '%s', expected NAME=X with a number",
				 item);
	snprintf(text, sizeof(text), "%.*s", (int)(equals - item), item);
	while (name < TSR_HYPER_COUNT &&
	       strcmp(tsr_hyper_name((enum tsr_hyper_name)name), text) != 0)
		name++;
	if (name < TSR_HYPER_COUNT) {
		tsr_hyper_put(h, (enum tsr_hyper_name)name, value);
		return CLI_OK;
	}
	name = 0;
	near = cli_nearest(text, next_hyper, &name);
	if (near)
		return cli_usage(cmd, "option --hyper: unknown name '%s'; did you mean '%s'?", text,
				 near);
	return cli_usage(cmd, "option --hyper: unknown name '%s', expected momentum or the like",
			 text);
}

static int parse_optimizer(const struct cli_cmd *cmd, const struct cli_replay_args *a,
			   struct tsr_replay_options *o)
{
	struct tsr_hyper *h = &o->hyper;
	int status = CLI_OK;

	if (a->optimizer && !tsr_optimizer_find(a->optimizer, &o->optimizer))
		return cli_usage(cmd,
				 "unknown optimizer '%s', expected sgd, sgdw, adam, adamw or lion",
				 a->optimizer);
	for (unsigned i = 0; i < a->hyper.n && status == CLI_OK; i++)
		status = parse_hyper(cmd, a->hyper.items[i], h);
	if (status == CLI_OK)
		status = put_number(cmd, "lr", a->lr, TSR_HYPER_LR, h);
	if (status == CLI_OK)
		status = parse_betas(cmd, a->betas, h);
	if (status == CLI_OK)
		status = put_number(cmd, "eps", a->eps, TSR_HYPER_EPS, h);
	if (status == CLI_OK)
		status = put_number(cmd, "weight-decay", a->weight_decay, TSR_HYPER_WEIGHT_DECAY,
				    h);
	if (a->compat && strcmp(a->compat, "flashoptim") != 0 && strcmp(a->compat, "pytorch") != 0)
		return cli_usage(cmd, "unknown --compat '%s', expected flashoptim or pytorch",
				 a->compat);
	o->order_given = a->compat || a->state;
	o->flashoptim = strcmp(a->compat  ? a->compat
			       : a->state ? a->state
					  : "pytorch",
			       "flashoptim") == 0;
	if (a->nesterov)
		tsr_hyper_put(h, TSR_HYPER_NESTEROV, 1);
	if (a->decouple_lr)
		tsr_hyper_put(h, TSR_HYPER_DECOUPLE_LR, 1);
	if (status == CLI_OK && a->schedule && tsr_hyper_is_set(h, TSR_HYPER_LR))
		return cli_usage(cmd, "--schedule and a constant lr exclude each other");
	o->schedule = a->schedule;
	return status;
}

/* --- State ------------------------------------------------------------------------------------ */

static int parse_state(const struct cli_cmd *cmd, const char *state, struct tsr_replay_options *o)
{
	static const char *const flash[TSR_PARTS] = { "bf16+ulp8", "softsign8", "sqrt8" };
	const bool flashoptim = state && strcmp(state, "flashoptim") == 0;

	if (!state)
		return CLI_OK;
	if (!flashoptim && strcmp(state, "flash") != 0 && strcmp(state, "fp32") != 0)
		return cli_usage(cmd, "unknown state '%s', expected fp32, flash or flashoptim",
				 state);
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		o->coding[p] = tsr_coding_default(
			tsr_codec_find(strcmp(state, "fp32") == 0 ? "f32" : flash[p]));
		if (flashoptim)
			o->coding[p].scale = TSR_SCALE_F16;
	}
	return CLI_OK;
}

static int parse_codecs(const struct cli_cmd *cmd, const struct cli_replay_args *a,
			struct tsr_replay_options *o)
{
	double number;

	if (a->codec[TSR_PART_MOMENTUM] && parse_number(a->codec[TSR_PART_MOMENTUM], &number))
		return cli_usage(cmd,
				 "option --momentum: found a number, expected a codec; the "
				 "hyperparameter is --hyper momentum=%s",
				 a->codec[TSR_PART_MOMENTUM]);
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_codec *codec;
		int status;

		if (!a->codec[p])
			continue;
		status = cli_parse_codec(cmd, a->codec[p], tsr_part_kind((enum tsr_part)p), &codec);
		if (status != CLI_OK)
			return status;
		if (o->coding[p].codec)
			o->coding[p].codec = codec;
		else
			o->coding[p] = tsr_coding_default(codec);
	}
	return CLI_OK;
}

static int parse_coding(const struct cli_cmd *cmd, const struct cli_replay_args *a,
			struct tsr_replay_options *o)
{
	int status = parse_state(cmd, a->state, o);
	bool grouped = false;
	enum tsr_scale scale;

	if (status == CLI_OK)
		status = parse_codecs(cmd, a, o);
	if (status == CLI_OK && a->scale)
		status = cli_parse_scale(cmd, a->scale, &scale);
	if (status != CLI_OK)
		return status;
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		if (!o->coding[p].codec)
			continue;
		if (a->scale)
			o->coding[p].scale = scale;
		o->coding[p].group = a->group ? (uint32_t)a->group : TSR_GROUP_DEFAULT;
		o->coding[p].seed = a->seed;
		grouped = grouped || o->coding[p].codec->grouped;
	}
	if ((a->scale || a->group) && !grouped)
		return cli_usage(
			cmd, "--scale and --group need a codec with groups; --state, --momentum "
			     "or --variance names it");
	if (a->seed &&
	    !(o->coding[TSR_PART_WEIGHT].codec && o->coding[TSR_PART_WEIGHT].codec->stochastic))
		return cli_usage(cmd, "--seed needs --weights bf16+sr<k> or fp16+sr<k>");
	return CLI_OK;
}

/* --- Steps ------------------------------------------------------------------------------------ */

static bool parse_step(const char *text, size_t n, uint64_t least, uint64_t *ret)
{
	uint64_t value = 0;

	if (!n || n > 15)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = 10 * value + (uint64_t)(text[i] - '0');
	}
	*ret = value;
	return value >= least;
}

/* "401..416", "401..", "..416" or "401". */
static int parse_steps(const struct cli_cmd *cmd, const char *steps, struct tsr_replay_options *o)
{
	const char *dots = steps ? strstr(steps, "..") : NULL;
	bool ok;

	if (!steps)
		return CLI_OK;
	if (!dots) {
		ok = parse_step(steps, strlen(steps), 1, &o->first_step);
		o->last_step = o->first_step;
	} else {
		ok = (dots == steps ||
		      parse_step(steps, (size_t)(dots - steps), 1, &o->first_step)) &&
		     (!dots[2] || parse_step(dots + 2, strlen(dots + 2), 1, &o->last_step));
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
	else if (a->on_nonfinite && strcmp(a->on_nonfinite, "fail") != 0)
		return cli_usage(cmd, "option --on-nonfinite: found '%s', expected fail or skip",
				 a->on_nonfinite);
	if (a->on_missing && strcmp(a->on_missing, "fail") == 0)
		o->on_missing = TSR_MISSING_FAIL;
	else if (a->on_missing && strcmp(a->on_missing, "skip") != 0)
		return cli_usage(cmd, "option --on-missing: found '%s', expected skip or fail",
				 a->on_missing);
	if (a->compare && strcmp(a->compare, "fp32") != 0)
		return cli_usage(cmd, "option --compare: found '%s', expected fp32", a->compare);
	if (a->count && !parse_step(a->count, strlen(a->count), 0, &o->count))
		return cli_usage(cmd, "option --count: found '%s', expected a number of steps",
				 a->count);
	o->has_count = a->count != NULL;
	o->zero_state = a->zero_state;
	o->compare = a->compare || a->gate.n || a->csv.given || a->svg || a->html;
	o->check_numerics = a->check_numerics;
	return parse_steps(cmd, a->steps, o);
}

/* --- Gates and rules -------------------------------------------------------------------------- */

static const char *next_figure(void *ctx)
{
	unsigned *i = ctx;

	return *i < TSR_FIGURE_COUNT ? tsr_figure_name((enum tsr_figure_name)(*i)++) : NULL;
}

static int parse_gate(const struct cli_cmd *cmd, const char *item, struct tsr_gate *ret)
{
	const char *equals = strchr(item, '='), *near;
	unsigned next = 0;
	char name[32];

	if (!equals || !parse_number(equals + 1, &ret->limit) || ret->limit < 0)
		return cli_usage(cmd,
				 "option --gate: found '%s', expected FIGURE=VALUE with 0 or more",
				 item);
	snprintf(name, sizeof(name), "%.*s", (int)(equals - item), item);
	if (tsr_figure_find(name, &ret->figure))
		return CLI_OK;
	near = cli_nearest(name, next_figure, &next);
	if (near)
		return cli_usage(cmd, "option --gate: unknown figure '%s'; did you mean '%s'?",
				 name, near);
	return cli_usage(
		cmd, "option --gate: unknown figure '%s', expected update-nmse or the like", name);
}

static int parse_rule(const struct cli_cmd *cmd, const char *item, struct tsr_name_rule *ret)
{
	char *equals = strrchr((char *)item, '=');

	if (!equals || !tsr_kind_find(equals + 1, &ret->kind))
		return cli_usage(cmd,
				 "option --map: found '%s', expected REGEX=KIND with weight, "
				 "momentum, variance or other",
				 item);
	*equals = '\0';
	ret->regex = item;
	return CLI_OK;
}

static int parse_lists(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		       struct cli_replay_parsed *ret)
{
	int status = CLI_OK;

	if (a->gate.n > CLI_REPLAY_GATES_MAX || a->map.n > CLI_REPLAY_RULES_MAX)
		return cli_usage(cmd, "more than %d --gate or %d --map options",
				 CLI_REPLAY_GATES_MAX, CLI_REPLAY_RULES_MAX);
	for (unsigned i = 0; i < a->gate.n && status == CLI_OK; i++)
		status = parse_gate(cmd, a->gate.items[i], &ret->gates[i]);
	for (unsigned i = 0; i < a->map.n && status == CLI_OK; i++)
		status = parse_rule(cmd, a->map.items[i], &ret->rules[i]);
	ret->options.gates = ret->gates;
	ret->options.ngates = a->gate.n;
	ret->options.rules = ret->rules;
	ret->options.nrules = a->map.n;
	return status;
}

/* --- All of it -------------------------------------------------------------------------------- */

/* What only an output has. */
static int parse_output(const struct cli_cmd *cmd, const struct cli_replay_args *a,
			struct tsr_replay_options *o)
{
	struct tsr_write_options write = tsr_write_defaults();
	int status;

	if (!a->output && (a->to || a->max_shard || a->force))
		return cli_usage(cmd, "--to, --max-shard-size and --force need an output; give it "
				      "with -o OUT");
	if (!a->output)
		return CLI_OK;
	status = cli_parse_container(cmd, a->to, a->output, &write);
	o->container = write.container;
	o->to_flashoptim = write.flashoptim;
	o->decode = a->to != NULL;
	o->max_shard_nbytes = a->max_shard;
	o->force = a->force;
	return status;
}

int cli_replay_parse(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		     struct cli_replay_parsed *ret)
{
	struct tsr_replay_options *o = &ret->options;
	int status;

	*o = tsr_replay_defaults();
	o->dry_run = a->dry_run;
	status = parse_optimizer(cmd, a, o);
	if (status == CLI_OK)
		status = parse_coding(cmd, a, o);
	if (status == CLI_OK)
		status = parse_modes(cmd, a, o);
	if (status == CLI_OK)
		status = parse_lists(cmd, a, ret);
	return status == CLI_OK ? parse_output(cmd, a, o) : status;
}
