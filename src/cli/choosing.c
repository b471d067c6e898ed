/* SPDX-License-Identifier: Apache-2.0 */
/* The options of pack that choose codecs by their errors. */
#include "cli/words.h"

#define STATE_KINDS (TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE)

/* A form of state, a pair of codecs, or a codec for all kinds that it is for. */
static int parse_word(const struct cli_cmd *cmd, const char *item, struct tsr_candidate *ret)
{
	const struct tsr_codec *codec;

	if (strchr(item, '/'))
		return cli_parse_state(cmd, item, &ret->momentum, &ret->variance);
	if (tsr_state_form(item, &ret->momentum, &ret->variance)) {
		if (!ret->momentum.codec->learned)
			return CLI_OK;
		return cli_usage(cmd,
				 "--auto-codecs: %s is learned from the data and no codec to "
				 "choose",
				 item);
	}
	CLI_TRY(cli_parse_codec(cmd, item, TSR_KIND_WEIGHT | STATE_KINDS, &codec));
	if ((codec->kinds & STATE_KINDS) && (codec->kinds & STATE_KINDS) != STATE_KINDS)
		return cli_usage(cmd,
				 "--auto-codecs: %s is for %s only; a pair such as softsign8/sqrt8 "
				 "names both",
				 item, codec->kinds & TSR_KIND_MOMENTUM ? "momenta" : "variances");
	if (codec->kinds & TSR_KIND_WEIGHT)
		ret->weight.codec = codec;
	if (codec->kinds & STATE_KINDS)
		ret->momentum.codec = ret->variance.codec = codec;
	return CLI_OK;
}

static void set_scale(struct tsr_coding *coding, enum tsr_scale scale, uint32_t group)
{
	/* A form of state may have brought its own. */
	if (coding->codec)
		*coding = tsr_coding_with(coding->codec,
					  coding->scale == TSR_SCALE_F16 ? TSR_SCALE_F16 : scale,
					  group);
}

int cli_parse_choosing(const struct cli_cmd *cmd, const struct cli_choosing *choosing,
		       enum tsr_scale scale, uint32_t group, bool weights,
		       struct tsr_choice_options *ret)
{
	char item[CLI_WORD_NBYTES];

	*ret = tsr_choice_defaults();
	ret->bound = choosing->bound;
	ret->max_nbytes = choosing->max_bytes;
	ret->weight_steps = !weights;
	if (choosing->codecs)
		ret->ncandidates = 0;
	for (const char *list = choosing->codecs; cli_next_word(&list, item);) {
		struct tsr_candidate *to = &ret->candidates[ret->ncandidates];

		if (ret->ncandidates == TSR_CANDIDATES_MAX)
			return cli_usage(cmd, "--auto-codecs: more than %u", TSR_CANDIDATES_MAX);
		*to = (struct tsr_candidate){ .weight = { .codec = NULL } };
		CLI_TRY(parse_word(cmd, item, to));
		ret->ncandidates++;
	}
	for (unsigned i = 0; i < ret->ncandidates; i++) {
		if (weights && ret->candidates[i].weight.codec)
			return cli_usage(cmd, "--weights does not go with codecs of weights in "
					      "--auto-codecs");
		set_scale(&ret->candidates[i].weight, scale, group);
		set_scale(&ret->candidates[i].momentum, scale, group);
		set_scale(&ret->candidates[i].variance, scale, group);
	}
	return CLI_OK;
}
